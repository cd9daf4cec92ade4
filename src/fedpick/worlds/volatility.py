"""Volatility: which clients would return a model, the x_{i,t} of E3CS (https://arxiv.org/abs/2011.08756)."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fedpick.core.errors import ContractError
from fedpick.core.types import Bools, Clients, Floats, Ints
from fedpick.worlds.parts import Noise, PartState, at_least, per_round, probability

__all__ = ["Bursts", "Reliable", "ReplayedFlags", "Shift", "SuccessRates", "by_class"]


def by_class(values: ArrayLike, count: int) -> Floats:
    """Divide `count` clients in order into equal classes, one per value; a single number is for all clients.

    >>> by_class([0.1, 0.9], 5).tolist()
    [0.1, 0.1, 0.1, 0.9, 0.9]
    """
    each = np.atleast_1d(np.asarray(values, dtype=np.float64))
    return each[np.arange(count) * len(each) // count]


@dataclass(frozen=True)
class Reliable:
    """No client fails."""

    def init(self, clients: Clients, rng: np.random.Generator) -> PartState:
        """Nothing to draw."""
        return {}

    def draw(self, memory: PartState, clients: Clients, round: int, rng: np.random.Generator) -> Bools:
        """All clients."""
        return np.ones(len(clients), dtype=bool)

    def works_of(self, memory: PartState, clients: Clients, ids: Ints, round: int, noise: Noise) -> Bools:
        """All of them."""
        return np.ones(len(ids), dtype=bool)

    def truth(self, memory: PartState, clients: Clients) -> dict[str, Floats]:
        """Success rates."""
        return {"success": np.ones(len(clients))}


@dataclass(frozen=True)
class SuccessRates:
    """Each client succeeds with its class's rate, independently (E3CS: 0.1, 0.3, 0.6, 0.9)."""

    rates: tuple[float, ...] = (0.1, 0.3, 0.6, 0.9)

    def __post_init__(self) -> None:
        probability(f"{type(self).__name__}: rates", self.rates)

    def init(self, clients: Clients, rng: np.random.Generator) -> PartState:
        """The rate of each client."""
        return {"rate": by_class(self.rates, len(clients))}

    def draw(self, memory: PartState, clients: Clients, round: int, rng: np.random.Generator) -> Bools:
        """Mask of the clients that would succeed."""
        works: Bools = rng.random(len(clients)) < memory["rate"]
        return works

    def works_of(self, memory: PartState, clients: Clients, ids: Ints, round: int, noise: Noise) -> Bools:
        """Which of these would succeed."""
        works: Bools = noise() < memory["rate"][ids]
        return works

    def truth(self, memory: PartState, clients: Clients) -> dict[str, Floats]:
        """Success rates (of `Bursts`, in the long run)."""
        return {"success": memory["rate"]}


@dataclass(frozen=True)
class Bursts(SuccessRates):
    """Crashes that last several rounds: a Markov chain with the class's long-run success rate (motivated by E3CS).

    Args:
        rates: long-run success rate of each class.
        spell: mean number of rounds that a crash lasts, at least 1; independent draws give 1/rate. A class whose rate
            is below 1/(1 + spell) crashes after every success, and its crashes last (1 - rate)/rate.
    """

    spell: float = 10.0

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least("Bursts: spell", self.spell, 1.0, " round")

    def init(self, clients: Clients, rng: np.random.Generator) -> PartState:
        """Start in the steady state."""
        rate = by_class(self.rates, len(clients))
        return {"rate": rate, "works": rng.random(len(clients)) < rate}

    def draw(self, memory: PartState, clients: Clients, round: int, rng: np.random.Generator) -> Bools:
        """One step of every client's chain (none in round 1)."""
        works, rate = memory["works"], memory["rate"]
        if round > 1:
            # rate = recover / (recover + crash) in the long run, and neither may exceed 1
            recover = np.minimum(1.0 / self.spell, rate / np.maximum(1.0 - rate, 1e-12))
            crash = np.minimum((1.0 - rate) / (self.spell * np.maximum(rate, 1e-12)), 1.0)
            works ^= rng.random(len(works)) < np.where(works, crash, recover)
        return works.copy()


@dataclass(frozen=True)
class Shift:
    """Success rates that change after a round: clients move, networks break.

    Args:
        before: success rate of each class up to and including round `at`.
        after: success rate of each class in later rounds.
        at: the last round of `before`.
    """

    before: tuple[float, ...] = (0.1, 0.3, 0.6, 0.9)
    after: tuple[float, ...] = (0.9, 0.6, 0.3, 0.1)
    at: int = 500

    def __post_init__(self) -> None:
        probability("Shift: before", self.before)
        probability("Shift: after", self.after)
        at_least("Shift: at", self.at, 0)

    def init(self, clients: Clients, rng: np.random.Generator) -> PartState:
        """Both rates of each client."""
        return {"before": by_class(self.before, len(clients)), "after": by_class(self.after, len(clients))}

    def draw(self, memory: PartState, clients: Clients, round: int, rng: np.random.Generator) -> Bools:
        """Mask of the clients that would succeed."""
        works: Bools = rng.random(len(clients)) < memory["before" if round <= self.at else "after"]
        return works

    def works_of(self, memory: PartState, clients: Clients, ids: Ints, round: int, noise: Noise) -> Bools:
        """Which of these would succeed."""
        works: Bools = noise() < memory["before" if round <= self.at else "after"][ids]
        return works


@dataclass(frozen=True, eq=False)
class ReplayedFlags:
    """Success flags from a (T, K) matrix; after its last row, the first is used again."""

    flags: ArrayLike

    def init(self, clients: Clients, rng: np.random.Generator) -> PartState:
        """Check the matrix."""
        flags = per_round("ReplayedFlags: flags", self.flags, clients)
        if not ((flags == 0) | (flags == 1)).all():
            raise ContractError("ReplayedFlags: flags holds values other than 0 and 1; give a matrix of flags")
        return {"flags": flags == 1}

    def draw(self, memory: PartState, clients: Clients, round: int, rng: np.random.Generator) -> Bools:
        """The row of this round."""
        row: Bools = memory["flags"][(round - 1) % len(memory["flags"])]
        return row

    def truth(self, memory: PartState, clients: Clients) -> dict[str, Floats]:
        """Success rates over the whole matrix."""
        return {"success": memory["flags"].mean(axis=0)}
