"""Durations of clients, from what they report and when their replies arrive."""

from collections import deque

import numpy as np

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
        self._seen: deque[float] = deque(maxlen=KEPT)

    @property
    def seconds(self) -> float:
        """The estimate."""
        return float(np.quantile(self._seen, SHARE)) if len(self._seen) >= ENOUGH else 0.0

    def duration(self, reported: float | None, arrived: float) -> float:
        """Seconds that a client took; `reported` is None where it reports nothing, or nothing possible."""
        least = max(arrived - self.seconds, LEAST * arrived)
        if reported is not None and reported <= arrived:
            self._seen.append(arrived - reported)
        return least if reported is None else max(reported, least)
