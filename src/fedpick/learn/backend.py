"""What a backend is: an object that places examples, trains cohorts and moves the model. Nothing here imports JAX."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

from fedpick.core.types import Floats, Ints
from fedpick.data.federated import Dataset
from fedpick.learn.batches import Batches

__all__ = ["Backend", "Examples", "LocalResults", "LocalSGD", "ModuleBackend", "Params", "Scores"]

Params = Any  # of a model: arrays in nested dicts, lists or tuples
Scores = tuple[Floats, Floats]  # loss and hit (1 or 0) of examples


@dataclass(frozen=True)
class LocalSGD:
    """How a client trains.

    Args:
        momentum: of SGD, as in PyTorch: v = momentum v + gradient, w = w - lr v; v starts at 0 in each round.
        weight_decay: times the weights, added to the gradient.
        prox: FedProx's mu (E3CS's gamma): mu/2 |w - w_sent|^2 added to the loss.
        precision: "float32", "float64", or "bfloat16" for activations over float32 weights.
        optimizer: "sgd", "adam" or "adamw", as in PyTorch.
        clip: longest gradient; a longer one is scaled down. None: any.
    """

    momentum: float = 0.0
    weight_decay: float = 0.0
    prox: float = 0.0
    precision: str = "float32"
    optimizer: str = "sgd"
    clip: float | None = None


class LocalResults(NamedTuple):
    """Results of C clients."""

    delta: Params  # (C, ...) local model minus the model sent
    loss: Any  # (C) mean training loss over all examples seen, each under the model that saw it
    norm: Any  # (C) Euclidean length of delta


class Examples(Protocol):
    """Examples where a backend computes with them."""

    @property
    def stacks(self) -> bool:
        """Whether several models can be scored in one call."""
        ...

    def launch(self, model: Any, params: Params, index: Ints, several: bool = False) -> Callable[[], Scores]:
        """Begin to score these examples; what it returns waits for the scores: of several models, a row for each.

        Args:
            model: whose parameters they are.
            params: of a model, or with `several` of several, stacked along the first axis.
            index: of the examples.
            several: whether there are several models.
        """
        ...


class Backend(Protocol):
    """How and where the clients of a trainer train: `fedpick.learn.jax.forms` with JAX, `fedpick.learn.torch.loop`."""

    devices: int  # that a cohort is dealt out to
    compiles: bool  # anew for batches of a new shape, so that they are padded to the largest that any client can need
    still: tuple[int, ...]  # of `leaves`: positions of arrays that no gradient moves

    @property
    def kind(self) -> str:
        """What it computes on, for the manifest: "cpu", or "gpu: NVIDIA H200"."""
        ...

    def init(self, model: Any, server: Any, seed: int) -> dict[str, Any]:
        """The first parameters, "params", and the state of the server's optimiser, "server"."""
        ...

    def place(self, dataset: Dataset, part: str) -> Examples:
        """The "train" or "test" examples, placed once for all trainers that share the data set."""
        ...

    def everywhere(self, params: Params) -> Params:
        """The parameters on all devices."""
        ...

    def train(
        self,
        model: Any,
        local: LocalSGD,
        examples: Any,
        sent: Params,
        batches: Batches,
        owner: Any = None,
        added: Params | None = None,
    ) -> LocalResults:
        """Train a cohort of C clients.

        Args:
            model: what is trained.
            local: how.
            examples: for training, as `place` returned them.
            sent: the parameters that they start from; with an `owner`, of several models, stacked along the first axis.
            batches: what each client sees.
            owner: (C) which of the stacked models each client starts from; None: there is one.
            added: (C, ...) what is added to every gradient of a client; None: nothing.
        """
        ...

    def combine(self, server: Any, model: dict[str, Any], delta: Params, weights: Any) -> dict[str, Any]:
        """Parameters and the server's state after a round; updates of weight 0 may hold anything, NaN too."""
        ...

    def outputs(self, model: Any, params: Params, dataset: Dataset, part: str, index: Ints) -> Floats:
        """What the model gives for each of these examples, a row each."""
        ...

    def stack(self, models: Sequence[Params]) -> Params:
        """Several models, stacked along the first axis."""
        ...

    def rows(self, delta: Params, slots: Ints) -> Params:
        """Some of the updates."""
        ...

    def leaves(self, tree: Params) -> list[Any]:
        """The arrays of parameters, or of a cohort's updates, in one order."""
        ...

    def restore(self, params: Params, leaves: Sequence[Any]) -> Params:
        """Arrays, as `leaves` gave them, in the structure of these parameters."""
        ...

    def trained(self, model: Any, delta: Params) -> list[Any]:
        """What was trained of a cohort's updates: for each array of weights, (C, ...) as the model has it."""
        ...

    def distances(self, delta: Params, weights: Any) -> Any:
        """Squared distance of every update to their weighted mean; updates of weight 0 may hold anything, NaN too."""
        ...

    def inputs(self, dataset: Dataset, x: Any) -> Floats:
        """Stored examples as numbers that centre and scale pixels, in the shape of the data."""
        ...

    def embed(self, model: Any, sent: Params, delta: Params, noise: Any) -> Any:
        """(C, L) mean outputs of each local model on these inputs."""
        ...

    def validation_losses(
        self, model: Any, dataset: Dataset, index: Ints, sent: Params, delta: Params, weights: Any
    ) -> Floats:
        """Mean loss on these test examples of the model sent plus each weighted sum of the updates.

        Args:
            model: that was trained.
            dataset: of the examples.
            index: of the test examples.
            sent: the parameters before.
            delta: updates; those of weight 0 may hold anything, NaN too.
            weights: (blocks, sums, updates).
        """
        ...

    def add(self, models: Sequence[Params], delta: Params, weights: Any) -> Sequence[Params]:
        """Each model plus its weighted sum of the updates; weights are (models, clients)."""
        ...


@runtime_checkable
class ModuleBackend(Protocol):
    """A backend whose models are modules."""

    def module(self, params: Params) -> Any:
        """A new module with these weights, in evaluation mode."""
        ...
