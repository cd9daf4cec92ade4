"""Durations of clients, from what they report and when their replies arrive."""

from bisect import bisect_left, insort
from collections import deque

__all__ = ["Delay"]

KEPT = 200  # replies from which the delay is estimated
ENOUGH = 5
SHARE = 0.25  # quantile of the replies' delays: false reports move it at will only if they are three quarters of all
LEAST = 0.25  # share of the time until the reply that a duration has at least, whatever the delay


class Delay:
    """Estimates the delay between a client's work and the arrival of its reply: transport, polling, starting up.

    The delay is the lower quartile of (arrival - reported seconds) over the last 200 replies; 0 until there are five. A
    duration is the one reported, but at least the arrival minus the delay: an honest client gets what it reports, or
    more if its delay was above the usual one; a false short duration is replaced by the arrival minus the delay.

    >>> delay = Delay()
    >>> [delay.duration(2.0, arrived=2.5) for _ in range(5)], delay.seconds
    ([2.5, 2.5, 2.5, 2.5, 2.5], 0.5)
    >>> delay.duration(2.0, arrived=2.5), delay.duration(0.001, arrived=7.5)
    (2.0, 7.0)
    """

    def __init__(self) -> None:
        self._seen: deque[float] = deque()
        self._sorted: list[float] = []  # the same numbers: sorting anew for each of 10,000 answers takes half a second

    @property
    def seconds(self) -> float:
        """The estimate."""
        if len(self._sorted) < ENOUGH:
            return 0.0
        at, share = divmod(SHARE * (len(self._sorted) - 1), 1.0)
        low, high = self._sorted[int(at) : int(at) + 2]
        # As np.quantile interpolates, to the last bit.
        return high - (high - low) * (1.0 - share) if share >= 0.5 else low + (high - low) * share

    def duration(self, reported: float | None, arrived: float) -> float:
        """Seconds that a client took; `reported` is None where it reports nothing, or nothing possible."""
        least = max(arrived - self.seconds, LEAST * arrived)
        if reported is not None and reported <= arrived:
            self._note(arrived - reported)
        return least if reported is None else max(reported, least)

    def _note(self, delay: float) -> None:
        self._seen.append(delay)
        insort(self._sorted, delay)
        if len(self._seen) > KEPT:
            del self._sorted[bisect_left(self._sorted, self._seen.popleft())]
