"""The messages and replies of one round: check the replies, set each client's status, pass the rest to the base.

A reply that Flower's strategies cannot aggregate (different keys or shapes, NaN, no weight) would end the ServerApp
with an exception. Here it counts as a failure of its client, and the base strategy does not get it.
"""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Error, Message, MetricRecord
from flwr.serverapp import Grid

from fedpick.flower.grids import Arrivals, Watched
from fedpick.server import Round
from fedpick.server.reading import printable
from fedpick.server.updates import Update, agree, arrays_fault, metrics_fault
from fedpick.types import Status

__all__ = ["Exchange", "Heard", "read"]

EXPIRED = (3, 4)  # Flower's codes for a message or a reply whose time to live has passed
UNUSABLE = 0  # Flower's code for an unknown error


@dataclass(kw_only=True)
class Heard(Update):
    """A reply and what was read from it."""

    reply: Message


def _look(reply: Message, sent: ArrayRecord | None, weight: str | None, train: bool) -> tuple[Hashable, bool, str]:
    """(what must be equal in all replies, whether its arrays have the names of the model sent, what is wrong)."""
    records = (*reply.content.array_records.items(),) if train else ()
    if train and weight is not None and len(records) != 1:
        return None, False, f"{len(records)} ArrayRecords instead of one"
    if weight is not None and len(reply.content.metric_records) != 1:
        return None, False, f"{len(reply.content.metric_records)} MetricRecords instead of one"
    shapes: list[Hashable] = []
    like = True
    for key, record in records:
        arrays = {name: _values(array, None if sent is None else sent.get(name)) for name, array in record.items()}
        shape, wrong = arrays_fault(arrays, None if weight is None else sent)
        if wrong:
            return None, False, wrong
        like = like and sent is not None and set(record) == set(sent)
        shapes.append((key, shape))
    for key, metrics in reply.content.metric_records.items():
        shape, wrong = metrics_fault(metrics, weight)
        if wrong:
            return None, False, wrong
        shapes.append((key, shape))
    return tuple(shapes), like, ""


def _values(array: Array, model: Array | None) -> Any:
    """The array as a NumPy array; unchanged if it is, like the model, in a format that only the base can read."""
    own = model is not None and array.stype == model.stype != "numpy.ndarray"
    return array if own else array.numpy()


def read(
    reply: Message, *, sent: ArrayRecord | None, weight: str | None, names: Iterable[str] = (), train: bool = True
) -> Heard:
    """Read and check one reply.

    Args:
        reply: to read.
        sent: the model that was sent.
        weight: name of the metric that weights the base's average; None: not known.
        names: of the reports to read.
        train: whether it is a reply to training, else to evaluation.
    """
    heard = Heard(reply=reply)
    if reply.has_error():
        heard.why = printable(f"error {reply.error.code}: {(reply.error.reason or '')[-200:]}")
        return heard
    try:
        heard.shape, heard.like_sent, heard.why = _look(reply, sent, weight, train)
        record = next(iter(reply.content.metric_records.values()), MetricRecord())
        if not heard.why and not train:
            bad = next((name for name, value in record.items() if not np.isfinite(value).all()), None)
            heard.why = "" if bad is None else f"metric {bad!r} is NaN or infinite"  # so would be the mean
        if not heard.why:
            heard.say(record, names)
    except Exception as error:  # whatever the client sent: bytes that are no array, records of another kind, ...
        heard.why = f"unreadable: {type(error).__name__}: {error}"
    heard.why = printable(heard.why)
    return heard


