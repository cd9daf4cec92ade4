"""Wait until enough clients are connected, up to a time limit."""

from collections.abc import Callable
from time import monotonic, sleep
from typing import TYPE_CHECKING, TypeVar

from fedpick.core.errors import FedpickError, require

if TYPE_CHECKING:
    from fedpick.server.session import Session

__all__ = ["Gathering", "NotEnoughClientsError"]

TOO_FEW = ("smaller", "error")
Node = TypeVar("Node")  # how a framework calls a connection


class NotEnoughClientsError(FedpickError, RuntimeError):
    """Too few clients are connected for a round."""


class Gathering:
    """Waits until as many clients are connected as the policy asks for.

    After a wait that ended with fewer, the next rounds wait only for as many as there were.

    Args:
        session: of the policy.
        too_few: what to do if fewer are connected: "smaller" takes a smaller cohort, "error" raises. No client at all
            always raises.
        fix: advice in the error message when too few clients are connected.
    """

    def __init__(self, session: "Session", too_few: str, fix: str) -> None:
        require(too_few in TOO_FEW, f"{session.owner}: too_few", too_few, f"one of {', '.join(TOO_FEW)}")
        self.session, self.too_few, self.fix = session, too_few, fix
        self.barred = 0  # clients that are connected but may not be asked, as the adapter's `find` says
        self._settled: int | None = None  # clients that were connected when the last wait ended

    def gather(self, wait: float, find: Callable[[], dict[str, Node]]) -> dict[str, Node]:
        """The connected clients by name, without those that still work on an earlier round.

        If there are some, but none that may be asked, there is a warning, and none is returned.

        Args:
            wait: seconds.
            find: returns all that are connected now; it is called until they are enough, or the time is over.
        """
        want = self.session.traits.asks or 1
        enough = want if self._settled is None else min(want, self._settled)
        begun = monotonic()
        while True:
            found = find()
            left = wait - (monotonic() - begun)
            if len(found) >= enough or left <= 0:
                break
            sleep(min(1.0, left))
        if not len(found) and self.barred and self.too_few == "smaller":
            self.session.log.warning(
                "round %d: none of the %d connected clients is eligible, so that nobody is asked; approve some, or see "
                "that eligible() knows clients by the names that they are enrolled with",
                self.session.round_number + 1,
                self.barred,
            )
            return {}
        if not len(found):
            raise NotEnoughClientsError(
                f"no client was connected for {wait:g} s, so nobody can train; {self.fix}, or increase wait"
                + (f"; {self.barred} that are connected are not eligible: approve some" if self.barred else "")
            )
        if len(found) < want and self.too_few == "error":
            raise NotEnoughClientsError(
                f"{len(found)} clients were connected after {wait:g} s, but the policy asks for {want}; "
                f"{self.fix}, increase wait, or set too_few='smaller'"
            )
        if len(found) < enough:
            said = "%d clients connected after %g s, %d wanted: a smaller cohort"
            self.session.log.warning(said, len(found), wait, want)
        self._settled = len(found)
        return {name: found[name] for name in self.session.free(found)}
