"""What is where on the devices: the data on each of them, the clients dealt out to them."""

from dataclasses import dataclass
from functools import lru_cache
from weakref import WeakKeyDictionary

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from fedpick.core.types import Ints
from fedpick.data.federated import Dataset
from fedpick.learn.objective import Affine, affine_of

__all__ = ["Arrays", "deal", "everywhere", "mesh", "place"]


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
        """Those on the first device; nothing is copied."""
        if self.devices == 1:
            return self
        x, y, affine = jax.tree.map(lambda part: part.addressable_data(0), (self.x, self.y, self.affine))
        return Arrays(x, y, affine, 1)


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
