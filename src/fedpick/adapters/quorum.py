"""Wait until enough clients are connected, up to a time limit."""

from collections.abc import Callable
from time import monotonic, sleep
from typing import TypeVar

from fedpick.core.errors import require
from fedpick.server.session import Session
from fedpick.server.view import NotEnoughClientsError

__all__ = ["Quorum"]

TOO_FEW = ("smaller", "error")
Node = TypeVar("Node")  # a framework's name of a connection


class Quorum:
    """Waits until as many clients are connected as the policy asks for.

    After a wait that ended with fewer, the next rounds wait only for as many as there were.

    Args:
        session: of the policy.
        too_few: "smaller" takes a smaller cohort if fewer are connected, "error" raises; with no client both raise.
        fix: advice in the error message when too few clients are connected.
    """

    def __init__(self, session: Session, too_few: str, fix: str) -> None:
        require(too_few in TOO_FEW, f"{session.owner}: too_few", too_few, f"one of {', '.join(TOO_FEW)}")
        self.session, self.too_few, self.fix = session, too_few, fix
        self.barred = 0  # clients that are connected but may not be asked, as the adapter's `find` says
        self._settled: int | None = None  # clients that were connected when the last wait ended

    def wait_for(self, wait: float, find: Callable[[], dict[str, Node]]) -> dict[str, Node]:
        """The connected clients by name; the session asks none that still works on an earlier round.

        `find` returns all that are connected now; it is called until they are enough, or `wait` seconds have passed. If
        there are some, but none that may be asked, there is a warning, and none is returned.
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
        if not found:
            self.nobody(wait)
            return {}
        if len(found) < want and self.too_few == "error":
            raise NotEnoughClientsError(
                f"{len(found)} clients were connected after {wait:g} s, but the policy asks for {want}; "
                f"{self.fix}, increase wait, or set too_few='smaller'"
            )
        if len(found) < enough:
            text = "%d clients connected after %g s, %d wanted: a smaller cohort"
            self.session.log.warning(text, len(found), wait, want)
        self._settled = len(found)
        return found

    def nobody(self, wait: float) -> None:
        """Raise because nobody was connected for so many seconds; warn if those who are may not be asked."""
        if self.barred and self.too_few == "smaller":
            text = (
                "round %d: none of the %d connected clients is eligible, so that nobody is asked; approve some, or see "
                "that eligible() knows clients by the names that they are enrolled with"
            )
            self.session.log.warning(text, self.session.round_number + 1, self.barred)
            return
        raise NotEnoughClientsError(
            f"no client was connected for {wait:g} s, so nobody can train; {self.fix}, or increase wait"
            + (f"; {self.barred} that are connected are not eligible: approve some" if self.barred else "")
        )

    def wait_for_late(self, free: bool) -> None:
        """Wait in a round in which nobody is asked: until an answer to an earlier one comes, or as the pace says.

        `free`: whether some clients could have been asked.
        """
        begun, session = monotonic(), self.session
        before, limit = session.flight.landed, session.rounds.empty(free, None)
        session.late.fetch()
        while session.flight.landed == before and (left := limit - (monotonic() - begun)) > 0:
            sleep(min(1.0, left))
            session.late.fetch()
