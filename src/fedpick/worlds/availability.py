"""Availability: which clients could train in a round.

The seven modes of FedGS (Wang et al. 2023, https://arxiv.org/abs/2211.13975, Table 1; the formulas are those of the
authors' code and of the paper's appendix), and others that real fleets show. `beta` is the degree of absence.
"""

from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpick.core.errors import MissingError, require
from fedpick.core.types import Bools, Clients, Floats
from fedpick.worlds.parts import PartState, at_least, per_client, probability
from fedpick.worlds.trace import read_trace

__all__ = [
    *("Always", "Bernoulli", "Diurnal", "Halves", "LessDataFirst", "LogNormal", "MarkovOnOff", "MoreDataFirst"),
    *("SinLogNormal", "Trace", "YCycle", "YMaxFirst"),
]

DAY = 86_400.0


def _someone(p: Floats, rng: np.random.Generator) -> Bools:
    """Independent draws with probabilities p, repeated until a client is available (as FedGS does)."""
    for _ in range(1_000):
        mask: Bools = rng.random(len(p)) < p
        if mask.any():
            return mask
    mask = np.zeros(len(p), dtype=bool)  # all p are tiny: take the most likely client
    mask[int(np.argmax(p))] = True
    return mask


class _Fixed:
    """Base class with probabilities drawn once: subclasses define `probabilities`, and `chance` if they vary."""

    def probabilities(self, clients: Clients, rng: np.random.Generator) -> Floats:
        """P(available) for every client."""
        raise AssertionError("subclasses define it")

    def chance(self, memory: PartState, round: int) -> Floats:
        """P(available) for every client in this round, without the repeated draws when no client is available."""
        p: Floats = memory["p"]
        return p

    def init(self, clients: Clients, rng: np.random.Generator) -> PartState:
        """Draw the probabilities."""
        return {"p": self.probabilities(clients, rng)}

    def draw(self, memory: PartState, clients: Clients, round: int, rng: np.random.Generator) -> NDArray[Any]:
        """Independent draws, repeated until a client is available."""
        return _someone(self.chance(memory, round), rng)

    def mask(self, memory: PartState, drawn: NDArray[Any], clients: Clients, round: int, clock: float) -> Bools:
        """Mask of the available clients."""
        return drawn


@dataclass(frozen=True)
class _Mode(_Fixed):
    """Base class of FedGS's modes."""

    beta: float

    def __post_init__(self) -> None:
        what = f"{type(self).__name__}: beta"
        require(0.0 <= self.beta < 1.0, what, self.beta, "in [0, 1)", "beta is the degree of absence")


@dataclass(frozen=True)
class Always(_Fixed):
    """All clients are always available (FedGS: IDL)."""

    def draw(self, memory: PartState, clients: Clients, round: int, rng: np.random.Generator) -> NDArray[Any]:
        """All clients."""
        return np.ones(len(clients), dtype=bool)

    def init(self, clients: Clients, rng: np.random.Generator) -> PartState:
        """Nothing to draw."""
        return {}


@dataclass(frozen=True)
class Bernoulli(_Fixed):
    """Each client is available with probability p, independently (RBCS-F: 0.8); a number, or one per client.

    Drawn once per round, unlike FedGS's modes: it may happen that no client is available.
    """

    p: float | tuple[float, ...] = 0.8

    def __post_init__(self) -> None:
        probability("Bernoulli: p", self.p)

    def probabilities(self, clients: Clients, rng: np.random.Generator) -> Floats:
        """P(available) for every client."""
        return per_client("Bernoulli: p", self.p, clients)

    def draw(self, memory: PartState, clients: Clients, round: int, rng: np.random.Generator) -> NDArray[Any]:
        """Independent draws."""
        return rng.random(len(clients)) < memory["p"]


@dataclass(frozen=True)
class MoreDataFirst(_Mode):
    """MDF: clients with more data are available more often, p = n^beta / max n^beta."""

    beta: float = 0.7

    def probabilities(self, clients: Clients, rng: np.random.Generator) -> Floats:
        """P(available) for every client."""
        p: Floats = (clients.sizes / clients.sizes.max()) ** self.beta
        return p


