"""The model from round to round; after a restart, warnings if the model or the clients are not those of before."""

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fedpick.server.alarms import Alarms
from fedpick.server.models import Arrays, checked, fingerprint
from fedpick.server.roster import Present, Roster

if TYPE_CHECKING:
    from fedpick.server.memory import Memory

__all__ = ["Continuity"]


class Continuity:
    """The model of a session's rounds, and the checks of the first round after a restart."""

    def __init__(
        self, memory: "Memory | None", roster: Roster, alarms: Alarms, owner: str, log: logging.Logger
    ) -> None:
        self.fresh = False  # whether the model began again since the last round
        self._memory, self._roster, self._alarms, self._owner, self._log = memory, roster, alarms, owner, log
        self._first = True  # whether no round has begun since the start
        self._model_known = False  # whether it is known with which model the server starts

    @property
    def _keeps(self) -> bool:
        return self._memory is not None and self._memory.models is not None

    def kept(self) -> Arrays | None:
        """The model after the last round; None if none is kept."""
        found = None if self._memory is None else self._memory.model()
        self._model_known = self._model_known or found is not None
        return found

    def model(self) -> Arrays | None:
        """As `kept`, with a warning if there should be one."""
        found = self.kept()
        if found is None and self._roster.round and self._first and not self._model_known:
            self._model_known = True
            self._warn("none is kept for it")
        return found

    def check_start(self, model: Mapping[str, Any]) -> None:
        """Warn if a server starts with another model than the one that the last round ended with."""
        self._model_known, mark = True, self._roster.model
        if mark is not None and mark[1] != fingerprint(model):
            self._warn("the server starts with another one")

    def begin_round(self, there: Present) -> None:
        """In the first round after a restart, warn if nobody has returned, or if the kept model was not asked for."""
        if self._first and self._roster.round:
            if not there.known.any():
                self._alarms.nobody_returned(self._roster.index, there.new, self._roster.round + 1)
            if self._keeps and not self._model_known:
                self._warn("one may be kept, but it was not asked for", "read `model` before the first round")
        self._first = False

    def _warn(self, why: str, fix: str = "") -> None:
        number, folder = self._roster.round, "let the folder of model= survive with that of state="
        fix = fix or (folder if self._keeps else "give model='folder', to keep it")
        text = (
            "the state continues after round %d, but not with the model of that round: %s. The policy goes on with "
            "what it learned about the clients while the model begins again, and curves in the records are of two "
            "trainings. To avoid this, %s, or start with the model of round %d"
        )
        self._log.warning(text, number, why, fix, number)
        self.fresh = True

    def check_model(self, model: Mapping[str, Any] | None) -> None:
        """Raise if a round's new model cannot be kept where it should be."""
        if model is not None and self._keeps:
            checked(model, self._owner)

    def set_model(self, round: int, model: Mapping[str, Any] | None) -> None:
        """Note a round's new model for the state, and keep it if models are kept; None: it has not changed."""
        self.fresh = False
        if model is None or self._memory is None:
            return
        if self._memory.models is not None:
            self._memory.models.give(round, checked(model, self._owner))
        self._roster.model = round, fingerprint(model)
