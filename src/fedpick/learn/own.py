"""A trainer of the user's own: they write how one client trains, and `fedpick.learn.Trainer` does the rest."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpick._support import user_code
from fedpick._support.text import make
from fedpick.core import rng as rngs
from fedpick.core.errors import FedpickError, SettingError
from fedpick.core.types import Floats, Ints
from fedpick.data.federated import Dataset
from fedpick.learn.backend import LocalResults, LocalSGD, Params, Scores
from fedpick.learn.batches import Batches
from fedpick.learn.nests import array_of, arrays_of, leaves_of, names_of
from fedpick.learn.pixels import inputs_of
from fedpick.learn.servers import SERVERS
from fedpick.learn.setup import Setup
from fedpick.learn.trainer import Trainer
from fedpick.learn.vectors import Vectors, each_of, total

__all__ = ["OwnTrainer"]

CHUNK = 500  # examples scored at once
Array = NDArray[Any]


@dataclass(eq=False)
class OwnTrainer(Trainer):
    """A base for trainers: write `first`, `fit` and `predict`, with any library, or none.

    What is done for you: batches (the same for every policy and for fedpick's own models), aggregation, the server's
    optimiser, metrics, worst_decile and spread, all reports, bytes, late updates, asynchronous runs, checkpoints. The
    settings are those of `fedpick.learn.Trainer` but for its model, `form` and `loss`; yours may read them: self.batch.

    `weights` are arrays in dicts or lists, or tensors, such as a state_dict: you get arrays, of the same names.

    >>> import fedpick as fp
    >>> class Nearest(OwnTrainer):
    ...     def first(self, seed):
    ...         return {"middle": np.zeros((10, 60))}
    ...     def fit(self, weights, batches, lr, seed):
    ...         middle = weights["middle"]
    ...         for x, y in batches:
    ...             for label in set(y.tolist()):
    ...                 middle[label] += lr * (x[y == label].mean(axis=0) - middle[label])
    ...         return weights, float(np.abs(middle).mean())
    ...     def predict(self, weights, x):
    ...         return -np.square(x[:, None] - weights["middle"]).sum(axis=2)
    >>> federated = fp.data.Synthetic(1.0, 1.0)(num_clients=10, rng=fp.rng.stream(0, 0, "data"))
    >>> trainer = Nearest(federated, batch=50, steps=5)
    >>> trainer.megabytes, sorted(trainer.evaluate(trainer.init(seed=1), round=10))
    (0.0024, ['accuracy', 'spread', 'test_loss', 'train_loss', 'worst_decile'])
    """

    model: Any = None

    def first(self, seed: int) -> Any:
        """The weights before the first round."""
        raise self._lacks("first(self, seed)", "the weights before the first round: arrays in dicts or lists")

    def fit(self, weights: Any, batches: "_Drawn", lr: float, seed: int) -> tuple[Any, float]:
        """One client's training.

        Args:
            weights: that it was sent; they are its own, and may be changed.
            batches: of inputs and labels, as arrays: `for x, y in batches`. Images have their channels last, pixels are
                centred and scaled. There are as many as the client's epochs take.
            lr: learning rate.
            seed: for what is random in the training, such as dropout.

        Returns:
            the weights after it, and the mean training loss.
        """
        raise self._lacks("fit(self, weights, batches, lr, seed)", "the weights after training and the mean loss")

    def predict(self, weights: Any, x: Array) -> Any:
        """The outputs for these inputs, a row each: a number per class (logits), or of a regression the value."""
        raise self._lacks("predict(self, weights, x)", "a row of outputs for each input")

    def losses(self, outputs: Array, y: Array) -> Any:
        """The loss of each example: cross-entropy of labels, squared error of targets, of several the mean."""
        if np.issubdtype(y.dtype, np.integer):
            moved = outputs - outputs.max(axis=-1, keepdims=True)
            right = np.take_along_axis(moved, y[..., None].astype(np.int64), axis=-1)[..., 0]
            each = np.log(np.exp(moved).sum(axis=-1)) - right
        else:
            each = np.square(outputs.reshape(y.shape) - y)
        return each.reshape(len(y), -1).mean(axis=1)

    def _lacks(self, method: str, gives: str) -> SettingError:
        return SettingError(f"{type(self).__name__}: write the method {method}, which returns {gives}")

    def _set_up(self) -> Setup:
        name = type(self).__name__
        given = {"model": self.model, "loss": self.loss} | ({} if self.form == "auto" else {"form": self.form})
        for key, value in given.items():
            if value is not None:
                raise SettingError(f"{name}: {key} = {value!r:.60}, but it trains as its fit says; leave {key} out")
        if self._algorithm.keeps:
            raise SettingError(
                f"{name}: algorithm = {self._algorithm.name!r} changes every gradient of a client, but the gradients "
                f"of {name} are in its fit; use 'fedavg' or 'fednova', or write it into fit"
            )
        if self.precision == "bfloat16":
            raise SettingError(f"{name}: precision = 'bfloat16', but weights are 'float32' or 'float64'")
        server = self.server
        if isinstance(server, str):
            server = make(server, "server optimiser", SERVERS, values={}, example="fedadam(lr=0.01)")
        if server is not None and not hasattr(server, "move"):
            raise SettingError(f"{name}: server = {server!r:.60}, but must be a text such as 'fedadam(lr=0.01)'")
        backend = Own(self, np.float64 if self.precision == "float64" else np.float32)
        backend.check(self.data.dataset)
        return Setup(_Named(name), backend, server, "auto", backend.shapes, backend.size)


@dataclass(frozen=True)
class _Named:
    """What errors call the model."""

    name: str


class _Drawn:
    """The batches of one client, which can be gone through more than once."""

    def __init__(self, data: "_Examples", batches: Batches, c: int) -> None:
        self._data, self._batches, self._c = data, batches, c

    def __len__(self) -> int:
        return int(self._batches.steps[self._c])

    def __iter__(self) -> Iterator[tuple[Array, Array]]:
        for s in range(len(self)):
            yield self._data.at(self._batches.index[self._c, s, : self._batches.count[self._c, s]])


@dataclass(frozen=True, eq=False)
class _Examples:
    """Examples that are scored, or trained on."""

    backend: "Own"
    dataset: Dataset
    part: str
    stacks = True

    def at(self, index: NDArray[np.integer]) -> tuple[Array, Array]:
        """Inputs and labels of these."""
        data = self.dataset
        x, y = (data.x, data.y) if self.part == "train" else (data.test_x, data.test_y)
        return inputs_of(data, x[index]), y[index]

    def launch(self, model: Any, params: Params, index: Ints, several: bool = False) -> Callable[[], Scores]:
        """The scores of these examples, computed at once."""
        rows = [self.backend.scores(one, self, index) for one in each_of(params, several)]
        loss, hits = (np.stack([row[i] for row in rows]) if several else rows[0][i] for i in (0, 1))
        return lambda: (loss, hits)


class Own(Vectors):
    """The backend of an `OwnTrainer`: its methods, client after client.

    Args:
        trainer: whose methods they are.
        kind: of floating-point numbers.
    """

    devices = 1
    kind = "cpu"

    def __init__(self, trainer: OwnTrainer, kind: Any) -> None:
        self.trainer, self.numbers, self.name = trainer, kind, type(trainer).__name__
        self.template = arrays_of(self._call("first", 0), f"{self.name}.first")
        found = leaves_of(self.template)
        self.shapes = [leaf.shape for _, leaf in found if leaf.dtype.kind == "f"]
        self.size = sum(leaf.size for _, leaf in found)
        if not self.shapes:
            raise SettingError(
                f"{self.name}.first: gives no array of floating-point numbers, but these are what is trained; give "
                "arrays in a dict or a list"
            )

    def _call(self, method: str, *given: Any) -> Any:
        """What a method of the user's returns; whatever it raises is one sentence."""
        try:
            return getattr(self.trainer, method)(*given)
        except FedpickError:
            raise
        except Exception as error:  # it is the user's code
            lines = str(error).splitlines() or [""]
            where = user_code.place(error)
            raise SettingError(f"{self.name}.{method}: {type(error).__name__}: {lines[0][:200]}{where}") from error

    # ---- weights

    def _vector(self, tree: Any, method: str) -> Array:
        """The trained numbers of the user's weights."""
        wanted, found = leaves_of(self.template), leaves_of(arrays_of(tree, f"{self.name}.{method}"))
        if [name for name, _ in wanted] != [name for name, _ in found]:
            raise SettingError(
                f"{self.name}.{method}: gives weights named {names_of(found)}, but those of first are "
                f"{names_of(wanted)}; give the same"
            )
        for (name, old), (_, new) in zip(wanted, found, strict=True):
            if old.shape != new.shape:
                raise SettingError(
                    f"{self.name}.{method}: {name} has shape {new.shape}, but first gave it {old.shape}; give the same"
                )
        parts = [new.reshape(-1) for (_, old), (_, new) in zip(wanted, found, strict=True) if old.dtype.kind == "f"]
        vector: Array = np.concatenate(parts).astype(self.numbers)
        return vector

    def _tree(self, vector: Array) -> Any:
        """The user's weights, as arrays that may be changed; whole numbers are those of `first`."""
        at = 0

        def built(part: Any) -> Any:
            nonlocal at
            if isinstance(part, dict):
                return {name: built(each) for name, each in part.items()}
            if isinstance(part, list):
                return [built(each) for each in part]
            if part.dtype.kind != "f":
                return part.copy()
            at += part.size
            return vector[at - part.size : at].reshape(part.shape).astype(part.dtype)

        return built(self.template)

    def init(self, model: Any, server: Any, seed: int) -> dict[str, Any]:
        """The first parameters and the server's state."""
        drawn = self._call("first", int(rngs.stream(seed, 0, "model").integers(2**31)))
        params = {"kept": np.empty(0, self.numbers), "weights": self._vector(drawn, "first")}
        return {"params": params, "server": [] if server is None else server.init(params["weights"])}

    # ---- training

    def place(self, dataset: Dataset, part: str) -> _Examples:
        """The examples, where they are."""
        return _Examples(self, dataset, part)

    def train(
        self,
        model: Any,
        local: LocalSGD,
        examples: _Examples,
        sent: Params,
        batches: Batches,
        owner: Any = None,
        added: Params | None = None,
    ) -> LocalResults:
        """Train a cohort; see `fedpick.learn.backend.Backend.train`."""
        clients, starts = len(batches.steps), np.atleast_2d(sent["weights"])
        delta = np.zeros((clients, starts.shape[1]), self.numbers)
        loss, norm = np.zeros(clients), np.zeros(clients)
        for c in np.flatnonzero(batches.steps).tolist():
            start = starts[0 if owner is None else int(owner[c])]
            seed = int(batches.keys[c, 0]) << 31 ^ int(batches.keys[c, 1])
            drawn, rate = _Drawn(examples, batches, c), float(batches.lr[c])
            made = self._call("fit", self._tree(start), drawn, rate, seed)
            if not isinstance(made, tuple) or len(made) != 2:
                found = f"{type(made).__name__}" + (f" of {len(made)}" if isinstance(made, tuple) else "")
                raise SettingError(f"{self.name}.fit: returns {found}, but must return (weights, loss)")
            delta[c] = self._vector(made[0], "fit") - start
            loss[c], norm[c] = self._number(made[1]), np.linalg.norm(delta[c])
        kept = np.zeros((clients, 0), self.numbers)
        return LocalResults({"kept": kept, "weights": delta}, loss, norm)

    def _number(self, loss: Any) -> float:
        try:
            return float(loss)
        except (TypeError, ValueError):
            raise SettingError(f"{self.name}.fit: the loss is {loss!r:.60}, but must be a number") from None

    # ---- what a model gives

    def _predicted(self, tree: Any, x: Array) -> Array:
        found = array_of(self._call("predict", tree, x))
        if found.dtype.kind not in "biuf" or found.ndim < 1 or len(found) != len(x):
            raise SettingError(
                f"{self.name}.predict: gives {found.dtype} of shape {found.shape} for {len(x)} inputs, but must give a "
                "row of numbers for each"
            )
        return found.astype(np.float64)

    def scores(self, params: Params, examples: _Examples, index: Ints) -> Scores:
        """Loss and hit of each of these examples."""
        tree, loss, hits = self._tree(params["weights"]), [np.empty(0)], [np.empty(0)]
        for first in range(0, len(index), CHUNK):
            x, y = examples.at(index[first : first + CHUNK])
            outputs = self._predicted(tree, x)
            loss.append(np.asarray(array_of(self._call("losses", outputs, y)), np.float64))
            hits.append(_hits(outputs, y))
        return np.concatenate(loss), np.concatenate(hits)

    def outputs(self, model: Any, params: Params, dataset: Dataset, part: str, index: Ints) -> Floats:
        """What the model gives for these examples."""
        tree, examples = self._tree(params["weights"]), self.place(dataset, part)
        parts = [
            self._predicted(tree, examples.at(index[first : first + CHUNK])[0]) for first in range(0, len(index), CHUNK)
        ]
        return np.concatenate(parts)

    def inputs(self, dataset: Dataset, x: Any) -> Floats:
        """Stored examples as numbers."""
        return inputs_of(dataset, x)

    def embed(self, model: Any, sent: Params, delta: Params, noise: Any) -> Any:
        """Mean outputs of each local model on the noise."""
        each = (self._tree(sent["weights"] + row) for row in delta["weights"])
        return np.stack([self._predicted(tree, noise).mean(axis=0).reshape(-1) for tree in each])

    def validation_losses(
        self, model: Any, dataset: Dataset, index: Ints, sent: Params, delta: Params, weights: Any
    ) -> Floats:
        """Mean loss on these test examples of the model sent plus each weighted sum of the updates."""
        examples, found = self.place(dataset, "test"), []
        for row in np.asarray(weights).reshape(-1, np.shape(weights)[-1]):
            moved = {"weights": sent["weights"] + total(delta["weights"], row)}
            found.append(self.scores(moved, examples, index)[0].mean())
        return np.array(found)

    def check(self, dataset: Dataset) -> None:
        """Raise unless predictions and losses have a place for each of two examples."""
        index = np.array([0, min(1, len(dataset) - 1)])
        x, y = self.place(dataset, "train").at(index)
        outputs = self._predicted(self._tree(self._vector(self.template, "first")), x)
        wanted = (2, *dataset.outputs)
        own = type(self.trainer).losses is not OwnTrainer.losses
        fits = outputs.shape == wanted or (wanted == (2, 1) and not dataset.classes and outputs.shape == (2,))
        if not fits and not own:
            raise SettingError(
                f"{self.name}.predict: gives outputs of shape {outputs.shape} for 2 inputs of shape {dataset.inputs}, "
                f"but {dataset.name} has {dataset.says}: it must give {wanted}, or write a method losses(self, "
                "outputs, y)"
            )
        each = array_of(self._call("losses", outputs, y))
        if each.shape != (2,):
            raise SettingError(
                f"{self.name}.losses: gives shape {each.shape} for 2 examples, but must give a loss for each, of shape "
                "(2,)"
            )


def _hits(outputs: Array, y: Array) -> Floats:
    """1 where the label is right, of several the share; 0 for a regression, and for outputs of another shape."""
    if not np.issubdtype(y.dtype, np.integer) or outputs.shape[:-1] != y.shape:
        return np.zeros(len(y))
    hits: Floats = (outputs.argmax(axis=-1) == y).reshape(len(y), -1).mean(axis=1)
    return hits
