"""What is stored of a session's rounds: the state on disk, the records, the metrics that it serves; each may be off."""

import logging
import os
import secrets
from collections.abc import Collection, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpick.core.errors import StateError
from fedpick.core.types import Choice, Outcome, View
from fedpick.server.prometheus import Metrics
from fedpick.server.roster import Newcomers, Roster
from fedpick.server.validation import number, printable
from fedpick.store.records import NOTES, ROUND_COLUMNS, Record

if TYPE_CHECKING:
    from fedpick.server.memory import Memory
    from fedpick.server.records import RecordWriter

__all__ = ["Storage"]

MOST_METRICS = 50  # per round; each is a column
LONGEST_NAME = 200  # characters of a metric's name
# Names in the frameworks' templates -> column names.
TRAINED = {"loss": "train_loss", "train-loss": "train_loss", "accuracy": "train_accuracy", "acc": "train_accuracy"}
EVALUATED = {"eval_acc": "accuracy", "acc": "accuracy", "eval_loss": "test_loss", "loss": "test_loss"}


def _columns(metrics: Mapping[str, Any], training: bool) -> dict[str, float]:
    """The metrics that are numbers, under the names of their columns in the rounds' table; lists are left out.

    Clients may have made up the names, so that a column may have another one.
    """
    found = {}
    for given, value in list(metrics.items())[:MOST_METRICS]:
        if not isinstance(value, bool) and isinstance(value, int | float | np.number):
            name = printable(given)[:LONGEST_NAME].strip() or "metric"
            name = (TRAINED if training else EVALUATED).get(name, name)
            found[f"metric_{name}" if name in (*ROUND_COLUMNS, *NOTES) else name] = number(value)
    return found


class Storage:
    """Stores the rounds of a session. A round's state is on disk before the round counts, and before its record.

    Of `memory` (for the state), `records` (a folder) and `metrics` each may be None, and is then off. `about` has the
    entries of the records' manifest.
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
        self.writer: RecordWriter | None = None  # while it is open
        self._about, self._roster, self._log = dict(about), roster, log
        self._letters = secrets.token_hex(4)  # of a state that is not saved, for the records
        self._fresh = False  # whether the last round has not been handed to the records yet
        self._closing: ExitStack | None = None  # while it is open: how to close it
        self._process: int | None = None  # that opened it and has not closed it

    @property
    def folders(self) -> str:
        """Where the state and the records are, for the log."""
        state = "not saved" if self.memory is None else self.memory.folder.resolve()
        models = None if self.memory is None else self.memory.models
        model = "not kept" if models is None else models.folder.resolve()
        records = "not written" if self.records is None else self.records.resolve()
        return f"state: {state}; model: {model}; records: {records}"

    def open(self) -> None:
        """Lock the folders, and begin to serve the metrics."""
        self._check_process()
        if self._closing is not None:
            return
        with ExitStack() as closing:
            if self.memory is not None:
                self.memory.lock()
                closing.callback(self.memory.unlock)
            if self.metrics is not None:
                closing.callback(self.metrics.close)
                self.metrics.open(self._log)
            if self.records is not None:
                from fedpick.server.records import RecordWriter  # needs pyarrow, an optional dependency

                journaled = [] if self.memory is None else self.memory.journaled()
                state = self._letters if self.memory is None else self.memory.letters
                self.writer = RecordWriter(self.records, self._about, self._roster, journaled, self._log, state)
                closing.callback(setattr, self, "writer", None)
                closing.callback(self.writer.close)
                self.write()
            self._closing, self._process = closing.pop_all(), os.getpid()

    @property
    def _forked(self) -> bool:
        """Whether another process has opened the folders, and this one is a fork of it."""
        return self._process not in (None, os.getpid())

    def _check_process(self) -> None:
        """Raise if the folders are another process's, which would write the same files."""
        folder = self.records if self.memory is None else self.memory.folder
        if self._forked and folder is not None:
            raise StateError(
                f"{folder}: the session was opened by process {self._process}, and this is a fork of it, process "
                f"{os.getpid()}; each would lose the other's rounds. Make the session in the process that plays the "
                "rounds, after the fork: with gunicorn in post_fork, or without --preload"
            )

    def close(self) -> None:
        """Write everything and unlock the folders; in a fork of the process that opened them, nothing happens."""
        closing, self._closing = self._closing, None
        if closing is None:
            return
        if self._forked:
            closing.pop_all()
            return
        self._process = None
        with closing:
            self.settle()
            if self.memory is not None and self.memory.behind:
                self.checkpoint()
            self.write()

    def expect(self) -> None:
        """Note that the state is about to change; even if that is interrupted, it will be written."""
        self._check_process()
        if self.memory is not None:
            self.memory.expect()

    def save(self, view: View, choice: Choice, outcome: Outcome, record: Record, newcomers: list[Newcomers]) -> None:
        """Store a round that the policy has learned from; its state is on disk when this returns."""
        self.keep(record)
        if self.memory is not None:
            from fedpick.server.journal import Turn

            self.memory.keep(Turn(view, choice, outcome, record, newcomers, self._roster.model, self._roster.tasks))

    def keep(self, record: Record) -> None:
        """Have this record for `measure`, and for the tables after that."""
        self.last, self._fresh = record, True
        if self.metrics is not None:
            self.metrics.note(record, self._roster)

    def measure(self, metrics: Mapping[str, Any], training: bool) -> None:
        """Add metrics to the record of the last round, unless the next one has begun."""
        if self.last is not None and self._fresh:
            self.last = replace(self.last, metrics={**self.last.metrics, **_columns(metrics, training)})

    def note_names(self, leaving: Collection[str]) -> None:
        """Write the names of clients that the roster will forget."""
        if self.writer is not None:
            self.writer.note_names(leaving)

    def settle(self) -> None:
        """Hand the last round with its metrics to the records; write a checkpoint if one is due."""
        if self.last is None or not self._fresh:
            return
        self._fresh = False
        if self.writer is not None:
            self.writer.add(self.last)
            if self.writer.due:
                self.write()
        if self.memory is not None and self.memory.due():
            self.checkpoint()

    def write(self) -> bool:
        """Write the waiting records, but never before the state of their rounds; returns whether none is left."""
        if self.writer is None:
            return True
        if self.memory is not None and self.memory.behind:
            return False
        return bool(self.writer.flush())

    def checkpoint(self) -> None:
        """Write a checkpoint; delete the journal if the records contain its rounds, too."""
        if self.memory is not None:
            self.memory.checkpoint()
            if self.write():
                self.memory.drop_journal()
