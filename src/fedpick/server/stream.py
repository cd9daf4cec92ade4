"""Asynchronous training on a server: `Session.ask`, `done`, `failed` and `commit` under `fp.Buffered`.

What an answer counts as and when the model moves are rules of `fedpick.engine.stream`; what the policy sees and learns
is one of `fedpick.engine.asking`. Here are the server's clock, and what clients send.
"""

import copy
import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpick.core import rng as rngs
from fedpick.core.errors import ContractError, StateError
from fedpick.core.types import Bools, Choice, Status, View
from fedpick.engine.asking import Asker, view_now
from fedpick.engine.cohort import fits
from fedpick.engine.paces import Buffered
from fedpick.engine.rates import Rates
from fedpick.engine.stream import Ended, Job, Stream, stream_bases
from fedpick.server.commit import Commit, Used, Work, shapes
from fedpick.server.ledger import Entry, Ledger, asked, body, came, closed, prepared
from fedpick.server.models import Mark
from fedpick.server.move import Move, find
from fedpick.server.reports import ClientReports
from fedpick.server.roster import Present
from fedpick.server.validation import number, printable, size_or
from fedpick.server.view import Eligible, NotEnoughClientsError, listed
from fedpick.store.records import FRESH, Record

if TYPE_CHECKING:
    from fedpick.server.session import Session

__all__ = ["Clock", "Streaming"]


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


