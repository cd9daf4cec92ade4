"""The messages and replies of one round: check the replies, set each client's status, pass the rest to the base.

A reply that Flower's strategies cannot aggregate (different keys or shapes, NaN, no weight) would end the ServerApp
with an exception. Here it counts as a failure of its client, and the base strategy does not get it.
"""

import logging
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Error, Message, MetricRecord
from flwr.serverapp import Grid

from fedpick.errors import ContractError
from fedpick.flower.grids import Arrivals, Watched
from fedpick.server import Round
from fedpick.server.late import Part, flat
from fedpick.server.moves import Arrays, moves, onto
from fedpick.server.reading import printable, size
from fedpick.server.updates import Update, agree, arrays_fault, metrics_fault
from fedpick.types import Status

__all__ = ["Exchange", "Heard", "numbers", "read", "to_record"]

log = logging.getLogger("flwr.fedpick")

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
    """A reply, what was read from it, and the model that its client was sent."""

    reply: Message
    sent: ArrayRecord | None

    @property
    def record(self) -> ArrayRecord:
        """The arrays of the trained model."""
        return next(iter(self.reply.content.array_records.values()))

    @property
    def moves(self) -> Arrays:
        """What training added to the arrays of the model."""
        assert self.sent is not None
        return moves(numbers(self.record, self.sent), numbers(self.sent, self.sent))

    def move(self, model: ArrayRecord, times: float) -> None:
        """Replace the trained model by the present one plus so many times what training added."""
        record, now = self.record, numbers(model, model)
        for name, values in onto(now, self.moves, times).items():
            record[name] = Array(values)

    def weigh(self, metric: str, weight: float) -> None:
        """Give the update this weight in the base's average."""
        next(iter(self.reply.content.metric_records.values()))[metric] = weight


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
        shape, wrong = arrays_fault(numbers(record, sent), None if weight is None else sent)
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
    heard = Heard(reply=reply, sent=sent)
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
            heard.size = 1.0 if weight is None else size(record.get(weight))
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
        weight: name of the metric that weights the base's average; None: it has none.
        reports: names of the reports to read.
    """

    round: Round
    names: dict[int, str]
    messages: dict[int, Message]
    arrays: ArrayRecord
    grid: Grid
    weight: str | None
    reports: Iterable[str]
    heard: dict[int, Heard] = field(default_factory=dict)  # by node id, in the order of arrival
    status: dict[int, Status | None] = field(default_factory=dict)

    @property
    def _arrivals(self) -> Arrivals:
        return self.grid.last if isinstance(self.grid, Watched) else Arrivals(limit=self.round.limit)

    def read(self, reply: Message) -> Heard:
        """Read and check a reply to this round's training."""
        return read(reply, sent=self.arrays, weight=self.weight, names=self.reports)

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

    def judge(self) -> list[Part]:
        """Report each client's result to the session, and close the round; returns the updates to aggregate."""
        arrivals, round = self._arrivals, self.round
        round.limit = arrivals.limit
        round.megabytes = sum(len(array.data) for array in self.arrays.values()) / 1e6
        for node, each in self.heard.items():
            each.why = each.why and f"{each.why} (node {node})"
            took = arrivals.took.get(self.messages[node].metadata.message_id)
            self.status[node] = round.take(self.names[node], each, arrived=took)
        for node, message in self.messages.items():
            if message.metadata.message_id in arrivals.refused:
                round.failed(self.names[node], f"Flower refused the message (node {node})", answered=False)
        try:
            parts = round.parts(lambda heard: flat(heard.moves))
        except ContractError as error:  # such as models whose size changes while they are trained
            log.warning("round %d: late replies are not used: %s", round.number, error)
            parts = [Part(name, heard, 1.0, 0, round.base(name)) for name, heard in round.updates.items()]
        round.close()
        return parts

    def weigh(self, parts: Sequence[Part]) -> None:
        """Give the updates the policy's weights, where it has some, and late ones what they count for."""
        if self.weight is None:
            return
        own, choice = self.round.choice.weights is not None, self.round.choice
        total = 1.0 if choice.normalise else sum(part.weight for part in parts)
        for part in parts:
            if own or part.rounds:
                part.update.weigh(self.weight, part.base)
            # The base divides by the total, so that updates are scaled by it first; late ones had another model.
            if part.weight and (part.rounds or abs(total - 1.0) > 1e-12):
                part.update.move(self.arrays, total)

    def usable(self, parts: Sequence[Part]) -> list[Message]:
        """The replies for the base: updates to aggregate, and failures as errors, because DP wrappers count them."""
        # A weight of 0 is no update; Flower could not divide by a sum of 0.
        handed = [part.update.reply for part in parts if part.weight or self.weight is None]
        for node, each in self.heard.items():
            if each.reply.has_error():
                handed.append(each.reply)
            elif self.status[node] == Status.FAILED:
                handed.append(Message(Error(UNUSABLE, f"fedpick: {each.why}"), reply_to=self.messages[node]))
        return handed
