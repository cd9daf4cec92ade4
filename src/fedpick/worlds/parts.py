"""Interfaces of a world's parts, and checks of their settings.

A part draws a round for all clients with `draw`. Volatility and latency are only asked about the clients that were
chosen, so such a part may also say what happens to given clients (`AskedVolatility`, `AskedLatency`); then nothing is
drawn for the others. The built-in parts do, except those with a memory and those that are replayed.

What advances, and by what: `World.draw` calls `draw` once per round, and only there may a part change its memory. By
the round advance `MarkovOnOff` and `Bursts` (a step of every client's chain, so a round must be drawn once), `Halves`,
`YCycle`, `SinLogNormal`, `Shift`, the replayed matrices and `Trace(unit="rounds")`. By the clock advance `Diurnal` and
`Trace(unit="seconds")`. `mask` changes nothing: it can be asked at several times of the clock in one round.
"""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Protocol, TypeGuard

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedpick.core.errors import ContractError, SettingError, require
from fedpick.core.types import Bools, Clients, Floats, Ints

__all__ = [
    *("AskedLatency", "AskedVolatility", "Availability", "Latency", "Noise", "PartState", "Volatility"),
    *("asks_latency", "asks_volatility"),
    *("at_least", "numbers", "per_client", "per_round", "probability"),
]

PartState = dict[str, NDArray[Any]]  # a part's memory: drawn once or kept between rounds; saved in checkpoints

# noise(count): independent numbers in (0, 1), a row of `count` for each client that is asked; noise(): one for each.
# A client's numbers in a round are the same whoever else is asked, and the same for every policy.
Noise = Callable[..., Floats]

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


class AskedVolatility(Volatility, Protocol):
    """A volatility that can say whether given clients succeed, so that nothing is drawn for the others.

    >>> import fedpick as fp
    >>> class Weak:
    ...     def init(self, clients, rng):
    ...         return {"rate": 1.0 - 0.5 * clients.sizes / clients.sizes.max()}
    ...     def draw(self, memory, clients, round, rng):  # for all clients: as for any volatility
    ...         return rng.random(len(clients)) < memory["rate"]
    ...     def works_of(self, memory, clients, ids, round, noise):
    ...         return noise() < memory["rate"][ids]
    >>> world = fp.World(fp.Clients([10, 20, 30]), volatility=Weak())
    >>> state = world.init(seed=0)
    >>> draw = world.draw(state, seed=0, round=1)
    >>> len(world.works(state, draw, np.array([2, 0])))
    2
    """

    def works_of(self, memory: PartState, clients: Clients, ids: Ints, round: int, noise: Noise) -> Bools:
        """Which of the clients `ids` would succeed in this round, in their order."""
        ...


class AskedLatency(Latency, Protocol):
    """A latency that can say how long given clients take, so that no noise is drawn for the others.

    If its contexts are drawn in each round, it also has a method `before(memory, clients, round, rng)` that draws them
    for all clients; `context` and `seconds_of` get what it returns as `drawn`. Without it `drawn` is empty.

    >>> import fedpick as fp
    >>> class Waiting:
    ...     def init(self, clients, rng):
    ...         return {"mean": clients.sizes / 10}
    ...     def draw(self, memory, clients, round, rng):  # for all clients: as for any latency
    ...         return {"noise": rng.standard_exponential(len(clients))}
    ...     def context(self, memory, drawn, idle):
    ...         return None
    ...     def seconds(self, memory, drawn, idle, ids, epochs):
    ...         return memory["mean"][ids] * drawn["noise"][ids]
    ...     def seconds_of(self, memory, drawn, idle, ids, epochs, noise):
    ...         return memory["mean"][ids] * -np.log(noise())
    >>> world = fp.World(fp.Clients([10, 20, 30]), latency=Waiting())
    >>> state = world.init(seed=0)
    >>> draw = world.draw(state, seed=0, round=1)
    >>> len(world.seconds(state, draw, np.array([2, 0])))
    2
    """

    def seconds_of(
        self,
        memory: PartState,
        drawn: Mapping[str, NDArray[Any]],
        idle: Bools,
        ids: Ints,
        epochs: Floats,
        noise: Noise,
    ) -> Floats:
        """How long the clients `ids` take in this round, in their order."""
        ...


class ToldLatency(AskedLatency, Protocol):
    """A latency that also says how much of their time clients compute; of others, all of it counts as computing."""

    def times_of(
        self,
        memory: PartState,
        drawn: Mapping[str, NDArray[Any]],
        idle: Bools,
        ids: Ints,
        epochs: Floats,
        noise: Noise,
    ) -> tuple[Floats, Floats]:
        """What `seconds_of` gives, and of it the seconds that the clients load data and train."""
        ...


def asks_volatility(part: Volatility) -> TypeGuard[AskedVolatility]:
    """Whether this part is asked about those who were chosen.

    >>> from fedpick import worlds
    >>> asks_volatility(worlds.SuccessRates()), asks_volatility(worlds.Bursts())
    (True, False)
    """
    return _newest(type(part), "works_of", ("draw",))


def asks_latency(part: Latency) -> TypeGuard[AskedLatency]:
    """Whether this part is asked about those who were chosen."""
    return _newest(type(part), "seconds_of", ("draw", "seconds", "context"))


def tells_computing(part: AskedLatency) -> TypeGuard[ToldLatency]:
    """Whether this part tells computing from sending."""
    return _newest(type(part), "times_of", ("draw", "seconds", "context", "seconds_of"))


@cache
def _newest(kind: type, new: str, old: tuple[str, ...]) -> bool:
    """Whether the class has the method `new`, and no class derived from that one has replaced one of the old ones."""
    for each in kind.__mro__:
        if new in vars(each):
            return True
        if any(name in vars(each) for name in old):  # such as a user's class that derives from one of ours
            return False
    return False


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
