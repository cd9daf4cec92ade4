"""Schedules: settings that change with the round. Any callable round -> number works; these are common ones.

After its horizon a schedule keeps its last value.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from fedpick.core.errors import require

__all__ = ["Cosine", "Decay", "Halving", "Linear", "Schedule", "Step"]

Schedule = Callable[[int], float]


@dataclass(frozen=True)
class Step:
    """`before` until round `at` (inclusive), then `after`: E3CS-inc is Step(0, 1, at=T/4), adapow-d Step(K, m, at=T/2).

    >>> inc = Step(0.0, 1.0, at=625)
    >>> inc(625), inc(626)
    (0.0, 1.0)
    """

    before: float
    after: float
    at: float

    def __call__(self, round: int) -> float:
        """The value in this round."""
        return self.before if round <= self.at else self.after


@dataclass(frozen=True)
class _Ramp:
    """Settings of a schedule that goes from `start` in round 1 to `end` in round `horizon`."""

    start: float
    end: float
    horizon: int

    def __post_init__(self) -> None:
        require(self.horizon >= 2, f"{type(self).__name__}: horizon", self.horizon, ">= 2 rounds")

    def _done(self, round: int) -> float:
        """The share of the horizon that is over."""
        return min(max((round - 1) / (self.horizon - 1), 0.0), 1.0)


@dataclass(frozen=True)
class Linear(_Ramp):
    """A straight line from `start` in round 1 to `end` in round `horizon`.

    >>> Linear(0.0, 1.0, horizon=5)(3)
    0.5
    """

    def __call__(self, round: int) -> float:
        """The value in this round."""
        return self.start + (self.end - self.start) * self._done(round)


@dataclass(frozen=True)
class Decay:
    """`start` in round 1, then multiplied by the same factor each round: FedGS's learning rate is Decay(0.1, 0.998).

    >>> round(Decay(0.1, 0.5)(3), 3)
    0.025
    """

    start: float
    factor: float

    def __post_init__(self) -> None:
        require(0.0 < self.factor <= 1.0, "Decay: factor", self.factor, "in (0, 1]")

    def __call__(self, round: int) -> float:
        """The value in this round."""
        return float(self.start * self.factor ** (round - 1))


@dataclass(frozen=True)
class Cosine(_Ramp):
    """Half a cosine wave from `start` in round 1 to `end` in round `horizon`: flat at both ends.

    >>> Cosine(0.0, 1.0, horizon=5)(5)
    1.0
    """

    def __call__(self, round: int) -> float:
        """The value in this round."""
        return self.start + (self.end - self.start) * (1.0 - math.cos(math.pi * self._done(round))) / 2.0


@dataclass(frozen=True)
class Halving:
    """`start`, halved every `every` rounds (Power-of-Choice's quadratic experiment: from K, every 5000).

    >>> [Halving(32, every=10)(t) for t in (10, 11, 21)]
    [32.0, 16.0, 8.0]
    """

    start: float
    every: int

    def __post_init__(self) -> None:
        require(self.every >= 1, "Halving: every", self.every, ">= 1 round")

    def __call__(self, round: int) -> float:
        """The value in this round."""
        return self.start * 0.5 ** ((round - 1) // self.every)
