"""Interfaces of a world's parts, and checks of their settings."""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedpick.core.errors import ContractError, SettingError, require
from fedpick.core.types import Bools, Clients, Floats, Ints

__all__ = [
    *("Availability", "Latency", "PartState", "Volatility"),
    *("at_least", "numbers", "per_client", "per_round", "probability"),
]

PartState = dict[str, NDArray[Any]]  # a part's memory: drawn once or kept between rounds; saved in checkpoints

# A part may also have a method that returns the truth about its clients, arrays by name, which `World.truth` passes to
# oracles: truth(memory, clients) of availability and volatility, truth(memory, clients, epochs) of latency.


class Availability(Protocol):
    """Which clients are available."""

    def init(self, clients: Clients, rng: np.random.Generator) -> PartState:
        """Draw what is the same in all rounds, and the initial state of what changes."""
        ...

    def draw(self, memory: PartState, clients: Clients, round: int, rng: np.random.Generator) -> NDArray[Any]:
        """Draw what does not depend on any policy; advances Markov chains in the memory."""
        ...

    def mask(self, memory: PartState, drawn: NDArray[Any], clients: Clients, round: int, clock: float) -> Bools:
        """Mask of the available clients, at this time of the simulated clock."""
        ...


class Volatility(Protocol):
    """Which clients would return a model if they were chosen."""

    def init(self, clients: Clients, rng: np.random.Generator) -> PartState:
        """Draw what is the same in all rounds, and the initial state of what changes."""
        ...

    def draw(self, memory: PartState, clients: Clients, round: int, rng: np.random.Generator) -> Bools:
        """Mask of the clients whose training would succeed in this round."""
        ...


class Latency(Protocol):
    """How long clients take."""

    def init(self, clients: Clients, rng: np.random.Generator) -> PartState:
        """Draw what is the same in all rounds."""
        ...

    def draw(
        self, memory: PartState, clients: Clients, round: int, rng: np.random.Generator
    ) -> Mapping[str, NDArray[Any]]:
        """Draw what does not depend on any policy: unit noise, contexts."""
        ...

    def context(self, memory: PartState, drawn: Mapping[str, NDArray[Any]], idle: Bools) -> Floats | None:
        """What the server may know about each client's next time; `idle`: mask of those not in the last cohort."""
        ...

    def seconds(
        self, memory: PartState, drawn: Mapping[str, NDArray[Any]], idle: Bools, ids: Ints, epochs: Floats
    ) -> Floats:
        """How long these clients would take."""
        ...


def numbers(what: str, value: ArrayLike) -> Floats:
    """The value as an array; raise unless it consists of numbers."""
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise SettingError(f"{what} = {value!r}, but must be numbers, in rows of one length") from None
    if np.asarray(value).dtype.kind != "f" and (np.abs(array) >= 2.0**63).any():  # NumPy cannot multiply by such an int
        raise SettingError(f"{what} = {value!r:.80}, but whole numbers must be below 2^63: write it as 1e20")
    return array


def at_least(what: str, value: ArrayLike, low: float, unit: str = "", *, above: bool = False) -> None:
    """Raise unless there is at least one number, and all are finite and >= low (> low if `above`)."""
    array = numbers(what, value)
    enough = array > low if above else array >= low
    holds = array.size > 0 and bool(np.isfinite(array).all()) and bool(enough.all())
    require(holds, what, value, f"finite and {'>' if above else '>='} {low:g}{unit}")


def per_client(what: str, value: ArrayLike, clients: Clients) -> Floats:
    """One number per client, from a number for all or one per client."""
    array = numbers(what, value)
    if array.ndim == 0:
        return np.full(len(clients), float(array))
    if array.shape != (len(clients),):
        raise ContractError(f"{what} has shape {array.shape}, but there are {len(clients)} clients: one number each")
    return array


def per_round(what: str, value: ArrayLike, clients: Clients) -> Floats:
    """A (T, K) matrix with a row for each round and a column for each client."""
    array = numbers(what, value)
    if array.ndim != 2 or array.shape[1] != len(clients) or not len(array):
        raise ContractError(f"{what} has shape {array.shape}, but must be (T, {len(clients)})")
    return array


def probability(what: str, value: ArrayLike) -> None:
    """Raise unless there is at least one number, and all are probabilities."""
    array = numbers(what, value)
    if not array.size or not ((array >= 0) & (array <= 1)).all():
        raise SettingError(f"{what} = {value!r}, but must be one or more probabilities, in [0, 1]")
