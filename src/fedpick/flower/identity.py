"""By what a client is known when it comes back."""

import hashlib
import logging
from collections import Counter
from collections.abc import Callable
from typing import Any

from fedpick.errors import unknown_name
from fedpick.flower.grids import own

__all__ = ["Identity", "check_identity", "identities"]

log = logging.getLogger("flwr.fedpick")

Identity = Callable[[Any], str]  # flwr's NodeInfo -> a name that stays the same when the client comes back


def registered(node: Any) -> str:
    """The node's public key, which it proved to hold; else the name it was registered with, else its node id."""
    if node.public_key:
        return "key:" + hashlib.sha256(node.public_key).hexdigest()[:32]
    return f"name:{node.name}" if node.name else by_node_id(node)


def by_node_id(node: Any) -> str:
    """The node id alone."""
    return f"node:{node.node_id}"


IDENTITIES: dict[str, Identity] = {"registered": registered, "node-id": by_node_id}
CHOICES = ("auto", "simulation", "reported", *IDENTITIES)


def check_identity(identity: str | Identity) -> None:
    """Raise unless it is a function or a known name."""
    if not callable(identity) and identity not in CHOICES:
        raise unknown_name("identity of Selected", identity, list(CHOICES))


def identities(grid: Any, identity: str | Identity, reported: Callable[[list[int]], dict[int, str]]) -> dict[str, int]:
    """identity -> node id of the connected nodes; nodes that share an identity go by their node id.

    Args:
        grid: Flower's, or one around it.
        identity: one of CHOICES, or a function.
        reported: asks nodes for the name that they give themselves.
    """
    nodes = list(grid.get_nodes())
    if identity == "auto":
        identity = "simulation" if type(own(grid)).__name__ == "InMemoryGrid" else "registered"
    if identity == "simulation":
        # Ids and keys are drawn anew in every simulation, but nodes are registered in the order of their partitions.
        nodes.sort(key=lambda node: str(node.registered_at))
        named = [(f"partition:{at}", node) for at, node in enumerate(nodes)]
    elif identity == "reported":
        said = reported([node.node_id for node in nodes])
        there = [node for node in nodes if node.node_id in said]  # the others have not said who they are yet
        named = [(f"reported:{said[node.node_id]}" if said[node.node_id] else by_node_id(node), node) for node in there]
    else:
        name_of = IDENTITIES[identity] if isinstance(identity, str) else identity
        named = [(str(name_of(node)), node) for node in nodes]
    counts = Counter(name for name, _ in named)
    found: dict[str, int] = {}
    for name, node in named:
        if counts[name] > 1:  # none of them may take the history of the one that is genuine
            log.warning("%d connected nodes share the identity %r; each goes by its node id", counts[name], name)
            name = by_node_id(node)
            while name in counts:  # somebody else's identity
                name += "'"
        found[name] = node.node_id
    return found
