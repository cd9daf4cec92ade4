"""The work in flight of an asynchronous session, in memory, and how it comes to the disk and from there.

The session's lock is held wherever any of it is read or changed.
"""

import copy
import math
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpick.core.errors import ContractError, StateError
from fedpick.core.types import Bools
from fedpick.engine.paces import Buffered
from fedpick.engine.rates import Rates
from fedpick.engine.stream import Stream
from fedpick.server.commit import Commit, Work
from fedpick.server.ledger import Entry, Ledger, body, closed
from fedpick.server.models import Mark
from fedpick.server.move import Move, find
from fedpick.server.reports import ClientReports
from fedpick.store.records import Record

if TYPE_CHECKING:
    from fedpick.server.session import Session

__all__ = ["Clock", "InFlight"]


class Clock:
    """Seconds for which the server has been up; it stands still while the server is down."""

    def __init__(self) -> None:
        self._base, self._began = 0.0, math.nan  # NaN: it stands still

    @property
    def now(self) -> float:
        """The time."""
        return self._base if math.isnan(self._began) else self._base + (monotonic() - self._began)

    def start(self, least: float) -> None:
        """Let it run, from `least` on if it has not reached that yet."""
        if math.isnan(self._began):
            self._base, self._began = max(self._base, least), monotonic()

    def stop(self) -> None:
        """Let it stand still."""
        self._base, self._began = self.now, math.nan


