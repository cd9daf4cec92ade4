"""Who is enrolled: identity -> index, and the file that keeps it with what the policy learned."""

import hashlib
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fedpick.errors import ContractError, StateError, unknown_name
from fedpick.protocol import Policy
from fedpick.state import admit, load_state, read_archive, save_state
from fedpick.types import Clients

__all__ = ["Describe", "Identity", "Roster", "check_identity", "identities"]

log = logging.getLogger("flwr.fedpick")

Identity = Callable[[Any], str]  # flwr's NodeInfo -> a name that stays the same when the client comes back
Describe = Callable[[Sequence[str]], Clients]
FILE = "state.npz"


def registered(node: Any) -> str:
    """The node's public key, which it proved to hold; else the name it was registered with, else its node id."""
    if node.public_key:
        return "key:" + hashlib.sha256(node.public_key).hexdigest()[:32]
    return f"name:{node.name}" if node.name else by_node_id(node)


def by_node_id(node: Any) -> str:
    """The node id alone."""
    return f"node:{node.node_id}"


IDENTITIES: dict[str, Identity] = {"registered": registered, "node-id": by_node_id}
CHOICES = ("auto", "simulation", *IDENTITIES)


def check_identity(identity: str | Identity) -> None:
    """Raise unless it is a function or a known name."""
    if not callable(identity) and identity not in CHOICES:
        raise unknown_name("identity of Selected", identity, list(CHOICES))


def identities(grid: Any, identity: str | Identity) -> dict[str, int]:
    """identity -> node id of the connected nodes; nodes that share an identity go by their node id."""
    nodes = list(grid.get_nodes())
    while hasattr(grid, "grid"):  # ours are around Flower's
        grid = grid.grid
    if identity == "auto":
        identity = "simulation" if type(grid).__name__ == "InMemoryGrid" else "registered"
    if identity == "simulation":
        # Ids and keys are drawn anew in every simulation, but nodes are registered in the order of their partitions.
        nodes.sort(key=lambda node: str(node.registered_at))
        named = [(f"partition:{at}", node) for at, node in enumerate(nodes)]
    else:
        name_of = IDENTITIES[identity] if isinstance(identity, str) else identity
        named = [(str(name_of(node)), node) for node in nodes]
    counts = Counter(name for name, _ in named)
    found: dict[str, int] = {}
    for name, node in named:
        if counts[name] > 1:  # none of them may take the history of the one that is genuine
            log.warning("%d connected nodes share the identity %r; each goes by its node id", counts[name], name)
            name = by_node_id(node)
        found[name] = node.node_id
    return found


@dataclass
class Roster:
    """The enrolled clients, the policy's state, and how far the rounds have come.

    Args:
        policy: whose state it is.
        describe: says of newcomers, by identity, what fp.Clients holds; None: every size is 1.
        folder: where it is kept each round; None keeps nothing.
    """

    policy: Policy[Any]
    describe: Describe | None = None
    folder: Path | None = None
    names: list[str] = field(default_factory=list)
    index: dict[str, int] = field(default_factory=dict)
    clients: Clients | None = None
    state: Any = None
    round: int = 0
    clock: float = 0.0
    widths: dict[str, int] = field(default_factory=dict)  # of the reports, see replies.table
    last: list[int] = field(default_factory=list)  # who took part in the last round

    def __post_init__(self) -> None:
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
            if (self.folder / FILE).exists():
                self._load(self.folder / FILE)

    def _described(self, names: Sequence[str]) -> Clients:
        if self.describe is None:
            return Clients(np.ones(len(names)))
        clients = self.describe(list(names))
        if len(clients) != len(names):
            raise ContractError(
                f"Selected: clients() described {len(clients)} clients, but was asked for {len(names)}: give one each"
            )
        return clients

    def enrol(self, names: Iterable[str]) -> None:
        """Give those that are not enrolled yet the next indices."""
        new = [name for name in names if name not in self.index]
        if not new:
            return
        newcomers = self._described(new)
        if self.clients is None:
            self.clients, self.state = newcomers, self.policy.init(newcomers)
        else:
            self.state = admit(self.policy, self.state, newcomers)
            self.clients = self.clients.join(newcomers)
        for name in new:
            self.index[name] = len(self.names)
            self.names.append(name)
        log.info("enrolled %d clients, %d in all", len(new), len(self.names))

    def save(self) -> None:
        """Write the file anew, atomically."""
        if self.folder is not None:
            notes = {
                "round": self.round,
                "clock": self.clock,
                "roster": self.names,
                "widths": self.widths,
                "last": self.last,
            }
            save_state(self.policy, self.state, self.folder / FILE, flower=notes)

    def _load(self, path: Path) -> None:
        fix = "the file is left as it is: restore a backup, or move it away to start anew"
        try:
            notes = read_archive(path)[1]["notes"]["flower"]
            names, round, clock = list(map(str, notes["roster"])), int(notes["round"]), float(notes["clock"])
            widths = {str(name): int(width) for name, width in notes["widths"].items()}
            last = [int(client) for client in notes["last"]]
            if len(set(names)) != len(names) or not names or round < 0:
                raise ValueError(f"round {round}, {len(names)} clients, {len(set(names))} different")
            if any(not 0 <= client < len(names) for client in last):
                raise ValueError(f"the last cohort {last} is not among {len(names)} clients")
        except StateError as error:
            raise StateError(f"{error}; {fix}") from None
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise StateError(
                f"{path}: not the state of a Flower server ({type(error).__name__}: {error}); {fix}"
            ) from None
        clients = self._described(names)
        try:
            self.state, _ = load_state(self.policy, path, clients)
        except StateError as error:
            raise StateError(f"{error}; {fix}") from None
        self.names, self.index, self.clients = names, {name: at for at, name in enumerate(names)}, clients
        self.round, self.clock, self.widths, self.last = round, clock, widths, last
        log.info("goes on after round %d with %d clients, from %s", round, len(names), path.resolve())
