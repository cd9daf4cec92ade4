"""Small dense networks on a CPU, in loops that Numba compiles: a cohort's local SGD, and the scores of examples.

It computes what `fedpick.learn.jax.cohort` and `fedpick.learn.jax.placement` compute. XLA spends most of a step of so
small a model on calling its parts, and compiles for every shape anew. Here one program serves all networks.
"""

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any
from weakref import WeakKeyDictionary

import jax
import numpy as np

from fedpick.core.types import Ints
from fedpick.data.federated import Dataset
from fedpick.learn.backend import LocalResults, LocalSGD, Params, Scores
from fedpick.learn.batches import Batches
from fedpick.learn.jax.loops import LANES, Singles, room, score_examples, train_clients
from fedpick.learn.jax.models import Model
from fedpick.learn.jax.objective import affine_of
from fedpick.learn.jax.placement import deal

__all__ = ["Rows", "mean", "place", "plus", "scores", "suits", "train"]

SHARE = 1_000_000  # multiplications that are worth waking a thread
SMALL = 6_000  # weights of a network with hidden layers, beyond which XLA's products are faster
ROOM = 1 << 26  # bytes that pixels may take as floats
TESTED = 250  # examples scored at once


def suits(model: Model, dataset: Dataset, precision: str) -> bool:
    """Whether this model is trained here on these data."""
    if not model.dense or precision != "float32" or dataset.y.ndim != 1 or jax.default_backend() != "cpu":
        return False
    if dataset.x.dtype != np.float32 and 4 * (dataset.x.size + dataset.test_x.size) > ROOM:
        return False
    return sum(a * b for a, b in pairwise(model.dense)) <= SMALL or len(model.dense) == 2


@dataclass(frozen=True, eq=False)
class Rows:
    """Examples as padded rows of floats; labels are floats, too."""

    x: Singles
    y: Singles
    labels: bool
    devices: int  # threads
    stacks = True

    def launch(self, model: Model, params: Any, index: Ints, several: bool = False) -> Callable[[], Scores]:
        """The scores of these examples, computed at once."""
        loss, hits = (part.astype(np.float64) for part in scores(params, self, index, several))
        return lambda: (loss, hits)


_ROWS: WeakKeyDictionary[Dataset, dict[tuple[str, int], Rows]] = WeakKeyDictionary()


def place(dataset: Dataset, part: str, threads: int) -> Rows:
    """The "train" or "test" examples as rows, once for all trainers that share the data set."""
    kept = _ROWS.setdefault(dataset, {})
    if (part, threads) not in kept:
        x, y = (dataset.x, dataset.y) if part == "train" else (dataset.test_x, dataset.test_y)
        if x.dtype != np.float32:
            scale, shift = map(np.asarray, affine_of(dataset))
            x = x.astype(np.float32) * scale + shift
        x = x.reshape(len(x), math.prod(x.shape[1:]))
        inputs = x.shape[1]
        padded = np.zeros((len(x), _width(inputs)), np.float32)
        padded[:, :inputs], padded[:, inputs] = x, 1.0
        kept[part, threads] = Rows(padded, np.asarray(y, np.float32), bool(dataset.classes), threads)
    return kept[part, threads]


def _width(units: Any) -> Any:
    """Inputs of a layer after so many units, padded; one of them is always 1, for the biases."""
    return -(-(units + 1) // LANES) * LANES


def _pack(params: Any, stacked: bool) -> tuple[Ints, Singles]:
    """Units of each layer, and (models, layers, outputs, inputs) weights as `fedpick.learn.jax.loops` has them."""
    layers = [(np.asarray(layer["w"]), np.asarray(layer["b"])) for layer in params]
    if not stacked:
        layers = [(w[None], b[None]) for w, b in layers]
    units = np.array([layers[0][0].shape[1], *(w.shape[2] for w, _ in layers)])
    packed = np.zeros((len(layers[0][0]), len(layers), units[1:].max(), _width(units[:-1]).max()), np.float32)
    for i, (w, b) in enumerate(layers):
        packed[:, i, : units[i + 1], : units[i]] = w.transpose(0, 2, 1)
        packed[:, i, : units[i + 1], units[i]] = b
    return units, packed


def _unpack(units: Ints, packed: Singles) -> list[dict[str, Singles]]:
    """The layers, without copying."""
    return [
        {"w": packed[:, i, :outputs, :inputs].transpose(0, 2, 1), "b": packed[:, i, :outputs, inputs]}
        for i, (inputs, outputs) in enumerate(pairwise(units))
    ]


@lru_cache(maxsize=1)
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads)


