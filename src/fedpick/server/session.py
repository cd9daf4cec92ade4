"""`Session`: enrol, choose, hear, learn, keep; the one way in which a server uses a policy."""

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

from fedpick import rng as rngs
from fedpick.errors import ContractError, MissingError, require
from fedpick.protocol import Policy, traits
from fedpick.server import reading
from fedpick.server.arrival import Delay
from fedpick.server.gathering import NotEnoughClientsError
from fedpick.server.measures import columns
from fedpick.server.reports import Reports
from fedpick.server.roster import Roster
from fedpick.server.round import Round
from fedpick.server.settings import ContextFn, Describe, ProbeFn
from fedpick.state import _walk
from fedpick.store.records import Record
from fedpick.types import Clients, Floats, Ints, Outcome, Status, View

__all__ = ["Session"]

DURATIONS = ("arrival", "reported")
LONGEST_NAME = 500  # characters
MOST, MOST_PAIRED = 1_000_000, 4_000  # clients enrolled, unless it is said; pairs of the latter take 64 MB or 128 MB


class Session:
    """A policy behind a server, with clients that are known by names and come and go.

    Args:
        policy: any fedpick policy.
        state: folder in which what was learned is kept after each round, and from which the next server goes on; None
            keeps nothing.
        records: folder of the rounds' records, as a simulated run's, for `fedpick report`; None writes none.
        deadline: seconds that a round may last; None: as long as it does.
        durations: "arrival" takes the seconds that clients report, but at least the time until the answer came less the
            delay that is usual (`delay`), which a client cannot make shorter; "reported" believes what is possible.
        context: (round, names, idle) -> (K, d) array, for RBCSF.
        describe: names of newcomers -> fp.Clients; None: what `available` says of them.
        embed: update -> vector, for FedGS: the report "embedding" of clients whose `done` has an update.
        forget_after: rounds that a client may be away before it is forgotten and, should it come back, a newcomer; None
            forgets nobody for that.
        most_clients: how many may be enrolled; beyond, those longest away are forgotten, and never one that is there.
            None: a million, or 4,000 where the policy keeps a number for each pair of clients (FedGS).
        checkpoint_every: rounds after which the state is written whole; in between, a journal of the rounds is.
        seed: of the policy's random numbers.
        about: what the records' manifest says besides; an adapter puts its name as "engine".
        log: where messages go; an adapter gives its framework's.
        owner: what messages about settings call this.

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
        records: str | os.PathLike[str] | None = None,
        deadline: float | None = None,
        durations: str = "arrival",
        context: ContextFn | None = None,
        describe: Describe | None = None,
        embed: Callable[[Any], ArrayLike] | None = None,
        forget_after: int | None = 1000,
        most_clients: int | None = None,
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
        require(seed >= 0, f"{owner}: seed", seed, "an integer >= 0")
        self.policy, self.traits = policy, traits(policy)
        if "context" in self.traits.needs and context is None:
            raise MissingError(f"{owner}: {type(policy).__name__} needs a context: give context=function")
        self.deadline, self.durations, self.context, self.seed = deadline, durations, context, seed
        self.forget_after, self.most_clients = forget_after, most_clients
        self.owner, self.log = owner, log or logging.getLogger("fedpick.session")
        self._describe = describe
        self._about = {"engine": "session", **(about or {})}
        self.guard = threading.RLock()
        self.roster, self.delay = Roster(policy), Delay()
        self.reports = Reports(self.roster, embed, self.log)
        self.last: Record | None = None  # of the last round; it may still get metrics
        self.records = None if records is None else Path(records)
        self.memory: Any = None  # a Memory
        self._recording: Any = None  # a Recording, while the session is open
        self._open = self._fresh = False  # _fresh: the last round is not with the records yet
        self._round: Round | None = None
        self._forgotten = 0  # clients, since the last round
        if state is not None:
            from fedpick.server.memory import Memory  # filelock: not everywhere

            self.memory = Memory(Path(state), self.roster, checkpoint_every, self._about_newcomers, self.log)

    @property
    def round_number(self) -> int:
        """Rounds played, those before a restart included."""
        return self.roster.round

    @property
    def names(self) -> list[str]:
        """Of all enrolled clients, in the order of their indices."""
        return list(self.roster.names)

    @property
    def current(self) -> Round | None:
        """The round that is open."""
        return self._round

    def open(self) -> None:
        """Lock the folders; `round` does so, and a session that was closed can be opened again."""
        with self.guard:
            if self._open:
                return
            if self.memory is not None:
                self.memory.lock()
            try:
                if self.records is not None:
                    from fedpick.policies.text import label
                    from fedpick.server.recording import Recording  # pyarrow: not everywhere

                    kept = self.traits.cohort_size or self.traits.asks
                    about = {"policy": label(self.policy), "cohort_size": kept, "seed": self.seed, **self._about}
                    journaled = [] if self.memory is None else self.memory.journaled()
                    self._recording = Recording(self.records, about, self.roster, journaled, self.log)
                    self._write()
            except BaseException:
                if self.memory is not None:
                    self.memory.unlock()
                raise
            self._open = True

    def close(self) -> None:
        """Write everything, and let other servers in; an open round is abandoned."""
        with self.guard:
            if self._round is not None:
                self._round.abandon()
            if not self._open:
                return
            try:
                self._settle()
                if self.memory is not None and self.memory.behind:
                    self._fold()
                self._write()
            finally:
                self._open = False
                try:
                    if self._recording is not None:
                        self._recording.close()
                        self._recording = None
                finally:
                    if self.memory is not None:
                        self.memory.unlock()

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def round(self, available: Iterable[str] | Mapping[str, Any], *, probe: ProbeFn | None = None) -> Round:
        """Begin the next round: enrol who is new, and let the policy choose among those who are there.

        Args:
            available: names of the clients that could train now, or a mapping that says what newcomers hold: a size,
                (size, features) or {"size": ..., "features": ...}; None where it is not known.
            probe: (names, batch) -> losses of the current model, for Power-of-Choice; NaN for who does not answer.
        """
        with self.guard:
            if self._round is not None:
                raise ContractError(f"round {self._round.number} is still open; leave its block, or abandon() it")
            self.open()
            self._settle()
            begun = monotonic()
            there = self._there(available)
            self._forget(there)
            self._enrol(there)
            view, meter = self._view(there, probe)
            before = perf_counter()
            choice = self.policy.select(self.roster.state, view, rngs.stream(self.seed, view.round, "policy"))
            wall = perf_counter() - before - meter[1]
            away = choice.ids[~view.available[choice.ids]]
            if len(away):
                raise ContractError(
                    f"the policy chose client {away[0]}, which is not available: see fp.checks.check_policy"
                )
            self._round = Round(self, view, choice, probes=int(meter[0]), wall=wall, begun=begun)
            return self._round

    def measure(self, metrics: Mapping[str, Any], *, training: bool = False) -> None:
        """Add what was measured after the last round (accuracy, test_loss, ...) to its record, before the next.

        Args:
            metrics: numbers by name; others have no column.
            training: whether they are the training clients' own, so that "loss" is their training loss.
        """
        with self.guard:
            if self.last is None or not self._fresh:
                return
            self.last = replace(self.last, metrics={**self.last.metrics, **columns(metrics, training)})

    def retire(self, names: Collection[str]) -> None:
        """Forget clients for good; one that comes back is a newcomer. Who is only away needs no word.

        Args:
            names: of clients; those that are not enrolled are ignored.
        """
        with self.guard:
            if self._round is not None:
                raise ContractError(f"round {self._round.number} is open; retire clients between two rounds")
            self.open()  # which may read what another server wrote
            gone = [name for name in dict.fromkeys(names) if name in self.roster.index]
            if not gone:
                return
            self._settle()
            if self._recording is not None:
                self._recording.note_names()  # while they have one
            if self.memory is not None:
                self.memory.expect()  # the journal has no word for it: whatever interrupts us, a checkpoint must follow
            self.roster.retire(gone)
            if self.memory is not None:
                self._fold()
            self.log.info("retired %d clients, %d are left", len(gone), len(self.roster.names))

    # -- the parts of a round, in their order ------------------------------------------------------------------------

    def _there(self, available: Iterable[str] | Mapping[str, Any]) -> dict[str, Any]:
        """Those who are there, with what is said of them."""
        if isinstance(available, str):
            raise ContractError(f"{self.owner}: available is the text {available!r:.80}, but must be names of clients")
        said = dict(available) if isinstance(available, Mapping) else dict.fromkeys(available)
        for name in [name for name in said if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME]:
            if not isinstance(name, str):
                raise ContractError(f"{self.owner}: available holds {name!r:.80}, but clients are known by strings")
            self.log.warning("left out: a name of %d characters, %s ...", len(name), reading.printable(name)[:40])
            del said[name]  # which a client may have made up
        if not said:
            raise NotEnoughClientsError("nobody is available, so that nobody can train; wait until clients are there")
        return said

    def _forget(self, there: dict[str, Any]) -> None:
        """Forget those who were away too long, or longest where there are too many."""
        roster = self.roster
        pairs = roster.state is not None and any(kind == "pairs" and len(v) for _, kind, v in _walk(roster.state))
        most = self.most_clients or (MOST_PAIRED if pairs else MOST)
        if gone := roster.stale(there, self.forget_after, most):
            away = roster.round + 1 - int(roster.seen[[roster.index[name] for name in gone]].max())
            if self._recording is not None:
                self._recording.note_names()  # while they have one
            roster.forget(gone)
            self._forgotten += len(gone)
            said = "forgot %d clients that were away for %d rounds or more, %d are left"
            self.log.warning(said, len(gone), away, len(roster.names))

    def _enrol(self, there: dict[str, Any]) -> None:
        """Enrol those that are not yet, with what is known of them."""
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
                f"{self.owner}: describe() described {len(found)} clients, but was asked for {len(names)}: give one "
                "each"
            )
        return found

    def _view(self, there: dict[str, Any], probe: ProbeFn | None) -> tuple[View, list[float]]:
        """What the policy may know, and a meter of its probes: clients asked, seconds."""
        roster, number, meter = self.roster, self.roster.round + 1, [0.0, 0.0]
        assert roster.clients is not None
        available = np.zeros(len(roster.names), dtype=np.bool_)
        available[[roster.index[name] for name in there]] = True

        def metered(ids: Ints, /, *, batch: int | None = None) -> Floats:
            assert probe is not None
            before, ids = perf_counter(), np.asarray(ids)
            losses = np.asarray(probe([roster.names[k] for k in ids], batch), dtype=np.float64)
            if losses.shape != ids.shape:
                raise ContractError(
                    f"{self.owner}: probe gave losses of shape {losses.shape}, but {len(ids)} clients were asked"
                )
            meter[0] += len(ids)
            meter[1] += perf_counter() - before
            return losses

        context = None
        if self.context is not None:
            idle = np.ones(len(roster.names), dtype=np.bool_)
            idle[roster.last] = False
            context = np.asarray(self.context(number, list(roster.names), idle), dtype=np.float64)
            width = self.traits.context
            if width is not None and context.shape != (len(idle), width):
                raise ContractError(
                    f"{self.owner}: context gave shape {context.shape}, but must give {(len(idle), width)}: "
                    f"for each client the {width} columns that the policy reads"
                )
        return View(number, available, roster.clients, context, None if probe is None else metered), meter

    def _ended(self, round: Round) -> None:
        if self._round is round:
            self._round = None

    def _learn(self, round: Round, outcome: Outcome) -> Record:
        """The end of a round: the policy learns, and it is on the disk before anybody hears of it."""
        roster, begun = self.roster, perf_counter()
        if self.memory is not None:
            self.memory.expect()
        newcomers = roster.learn(round.view, round.choice, outcome)
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
            metrics={"forgotten": float(self._forgotten)} if self._forgotten else {},
        )
        self._forgotten = 0
        self.last = replace(record, ids=np.array([roster.numbers[k] for k in record.ids], dtype=np.int64))
        self._fresh = True
        if self.memory is not None:
            from fedpick.server.journal import Turn

            self.memory.keep(Turn(round.view, round.choice, outcome, self.last, newcomers))
        counts = ", ".join(f"{int(np.sum(outcome.status == each))} {each.name}" for each in Status)
        delay = f"; delay of replies about {self.delay.seconds:.2f} s" if self.delay.seconds else ""
        self.log.info("round %d: %s%s", round.number, counts, delay)
        return self.last

    def _settle(self) -> None:
        """Hand the last round to the records, with what was measured after it; write a checkpoint if one is due."""
        if not self._fresh:
            return
        self._fresh = False
        if self._recording is not None:
            self._recording.add(self.last)
            if self._recording.due:
                self._write()
        if self.memory is not None and self.memory.due():
            self._fold()

    def _write(self) -> bool:
        """Write the records that wait, but never ahead of the state; whether none is left."""
        if self._recording is None:
            return True
        if self.memory is not None and self.memory.behind:
            return False
        return bool(self._recording.flush())

    def _fold(self) -> None:
        """Write the state whole; the journal goes when the records hold its rounds, too."""
        self.memory.checkpoint()
        if self._write():
            self.memory.drop_journal()