@dataclass(eq=False, kw_only=True)
class Exchange:
    """A round of the session with its messages and replies.

    Args:
        round: of the session.
        names: of the clients that were asked, by node id.
        messages: by node id.
        arrays: the model that was sent.
        grid: that sends the messages; a `Watched` one knows when replies arrived.
    """

    round: Round
    names: dict[int, str]
    messages: dict[int, Message]
    arrays: ArrayRecord
    grid: Grid
    heard: dict[int, Heard] = field(default_factory=dict)  # by node id, in the order of arrival
    status: dict[int, Status | None] = field(default_factory=dict)

    @property
    def _arrivals(self) -> Arrivals:
        return self.grid.last if isinstance(self.grid, Watched) else Arrivals(limit=self.round.limit)

    def hear(self, replies: Iterable[Message], weight: str | None, reports: Iterable[str], usual: Hashable) -> Hashable:
        """Read the replies; returns what the usable ones have in common (`usual` in the next round)."""
        # The sender of an error reply can be the SuperLink: only the message that it answers identifies the node.
        node_of = {message.metadata.message_id: node for node, message in self.messages.items()}
        for reply in replies:
            node = node_of.get(reply.metadata.reply_to_message_id)
            if node is None or node in self.heard:
                continue
            if reply.has_error() and reply.error.code in EXPIRED and self._expired(self.messages[node]):
                continue  # treated as no answer: the client is LATE
            self.heard[node] = read(reply, sent=self.arrays, weight=weight, names=reports)
        return agree(list(self.heard.values()), usual)

    def refused(self, message: Message) -> bool:
        """Whether Flower did not send this message."""
        return message.metadata.message_id in self._arrivals.refused

    def _expired(self, message: Message) -> bool:
        took = self._arrivals.took.get(message.metadata.message_id)
        return took is None or took >= 0.9 * message.metadata.ttl

    def judge(self) -> None:
        """Report each client's result to the session, and close the round."""
        arrivals, round = self._arrivals, self.round
        round.limit = arrivals.limit
        round.megabytes = sum(len(array.data) for array in self.arrays.values()) / 1e6
        for node, each in self.heard.items():
            if each.why:
                self.status[node] = round.failed(self.names[node], f"{each.why} (node {node})")
                continue
            self.status[node] = round.done(
                self.names[node],
                loss=each.loss,
                seconds=each.seconds,
                reports=each.reports,
                update=next(iter(each.reply.content.array_records.values()), None),
                arrived=arrivals.took.get(self.messages[node].metadata.message_id),
            )
        for node, message in self.messages.items():
            if self.refused(message):
                round.failed(self.names[node], f"Flower refused the message (node {node})", answered=False)
        round.close()

    def sizes(self, weight: str | None) -> dict[str, float]:
        """The metric by which the base averages, by name; 1 where it has none."""
        found = {}
        for node, each in self.heard.items():
            said: Any = 1.0
            if weight is not None and not each.reply.has_error():
                said = next(iter(each.reply.content.metric_records.values()), MetricRecord()).get(weight, 1.0)
            found[self.names[node]] = float(said) if isinstance(said, int | float) and said > 0 else 1.0
        return found

    def usable(self, weight: str | None, late: Sequence[tuple[Heard, float]] = ()) -> list[Message]:
        """The replies for the base: updates to aggregate, and failures as errors, because DP wrappers count them.

        Args:
            weight: the metric by which the base averages; the policy's weights, where it has some, take its place.
            late: replies of earlier rounds, and what each counts for.
        """
        handed, weights = [], None if weight is None else self.round.weights
        total = (
            1.0 if weights is None or self.round.choice.normalise else sum(weights.values()) + sum(w for _, w in late)
        )
        for node, each in self.heard.items():
            if each.reply.has_error():
                handed.append(each.reply)
            elif self.status[node] == Status.DONE:
                share = None if weights is None else weights[self.names[node]]
                if share != 0.0:  # a weight of 0 is no update; Flower could not divide by a sum of 0
                    handed.append(each.reply)
                if share and weight is not None and weights is not None:
                    self._weigh(each.reply, weight, share, total)
            elif self.status[node] == Status.FAILED:
                handed.append(Message(Error(UNUSABLE, f"fedpick: {each.why}"), reply_to=self.messages[node]))
        for each, share in late:
            if share > 0.0 and weight is not None:
                self._weigh(each.reply, weight, share, total)
                handed.append(each.reply)
        return handed

    def _weigh(self, reply: Message, weight: str, share: float, total: float) -> None:
        """Give the update its share; the base divides by the total, so that the update is scaled by it first."""
        next(iter(reply.content.metric_records.values()))[weight] = share
        if abs(total - 1.0) <= 1e-12:
            return
        for record in reply.content.array_records.values():
            for name, array in record.items():
                sent = self.arrays.get(name, None)
                values, old = _values(array, sent), None if sent is None else _values(sent, sent)
                if isinstance(values, np.ndarray) and isinstance(old, np.ndarray) and values.shape == old.shape:
                    record[name] = Array(np.asarray(old + total * (values - old)))
