"""What goes on from round to round besides the policy's state: the model; and what is not as before after a restart."""

import logging
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from fedpick.server.alarms import Alarms
from fedpick.server.models import Arrays, checked, fingerprint
from fedpick.server.roster import Roster

if TYPE_CHECKING:
    from fedpick.server.memory import Memory

__all__ = ["Continuing"]


class Continuing:
    """The model of a session's rounds, and the first look around after a restart.

    Args:
        memory: of the session; None: its state is not saved.
        roster: of the session.
        alarms: that warn.
        owner: the name that error messages begin with.
        log: of the session.
    """

    def __init__(
        self, memory: "Memory | None", roster: Roster, alarms: Alarms, owner: str, log: logging.Logger
    ) -> None:
        self.fresh = False  # whether the model began again since the last round
        self._memory, self._roster, self._alarms, self._owner, self._log = memory, roster, alarms, owner, log
        self._first = True  # whether no round has begun since the start
        self._asked = False  # whether the server has told or been told since then with which model it starts

    @property
    def _keeps(self) -> bool:
        return self._memory is not None and self._memory.models is not None

    def kept(self) -> Arrays | None:
        """The model after the last round; None if none is kept."""
        found = None if self._memory is None else self._memory.model()
        self._asked = self._asked or found is not None
        return found

    def model(self) -> Arrays | None:
        """As `kept`, with a warning if there should be one."""
        found = self.kept()
        if found is None and self._roster.round and self._first and not self._asked:
            self._asked = True
            self._begins_again("none is kept for it")
        return found

    def begins_with(self, model: Mapping[str, Any]) -> None:
        """Warn if a server starts with another model than the one that the last round ended with."""
        self._asked, mark = True, self._roster.model
        if mark is not None and mark[1] != fingerprint(model):
            self._begins_again("the server starts with another one")

    def look(self, there: Collection[str]) -> None:
        """In the first round after a restart, warn if nobody has returned, or if the kept model was not asked for."""
        if self._first and self._roster.round:
            self._alarms.returned(self._roster.index, there, self._roster.round + 1)
            if self._keeps and not self._asked:
                self._begins_again("one may be kept, but it was not asked for", "read `model` before the first round")
        self._first = False

    def _begins_again(self, why: str, fix: str = "") -> None:
        number = self._roster.round
        keep = (
            "let the folder of model= survive with that of state=" if self._keeps else "give model='folder', to keep it"
        )
        self._log.warning(
            "the state continues after round %d, but not with the model of that round: %s. The policy goes on with "
            "what it learned about the clients while the model begins again, and curves in the records are of two "
            "trainings. To avoid this, %s, or start with the model of round %d",
            number,
            why,
            fix or keep,
            number,
        )
        self.fresh = True

    def check(self, model: Mapping[str, Any] | None) -> None:
        """Raise if a round's new model cannot be kept where it should be."""
        if model is not None and self._keeps:
            checked(model, self._owner)

    def note(self, round: int, model: Mapping[str, Any] | None) -> None:
        """Note a round's new model for the state, and keep it if models are kept; None: it has not changed."""
        self.fresh = False
        if model is None or self._memory is None:
            return
        if self._memory.models is not None:
            self._memory.models.give(round, checked(model, self._owner))
        self._roster.model = round, fingerprint(model)
