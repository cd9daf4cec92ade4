"""The messages and replies of one round: check the replies, set each client's status, pass the rest to the base.

A reply that Flower's strategies cannot aggregate (different keys or shapes, NaN, no weight) would end the ServerApp
with an exception. Here it counts as a failure of its client, and the base strategy does not get it.
"""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Error, Message, MetricRecord
from flwr.serverapp import Grid

from fedpick.flower.grids import Arrivals, Watched
from fedpick.server.averaging import Averaging
from fedpick.server.moves import Arrays, moves, onto
from fedpick.server.reading import printable, size
from fedpick.server.updates import Update, agree
from fedpick.types import Status

__all__ = ["Exchange", "Heard", "numbers", "read", "to_record"]

EXPIRED = (3, 4)  # Flower's codes for a message or a reply whose time to live has passed
UNUSABLE = 0  # Flower's code for an unknown error


def numbers(record: Mapping[str, Array], model: Mapping[str, Array] | None) -> dict[str, Any]:
    """The record as NumPy arrays; those that, like the model's, only the base can read are left as they are."""
    found: dict[str, Any] = {}
    for name, array in record.items():
        like = None if model is None else model.get(name)
        own = like is not None and array.stype == like.stype != "numpy.ndarray"
        found[name] = array if own else array.numpy()
    return found


def to_record(arrays: Mapping[str, Any]) -> ArrayRecord:
    """NumPy arrays as Flower's."""
    return ArrayRecord({name: Array(np.asarray(values)) for name, values in arrays.items()})


@dataclass(kw_only=True)
class Heard(Update):
    """A reply, what was read from it, and the model that its client was sent; None in evaluation."""

    reply: Message
    sent: ArrayRecord | None

    @property
    def record(self) -> ArrayRecord:
        """The arrays of the trained model."""
        return next(iter(self.reply.content.array_records.values()))

    def changes(self) -> Arrays:
        """What training added to the arrays of the model."""
        assert self.sent is not None
        return moves(numbers(self.record, self.sent), numbers(self.sent, self.sent))

    def move(self, model: ArrayRecord, changes: Arrays, times: float) -> None:
        """Replace the trained model by this one plus so many times the changes."""
        record = self.record
        for name, values in onto(numbers(model, model), changes, times).items():
            record[name] = Array(values)

    def weigh(self, metric: str, weight: float) -> None:
        """Give the update this weight in the base's average."""
        next(iter(self.reply.content.metric_records.values()))[metric] = weight


def read(reply: Message, *, sent: ArrayRecord | None, weight: str | None, names: Iterable[str] = ()) -> Heard:
    """Read and check one reply.

    Args:
        reply: to read.
        sent: the model that was sent to be trained; None: it is a reply to evaluation.
        weight: name of the metric that weights the base's average; None: not known.
        names: of the reports to read.
    """
    heard = Heard(reply=reply, sent=sent)
    if reply.has_error():
        heard.why = printable(f"error {reply.error.code}: {(reply.error.reason or '')[-200:]}")
        return heard
    try:
        records: dict[str, Any] = {"MetricRecords": reply.content.metric_records}
        if sent is not None:
            records["ArrayRecords"] = reply.content.array_records
        if weight is not None:
            heard.why = next(
                (f"{len(each)} {kind} instead of one" for kind, each in records.items() if len(each) != 1), ""
            )
        arrays = {key: numbers(each, sent) for key, each in records.get("ArrayRecords", {}).items()}
        heard.check(arrays, records["MetricRecords"], sent, weight, "nothing" if weight is None else "all")
        record = next(iter(records["MetricRecords"].values()), MetricRecord())
        if not heard.why and sent is None:
            bad = next((name for name, value in record.items() if not np.isfinite(value).all()), None)
            heard.why = "" if bad is None else f"metric {bad!r} is NaN or infinite"  # so would be the mean
        if not heard.why:
            heard.say(record, names)
            heard.size = 1.0 if weight is None else size(record.get(weight))
    except Exception as error:  # whatever the client sent: bytes that are no array, records of another kind, ...
        heard.why = f"unreadable: {type(error).__name__}: {error}"
    heard.why = printable(heard.why)
    return heard


