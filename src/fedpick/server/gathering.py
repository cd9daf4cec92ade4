"""Waiting for enough clients, but not for ever."""

import logging
from collections.abc import Callable, Sized
from time import monotonic, sleep
from typing import TypeVar

from fedpick.errors import FedpickError, require

__all__ = ["Gathering", "NotEnoughClientsError"]

TOO_FEW = ("smaller", "error")
Found = TypeVar("Found", bound=Sized)


class NotEnoughClientsError(FedpickError, RuntimeError):
    """Too few clients are there for a round."""


class Gathering:
    """Waits for as many clients as a policy asks for; the wait for those who never came is not repeated.

    Args:
        too_few: with fewer, "smaller" cohorts or an "error". Nobody at all is always an error.
        owner: what messages about settings call this.
        fix: what to do when nobody comes.
        log: is told of smaller cohorts.
    """

    def __init__(self, too_few: str, owner: str, fix: str, log: logging.Logger) -> None:
        require(too_few in TOO_FEW, f"{owner}: too_few", too_few, f"one of {', '.join(TOO_FEW)}")
        self.too_few, self.fix, self.log = too_few, fix, log
        self._settled: int | None = None  # how many clients we stopped waiting for more at

    def gather(self, want: int, wait: float, find: Callable[[], Found]) -> Found:
        """What `find` gives when as many are there, or the time (seconds) is up."""
        enough = want if self._settled is None else min(want, self._settled)
        begun = monotonic()
        while True:
            found = find()
            left = wait - (monotonic() - begun)
            if len(found) >= enough or left <= 0:
                break
            sleep(min(1.0, left))
        if not len(found):
            raise NotEnoughClientsError(
                f"no client was connected for {wait:g} s, so that nobody can train; {self.fix}, or raise wait"
            )
        if len(found) < want and self.too_few == "error":
            raise NotEnoughClientsError(
                f"{len(found)} clients were connected after {wait:g} s, but the policy asks for {want}; "
                f"{self.fix}, raise wait, or say too_few='smaller'"
            )
        if len(found) < enough:
            self.log.warning("%d clients connected after %g s, %d wanted: a smaller cohort", len(found), wait, want)
        self._settled = len(found)
        return found
