"""Two grids around Flower's own: one that shows only some nodes, one that times replies and ends its waits."""

import logging
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from time import monotonic, sleep
from typing import Any

from flwr.app import Message
from flwr.serverapp import Grid

__all__ = ["Arrivals", "Restricted", "Watched", "exchange", "own"]

log = logging.getLogger("flwr.fedpick")

# Seconds between two looks for replies, and their growth; Flower's own 3 s would blur the durations.
SHORTEST, LONGEST, LONGER = 0.01, 1.0, 1.25


def _as_inside(name: str) -> Any:
    return lambda self, *args, **options: getattr(self.grid, name)(*args, **options)


class _Around(Grid):
    """A grid that passes everything on to another."""

    def __init__(self, grid: Grid) -> None:
        self.grid = grid

    set_run, create_message = _as_inside("set_run"), _as_inside("create_message")
    get_node_ids, get_nodes = _as_inside("get_node_ids"), _as_inside("get_nodes")
    push_messages, pull_messages = _as_inside("push_messages"), _as_inside("pull_messages")
    send_and_receive = _as_inside("send_and_receive")

    @property
    def run(self) -> Any:
        """As the grid inside."""
        return self.grid.run

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
class Arrivals:
    """Seconds that each reply took, by the id of its message; ids of messages never sent; seconds they had."""

    took: dict[str, float] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    limit: float | None = None


def exchange(grid: Grid, messages: list[Message], limit: float | None, noted: Arrivals | None = None) -> list[Message]:
    """Send messages and collect replies in the order of arrival, until all are there or `limit` seconds are over."""
    replies, noted = list[Message](), noted or Arrivals()
    if limit is not None:
        for message in messages:  # else a straggler works through old rounds for 12 h
            message.metadata.ttl = min(message.metadata.ttl, limit)
    begun = looked = monotonic()
    waiting = {name for name in grid.push_messages(messages) if name} if messages else set()
    refused = {message.metadata.message_id for message in messages} - waiting
    if refused:
        log.warning("Flower took only %d of %d messages; see its log", len(waiting), len(messages))
    noted.limit, noted.refused = limit, noted.refused | refused
    longest = min(float(getattr(grid, "pull_interval", LONGEST)), LONGEST)
    pause = min(SHORTEST, longest)
    while waiting:
        before, looked = looked, monotonic()
        for reply in grid.pull_messages(set(waiting)):
            name = reply.metadata.reply_to_message_id
            if name in waiting:  # the first reply counts
                waiting.discard(name)
                noted.took[name] = (before + looked) / 2.0 - begun  # it came somewhere between two looks
                replies.append(reply)
        left = float("inf") if limit is None else limit - (monotonic() - begun)
        if not waiting or left <= 0:
            break
        sleep(min(pause, left))
        pause = min(LONGER * pause, longest)
    return replies


class Watched(_Around):
    """A grid that notes when replies come, and ends every exchange at the deadline (seconds)."""

    def __init__(self, grid: Grid, deadline: float | None) -> None:
        super().__init__(grid)
        self.deadline = deadline
        self.begin()

    def begin(self) -> None:
        """Forget the exchanges of earlier rounds; one round may have several."""
        self.last = Arrivals(limit=self.deadline)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Send and wait; the caller's timeout holds as well."""
        bounds = [bound for bound in (timeout, self.deadline) if bound is not None]
        return exchange(self.grid, list(messages), min(bounds, default=None), self.last)
