"""Durations of clients, from what they report and when their replies arrive."""

from collections import deque

import numpy as np

__all__ = ["Delay"]

KEPT = 200  # replies from which the delay is estimated
ENOUGH = 5
SHARE = 0.25  # quantile of the replies' delays: false reports move it at will only if they are three quarters of all
LEAST = 0.25  # of the time until the reply: the delay is never taken for all of it


class Delay:
    """Estimates the delay between a client's work and the arrival of its reply: transport, polling, starting up.

    The delay is the lower quartile of (arrival - reported seconds) over the last 200 replies; 0 until there are five. A
    duration is the one reported, but at least the arrival minus the delay: an honest client gets its own, or more if
    its delay was above the usual one; false short ones are replaced by what the arrival tells.

    >>> delay = Delay()
    >>> [delay.duration(said=2.0, arrived=2.5) for _ in range(5)], delay.seconds
    ([2.5, 2.5, 2.5, 2.5, 2.5], 0.5)
    >>> delay.duration(said=2.0, arrived=2.5), delay.duration(said=0.001, arrived=7.5)
    (2.0, 7.0)
    """

    def __init__(self) -> None:
        self._seen: deque[float] = deque(maxlen=KEPT)

    @property
    def seconds(self) -> float:
        """The estimate."""
        return float(np.quantile(self._seen, SHARE)) if len(self._seen) >= ENOUGH else 0.0

    def duration(self, said: float | None, arrived: float) -> float:
        """Seconds that a client took.

        Args:
            said: what it reports; None where it reports nothing, or nothing possible.
            arrived: seconds until its reply was there.
        """
        least = max(arrived - self.seconds, LEAST * arrived)
        if said is not None and said <= arrived:
            self._seen.append(arrived - said)
        return least if said is None else max(said, least)
