"""`Selected`: a Flower strategy with cohorts chosen by a fedpick policy."""

from collections.abc import Callable, Iterable, Mapping, Set
from functools import partial
from importlib.metadata import version
from inspect import BoundArguments, signature
from typing import Any, Unpack

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy
from numpy.typing import ArrayLike

from fedpick.adapters.aggregation import Aggregation
from fedpick.adapters.arrivals import Arrivals, earliest
from fedpick.adapters.flower.asynchronous import Training
from fedpick.adapters.flower.base import Base
from fedpick.adapters.flower.exchange import Exchange, Reply, limit_sizes, numbers, read_reply
from fedpick.adapters.flower.grids import GatedGrid, RestrictedGrid, WatchedGrid, expire, unwrapped
from fedpick.adapters.flower.logs import FRACTIONS, ROUND, SAMPLED, corrected, log
from fedpick.adapters.flower.messages import ask_losses
from fedpick.adapters.flower.models import INITIAL, arrays_of, check_kept, check_like, given, record_of
from fedpick.adapters.flower.nodes import Nodes
from fedpick.adapters.flower.versions import untested
from fedpick.adapters.presence import Identity, Presence
from fedpick.adapters.quorum import Quorum
from fedpick.adapters.valuation import worth
from fedpick.core.errors import ContractError, SettingError, require
from fedpick.core.protocol import Policy
from fedpick.core.types import Floats
from fedpick.engine.paces import Buffered
from fedpick.server.roster import Roster
from fedpick.server.round import Round
from fedpick.server.session import Session
from fedpick.server.settings import DescribeFn, Host, Options, check_needs
from fedpick.server.view import Eligible
from fedpick.store.records import Record

__all__ = ["Selected"]

TIMEOUT = 3600.0  # seconds; the default of Flower's start()
NAMING = (
    "start each SuperNode with a key (--auth-supernode-private-key), or with a client-id in its --node-config and "
    "identity='reported' here"
)
Aggregated = tuple[ArrayRecord | None, MetricRecord | None]


