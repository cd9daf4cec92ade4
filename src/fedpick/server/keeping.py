"""What a session keeps of its rounds: the state on disk, the records, the metrics that it serves; each may be off."""

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedpick.core.types import Choice, Outcome, View
from fedpick.server.metrics import Metrics
from fedpick.server.roster import Newcomers, Roster
from fedpick.store.records import Record

if TYPE_CHECKING:
    from fedpick.server.memory import Memory
    from fedpick.server.recording import Recording

__all__ = ["Keeping"]


class Keeping:
    """Keeps the rounds of a session. A round's state is on disk before the round counts, and before its record.

    Args:
        memory: for the state; None: it is not saved.
        records: folder for the records; None: they are not written.
        metrics: to serve; None: they are not served.
        about: entries of the records' manifest.
        roster: of the session.
        log: of the session.
    """

    def __init__(
        self,
        memory: "Memory | None",
        records: Path | None,
        metrics: Metrics | None,
        about: Mapping[str, Any],
        roster: Roster,
        log: logging.Logger,
    ) -> None:
        self.memory, self.records, self.metrics = memory, records, metrics
        self.last: Record | None = None  # the last round's; `measure` may still add metrics
        self.recording: Recording | None = None  # while it is open
        self._about, self._roster, self._log = dict(about), roster, log
        self._open = self._fresh = False  # _fresh: the last round has not been handed to the records yet

    @property
    def folders(self) -> str:
        """Where the state and the records are, for the log."""
        kept = "not saved" if self.memory is None else self.memory.folder.resolve()
        written = "not written" if self.records is None else self.records.resolve()
        models = None if self.memory is None else self.memory.models
        model = "not kept" if models is None else models.folder.resolve()
        return f"state: {kept}; model: {model}; records: {written}"

    def open(self) -> None:
        """Lock the folders, and begin to serve the metrics."""
        if self._open:
            return
        if self.memory is not None:
            self.memory.lock()
        try:
            if self.metrics is not None:
                self.metrics.open(self._log)
            if self.records is not None:
                from fedpick.server.recording import Recording  # needs pyarrow, an optional dependency

                journaled = [] if self.memory is None else self.memory.journaled()
                self.recording = Recording(self.records, self._about, self._roster, journaled, self._log)
                self.write()
        except BaseException:
            if self.metrics is not None:
                self.metrics.close()
            if self.memory is not None:
                self.memory.unlock()
            raise
        self._open = True

    def close(self) -> None:
        """Write everything and unlock the folders."""
        if not self._open:
            return
        try:
            self.settle()
            if self.memory is not None and self.memory.behind:
                self.fold()
            self.write()
        finally:
            self._open = False
            if self.metrics is not None:
                self.metrics.close()
            try:
                if self.recording is not None:
                    self.recording.close()
                    self.recording = None
            finally:
                if self.memory is not None:
                    self.memory.unlock()

    def expect(self) -> None:
        """Note that the state is about to change; even if that is interrupted, it will be written."""
        if self.memory is not None:
            self.memory.expect()

    def keep(self, view: View, choice: Choice, outcome: Outcome, record: Record, newcomers: list[Newcomers]) -> None:
        """Keep a round that the policy has learned from; its state is on disk when this returns."""
        self.last, self._fresh = record, True
        if self.metrics is not None:
            self.metrics.note(record, self._roster)
        if self.memory is not None:
            from fedpick.server.journal import Turn

            self.memory.keep(Turn(view, choice, outcome, record, newcomers, self._roster.model))

    def measure(self, columns: Mapping[str, float]) -> None:
        """Add metrics to the record of the last round, unless the next one has begun."""
        if self.last is not None and self._fresh:
            self.last = replace(self.last, metrics={**self.last.metrics, **columns})

    def note_names(self) -> None:
        """Write the names of clients that the roster will forget."""
        if self.recording is not None:
            self.recording.note_names()

    def settle(self) -> None:
        """Hand the last round with its metrics to the records; write a checkpoint if one is due."""
        if self.last is None or not self._fresh:
            return
        self._fresh = False
        if self.recording is not None:
            self.recording.add(self.last)
            if self.recording.due:
                self.write()
        if self.memory is not None and self.memory.due():
            self.fold()

    def write(self) -> bool:
        """Write the waiting records, but never before the state of their rounds; returns whether none is left."""
        if self.recording is None:
            return True
        if self.memory is not None and self.memory.behind:
            return False
        return bool(self.recording.flush())

    def fold(self) -> None:
        """Write a checkpoint; delete the journal if the records contain its rounds, too."""
        if self.memory is not None:
            self.memory.checkpoint()
            if self.write():
                self.memory.drop_journal()
