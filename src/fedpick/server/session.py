"""`Session`: how a server uses a policy. It enrols clients, chooses, collects answers, lets the policy learn, saves."""

import os
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from time import monotonic, perf_counter
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from fedpick.core import rng as rngs
from fedpick.core.errors import ContractError, require
from fedpick.core.protocol import Policy, check_choice, check_methods, traits
from fedpick.core.types import Choice, Outcome, Status
from fedpick.engine.asking import check_stream
from fedpick.engine.flight import Flight, Task
from fedpick.engine.paces import Buffered, Pace, Rounds
from fedpick.policies.text import label
from fedpick.server import validation
from fedpick.server.alarms import Alarms
from fedpick.server.asking import Streaming
from fedpick.server.commit import Commit, Work, finite
from fedpick.server.continuity import Continuity
from fedpick.server.delay import Delay
from fedpick.server.enrolment import Enrolment
from fedpick.server.late_updates import LateUpdates
from fedpick.server.models import Arrays, Models
from fedpick.server.prometheus import Metrics
from fedpick.server.reports import Reports
from fedpick.server.roster import Roster
from fedpick.server.round import Round
from fedpick.server.settings import (
    ContextFn,
    DescribeFn,
    Host,
    Lateness,
    Limits,
    ProbeFn,
    ValueFn,
    check_needs,
    missing_in_session,
)
from fedpick.server.sizes import Sizes
from fedpick.server.storage import Storage
from fedpick.server.view import Eligible, listed, view_of
from fedpick.store.records import FRESH, Record, late_uses, packed, packed_chances

__all__ = ["Session"]

DURATIONS = ("arrival", "reported")


def _pace(pace: Pace | None, deadline: float | None, late: int | Lateness, owner: str) -> Pace:
    """The pace that a session was given, or rounds with this deadline and these late updates."""
    lateness = late if isinstance(late, Lateness) else Lateness(late)
    if pace is None:
        lateness.check(owner)
        require(deadline is None or 0 < deadline < np.inf, f"{owner}: deadline", deadline, "a number of seconds > 0")
        return Rounds(deadline, lateness.rounds, lateness.beta)
    wanted = "a pace such as fp.Rounds(deadline=60, late=2) or fp.Buffered(concurrency=30, size=10)"
    require(isinstance(pace, Rounds | Buffered), f"{owner}: pace", pace, wanted)
    if isinstance(pace, Buffered):
        alone = lateness == Lateness()
        require(alone, f"{owner}: late", late, "0 beside fp.Buffered(...): set its oldest= instead")
        return pace.within(deadline)
    alone = deadline is None and lateness == Lateness()
    require(alone, f"{owner}: pace", pace, "None beside deadline= or late=: write these in fp.Rounds(...)")
    return pace


