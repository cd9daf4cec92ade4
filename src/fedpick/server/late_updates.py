"""Late updates of a session: what comes after its round was closed is kept, and weighed in a later one (REFL)."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from fedpick.core.errors import ContractError
from fedpick.core.lateness import late_weights
from fedpick.core.types import Choice, Clients, Floats, Outcome, Status, View
from fedpick.server.settings import Lateness
from fedpick.server.validation import printable, size_or

if TYPE_CHECKING:
    from fedpick.server.round import Round

__all__ = ["LateUpdate", "LateUpdates", "Mean", "Part", "base_weights", "flat", "parts", "weighed"]

MOST = 10_000  # updates that wait to be used: they are models, and a server's memory is finite


@dataclass(frozen=True, eq=False)
class LateUpdate:
    """A late update, the round in which its client was chosen, and what it would have counted for in time."""

    name: str
    update: Any
    round: int
    base: float


@dataclass(frozen=True, eq=False)
class Part:
    """An update to aggregate; the model is to move by the sum of weight times update."""

    name: str
    update: Any
    weight: float
    rounds: int = 0  # by how many it is late


class LateUpdates:
    """The clients that still owe an update of the last rounds, and the late updates that have come."""

    def __init__(self, lateness: Lateness, log: logging.Logger, owner: str) -> None:
        self.rounds, self.beta, self._log, self._owner = lateness.rounds, lateness.beta, log, owner
        # round -> name -> what its update would have counted for, and whether that is a weight of the policy
        self._owed: dict[int, dict[str, tuple[float, bool]]] = {}
        self.waiting: list[LateUpdate] = []
        self._pulls: list[Callable[[], bool]] = []

    def watch(self, pull: Callable[[], bool]) -> None:
        """Let `fetch` call this function, which takes a closed round's updates and returns whether more may come."""
        if self.rounds:
            self._pulls.append(pull)

    def fetch(self) -> None:
        """Take the updates of closed rounds that have come, where a framework does not hand them over by itself."""
        self._pulls = [pull for pull in self._pulls if pull()]

    def note(self, view: View, choice: Choice, outcome: Outcome, names: Sequence[str]) -> None:
        """Note which clients of a round that ends are late."""
        if not self.rounds:
            return
        base, weighted = base_weights(choice, view.clients), choice.weights is not None
        slow = choice.ids[np.asarray(outcome.status) == Status.LATE]
        self._owed[view.round] = {names[k]: (base[k], weighted) for k in slow.tolist()}
        self._owed = {t: owed for t, owed in self._owed.items() if view.round - t < self.rounds}
        self.waiting = [each for each in self.waiting if view.round - each.round < self.rounds]

    def lifetime(self, limit: float | None) -> float | None:
        """Seconds for which answers to a round's messages are of use, if the round lasts `limit`; None: no limit."""
        return None if limit is None else (1 + self.rounds) * limit

    def owes(self, name: str, round: int) -> bool:
        """Whether an update of this client for this round may still come."""
        return name in self._owed.get(round, {})

    def free(self, names: Iterable[str]) -> list[str]:
        """The clients of these names that do not still work on an earlier round; all of them if all do."""
        names, busy = list(names), {name for owed in self._owed.values() for name in owed}
        return [name for name in names if name not in busy] or names

    def keep(self, name: str, update: Any, round: int, size: float | None = None) -> Status | None:
        """Keep an update that comes after its round was closed; None if it cannot be used."""
        if not self.rounds:
            raise ContractError(f"{self._owner}: late = 0, so late updates are not kept; set late to some rounds")
        base, weighted = self._owed.get(round, {}).pop(name, (None, False)) if isinstance(name, str) else (None, False)
        if base is None or len(self.waiting) >= MOST:
            self.drop(name, round, "nothing is owed" if base is None else f"{MOST} late updates are waiting already")
            return None
        self.waiting.append(LateUpdate(name, update, round, base if weighted else size_or(size, base)))
        return Status.LATE

    def drop(self, name: str, round: int, why: str) -> None:
        """Do not use an update that came; none is awaited from this client for this round any more."""
        if isinstance(name, str):
            self._owed.get(round, {}).pop(name, None)
        self._log.info("late update of %s for round %s dropped: %s", printable(name), round, why)

    def due(self, round: int) -> list[LateUpdate]:
        """The updates that this round may use."""
        return [each for each in self.waiting if round - each.round <= self.rounds]

    def used(self, taken: Sequence[LateUpdate]) -> None:
        """Forget updates that were used."""
        self.waiting = [each for each in self.waiting if each not in taken]


