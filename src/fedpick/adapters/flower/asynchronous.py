"""Asynchronous training through Flower's grid: a client is asked when another has ended, and nobody waits for a round.

`Training` sends the messages of tasks, pulls the replies, and lets the base strategy make the next version of the model
of the answers of each commit. The rules are the session's: what an answer counts as, and when the model moves.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result

from fedpick.adapters.arrivals import LONGER, LONGEST
from fedpick.adapters.flower.exchange import is_expiry, numbers, read_reply
from fedpick.adapters.flower.grids import RestrictedGrid, exchange, expire, push, unwrapped
from fedpick.adapters.flower.logs import SAMPLED, corrected, log
from fedpick.adapters.flower.models import arrays_of, check_moves
from fedpick.adapters.updates import moves, onto
from fedpick.core.errors import ContractError, FedpickError
from fedpick.engine.paces import Buffered
from fedpick.engine.stream import Stream
from fedpick.server.commit import Commit, Used, Work

if TYPE_CHECKING:
    from fedpick.adapters.flower.strategy import Selected

IN_VAIN = 100  # times the concurrency: tasks that ended in a row, none of which is used
ARRIVALS = 1.0  # seconds between two looks for clients that have connected
SOON = 0.1  # seconds until the next look for replies after one that found some

__all__ = ["Post", "Sent", "Training", "usable"]


@dataclass(frozen=True, eq=False)
class Sent:
    """A task's message; the model is kept as long as a task or an answer refers to it.

    Args:
        task: of the session.
        model: the version that its client was sent.
        node: of its client.
        lives: seconds for which Flower takes an answer.
        at: when it was sent.
    """

    task: Work
    model: ArrayRecord
    node: int
    lives: float
    at: float


class Post:
    """The messages of tasks, until Flower has said its last about them: a reply, or that none will come.

    Replies are matched by the message that they answer, never by client: the sender of an error can be the SuperLink.
    Flower deletes a reply that was pulled, so a message is answered at most once.
    """

    def __init__(self, grid: Grid) -> None:
        self.grid = grid
        self._sent: dict[str, Sent] = {}  # by message, also of tasks that the session has given up

    @property
    def nodes(self) -> set[int]:
        """The nodes that were asked and have not answered."""
        return {each.node for each in self._sent.values()}

    def push(self, tasks: Mapping[int, Work], messages: list[Message], model: ArrayRecord) -> list[Work]:
        """Send the messages to these nodes' tasks; returns the tasks whose messages Flower refuses."""
        taken, now = set(push(self.grid, messages)), monotonic()
        refused = []
        for message in messages:
            about = message.metadata
            if about.message_id in taken:
                self._sent[about.message_id] = Sent(tasks[about.dst_node_id], model, about.dst_node_id, about.ttl, now)
            else:
                refused.append(tasks[about.dst_node_id])
        return refused

    def pull(self) -> list[tuple[Sent, Message]]:
        """The replies that are there, in the order of their tasks."""
        found = []
        for message in self.grid.pull_messages(set(self._sent)) if self._sent else ():
            sent = self._sent.pop(message.metadata.reply_to_message_id, None)
            if sent is not None:
                found.append((sent, message))
        return sorted(found, key=lambda each: each[0].task.id)


def usable(parts: Sequence[Used], model: ArrayRecord, weight: str, mixes: bool) -> list[Message]:
    """A commit's replies, such that their mean by the metric `weight` is the model moved by the sum of weight x update.

    Args:
        parts: of the commit, each with the reply and its weight.
        model: the present one, which the base moves.
        weight: name of the metric that the base averages by.
        mixes: whether the model moves towards the client's model (FedAsync), and not by its change.
    """
    parts = [part for part in parts if part.weight > 0.0]  # the base divides by the sum
    times = sum(part.weight for part in parts)
    common, now = _common([part.update.metrics for part in parts]), numbers(model, model)
    for part in parts:
        reply = part.update
        changes = reply.moves
        if mixes:  # sent + change - model
            changes = moves(onto(numbers(reply.sent, reply.sent), changes), now)
        reply.move(model, changes, times)
        for name in set(reply.metrics) - common:
            del reply.metrics[name]
        reply.metrics[weight] = len(parts) * part.weight
    return [part.update.message for part in parts]


def _common(metrics: Sequence[Mapping[str, Any]]) -> set[str]:
    """The metrics that all have, as a number or as lists of the same length: Flower's mean cannot take others."""
    forms = Counter((n, len(v) if isinstance(v, list) else -1) for each in metrics for n, v in each.items())
    return {name for (name, _), count in forms.items() if count == len(metrics)}


