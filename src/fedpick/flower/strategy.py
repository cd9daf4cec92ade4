"""`Selected`: a Flower strategy whose cohorts a fedpick policy chooses."""

import contextlib
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import wraps
from inspect import Parameter, signature
from pathlib import Path
from time import monotonic, perf_counter
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy
from numpy.typing import ArrayLike

from fedpick import rng as rngs
from fedpick.errors import ContractError, MissingError, require
from fedpick.flower import probing
from fedpick.flower.grids import Restricted, Watched, own
from fedpick.flower.measures import label, metrics
from fedpick.flower.memory import Memory, Turn
from fedpick.flower.presence import Describe, NotEnoughClientsError, Presence
from fedpick.flower.replies import Heard, agree, read, table
from fedpick.flower.roster import Identity, Roster, check_identity
from fedpick.flower.rounds import Asked
from fedpick.protocol import Policy, traits
from fedpick.store.records import Record
from fedpick.types import Bools, Choice, Floats, Ints, Status, View

__all__ = ["ContextFn", "NotEnoughClientsError", "Selected"]

log = logging.getLogger("flwr.fedpick")  # below Flower's own, so that it is shown with it

HOOKS = ("summary", "configure_train", "aggregate_train", "configure_evaluate", "aggregate_evaluate")
TOO_FEW = ("smaller", "error")
DURATIONS = ("reported", "arrival")
TIMEOUT = 3600.0  # seconds; the default of Flower's start()

# (round, identities of all enrolled clients, mask of those that did not take part in the last round) -> (K, d) array
ContextFn = Callable[[int, Sequence[str], Bools], Floats]
Embed = Callable[[ArrayRecord], ArrayLike]