def base_weights(choice: Choice, clients: Clients) -> dict[int, float]:
    """What each chosen client's update counts for beside the others, by index: the policy's weight, else its size."""
    each = clients.sizes[choice.ids] if choice.weights is None else choice.weights
    found = dict.fromkeys(choice.ids.tolist(), 0.0)
    for k, value in zip(choice.ids.tolist(), each.tolist(), strict=True):
        found[k] = value if choice.weights is None else found[k] + value
    return found


def flat(update: Any) -> Floats:
    """The numbers of an array, or of arrays in a list or a mapping, one after another."""
    if isinstance(update, Mapping):
        update = [update[key] for key in sorted(update)]
    arrays = update if isinstance(update, list | tuple) else [update]
    return np.concatenate([np.asarray(each, dtype=np.float64).ravel() for each in arrays])


class Mean:
    """The weighted mean of a round's updates in time, which late ones are compared with; they are added one by one.

    >>> mean = Mean()
    >>> mean.add(np.array([0.0, 0.0]), 1.0)
    >>> mean.add(np.array([2.0, 0.0]), 3.0)
    >>> mean.apart(np.array([1.5, 2.0]))
    4.0
    """

    def __init__(self) -> None:
        self._sum: Floats | None = None
        self._total = 0.0

    def add(self, numbers: ArrayLike, weight: float) -> None:
        """Add an update's numbers."""
        more = weight * np.asarray(numbers, dtype=np.float64).ravel()
        if self._sum is not None and self._sum.shape != more.shape:
            raise ValueError(f"{more.size} numbers, but those before have {self._sum.size}")
        self._sum = more if self._sum is None else self._sum + more
        self._total += weight

    def fits(self, numbers: Floats) -> bool:
        """Whether these numbers can be compared with the mean."""
        return bool(np.isfinite(numbers).all()) and (self._sum is None or numbers.shape == self._sum.shape)

    def apart(self, numbers: Floats) -> float:
        """The squared distance to the mean; 0 if there is none."""
        if self._sum is None or self._total <= 0.0:
            return 0.0
        return float(np.square(numbers - self._sum / self._total).sum())


def weighed(
    round: "Round", beta: float, taken: Sequence[LateUpdate], mean: Mean, vector: Callable[[Any], ArrayLike]
) -> list[tuple[LateUpdate, float]]:
    """The late updates that are like those in time, whose mean is given, and what each counts for beside them.

    With a `beta` of 0 they are not compared. `vector` maps an update to its numbers.
    """
    kept, apart = [], []
    for each in taken:
        try:
            numbers = np.asarray(vector(each.update), dtype=np.float64).ravel() if beta > 0.0 else np.zeros(0)
            fits = beta == 0.0 or mean.fits(numbers)
        except Exception:  # whatever the client sent
            fits = False
        if fits:
            kept.append(each)
            apart.append(mean.apart(numbers) if beta > 0.0 else 0.0)
        else:
            round.warn("late update of %s dropped: it is not like those in time", each.name)
    tau = np.array([round.number - each.round for each in kept])
    factors = late_weights(tau, np.array(apart, dtype=np.float64), beta)
    return [(each, factor * each.base) for each, factor in zip(kept, factors.tolist(), strict=True)]


def parts(round: "Round", beta: float, taken: Sequence[LateUpdate], vector: Callable[[Any], ArrayLike]) -> list[Part]:
    """The updates in time and those taken from earlier rounds, with their weights; arguments as in `weighed`."""
    updates, mean = round.updates, Mean()
    bases = {name: round.base(name) for name in updates}
    if taken and beta > 0.0:
        try:
            for name, update in updates.items():
                mean.add(vector(update), bases[name])
        except Exception as error:
            raise ContractError(
                f"a late update cannot be compared with those in time ({type(error).__name__}: {error}): give "
                "vector=function from an update to its numbers, or late=Lateness(rounds, beta=0)"
            ) from error
    late = weighed(round, beta, taken, mean, vector)
    total = sum(bases.values()) + sum(base for _, base in late) if round.choice.normalise else 1.0
    total = max(total, np.finfo(np.float64).tiny)
    return [Part(name, updates[name], base / total) for name, base in bases.items()] + [
        Part(each.name, each.update, base / total, round.number - each.round) for each, base in late
    ]
