"""`Session`: how a server uses a policy. It enrols clients, chooses, collects answers, lets the policy learn, saves."""

import logging
import os
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from time import monotonic, perf_counter
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from fedpick.core import rng as rngs
from fedpick.core.errors import ContractError, require
from fedpick.core.protocol import Policy, check_choice, check_methods, traits
from fedpick.core.types import Clients, Outcome, Status
from fedpick.policies.text import label
from fedpick.server import reading
from fedpick.server.alarms import Alarms
from fedpick.server.arrival import Delay
from fedpick.server.continuing import Continuing
from fedpick.server.keeping import Keeping
from fedpick.server.late import LateUpdates
from fedpick.server.measures import columns
from fedpick.server.metrics import Metrics
from fedpick.server.models import Arrays, Models
from fedpick.server.permission import Eligible
from fedpick.server.reports import Reports
from fedpick.server.roster import Roster
from fedpick.server.round import Round
from fedpick.server.settings import ContextFn, Describe, ProbeFn, ValueFn, check_needs, session_lacks
from fedpick.server.viewing import listed, view_of
from fedpick.store.records import FRESH, Record

__all__ = ["Session"]

DURATIONS = ("arrival", "reported")


class Session:
    """A policy used by a server, whose clients have names and may join and leave at any time.

    Args:
        policy: any fedpick policy.
        state: folder in which the policy's state is saved after each round; a restarted server continues from it.
            None saves nothing.
        model: folder in which the model of each of the last 3 rounds is kept (`Round.model`), so that a restarted
            server finds the one of its round (`Session.model`); needs `state`. None keeps none.
        records: folder for the records of the rounds, readable by `fedpick report`; None writes none.
        metrics: where to tell Prometheus what happens, such as ":9090": a port of this machine, or HOST:PORT; None:
            nowhere. See docs/watching.md.
        deadline: seconds that a round may last; None: no limit.
        durations: "arrival" uses the seconds that clients report, but at least the time until the answer arrived minus
            the usual delay (`delay`), which a client cannot falsify downwards; "reported" any possible value.
        context: (round, names, idle) -> (K, d) array, for RBCSF.
        describe: names of newcomers -> fp.Clients; None: the descriptions given in `available`.
        embed: update -> vector, for FedGS: the report "embedding" of clients whose `done` has an update.
        value: updates to aggregate, by name -> what each is worth (with fp.solvers.shapley, on validation data), for
            policies that need the server's valuation (GreedyFed, SFedAvg).
        forget_after: rounds after which a client that was not available is forgotten; one that returns later is a
            newcomer. None: never.
        most_clients: how many may be enrolled; if there are more, those away longest are forgotten, but none that is
            available. None: a million, or 4,000 if the policy's state grows with the square (FedGS).
        late: how many rounds late an update may come (`keep`) and still be used (`Round.parts`), with a smaller weight;
            0: late updates are dropped. They wait in memory only, so that a restart loses them.
        late_beta: beta of the weight of late updates (REFL), in [0, 1]; with 0 they are not compared with the others.
        checkpoint_every: rounds between two checkpoints of the complete state; a journal keeps the rounds in between.
        seed: of the policy's random numbers.
        about: further entries of the records' manifest; an adapter puts its name under "engine".
        log: logger for messages; an adapter gives its framework's.
        owner: the name that error messages begin with.

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
        describe: Describe | None = None,
        embed: Callable[[Any], ArrayLike] | None = None,
        value: ValueFn | None = None,
        forget_after: int | None = 1000,
        most_clients: int | None = None,
        late: int = 0,
        late_beta: float = 0.35,
        checkpoint_every: int = 20,
        seed: int = 0,
        about: Mapping[str, Any] | None = None,
        log: logging.Logger | None = None,
        owner: str = "Session",
    ) -> None:
        require(deadline is None or 0 < deadline < np.inf, f"{owner}: deadline", deadline, "a number of seconds > 0")
        require(durations in DURATIONS, f"{owner}: durations", durations, f"one of {', '.join(DURATIONS)}")
        require(checkpoint_every >= 1, f"{owner}: checkpoint_every", checkpoint_every, "a number of rounds >= 1")
        for name, least in (("forget_after", forget_after), ("most_clients", most_clients)):
            require(least is None or least >= 1, f"{owner}: {name}", least, "a whole number >= 1, or None")
        where = "None without state=, because a model is kept with the state of its round"
        require(model is None or state is not None, f"{owner}: model", model, where)
        require(seed >= 0, f"{owner}: seed", seed, "an integer >= 0")
        check_methods(policy)
        self.policy, self.traits = policy, traits(policy)
        check_needs(policy, session_lacks(policy, context, value), owner)
        self.deadline, self.durations, self.context, self.seed = deadline, durations, context, seed
        self.forget_after, self.most_clients = forget_after, most_clients
        self.owner, self.log = owner, log or logging.getLogger("fedpick.session")
        self._describe = describe
        self.guard = threading.RLock()
        self.roster, self.delay = Roster(policy), Delay()
        self.reports = Reports(self.roster, embed, self.log, value)
        self.late = LateUpdates(late, late_beta, self.log, owner)
        self._round: Round | None = None
        self._forgotten = 0  # clients, since the last round
        self.memory: Any = None  # a Memory
        if state is not None:
            from fedpick.server.memory import Memory  # needs filelock, an optional dependency

            models = None if model is None else Models(Path(model))
            self.memory = Memory(Path(state), self.roster, checkpoint_every, self._about_newcomers, self.log, models)
        self.alarms = Alarms(policy, self.log)
        self.continuing = Continuing(self.memory, self.roster, self.alarms, owner, self.log)
        self.records = None if records is None else Path(records)
        self.metrics = None if metrics is None else Metrics(metrics, label(policy), owner)
        kept = self.traits.cohort_size or self.traits.asks
        manifest = {"policy": label(policy), "cohort_size": kept, "seed": seed, "engine": "session", **(about or {})}
        self.keeping = Keeping(self.memory, self.records, self.metrics, manifest, self.roster, self.log)

    @property
    def round_number(self) -> int:
        """Number of rounds played, including those before a restart."""
        return self.roster.round

    @property
    def names(self) -> list[str]:
        """Names of all enrolled clients, in the order of their indices."""
        return list(self.roster.names)

    @property
    def model(self) -> Arrays | None:
        """The model after the last round, by the names of its arrays; None if none is kept, as before the first round.

        A server that starts reads it here, in place of its fresh model.
        """
        with self.guard:
            return self.continuing.model()

    @property
    def last(self) -> Record | None:
        """The record of the last round; `measure` may still add metrics."""
        return self.keeping.last

    @property
    def current(self) -> Round | None:
        """The open round, if there is one."""
        return self._round

    def open(self) -> None:
        """Lock the folders. `round` calls this; a closed session can be opened again."""
        with self.guard:
            self.keeping.open()

    def close(self) -> None:
        """Write everything and unlock the folders; an open round is abandoned."""
        with self.guard:
            if self._round is not None:
                self._round.abandon()
            self.keeping.close()

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
                read for newcomers: a size, (size, features), {"size": ..., "features": ...}, or None if not known.
            probe: (names, batch) -> losses of the current model, for Power-of-Choice; NaN for clients that do not
                answer.
            eligible: name -> whether this client may be asked at all, such as a look at a list of approved sites; the
                others are neither enrolled nor probed nor chosen. None: all may.
        """
        with self.guard:
            if self._round is not None:
                raise ContractError(f"round {self._round.number} is still open; close() or abandon() it first")
            self.open()
            self.keeping.settle()
            begun = monotonic()
            there = listed(available, self.owner, self.log, eligible)
            self.continuing.look(there)
            self._forget(there)
            self._enrol(there)
            view, meter = view_of(self.roster, there, self.context, self.traits.context, probe, self.owner)
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
        with self.guard:
            self.keeping.measure(columns(metrics, training))

    def free(self, names: Iterable[str]) -> list[str]:
        """Those of these clients that do not still work on an earlier round (`late`); all of them if all do."""
        with self.guard:
            self.late.fetch()
            return self.late.free(names)

    def keep(self, name: str, update: Any, *, round: int, size: float | None = None) -> Status | None:
        """Keep an update that comes after its round was closed, for the next round's `parts`.

        Returns LATE if it is kept, and None if it is not: the client was not chosen in that round, had answered or
        failed, or is more than `late` rounds late. Invalid values never raise.

        Args:
            name: of the client.
            update: any object, as in `Round.done`.
            round: number of the round in which the client was chosen.
            size: as in `Round.done`.
        """
        with self.guard:
            return self.late.keep(name, update, round, size)

    def retire(self, names: Collection[str]) -> None:
        """Delete clients and what was learned about them. Clients that are only away for a while need no call.

        Args:
            names: of clients; those that are not enrolled are ignored. One that comes back is a newcomer.
        """
        with self.guard:
            if self._round is not None:
                raise ContractError(f"round {self._round.number} is open; retire clients between two rounds")
            self.open()  # this may read what another server wrote
            gone = [name for name in dict.fromkeys(names) if name in self.roster.index]
            if not gone:
                return
            self.keeping.settle()
            self.keeping.note_names()  # before the roster forgets them
            self.keeping.expect()  # the journal has no entry for this: even if interrupted, a checkpoint must follow
            self.roster.retire(gone)
            self.keeping.fold()
            self.log.info("retired %d clients, %d are left", len(gone), len(self.roster.names))

    # -- the steps of a round, in order ------------------------------------------------------------------------------

    def _forget(self, there: dict[str, Any]) -> None:
        """Forget clients that were away too long, or longest if too many are enrolled."""
        roster = self.roster
        if gone := roster.stale(there, self.forget_after, self.most_clients):
            away = roster.round + 1 - int(roster.seen[[roster.index[name] for name in gone]].max())
            self.keeping.note_names()  # before they are gone
            roster.forget(gone)
            self._forgotten += len(gone)
            said = "forgot %d clients that were away for %d rounds or more, %d are left"
            self.log.warning(said, len(gone), away, len(roster.names))

    def _enrol(self, there: dict[str, Any]) -> None:
        """Enrol the clients that are new."""
        new = {name: value for name, value in there.items() if name not in self.roster.index}
        if new:
            self.roster.enrol(list(new), self._about_newcomers(list(new), new))
            self.log.info("enrolled %d clients, %d in all", len(new), len(self.roster.names))

    def _about_newcomers(self, names: list[str], said: Mapping[str, Any] | None = None) -> Clients:
        if self._describe is None:
            need = "features" in self.traits.needs
            values = [(said or {}).get(name) for name in names]
            return reading.described(values, self.roster.clients, need, self.log)
        found = self._describe(list(names))
        if len(found) != len(names):
            raise ContractError(
                f"{self.owner}: describe() returned {len(found)} clients for {len(names)} names; return one for each"
            )
        return found

    def _ended(self, round: Round) -> None:
        if self._round is round:
            self._round = None

    def _learn(self, round: Round, outcome: Outcome, late: int) -> Record:
        """End a round: the policy learns, and the round is on disk before this returns.

        Args:
            round: that ends.
            outcome: that the policy learns from.
            late: updates of earlier rounds that were used.
        """
        roster, begun = self.roster, perf_counter()
        self.continuing.check(round.model)
        notes = {"forgotten": float(self._forgotten), FRESH: float(self.continuing.fresh)}
        self.keeping.expect()
        newcomers = roster.learn(round.view, round.choice, outcome)
        self.continuing.note(round.number, round.model)
        self.late.note(round.view, round.choice, outcome, roster.names)
        seconds = round.seconds
        roster.clock += seconds
        record = Record.of(
            round.view,
            round.choice,
            outcome,
            clock=roster.clock,
            seconds=seconds,
            messages=round.messages,
            megabytes=round.traffic,
            wall={"selection": round.wall + perf_counter() - begun},
            metrics={name: value for name, value in notes.items() if value},
            there=None if self.keeping.recording is None else roster.there(round.view.available),
            joined=roster.issued,
        )
        self._forgotten = 0
        record = replace(record, ids=np.array([roster.numbers[k] for k in record.ids], dtype=np.int64))
        self.keeping.keep(round.view, round.choice, outcome, record, newcomers)
        counts = ", ".join(f"{int(np.sum(outcome.status == each))} {each.name}" for each in Status)
        delay = f"; delay of replies about {self.delay.seconds:.2f} s" if self.delay.seconds else ""
        self.log.info("round %d: %s%s", round.number, counts, delay)
        self.alarms.ended(round.number, roster.names, round.choice, outcome, late, round.limit)
        return record