@dataclass(eq=False, kw_only=True)
class Exchange(Averaging):
    """A round of the session with its messages and replies.

    Args:
        names: of the clients that were asked, by node id.
        messages: by node id.
        grid: that sends the messages; a `Watched` one knows when replies arrived.
        weight: name of the metric that weights the base's average; None: it has none.
    """

    sent: ArrayRecord
    names: dict[int, str]
    messages: dict[int, Message]
    grid: Grid
    weight: str | None
    heard: dict[int, Heard] = field(default_factory=dict)  # by node id, in the order of arrival
    status: dict[int, Status | None] = field(default_factory=dict)

    @property
    def _arrivals(self) -> Arrivals:
        return self.grid.last if isinstance(self.grid, Watched) else Arrivals(limit=self.round.limit)

    def read(self, reply: Message) -> Heard:
        """Read and check a reply to this round's training."""
        heard = read(reply, sent=self.sent, weight=self.weight, names=self.session.reports)
        if self.session.late.rounds and not heard.why:
            heard.moves = heard.changes()
        return heard

    def hear(self, replies: Iterable[Message], usual: Hashable) -> Hashable:
        """Read the replies; returns what the usable ones have in common (`usual` in the next round)."""
        # The sender of an error reply can be the SuperLink: only the message that it answers identifies the node.
        node_of = {message.metadata.message_id: node for node, message in self.messages.items()}
        for reply in replies:
            node = node_of.get(reply.metadata.reply_to_message_id)
            if node is None or node in self.heard:
                continue
            if reply.has_error() and reply.error.code in EXPIRED and self._expired(self.messages[node]):
                continue  # treated as no answer: the client is LATE
            self.heard[node] = self.read(reply)
        return agree(list(self.heard.values()), usual)

    def _expired(self, message: Message) -> bool:
        took = self._arrivals.took.get(message.metadata.message_id)
        return took is None or took >= 0.9 * message.metadata.ttl

    def judge(self) -> None:
        """Report each client's result to the session, and close the round."""
        arrivals, round = self._arrivals, self.round
        round.limit = arrivals.limit
        round.megabytes = sum(len(array.data) for array in self.sent.values()) / 1e6
        for node, each in self.heard.items():
            each.why = each.why and f"{each.why} (node {node})"
            took = arrivals.took.get(self.messages[node].metadata.message_id)
            self.status[node] = self.take(self.names[node], each, took)
        for node, message in self.messages.items():
            if message.metadata.message_id in arrivals.refused:
                round.failed(self.names[node], f"Flower refused the message (node {node})", answered=False)
        self.late = self.weigh_late()
        round.close()

    def usable(self) -> list[Message]:
        """The replies for the base: updates to aggregate, and failures as errors, because DP wrappers count them."""
        handed, times = [], 1.0 if self.weight is None else self.times
        for node, each in self.heard.items():
            if each.reply.has_error():
                handed.append(each.reply)
            elif self.status[node] == Status.FAILED:
                handed.append(Message(Error(UNUSABLE, f"fedpick: {each.why}"), reply_to=self.messages[node]))
            elif self.status[node] == Status.DONE and self._weigh(each, self.round.base(self.names[node])):
                if abs(times - 1.0) > 1e-12:  # the base divides by it, so that the update is scaled by it first
                    each.move(self.sent, each.changes(), times)
                handed.append(each.reply)
        for came, base in self.late:
            self._weigh(came.update, base, late=True)
            came.update.move(self.sent, came.update.moves, times)  # as if it had been sent this round's model
            handed.append(came.update.reply)
        return handed

    def _weigh(self, heard: Heard, base: float, late: bool = False) -> bool:
        """Give the update its weight, if it is not the client's own; returns whether it is an update at all."""
        if self.weight is None:
            return True
        if late or self.weighted:
            heard.weigh(self.weight, base)
        return base > 0.0  # Flower could not divide by a sum of 0

    def pull(self, grid: Grid) -> bool:
        """Look for replies that come after the round was closed, and keep them; returns whether more may come."""
        late, number = self.session.late, self.round.number
        owed = {m.metadata.message_id: node for node, m in self.messages.items() if late.owes(self.names[node], number)}
        for reply in grid.pull_messages(set(owed)) if owed else ():
            if (node := owed.pop(reply.metadata.reply_to_message_id, None)) is not None:
                self.take(self.names[node], self.read(reply))
        return bool(owed)