class Selected(Strategy):
    """Any Flower strategy, with cohorts that a policy chooses.

    Args:
        base: aggregates and evaluates, and configures training for whom the policy chose; also a DP wrapper.
        policy: any fedpick policy.
        state: folder in which policy state, roster and round are kept after each round, and from which a restarted
            ServerApp goes on; None keeps nothing.
        records: folder of the rounds' records, as a simulated run's, for `fedpick report`; None writes none.
        deadline: seconds that clients have to train, and to evaluate; later answers are LATE. None leaves it to start's
            `timeout`.
        wait: seconds to wait for enough clients to connect.
        too_few: what then: "smaller" cohorts or an "error". Nobody at all is always an error.
        context: (round, identities, idle) -> (K, d) array, for RBCSF.
        describe: identities of newcomers -> fp.Clients (sizes, features); "ask" asks their ClientApps, which answer by
            `fedpick.flower.describe`; None: every size is 1.
        embed: arrays of a client's trained model -> vector, for FedGS's graph, such as fp.graph.functional_embedding;
            None: the metric `embedding`, if clients report one.
        identity: by what a client is known when it comes back: "registered" (its key, else its name, else its node
            id), "node-id", "simulation" (its partition), "reported" (the client-id in its node-config, which needs
            `fedpick.flower.describe` and which it can make up), or a function of Flower's NodeInfo. "auto" is
            "simulation" in Flower's simulation and "registered" elsewhere.
        durations: "reported" takes the `seconds` that clients report, where they are possible; "arrival" only the time
            until the reply came, which a client cannot make shorter.
        checkpoint_every: rounds after which the state is written whole; in between, a journal of the rounds is.
        seed: of the policy's random numbers.
    """

    def __init__(
        self,
        base: Strategy,
        policy: Policy[Any],
        *,
        state: str | os.PathLike[str] | None = None,
        records: str | os.PathLike[str] | None = None,
        deadline: float | None = None,
        wait: float = 60.0,
        too_few: str = "smaller",
        context: ContextFn | None = None,
        describe: Describe | str | None = None,
        embed: Embed | None = None,
        identity: str | Identity = "auto",
        durations: str = "reported",
        checkpoint_every: int = 20,
        seed: int = 0,
    ) -> None:
        if not isinstance(base, Strategy):
            raise ContractError(
                f"Selected: base is a {type(base).__name__}, but must be a strategy of flwr.serverapp.strategy; those "
                "of flwr.server.strategy do not say which client failed"
            )
        require(deadline is None or 0 < deadline < np.inf, "Selected: deadline", deadline, "a number of seconds > 0")
        require(0 <= wait < np.inf, "Selected: wait", wait, "a number of seconds >= 0")
        require(too_few in TOO_FEW, "Selected: too_few", too_few, f"one of {', '.join(TOO_FEW)}")
        require(durations in DURATIONS, "Selected: durations", durations, f"one of {', '.join(DURATIONS)}")
        require(checkpoint_every >= 1, "Selected: checkpoint_every", checkpoint_every, "a number of rounds >= 1")
        require(seed >= 0, "Selected: seed", seed, "an integer >= 0")
        require(callable(describe) or describe in ("ask", None), "Selected: describe", describe, "'ask' or a function")
        check_identity(identity)
        self.base, self.policy, self.traits = base, policy, traits(policy)
        if "context" in self.traits.needs and context is None:
            raise MissingError(f"Selected: {type(policy).__name__} needs a context: give context=function")
        if "features" in self.traits.needs and describe is None:
            raise MissingError(
                f"Selected: {type(policy).__name__} needs features: give describe=function, or describe='ask'"
            )
        self.deadline, self.wait, self.too_few = deadline, wait, too_few
        self.context, self.embed = context, embed
        self.durations, self.seed = durations, seed
        self.roster = Roster(policy)
        self._presence = Presence(self.roster, identity, describe, "features" in self.traits.needs)
        self.memory = None if state is None else Memory(Path(state), self.roster, checkpoint_every)
        self.records = None if records is None else Path(records)
        self.last: Record | None = None
        self._recording: Any = None  # a Recording, while start() runs
        self._open = False  # the last round may still get metrics
        self._reports = self.traits.needs - {"probe", "context", "features"}
        if embed is not None or getattr(getattr(policy, "policy", policy), "graph", None) == "auto":
            self._reports |= {"embedding"}  # which FedGS takes if there is one
        self._probed = False  # whether a client has ever answered a probe
        self._broken: Exception | None = None  # the base's last failure to aggregate
        self._aggregated = False  # whether it ever did, in this start()
        self._pending: Asked | None = None
        self._usual: dict[bool, Any] = {}  # what the replies of the last round had in common
        self._own: dict[str, Any] = {}  # the base's methods while start() has ours in their place
        self._timeout = TIMEOUT

    @property
    def round(self) -> int:
        """Rounds played, those before a restart included."""
        return self.roster.round

    def _base(self, hook: str) -> Any:
        return self._own.get(hook) or getattr(self.base, hook)

    def _chain(self) -> Iterator[Any]:
        """The base and the strategies that it wraps."""
        seen: Any = self.base
        while isinstance(seen, Strategy):
            yield seen
            seen = getattr(seen, "strategy", None)

    @contextlib.contextmanager
    def _at_most(self, nodes: int, **fixed: float) -> Iterator[None]:
        """Let the base ask for no more nodes than there are, for as long as it is called; else it waits for ever."""
        before: list[tuple[Any, str, Any]] = []
        for strategy in self._chain():
            limits = dict.fromkeys(("min_train_nodes", "min_evaluate_nodes", "min_available_nodes"), nodes)
            for name, value in [*limits.items(), *fixed.items()]:
                if hasattr(strategy, name):
                    old = getattr(strategy, name)
                    before.append((strategy, name, old))
                    setattr(strategy, name, value if name in fixed else min(old, value))
        try:
            yield
        finally:
            for strategy, name, old in before:
                setattr(strategy, name, old)

    def start(self, grid: Grid, *args: Any, **options: Any) -> Result:
        """Run the rounds, as the base's own start() does; after a restart, num_rounds more."""
        watched = Watched(grid, self.deadline)
        bound = signature(self.base.start).bind(watched, *args, **options)  # which a base may have of its own
        named = bound.arguments
        for name, parameter in bound.signature.parameters.items():
            if parameter.kind is Parameter.VAR_KEYWORD:
                named = named if "evaluate_fn" in named else named.get(name, {})
        timeout = options.get("timeout", bound.arguments.get("timeout", TIMEOUT))
        self._timeout = np.inf if timeout is None else float(timeout)
        if named.get("evaluate_fn") is not None:
            named["evaluate_fn"] = self._listening(named["evaluate_fn"])
        self._broken, self._aggregated = None, False
        # The base's own loop, which users override, calls our hooks, and those the base's own.
        self._own = {hook: getattr(self.base, hook) for hook in HOOKS}
        kept = {hook: vars(self.base)[hook] for hook in HOOKS if hook in vars(self.base)}
        with self._files():
            try:
                for hook in HOOKS:
                    setattr(self.base, hook, getattr(self, hook))
                result: Result = self.base.start(*bound.args, **bound.kwargs)
            finally:
                for hook in HOOKS:
                    vars(self.base).pop(hook, None)
                vars(self.base).update(kept)
                self._own, self._pending = {}, None
        if self._broken is not None and not self._aggregated:
            raise self._broken  # not one client's doing: it never worked
        return result

    @contextlib.contextmanager
    def _files(self) -> Iterator[None]:
        """Hold the folders of state and records for as long as start() runs."""
        if self.memory is not None:
            self.memory.lock()
        try:
            if self.records is not None:
                from fedpick.flower.recording import ENGINE, Recording  # pyarrow: not on every client

                about = {
                    "engine": ENGINE,
                    "policy": label(self.policy),
                    "base": type(self.base).__name__,
                    "cohort_size": self.traits.cohort_size or self.traits.asks,
                    "seed": self.seed,
                }
                self._recording = Recording(self.records, about, self.roster, self.memory)
            try:
                yield
            finally:
                self._close_round()
                if self.memory is not None and self.memory.behind:
                    self.memory.fold()
                if self._recording is not None:
                    self._recording.close()
                    self._recording = None
        finally:
            if self.memory is not None:
                self.memory.unlock()

    def _close_round(self) -> None:
        """Write the last round, with what was measured after it, before the journal may forget it."""
        if self._open and self.last is not None:
            self._open = False
            if self._recording is not None:
                self._recording.add(self.last)
            if self.memory is not None and self.memory.due():
                if self._recording is not None:
                    self._recording.flush()
                self.memory.fold()

    def _measure(self, found: MetricRecord | None, trained: bool = False) -> None:
        if isinstance(found, MetricRecord) and self._open and self.last is not None:
            self.last = replace(self.last, metrics={**self.last.metrics, **metrics(found, trained)})

    def _listening(self, evaluate: Callable[[int, ArrayRecord], MetricRecord | None]) -> Any:
        """The user's central evaluation, whose result goes to the records as well."""

        @wraps(evaluate)
        def listening(server_round: int, arrays: ArrayRecord) -> MetricRecord | None:
            found = evaluate(server_round, arrays)
            self._measure(found)
            return found

        return listening

    def summary(self) -> None:
        """Log who chooses, then what the base says."""
        kept = "not kept" if self.memory is None else self.memory.folder.resolve()
        written = "not written" if self.records is None else self.records.resolve()
        log.info("clients are chosen by %r; state: %s; records: %s", self.policy, kept, written)
        self._base("summary")()

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Choose the cohort, and let the base configure its training."""
        self._close_round()
        if isinstance(grid, Watched):
            grid.begin()
        roster, number = self.roster, self.roster.round + 1
        limit = self._timeout if self.deadline is None else min(self.deadline, self._timeout)
        found = self._presence.connected(grid, self.traits.asks or 1, self.wait, self.too_few, limit)
        self._presence.enrol(grid, found, limit)
        assert roster.clients is not None
        at = np.fromiter((roster.index[name] for name in found), dtype=np.int64, count=len(found))
        node_of = dict(zip(at.tolist(), found.values(), strict=True))
        available = np.zeros(len(roster.names), dtype=np.bool_)
        available[at] = True
        asked = [0, 0.0]

        def probe(ids: Ints, /, *, batch: int | None = None) -> Floats:
            begun = monotonic()
            nodes = [node_of[int(k)] for k in ids]
            losses = probing.ask(own(grid), nodes, arrays, number, batch, limit, not self._probed)
            self._probed = self._probed or bool(np.isfinite(losses).any())
            asked[0] += len(ids)
            asked[1] += monotonic() - begun
            return losses

        context = None
        if self.context is not None:
            idle = np.ones(len(roster.names), dtype=np.bool_)
            idle[roster.last] = False
            context = self.context(number, list(roster.names), idle)
        view = View(number, available, roster.clients, context, probe)
        begun = perf_counter()
        choice = self.policy.select(roster.state, view, rngs.stream(self.seed, number, "policy"))
        wall = perf_counter() - begun - asked[1]
        away = [int(k) for k in choice.ids if int(k) not in node_of]
        if away:
            raise ContractError(
                f"the policy chose client {away[0]}, which is not available: see fp.checks.check_policy"
            )

        nodes = [node_of[int(k)] for k in choice.ids]
        shown = list(dict.fromkeys(nodes))  # a client drawn twice trains once
        with self._at_most(len(shown), fraction_train=1.0):
            messages = list(self._base("configure_train")(number, arrays, config, Restricted(grid, shown)))
        by_node = {message.metadata.dst_node_id: message for message in messages}
        strange = by_node.keys() - set(shown)
        if strange or len(by_node) < len(messages):
            raise ContractError(
                f"{type(self.base).__name__}.configure_train made {len(messages)} messages to {len(by_node)} nodes, "
                f"{len(strange)} of them not chosen; it must send each node of its grid at most one"
            )
        if len(by_node) < len(shown):  # the base asks fewer: the others had no chance to fail
            kept = np.array([node in by_node for node in nodes])
            choice = Choice(choice.ids[kept], *(None if a is None else a[kept] for a in _aligned(choice)))
            nodes = [node for node in nodes if node in by_node]
        if self.deadline is not None:
            for message in messages:
                message.metadata.ttl = min(message.metadata.ttl, self.deadline)
        self._pending = Asked(
            number, view, choice, nodes, by_node, arrays, grid, self.deadline, int(asked[0]), float(asked[1]), wall
        )
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Tell the policy how the round ended, and hand the base what it can use."""
        pending, self._pending = self._pending, None
        if pending is None:  # not configured by us
            plain: tuple[ArrayRecord | None, MetricRecord | None] = self._base("aggregate_train")(server_round, replies)
            return plain
        roster = self.roster
        heard = pending.read(replies, self._weight(), self._reports)
        self._usual[True] = agree(list(heard.values()), self._usual.get(True))
        status = pending.judge(heard, self.traits.cohort_size)
        tables = self._tables(pending, heard, status)
        outcome = pending.outcome(heard, status, tables, self.durations == "reported")
        begun = perf_counter()
        if self.memory is not None:
            self.memory.expect()
        newcomers = roster.learn(pending.view, pending.choice, outcome)
        self.last = pending.record(roster.clock, len(heard), outcome, perf_counter() - begun)
        roster.clock, self._open = self.last.clock, True
        if self.memory is not None:
            self.memory.keep(Turn(pending.view, pending.choice, outcome, self.last, newcomers))
        counts = ", ".join(f"{int(np.sum(outcome.status == each))} {each.name}" for each in Status)
        log.info("round %d: %s", pending.number, counts)
        usable = pending.usable(heard, status)
        try:
            result: tuple[ArrayRecord | None, MetricRecord | None]
            result = self._base("aggregate_train")(pending.number, usable)
        except Exception as error:  # one client's update must not end the training of all
            who = ", ".join(str(node) for node in heard if status[node] == Status.DONE)
            log.exception(
                "round %d: %s could not aggregate the updates of nodes %s; the model stays as it was",
                pending.number,
                type(self.base).__name__,
                who,
            )
            self._broken = error
            return None, None
        self._aggregated = True
        self._measure(result[1], trained=True)
        return result

    def _weight(self) -> str | None:
        """The metric by which the base averages, if it says so."""
        return next((each.weighted_by_key for each in self._chain() if hasattr(each, "weighted_by_key")), None)

    def _tables(self, pending: Asked, heard: dict[int, Heard], status: dict[int, Status]) -> dict[str, Floats]:
        """The reports of those that succeeded, as arrays aligned with the choice."""
        fine = {node: each for node, each in heard.items() if status[node] != Status.FAILED}
        if self.embed is not None and "embedding" in self._reports:
            for node, each in fine.items():
                each.reports["embedding"] = self._embedding(node, each)
        reports: dict[str, Floats] = {}
        for name in sorted(self._reports):
            width = self.roster.widths.get(name)
            if width is None and name == getattr(getattr(self.policy, "policy", self.policy), "reward", None):
                width = 0  # E3CS's reward is a number, also in a round in which nobody reports it
            values = [fine[node].reports.get(name) if node in fine else None for node in pending.nodes]
            array, width = table(values, width)
            if array is not None and width is not None:
                reports[name], self.roster.widths[name] = array, width
        return reports

    def _embedding(self, node: int, heard: Heard) -> list[float]:
        assert self.embed is not None
        try:
            arrays = next(iter(heard.reply.content.array_records.values()))
            return [float(value) for value in np.asarray(self.embed(arrays), dtype=np.float64).ravel()]
        except Exception as error:  # a client's arrays are its own, and must not end the training of the others
            log.warning("embed() failed on the model of node %d: %s: %s", node, type(error).__name__, error)
            return []

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """As the base, among the nodes that are connected now; nobody there skips it."""
        nodes = list(grid.get_node_ids())
        if not nodes:
            log.warning("round %d: nobody is connected, so nobody evaluates", self.round)
            return []
        with self._at_most(len(nodes)):
            return list(self._base("configure_evaluate")(max(self.round, 1), arrays, config, Restricted(grid, nodes)))

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """As the base, without the replies that it could not aggregate."""
        heard = [read(reply, sent=None, weight=self._weight(), train=False) for reply in replies]
        self._usual[False] = agree(heard, self._usual.get(False))
        usable = [each.reply for each in heard if not each.why or each.reply.has_error()]
        result: MetricRecord | None = self._base("aggregate_evaluate")(max(self.round, 1), usable)
        self._measure(result)
        return result


def _aligned(choice: Choice) -> tuple[Floats | None, Floats | None]:
    return choice.inclusion, choice.weights
