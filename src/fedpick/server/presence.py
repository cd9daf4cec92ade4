"""The connected clients of a framework: one name for each connection, and what newcomers say about themselves."""

import logging
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from fedpick.server.roster import Roster

__all__ = ["Presence", "Said", "distinct"]

MOST_TIMES = 3  # requests to a client that does not answer
Node = TypeVar("Node")  # how a framework calls a connection, such as Flower's node id


class Said(NamedTuple):
    """A client's description of itself: its name, and size and features, not validated yet."""

    name: str = ""
    about: dict[str, Any] | None = None


# (connections, whether no client has ever answered) -> the descriptions that came
Ask = Callable[[list[Node], bool], dict[Node, Said]]


def distinct(
    named: Sequence[tuple[str, Node]], otherwise: Callable[[Node], str], log: logging.Logger
) -> dict[str, Node]:
    """name -> connection; where connections share a name, each gets one of its own.

    Args:
        named: names and connections.
        otherwise: the name of a connection whose own is not unique.
        log: gets a warning.
    """
    counts = Counter(name for name, _ in named)
    found: dict[str, Node] = {}
    for name, node in named:
        if counts[name] > 1:  # it is not known which one is genuine, so none gets the history of that client
            log.warning("%d connected nodes share the identity %r; their node ids are used", counts[name], name)
            name = otherwise(node)
            while name in counts:  # another client's identity
                name += "'"
        found[name] = node
    return found


class Presence(Generic[Node]):
    """What the connected clients say about themselves: each is asked until it answers, at most three times.

    Args:
        roster: of the session.
        asks: whether newcomers are asked for their size and features.
    """

    def __init__(self, roster: Roster, asks: bool) -> None:
        self.roster, self.asks = roster, asks
        self._said: dict[Node, Said] = {}
        self._asked: Counter[Node] = Counter()

    def connected(self, nodes: Collection[Node]) -> None:
        """Forget what was said by connections other than these."""
        there = set(nodes)
        self._said = {node: said for node, said in self._said.items() if node in there}
        self._asked = Counter({node: times for node, times in self._asked.items() if node in there})

    def ask(self, nodes: list[Node], ask: Ask[Node]) -> dict[Node, Said]:
        """What these connections have said; a `Said` without a name for those that did not answer often enough."""
        new = [node for node in nodes if node not in self._said and self._asked[node] < MOST_TIMES]
        if new:
            self._said |= ask(new, not self.roster.names and not self._said)
            self._asked.update(new)
        return {n: self._said.get(n, Said()) for n in nodes if n in self._said or self._asked[n] >= MOST_TIMES}

    def described(self, found: dict[str, Node], ask: Ask[Node]) -> dict[str, Any]:
        """The session's `available`: names, and the newcomers' descriptions of themselves."""
        available: dict[str, Any] = dict.fromkeys(found)
        new = {name: node for name, node in found.items() if name not in self.roster.index}
        if self.asks and new:
            said = self.ask(list(new.values()), ask)
            available |= {name: said[node].about for name, node in new.items() if node in said}
            # After the enrolment only the name is needed.
            self._said |= {node: Said(self._said[node].name) for node in said if node in self._said}
        return available