@dataclass(frozen=True)
class LessDataFirst(_Mode):
    """LDF: clients with less data are available more often, p = n^-beta / max n^-beta."""

    beta: float = 0.7

    def probabilities(self, clients: Clients, rng: np.random.Generator) -> Floats:
        """P(available) for every client."""
        p: Floats = (clients.sizes.min() / clients.sizes) ** self.beta
        return p


def _labels(part: object, clients: Clients) -> Floats:
    if clients.labels is None:
        raise MissingError(
            f"{type(part).__name__}: it depends on labels, but Clients.labels is None; give (K, L) label counts"
        )
    return clients.labels


@dataclass(frozen=True)
class YMaxFirst(_Mode):
    """YMF: clients whose smallest label is larger are available more often, p = beta min(labels)/(L-1) + 1 - beta."""

    beta: float = 0.9

    def probabilities(self, clients: Clients, rng: np.random.Generator) -> Floats:
        """P(available) for every client."""
        labels = _labels(self, clients)
        smallest = np.argmax(labels > 0, axis=1)
        p: Floats = self.beta * smallest / max(labels.shape[1] - 1, 1) + 1.0 - self.beta
        return p


@dataclass(frozen=True)
class YCycle(_Mode):
    """YC: labels take turns of 10 rounds each; p = beta [client has the label whose turn it is] + 1 - beta."""

    beta: float = 0.9

    def init(self, clients: Clients, rng: np.random.Generator) -> PartState:
        """Which client has which label."""
        return {"holds": _labels(self, clients) > 0}

    def chance(self, memory: PartState, round: int) -> Floats:
        """P(available) for every client in this round."""
        holds = memory["holds"]
        on = round % (10 * holds.shape[1]) // 10  # the y with y/L < r <= (y+1)/L, r = (1 + t mod 10L)/10L
        p: Floats = self.beta * holds[:, on] + 1.0 - self.beta
        return p


@dataclass(frozen=True)
class LogNormal(_Mode):
    """LN: p = c / max c with c from LogNormal(0, ln 1/(1-beta))."""

    beta: float = 0.5

    def probabilities(self, clients: Clients, rng: np.random.Generator) -> Floats:
        """P(available) for every client."""
        c = rng.lognormal(0.0, np.log(1.0 / (1.0 - self.beta)), len(clients))
        p: Floats = c / c.max()
        return p


@dataclass(frozen=True)
class SinLogNormal(LogNormal):
    """SLN: LN times a daily wave, p (0.4 sin(2 pi (t mod 24)/23) + 0.5)."""

    def chance(self, memory: PartState, round: int) -> Floats:
        """P(available) for every client in this round; the wave is in [0.1, 0.9], so no clipping is needed."""
        p: Floats = memory["p"] * (0.4 * np.sin(2 * np.pi * (round % 24) / 23) + 0.5)
        return p


