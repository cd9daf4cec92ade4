"""What clients report besides their loss, and what the server computes from their updates."""

import re
from collections.abc import Callable, Collection, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from fedpick.core import rng as rngs
from fedpick.core.errors import SettingError
from fedpick.core.types import Bools, Floats, Ints, Updates
from fedpick.data.federated import Dataset, Federated
from fedpick.graph import sketch
from fedpick.learn import payload
from fedpick.learn.backend import Backend, Scores
from fedpick.learn.evaluation import segment_means, split_test
from fedpick.solvers import shapley

__all__ = [
    *("OF_DATA", "REPORTS", "check_reports", "gives", "needs_vectors", "noise_of", "of_data", "of_server", "vectors")
]

NOISE = 256  # number of random inputs for a functional embedding
# All reports that a trainer can give; and "sketch_32" for a sketch of any width.
REPORTS = ("update_norm", "embedding", "update", "output_update", "squared_loss", "accuracy", "shapley")
OF_DATA = ("squared_loss", "accuracy")  # those that take a pass over the clients' data
BLOCK = 8  # coalitions valued in one compiled call
WORST = 1e6  # larger losses of clients' means, and those that are no number, count as this
_SKETCH = re.compile(r"sketch_([1-9][0-9]{0,5})")


def gives(report: str) -> bool:
    """Whether a trainer can give this report."""
    return report in REPORTS or _SKETCH.fullmatch(report) is not None


def check_reports(asked: Collection[str], model: Any, shapes: Sequence[tuple[int, ...]], dataset: Dataset) -> None:
    """Raise unless these reports can be made of a model whose parameters have these shapes, with this data."""
    biases = dataset.outputs[-1:]
    if "output_update" in asked and biases not in shapes:
        raise SettingError(
            f"the report 'output_update' is of the output layer's biases, but the model {model.name!r} has no "
            f"array of shape {biases}; use a model with such biases"
        )
    if "embedding" in asked and dataset.x.dtype == np.int32:
        raise SettingError(
            f"the report 'embedding' is of Gaussian inputs, but {dataset.name} has tokens (int32); use a policy that "
            "does not ask for it"
        )
    if "shapley" in asked and len(dataset.test_x) < 2:
        raise SettingError(
            f"the report 'shapley' values updates on the server's examples, but {dataset.name} has "
            "no test examples; use data that has, or a policy that does not ask for it"
        )


def needs_vectors(asked: Collection[str]) -> bool:
    """Whether a report is made of the updates themselves."""
    of_updates = ("update", "embedding", "output_update", "shapley")
    return any(name in of_updates or _SKETCH.fullmatch(name) for name in asked)


def vectors(
    asked: Collection[str], backend: Backend, model: Any, dataset: Dataset, sent: Any, delta: Any
) -> dict[str, Any]:
    """A vector per client: the update itself (FedGS (11)), a sketch of it, or a functional embedding (12).

    Args:
        asked: names of all reports.
        backend: that trained it.
        model: that was trained.
        dataset: that it was trained on.
        sent: the parameters before.
        delta: updates, a row per client.
    """
    found: dict[str, Any] = {}
    widths = [int(match[1]) for name in asked if (match := _SKETCH.fullmatch(name))]
    if "update" in asked or widths:
        leaves = [np.asarray(leaf) for leaf in backend.trained(model, delta)]
        rows = np.concatenate([leaf.reshape(len(leaf), -1) for leaf in leaves], axis=1)
        found |= {f"sketch_{width}": sketch(rows, width) for width in widths}
        found |= {"update": rows} if "update" in asked else {}
    if "output_update" in asked:
        biases = [leaf for leaf in backend.trained(model, delta) if leaf.shape[1:] == dataset.outputs[-1:]]
        found["output_update"] = np.asarray(biases[-1], dtype=np.float64)
    if "embedding" in asked:
        found["embedding"] = np.asarray(backend.embed(model, sent, delta, noise_of(backend, dataset)))
    return found


