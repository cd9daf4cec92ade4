"""How a client is recognised among the connected nodes when it reconnects."""

import hashlib
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from fedpick.errors import unknown_name
from fedpick.flower.asking import ask_descriptions
from fedpick.flower.grids import own
from fedpick.server.presence import Presence, distinct

__all__ = ["Identity", "check_identity", "identities"]

log = logging.getLogger("flwr.fedpick")

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


def check_identity(identity: str | Identity) -> None:
    """Raise unless there is such a way to recognise clients."""
    if not callable(identity) and identity not in CHOICES:
        raise unknown_name("identity of Selected", identity, list(CHOICES))


def identities(grid: Any, identity: str | Identity, presence: Presence[int], limit: float) -> dict[str, int]:
    """identity -> node id of the connected nodes.

    Args:
        grid: of Flower.
        identity: as for `Selected`.
        presence: asks nodes for their client-id, where that is the identity.
        limit: the longest wait in seconds for nodes that are asked.
    """
    nodes = list(grid.get_nodes())
    presence.connected([node.node_id for node in nodes])
    if identity == "auto":
        identity = "simulation" if type(own(grid)).__name__ == "InMemoryGrid" else "registered"
    if identity == "simulation":
        # Ids and keys are random in every simulation, but nodes are registered in the order of their partitions.
        nodes.sort(key=lambda node: str(node.registered_at))
        named = [(f"partition:{at}", node) for at, node in enumerate(nodes)]
    elif identity == "reported":
        said = presence.ask([node.node_id for node in nodes], partial(ask_descriptions, own(grid), limit))
        there = [(said[node.node_id].name, node) for node in nodes if node.node_id in said]  # others may yet answer
        named = [(f"reported:{name}" if name else by_node_id(node), node) for name, node in there]
    else:
        name_of = IDENTITIES[identity] if isinstance(identity, str) else identity
        named = [(str(name_of(node)), node) for node in nodes]
    return {name: node.node_id for name, node in distinct(named, by_node_id, log).items()}
