"""Write a server's rounds in the simulator's format, so that `fedpick report` can read them."""

import logging
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np

from fedpick.core.errors import StoreError
from fedpick.server.roster import Roster
from fedpick.store import Tables, read_census, read_clients
from fedpick.store.records import Record

__all__ = ["RecordWriter"]

WRITE_EVERY = 2.0  # seconds
MERGE_EVERY = 10  # parts
MOST_COLUMNS = 200  # of metrics, whose names may come from clients


class RecordWriter:
    """A run's folder to which a server writes.

    `config` is for the manifest. Records in the state's journal (`journaled`) that the folder lacks are added.
    """

    def __init__(
        self, path: Path, config: dict[str, Any], roster: Roster, journaled: list[Record], log: logging.Logger
    ) -> None:
        self.roster, self.log = roster, log
        self.tables = Tables(path, config)
        self._waiting: list[Record] = []
        self._written = 0.0  # time of the last write
        self._columns: dict[str, None] = {}  # names of metrics
        try:
            reached = self.tables.reached
            if reached > roster.round:
                raise StoreError(
                    f"{path}: holds rounds up to {reached}, but this server has played {roster.round}; give records= "
                    "another folder, or state= the folder that belongs to this one"
                )
            self.tables.drop_after(reached)
            self._names = read_clients(path) or []  # by number, including retired clients
            self._sizes = read_census(path).get("size", np.full(len(self._names), np.nan))  # by number as well
        except BaseException:
            self.tables.close()
            raise
        self._parts, self._named = MERGE_EVERY, 0  # parts since they were merged
        self._reached = reached  # the last round that is written
        missed = [record for record in journaled if record.round > reached]
        if reached + len(missed) < roster.round:
            text = "%s: of rounds %d to %d, %d are recorded; others were played without records= or with a full disk"
            log.warning(text, path, reached + 1, roster.round, len(missed))
        for record in missed:
            self.add(record)

    def add(self, record: Record) -> None:
        """Add a round to the next write."""
        self._waiting.append(record)

    @property
    def due(self) -> bool:
        """Whether to write now: rounds of a few seconds are written together."""
        return monotonic() - self._written >= WRITE_EVERY

    def flush(self) -> bool:
        """Write the waiting rounds; returns whether all are written. If not, the next call tries again."""
        if not self._waiting:
            return True
        names = dict.fromkeys(name for record in self._waiting for name in record.metrics)
        self._columns |= dict.fromkeys([*self._columns, *names][:MOST_COLUMNS])
        try:
            self.tables.write(self._waiting, [name for name in names if name in self._columns], self._reached)
            self._reached = self._waiting[-1].round
            self._waiting, self._written = [], monotonic()
            if self._named < self.roster.issued:
                self._name()
            self._parts += 1
            if self._parts >= MERGE_EVERY:
                self.tables.merge()
                self._parts = 0
        except StoreError as error:
            self.log.error("%s. %d rounds wait; writing is tried again after the next", error, len(self._waiting))
        return not self._waiting

    def note_names(self) -> None:
        """Remember name and size of each client number, also after the client is retired."""
        roster, new = self.roster, self.roster.issued - len(self._names)
        self._names += [""] * new  # "" for clients retired before there were records
        self._sizes = np.concatenate([self._sizes, np.full(new, np.nan)])
        if roster.counted is not None:
            self._sizes[roster.numbers] = roster.counted.sizes
        for number, name in zip(roster.numbers, roster.names, strict=True):
            # Lone surrogates are not valid UTF-8.
            self._names[number] = name.encode("utf-8", "backslashreplace").decode()

    def _name(self) -> None:
        self.note_names()
        self.tables.name_clients(self._names, self._sizes)
        self._named = self.roster.issued

    def close(self) -> None:
        """Join the written parts, and release the folder's lock."""
        try:
            self._name()
            if self.roster.round:
                reached = self.tables.reached
                self.tables.drop_after(reached)  # a part whose writing was interrupted is written again
                self.tables.join(reached)
        except StoreError as error:
            self.log.error("%s", error)
        finally:
            self.tables.close()
