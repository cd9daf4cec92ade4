"""The connected clients: how one is recognised when it reconnects, and the newcomers' descriptions of themselves."""

import hashlib
import logging
from collections import Counter
from collections.abc import Callable
from typing import Any

from flwr.serverapp import Grid

from fedpick.errors import unknown_name
from fedpick.flower.asking import Said, ask_descriptions
from fedpick.flower.grids import own
from fedpick.server.roster import Roster

__all__ = ["Identity", "Presence"]

log = logging.getLogger("flwr.fedpick")

PATIENCE = 60.0  # seconds to wait for a node's description of itself
MOST_TIMES = 3  # requests to a node that does not answer
Identity = Callable[[Any], str]  # flwr's NodeInfo -> a name that stays the same when the client reconnects


def registered(node: Any) -> str:
    """The node's authenticated public key, else the name it was registered with, else its node id."""
    if node.public_key:
        return "key:" + hashlib.sha256(node.public_key).hexdigest()[:32]
    return f"name:{node.name}" if node.name else by_node_id(node)


def by_node_id(node: Any) -> str:
    """The node id alone."""
    return f"node:{node.node_id}"


IDENTITIES: dict[str, Identity] = {"registered": registered, "node-id": by_node_id}
CHOICES = ("auto", "simulation", "reported", *IDENTITIES)


def identities(grid: Any, identity: str | Identity, reported: Callable[[list[int]], dict[int, str]]) -> dict[str, int]:
    """identity -> node id of the connected nodes; `reported` asks nodes for their client-id."""
    nodes = list(grid.get_nodes())
    if identity == "auto":
        identity = "simulation" if type(own(grid)).__name__ == "InMemoryGrid" else "registered"
    if identity == "simulation":
        # Ids and keys are random in every simulation, but nodes are registered in the order of their partitions.
        nodes.sort(key=lambda node: str(node.registered_at))
        named = [(f"partition:{at}", node) for at, node in enumerate(nodes)]
    elif identity == "reported":
        said = reported([node.node_id for node in nodes])
        there = [node for node in nodes if node.node_id in said]  # the others have not answered yet
        named = [(f"reported:{said[node.node_id]}" if said[node.node_id] else by_node_id(node), node) for node in there]
    else:
        name_of = IDENTITIES[identity] if isinstance(identity, str) else identity
        named = [(str(name_of(node)), node) for node in nodes]
    counts = Counter(name for name, _ in named)
    found: dict[str, int] = {}
    for name, node in named:
        if counts[name] > 1:  # it is not known which one is genuine, so none gets the history of that client
            log.warning("%d connected nodes share the identity %r; their node ids are used", counts[name], name)
            name = by_node_id(node)
            while name in counts:  # another client's identity
                name += "'"
        found[name] = node.node_id
    return found


class Presence:
    """Finds the roster's clients among the connected nodes.

    Args:
        roster: of the session.
        identity: as for `Selected`.
        asks: whether newcomers are asked to describe themselves.
    """

    def __init__(self, roster: Roster, identity: str | Identity, asks: bool) -> None:
        if not callable(identity) and identity not in CHOICES:
            raise unknown_name("identity of Selected", identity, list(CHOICES))
        self.roster, self.identity, self.asks = roster, identity, asks
        self._said: dict[int, Said] = {}  # by node id
        self._asked: Counter[int] = Counter()

    def connected(self, grid: Grid, limit: float) -> dict[str, int]:
        """identity -> node id; `limit` is the longest wait in seconds for nodes that are asked for their client-id."""
        there = set(grid.get_node_ids()) if self._said or self._asked else set()
        self._said = {node: said for node, said in self._said.items() if node in there}  # or they grow for ever
        self._asked = Counter({node: times for node, times in self._asked.items() if node in there})
        return identities(grid, self.identity, lambda nodes: self._names(grid, nodes, limit))

    def _ask(self, grid: Grid, nodes: list[int], limit: float) -> dict[int, Said]:
        """The nodes' descriptions of themselves; each is asked until it answers, at most MOST_TIMES times."""
        new = [node for node in nodes if node not in self._said and self._asked[node] < MOST_TIMES]
        if new:
            first = not self.roster.names and not self._said
            self._said |= ask_descriptions(own(grid), new, min(limit, PATIENCE), first)
            self._asked.update(new)
        return {node: self._said[node] for node in nodes if node in self._said}

    def _names(self, grid: Grid, nodes: list[int], limit: float) -> dict[int, str]:
        """The nodes' client-ids; "" for a node that did not answer MOST_TIMES times."""
        said = self._ask(grid, nodes, limit)
        return {n: said[n].name if n in said else "" for n in nodes if n in said or self._asked[n] >= MOST_TIMES}

    def described(self, grid: Grid, found: dict[str, int], limit: float) -> dict[str, Any]:
        """The session's `available`: names, and the newcomers' descriptions of themselves."""
        available: dict[str, Any] = dict.fromkeys(found)
        new = {name: node for name, node in found.items() if name not in self.roster.index}
        if self.asks and new:
            said = self._ask(grid, list(new.values()), limit)
            available |= {name: said[node].about for name, node in new.items() if node in said}
            # After the enrolment only the name is needed.
            self._said |= {node: Said(each.name) for node, each in said.items()}
        return available
