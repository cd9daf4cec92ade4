"""Who is enrolled: name -> index, and what the policy has learned of them."""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedpick.protocol import Policy
from fedpick.state import admit, observe, retire
from fedpick.types import Choice, Clients, Outcome, View

__all__ = ["Newcomers", "Roster"]

Newcomers = tuple[list[str], Clients]  # names and what is known of them, enrolled together


@dataclass
class Roster:
    """The enrolled clients, the policy's state, and how far the rounds have come.

    An index is a client's place in the policy's state, and changes when others are retired. Its number never does and
    is never given to another: records go by it.

    Args:
        policy: whose state it is.
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
    last: list[int] = field(default_factory=list)  # who took part in the last round
    newcomers: list[Newcomers] = field(default_factory=list)  # since the last round

    def enrol(self, names: list[str], newcomers: Clients) -> None:
        """Give newcomers the next indices and numbers."""
        if self.clients is None:
            self.clients, self.state = newcomers, self.policy.init(newcomers)
        else:
            joined = self.clients.join(newcomers)  # which may raise: before anything is changed
            self.state = admit(self.policy, self.state, newcomers)
            self.clients = joined
        for name in names:
            self.index[name] = len(self.names)
            self.names.append(name)
            self.numbers.append(self.issued)
            self.issued += 1
        self.newcomers.append((names, newcomers))

    def learn(self, view: View, choice: Choice, outcome: Outcome) -> list[Newcomers]:
        """Let the policy learn from a round; returns who was enrolled since the one before."""
        self.state = observe(self.policy, self.state, view, choice, outcome)
        self.round = view.round
        self.last = sorted(set(choice.ids.tolist()))
        newcomers, self.newcomers = self.newcomers, []
        return newcomers

    def retire(self, names: Collection[str]) -> None:
        """Forget these clients; the others move up."""
        gone = set(names)
        keep = [at for at, name in enumerate(self.names) if name not in gone]
        assert self.clients is not None
        kept = self.clients.take(np.array(keep, dtype=np.int64))
        self.state = retire(self.policy, self.state, np.array(keep, dtype=np.int64))
        moved = {old: new for new, old in enumerate(keep)}
        self.clients, self.last = kept, [moved[at] for at in self.last if at in moved]
        self.names, self.numbers = [self.names[at] for at in keep], [self.numbers[at] for at in keep]
        self.index = {name: at for at, name in enumerate(self.names)}