class Selected(Strategy):
    """Any Flower strategy, with cohorts chosen by a policy.

    Args:
        base: strategy (or a DP wrapper of one) that configures the training of the chosen clients, aggregates and
            evaluates.
        policy: any fedpick policy.
        wait: seconds to wait for enough clients to connect.
        too_few: what to do if fewer are connected: "smaller" takes a smaller cohort, "error" raises. No client at all
            always raises.
        describe: identities of newcomers -> fp.Clients (sizes, features); "ask" asks their ClientApps, which need
            `fedpick.flower.describe`; None: every size is 1.
        embed: arrays of a client's trained model -> vector, for FedGS's graph, such as fp.graph.functional_embedding;
            None: the metric `embedding`, if clients report one.
        value: arrays of a model -> its worth to the server, such as minus the loss on the server's validation data,
            for policies that choose by what updates are worth (GreedyFed, SFedAvg). It is called for about 2 m^2 means
            of a round's m models; they must be NumPy arrays.
        identity: how a client is recognised when it reconnects: "registered" (its key, else its name, else its node
            id), "node-id", "simulation" (its partition), "reported" (the client-id in its node-config; needs
            `fedpick.flower.describe`, and a client can give a false one), or a function of Flower's NodeInfo. "auto"
            is "simulation" in Flower's simulation and "registered" elsewhere.
        eligible: name -> whether this client may be asked at all, by the name that it is enrolled with (see
            `identity`), such as a look at a list of approved sites. No other node is sent a message of any kind, in
            training or in evaluation. It is called for each connected client before each choice and each evaluation,
            so that a withdrawn approval counts from the next message on. None: all may.
        options: `fp.Session`'s state, model (kept by round, and given back in place of `initial_arrays` after a
            restart), records, metrics, durations, context, late, limits, seed, pace and deadline. The deadline also
            limits evaluation; None: start's `timeout` is the limit. With the pace `fp.Buffered`, training is
            asynchronous: clients are asked when others have ended, and `start` counts versions of the model.
    """

    def __init__(
        self,
        base: Strategy,
        policy: Policy[Any],
        *,
        wait: float = 60.0,
        too_few: str = "smaller",
        describe: DescribeFn | str | None = None,
        embed: Callable[[ArrayRecord], ArrayLike] | None = None,
        value: Callable[[ArrayRecord], float] | None = None,
        identity: str | Identity = "auto",
        eligible: Eligible | None = None,
        **options: Unpack[Options],
    ) -> None:
        if not isinstance(base, Strategy):
            raise ContractError(
                f"Selected: base is a {type(base).__name__}, but must be a strategy of flwr.serverapp.strategy; those "
                "of flwr.server.strategy do not report which client failed"
            )
        require(0 <= wait < np.inf, "Selected: wait", wait, "a number of seconds >= 0")
        require(callable(describe) or describe in ("ask", None), "Selected: describe", describe, "'ask' or a function")
        if describe is None:
            how = ": pass describe=function or describe='ask'"
            check_needs(policy, dict.fromkeys(("features", "labels"), how), "Selected")
        asks = "None, or a function from a client's name to True or False"
        require(eligible is None or callable(eligible), "Selected: eligible", eligible, asks)
        if eligible is not None and identity == "reported":
            raise SettingError(
                "Selected: eligible, but identity = 'reported': a node would have to be asked for its name before it "
                "is known whether it may be asked; use another identity, such as keys or a function of "
                "Flower's NodeInfo"
            )
        self.base, self.policy, self.wait = base, policy, wait
        self.session = Session(
            policy,
            describe=describe if callable(describe) else None,
            embed=None if embed is None else lambda reply: embed(reply.record),
            value=None if value is None else partial(self._worth, value),
            host=Host("Selected", log, {"engine": "flower", "base": type(base).__name__}, NAMING),
            **options,
        )
        self.quorum = Quorum(self.session, too_few, "start more SuperNodes")
        self._base = Base(base)
        if isinstance(self.session.pace, Buffered):
            self._base.check_buffered()
            whole = too_few == "smaller"
            require(whole, "Selected: too_few", too_few, "'smaller' under fp.Buffered, where there is no whole cohort")
        else:
            self._base.check_late(self.session.late.rounds)
        self._presence = Presence[int](self.session, describe == "ask", identity)
        self._nodes = Nodes(self._presence, self.quorum, eligible)
        self._aggregation = Aggregation(type(base).__name__, log)
        self._exchange: Exchange | None = None
        self._idle = False  # whether nobody could be asked in this round
        self._probed = False  # whether a client has ever answered a probe
        self._working: Set[int] = frozenset()  # nodes that are not asked to evaluate
        self._timeout: float | None = TIMEOUT

    @property
    def round(self) -> int:
        """Number of rounds played, including those before a restart."""
        return self.session.round_number

    @property
    def roster(self) -> Roster:
        """The enrolled clients and the policy's state."""
        return self.session.roster

    @property
    def last(self) -> Record | None:
        """The record of the last round."""
        return self.session.last

    @property
    def model(self) -> ArrayRecord | None:
        """The model after the last round, as kept with `model=`; `start` begins with it, and so should your loop."""
        found = self.session.model
        return None if found is None else record_of(found)

    def start(self, grid: Grid, *args: Any, **options: Any) -> Result:
        """Run the rounds with the base's start(); after a restart, num_rounds more, from the kept model."""
        if note := untested(version("flwr")):
            log.warning(note)
        if isinstance(self.session.pace, Buffered):
            return self._start_buffered(grid, *args, **options)
        watched = WatchedGrid(self._nodes.gated(grid), self.session.deadline, self.session.rounds)
        bound = signature(self.base.start).bind(watched, *args, **options)  # a base may override start()
        self._timeout = options.get("timeout", bound.arguments.get("timeout", TIMEOUT))
        named = given(bound, "evaluate_fn")
        if named is not None and (evaluate := named["evaluate_fn"]) is not None:
            named["evaluate_fn"] = lambda number, arrays: self._measure(evaluate(number, arrays))
        with self._aggregation.run(), self.session:
            self._continue(bound)
            played = self.round
            with corrected({ROUND: lambda now, last: (ROUND, now + played, last + played)}), self._base.calling(self):
                result: Result = self.base.start(*bound.args, **bound.kwargs)
        return result

    def _start_buffered(self, grid: Grid, *args: Any, **options: Any) -> Result:
        """As `start`, without rounds."""
        bound = signature(self.base.start).bind(grid, *args, **options)
        bound.apply_defaults()
        self._timeout = bound.arguments["timeout"]
        with self._aggregation.run(), self.session:
            if self.session.memory is None or self.session.memory.models is None:
                # Only a commit that is closed hands out its model, so it cannot be that of one that was interrupted.
                self.session.resume(self.session.version)
            self._continue(bound)
            return Training(self, self._nodes.gated(unwrapped(grid)), bound.arguments).run()

    def _continue(self, bound: BoundArguments) -> None:
        """After a restart, give back the kept model in place of the initial one; without it, a fresh one is noticed."""
        if self.session.memory is not None and self.session.memory.models is not None:
            check_kept(bound)
        place = given(bound, INITIAL)
        if place is None or not self.round:
            return
        if (kept := self.session.continuity.kept()) is not None:
            model = record_of(kept)
            check_like(model, place[INITIAL], self.round)
            place[INITIAL] = model
            where = self.session.memory.models.folder.resolve()
            log.info("the model of round %d, kept in %s, takes the place of initial_arrays", self.round, where)
        elif isinstance(place[INITIAL], ArrayRecord):
            self.session.continuity.check_start(arrays_of(place[INITIAL]))

    @property
    def _limit(self) -> float | None:
        """Seconds for which an answer is waited for."""
        return earliest(self._timeout, self.session.deadline)

    def _measure(self, found: MetricRecord | None, training: bool = False) -> MetricRecord | None:
        if isinstance(found, MetricRecord):
            self.session.measure(found, training=training)
        return found

    def summary(self) -> None:
        """Log the policy and the folders, then the base's summary."""
        log.info("clients are chosen by %r; %s", self.policy, self.session.storage.folders)
        with corrected(FRACTIONS):
            self._base.original("summary")()

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Let the policy choose the cohort, and the base configure its training."""
        if isinstance(self.session.pace, Buffered):
            raise ContractError("Selected: configure_train is for rounds, and there are none: call start()")
        deadline = self.session.deadline
        arrivals = grid.begin() if isinstance(grid, WatchedGrid) else Arrivals(limit=deadline)
        if self.session.current is not None:
            self.session.current.abandon()  # aggregate_train was not called for it
        found = self._nodes.enough(grid, self.wait, self._limit)
        self._idle = not found
        if self._idle:
            return []
        available = self._nodes.described(grid, found, self._limit)

        def probe(names: list[str], batch: int | None) -> Floats:
            settings = ConfigRecord({"server-round": self.round + 1, "batch": batch or 0})
            record = RecordDict({"arrays": arrays, "config": settings})
            nodes = [found[name] for name in names]
            losses = ask_losses(unwrapped(grid), nodes, record, self._limit, not self._probed)
            self._probed = self._probed or bool(np.isfinite(losses).any())
            return losses

        round = self.session.round(available, probe=probe)
        if not round.chosen:  # as when everyone still works on an earlier round
            self.quorum.wait_for_late(bool(round.view.available.any()))
            self._exchange = self._exchanged(round, arrays, {}, grid, arrivals)
            return []
        try:
            nodes = {found[name]: name for name in round.chosen}
            shown = {SAMPLED: lambda asked, of: (SAMPLED, asked, len(found))}
            with corrected(shown), self._base.at_most(len(nodes), fraction_train=1.0):
                configure = self._base.original("configure_train")
                messages = list(
                    configure(round.number, arrays, config, RestrictedGrid(self._nodes.gated(grid), list(nodes)))
                )
            by_node = {message.metadata.dst_node_id: message for message in messages}
            strange = by_node.keys() - nodes.keys()
            if strange or len(by_node) < len(messages):
                raise ContractError(
                    f"{type(self.base).__name__}.configure_train made {len(messages)} messages to {len(by_node)} "
                    f"nodes, {len(strange)} of which were not chosen; it must send at most one message to each node of "
                    "its grid"
                )
            round.skip([name for node, name in nodes.items() if node not in by_node])  # the base asks fewer clients
        except BaseException:
            round.abandon()
            raise
        expire(messages, self.session.rounds.lifetime(deadline))
        by_name = {nodes[node]: message for node, message in by_node.items()}
        self._exchange = self._exchanged(round, arrays, by_name, grid, arrivals)
        return messages

    def _exchanged(
        self, round: Round, sent: ArrayRecord, messages: dict[str, Message], grid: Grid, arrivals: Arrivals
    ) -> Exchange:
        return Exchange(
            session=self.session,
            round=round,
            sent=sent,
            weight=self._base.weight,
            messages=messages,
            grid=unwrapped(grid),
            arrivals=arrivals,
        )

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Aggregated:
        """Report the results to the session, and pass the usable replies to the base."""
        aggregate, exchange, self._exchange = self._base.original("aggregate_train"), self._exchange, None
        result: Aggregated = None, None
        if self._idle:
            return result
        if exchange is None:  # not configured by us
            result = aggregate(server_round, replies)
            return result
        exchange.receive(replies)
        self._aggregation.agree("train", exchange.replies.values())
        exchange.judge()
        nodes = [str(exchange.messages[name].metadata.dst_node_id) for name in exchange.round.updates]
        with self._aggregation.attempt(exchange, f"nodes {', '.join(nodes)}"):
            result = aggregate(exchange.round.number, exchange.usable())
        # Closed after the aggregation, so that the round's model is on the disk before its state.
        model = exchange.sent if result[0] is None else result[0]
        exchange.close(None if self.session.memory is None else arrays_of(model))
        self._measure(result[1], training=True)
        return result

    def _worth(self, value: Callable[[ArrayRecord], float], models: Mapping[str, Reply]) -> dict[str, float]:
        sent, round = next(iter(models.values())).sent, self.session.current
        assert sent is not None
        assert round is not None
        return worth(
            {name: numbers(reply.record, None) for name, reply in models.items()},
            {name: round.size(name) for name in models},
            numbers(sent, None),
            lambda arrays: value(ArrayRecord({name: Array(np.asarray(each)) for name, each in arrays.items()})),
            self.session.seed,
            self.round + 1,
        )

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """As the base, with the nodes that are connected now and may be asked; skipped if there are none."""
        nodes = list(grid.get_node_ids() if self._nodes.eligible is None else self._nodes.there(grid).values())
        if not nodes:
            who = "connected" if self._nodes.eligible is None else "both connected and eligible"
            log.warning("round %d: no client is %s, so evaluation is skipped", self.round, who)
            return []
        nodes = [node for node in nodes if node not in self._working]
        gated = self._nodes.gated(grid)
        with self._base.at_most(len(nodes)):
            configure = self._base.original("configure_evaluate")
            messages = list(configure(max(self.round, 1), arrays, config, RestrictedGrid(gated, nodes)))
        return gated.check(messages) if isinstance(gated, GatedGrid) else messages

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """As the base, without the replies that cannot be aggregated."""
        found = [read_reply(message, sent=None, weight=self._base.weight) for message in replies]
        self._aggregation.agree("evaluate", found)
        limit_sizes(found, self._base.weight, self.session.limits)
        usable = [each.message for each in found if not each.why or each.message.has_error()]
        return self._measure(self._base.original("aggregate_evaluate")(max(self.round, 1), usable))
