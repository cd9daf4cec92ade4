"""Asynchronous training on a server: `Session.ask`, `done`, `failed` and `commit` under `fp.Buffered`.

What an answer counts as and when the model moves are rules of `fedpick.engine.stream`; what the policy sees and learns
is one of `fedpick.engine.asking`. What is in flight is kept by `fedpick.server.stream`.
"""

import math
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpick.core import rng as rngs
from fedpick.core.errors import ContractError
from fedpick.core.types import Choice, Status, View
from fedpick.engine.asking import Asker, view_now
from fedpick.engine.cohort import fits
from fedpick.engine.flight import Client
from fedpick.engine.paces import Buffered
from fedpick.engine.stream import Ended, Job, stream_bases
from fedpick.server.commit import Commit, Used, Work, shapes
from fedpick.server.ledger import asked, came, closed, prepared
from fedpick.server.move import Move, find, forget_times
from fedpick.server.reports import ClientReports
from fedpick.server.roster import Present
from fedpick.server.stream import InFlight
from fedpick.server.validation import number, printable, size_or
from fedpick.server.view import Eligible, NotEnoughClientsError, listed
from fedpick.store.records import FRESH, Record

if TYPE_CHECKING:
    from fedpick.server.session import Session

__all__ = ["Streaming"]

IN_VAIN = 20  # times the concurrency


class Streaming(InFlight):
    """Asks clients, takes their answers, and lets the model move."""

    def __init__(self, session: "Session", pace: Buffered) -> None:
        super().__init__(session, pace)
        self._asker = Asker(session.policy)
        self._heard: dict[Client, ClientReports] = {}  # the reports of the last move, by client
        self._patience = IN_VAIN * pace.concurrency  # tasks that ended in a row and are of no use, before a warning

    # -- asking ------------------------------------------------------------------------------------------------------

    def ask(self, available: Iterable[str] | Mapping[str, Any], eligible: Eligible | None) -> list[Work]:
        """Give tasks to clients, if places are free and somebody is there."""
        session = self._session
        self.start()
        self.check_closed("ask clients")
        now = self._until(self.clock.now)
        if not self.stream.held and len(self.stream.ended) >= self._patience:
            self._patience *= 2
            text = "version %d: none of the last %d tasks is of use, so the model does not move: see the lines above"
            session.log.warning(text, self.stream.version, len(self.stream.ended))
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
        view = view_now(seen, self.stream, lambda numbers: find(session.roster, numbers))
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
        self._there = there.known  # also if the next line raises
        session.enrolment.enrol(there)
        self._there = there.known

    def leave(self) -> None:
        """Forget the tasks of clients that are not enrolled any more; what has come of them is used."""
        tasks = list(self.stream.flying.values())
        gone = find(self._session.roster, [task.client for task in tasks]) < 0
        for task in np.array(tasks, dtype=object)[gone].tolist() if gone.any() else ():
            self._forget(self.stream.flying.pop(task.id))
        forget_times(self.stream, self._session.roster)

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
        if not len(choice):
            return []
        base = stream_bases(choice, roster.counted, sized=True, correct=self.pace.correct)
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
        self._note(lambda: came(self.stream.ended[-1:]))
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
        if tasks := self._flying(ids):
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
        answers = {each.task.client: self._reports.get(each.task.id, {}) for each in ended}
        others = [said for client, said in self._heard.items() if client not in answers]
        self._heard = answers
        busy = tuple(int(client) for client in stream.busy)
        reports = self._session.reports.tables([self._reports.get(each.task.id, {}) for each in ended], others)
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