@dataclass(frozen=True)
class Halves(_Fixed):
    """Two fixed halves take turns; each round a share of the current half is away (Power-of-Choice, Fig. 8)."""

    away: float = 0.1

    def __post_init__(self) -> None:
        probability("Halves: away", self.away)
        require(np.ndim(self.away) == 0, "Halves: away", self.away, "one number", "away is a share of each half")

    def init(self, clients: Clients, rng: np.random.Generator) -> PartState:
        """Draw the first half."""
        first = np.zeros(len(clients), dtype=bool)
        first[rng.permutation(len(clients))[: (len(clients) + 1) // 2]] = True
        return {"first": first}

    def draw(self, memory: PartState, clients: Clients, round: int, rng: np.random.Generator) -> NDArray[Any]:
        """The half whose turn it is, without those that are away."""
        on = memory["first"] if round % 2 == 1 else ~memory["first"]
        ids = np.flatnonzero(on)
        mask = on.copy()
        away = int(self.away * len(ids) + 1e-9)  # rounded down, but 0.29 of 100 is 29
        mask[rng.choice(ids, away, replace=False)] = False
        return mask


@dataclass(frozen=True)
class MarkovOnOff(_Fixed):
    """Clients are on and off for geometrically distributed numbers of rounds, with these means."""

    on: float = 20.0
    off: float = 10.0

    def __post_init__(self) -> None:
        at_least("MarkovOnOff: on", self.on, 1.0, " round")
        at_least("MarkovOnOff: off", self.off, 1.0, " round")

    def init(self, clients: Clients, rng: np.random.Generator) -> PartState:
        """Start in the steady state."""
        return {"here": rng.random(len(clients)) < self.on / (self.on + self.off)}

    def draw(self, memory: PartState, clients: Clients, round: int, rng: np.random.Generator) -> NDArray[Any]:
        """One step of every client's chain (none in round 1)."""
        here = memory["here"]
        if round > 1:
            flips = rng.random(len(here)) < np.where(here, 1.0 / self.on, 1.0 / self.off)
            here ^= flips
        return here.copy()


@dataclass(frozen=True)
class Diurnal(_Fixed):
    """Phones that charge at night: P(available) follows the local hour, with a time zone for each client.

    Args:
        night: P(available) at 3 in the morning.
        day: P(available) at 3 in the afternoon.
        zones: hours that the fleet's time zones span.
    """

    night: float = 0.8
    day: float = 0.2
    zones: float = 8.0

    def __post_init__(self) -> None:
        probability("Diurnal: night", self.night)
        probability("Diurnal: day", self.day)
        require(0.0 <= self.zones <= 24.0, "Diurnal: zones", self.zones, "in [0, 24] hours")

    def init(self, clients: Clients, rng: np.random.Generator) -> PartState:
        """A time zone for each client: seconds ahead of the simulated clock, which starts at 0 h."""
        return {"zone": rng.uniform(0.0, self.zones * 3600.0, len(clients))}

    def draw(self, memory: PartState, clients: Clients, round: int, rng: np.random.Generator) -> NDArray[Any]:
        """Uniform numbers, which `mask` compares with the probability at the current hour."""
        return rng.random(len(clients))

    def mask(self, memory: PartState, drawn: NDArray[Any], clients: Clients, round: int, clock: float) -> Bools:
        """Mask of the clients that are available at this hour."""
        hour = 2.0 * np.pi * (((clock + memory["zone"]) % DAY) / DAY - 0.125)  # 0 at 3 in the morning
        p = self.day + (self.night - self.day) * (1.0 + np.cos(hour)) / 2.0
        mask: Bools = drawn < p
        return mask


@dataclass(frozen=True)
class Trace(_Fixed):
    """Intervals of availability from a CSV or Parquet file with columns client, start, end.

    Args:
        path: of the file; clients are numbered from 0, intervals include their start but not their end.
        unit: "seconds" of the simulated clock, or "rounds".
        repeat: period after which the trace is repeated (rounds 1 to `repeat`, or seconds from 0); None: no repetition.

    Clients without an interval are away. If no client is available, the server waits (`World.wait`) and tries again.
    """

    path: str | PathLike[str]
    unit: str = "seconds"
    repeat: float | None = None

    def __post_init__(self) -> None:
        require(self.unit in ("seconds", "rounds"), "Trace: unit", self.unit, "'seconds' or 'rounds'")
        if self.repeat is not None:
            at_least("Trace: repeat", self.repeat, 0.0, f" {self.unit}", above=True)

    def init(self, clients: Clients, rng: np.random.Generator) -> PartState:
        """Read and check the file."""
        client, start, end = read_trace(self.path, len(clients))
        return {"client": client, "start": start, "end": end}

    def draw(self, memory: PartState, clients: Clients, round: int, rng: np.random.Generator) -> NDArray[Any]:
        """Nothing is drawn."""
        return np.empty(0)

    def mask(self, memory: PartState, drawn: NDArray[Any], clients: Clients, round: int, clock: float) -> Bools:
        """Mask of the clients with an interval that contains the current time."""
        first, now = (0.0, clock) if self.unit == "seconds" else (1.0, float(round))
        if self.repeat is not None:
            now = (now - first) % self.repeat + first
        mask: Bools = np.zeros(len(clients), dtype=bool)
        mask[memory["client"][(memory["start"] <= now) & (now < memory["end"])]] = True
        return mask
