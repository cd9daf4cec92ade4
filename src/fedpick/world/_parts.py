"""What the parts of a world share."""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedpick.errors import ContractError, SettingError
from fedpick.types import Bools, Clients, Floats, Ints

Memory = dict[str, NDArray[Any]]  # what a part drew once or keeps between rounds; saved in checkpoints


class Availability(Protocol):
    """Who is there."""

    def init(self, clients: Clients, rng: np.random.Generator) -> Memory:
        """Draw what stays the same in all rounds, and the start of what does not."""
        ...

    def draw(self, memory: Memory, clients: Clients, round: int, rng: np.random.Generator) -> NDArray[Any]:
        """Draw what does not depend on any policy; advances the memory of chains."""
        ...

    def mask(self, memory: Memory, drawn: NDArray[Any], clients: Clients, round: int, clock: float) -> Bools:
        """Who is there, at this time of the simulated clock."""
        ...


class Volatility(Protocol):
    """Who would return a model, if asked."""

    def init(self, clients: Clients, rng: np.random.Generator) -> Memory:
        """Draw what stays the same in all rounds, and the start of what does not."""
        ...

    def draw(self, memory: Memory, clients: Clients, round: int, rng: np.random.Generator) -> Bools:
        """Whose training would succeed in this round."""
        ...


class Latency(Protocol):
    """How long clients take."""

    def init(self, clients: Clients, rng: np.random.Generator) -> Memory:
        """Draw what stays the same in all rounds."""
        ...

    def draw(
        self, memory: Memory, clients: Clients, round: int, rng: np.random.Generator
    ) -> Mapping[str, NDArray[Any]]:
        """Draw what does not depend on any policy: unit noise, contexts."""
        ...

    def context(self, memory: Memory, drawn: Mapping[str, NDArray[Any]], idle: Bools) -> Floats | None:
        """What the server may know of each client's next time; `idle`: who did not take part in the last round."""
        ...

    def seconds(
        self, memory: Memory, drawn: Mapping[str, NDArray[Any]], idle: Bools, ids: Ints, epochs: Floats
    ) -> Floats:
        """How long these clients take, if asked."""
        ...


def per_client(what: str, value: ArrayLike, clients: Clients) -> Floats:
    """A number for every client, or one each."""
    array = np.asarray(value, dtype=np.float64)
    if array.ndim == 0:
        return np.full(len(clients), float(array))
    if array.shape != (len(clients),):
        raise ContractError(f"{what} has shape {array.shape}, but there are {len(clients)} clients: one number each")
    return array


def probability(what: str, value: ArrayLike) -> None:
    """Raise unless all numbers are probabilities."""
    array = np.asarray(value, dtype=np.float64)
    if not ((array >= 0) & (array <= 1)).all():
        raise SettingError(f"{what} = {value!r}, but probabilities are in [0, 1]")