def train(
    model: Model,
    local: LocalSGD,
    rows: Rows,
    sent: Params,
    batches: Batches,
    owner: Any = None,
    added: Params | None = None,
) -> LocalResults:
    """Train a cohort, as `Backend.train` says; results do not depend on the number of threads."""
    units, packed = _pack(sent, owner is not None)
    index, count, steps, _, lr = (np.ascontiguousarray(part) for part in batches.parts())
    owner = np.zeros(len(steps), np.int32) if owner is None else np.asarray(owner, np.int32)
    before = packed[owner]
    after, loss = before.copy(), np.zeros(len(steps), np.float32)
    rates = (np.float32(rate) for rate in (local.momentum, local.weight_decay, local.prox))
    seen = rows.x, rows.y, rows.labels, units, packed, owner, index, count, steps, lr
    more = None if added is None else _pack(added, True)[1]
    how: tuple[Any, ...] = *seen, *rates, more, after, loss

    def of(these: Ints) -> None:
        call: Any = train_clients
        call(these, *how, *room(index.shape[2], units[-1]))

    busy = np.flatnonzero(steps)
    work = int(steps.sum()) * index.shape[2] * packed[0].size
    hands = min(rows.devices, len(busy), max(work // SHARE, 1))
    if hands <= 1:
        of(busy)
    else:
        even = np.concatenate([busy, np.full(-len(busy) % hands, -1)])  # -1: nobody
        shares = even[deal(np.where(even < 0, 0, steps[even]), hands)].reshape(hands, -1)
        for _ in _pool(rows.devices).map(lambda share: of(share[share >= 0]), shares):
            pass
    with np.errstate(invalid="ignore", over="ignore"):  # of clients that diverged: their norms show it
        after -= before
        norm = np.sqrt(np.square(after, dtype=np.float64).reshape(len(steps), -1).sum(axis=1)).astype(np.float32)
    return LocalResults(_unpack(units, after), loss, norm)


def scores(params: Any, rows: Rows, index: Ints, several: bool = False) -> tuple[Singles, Singles]:
    """Loss and hit (1 or 0) of each of these examples; of several stacked models, a row for each."""
    units, packed = _pack(params, several)
    index = np.asarray(index, np.int64)
    loss, hits = (np.zeros((len(packed), len(index)), np.float32) for _ in range(2))

    def of(task: tuple[int, int, int]) -> None:
        m, first, last = task
        how = index, rows.x, rows.y, rows.labels, units, packed[m], loss[m], hits[m]
        score_examples(first, last, *how, *room(TESTED, units[-1]))

    hands = min(rows.devices, max(len(index) * packed[0].size // SHARE, 1))
    cuts = np.linspace(0, -(-len(index) // TESTED), hands + 1).astype(np.int64) * TESTED
    cuts[-1] = len(index)
    tasks = [(m, int(a), int(b)) for m in range(len(packed)) for a, b in pairwise(cuts)]
    for _ in map(of, tasks) if hands <= 1 else _pool(rows.devices).map(of, tasks):
        pass
    return (loss, hits) if several else (loss[0], hits[0])


def mean(delta: Any, weights: Singles) -> Any:
    """The weighted sum of the updates; those of weight 0 may hold anything, NaN too."""
    used = np.flatnonzero(weights > 0)
    share = weights[used]

    def total(leaf: Any) -> Singles:
        with np.errstate(invalid="ignore", over="ignore"):
            found: Singles = (share.reshape(-1, *(1,) * (leaf.ndim - 1)) * leaf[used]).sum(axis=0)
        return found

    return [{name: total(leaf) for name, leaf in layer.items()} for layer in delta]


def plus(params: Any, step: Any) -> Any:
    """The parameters after a step."""
    pairs = zip(params, step, strict=True)
    return [{name: np.asarray(layer[name]) + more[name] for name in layer} for layer, more in pairs]
