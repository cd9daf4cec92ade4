"""What the parts of a world share."""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedpick.errors import ContractError, SettingError, require
from fedpick.types import Bools, Clients, Floats, Ints

PartState = dict[str, NDArray[Any]]  # what a part drew once or keeps between rounds; saved in checkpoints

# A part may also know the truth about its clients, which `World.truth` hands to oracles: arrays by name, from
# truth(memory, clients) of availability and volatility, and truth(memory, clients, epochs) of latency.


class Availability(Protocol):
    """Who is there."""

    def init(self, clients: Clients, rng: np.random.Generator) -> PartState:
        """Draw what stays the same in all rounds, and the start of what does not."""
        ...

    def draw(self, memory: PartState, clients: Clients, round: int, rng: np.random.Generator) -> NDArray[Any]:
        """Draw what does not depend on any policy; advances the memory of chains."""
        ...

    def mask(self, memory: PartState, drawn: NDArray[Any], clients: Clients, round: int, clock: float) -> Bools:
        """Who is there, at this time of the simulated clock."""
        ...


class Volatility(Protocol):
    """Who would return a model, if asked."""

    def init(self, clients: Clients, rng: np.random.Generator) -> PartState:
        """Draw what stays the same in all rounds, and the start of what does not."""
        ...

    def draw(self, memory: PartState, clients: Clients, round: int, rng: np.random.Generator) -> Bools:
        """Whose training would succeed in this round."""
        ...


class Latency(Protocol):
    """How long clients take."""

    def init(self, clients: Clients, rng: np.random.Generator) -> PartState:
        """Draw what stays the same in all rounds."""
        ...

    def draw(
        self, memory: PartState, clients: Clients, round: int, rng: np.random.Generator
    ) -> Mapping[str, NDArray[Any]]:
        """Draw what does not depend on any policy: unit noise, contexts."""
        ...

    def context(self, memory: PartState, drawn: Mapping[str, NDArray[Any]], idle: Bools) -> Floats | None:
        """What the server may know of each client's next time; `idle`: who did not take part in the last round."""
        ...

    def seconds(
        self, memory: PartState, drawn: Mapping[str, NDArray[Any]], idle: Bools, ids: Ints, epochs: Floats
    ) -> Floats:
        """How long these clients take, if asked."""
        ...


def numbers(what: str, value: ArrayLike) -> Floats:
    """As an array; raise unless they are numbers."""
    try:
        return np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise SettingError(f"{what} = {value!r}, but must be numbers, in rows of one length") from None


def at_least(what: str, value: ArrayLike, low: float, unit: str = "", *, above: bool = False) -> None:
    """Raise unless there is a number, and all are finite and >= low (> low where `above`)."""
    array = numbers(what, value)
    enough = array > low if above else array >= low
    holds = array.size > 0 and bool(np.isfinite(array).all()) and bool(enough.all())
    require(holds, what, value, f"finite and {'>' if above else '>='} {low:g}{unit}")


def per_client(what: str, value: ArrayLike, clients: Clients) -> Floats:
    """A number for every client, or one each."""
    array = numbers(what, value)
    if array.ndim == 0:
        return np.full(len(clients), float(array))
    if array.shape != (len(clients),):
        raise ContractError(f"{what} has shape {array.shape}, but there are {len(clients)} clients: one number each")
    return array


def probability(what: str, value: ArrayLike) -> None:
    """Raise unless there is a number, and all are probabilities."""
    array = numbers(what, value)
    if not array.size or not ((array >= 0) & (array <= 1)).all():
        raise SettingError(f"{what} = {value!r}, but must be one or more probabilities, in [0, 1]")
