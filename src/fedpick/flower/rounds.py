"""A round between the choice and its outcome: who was asked, who answered, how each is judged."""

import logging
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from flwr.app import ArrayRecord, Error, Message
from flwr.serverapp import Grid

from fedpick.flower.grids import Exchange, Watched
from fedpick.flower.replies import Heard, read
from fedpick.store.records import Record
from fedpick.types import Choice, Floats, Outcome, Status, View

__all__ = ["Asked"]

log = logging.getLogger("flwr.fedpick")

EXPIRED = (3, 4)  # Flower's codes for a message or a reply whose time to live has passed
UNUSABLE = 0  # Flower's code for an unknown error


@dataclass(eq=False)
class Asked:
    """A round whose messages are on their way.

    Args:
        number: of the round, since the policy began.
        view: that the policy chose with.
        choice: of the policy, less those that the base did not ask.
        nodes: node id of each chosen client.
        messages: by node id.
        arrays: the model that they carry.
        grid: that they go through; a Watched one knows when replies came.
        deadline: seconds, where the grid does not know.
        probes: how many clients were asked for their loss before.
        probing: seconds that this took.
        wall: seconds that the policy itself took to choose.
    """

    number: int
    view: View
    choice: Choice
    nodes: list[int]
    messages: dict[int, Message]
    arrays: ArrayRecord
    grid: Grid
    deadline: float | None
    probes: int
    probing: float
    wall: float

    @property
    def _exchange(self) -> Exchange:
        return self.grid.last if isinstance(self.grid, Watched) else Exchange(limit=self.deadline)

    def read(self, replies: Iterable[Message], weight: str | None, names: Iterable[str]) -> dict[int, Heard]:
        """What was heard, by the node that was asked, in the order of arrival."""
        # Error replies can carry the SuperLink's id as their sender: only the message they answer tells whose it was.
        node_of = {message.metadata.message_id: node for node, message in self.messages.items()}
        names = tuple(names)
        heard: dict[int, Heard] = {}
        for reply in replies:
            node = node_of.get(reply.metadata.reply_to_message_id)
            if node is None or node in heard:
                continue
            if reply.has_error() and reply.error.code in EXPIRED and self._expired(self.messages[node]):
                continue  # the same as no answer, which it would have been a moment earlier
            heard[node] = read(reply, sent=self.arrays, weight=weight, names=names)
        return heard

    def _expired(self, message: Message) -> bool:
        took = self._exchange.took.get(message.metadata.message_id)
        return took is None or took >= 0.9 * message.metadata.ttl

    def judge(self, heard: dict[int, Heard], keep: int | None) -> dict[int, Status]:
        """The status of each node; of those that answered in time, the first `keep` are used."""
        refused = self._exchange.refused
        status: dict[int, Status] = {}
        for node, message in self.messages.items():
            status[node] = Status.FAILED if message.metadata.message_id in refused else Status.LATE
        used = 0
        for node, each in heard.items():
            if each.why:
                log.warning("round %d: node %d failed: %s", self.number, node, each.why)
                status[node] = Status.FAILED
            else:
                status[node] = Status.DONE if keep is None or used < keep else Status.SURPLUS
                used += 1
        return status

    def outcome(
        self, heard: dict[int, Heard], status: dict[int, Status], reports: dict[str, Floats], trust: bool
    ) -> Outcome:
        """What the policy learns from; `trust` takes the seconds that clients report."""
        done, silent = self._exchange, np.nan
        limit = np.inf if done.limit is None else done.limit
        seconds, loss = dict.fromkeys(self.messages, silent), dict.fromkeys(self.messages, silent)
        for node, message in self.messages.items():
            if status[node] == Status.LATE:
                seconds[node] = silent if done.limit is None else limit
            elif status[node] != Status.FAILED:
                loss[node] = heard[node].loss
                reported = heard[node].seconds
                sane = trust and 0 < reported <= limit and reported < np.inf
                seconds[node] = reported if sane else done.took.get(message.metadata.message_id, silent)
        return Outcome(
            status=np.array([status[node] for node in self.nodes], dtype=np.int8),
            duration=[seconds[node] for node in self.nodes],
            loss=[loss[node] for node in self.nodes],
            reports=reports,
        )

    def usable(self, heard: dict[int, Heard], status: dict[int, Status]) -> list[Message]:
        """What the base is handed: the updates to aggregate, and failures as errors, which DP wrappers count."""
        handed = []
        for node, each in heard.items():
            if status[node] == Status.DONE or each.reply.has_error():
                handed.append(each.reply)
            elif status[node] == Status.FAILED:
                handed.append(Message(Error(UNUSABLE, f"fedpick: {each.why}"), reply_to=self.messages[node]))
        return handed

    def record(self, clock: float, answered: int, outcome: Outcome, learning: float) -> Record:
        """The round as the store keeps it; `clock` is what rounds before took, `learning` the policy's own time."""
        seconds = self.probing + self._exchange.seconds
        model = sum(len(array.data) for array in self.arrays.values()) / 1e6
        asked, choice = len(self.messages), self.choice
        return Record.of(
            self.view,
            choice,
            outcome,
            clock=clock + seconds,
            seconds=seconds,
            messages=asked + answered + 2 * self.probes,
            megabytes=model * (asked + answered + self.probes),
            wall={"selection": self.wall + learning},
        )
