"""The enrolled clients: their names and indices, and the policy's state."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any

import numpy as np

from fedpick.core.protocol import Policy
from fedpick.core.state import admit, observe, retire, state_fields
from fedpick.core.types import Bools, Choice, Clients, Ints, Outcome, View
from fedpick.server.models import Mark
from fedpick.server.sizes import Sizes
from fedpick.store.records import presence

__all__ = ["Newcomers", "Roster"]

Newcomers = tuple[list[str], Clients | None]  # clients enrolled together; None: clients forgotten together
MOST, MOST_PAIRED = 1_000_000, 4_000  # clients enrolled by default; FedGS's state takes 128 MB for 4,000
BATCH = 20  # clients are forgotten when they are one in 20 of all enrolled, because the state is copied each time


@dataclass
class Roster:
    """The enrolled clients, the policy's state, and the number of rounds played.

    A client's index is its position in the policy's state, and changes when other clients are retired. Its number
    never changes and is never given to another client; records use it.
    """

    policy: Policy[Any]
    sizes: Sizes
    names: list[str] = field(default_factory=list)
    index: dict[str, int] = field(default_factory=dict)
    numbers: list[int] = field(default_factory=list)
    issued: int = 0  # numbers given so far
    clients: Clients | None = None  # as they declared themselves
    counted: Clients | None = None  # with the sizes that count, which the policy is told
    state: Any = None
    round: int = 0
    clock: float = 0.0
    tasks: int = 0  # given to clients so far, whose ids are never used again
    widths: dict[str, int] = field(default_factory=dict)  # of the reports, see reading.table
    last: list[int] = field(default_factory=list)  # indices of the last round's cohort
    newcomers: list[Newcomers] = field(default_factory=list)  # since the last round, and clients forgotten, in order
    model: Mark | None = None  # of the model after the last round, where it is known
    seen: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))  # last round in which each was available

    def enrol(self, names: list[str], newcomers: Clients) -> None:
        """Give newcomers the next indices and numbers."""
        clients = newcomers if self.clients is None else self.clients.join(newcomers)  # first, because it may raise
        counted = self.sizes.of_clients(clients)
        new = newcomers if counted is clients else counted.take(np.arange(len(clients) - len(newcomers), len(clients)))
        self.state = self.policy.init(new) if self.clients is None else admit(self.policy, self.state, new)
        self.clients, self.counted = clients, counted
        self.seen = np.concatenate([self.seen, np.full(len(names), self.round)])
        for name in names:
            self.index[name] = len(self.names)
            self.names.append(name)
            self.numbers.append(self.issued)
            self.issued += 1
        self.newcomers.append((names, newcomers))

    def describe(self, clients: Clients) -> None:
        """Set what all enrolled clients declared."""
        self.clients, self.counted = clients, self.sizes.of_clients(clients)

    @property
    def oversized(self) -> int:
        """How many clients' sizes count for less than they declared."""
        if self.clients is None or self.counted is None or self.clients is self.counted:
            return 0
        return int(np.count_nonzero(self.counted.sizes < self.clients.sizes))

    def mask(self, names: Iterable[Any]) -> Bools:
        """Mask of the enrolled clients of these names."""
        found = np.zeros(len(self.names) + 1, dtype=np.bool_)  # the last one stands for names that are not enrolled
        found[list(map(self.index.get, names, repeat(-1)))] = True
        return found[:-1]

    def learn(self, view: View, choice: Choice, outcome: Outcome) -> list[Newcomers]:
        """Let the policy learn from a round; returns the clients enrolled since the round before."""
        self.state = observe(self.policy, self.state, view, choice, outcome)
        self.round = view.round
        self.seen[view.there] = view.round
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
        moved, self.seen = {old: new for new, old in enumerate(keep)}, self.seen[keep]
        self.describe(kept)
        self.last = [moved[at] for at in self.last if at in moved]
        self.names, self.numbers = [self.names[at] for at in keep], [self.numbers[at] for at in keep]
        self.index = {name: at for at, name in enumerate(self.names)}

    def forget(self, names: list[str]) -> None:
        """Retire clients, with an entry for the journal."""
        self.retire(names)
        self.newcomers.append((names, None))

    def number(self, name: str | int) -> int:
        """The number of an enrolled client; -1 if it has left."""
        at = self.index.get(str(name))
        return -1 if at is None else self.numbers[at]

    def by_number(self, mask: Bools) -> Bools:
        """A mask of the enrolled clients as one of all that have joined so far, also if they left, by number."""
        if self.issued == len(self.names):
            return mask
        everyone = np.zeros(self.issued, dtype=np.bool_)
        everyone[np.array(self.numbers, dtype=np.int64)[mask]] = True
        return everyone

    def there(self, available: Bools) -> bytes | None:
        """Who is there (`store.records.presence`), by number."""
        return presence(self.by_number(available))

    def stale(self, there: Collection[str], after: int | None, most: int | None) -> list[str]:
        """The clients to forget, those away longest first, but none of those that are there.

        `after` and `most` are the session's `Limits.forget_after` and `Limits.most_clients`.
        """
        if most is None:
            pairs = any(kind == "pairs" and len(value) for _, kind, value in state_fields(self.state))
            most = MOST_PAIRED if pairs else MOST
        away = np.ones(len(self.names), dtype=np.bool_)
        here = [self.index[name] for name in there if name in self.index]
        away[here] = False
        gone = 0 if after is None else int(np.count_nonzero(away & (self.seen < self.round + 1 - after)))
        gone = gone if gone * BATCH >= len(self.names) else 0
        if (over := len(self.names) + len(there) - len(here) - most) > 0:
            gone = max(gone, over + most // BATCH)
        if not gone:
            return []
        longest = np.flatnonzero(away)
        longest = longest[np.argsort(self.seen[longest], kind="stable")][:gone]
        return [self.names[at] for at in longest]
