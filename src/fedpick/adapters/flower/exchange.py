"""The messages and replies of one round: check the replies, set each client's status, pass the rest to the base.

A reply that Flower's strategies cannot aggregate (different keys or shapes, NaN, no weight) would end the ServerApp
with an exception. Here it counts as a failure of its client, and the base strategy does not get it.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from flwr.app import Array, ArrayRecord, Error, Message
from flwr.serverapp import Grid

from fedpick.adapters.arrivals import Arrivals
from fedpick.adapters.flower.messages import first
from fedpick.adapters.round import FrameworkRound
from fedpick.adapters.updates import Arrays, Update, moves, onto
from fedpick.core.bounds import largest
from fedpick.core.types import Status
from fedpick.server.settings import Limits
from fedpick.server.validation import printable

__all__ = ["Exchange", "Reply", "is_expiry", "limit_sizes", "numbers", "read_reply"]

EXPIRED = (3, 4)  # Flower's codes for a message or a reply whose time to live has passed
UNUSABLE = 0  # Flower's code for an unknown error


def numbers(record: Mapping[str, Array], model: Mapping[str, Array] | None) -> dict[str, Any]:
    """The record as NumPy arrays; those in a format that the model has too, and that only the base reads, unchanged."""
    like = model or {}
    foreign = {name for name in record if name in like and record[name].stype == like[name].stype != "numpy.ndarray"}
    return {name: array if name in foreign else array.numpy() for name, array in record.items()}


@dataclass(kw_only=True)
class Reply(Update):
    """A reply with its contents, and the model that its client was sent; None in evaluation."""

    message: Message
    sent: ArrayRecord | None
    record: Any = None  # the arrays of the trained model
    metrics: Any = None

    def changes(self) -> Arrays:
        """What training added to the arrays of the model."""
        assert self.sent is not None
        return moves(numbers(self.record, self.sent), numbers(self.sent, self.sent))

    def move(self, model: ArrayRecord, changes: Arrays, times: float) -> None:
        """Replace the trained model by this one plus the changes times the factor."""
        for name, values in onto(numbers(model, model), changes, times).items():
            self.record[name] = Array(values)


def read_reply(message: Message, *, sent: ArrayRecord | None, weight: str | None, names: Iterable[str] = ()) -> Reply:
    """Read and check one reply.

    Args:
        message: to read.
        sent: the model that was sent to be trained; None: it is a reply to evaluation.
        weight: name of the metric that weights the base's average; None: not known.
        names: of the reports to read.
    """
    reply = Reply(message=message, sent=sent)
    if message.has_error():
        reply.why = printable(f"error {message.error.code}: {(message.error.reason or '')[-200:]}")
        return reply
    with reply.reading():
        metrics, arrays = message.content.metric_records, {} if sent is None else message.content.array_records
        reply.metrics, reply.record = first(metrics), first(arrays)
        records: dict[str, Any] = {"MetricRecords": metrics}
        if sent is not None:
            records["ArrayRecords"] = arrays
        wrong = (f"{len(each)} {kind} instead of one" for kind, each in records.items() if len(each) != 1)
        reply.why = "" if weight is None else next(wrong, "")
        model = {key: numbers(each, sent) for key, each in arrays.items()}
        reply.check(model, metrics, sent, weight, "nothing" if weight is None else "all")
        reply.read_metrics(reply.metrics, names, weight, finite=sent is None)
    return reply


def is_expiry(reply: Message) -> bool:
    """Whether Flower says that no answer came in time, or none that it still has."""
    return reply.has_error() and reply.error.code in EXPIRED


def limit_sizes(replies: Iterable[Reply], weight: str | None, limits: Limits) -> None:
    """Let no size count for more than `limits` allow beside those of the other replies, whose metrics are averaged."""
    usable = [each for each in replies if not each.why]
    if weight is None or limits.size_factor is None:
        return
    most = largest([each.size for each in usable], limits.size_factor, limits.size_quantile)
    for each in usable:
        if each.size > most:
            each.metrics[weight] = most


@dataclass(eq=False, kw_only=True)
class Exchange(FrameworkRound):
    """A round of the session with its messages and replies."""

    sent: ArrayRecord
    messages: dict[str, Message]  # by the clients' names
    grid: Grid  # Flower's, for replies that come late
    arrivals: Arrivals
    replies: dict[str, Reply] = field(default_factory=dict)  # by the clients' names, in the order of arrival
    _asked: dict[str, str] = field(default_factory=dict)  # the clients' names by message
    _good: Counter[Hashable] = field(default_factory=Counter)  # draws whose replies can be used together

    def __post_init__(self) -> None:
        self.arrivals.enough = self.enough

    def read(self, message: Message) -> Reply:
        """Read and check a reply to this round's training."""
        reply = read_reply(message, sent=self.sent, weight=self.weight, names=self.session.reports)
        self.note(reply, reply.changes)
        return reply

    def receive(self, messages: Iterable[Message]) -> None:
        """Read the replies; they are handed to the session by `judge`."""
        # The sender of an error reply can be the SuperLink: only the message that it answers identifies the client.
        if len(self._asked) < len(self.messages):  # messages get their ids when they are sent, perhaps in parts
            ids = ((message.metadata.message_id, name) for name, message in self.messages.items())
            self._asked = {id: name for id, name in ids if id}
        for message in messages:
            name = self._asked.get(message.metadata.reply_to_message_id)
            if name is not None and name not in self.replies and not self._expired(message, self.messages[name]):
                self.replies[name] = self.read(message)

    def enough(self, message: Message) -> bool:
        """Take a reply as it comes; whether as many can be used as the round needs."""
        before, keep = len(self.replies), self.round.cohort.keep
        self.receive([message])
        if len(self.replies) == before:  # not a reply to this round's training
            return False
        name, reply = next(reversed(self.replies.items()))
        if reply.why or keep is None:
            return False
        self._good[reply.shape] += self.round.drawn(name)
        return self._good[reply.shape] >= keep

    def _expired(self, reply: Message, message: Message) -> bool:
        """Whether the time to live has passed, which is treated as no answer: the client is LATE."""
        seen = self.arrivals.seen.get(message.metadata.message_id)
        return is_expiry(reply) and (seen is None or seen >= 0.9 * message.metadata.ttl)

    def judge(self) -> None:
        """Report each client's result to the session; the round ends when it is closed, with the new model."""
        self.round.limit = self.arrivals.limit
        self.round.megabytes = sum(len(array.data) for array in self.sent.values()) / 1e6
        for name, each in self.replies.items():
            about = self.messages[name].metadata
            each.why = each.why and f"{each.why} (node {about.dst_node_id})"
            self.take(name, each, self.arrivals.took.get(about.message_id))
        for name, message in self.messages.items():
            if message.metadata.message_id in self.arrivals.refused:
                why = f"Flower refused the message (node {message.metadata.dst_node_id})"
                self.round.failed(name, why, answered=False)
        self.settle()

    def usable(self) -> list[Message]:
        """The replies for the base: updates to aggregate, and failures as errors, because DP wrappers count them."""
        handed, times = [], self.times
        for name, each in self.replies.items():
            if each.message.has_error():
                handed.append(each.message)
            elif each.status == Status.FAILED:
                handed.append(Message(Error(UNUSABLE, f"fedpick: {each.why}"), reply_to=self.messages[name]))
            elif each.status == Status.DONE and self.counts(name):
                if self.weighted:
                    each.metrics[self.weight] = self.round.base(name)
                elif self.weight is not None and (size := self.round.size(name)) < each.size:
                    each.metrics[self.weight] = size
                if abs(times - 1.0) > 1e-12:  # the base divides by it, so that the update is scaled by it first
                    each.move(self.sent, each.changes(), times)
                handed.append(each.message)
        for late, base in self.late:
            late.update.metrics[self.weight] = base
            late.update.move(self.sent, late.update.moves, times)  # as if it had been sent this round's model
            handed.append(late.update.message)
        return handed

    def pull(self) -> bool:
        """Look for replies that come after the round was closed, and keep them; returns whether more may come."""
        late, number = self.session.late, self.round.number
        owed = {m.metadata.message_id: name for name, m in self.messages.items() if late.owes(name, number)}
        for reply in self.grid.pull_messages(set(owed)) if owed else ():
            name = owed.pop(reply.metadata.reply_to_message_id, None)
            if name is not None and not is_expiry(reply):  # then it stays busy until its answer would be too late
                self.take(name, self.read(reply))
        return bool(owed)