_NOISES: WeakKeyDictionary[Dataset, NDArray[np.float32]] = WeakKeyDictionary()


def noise_of(backend: Backend, dataset: Dataset) -> NDArray[np.float32]:
    """Gaussian inputs with the held-out data's mean and covariance: random mixtures of its deviations."""
    if dataset not in _NOISES:
        some = (dataset.test_x if len(dataset.test_x) else dataset.x)[:2000]
        inputs = backend.inputs(dataset, some).reshape(len(some), -1)
        mean = inputs.mean(axis=0)
        mixtures = rngs.stream(0, 0, "embedding noise").standard_normal((NOISE, len(some))) / np.sqrt(len(some))
        rows = mean + mixtures @ (inputs - mean)
        _NOISES[dataset] = rows.reshape(NOISE, *dataset.inputs).astype(np.float32)
    return _NOISES[dataset]


def of_data(asked: Collection[str], data: Federated, score: Callable[[Ints], Scores], ids: Ints) -> dict[str, Floats]:
    """Reports that take a pass over these clients' data, with the model that they were sent.

    Args:
        asked: names of all reports.
        data: of all clients.
        score: examples -> their scores under that model.
        ids: of the clients.
    """
    held = [data.examples_of(int(client)) for client in ids]
    starts = np.concatenate([[0], np.cumsum([len(part) for part in held])])
    each, hits = score(np.concatenate(held))
    found = {"squared_loss": np.square(each), "accuracy": hits}
    return {name: segment_means(found[name], starts) for name in OF_DATA if name in asked}


def of_server(
    asked: Collection[str],
    backend: Backend,
    model: Any,
    data: Federated,
    sent: Any,
    updates: Updates,
    ids: Ints,
    round: int,
    set_aside: int,
) -> dict[str, Floats]:
    """What the server computes itself: Shapley values of the usable updates; NaN for the others.

    Args:
        asked: names of all reports.
        backend: that trained it.
        model: that was trained.
        data: of all clients.
        sent: the parameters before.
        updates: of a cohort.
        ids: of the cohort.
        round: in which it trained.
        set_aside: test examples that the server has.
    """
    if "shapley" not in asked:
        return {}
    at, slots = payload.usable(updates)
    mine, sizes = split_test(data.dataset, set_aside)[0], data.sizes[ids[at]].astype(np.float64)
    delta = updates.payload[0]

    def losses(weights: Floats) -> Floats:
        return backend.validation_losses(model, data.dataset, mine, sent, delta, weights)

    value = _coalitions(losses, len(backend.leaves(delta)[0]), slots, sizes)
    found = np.full(len(ids), np.nan)
    found[at] = shapley(value, len(at), rngs.stream(0, round, "shapley"))  # one set of orders for all runs
    return {"shapley": found}


def _coalitions(
    losses: Callable[[Any], Floats], rows_of_updates: int, slots: Any, sizes: Floats
) -> Callable[[Bools], Floats]:
    """The value of coalitions of clients: minus the validation loss of the mean of their models, weighted by size.

    Args:
        losses: (blocks, coalitions, updates) weights -> the validation loss of each coalition.
        rows_of_updates: how many there are, unused ones too.
        slots: where among them those of the clients are.
        sizes: of the clients.
    """

    def value(rows: Bools) -> Floats:
        held = rows * sizes
        weights = np.zeros((-(-len(rows) // BLOCK) * BLOCK, rows_of_updates), np.float32)
        weights[: len(rows), slots] = held / np.maximum(held.sum(axis=1, keepdims=True), 1e-300)
        found = losses(weights.reshape(-1, BLOCK, rows_of_updates))[: len(rows)]
        # No client has a part in the model that was sent: if it has no loss, the updates have no value.
        bad = np.where(rows.any(axis=1) | np.isfinite(found), WORST, np.nan)
        worth: Floats = -np.where(np.abs(found) <= WORST, found, bad)
        return worth

    return value
