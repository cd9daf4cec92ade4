"""Wrappers of Flower's grid: one shows only some nodes, one sends to these only, one keeps time and the deadline."""

from collections.abc import Callable, Collection, Iterable, Set
from typing import Any

from flwr.app import Message
from flwr.serverapp import Grid

from fedpick.adapters.arrivals import LONGEST, Arrivals, earliest, poll
from fedpick.adapters.flower.logs import log
from fedpick.adapters.presence import Connection
from fedpick.core.errors import ContractError
from fedpick.engine.paces import Rounds

__all__ = ["GatedGrid", "RestrictedGrid", "WatchedGrid", "connections", "exchange", "expire", "push", "unwrapped"]


def _inside(name: str) -> Any:
    """This attribute of the wrapped grid."""
    return property(lambda self: getattr(self.grid, name))


class _GridWrapper(Grid):
    """A grid that forwards every call to another."""

    def __init__(self, grid: Grid) -> None:
        self.grid = grid

    run, set_run, create_message = _inside("run"), _inside("set_run"), _inside("create_message")
    get_node_ids, get_nodes = _inside("get_node_ids"), _inside("get_nodes")
    push_messages, pull_messages = _inside("push_messages"), _inside("pull_messages")
    send_and_receive = _inside("send_and_receive")

    def __getattr__(self, name: str) -> Any:
        if name == "grid":  # not set yet while copying or unpickling
            raise AttributeError(name)
        return getattr(self.grid, name)


def unwrapped(grid: Any) -> Any:
    """Flower's grid, without our wrappers."""
    while isinstance(grid, _GridWrapper):
        grid = grid.grid
    return grid


def connections(grid: Grid) -> list[Connection[int]]:
    """The connected nodes."""
    nodes = list(grid.get_nodes())
    return [Connection(node.node_id, node.public_key, node.name, str(node.registered_at), node) for node in nodes]


class RestrictedGrid(_GridWrapper):
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


class GatedGrid(_GridWrapper):
    """A grid through which messages reach only the nodes that `allowed` returns, whatever the base strategy does."""

    def __init__(self, grid: Grid, allowed: Callable[[], Set[int]]) -> None:
        super().__init__(grid)
        self.allowed = allowed

    def check(self, messages: Iterable[Message]) -> list[Message]:
        """These messages; raises if one is to a node that may not be asked."""
        sent = list(messages)
        if barred := {message.metadata.dst_node_id for message in sent} - self.allowed():
            raise ContractError(
                f"Selected: none of {len(sent)} messages was sent, because {len(barred)} nodes are not eligible, such "
                f"as {min(barred)}; the base strategy must send only to nodes of the grid that it is given"
            )
        return sent

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send, if all may be asked."""
        return self.grid.push_messages(self.check(messages))

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Send and wait for replies, if all may be asked."""
        return self.grid.send_and_receive(self.check(messages), timeout=timeout)


def expire(messages: Iterable[Message], seconds: float | None) -> None:
    """Shorten the messages' time to live, else a slow client works on old rounds for up to 12 h; None: no change."""
    if seconds is not None:
        for message in messages:
            message.metadata.ttl = min(message.metadata.ttl, seconds)


def push(grid: Grid, messages: list[Message]) -> list[str]:
    """Send messages; the ids of those that Flower takes."""
    taken = [name for name in grid.push_messages(messages) if name] if messages else []
    if len(taken) < len(messages):
        log.warning("Flower accepted only %d of %d messages; see its log", len(taken), len(messages))
    return taken


def exchange(
    grid: Grid,
    messages: list[Message],
    limit: float | None,
    noted: Arrivals | None = None,
    lives: float | None = None,
    meanwhile: Callable[[], object] | None = None,
) -> list[Message]:
    """Send messages; return the replies in the order of arrival, after all arrived or `limit` seconds have passed.

    `noted` gets the times of arrival. Messages may be answered for `lives` seconds, and late replies be pulled later;
    None: until the limit. `meanwhile` is called at each look for replies.
    """
    noted = noted or Arrivals()
    expire(messages, lives or limit)

    def send() -> list[str]:
        taken = push(grid, messages)
        noted.refused |= {message.metadata.message_id for message in messages} - set(taken)
        return taken

    def pull(names: set[str]) -> Iterable[tuple[str, Message]]:
        if meanwhile is not None:
            meanwhile()
        return [(reply.metadata.reply_to_message_id, reply) for reply in grid.pull_messages(names)]

    # Flower's pauses of 3 s would make durations inexact.
    found = poll(send, pull, limit, float(getattr(grid, "pull_interval", LONGEST)), noted)
    return [reply for reply, _ in found.values()]


class WatchedGrid(_GridWrapper):
    """A grid that notes when replies arrive, and stops waiting at the deadline (seconds)."""

    def __init__(self, grid: Grid, deadline: float | None, pace: Rounds | None = None) -> None:
        super().__init__(grid)
        self.deadline, self.pace = deadline, pace  # pace: for how long replies to training may come
        self.begin()

    def begin(self) -> Arrivals:
        """Note the arrivals of the next round; one round may send messages several times."""
        self.last = Arrivals(limit=self.deadline)
        return self.last

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Send and wait for replies, until the deadline or the caller's timeout, whichever is earlier."""
        sent, limit = list(messages), earliest(timeout, self.deadline)
        training = all(message.metadata.message_type.startswith("train") for message in sent)
        lives = self.pace.lifetime(limit) if self.pace is not None and training else limit
        return exchange(self.grid, sent, limit, self.last, lives)
