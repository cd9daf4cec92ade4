"""fedpick's trainer: data, a model, and how clients and server learn (see `fedpick.core.protocol.Trainer`)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from fedpick._support.text import make
from fedpick.core.errors import ContractError, SettingError, require, unknown_name
from fedpick.core.types import Bools, Choice, Floats, Ints, Outcome, Status, Updates
from fedpick.data.federated import Federated
from fedpick.data.objects import divided
from fedpick.data.settings import SERVER_EXAMPLES
from fedpick.engine.stream import Job, TaskCall
from fedpick.engine.weights import bases
from fedpick.learn import algorithms, batches, payload
from fedpick.learn.aggregation import AGGREGATIONS, Memory
from fedpick.learn.algorithms import ALGORITHMS, Work
from fedpick.learn.backend import LocalResults, LocalSGD, ModuleBackend
from fedpick.learn.batches import Batches
from fedpick.learn.evaluation import Evaluation, segment_means
from fedpick.learn.measures import Metric, check_metrics
from fedpick.learn.reports import OF_DATA, REPORTS, check_reports, gives, of_data, of_server, vectors
from fedpick.learn.setup import FORMS, Setup, set_up
from fedpick.learn.tasks import train_calls

__all__ = ["Trainer"]


@dataclass(eq=False)
class Trainer(Evaluation):
    """Trains cohorts of clients on their data, aggregates and evaluates.

    Args:
        data: what each client holds; or what `fedpick.data.read` makes this of, such as a list of PyTorch's data sets.
        model: what is trained: a `fedpick.learn.Model` (JAX), or a `torch.nn.Module` class, a function that makes
            such a module, or a module, whose weights are then the first ones at every seed (PyTorch).
        lr: learning rate of the clients: a number, or a function of the round (`fedpick.core.schedules`).
        batch: examples per local step.
        steps: local steps per epoch, in full batches; None: an epoch is one pass over the client's data. The world
            decides how many epochs each client trains (`World.epochs`: 1 to 4 by default, as in E3CS).
        momentum: of local SGD; reset in each round.
        weight_decay: of local SGD.
        prox: FedProx's mu; 0 is FedAvg.
        aggregation: "fedavg", "mean", "o2", "horvitz-thompson" or "fedau"; see `fedpick.learn.aggregation`.
        late_beta: beta of REFL's weight of late updates, in worlds that keep them (`World.late`).
        server: the server's optimiser: an optax one, or a text such as "fedadam(lr=0.01)"; None adds the mean update.
        evaluate_every: rounds between evaluations on the held-out data; the last round of a run is evaluated only if
            it is a multiple of this.
        spread_every: rounds between passes over the data of all clients, for the global training loss and the spread
            of accuracy over clients; None: at every evaluation, 0: never.
        metrics: what is measured of the model besides accuracy and loss, on the held-out data: "macro_f1",
            "balanced_accuracy", "auroc", "perplexity", "mae", "rmse" (see `fedpick.learn.measures`), or functions of
            outputs and targets (arrays with a row per example) that return a number, or a dict of numbers. A function
            says whether larger is better with an attribute, unless its name tells: score.directions = {"score":
            "larger"}.
        reports: what clients report besides their loss: "update_norm", "embedding" (functional, FedGS (12)), "update",
            "sketch_32" (of the update, of any width: `fedpick.graph.sketch`), "output_update" (of the output layer's
            biases: the last array with one number per output); of the model that they were sent, on all
            of their data: "squared_loss" (mean of the examples' squared losses), "accuracy". Computed by the server:
            "shapley", what an update is worth on the examples of `set_aside`.
        set_aside: test examples (at most half) that belong to the server, and that no test uses; 0: none, or 1,000 if
            the report "shapley" is asked for. In a comparison all runs need the same, to be tested on the same
            examples; `fedpick.compare` sees to it.
        precision: "float32", "bfloat16" for activations over float32 weights, or "float64" (of JAX only where
            jax_enable_x64 is set).
        form: of JAX: "scan", "vmap", "loop" (see `fedpick.learn.jax.forms`), or "auto": the fastest here for this
            model.
        loss: of PyTorch: a function (outputs, targets) -> the loss of each example; None: cross-entropy of labels,
            squared error of targets.
        optimizer: of the clients: "sgd", or of PyTorch also "adam" and "adamw".
        clip: of PyTorch: the longest gradient, longer ones are scaled down to it; None: any.
        place: of PyTorch: "cpu", or a GPU: "cuda", "cuda:1".
        algorithm: "fedavg", "scaffold", "feddyn(alpha=0.01)" or "fednova"; see `fedpick.learn.algorithms`.

    >>> import fedpick as fp
    >>> federated = fp.data.Synthetic(1.0, 1.0)(num_clients=10, rng=fp.rng.stream(0, 0, "data"))
    >>> trainer = fp.learn.Trainer(federated, fp.learn.logistic((60,), 10), lr=0.05, batch=50, steps=5)
    >>> sorted(trainer.evaluate(trainer.init(seed=1), round=10))
    ['accuracy', 'spread', 'test_loss', 'train_loss', 'worst_decile']
    """

    data: Federated
    model: Any
    lr: float | Callable[[int], float] = 0.05
    batch: int = 50
    steps: int | None = None
    momentum: float = 0.0
    weight_decay: float = 0.0
    prox: float = 0.0
    aggregation: str = "fedavg"
    late_beta: float = 0.35
    server: Any = None
    evaluate_every: int = 10
    spread_every: int | None = None
    metrics: tuple[Metric, ...] = ()
    reports: tuple[str, ...] = ("update_norm",)
    set_aside: int = 0
    precision: str = "float32"
    form: str = "auto"
    loss: Callable[..., Any] | None = None
    optimizer: str = "sgd"
    clip: float | None = None
    place: str = "cpu"
    algorithm: str = "fedavg"
    _padded: tuple[int, int] = field(default=(0, 0), init=False, repr=False)

    def __post_init__(self) -> None:
        self._check_settings()
        if not isinstance(self.data, Federated):
            self.data = divided(self.data)
        empty = np.flatnonzero(self.data.sizes == 0)
        if len(empty):
            raise ContractError(f"client {empty[0]} has no examples; leave such clients out of the partition")
        check_metrics(self.metrics, self.data.dataset)
        self._algorithm = make(self.algorithm, "algorithm", ALGORITHMS, values={}, example="feddyn(alpha=0.01)")
        local = LocalSGD(self.momentum, self.weight_decay, self.prox, self.precision, self.optimizer, self.clip)
        self._algorithm.check(local, self.aggregation, self.server)
        self._local = replace(local, prox=self.prox or self._algorithm.prox)
        made = self._set_up()
        self.model, self.backend, self.server, self.form = made.model, made.backend, made.server, made.form
        self._size = made.size
        self._algorithm.fits(made.size, len(self.data), self.precision)
        check_reports(self.reports, self.model, made.shapes, self.data.dataset)
        self._rule = AGGREGATIONS[self.aggregation]
        if "shapley" in self.reports and not self.set_aside:
            self.set_aside = SERVER_EXAMPLES

    def _set_up(self) -> Setup:
        """The model with the backend that trains it."""
        return set_up(self.model, self.data.dataset, self._local, self.server, self.form, self.loss, self.place)

    def _check_settings(self) -> None:
        """Raise unless every setting is within its bounds."""
        require(self.batch >= 1, "Trainer: batch", self.batch, ">= 1 example")
        require(self.steps is None or self.steps >= 1, "Trainer: steps", self.steps, ">= 1, or None for a pass")
        require(callable(self.lr) or self.lr > 0, "Trainer: lr", self.lr, "> 0, or a function of the round")
        require(0.0 <= self.momentum < 1.0, "Trainer: momentum", self.momentum, "in [0, 1)")
        require(self.weight_decay >= 0.0, "Trainer: weight_decay", self.weight_decay, ">= 0")
        require(self.prox >= 0.0, "Trainer: prox", self.prox, ">= 0")
        require(0.0 <= self.late_beta <= 1.0, "Trainer: late_beta", self.late_beta, "in [0, 1]")
        require(self.clip is None or self.clip > 0.0, "Trainer: clip", self.clip, "> 0, or None")
        require(self.evaluate_every >= 1, "Trainer: evaluate_every", self.evaluate_every, ">= 1 round")
        require(self.set_aside >= 0, "Trainer: set_aside", self.set_aside, ">= 0 examples")
        for value, known, what in (
            (self.aggregation, list(AGGREGATIONS), "aggregation"),
            (self.precision, ["float32", "bfloat16", "float64"], "precision"),
            (self.form, ["auto", *FORMS], "form"),
            (self.optimizer, ["sgd", "adam", "adamw"], "optimiser of the clients"),
            *((name, [*REPORTS, "sketch_32"], "report") for name in self.reports if not gives(name)),
        ):
            if value not in known:
                raise unknown_name(what, value, known)

    # ---- the model

    @property
    def computes_on(self) -> str:
        """What trains: "cpu", or "gpu: NVIDIA H200"."""
        return self.backend.kind

    @property
    def megabytes(self) -> float:
        """Size of one message to train or with an update, in units of 1e6 bytes."""
        return 4.0 * self._size * self._algorithm.parts / 1e6

    @property
    def probe_load(self) -> float:
        """What a probe carries, which is the model alone, of such a message."""
        return 1.0 / self._algorithm.parts

    @property
    def rounds_only(self) -> str:
        """Why it can use neither late updates nor do without rounds; "": it can."""
        return str(self._algorithm.reason)

    def init(self, seed: int) -> Any:
        """The model before the first round: parameters, the server's state, and what aggregation and algorithm keep."""
        first = {**self.backend.init(self.model, self.server, seed), **_memory(self._rule.init(len(self.data)))}
        state = self._algorithm.init(self.backend.leaves(first["params"]), len(self.data), self.backend.still)
        return {**first, "algorithm": state} if state else first

    def module(self, model: Any) -> Any:
        """The PyTorch module with a model's weights, in evaluation mode: run.trainer.module(run.state.model)."""
        if not isinstance(self.backend, ModuleBackend):
            raise SettingError(f"Trainer: the model {self.model.name!r} is JAX's, and has no torch.nn.Module")
        return self.backend.module(model["params"])

    # ---- the round

    def probe(self, model: Any, ids: Ints, batch: int | None, rng: np.random.Generator) -> Floats:
        """Loss of the model on all of these clients' data, or on a mini-batch of each."""
        chosen = batches.seen(self.data, ids, batch, rng)
        if not chosen:
            return np.empty(0)
        starts = np.concatenate([[0], np.cumsum([len(part) for part in chosen])])
        return segment_means(self.scores(model["params"], np.concatenate(chosen))[0], starts)

    def train(
        self, model: Any, ids: Ints, used: Bools, epochs: Floats, round: int, rng: np.random.Generator
    ) -> Updates:
        """Train the chosen clients whose updates will be used, and no others."""
        at = np.flatnonzero(used)
        if not len(at):
            return Updates(np.full(len(ids), np.nan))
        drawn = self.draw(ids, at, epochs, round, rng)
        trained = self.train_all(model["params"], drawn, None, *self.added([(model, ids[at])], len(drawn.steps)))
        updates = self.with_work(self.updates(model["params"], trained, at, len(ids), np.arange(len(at))), drawn)
        return self.with_reports(model["params"], updates, ids, at, round)

    def added(self, those: Sequence[tuple[Any, Ints]], lanes: int) -> tuple[Any, ...]:
        """(what is added to every gradient of these clients of some models, padded,); () for nothing."""
        return algorithms.added(self.backend, self._algorithm, those, lanes)

    def with_work(self, updates: Updates, drawn: Batches) -> Updates:
        """The updates with the local work behind them, if the algorithm asks for it."""
        if not self._algorithm.reason or updates.payload is None:
            return updates
        slots = updates.payload[2]
        work = Work(drawn.steps[slots].astype(np.int64), drawn.lr[slots].astype(np.float64))
        return replace(updates, payload=(*updates.payload, work))

    def longest(self, ids: Ints, at: Ints, epochs: Floats) -> int:
        """The most steps that one of these clients can take, or any client if a new number is compiled."""
        times = np.array([epochs[at].max(initial=1)]).astype(np.int64)
        sizes = self.data.sizes if self.backend.compiles else self.data.sizes[ids[at]]
        return int(batches.steps_of(np.array([sizes.max(initial=1)]), times, self.batch, self.steps)[0])

    def steps_for(self, longest: int) -> int:
        """Steps of a call in which a client takes up to so many: the most so far, if a new number is compiled."""
        if not self.backend.compiles:
            return longest
        self._padded = self._padded[0], max(longest, self._padded[1])
        return self._padded[1]

    def draw(self, ids: Ints, at: Ints, epochs: Floats, round: int, rng: np.random.Generator) -> Batches:
        """Batches, dropout keys and rates of the clients that train, padded to the largest shape seen so far."""
        devices = self.backend.devices
        clients = -(-len(ids) // devices) * devices
        self._padded = max(clients, self._padded[0]), self._padded[1]
        drawn = Batches.empty(self._padded[0], self.steps_for(self.longest(ids, at, epochs)), self.batch)
        self.draw_into(drawn.part(slice(0, len(at))), ids, at, epochs, round, rng)
        return drawn

    def draw_into(
        self, drawn: Batches, ids: Ints, at: Ints, epochs: Floats, round: int, rng: np.random.Generator
    ) -> None:
        """The same, written into empty arrays."""
        drawn.lr[:] = self.lr(round) if callable(self.lr) else self.lr
        batches.draw(self.data, ids[at], epochs[at].astype(np.int64), self.batch, self.steps, rng, drawn)
        drawn.keys[:] = rng.integers(0, 2**32, (len(at), 2), dtype=np.uint32)

    def train_all(self, params: Any, drawn: Batches, owner: Any = None, added: Any = None) -> LocalResults:
        """Train on what `draw` returned; with an `owner`, from several stacked models (see `Backend.train`)."""
        return self.backend.train(self.model, self._local, self.placed(), params, drawn, owner, added)

    def updates(self, sent: Any, trained: LocalResults, at: Ints, chosen: int, slots: Ints) -> Updates:
        """Results in the order of the cohort: of `chosen` clients, those at positions `at` trained, in these slots."""
        loss, norm = np.full(chosen, np.nan), np.full(chosen, np.nan)
        loss[at], norm[at] = np.asarray(trained.loss)[slots], np.asarray(trained.norm)[slots]
        reports: dict[str, Any] = {"update_norm": norm} if "update_norm" in self.reports else {}
        for name, found in vectors(
            self.reports, self.backend, self.model, self.data.dataset, sent, trained.delta
        ).items():
            reports[name] = np.full((chosen, found.shape[1]), np.nan)
            reports[name][at] = found[slots]
        return Updates(loss, reports, payload=(trained.delta, at, slots), valid=np.isfinite(norm))

    def part(self, updates: Updates, positions: Ints) -> Updates:
        """The updates of some of the clients that `train` was called with, in this order."""
        return payload.part(updates, positions)

    def with_reports(self, sent: Any, updates: Updates, ids: Ints, at: Ints, round: int) -> Updates:
        """The updates with the reports that take a pass over data: of the clients, or of the server for validation."""
        found = of_server(self.reports, self.backend, self.model, self.data, sent, updates, ids, round, self.set_aside)
        if any(name in OF_DATA for name in self.reports):
            for name, values in of_data(self.reports, self.data, partial(self.scores, sent), ids[at]).items():
                found[name] = np.full(len(ids), np.nan)
                found[name][at] = values
        return replace(updates, reports={**updates.reports, **found})

    def train_tasks(
        self,
        models: Mapping[int, Any],
        tasks: Sequence[Job],
        epochs: Floats,
        rngs: Sequence[np.random.Generator],
        most: int,
    ) -> tuple[Updates, dict[str, Any]]:
        """The updates of tasks that start from several versions of the model, and a row of each; in one compiled call.

        A task's batches come from its own stream, so they do not depend on which tasks are trained together.
        """
        return train_calls([self], [TaskCall(models, tasks, epochs, rngs, most)])[0]

    def move(self, model: Any, rows: Mapping[str, Any], weights: Floats, sent: Any = None) -> Any:
        """The model after these updates, which `train_tasks` gave; see `fedpick.simulate.abilities.StreamTrainer`."""
        delta, padded = payload.restored(
            self.backend, model["params"], rows, weights, None if sent is None else sent["params"]
        )
        return {**model, **self.backend.combine(self.server, model, delta, padded)}

    def weights(self, model: Any, choice: Choice, outcome: Outcome, updates: Updates) -> tuple[Floats, Memory]:
        """Weight of each chosen client's update, 0 for clients that are not DONE; and the aggregation's next memory."""
        returned = np.asarray(outcome.status) == Status.DONE
        found, memory = self._rule.apply(model.get("aggregation", {}), choice, returned, self.data.sizes)
        if self._algorithm.reason and updates.payload is not None:
            at, work = updates.payload[1], updates.payload[3]
            found = found.copy()
            found[at] = self._algorithm.weigh(found[at], work, self._local)
        return found, memory

    def keep(self, choice: Choice, updates: Updates) -> tuple[Ints, dict[str, Any]]:
        """(positions of usable updates, arrays to keep of them, a row each), for `aggregate` in a later round."""
        return payload.keep(self.backend, updates, self._base(choice), self._relative(choice))

    def _base(self, choice: Choice) -> Floats:
        """The weight of each chosen client's update, before weights are divided by their sum."""
        if self.aggregation == "mean":
            return choice.times.astype(np.float64)
        return bases(choice, self.data.clients.sizes)

    def _relative(self, choice: Choice) -> bool:
        """Whether weights are divided by their sum: the mean does not use the policy's, which may be as they are."""
        return self.aggregation == "mean" or choice.normalise

    def aggregate(self, model: Any, choice: Choice, outcome: Outcome, updates: Updates, delayed: Any = None) -> Any:
        """The next model, from the clients that are DONE; do not use the old one again, whose rows it may write into.

        Args:
            model: before the round.
            choice: of the policy.
            outcome: of the round.
            updates: of the chosen clients.
            delayed: updates of earlier rounds that have come in this one: what `keep` gave, with "round" (in which each
                was sent) and "now" (this round).
        """
        if delayed is None:
            each, memory = self.weights(model, choice, outcome, updates)
            delta, weights = payload.weighed(self.backend, updates, each)
        else:
            memory, returned = model.get("aggregation", {}), np.asarray(outcome.status) == Status.DONE
            base, relative, beta = self._base(choice), self._relative(choice), delayed.get("beta", self.late_beta)
            delta, weights = payload.join_late(
                self.backend, model["params"], updates, base, returned, relative, delayed, beta
            )
        after = {**self.backend.combine(self.server, model, delta, weights), **_memory(memory)}
        if not self._algorithm.keeps:
            return after
        rows, at, slots, work = updates.payload
        used = np.asarray(outcome.status)[at] == Status.DONE
        mine, did = choice.ids[at[used]], Work(work.steps[used], work.lr[used])
        those = mine, rows, slots[used], did
        sizes: Any = np.ones(len(self.data)) if self.aggregation == "mean" else self.data.sizes
        return algorithms.learnt(self.backend, self._algorithm, model, after, those, sizes[mine] / sizes.sum())


def _memory(memory: Memory) -> dict[str, Memory]:
    """As a part of the model: nothing of an aggregation that remembers nothing."""
    return {"aggregation": memory} if memory else {}
