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
from fedpick.core.types import Choice, Clients, Outcome, Status
from fedpick.engine.flight import Flight, Task
from fedpick.engine.paces import Rounds
from fedpick.policies.text import label
from fedpick.server import validation
from fedpick.server.alarms import Alarms
from fedpick.server.continuity import Continuity
from fedpick.server.delay import Delay
from fedpick.server.late_updates import LateUpdates
from fedpick.server.models import Arrays, Models
from fedpick.server.prometheus import Metrics
from fedpick.server.reports import Reports
from fedpick.server.roster import Present, Roster
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

TRUE = "if sizes are known to be true, set Limits(size_factor=None)"
DURATIONS = ("arrival", "reported")


def _pace(pace: Rounds | None, deadline: float | None, late: int | Lateness, owner: str) -> Rounds:
    """The pace that a session was given, or rounds with this deadline and these late updates."""
    lateness = late if isinstance(late, Lateness) else Lateness(late)
    if pace is None:
        lateness.check(owner)
        require(deadline is None or 0 < deadline < np.inf, f"{owner}: deadline", deadline, "a number of seconds > 0")
        return Rounds(deadline, lateness.rounds, lateness.beta)
    require(isinstance(pace, Rounds), f"{owner}: pace", pace, "fp.Rounds, such as fp.Rounds(deadline=60, late=2)")
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
        pace: `fp.Rounds`, which holds the deadline and the late updates, in place of `deadline` and `late`.
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
        pace: Rounds | None = None,
        limits: Limits | None = None,
        seed: int = 0,
        host: Host | None = None,
    ) -> None:
        host, self.limits = host or Host(), limits or Limits()
        self.owner, self.log = owner, log = host.name, host.log
        self.pace = _pace(pace, deadline, late, owner)
        require(durations in DURATIONS, f"{owner}: durations", durations, f"one of {', '.join(DURATIONS)}")
        where = "None without state=, because a model is kept with the state of its round"
        require(model is None or state is not None, f"{owner}: model", model, where)
        require(seed >= 0, f"{owner}: seed", seed, "an integer >= 0")
        wanted = "a fedpick.server.Limits, such as Limits(most_clients=1000)"
        require(isinstance(self.limits, Limits), f"{owner}: limits", limits, wanted)
        self.limits.check(owner)
        check_methods(policy)
        self.policy, self.traits = policy, traits(policy)
        check_needs(policy, missing_in_session(policy, context, value), owner)
        self.deadline, self.durations, self.context, self.seed = self.pace.deadline, durations, context, seed
        self._describe = describe
        self.lock = threading.RLock()  # held while anything of the session is read or changed
        self.sizes = Sizes(self.limits)
        self.roster, self.delay = Roster(policy, self.sizes), Delay()
        self.reports = Reports(self.roster, embed, log, value)
        self.flight = Flight()
        self.late = LateUpdates(self.pace, self.flight, self.sizes, log, owner)
        self._round: Round | None = None
        self._forgotten = 0  # clients, since the last round
        self.memory: Any = None  # a Memory
        if state is not None:
            from fedpick.server.memory import Memory  # needs filelock, an optional dependency

            models = None if model is None else Models(Path(model))
            self.memory = Memory(Path(state), self.roster, self.limits.checkpoint_every, log, models)
        self.alarms = Alarms(policy, log, host.naming)
        self.continuity = Continuity(self.memory, self.roster, self.alarms, owner, log)
        served = None if metrics is None else Metrics(metrics, label(policy), owner)
        cohort = self.traits.cohort_size or self.traits.asks
        manifest = {"policy": label(policy), "cohort_size": cohort, "seed": seed, "engine": "session", **host.about}
        self.records, self.metrics = None if records is None else Path(records), served
        self.storage = Storage(self.memory, self.records, served, manifest, self.roster, log)

    @property
    def round_number(self) -> int:
        """Number of rounds played, including those before a restart."""
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
            if self._round is not None:
                raise ContractError(f"round {self._round.number} is still open; close() or abandon() it first")
            self.open()
            self.storage.settle()
            begun = monotonic()
            there = listed(available, self.roster, self.owner, self.log, eligible)
            self.continuity.begin_round(there)
            self._forget(there)
            self._enrol(there)
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
            self.roster.retire(gone)
            self.flight.leave(set(gone))
            self.storage.checkpoint()
            self.log.info("retired %d clients, %d are left", len(gone), len(self.roster.names))

    # -- the steps of a round, in order ------------------------------------------------------------------------------

    def _forget(self, there: Present) -> None:
        """Forget clients that were away too long, or longest if too many are enrolled."""
        roster = self.roster
        if gone := roster.stale(there, self.limits.forget_after, self.limits.most_clients):
            away = roster.round + 1 - int(roster.seen[[roster.index[name] for name in gone]].max())
            self.storage.note_names(gone)  # before they are gone
            there.known = there.known[roster.forget(gone)]
            self.flight.leave(set(gone))
            self._forgotten += len(gone)
            text = "forgot %d clients that were away for %d rounds or more, %d are left"
            self.log.warning(text, len(gone), away, len(roster.names))

    def _enrol(self, there: Present) -> None:
        """Enrol the clients that are new; those for which there is no room are removed from `there`."""
        if refused := self.roster.refused(there.new, self.limits.most_clients):
            for name in refused:
                del there.new[name]
            text = "refused %d newcomers: the policy must remember the %d clients that are enrolled; raise most_clients"
            self.log.warning(text, len(refused), len(self.roster.names) + len(there.new))
        if new := there.new:
            before = self.roster.oversized
            self.roster.enrol(list(new), self._newcomers(new))
            there.known = np.append(there.known, np.ones(len(new), dtype=np.bool_))
            self.log.info("enrolled %d clients, %d in all", len(new), len(self.roster.names))
            if (after := self.roster.oversized) > before and self.roster.counted is not None:
                count, most = len(self.roster.names), self.roster.counted.sizes.max()
                self.log.warning("the declared sizes of %d of %d clients count as %g; " + TRUE, after, count, most)

    def _newcomers(self, new: Mapping[str, Any]) -> Clients:
        """The newcomers, from their descriptions by name, or from the user's function."""
        if self._describe is None:
            return validation.newcomers(list(new.values()), self.roster.clients, self.traits.needs, self.log)
        found = self._describe(list(new))
        if len(found) != len(new):
            raise ContractError(
                f"{self.owner}: describe() returned {len(found)} clients for {len(new)} names; return one for each"
            )
        return found

    def _ended(self, round: Round) -> None:
        if self._round is round:
            self._round = None

    def _learn(self, round: Round, choice: Choice, outcome: Outcome, taken: Sequence[Task]) -> Record:
        """End a round that used the late updates of these tasks: the policy learns, and the round is on disk then."""
        roster, begun = self.roster, perf_counter()
        self.continuity.check_model(round.model)
        notes = {"forgotten": float(self._forgotten), FRESH: float(self.continuity.fresh)}
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
            wall={"selection": round.wall + perf_counter() - begun},
            metrics={name: value for name, value in notes.items() if value},
            there=None if self.storage.writer is None else roster.there(round.view.there),
            joined=roster.issued,
            sent_at=roster.clock - round.seconds,
            mask=packed(roster.by_number(round.view.there)),
            chances=packed_chances(round.view, choice),
            **late_uses(replace(task, client=roster.number(task.client)) for task in taken),
        )
        self._forgotten = self.flight.landed = 0
        record = replace(record, ids=np.array([roster.numbers[k] for k in record.ids], dtype=np.int64))
        self.storage.save(round.view, choice, outcome, record, newcomers)
        counts = ", ".join(f"{int(np.sum(outcome.status == each))} {each.name}" for each in Status)
        delay = f"; delay of replies about {self.delay.seconds:.2f} s" if self.delay.seconds else ""
        self.log.info("round %d: %s%s", round.number, counts, delay)
        self.alarms.ended(round.number, roster.names, choice, outcome, len(taken), round.limit)
        return record
