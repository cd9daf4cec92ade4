"""Loss and correctness of a model on each example, and the figures of a round that are made of them."""

from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

from fedpick.data.federated import Federated
from fedpick.learn.models import Model
from fedpick.learn.objective import Affine, correct, losses, prepare
from fedpick.learn.placement import Arrays, mesh
from fedpick.types import Floats, Ints

__all__ = ["Launched", "by_client", "fetch", "figures", "launch", "score", "segment_means"]

WIDER = 16  # times the examples in one call on a GPU: there a call costs more than what it computes


@lru_cache
def _compiled(model: Model, devices: int) -> Any:
    def scores(params: Any, affine: Affine, x: Any, y: Any, index: Any) -> Any:
        outputs = model.apply(params, prepare(x[index], affine), None).astype(jnp.float32)
        return losses(outputs, y[index]), correct(outputs, y[index])

    if devices == 1:
        return jax.jit(scores)
    here, dealt = PartitionSpec(), PartitionSpec("core")
    spread = partial(jax.shard_map, mesh=mesh(devices), out_specs=dealt, check_vma=False)
    return jax.jit(spread(scores, in_specs=(here, here, here, here, dealt)))


def launch(model: Model, params: Any, arrays: Arrays, index: Ints) -> list[Any]:
    """Begin to score these examples on the device; `fetch` waits for it.

    One call per block, not a loop inside one call: in such a loop XLA 0.10 on several CPU devices gave wrong products.
    """
    block = model.chunk * (arrays.devices if jax.default_backend() == "cpu" else WIDER)
    padded = np.zeros(-(-len(index) // block) * block, np.int32)
    padded[: len(index)] = index
    function = _compiled(model, arrays.devices)
    return [function(params, arrays.affine, arrays.x, arrays.y, part) for part in padded.reshape(-1, block)]


def fetch(launched: list[Any], count: int) -> tuple[Floats, Floats]:
    """What was launched: loss and hit (1 or 0) of each of so many examples."""
    out = jax.device_get(launched)
    loss, hits = (np.concatenate([pair[i] for pair in out])[:count] for i in (0, 1))
    return loss.astype(np.float64), hits.astype(np.float64)


def score(model: Model, params: Any, arrays: Arrays, index: Ints) -> tuple[Floats, Floats]:
    """Loss and hit (1 or 0) of each of these examples."""
    return fetch(launch(model, params, arrays, index), len(index))


def segment_means(values: Floats, starts: Ints) -> Floats:
    """The mean of each run of values; NaN for an empty one.

    >>> segment_means(np.array([1.0, 3.0, 5.0]), np.array([0, 2, 2, 3]))
    array([ 2., nan,  5.])
    """
    counts = np.diff(starts)
    owner = np.repeat(np.arange(len(counts)), counts)
    with np.errstate(invalid="ignore"):
        means: Floats = np.bincount(owner, weights=values, minlength=len(counts)) / counts
    return means


def by_client(data: Federated, hits: Floats) -> Floats:
    """Accuracy of each client on its held-out examples, or where no client has any on its training examples.

    Args:
        data: of all clients.
        hits: 1 or 0 for each example of the data set.
    """
    own, starts = (data.held, data.held_starts) if len(data.held) else (data.examples, data.starts)
    return segment_means(hits[own], starts)


class Launched(NamedTuple):
    """An evaluation that is under way on the device."""

    own: list[Any] | None = None  # on all the examples that clients hold
    test: list[Any] | None = None  # on those held out


def figures(data: Federated, launched: Launched, tested: int) -> dict[str, float]:
    """What an evaluation found; nothing if none was due.

    Args:
        data: of all clients.
        launched: the evaluation.
        tested: on how many of the data set's test examples; 0: on what the clients hold out.
    """
    found: dict[str, float] = {}
    hits = None
    test, right = np.empty(0), np.empty(0)
    if launched.own is not None:
        loss, hits = fetch(launched.own, len(data.dataset))
        found["train_loss"] = float(loss[data.examples].mean())
    if launched.test is not None:
        test, right = fetch(launched.test, tested or len(data.held))
    if len(test):
        found["test_loss"] = float(test.mean())
        if data.dataset.classes:
            found["accuracy"] = float(right.mean())
    if hits is not None and data.dataset.classes:
        each = by_client(data, hits)
        each = np.sort(each[np.isfinite(each)])
        found["spread"] = float(each.std())
        found["worst_decile"] = float(each[: max(1, len(each) // 10)].mean())
    return found
