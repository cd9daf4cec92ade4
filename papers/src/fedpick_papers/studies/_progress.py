"""A study's progress, and an estimate of the time left."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

__all__ = ["Estimate", "Progress"]


@dataclass(frozen=True)
class Progress:
    """A study's progress.

    Args:
        study: its id.
        done: number of finished jobs.
        total: number of all jobs.
        kept: number of jobs that were finished by an earlier call.
        left: estimated seconds until the end; None before the first job of this call is done.

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


class Estimate:
    """Estimates the time left from the finished work and its duration.

    Args:
        costs: of the unfinished jobs, by number.
        width: number of jobs in parallel.
        clock: returns seconds.

    >>> now = iter([0.0, 10.0]).__next__
    >>> estimate = Estimate({0: 1.0, 1: 1.0, 2: 3.0}, width=1, clock=now)
    >>> estimate.done(0, seconds=10.0)
    >>> estimate.left()  # four times what the first took
    40.0
    """

    def __init__(self, costs: Mapping[int, float], width: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._costs, self._width, self._clock = dict(costs), width, clock
        self._shares = dict.fromkeys(costs, 0.0)
        self._spent, self._begun = 0.0, clock()

    def reach(self, job: int, share: float) -> None:
        """Note the share of a job that is done."""
        self._shares[job] = share

    def done(self, job: int, seconds: float = 0.0) -> None:
        """Note that a job is done; `seconds` is its duration, for jobs that do not report progress."""
        self._shares[job], self._spent = 1.0, self._spent + seconds

    def left(self) -> float | None:
        """Seconds until all are done; None until one is."""
        jobs = sum(share < 1.0 for share in self._shares.values())
        if jobs == 0 or jobs == len(self._costs):
            return None if jobs else 0.0
        elapsed = self._clock() - self._begun
        done = sum(cost * self._shares[job] for job, cost in self._costs.items())
        rest = sum(self._costs.values()) - done
        if not self._spent:
            return rest * elapsed / done
        # A cluster may work on more jobs in parallel than `width`.
        width = min(max(self._width, round(self._spent / elapsed) if elapsed > 0 else 1), jobs)
        seconds = rest * self._spent / done
        # Time not spent on finished jobs was spent on the current ones, but not more than they need.
        begun = min(max(self._width * elapsed - self._spent, 0.0), seconds * width / jobs)
        return max(seconds - begun, 0.0) / width
