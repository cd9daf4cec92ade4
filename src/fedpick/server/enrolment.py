"""Who is enrolled: newcomers are described and join, clients that were away too long are forgotten."""

import logging
from collections.abc import Mapping
from typing import Any

import numpy as np

from fedpick.core.errors import ContractError
from fedpick.core.protocol import traits
from fedpick.core.types import Clients
from fedpick.server import validation
from fedpick.server.roster import Present, Roster
from fedpick.server.settings import DescribeFn, Limits
from fedpick.server.storage import Storage

__all__ = ["Enrolment"]

TRUE = "if sizes are known to be true, set Limits(size_factor=None)"


class Enrolment:
    """Lets clients join and leave before a choice.

    Args:
        roster: of the session, as is all that follows.
        limits: when clients are forgotten, and how many are enrolled.
        describe: names of newcomers -> fp.Clients; None: the descriptions given with the names.
        storage: is told the names of clients that will be forgotten.
        owner: that messages begin with.
        log: for messages.
    """

    def __init__(
        self,
        roster: Roster,
        limits: Limits,
        describe: DescribeFn | None,
        storage: Storage,
        owner: str,
        log: logging.Logger,
    ) -> None:
        self.forgotten = 0  # clients, since the last record
        self._roster, self.limits, self._describe = roster, limits, describe
        self._storage, self._owner, self._log = storage, owner, log

    def forget(self, there: Present) -> list[str]:
        """Forget clients that were away too long, or longest if too many are enrolled; returns their names."""
        roster = self._roster
        if gone := roster.stale(there, self.limits.forget_after, self.limits.most_clients):
            away = roster.round + 1 - int(roster.seen[[roster.index[name] for name in gone]].max())
            self._storage.note_names(gone)  # before they are gone
            there.known = there.known[roster.forget(gone)]
            self.forgotten += len(gone)
            text = "forgot %d clients that were away for %d rounds or more, %d are left"
            self._log.warning(text, len(gone), away, len(roster.names))
        return gone

    def enrol(self, there: Present) -> None:
        """Enrol the clients that are new; those for which there is no room are removed from `there`."""
        if refused := self._roster.refused(there.new, self.limits.most_clients):
            for name in refused:
                del there.new[name]
            text = "refused %d newcomers: the policy must remember the %d clients that are enrolled; raise most_clients"
            self._log.warning(text, len(refused), len(self._roster.names) + len(there.new))
        if new := there.new:
            before = self._roster.oversized
            self._roster.enrol(list(new), self._newcomers(new))
            there.known = np.append(there.known, np.ones(len(new), dtype=np.bool_))
            self._log.info("enrolled %d clients, %d in all", len(new), len(self._roster.names))
            if (after := self._roster.oversized) > before and self._roster.counted is not None:
                count, most = len(self._roster.names), self._roster.counted.sizes.max()
                self._log.warning("the declared sizes of %d of %d clients count as %g; " + TRUE, after, count, most)

    def _newcomers(self, new: Mapping[str, Any]) -> Clients:
        """The newcomers, from their descriptions by name, or from the user's function."""
        if self._describe is None:
            needs = traits(self._roster.policy).needs
            return validation.newcomers(list(new.values()), self._roster.clients, needs, self._log)
        found = self._describe(list(new))
        if len(found) != len(new):
            raise ContractError(
                f"{self._owner}: describe() returned {len(found)} clients for {len(new)} names; return one for each"
            )
        return found
