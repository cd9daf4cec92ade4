"""Rounds of a deployment in the same store as the simulator's, so that `fedpick report` shows them."""

import logging
from pathlib import Path
from time import monotonic
from typing import Any

from fedpick.errors import StoreError
from fedpick.flower.memory import Memory
from fedpick.flower.roster import Roster
from fedpick.store import Tables
from fedpick.store.records import Record

__all__ = ["ENGINE", "Recording"]

log = logging.getLogger("flwr.fedpick")

ENGINE = "flower"  # what the manifest says of where the rounds were played
WRITE_EVERY = 2.0  # seconds
JOIN_EVERY = 100  # rounds
MOST_COLUMNS = 200  # metrics; clients choose their names


class Recording:
    """A run's folder, open while start() runs.

    Args:
        path: of the folder.
        config: what the manifest says of the run.
        roster: whose rounds they are.
        memory: the state's folder, which the records are never ahead of; the rounds that it remembers and that are
            not in the store yet are added.
    """

    def __init__(self, path: Path, config: dict[str, Any], roster: Roster, memory: Memory | None) -> None:
        self.roster, self.memory = roster, memory
        self.tables = Tables(path, config)
        self._waiting: list[Record] = []
        self._written = 0.0  # when
        self._columns: dict[str, None] = {}  # of metrics
        try:
            reached = self.tables.reached
            if reached > roster.round:
                raise StoreError(
                    f"{path}: holds rounds up to {reached}, but this server has played {roster.round}; give records= "
                    "another folder, or state= the folder that goes with this one"
                )
            self.tables.drop_after(reached)
        except BaseException:
            self.tables.close()
            raise
        self._joined, self._named = reached, 0
        missed = [record for record in (memory.replayed if memory else []) if record.round > reached]
        if reached + len(missed) < roster.round:
            log.warning("%s has no rounds between %d and %d", path, reached, roster.round + 1 - len(missed))
        for record in missed:
            self.add(record)

    def add(self, record: Record) -> None:
        """Take a round; those of some seconds are written together."""
        self._waiting.append(record)
        if monotonic() - self._written >= WRITE_EVERY:
            self.flush()

    def flush(self) -> None:
        """Write what waits; what cannot be written now is tried again with the next."""
        if not self._waiting or (self.memory is not None and self.memory.behind):
            return
        names = dict.fromkeys(name for record in self._waiting for name in record.metrics)
        self._columns |= dict.fromkeys([*self._columns, *names][:MOST_COLUMNS])
        try:
            self.tables.write(self._waiting, [name for name in names if name in self._columns])
            if self._named < len(self.roster.names):
                self._name()
            self._waiting, self._written = [], monotonic()
            if self.roster.round - self._joined >= JOIN_EVERY:
                self._join()
        except StoreError as error:
            log.error("%s", error)

    def _name(self) -> None:
        self.tables.name_clients(self.roster.names)
        self._named = len(self.roster.names)

    def _join(self) -> None:
        self._name()
        if self.roster.round:
            self.tables.join(self.tables.reached)
            self._joined = self.tables.reached

    def close(self) -> None:
        """Write and join everything, and let others in."""
        try:
            self.flush()
            self._join()
        except StoreError as error:
            log.error("%s", error)
        finally:
            self.tables.close()
