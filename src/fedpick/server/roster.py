"""The enrolled clients: their names and indices, and the policy's state."""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedpick.protocol import Policy
from fedpick.state import admit, observe, retire
from fedpick.types import Choice, Clients, Outcome, View

__all__ = ["Newcomers", "Roster"]

Newcomers = tuple[list[str], Clients]  # clients enrolled together


@dataclass
class Roster:
    """The enrolled clients, the policy's state, and the number of rounds played.

    A client's index is its position in the policy's state, and changes when other clients are retired. Its number
    never changes and is never given to another client; records use it.

    Args:
        policy: that chooses among these clients.
    """

    policy: Policy[Any]
    names: list[str] = field(default_factory=list)
    index: dict[str, int] = field(default_factory=dict)
    numbers: list[int] = field(default_factory=list)
    issued: int = 0  # numbers given so far
    clients: Clients | None = None
    state: Any = None
    round: int = 0
    clock: float = 0.0
    widths: dict[str, int] = field(default_factory=dict)  # of the reports, see reading.table
    last: list[int] = field(default_factory=list)  # indices of the last round's cohort
    newcomers: list[Newcomers] = field(default_factory=list)  # since the last round

    def enrol(self, names: list[str], newcomers: Clients) -> None:
        """Give newcomers the next indices and numbers."""
        if self.clients is None:
            self.clients, self.state = newcomers, self.policy.init(newcomers)
        else:
            joined = self.clients.join(newcomers)  # first, because it may raise
            self.state = admit(self.policy, self.state, newcomers)
            self.clients = joined
        for name in names:
            self.index[name] = len(self.names)
            self.names.append(name)
            self.numbers.append(self.issued)
            self.issued += 1
        self.newcomers.append((names, newcomers))

    def learn(self, view: View, choice: Choice, outcome: Outcome) -> list[Newcomers]:
        """Let the policy learn from a round; returns the clients enrolled since the round before."""
        self.state = observe(self.policy, self.state, view, choice, outcome)
        self.round = view.round
        self.last = sorted(set(choice.ids.tolist()))
        newcomers, self.newcomers = self.newcomers, []
        return newcomers

    def retire(self, names: Collection[str]) -> None:
        """Remove these clients; the indices of the others close up."""
        gone = set(names)
        keep = [at for at, name in enumerate(self.names) if name not in gone]
        assert self.clients is not None
        kept = self.clients.take(np.array(keep, dtype=np.int64))
        self.state = retire(self.policy, self.state, np.array(keep, dtype=np.int64))
        moved = {old: new for new, old in enumerate(keep)}
        self.clients, self.last = kept, [moved[at] for at in self.last if at in moved]
        self.names, self.numbers = [self.names[at] for at in keep], [self.numbers[at] for at in keep]
        self.index = {name: at for at, name in enumerate(self.names)}
