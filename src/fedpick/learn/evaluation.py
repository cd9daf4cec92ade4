"""Loss and correctness of a model on each example, and the figures of a round that are made of them."""

from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec

from fedpick.core.types import Floats, Ints
from fedpick.data.federated import Federated
from fedpick.learn import dense
from fedpick.learn.models import Model
from fedpick.learn.objective import Affine, correct, losses, prepare
from fedpick.learn.placement import Arrays, mesh

__all__ = ["Scores", "by_client", "fetch", "figures", "launch", "outputs", "score", "segment_means"]

WIDER = 16  # times the examples in one call on a GPU: there a call costs more than what it computes

Scores = tuple[Floats, Floats]  # loss and hit (1 or 0) of examples


@lru_cache
def _compiled(model: Model, devices: int, several: bool) -> Any:
    def scores(params: Any, affine: Affine, x: Any, y: Any, index: Any) -> Any:
        outputs = model.apply(params, prepare(x[index], affine), None).astype(jnp.float32)
        return losses(outputs, y[index]), correct(outputs, y[index])

    def of_each(params: Any, *rest: Any) -> Any:
        return lax.map(lambda one: scores(one, *rest), params)

    if devices == 1:
        return jax.jit(of_each if several else scores)
    here, dealt = PartitionSpec(), PartitionSpec("core")
    spread = partial(jax.shard_map, mesh=mesh(devices), out_specs=dealt, check_vma=False)
    return jax.jit(spread(scores, in_specs=(here, here, here, here, dealt)))


def launch(model: Model, params: Any, arrays: Arrays | dense.Rows, index: Ints, several: bool = False) -> list[Any]:
    """Begin to score these examples on the device; `fetch` waits for it.

    With `several`, on one device, params are those of several models, stacked along the first axis.

    One call per block, not a loop inside one call: in such a loop XLA 0.10 on several CPU devices gave wrong products.
    """
    if isinstance(arrays, dense.Rows):
        return [dense.scores(params, arrays, index, several)]
    block = model.chunk * (arrays.devices if jax.default_backend() == "cpu" else WIDER)
    padded = np.zeros(-(-len(index) // block) * block, np.int32)
    padded[: len(index)] = index
    function = _compiled(model, arrays.devices, several)
    return [function(params, arrays.affine, arrays.x, arrays.y, part) for part in padded.reshape(-1, block)]


def fetch(launched: list[Any], count: int) -> Scores:
    """What was launched, for so many examples; of several models, a row for each."""
    # A CPU's memory is the host's: nothing has to be copied, which `device_get` prepares for every array.
    out = jax.tree.map(np.asarray, launched) if jax.default_backend() == "cpu" else jax.device_get(launched)
    loss, hits = (np.concatenate([pair[i] for pair in out], axis=-1)[..., :count] for i in (0, 1))
    return loss.astype(np.float64), hits.astype(np.float64)


def score(model: Model, params: Any, arrays: Arrays | dense.Rows, index: Ints) -> Scores:
    """Loss and hit (1 or 0) of each of these examples."""
    return fetch(launch(model, params, arrays, index), len(index))


@lru_cache
def _compiled_outputs(model: Model) -> Any:
    def outputs(params: Any, affine: Affine, x: Any, index: Any) -> Any:
        return model.apply(params, prepare(x[index], affine), None).astype(jnp.float32)

    return jax.jit(outputs)


def outputs(model: Model, params: Any, arrays: Arrays, index: Ints) -> Floats:
    """What the model gives for each of these examples, a row each, computed on one device."""
    block = model.chunk if jax.default_backend() == "cpu" else model.chunk * WIDER
    padded = np.zeros(-(-len(index) // block) * block, np.int32)
    padded[: len(index)] = index
    function = _compiled_outputs(model)
    parts = [function(params, arrays.affine, arrays.x, part) for part in padded.reshape(-1, block)]
    found: Floats = np.concatenate(jax.device_get(parts))[: len(index)]
    return found


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


def figures(data: Federated, own: Scores | None, test: Scores | None) -> dict[str, float]:
    """What an evaluation found; nothing if none was due.

    Args:
        data: of all clients.
        own: scores of all examples of the data set, which the clients hold.
        test: scores of those held out.
    """
    found: dict[str, float] = {}
    if own is not None:
        found["train_loss"] = float(own[0][data.examples].mean())
    if test is not None and len(test[0]):
        found["test_loss"] = float(test[0].mean())
        if data.dataset.classes:
            found["accuracy"] = float(test[1].mean())
    if own is not None and data.dataset.classes:
        each = by_client(data, own[1])
        each = np.sort(each[np.isfinite(each)])
        found["spread"] = float(each.std())
        found["worst_decile"] = float(each[: max(1, len(each) // 10)].mean())
    return found
