"""Examples on the devices, their scores, and the order in which clients are dealt out to devices."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any
from weakref import WeakKeyDictionary

import jax
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from numpy.typing import NDArray

from fedpick.core.types import Floats, Ints
from fedpick.data.federated import Dataset
from fedpick.learn.backend import Scores
from fedpick.learn.jax.models import Model
from fedpick.learn.jax.objective import Affine, affine_of, correct, losses, prepare, wide

__all__ = ["Arrays", "deal", "everywhere", "mesh", "place"]

WIDER = 16  # times the examples in one call on a GPU: there a call costs more than what it computes


@lru_cache
def mesh(devices: int) -> Mesh:
    """The first `devices` devices, in one row."""
    return Mesh(np.array(jax.local_devices()[:devices]), ("core",))


def everywhere(devices: int) -> NamedSharding:
    """A copy on each of these devices."""
    return NamedSharding(mesh(devices), PartitionSpec())


@dataclass(frozen=True, eq=False)
class Arrays:
    """Examples on the devices, a copy on each: any client may train on any device."""

    x: jax.Array
    y: jax.Array
    affine: Affine
    devices: int

    @property
    def first(self) -> "Arrays":
        """The examples on the first device alone, without copying."""
        if self.devices == 1:
            return self
        x, y, affine = jax.tree.map(lambda part: part.addressable_data(0), (self.x, self.y, self.affine))
        return Arrays(x, y, affine, 1)

    @property
    def stacks(self) -> bool:
        """Whether several models can be scored in one call: on one device."""
        return self.devices == 1

    def launch(self, model: Model, params: Any, index: Ints, several: bool = False) -> Callable[[], Scores]:
        """Begin to score these examples on the devices; see `fedpick.learn.backend.Examples`.

        One call per block, not a loop inside one call: in such a loop XLA 0.10 on several CPU devices gave wrong
        products.
        """
        function = _compiled_scores(model, self.devices, several)
        blocks = _blocks(index, model.chunk, self.devices)
        launched = [function(params, self.affine, self.x, self.y, block) for block in blocks]
        return lambda: _fetch(launched, len(index))

    def outputs(self, model: Model, params: Any, index: Ints) -> Floats:
        """What the model gives for each of these examples, a row each, computed on one device."""
        function = _compiled_outputs(model)
        parts = [function(params, self.affine, self.x, block) for block in _blocks(index, model.chunk, 1)]
        found: Floats = np.concatenate(jax.device_get(parts))[: len(index)]
        return found


def _blocks(index: Ints, chunk: int, devices: int) -> NDArray[np.int32]:
    """The examples in rows of equal length, the last padded; a row is scored in one call."""
    block = chunk * (devices if jax.default_backend() == "cpu" else WIDER)
    padded = np.zeros(-(-len(index) // block) * block, np.int32)
    padded[: len(index)] = index
    return padded.reshape(-1, block)


def _fetch(launched: list[Any], count: int) -> Scores:
    # A CPU's memory is the host's: nothing has to be copied, which `device_get` prepares for every array.
    out = jax.tree.map(np.asarray, launched) if jax.default_backend() == "cpu" else jax.device_get(launched)
    loss, hits = (np.concatenate([pair[i] for pair in out], axis=-1)[..., :count] for i in (0, 1))
    return loss.astype(np.float64), hits.astype(np.float64)


@lru_cache
def _compiled_scores(model: Model, devices: int, several: bool) -> Any:
    def scores(params: Any, affine: Affine, x: Any, y: Any, index: Any) -> Any:
        outputs = wide(model.apply(params, prepare(x[index], affine), None))
        return losses(outputs, y[index]), correct(outputs, y[index])

    def of_each(params: Any, *rest: Any) -> Any:
        return lax.map(lambda one: scores(one, *rest), params)

    if devices == 1:
        return jax.jit(of_each if several else scores)
    here, dealt = PartitionSpec(), PartitionSpec("core")
    spread = partial(jax.shard_map, mesh=mesh(devices), out_specs=dealt, check_vma=False)
    return jax.jit(spread(scores, in_specs=(here, here, here, here, dealt)))


@lru_cache
def _compiled_outputs(model: Model) -> Any:
    def outputs(params: Any, affine: Affine, x: Any, index: Any) -> Any:
        return wide(model.apply(params, prepare(x[index], affine), None))

    return jax.jit(outputs)


_PLACED: WeakKeyDictionary[Dataset, dict[tuple[str, int], Arrays]] = WeakKeyDictionary()


def place(dataset: Dataset, part: str, devices: int) -> Arrays:
    """Put the "train" or "test" examples on the devices, once for all trainers that share the data set."""
    placed = _PLACED.setdefault(dataset, {})
    if (part, devices) not in placed:
        where = jax.local_devices()[0] if devices == 1 else everywhere(devices)
        x, y = (dataset.x, dataset.y) if part == "train" else (dataset.test_x, dataset.test_y)
        x, y, affine = jax.device_put((x, y, affine_of(dataset)), where)
        placed[part, devices] = Arrays(x, y, affine, devices)
    return placed[part, devices]


def deal(steps: Ints, devices: int) -> Ints:
    """An order of the clients whose equal consecutive shares, one per device, are nearly equal work.

    The client with the most steps goes first, to the device that has the least work so far.

    >>> deal(np.array([5, 1, 1, 5]), devices=2)
    array([0, 1, 3, 2])
    """
    share = len(steps) // devices
    hands: list[list[int]] = [[] for _ in range(devices)]
    load = np.zeros(devices)
    for client in np.argsort(-steps, kind="stable"):
        free = [d for d in range(devices) if len(hands[d]) < share]
        to = min(free, key=lambda d: load[d])
        hands[to].append(int(client))
        load[to] += steps[client]
    return np.array([client for hand in hands for client in hand], dtype=np.int64)
