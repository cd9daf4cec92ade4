"""Rounds of a deployment in the same store as the simulator's, so that `fedpick report` shows them."""

import logging
from pathlib import Path
from time import monotonic
from typing import Any

from fedpick.errors import StoreError
from fedpick.flower.roster import Roster
from fedpick.round import Record
from fedpick.store import Tables

__all__ = ["ENGINE", "Recording"]

log = logging.getLogger("flwr.fedpick")

ENGINE = "flower"  # what the manifest says of where the rounds were played
WRITE_EVERY = 2.0  # seconds
JOIN_EVERY = 100  # rounds


class Recording:
    """A run's folder, open while start() runs.

    Args:
        path: of the folder.
        config: what the manifest says of the run.
        roster: whose rounds they are.
        replayed: the last rounds that the state folder remembers; those that are not in the store yet are added.
    """

    def __init__(self, path: Path, config: dict[str, Any], roster: Roster, replayed: list[Record]) -> None:
        self.roster = roster
        self.tables = Tables(path, config)
        self._waiting: list[Record] = []
        self._written = 0.0  # when
        try:
            reached = self.tables.reached
            if reached > roster.round:
                raise StoreError(
                    f"{path}: holds rounds up to {reached}, but this server has played {roster.round}; give records= "
                    "another folder, or state= the folder that goes with this one"
                )
        except BaseException:
            self.tables.close()
            raise
        self._joined = reached
        for record in replayed:
            if record.round > reached:
                self.add(record)
        if reached + len(self._waiting) < roster.round:
            log.warning("%s has no rounds between %d and %d", path, reached, roster.round + 1)

    def add(self, record: Record) -> None:
        """Take a round; those of some seconds are written together."""
        self._waiting.append(record)
        if monotonic() - self._written >= WRITE_EVERY:
            self.flush()

    def flush(self) -> None:
        """Write what waits; what cannot be written now is tried again with the next."""
        if not self._waiting:
            return
        names = dict.fromkeys(name for record in self._waiting for name in record.metrics)
        try:
            self.tables.write(self._waiting, list(names))
            self._waiting, self._written = [], monotonic()
            if self.roster.round - self._joined >= JOIN_EVERY:
                self._join()
        except StoreError as error:
            log.error("%s", error)

    def _join(self) -> None:
        self.tables.name_clients(self.roster.names)
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
