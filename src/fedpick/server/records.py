"""Write a server's rounds in the simulator's format, so that `fedpick report` can read them."""

import logging
from bisect import bisect_left
from collections.abc import Collection
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
MOST_NAMES = 1_000_000  # of clients; of those that left before, only the numbers are recorded
NEW = 20  # the table of clients is written again when one in 20 is new: it has all that were ever there


class RecordWriter:
    """A run's folder to which a server writes.

    `config` is for the manifest, as are the letters of the state, which tell whether it was replaced. Records in the
    state's journal (`journaled`) that the folder lacks are added.
    """

    def __init__(
        self,
        path: Path,
        config: dict[str, Any],
        roster: Roster,
        journaled: list[Record],
        log: logging.Logger,
        letters: str,
    ) -> None:
        self.roster, self.log, self._letters = roster, log, letters
        self._noted = False  # whether the letters are in the manifest
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
            # By number, including retired clients; numbers that an abandoned round gave are given again.
            self._names = (read_clients(path) or [])[: roster.issued]
            self._sizes = read_census(path).get("size", np.full(len(self._names), np.nan))[: roster.issued]
        except BaseException:
            self.tables.close()
            raise
        self._parts, self._named = MERGE_EVERY, 0  # parts since they were merged; clients whose names are on the disk
        self._known = self._unnamed = 0  # clients whose names are known here, and oldest ones whose names are given up
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
            if not self._noted:  # not before a round: until then a state may begin anew
                self.tables.note({"state": self._letters})
                self._noted = True
            self.tables.write(self._waiting, [name for name in names if name in self._columns], self._reached)
            self._reached = self._waiting[-1].round
            self._waiting, self._written = [], monotonic()
            if self._names_due():
                self._name()
            self._parts += 1
            if self._parts >= MERGE_EVERY:
                self.tables.merge()
                self._parts = 0
        except StoreError as error:
            self.log.error("%s. %d rounds wait; writing is tried again after the next", error, len(self._waiting))
        return not self._waiting

    def note_names(self, leaving: Collection[str]) -> None:
        """Remember the names of clients that will be forgotten; names that are not on the disk are written now.

        If that fails, they are written with the next rounds.
        """
        self._remember()
        try:
            if any(self.roster.number(name) >= self._named for name in leaving):
                self._name()
        except StoreError as error:
            self.log.error("%s", error)

    def _remember(self) -> None:
        """Keep name and size of each new client number, also after the client is retired."""
        roster, new = self.roster, self.roster.issued - len(self._names)
        self._names += [""] * new  # "" for clients retired before there were records
        self._sizes = np.concatenate([self._sizes, np.full(new, np.nan)])
        if roster.counted is not None:
            self._sizes[roster.numbers] = roster.counted.sizes  # also of earlier ones: what they count for may change
        first = bisect_left(roster.numbers, self._known)
        for number, name in zip(roster.numbers[first:], roster.names[first:], strict=True):
            # Lone surrogates are not valid UTF-8.
            self._names[number] = name if name.isascii() else name.encode("utf-8", "backslashreplace").decode()
        self._known = roster.issued
        if (last := len(self._names) - MOST_NAMES) > self._unnamed:
            enrolled = set(roster.numbers)
            for number in range(self._unnamed, last):
                if number not in enrolled:
                    self._names[number] = ""
            self._unnamed = last

    def _names_due(self) -> bool:
        """Whether to write the table of clients: many are new, or a new one has left, whom a restart does not know."""
        new, numbers = self.roster.issued - self._named, self.roster.numbers
        return new * NEW > self._named or len(numbers) - bisect_left(numbers, self._named) < new

    def _name(self) -> None:
        self._remember()
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