class Training:
    """The loop of `Selected` with `fp.Buffered`.

    Args:
        selected: the strategy.
        grid: Flower's.
        given: the arguments of `start`, by name.
    """

    def __init__(self, selected: "Selected", grid: Grid, given: Mapping[str, Any]) -> None:
        self.selected, self.session, self.base, self.grid = selected, selected.session, selected._base, grid
        self.model: ArrayRecord = given["initial_arrays"]
        check_moves(self.model)
        self.versions = int(given["num_rounds"])
        pace = self.session.pace
        assert isinstance(pace, Buffered)
        self.pace = pace
        self.train_config, self.evaluate_config = (
            given[name] or ConfigRecord() for name in ("train_config", "evaluate_config")
        )
        self.evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = given["evaluate_fn"]
        self.post, self.result = Post(grid), Result()
        self.longest = min(float(getattr(unwrapped(grid), "pull_interval", LONGEST)), LONGEST)
        self._begun = self.session.version  # versions before this start
        self._shown: int | None = None  # the version of the model that the base was shown last
        self._looks = self._asks = -math.inf  # when the server looks again who is there; when it asks again in any case
        self._alone = monotonic()  # when somebody was last there, or at work
        self._found: Set[str] = frozenset()  # who was there when clients were last asked
        self._ended = -1  # tasks that had ended then

    @property
    def stream(self) -> Stream:
        """The work in flight, to look at."""
        assert self.session.stream is not None
        return self.session.stream.stream

    @property
    def played(self) -> int:
        """Moves of the model since the start."""
        return self.session.version - self._begun

    def run(self) -> Result:
        """Train until the model has moved as often as it was asked for."""
        log.info("Asynchronous training of %d versions: %r", self.versions, self.pace)
        self.selected.summary()
        self.give_up()
        self.measure_here()
        pause = SOON
        while True:
            heard = self.hear()
            self.commit()
            if self.played >= self.versions:
                break
            self.check()
            pause = min(SOON if self.ask() or heard else LONGER * pause, self.longest)
            sleep(pause)
        log.info("Final results:")
        for line in str(self.result).splitlines():
            log.info("\t%s", line)
        return self.result

    def check(self) -> None:
        """Raise if no answer can be used at all."""
        ended = self.stream.ended
        if len(ended) > IN_VAIN * self.pace.concurrency and not self.stream.held:
            counts = Counter(each.status.name for each in ended)
            raise FedpickError(
                f"Selected: none of the last {len(ended):,} tasks can be used: {dict(counts)}; see the log for why"
            )

    def give_up(self) -> None:
        """End the tasks of an earlier start: Flower does not hand over the replies to the messages of another run."""
        if tasks := self.session.tasks:
            log.info("%d tasks were in flight when the last run ended", len(tasks))
            self.session.give_up([task.id for task in tasks])

    def commit(self) -> None:
        """Let the model move if it may and is still to."""
        while self.played < self.versions and (commit := self.session.commit()) is not None:
            self.move(commit)
            self.evaluate()

    def hear(self) -> bool:
        """Hand the replies that are there to the session, which are one instant; returns whether there are any."""
        replies = self.post.pull()
        for sent, message in replies:
            self.take(sent, message)
        return bool(replies)

    def take(self, sent: Sent, message: Message) -> None:
        """Hand a reply to the session."""
        if is_expiry(message) and monotonic() - sent.at >= 0.9 * sent.lives:
            return  # no answer came in time: the session gives the task up
        reply = read_reply(message, sent=sent.model, weight=self.base.weight, names=self.session.reports)
        if not reply.why:
            reply.moves = reply.changes()
            if reply.moves.keys() != sent.model.keys():
                reply.why = "its arrays cannot be compared with the model's"
        if reply.why:
            self.session.failed(sent.task.id, f"{reply.why} (node {sent.node})")
            return
        self.session.done(
            sent.task.id,
            update=reply,
            loss=reply.loss,
            seconds=reply.seconds,
            size=reply.size,
            reports=reply.reports,
        )

    def ask(self) -> bool:
        """Send tasks to clients, if places are free and somebody is there; returns whether any was sent."""
        found = self.look()
        if not found:
            return False
        session = self.session
        tasks = session.ask(available=self.selected._nodes.described(self.grid, found, self.selected._limit))
        if not tasks:
            return False
        chosen = {found[task.name]: task for task in tasks}
        messages = self.configure(list(chosen), len(found))
        to = {message.metadata.dst_node_id for message in messages}
        if not to <= chosen.keys() or len(to) < len(messages):
            raise ContractError(
                f"{type(self.base.strategy).__name__}.configure_train made {len(messages)} messages to {len(to)} "
                f"nodes, {len(to - chosen.keys())} of which were not chosen; it must send at most one message to each "
                "node of its grid"
            )
        if fewer := [task.id for node, task in chosen.items() if node not in to]:  # the base asks fewer clients
            session.skip(fewer)
        self._ended = self.ended  # so that these are not asked again at once
        messages.sort(key=lambda message: chosen[message.metadata.dst_node_id].id)  # the base mixes them
        expire(messages, self.pace.timeout)
        for task in self.post.push(chosen, messages, self.model):
            session.failed(task.id, "Flower refused the message", answered=False)
        return True

    def look(self) -> dict[str, int]:
        """The connected clients that may be asked, with their nodes, if it is time to ask; else none."""
        now, ended = monotonic(), self.ended
        if not self.stream.free or (ended == self._ended and now < self._looks):
            return {}
        self._looks = now + min(ARRIVALS, self.pace.wait)
        nodes, grid, limit = self.selected._nodes, self.grid, self.selected._limit
        found = nodes.there(grid, limit)
        if found or self.stream.flying:
            self._alone = now
        elif now - self._alone >= self.selected.wait:
            nodes.quorum.nobody(self.selected.wait)
            self._alone = now
        if ended == self._ended and found.keys() == self._found and now < self._asks:
            return {}
        self._found, self._ended, self._asks = found.keys(), ended, now + self.pace.wait
        return found

    @property
    def ended(self) -> int:
        """Tasks that have ended."""
        return self.stream.issued - len(self.stream.flying)

    def configure(self, nodes: list[int], of: int) -> list[Message]:
        """The base's messages to these nodes with the present model, which the base may keep until it aggregates."""
        self._shown = version = self.session.version
        shown = {SAMPLED: lambda asked, _: (SAMPLED, asked, of) if nodes else (f"{SAMPLED}, to have the model", 0, 0)}
        config = ConfigRecord(dict(self.train_config))  # the base writes into it, and messages that wait refer to it
        with corrected(shown), self.base.at_most(len(nodes), fraction_train=1.0):
            configure = self.base.original("configure_train")
            return list(configure(version + 1, self.model, config, RestrictedGrid(self.grid, nodes)))

    def move(self, commit: Commit) -> None:
        """Let the base make the next version of the model; the commit is closed with it."""
        version, parts, number = self.session.version, commit.parts(), self.played + 1
        names = ", ".join(part.task.name for part in parts)
        result: tuple[ArrayRecord | None, MetricRecord | None] = None, None
        if self._shown != version:
            self.configure([], 0)  # FedAdam keeps the model that it is to move
        with self.selected._aggregation.trying(f"version {version}", names):
            replies = usable(parts, self.model, str(self.base.weight), self.pace.mixing is not None)
            result = self.base.original("aggregate_train")(version + 1, replies)
        if result[0] is not None:
            self.model = self.result.arrays = result[0]
        # Closed after the aggregation, so that the model is on the disk before the state.
        commit.model = None if self.session.memory is None else arrays_of(self.model)
        commit.megabytes = sum(len(array.data) for array in self.model.values()) / 1e6
        commit.close()
        self._ended = -1  # clients may be asked now
        if (found := self.selected._measure(result[1], training=True)) is not None:
            self.result.train_metrics_clientapp[number] = found

    def evaluate(self) -> None:
        """Evaluate the present version as the base does, by clients that do not work, and at the server."""
        version, config = self.session.version, ConfigRecord(dict(self.evaluate_config))
        self.selected._working = self.post.nodes  # which would evaluate only when they have trained
        messages = list(self.selected.configure_evaluate(version, self.model, config, self.grid))
        if messages:
            replies = exchange(self.grid, messages, self.selected._limit, meanwhile=self.hear)
            if (found := self.selected.aggregate_evaluate(version, replies)) is not None:
                self.result.evaluate_metrics_clientapp[self.played] = found
        self.measure_here()

    def measure_here(self) -> None:
        """Evaluate the present version at the server."""
        if self.evaluate_fn is not None:
            found = self.selected._measure(self.evaluate_fn(self.played, self.model))
            if found is not None:
                self.result.evaluate_metrics_serverapp[self.played] = found
