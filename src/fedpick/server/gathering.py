"""Wait until enough clients are connected, up to a time limit."""

import logging
from collections.abc import Callable, Sized
from time import monotonic, sleep
from typing import TypeVar

from fedpick.errors import FedpickError, require

__all__ = ["Gathering", "NotEnoughClientsError"]

TOO_FEW = ("smaller", "error")
Found = TypeVar("Found", bound=Sized)


class NotEnoughClientsError(FedpickError, RuntimeError):
    """Too few clients are connected for a round."""


class Gathering:
    """Waits until as many clients are connected as the policy asks for.

    After a wait that ended with fewer, the next rounds wait only for as many as there were.

    Args:
        too_few: what to do if fewer are connected: "smaller" takes a smaller cohort, "error" raises. No client at all
            always raises.
        owner: the name that error messages begin with.
        fix: advice in the error message when too few clients are connected.
        log: gets a warning about smaller cohorts.
    """

    def __init__(self, too_few: str, owner: str, fix: str, log: logging.Logger) -> None:
        require(too_few in TOO_FEW, f"{owner}: too_few", too_few, f"one of {', '.join(TOO_FEW)}")
        self.too_few, self.fix, self.log = too_few, fix, log
        self._settled: int | None = None  # clients that were connected when the last wait ended

    def gather(self, want: int, wait: float, find: Callable[[], Found]) -> Found:
        """Call `find` until it returns `want` clients or `wait` seconds have passed; returns its last result."""
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
                f"no client was connected for {wait:g} s, so nobody can train; {self.fix}, or increase wait"
            )
        if len(found) < want and self.too_few == "error":
            raise NotEnoughClientsError(
                f"{len(found)} clients were connected after {wait:g} s, but the policy asks for {want}; "
                f"{self.fix}, increase wait, or set too_few='smaller'"
            )
        if len(found) < enough:
            self.log.warning("%d clients connected after %g s, %d wanted: a smaller cohort", len(found), wait, want)
        self._settled = len(found)
        return found
