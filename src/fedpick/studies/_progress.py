"""How far a study is, and an honest estimate of the time left."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

__all__ = ["Estimate", "Progress"]


@dataclass(frozen=True)
class Progress:
    """How far a study is.

    Args:
        study: its id.
        done: jobs that are done.
        total: jobs in all.
        kept: of those that are done, the ones from before.
        left: seconds until the end, as far as one can tell; None before the first job of this time is done.

    >>> print(Progress("e3cs/fig4", done=12, total=160, kept=0, left=740.0))
    12 of 160 jobs, about 12 min left
    >>> print(Progress("e3cs/fig4", done=12, total=160, kept=12, left=None))
    12 of 160 jobs, 12 of them from before
    """

    study: str
    done: int
    total: int
    kept: int
    left: float | None

    def __str__(self) -> str:
        parts = [f"{self.done} of {self.total} jobs"]
        if self.kept:
            parts.append(f"{self.kept} of them from before")
        if self.left is not None and self.done < self.total:
            parts.append(_words(self.left))
        return ", ".join(parts)


def _words(seconds: float) -> str:
    minutes = seconds / 60
    if minutes < 1:
        return "less than a minute left"
    return f"about {minutes:.0f} min left" if minutes < 90 else f"about {minutes / 60:.1f} h left"


@dataclass
class Estimate:
    """Time left, from what the jobs done so far took for their cost.

    Args:
        costs: of the jobs that are to be done.
        width: how many are worked on at once.
        clock: seconds.

    >>> now = iter([0.0, 10.0]).__next__
    >>> estimate = Estimate([1.0, 1.0, 3.0], width=1, clock=now)
    >>> estimate.done(cost=1.0, seconds=10.0)
    >>> estimate.left()  # four times what the first took
    40.0
    """

    costs: list[float]
    width: int
    clock: Callable[[], float] = time.monotonic
    _begun: float = field(init=False)
    _spent: float = 0.0
    _cost: float = 0.0
    _count: int = 0

    def __post_init__(self) -> None:
        self._begun = self.clock()

    def done(self, cost: float, seconds: float) -> None:
        """Count a job that took so long."""
        self._spent, self._cost, self._count = self._spent + seconds, self._cost + cost, self._count + 1

    def left(self) -> float | None:
        """Seconds until all are done; None until one is."""
        jobs = len(self.costs) - self._count
        if not self._count or not self._cost or not jobs:
            return None if jobs else 0.0
        elapsed = self.clock() - self._begun
        # More are worked on than we know of where a cluster does the work.
        width = min(max(self.width, round(self._spent / elapsed) if elapsed > 0 else 1), jobs)
        rest = (sum(self.costs) - self._cost) * self._spent / self._cost
        # What was not spent on finished jobs was spent on those at work now, at most all of each.
        begun = min(max(self.width * elapsed - self._spent, 0.0), rest * width / jobs)
        return max(rest - begun, 0.0) / width
