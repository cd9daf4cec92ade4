"""A round's exchange: the messages, what was heard, how each client is judged, what the base is handed."""

import logging
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field

import numpy as np
from flwr.app import ArrayRecord, Error, Message
from flwr.serverapp import Grid
from numpy.typing import ArrayLike

from fedpick.flower.grids import Arrivals, Watched
from fedpick.flower.replies import Heard, read
from fedpick.server import Round
from fedpick.server.updates import agree
from fedpick.types import Status

__all__ = ["Embed", "Exchange"]

log = logging.getLogger("flwr.fedpick")

EXPIRED = (3, 4)  # Flower's codes for a message or a reply whose time to live has passed
UNUSABLE = 0  # Flower's code for an unknown error
Embed = Callable[[ArrayRecord], ArrayLike]


@dataclass(eq=False, kw_only=True)
class Exchange:
    """A round of the session whose messages are on their way.

    Args:
        round: of the session.
        names: of the clients that were asked, by node id.
        messages: by node id.
        arrays: the model that they carry.
        grid: that they go through; a Watched one knows when replies came.
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
        """Read the replies; returns what the usable ones have in common, which is `usual` in the next round."""
        # Error replies can carry the SuperLink's id as their sender: only the message they answer tells whose it was.
        node_of = {message.metadata.message_id: node for node, message in self.messages.items()}
        for reply in replies:
            node = node_of.get(reply.metadata.reply_to_message_id)
            if node is None or node in self.heard:
                continue
            if reply.has_error() and reply.error.code in EXPIRED and self._expired(self.messages[node]):
                continue  # the same as no answer, which it would have been a moment earlier
            self.heard[node] = read(reply, sent=self.arrays, weight=weight, names=reports)
        return agree(list(self.heard.values()), usual)

    def _expired(self, message: Message) -> bool:
        took = self._arrivals.took.get(message.metadata.message_id)
        return took is None or took >= 0.9 * message.metadata.ttl

    def judge(self, embed: Embed | None) -> None:
        """Tell the session how each client did, and end its round."""
        arrivals, round = self._arrivals, self.round
        round.limit = arrivals.limit
        round.megabytes = sum(len(array.data) for array in self.arrays.values()) / 1e6
        for node, each in self.heard.items():
            if each.why:
                self.status[node] = round.failed(self.names[node], f"{each.why} (node {node})")
                continue
            if embed is not None:
                each.reports["embedding"] = _embedding(embed, node, each)
            self.status[node] = round.done(
                self.names[node],
                loss=each.loss,
                seconds=each.seconds,
                reports=each.reports,
                arrived=arrivals.took.get(self.messages[node].metadata.message_id),
            )
        for node, message in self.messages.items():
            if message.metadata.message_id in arrivals.refused:
                round.failed(self.names[node], f"Flower refused the message (node {node})", answered=False)
        round.close()

    def usable(self) -> list[Message]:
        """What the base is handed: the updates to aggregate, and failures as errors, which DP wrappers count."""
        handed = []
        for node, each in self.heard.items():
            if self.status[node] == Status.DONE or each.reply.has_error():
                handed.append(each.reply)
            elif self.status[node] == Status.FAILED:
                handed.append(Message(Error(UNUSABLE, f"fedpick: {each.why}"), reply_to=self.messages[node]))
        return handed

    @property
    def used(self) -> list[int]:
        """The nodes whose updates the base aggregates."""
        return [node for node, status in self.status.items() if status == Status.DONE]


def _embedding(embed: Embed, node: int, heard: Heard) -> list[float]:
    try:
        arrays = next(iter(heard.reply.content.array_records.values()))
        return [float(value) for value in np.asarray(embed(arrays), dtype=np.float64).ravel()]
    except Exception as error:  # a client's arrays are its own, and must not end the training of the others
        log.warning("embed() failed on the model of node %d: %s: %s", node, type(error).__name__, error)
        return []
