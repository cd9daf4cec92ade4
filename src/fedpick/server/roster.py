"""The enrolled clients: their names and indices, and the policy's state."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any

import numpy as np

from fedpick.core.protocol import Policy, traits
from fedpick.core.state import admit, observe, retire, state_fields
from fedpick.core.types import Bools, Choice, Clients, Ints, Outcome, View
from fedpick.server.models import Mark
from fedpick.server.sizes import Sizes
from fedpick.store.records import presence

__all__ = ["Newcomers", "Present", "Roster"]

Newcomers = tuple[list[str], Clients | None]  # clients enrolled together; None: clients forgotten together
MOST, MOST_PAIRED = 1_000_000, 4_000  # clients enrolled by default; FedGS's state takes 128 MB for 4,000
BATCH = 20  # clients are forgotten when they are one in 20 of all enrolled, because the state is copied each time


@dataclass
class Present:
    """Who is there: a mask of the enrolled clients, and the descriptions of the others by name."""

    known: Bools
    new: dict[str, Any]


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
    seen: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))  # last round in which each was there

    def enrol(self, names: list[str], newcomers: Clients) -> None:
        """Give newcomers the next indices and numbers."""
        clients = newcomers if self.clients is None else self.clients.join(newcomers)  # first, because it may raise
        counted = self.sizes.of_clients(clients)
        new = newcomers if counted is clients else counted.take(np.arange(len(clients) - len(newcomers), len(clients)))
        self.state = self.policy.init(new) if self.clients is None else admit(self.policy, self.state, new)
        self.clients, self.counted = clients, counted
        self.seen = np.concatenate([self.seen, np.full(len(names), self.round)])
        self.index.update(zip(names, range(len(self.names), len(self.names) + len(names)), strict=True))
        self.names += names
        self.numbers += range(self.issued, self.issued + len(names))
        self.issued += len(names)
        self.newcomers.append((names, newcomers))

    def find(self, names: Sequence[Any]) -> Ints:
        """The indices of these clients; -1 for names that are not enrolled."""
        return np.fromiter(map(self.index.get, names, repeat(-1)), np.int64, len(names))

    def mask(self, found: Ints) -> Bools:
        """Mask of the enrolled clients that `find` has found."""
        mask = np.zeros(len(self.names) + 1, dtype=np.bool_)  # the last one stands for those that are not enrolled
        mask[found] = True
        return mask[:-1]

    def describe(self, clients: Clients) -> None:
        """Set what all enrolled clients declared."""
        self.clients, self.counted = clients, self.sizes.of_clients(clients)

    @property
    def oversized(self) -> int:
        """How many clients' sizes count for less than they declared."""
        if self.clients is None or self.counted is None or self.clients is self.counted:
            return 0
        return int(np.count_nonzero(self.counted.sizes < self.clients.sizes))

    def learn(self, view: View, choice: Choice, outcome: Outcome) -> list[Newcomers]:
        """Let the policy learn from a round; returns the clients enrolled since the round before."""
        self.state = observe(self.policy, self.state, view, choice, outcome)
        self.round = view.round
        self.seen[view.there | view.busy | view.held] = view.round
        self.last = sorted(set(choice.ids.tolist()))
        newcomers, self.newcomers = self.newcomers, []
        return newcomers

    def retire(self, names: Collection[str]) -> Ints:
        """Remove these clients; the indices of the others, which are returned, close up."""
        gone = set(names)
        keep = [at for at, name in enumerate(self.names) if name not in gone]
        left = np.array(keep, dtype=np.int64)
        assert self.clients is not None
        kept = self.clients.take(left)
        self.state = retire(self.policy, self.state, left)
        moved, self.seen = {old: new for new, old in enumerate(keep)}, self.seen[keep]
        self.describe(kept)
        self.last = [moved[at] for at in self.last if at in moved]
        self.names, self.numbers = [self.names[at] for at in keep], [self.numbers[at] for at in keep]
        self.index = {name: at for at, name in enumerate(self.names)}
        return left

    def forget(self, names: list[str]) -> Ints:
        """Retire clients, with an entry for the journal."""
        left = self.retire(names)
        self.newcomers.append((names, None))
        return left

    def number(self, name: str | int) -> int:
        """The number of an enrolled client."""
        return self.numbers[self.index[str(name)]]

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

    def _remembered(self) -> Bools:
        """Mask of the clients that the policy must not forget yet."""
        return np.asarray(self.seen >= self.round + 1 - traits(self.policy).remembers)

    def remembered(self, names: Iterable[str]) -> list[str]:
        """Those of these enrolled clients that the policy must not forget yet."""
        mask = self._remembered()
        return [name for name in names if mask[self.index[name]]]

    def _limit(self, most: int | None) -> int:
        """How many clients may be enrolled; `most` is the session's `Limits.most_clients`."""
        if most is not None:
            return most
        pairs = any(kind == "pairs" and len(value) for _, kind, value in state_fields(self.state))
        return MOST_PAIRED if pairs else MOST

    def stale(self, there: Present, after: int | None, most: int | None) -> list[str]:
        """The clients to forget, those away longest first, but none of those that are there or must be remembered.

        `after` and `most` are the session's `Limits.forget_after` and `Limits.most_clients`.
        """
        most, away = self._limit(most), ~(self._remembered() | there.known)
        gone = 0 if after is None else int(np.count_nonzero(away & (self.seen < self.round + 1 - after)))
        gone = gone if gone * BATCH >= len(self.names) else 0
        if (over := len(self.names) + len(there.new) - most) > 0:
            gone = max(gone, over + most // BATCH)
        if not gone:
            return []
        longest = np.flatnonzero(away)
        longest = longest[np.argsort(self.seen[longest], kind="stable")][:gone]
        return [self.names[at] for at in longest]

    def refused(self, new: Collection[str], most: int | None) -> list[str]:
        """The newcomers for which there is no room, if the policy must remember others; `most` as in `stale`."""
        if not traits(self.policy).remembers:
            return []
        return list(new)[max(self._limit(most) - len(self.names), 0) :]
