"""Two grids around Flower's own: one that shows only some nodes, one that times replies and ends its waits."""

import logging
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from time import monotonic, sleep
from typing import Any

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

__all__ = ["Exchange", "Restricted", "Watched", "exchange", "own"]

log = logging.getLogger("flwr.fedpick")

SHORTEST, LONGEST, LONGER = (
    0.01,
    1.0,
    1.25,
)  # seconds between two looks for replies; Flower's own 3 s would blur the durations


class _Around(Grid):
    """A grid that passes everything on to another."""

    def __init__(self, grid: Grid) -> None:
        self.grid = grid

    def set_run(self, run: Any) -> None:
        """As the grid inside."""
        self.grid.set_run(run)

    @property
    def run(self) -> Any:
        """As the grid inside."""
        return self.grid.run

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        """As the grid inside."""
        return self.grid.create_message(content, message_type, dst_node_id, group_id, ttl)

    def get_node_ids(self) -> Iterable[int]:
        """As the grid inside."""
        return self.grid.get_node_ids()

    def get_nodes(self) -> Iterable[Any]:
        """As the grid inside."""
        return self.grid.get_nodes()

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """As the grid inside."""
        return self.grid.push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """As the grid inside."""
        return self.grid.pull_messages(message_ids)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """As the grid inside."""
        return self.grid.send_and_receive(messages, timeout=timeout)

    def __getattr__(self, name: str) -> Any:
        if name == "grid":  # not set yet: copying and unpickling look here first
            raise AttributeError(name)
        return getattr(self.grid, name)


def own(grid: Any) -> Any:
    """Flower's own grid, out of those around it."""
    while isinstance(grid, _Around):
        grid = grid.grid
    return grid


class Restricted(_Around):
    """A grid on which only these nodes are connected, whatever happens meanwhile."""

    def __init__(self, grid: Grid, node_ids: Collection[int]) -> None:
        super().__init__(grid)
        self.node_ids = list(node_ids)

    def get_node_ids(self) -> Iterable[int]:
        """The nodes that are shown."""
        return list(self.node_ids)

    def get_nodes(self) -> Iterable[Any]:
        """What is known of the nodes that are shown."""
        shown = set(self.node_ids)
        return [node for node in self.grid.get_nodes() if node.node_id in shown]


@dataclass
class Exchange:
    """Replies in the order of arrival, seconds that each took by the id of its message, and those never sent."""

    replies: list[Message] = field(default_factory=list)
    took: dict[str, float] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    limit: float | None = None
    seconds: float = 0.0


def exchange(grid: Grid, messages: list[Message], limit: float | None) -> Exchange:
    """Send messages and collect replies until all are there or `limit` seconds have passed."""
    done = Exchange(limit=limit)
    if limit is not None:
        for message in messages:  # else a straggler works through old rounds for 12 h
            message.metadata.ttl = min(message.metadata.ttl, limit)
    begun = monotonic()
    waiting = {name for name in grid.push_messages(messages) if name} if messages else set()
    done.refused = {message.metadata.message_id for message in messages} - waiting
    if done.refused:
        log.warning("Flower took only %d of %d messages; see its log", len(waiting), len(messages))
    longest = min(float(getattr(grid, "pull_interval", LONGEST)), LONGEST)
    pause = min(SHORTEST, longest)
    while waiting:
        for reply in grid.pull_messages(set(waiting)):
            name = reply.metadata.reply_to_message_id
            if name in waiting:  # the first reply counts
                waiting.discard(name)
                done.took[name] = monotonic() - begun
                done.replies.append(reply)
        left = float("inf") if limit is None else limit - (monotonic() - begun)
        if not waiting or left <= 0:
            break
        sleep(min(pause, left))
        pause = min(LONGER * pause, longest)
    done.seconds = monotonic() - begun
    return done


class Watched(_Around):
    """A grid that times replies and closes every exchange at the deadline.

    Args:
        grid: Flower's own.
        deadline: seconds; the caller's timeout holds as well.
    """

    def __init__(self, grid: Grid, deadline: float | None) -> None:
        super().__init__(grid)
        self.deadline = deadline
        self.last = Exchange(limit=deadline)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Send, wait, return the replies in the order of arrival."""
        bounds = [bound for bound in (timeout, self.deadline) if bound is not None]
        done = exchange(self.grid, list(messages), min(bounds, default=None))
        last = self.last
        self.last = Exchange(
            last.replies + done.replies,
            last.took | done.took,
            last.refused | done.refused,
            done.limit,
            last.seconds + done.seconds,
        )
        return done.replies

    def begin(self) -> None:
        """Forget the exchanges of earlier rounds; one round may have several."""
        self.last = Exchange(limit=self.deadline)
