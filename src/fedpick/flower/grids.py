"""Two wrappers of Flower's grid: one shows only some nodes, one measures reply times and enforces the deadline."""

import logging
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from flwr.app import Message
from flwr.serverapp import Grid

from fedpick.server.polling import LONGEST, poll

__all__ = ["Arrivals", "Restricted", "Watched", "exchange", "own"]

log = logging.getLogger("flwr.fedpick")


def _as_inside(name: str) -> Any:
    return lambda self, *args, **options: getattr(self.grid, name)(*args, **options)


class _Around(Grid):
    """A grid that forwards every call to another."""

    def __init__(self, grid: Grid) -> None:
        self.grid = grid

    set_run, create_message = _as_inside("set_run"), _as_inside("create_message")
    get_node_ids, get_nodes = _as_inside("get_node_ids"), _as_inside("get_nodes")
    push_messages, pull_messages = _as_inside("push_messages"), _as_inside("pull_messages")
    send_and_receive = _as_inside("send_and_receive")

    @property
    def run(self) -> Any:
        """The wrapped grid's run."""
        return self.grid.run

    def __getattr__(self, name: str) -> Any:
        if name == "grid":  # not set yet while copying or unpickling
            raise AttributeError(name)
        return getattr(self.grid, name)


def own(grid: Any) -> Any:
    """Flower's own grid, without our wrappers."""
    while isinstance(grid, _Around):
        grid = grid.grid
    return grid


class Restricted(_Around):
    """A grid that shows only these nodes, even if one of them disconnects."""

    def __init__(self, grid: Grid, node_ids: Collection[int]) -> None:
        super().__init__(grid)
        self.node_ids = list(node_ids)

    def get_node_ids(self) -> Iterable[int]:
        """The nodes that are shown."""
        return list(self.node_ids)

    def get_nodes(self) -> Iterable[Any]:
        """Flower's NodeInfo of the nodes that are shown."""
        shown = set(self.node_ids)
        return [node for node in self.grid.get_nodes() if node.node_id in shown]


@dataclass
class Arrivals:
    """When the replies of a round arrived."""

    took: dict[str, float] = field(default_factory=dict)  # seconds until the reply, by message id
    refused: set[str] = field(default_factory=set)  # ids of messages that Flower did not send
    limit: float | None = None  # seconds that were allowed


def exchange(
    grid: Grid, messages: list[Message], limit: float | None, noted: Arrivals | None = None, lives: float = 1.0
) -> list[Message]:
    """Send messages; return the replies in the order of arrival, after all arrived or `limit` seconds have passed.

    Args:
        grid: to send with.
        messages: to send.
        limit: seconds to wait; None: no limit.
        noted: gets the times of arrival.
        lives: how many times the limit a message may be answered: late replies can be pulled later.
    """
    noted = noted or Arrivals()
    if limit is not None:
        for message in messages:  # else a slow client would work on old rounds for up to 12 h
            message.metadata.ttl = min(message.metadata.ttl, lives * limit)

    def send() -> set[str]:
        taken = {name for name in grid.push_messages(messages) if name} if messages else set()
        if refused := {message.metadata.message_id for message in messages} - taken:
            log.warning("Flower accepted only %d of %d messages; see its log", len(taken), len(messages))
            noted.refused |= refused
        return taken

    def pull(names: set[str]) -> Iterable[tuple[str, Message]]:
        return [(reply.metadata.reply_to_message_id, reply) for reply in grid.pull_messages(names)]

    # Flower's own pauses, of 3 s, would make durations inexact.
    found = poll(send, pull, limit, float(getattr(grid, "pull_interval", LONGEST)))
    noted.limit = limit
    noted.took |= {name: took for name, (_, took) in found.items()}
    return [reply for reply, _ in found.values()]


class Watched(_Around):
    """A grid that notes when replies arrive, and stops waiting at the deadline (seconds)."""

    def __init__(self, grid: Grid, deadline: float | None, late: int = 0) -> None:
        super().__init__(grid)
        self.deadline, self.late = deadline, late  # late: for how many more rounds replies to training may come
        self.begin()

    def begin(self) -> None:
        """Clear the arrivals of the last round; one round may send messages several times."""
        self.last = Arrivals(limit=self.deadline)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Send and wait for replies, until the deadline or the caller's timeout, whichever is earlier."""
        bounds = [bound for bound in (timeout, self.deadline) if bound is not None]
        sent = list(messages)
        training = all(message.metadata.message_type.startswith("train") for message in sent)
        return exchange(self.grid, sent, min(bounds, default=None), self.last, 1.0 + self.late * training)