class Streaming:
    """The work in flight of a session; all of it is used while the session's lock is held."""

    def __init__(self, session: "Session", pace: Buffered) -> None:
        self.pace, self.stream, self.clock = pace, Stream(pace), Clock()
        self.like: Any = None  # shapes of the model, once they are known: other updates cannot be used
        self.asks = 0  # so far, by which the random numbers are keyed
        self._session, self._asker = session, Asker(session.policy)
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

    def _note(self, entry: Callable[[], Entry], sync: bool = True) -> None:
        """Write to the journal what has changed; `Storage.expect` was called before."""
        memory, roster = self._session.memory, self._session.roster
        roster.clock = max(roster.clock, self.clock.now)
        if memory is not None:
            self._entry += 1
            memory.write(lambda: body(entry(), self._entry, memory.settings), sync)

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

    # -- asking ------------------------------------------------------------------------------------------------------

    def ask(self, available: Iterable[str] | Mapping[str, Any], eligible: Eligible | None) -> list[Work]:
        """Give tasks to clients, if places are free and somebody is there."""
        session = self._session
        self.start()
        self.check_closed("ask clients")
        now = self._until(self.clock.now)
        if self._moves or not self.stream.free:
            return []
        try:
            there = listed(available, session.roster, session.owner, session.log, eligible)
        except NotEnoughClientsError as error:
            self._there = np.zeros(len(session.roster.names), dtype=np.bool_)
            session.log.info("nobody is asked: %s", error)
            return []
        self._enrol(there)
        clients, begun = session.roster.counted, perf_counter()
        if clients is None:  # there was no room for anybody
            return []
        seen = View(self.stream.version + 1, self._there, clients)
        view = view_now(seen, self.stream, lambda clients: find(session.roster, clients))
        if not view.available.any():
            return []
        rng = rngs.stream(session.seed, self.asks + 1, "policy")
        choice = self._asker.ask(session.roster.state, view, self.stream.free, rng)
        self.asks += 1
        self._wall += perf_counter() - begun
        return self._send(choice, now)

    def _enrol(self, there: Present) -> None:
        session = self._session
        session.continuity.begin_round(there)
        if session.enrolment.forget(there):
            self.leave()
        session.enrolment.enrol(there)
        self._there = there.known

    def leave(self) -> None:
        """Forget the tasks of clients that are not enrolled any more; what has come of them is used."""
        tasks = list(self.stream.flying.values())
        gone = find(self._session.roster, [task.client for task in tasks]) < 0
        for task in np.array(tasks, dtype=object)[gone].tolist() if gone.any() else ():
            self._forget(self.stream.flying.pop(task.id))

    def keep(self, left: Any) -> None:
        """After clients have retired: those at these indices are left."""
        self._there = self._there[left]
        self._moves = deque(replace(move, there=move.there[left]) for move in self._moves)
        self.leave()

    def _forget(self, task: Job) -> None:
        for each in (self._work, self._sized, self._updates, self._reports):
            each.pop(task.id, None)

    def _send(self, choice: Choice, now: float) -> list[Work]:
        roster, stream = self._session.roster, self.stream
        assert roster.counted is not None
        base = stream_bases(choice, roster.counted, sized=True, correct=self.pace.correct)
        if not len(choice):
            return []
        self._session.storage.expect()
        tasks = stream.send(choice, [roster.numbers[k] for k in choice.ids], now, base)
        found = [Work(task.id, roster.names[k], task.version) for task, k in zip(tasks, choice.ids, strict=True)]
        self._work |= {each.id: each for each in found}
        if choice.weights is None or self.pace.correct:
            self._sized |= dict.fromkeys((each.id for each in found), math.inf if choice.most is None else choice.most)
        roster.tasks = stream.issued
        sized = [self._sized.get(task.id, math.nan) for task in tasks]
        self._note(lambda: asked(roster, self.pace, tasks, sized, self.asks))
        roster.newcomers = []
        return found

    # -- answers -----------------------------------------------------------------------------------------------------

    def done(
        self,
        id: object,
        fine: bool,
        update: Any,
        loss: Any,
        seconds: Any,
        reports: Mapping[str, Any] | None,
        size: Any,
    ) -> Status | None:
        """An answer comes; `fine`: its numbers are finite."""
        task = self._waiting(id)
        if task is None:
            return None
        session, now, work = self._session, self.clock.now, self._work[task.id]
        value = None if loss is None else number(loss)
        shaped = self.like is None or shapes(update) == self.like
        usable = fine and shaped
        took = self._took(number(seconds), now - task.sent_at) if usable and fits(value) else math.nan
        if usable and fits(value):
            self._resize(task, work.name, size)
        session.storage.expect()
        status = self.stream.arrive(task.id, now, value, usable, took=took)
        if status == Status.DONE:
            self._updates[task.id] = update
            self._reports[task.id] = session.reports.read(work.name, update, reports)
        elif status == Status.FAILED:
            why = f"loss = {printable(loss)[:40]} is impossible"
            why = why if fine else "its update has numbers that are not finite"
            self._log_failure(work, why if shaped else "its update has not the shapes of the model")
        self._came(now)
        return status

    def failed(self, id: object, why: str, answered: bool) -> Status | None:
        """A client has failed."""
        task = self._waiting(id)
        if task is None:
            return None
        self._log_failure(self._work[task.id], why or "no reason given")
        now = self.clock.now
        self._session.storage.expect()
        status = self.stream.arrive(task.id, now, usable=False, answered=answered)
        self._came(now)
        return status

    def _came(self, now: float) -> None:
        """After an answer: the model moves if it was the last one needed."""
        self._note(lambda: came(self.stream.ended[-1:]), sync=False)
        if self.stream.full:
            self._move(now)

    def _waiting(self, id: object) -> Job | None:
        """The task of this id, if its answer is awaited."""
        if not self._stopped:
            self.start()
            self._until(math.nextafter(self.clock.now, -math.inf))  # an answer at the very end of its time is in time
        known = isinstance(id, int | np.integer) and not isinstance(id, bool) and not self._stopped
        task = self.stream.flying.get(int(id)) if known else None  # type: ignore[call-overload]
        if task is None:
            self.stream.back += not self._stopped
            self._session.log.info("unexpected answer to task %s: it has ended, or never was", printable(id))
        return task

    def _log_failure(self, work: Work, why: str) -> None:
        self._session.log.warning("task %d: %s failed: %s", work.id, printable(work.name), printable(why))

    def _took(self, reported: float, arrived: float) -> float:
        """Seconds that a client took, as in a round."""
        possible = 0 < reported <= self.stream.timeout
        if self._session.durations == "arrival":
            return self._session.delay.duration(reported if possible else None, arrived)
        return reported if possible else arrived

    def _resize(self, task: Job, name: str, said: Any) -> None:
        """Let a size that comes with the answer count, in place of the one that is known."""
        size, sizes, roster = size_or(said, math.nan), self._session.sizes, self._session.roster
        if math.isnan(size) or task.id not in self._sized or roster.counted is None:
            return
        sizes.hear(name, size)
        known = float(roster.counted.sizes[find(roster, [task.client])[0]])
        base = sizes.beside(size, known, self._sized[task.id])
        self.stream.flying[task.id] = replace(task, base=base)

    def skip(self, ids: Iterable[int]) -> None:
        """Take back tasks that were not sent."""
        self.start()
        tasks = self._flying(ids)
        self._session.storage.expect()
        for task in tasks:
            self.stream.asked -= 1
            self._forget(self.stream.flying.pop(task.id))
        self._note(lambda: came((), [task.id for task in tasks]))

    def give_up(self, ids: Iterable[int]) -> list[Work]:
        """End tasks whose answers were lost."""
        self.start()
        now = self._until(self.clock.now)
        if tasks := self._flying(ids):
            self._session.storage.expect()
            for task in tasks:
                late = Ended(task, Status.LATE, now, self.stream.version - task.version)
                self.stream.ended.append(late)
                self._lost.add(self.stream.flying.pop(task.id).id)
            self._note(lambda: came(self.stream.ended[-len(tasks) :], lost=True))
            self._session.log.warning("%d tasks are given up: their answers were lost; they are LATE", len(tasks))
        return [self._work[task.id] for task in tasks]

    def _flying(self, ids: Iterable[int]) -> list[Job]:
        return [self.stream.flying[id] for id in dict.fromkeys(ids) if id in self.stream.flying]

    # -- the model moves ---------------------------------------------------------------------------------------------

    def _until(self, now: float) -> float:
        """Let all happen that the clock has brought by now: time-outs, and moves of the model by the clock."""
        stream = self.stream
        while (at := stream.next(self._seen)) <= now:
            self._seen = at
            for each in stream.expire(at):
                work = self._work[each.task.id]
                text = "task %d: %s did not answer within %g s"
                self._session.log.info(text, work.id, printable(work.name), stream.timeout)
            if stream.due(at):
                self._move(at)
        self._seen = max(self._seen, now)
        return now

    def _move(self, at: float) -> None:
        """The model moves: the answers that have come are its change."""
        stream = self.stream
        asked, back, begun = stream.asked, stream.back, stream.moved_at
        ended = tuple(stream.commit(at))
        answers = [self._reports.get(each.task.id, {}) for each in ended]
        busy = tuple(int(client) for client in stream.busy)
        reports = self._session.reports.tables(answers)
        lost = frozenset(each.task.id for each in ended if each.task.id in self._lost)
        self._lost -= lost
        moved = Move(stream.version, at, at - begun, asked, back, ended, busy, self._there, reports, lost)
        self._moves.append(moved)

    def commit(self) -> Commit | None:
        """The next move of the model, if there is one."""
        self.start()
        self.check_closed("take the next one")
        self._until(self.clock.now)
        if not self._moves:
            return None
        move, session = self._moves[0], self._session
        session.storage.settle()
        session.storage.expect()
        self._prepared = move
        self._note(lambda: prepared(session.roster, self.pace, move))
        session.roster.newcomers = []
        used = [Used(self._work[each.task.id], self._updates[each.task.id], weight) for each, weight in _weights(move)]
        self._open = Commit(move, used, self.pace.mixing is not None, self)
        return self._open

    def misfit(self, version: int, work: Work) -> None:
        """Log that an update has not the shapes of the model."""
        text = "version %d: the update of %s has not the shapes of the others: it changes nothing"
        self._session.log.warning(text, version, printable(work.name))

    def close_commit(self, commit: Commit) -> Record:
        """The policy learns from a commit."""
        with self._session.lock:
            return self._closed(commit)

    def _closed(self, commit: Commit) -> Record:
        session, roster = self._session, self._session.roster
        if commit is not self._open:
            raise ContractError(f"the commit of version {commit.version} is not open any more; call session.commit()")
        begun, move = perf_counter(), commit.move
        session.continuity.check_model(commit.model)
        notes = {"forgotten": float(session.enrolment.forgotten), FRESH: float(session.continuity.fresh)}
        session.storage.expect()
        told = move.learn(roster)
        session.continuity.set_model(commit.version, commit.model)
        wall, self._wall = self._wall + perf_counter() - begun, 0.0
        metrics = {name: value for name, value in notes.items() if value}
        record = move.record(commit.megabytes, metrics=metrics, wall={"selection": wall}, **move.seen(roster))
        session.enrolment.forgotten = 0
        if self.pace.correct:
            for each in move.done:
                self._rates.weigh(each.task.client, each.task.base, float(self.pace.damping(each.staleness)))
        self._moves.popleft()
        self._open, self._prepared, self._closed_at = None, None, move.at
        self._note(lambda: closed(record, commit.megabytes, roster.model))
        session.storage.keep(record)
        for each in move.ended:
            self._forget(each.task)
        stale = [each.staleness for each in move.done]
        text = "version %d: %d answers, staleness up to %d; %d tasks ended, %d in flight"
        session.log.info(text, commit.version, len(stale), max(stale, default=0), len(move.ended), len(move.busy))
        for _, choice, outcome in told:
            session.alarms.ended(commit.version, roster.names, choice, outcome, len(stale), None)
        return record


def _weights(move: Move) -> list[tuple[Any, float]]:
    """The answers of a move, each with the weight of its update in the model's change."""
    done = move.done
    return [(each, each.weight / len(done)) for each in done]