class InFlight:
    """The tasks, the answers that wait, the moves of the model that are not closed; how they go on after a restart."""

    def __init__(self, session: "Session", pace: Buffered) -> None:
        self.pace, self.stream, self.clock = pace, Stream(pace), Clock()
        self.like: Any = None  # shapes of the model, once they are known: other updates cannot be used
        self.asks = 0  # so far, by which the random numbers are keyed
        self._session = session
        self._there: Bools = np.zeros(0, dtype=np.bool_)  # who was there when clients were last asked
        self._seen = -math.inf  # the clock up to which time-outs and ticks are done
        self._work: dict[int, Work] = {}  # by task, also of answers that wait
        self._sized: dict[int, float] = {}  # by task, where a size with the answer counts: `Choice.most`
        self._updates: dict[int, Any] = {}  # of answers that wait, by task
        self._reports: dict[int, ClientReports] = {}
        self._moves: deque[Move] = deque()  # of the model, that are not closed yet
        self._open: Commit | None = None  # handed out, and not closed yet
        self._lost: set[int] = set()  # tasks that have ended, of which the policy is not told
        self._prepared: Move | None = None  # that the disk knows, and which is not closed
        self._closed_at, self._rates = 0.0, Rates()  # as they were after the last commit that was closed
        self._entry = 0  # number of the journal's last entry
        self._undecided: Ledger | None = None  # after a restart, until the version of the user's model is known
        self._verdict: Entry | None = None  # on the move that a restart found prepared, until it is on the disk
        self._rolled: list[Record] = []  # of that move, if it has taken place, until it is stored
        self._wall = 0.0  # seconds that the policy took, since the last record
        self._stopped = False  # whether the session was closed, so that no answers are taken

    @property
    def version(self) -> int:
        """Of the model that clients are sent: of the last commit that was closed."""
        return self._session.roster.round

    @property
    def tasks(self) -> list[Work]:
        """In flight."""
        return [self._work[id] for id in self.stream.flying]

    def gauges(self) -> dict[str, tuple[str, float]]:
        """What Prometheus is told at any time."""
        stream = self.stream
        return {
            "tasks_in_flight": ("Clients that work now.", len(stream.flying)),
            "answers_waiting": ("Answers that wait until the model moves next.", stream.held),
        }

    def start(self) -> None:
        """Begin, or go on."""
        session = self._session
        session.open()
        if (ledger := self._undecided) is not None and ledger.prepared is not None:
            version = ledger.prepared.version
            raise ContractError(
                f"{session.owner}: when the server ended, the commit of version {version} had been handed out and was "
                f"not closed; say with session.resume(version) which version your model has: {version - 1} or {version}"
            )
        if self._verdict is not None:
            verdict, self._verdict = self._verdict, None
            session.storage.expect()
            self._note(lambda: verdict)
            for record in self.take_rolled():  # if they have not been restored like others of the journal
                session.storage.keep(record)
        self.clock.start(session.roster.clock)
        self._stopped = False

    def stop(self) -> None:
        """Take no more answers; a commit that is open is abandoned."""
        self.clock.stop()
        self._stopped = True
        if self._open is not None:
            self._session.log.warning("the commit of version %d was not closed", self._open.version)
            self._open = None

    def check_closed(self, what: str) -> None:
        """Raise if a commit is open."""
        if self._open is not None:
            raise ContractError(f"the commit of version {self._open.version} is open; close() it before you {what}")

    # -- what is on the disk -----------------------------------------------------------------------------------------

    def _note(self, entry: Callable[[], Entry]) -> None:
        """Write to the journal what has changed; `Storage.expect` was called before."""
        memory, roster = self._session.memory, self._session.roster
        roster.clock = max(roster.clock, self.clock.now)
        if memory is not None:
            self._entry += 1
            memory.write(lambda: body(entry(), self._entry, memory.settings))

    def ledger(self) -> Ledger:
        """The work in flight, for a checkpoint; answers since the last commit are in it without their updates."""
        stream, moves = self.stream, self._moves
        kept = Stream(
            self.pace,
            self.version,
            stream.issued,
            self._closed_at,
            dict(stream.flying),
            [each for move in moves for each in move.ended] + stream.ended,
            sum(move.asked for move in moves) + stream.asked,
            rates=self._rates,
            seconds=stream.seconds,
            slowest=stream.slowest,
        )
        lost = self._lost.union(*(move.lost for move in moves))
        return Ledger(kept, self._sized, lost, self._prepared, self.asks, self._entry)

    def take(self, ledger: Ledger, kept: bool, mark: Mark | None) -> None:
        """Go on with the work of before a restart.

        Args:
            ledger: as it is on the disk.
            kept: whether the session keeps the models; else the user says later which one there is.
            mark: of the model after the move that is prepared, if it is kept.
        """
        self._undecided, self._verdict, self._rolled = ledger, None, []
        if ledger.prepared is None or kept:
            self._decide(mark is not None, mark)

    def take_rolled(self) -> list[Record]:
        """The record of a move that took place just before the restart, once."""
        found, self._rolled = self._rolled, []
        return found

    def resume(self, version: int) -> None:
        """The user's model has this version."""
        now, ledger = self.version, self._undecided
        move = None if ledger is None else ledger.prepared
        known = (now,) if move is None else (now, move.version)
        if version not in known:
            raise StateError(
                f"{self._session.owner}: the model has version {version}, but the state continues after version "
                f"{' or '.join(map(str, known))}; restore the model and the state of the same backup"
            )
        if move is not None:
            self._decide(version == move.version, None)

    def _decide(self, forward: bool, mark: Mark | None) -> None:
        """Say whether the move that is prepared has taken place, and go on."""
        ledger, roster, session = self._undecided, self._session.roster, self._session
        assert ledger is not None
        if ledger.prepared is not None and forward:
            move = ledger.close(roster)
            roster.model = mark
            record = move.record(0.0, **move.seen(roster))
            self._verdict, self._rolled = closed(record, 0.0, mark), [record]
            session.log.info("the commit of version %d, which was not closed, is closed now", move.version)
        elif ledger.prepared is not None:
            session.log.info("the commit of version %d had not taken place", ledger.prepared.version)
            ledger.prepared, self._verdict = None, ("void", {}, {})
        self._go_on(ledger)

    def _go_on(self, ledger: Ledger) -> None:
        session, roster, before = self._session, self._session.roster, len(ledger.lost)
        self.stream, self._undecided, self._prepared = ledger.live(), None, None
        self._lost, self._sized, self.asks, self._entry = ledger.lost, ledger.sized, ledger.asks, ledger.entry
        self._closed_at, self._rates = self.stream.moved_at, copy.deepcopy(self.stream.rates)
        self.clock, self._seen, self._open = Clock(), -math.inf, None
        for each in (self._moves, self._updates, self._reports):
            each.clear()
        self._there = np.zeros(len(roster.names), dtype=np.bool_)
        tasks = list(self.stream.flying.values())
        at = find(roster, self.stream.busy).tolist()
        self._work = {task.id: Work(task.id, roster.names[k], task.version) for task, k in zip(tasks, at, strict=True)}
        text = "%d tasks are in flight; %d answers that waited are lost: they are LATE, and the policy is not told"
        session.log.info(text, len(tasks), len(ledger.lost) - before)