class Session:
    """A policy used by a server, whose clients have names and may join and leave at any time.

    Args:
        policy: any fedpick policy.
        state: folder in which the policy's state is saved after each round; a restarted server continues from it.
            None saves nothing.
        model: folder in which the model of each of the last 3 rounds is kept (`Round.model`), so that a restarted
            server finds the one of its round (`Session.model`); needs `state`. None keeps none.
        records: folder for the records of the rounds, readable by `fedpick report`; None writes none.
        metrics: where Prometheus can read what happens, such as ":9090": a port of this machine, or HOST:PORT; None:
            nowhere. See docs/watching.md.
        deadline: seconds that a round may last; None: no limit.
        durations: "arrival" uses the seconds that clients report, but at least the time until the answer arrived minus
            the usual delay (`delay`), which a client cannot falsify downwards; "reported" any possible value.
        context: (round, names, idle) -> (K, d) array, for RBCSF.
        describe: names of newcomers -> fp.Clients; None: the descriptions given in `available`.
        embed: update -> vector, for FedGS: the report "embedding" of clients whose `done` has an update.
        value: updates to aggregate, by name -> what each is worth (with fp.solvers.shapley, on validation data), for
            policies that need the server's valuation (GreedyFed, SFedAvg).
        late: how many rounds late an update may come (`keep`) and still be used (`Round.parts`), with a smaller weight;
            0: late updates are dropped. They wait in memory only, so that a restart loses them. A
            `fedpick.server.Lateness` also sets the weight.
        pace: `fp.Rounds`, which holds the deadline and the late updates, in place of `deadline` and `late`; or
            `fp.Buffered`, for asynchronous training: `ask`, `done` and `commit` in place of `round`. Its timeout is
            `deadline` where it has none.
        limits: `fedpick.server.Limits`: when clients are forgotten, how many are enrolled, how often a complete
            checkpoint is written.
        seed: of the policy's random numbers.
        host: `fedpick.server.Host`: the name, the logger and the manifest of an adapter.

    >>> import fedpick as fp
    >>> session = fp.Session(fp.E3CS(cohort_size=2, quota=0.5))
    >>> with session.round(available=["ada", "bob", "cyd"]) as r:
    ...     for name in r.chosen:
    ...         _ = r.done(name, loss=0.7, seconds=3.0)
    >>> session.round_number, session.last.status.tolist()
    (1, [0, 0])
    """

    def __init__(
        self,
        policy: Policy[Any],
        *,
        state: str | os.PathLike[str] | None = None,
        model: str | os.PathLike[str] | None = None,
        records: str | os.PathLike[str] | None = None,
        metrics: str | int | None = None,
        deadline: float | None = None,
        durations: str = "arrival",
        context: ContextFn | None = None,
        describe: DescribeFn | None = None,
        embed: Callable[[Any], ArrayLike] | None = None,
        value: ValueFn | None = None,
        late: int | Lateness = 0,
        pace: Pace | None = None,
        limits: Limits | None = None,
        seed: int = 0,
        host: Host | None = None,
    ) -> None:
        host, self.limits = host or Host(), limits or Limits()
        self.owner, self.log = owner, log = host.name, host.log
        self.pace = _pace(pace, deadline, late, owner)
        self.rounds = self.pace if isinstance(self.pace, Rounds) else Rounds()  # what there is of rounds
        require(durations in DURATIONS, f"{owner}: durations", durations, f"one of {', '.join(DURATIONS)}")
        where = "None without state=, because a model is kept with the state of its round"
        require(model is None or state is not None, f"{owner}: model", model, where)
        require(seed >= 0, f"{owner}: seed", seed, "an integer >= 0")
        wanted = "a fedpick.server.Limits, such as Limits(most_clients=1000)"
        require(isinstance(self.limits, Limits), f"{owner}: limits", limits, wanted)
        self.limits.check(owner)
        check_methods(policy)
        self.policy, self.traits = policy, traits(policy)
        if isinstance(self.pace, Buffered):
            check_stream(policy, self.pace)
            check_needs(policy, {"context": ", which there is only in rounds: use fp.Rounds"}, owner)
        check_needs(policy, missing_in_session(policy, context, value), owner)
        self.deadline, self.durations, self.context, self.seed = self.rounds.deadline, durations, context, seed
        self.lock = threading.RLock()  # held while anything of the session is read or changed
        self.sizes = Sizes(self.limits)
        self.roster, self.delay = Roster(policy, self.sizes), Delay()
        self.reports = Reports(self.roster, embed, log, value)
        self.flight = Flight()
        self.late = LateUpdates(self.rounds, self.flight, self.sizes, log, owner)
        self.stream = Streaming(self, self.pace) if isinstance(self.pace, Buffered) else None
        self._round: Round | None = None
        self.memory: Any = None  # a Memory
        if state is not None:
            from fedpick.server.memory import Memory  # needs filelock, an optional dependency

            models = None if model is None else Models(Path(model))
            every = self.limits.checkpoint_every
            self.memory = Memory(Path(state), self.roster, every, log, models, self.stream)
        self.alarms = Alarms(policy, log, host.naming)
        self.continuity = Continuity(self.memory, self.roster, self.alarms, owner, log)
        served = None if metrics is None else Metrics(metrics, label(policy), owner)
        cohort = self.traits.cohort_size or self.traits.asks
        manifest = {"policy": label(policy), "cohort_size": cohort, "seed": seed, "engine": "session", **host.about}
        self.records, self.metrics = None if records is None else Path(records), served
        self.storage = Storage(self.memory, self.records, served, manifest, self.roster, log)
        self.enrolment = Enrolment(self.roster, self.limits, describe, self.storage, owner, log)
        if served is not None and self.stream is not None:
            served.live = self.stream.gauges

    @property
    def round_number(self) -> int:
        """Number of rounds played, including those before a restart."""
        return self.roster.round

    @property
    def version(self) -> int:
        """Number of commits, including those before a restart: the version of the model that clients are sent."""
        return self.roster.round

    @property
    def rounds_saved(self) -> int:
        """Number of rounds that are safe on the disk, after which a restart continues; 0 without `state`.

        It is `round_number`, or less while the disk is full.
        """
        return 0 if self.memory is None else int(self.memory.kept)

    @property
    def names(self) -> list[str]:
        """Names of all enrolled clients, in the order of their indices."""
        return list(self.roster.names)

    @property
    def model(self) -> Arrays | None:
        """The model after the last round, by the names of its arrays; None if none is kept, as before the first round.

        A server that starts reads it here, in place of its fresh model.
        """
        with self.lock:
            return self.continuity.model()

    @property
    def last(self) -> Record | None:
        """The record of the last round; `measure` may still add metrics."""
        return self.storage.last

    @property
    def current(self) -> Round | None:
        """The open round, if there is one."""
        return self._round

    def open(self) -> None:
        """Lock the folders. `round` calls this; a closed session can be opened again."""
        with self.lock:
            self.storage.open()

    def close(self) -> None:
        """Write everything and unlock the folders; an open round is abandoned."""
        with self.lock:
            if self._round is not None:
                self._round.abandon()
            if self.stream is not None:
                self.stream.stop()
            self.storage.close()

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def round(
        self,
        available: Iterable[str] | Mapping[str, Any],
        *,
        probe: ProbeFn | None = None,
        eligible: Eligible | None = None,
    ) -> Round:
        """Begin the next round: enrol new clients, and let the policy choose among the available ones.

        Args:
            available: names of the clients that could train now, or a mapping from names to descriptions, which are
                read for newcomers: a size, (size, features), {"size": ..., "features": ..., "labels": ...}, or None
                if not known.
            probe: (names, batch) -> losses of the current model, for Power-of-Choice; NaN for clients that do not
                answer.
            eligible: name -> whether this client may be asked at all, such as a look at a list of approved sites; the
                others are neither enrolled nor probed nor chosen. None: all may.
        """
        with self.lock:
            self._check_rounds("round")
            if self._round is not None:
                raise ContractError(f"round {self._round.number} is still open; close() or abandon() it first")
            self.open()
            self.storage.settle()
            begun = monotonic()
            there = listed(available, self.roster, self.owner, self.log, eligible)
            self.continuity.begin_round(there)
            self.flight.leave(set(self.enrolment.forget(there)))
            self.enrolment.enrol(there)
            self.late.fetch()
            self.late.begin(self.roster.round + 1)
            self.flight.issued = max(self.flight.issued, self.roster.tasks)  # a restart goes on counting
            view, meter = view_of(self, there.known, probe)
            before = perf_counter()
            choice = self.policy.select(self.roster.state, view, rngs.stream(self.seed, view.round, "policy"))
            wall = perf_counter() - before - meter[1]
            check_choice(self.policy, view, choice, replace=self.traits.replace)
            self._round = Round(self, view, choice, probes=int(meter[0]), wall=wall, begun=begun)
            return self._round

    def measure(self, metrics: Mapping[str, Any], *, training: bool = False) -> None:
        """Add metrics (accuracy, test_loss, ...) to the record of the last round; call it before the next round.

        Args:
            metrics: numbers by name; other values are ignored.
            training: whether the clients measured them in training, so that "loss" is the training loss.
        """
        with self.lock:
            self.storage.measure(metrics, training)

    def free(self, names: Iterable[str]) -> list[str]:
        """The clients of these names that do not still work on an earlier round (`late`); `round` asks no others."""
        with self.lock:
            self._check_rounds("free")
            self.late.fetch()
            self.late.begin(self.roster.round + 1)
            busy = set(self.flight.busy)
            return [name for name in names if name not in busy]

    def keep(self, name: str, update: Any, *, round: int, size: float | None = None) -> Status | None:
        """Keep an update of an earlier round, in which the client was chosen, for the next round's `parts`.

        Returns LATE if it is kept, and None if it is not: the client was not chosen in that round, had answered or
        failed, or is more than `late` rounds late. Invalid values never raise; `size` is as in `Round.done`.
        """
        with self.lock:
            self._check_rounds("keep")
            return self.late.keep(name, update, round, size)

    def retire(self, names: Collection[str]) -> None:
        """Delete clients and what was learned about them; one that comes back is a newcomer.

        Names that are not enrolled are ignored. Clients that are only away for a while need no call. A client that the
        policy must remember raises.
        """
        with self.lock:
            if self._round is not None:
                raise ContractError(f"round {self._round.number} is open; retire clients between two rounds")
            self.open()  # this may read what another server wrote
            if self.stream is not None:
                self.stream.start()
                self.stream.check_closed("retire clients")
            gone = [name for name in dict.fromkeys(names) if name in self.roster.index]
            if not gone:
                return
            if kept := self.roster.remembered(gone):
                raise ContractError(
                    f"{self.owner}: the policy must remember {validation.printable(kept[0])!r:.80} for "
                    f"{self.traits.remembers:g} rounds after it was there; leave it out of `available` instead"
                )
            self.storage.settle()
            self.storage.note_names(gone)  # before the roster forgets them
            self.storage.expect()  # the journal has no entry for this: even if interrupted, a checkpoint must follow
            left = self.roster.retire(gone)
            self.flight.leave(set(gone))
            if self.stream is not None:
                self.stream.keep(left)
            self.storage.checkpoint()
            self.log.info("retired %d clients, %d are left", len(gone), len(self.roster.names))

    # -- without rounds ----------------------------------------------------------------------------------------------

    def ask(self, available: Iterable[str] | Mapping[str, Any], *, eligible: Eligible | None = None) -> list[Work]:
        """Give tasks to clients that are there and idle, as many as places are free (`fp.Buffered.concurrency`).

        Returns the tasks, each with `id`, `name` and `version`: send each client the model of the last commit. Empty if
        no place is free, nobody is there, or `commit` has an answer first. Arguments are as in `round`.
        """
        with self.lock:
            return self._streaming("ask").ask(available, eligible)

    def done(
        self,
        id: int,
        /,
        *,
        update: Any = None,
        loss: float | None = None,
        seconds: float | None = None,
        reports: Mapping[str, Any] | None = None,
        size: float | None = None,
    ) -> Status | None:
        """Record the answer to a task, at any time and from any thread; invalid values never raise.

        Returns DONE if it is used, LATE if it is too stale (`fp.Buffered.oldest`), FAILED if its loss is impossible or
        its update has numbers that are not finite, or not the shapes of the model. None if no such task is in flight:
        it was answered before, has timed out, or never was. Only the first answer counts.

        Args:
            id: of the task.
            update: the change of the model, trained minus sent; with a `mixing` (FedAsync) the trained model. Any
                object, for `Commit.parts`; arrays, or arrays in a list or a mapping, for `Commit.apply`.
            loss: mean training loss that it reports.
            seconds: duration that it reports; the session's `durations` says how it is used.
            reports: by name; those that the policy learns from are kept.
            size: number of examples that it trained on; None: the client's size.
        """
        fine = finite(update)  # before others have to wait: models are large
        with self.lock:
            return self._streaming("done").done(id, fine, update, loss, seconds, reports, size)

    def failed(self, id: int, why: str = "", /, *, answered: bool = True) -> Status | None:
        """Record that a task failed: an error, a lost connection, an update that cannot be used.

        Args:
            id: of the task.
            why: for the log.
            answered: whether a message came back, for the records.
        """
        with self.lock:
            return self._streaming("failed").failed(id, why, answered)

    def commit(self) -> Commit | None:
        """The next move of the model; None if it does not move yet. `close` ends it, and the next one can follow."""
        with self.lock:
            return self._streaming("commit").commit()

    def resume(self, version: int) -> None:
        """After a restart without `model=`: say which version the server's own model has, as it was saved.

        If the server ended while a commit was open, this decides: with the model after it, the commit is closed now;
        with the one before it, it has not taken place, and its answers are LATE. Another version raises.
        """
        with self.lock:
            self._streaming("resume").resume(version)

    def skip(self, ids: Iterable[int]) -> None:
        """Take back tasks that were not sent after all, so that their clients are free and do not count as failed."""
        with self.lock:
            self._streaming("skip").skip(ids)

    def give_up(self, ids: Iterable[int]) -> list[Work]:
        """End tasks whose answers were lost on the way, through no fault of the clients, such as by a restart.

        They are LATE in the records, and the policy is not told. Returns those that were in flight.
        """
        with self.lock:
            return self._streaming("give_up").give_up(ids)

    @property
    def tasks(self) -> list[Work]:
        """The tasks in flight, also those of before a restart."""
        with self.lock:
            return self._streaming("tasks").tasks

    def _streaming(self, what: str) -> Streaming:
        if self.stream is None:
            raise ContractError(
                f"{self.owner}: {what} is for asynchronous training, with pace=fp.Buffered(...); this session plays "
                "rounds: call round() and the methods of the round"
            )
        return self.stream

    def _check_rounds(self, what: str) -> None:
        if self.stream is not None:
            raise ContractError(
                f"{self.owner}: {what} is for rounds, and there are none under fp.Buffered; call ask(), done() and "
                "commit()"
            )

    # -- the steps of a round, in order ------------------------------------------------------------------------------

    def _ended(self, round: Round) -> None:
        if self._round is round:
            self._round = None

    def _learn(self, round: Round, choice: Choice, outcome: Outcome, taken: Sequence[Task]) -> Record:
        """End a round that used the late updates of these tasks: the policy learns, and the round is on disk then."""
        roster, begun = self.roster, perf_counter()
        self.continuity.check_model(round.model)
        notes = {"forgotten": float(self.enrolment.forgotten), FRESH: float(self.continuity.fresh)}
        self.storage.expect()
        roster.tasks = self.flight.issued
        newcomers = roster.learn(round.view, choice, outcome)
        self.continuity.set_model(round.number, round.model)
        seconds = round.before + round.seconds
        roster.clock += seconds
        record = Record.of(
            round.view,
            choice,
            outcome,
            clock=roster.clock,
            seconds=seconds,
            messages=round.messages,
            megabytes=round.traffic,
            client_seconds=round.client_seconds,
            wall={"selection": round.wall + perf_counter() - begun},
            metrics={name: value for name, value in notes.items() if value},
            there=None if self.storage.writer is None else roster.there(round.view.there),
            joined=roster.issued,
            sent_at=roster.clock - round.seconds,
            mask=packed(roster.by_number(round.view.there)),
            chances=packed_chances(round.view, choice),
            **late_uses(replace(task, client=roster.number(task.client)) for task in taken),
        )
        self.enrolment.forgotten = self.flight.landed = 0
        record = replace(record, ids=np.array([roster.numbers[k] for k in record.ids], dtype=np.int64))
        self.storage.save(round.view, choice, outcome, record, newcomers)
        counts = ", ".join(f"{int(np.sum(outcome.status == each))} {each.name}" for each in Status)
        delay = f"; delay of replies about {self.delay.seconds:.2f} s" if self.delay.seconds else ""
        self.log.info("round %d: %s%s", round.number, counts, delay)
        self.alarms.ended(round.number, roster.names, choice, outcome, len(taken), round.limit)
        return record
