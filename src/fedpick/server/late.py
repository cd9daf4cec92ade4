"""Late updates of a session: what comes after its round was closed is kept, and weighed in a later one (REFL)."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from fedpick.errors import ContractError, require
from fedpick.lateness import late_weights
from fedpick.server import reading
from fedpick.types import Choice, Clients, Floats, Ints, Outcome, Status, View

if TYPE_CHECKING:
    from fedpick.server.round import Round

__all__ = ["Came", "LateUpdates", "Part", "factors", "parts"]

MOST = 10_000  # updates that wait to be used: they are models, and a server's memory is finite


@dataclass(frozen=True, eq=False)
class Came:
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
    """Who still owes an update of the last rounds, and those that came.

    Args:
        rounds: how many rounds late an update may come and still be used; 0: none is kept.
        beta: of `late_weights`.
        log: of the session.
        owner: the name that error messages begin with.
    """

    def __init__(self, rounds: int, beta: float, log: logging.Logger, owner: str) -> None:
        whole = isinstance(rounds, int | np.integer) and not isinstance(rounds, bool) and rounds >= 0
        require(whole, f"{owner}: late", rounds, "a whole number of rounds >= 0")
        require(0.0 <= beta <= 1.0, f"{owner}: late_beta", beta, "in [0, 1]")
        self.rounds, self.beta, self._log, self._owner = rounds, beta, log, owner
        self._owed: dict[int, dict[str, float]] = {}  # round -> name -> what it would have counted for
        self.came: list[Came] = []

    def note(self, view: View, choice: Choice, outcome: Outcome, names: Sequence[str]) -> None:
        """Note who of a round that ends is late."""
        if not self.rounds:
            return
        base = bases(choice, view.clients)
        slow = choice.ids[np.asarray(outcome.status) == Status.LATE]
        self._owed[view.round] = {names[k]: base[k] for k in slow.tolist()}
        self._owed = {t: owed for t, owed in self._owed.items() if view.round - t < self.rounds}
        self.came = [each for each in self.came if view.round - each.round < self.rounds]

    def keep(self, name: str, update: Any, round: int) -> Status | None:
        """Keep an update that comes after its round was closed; None if it cannot be used."""
        if not self.rounds:
            raise ContractError(f"{self._owner}: late = 0, so late updates are not kept; set late to some rounds")
        base = self._owed.get(round, {}).pop(name, None) if isinstance(name, str) else None
        if base is None or len(self.came) >= MOST:
            why = "nothing is owed" if base is None else f"{MOST} late updates are waiting already"
            self._log.info("late update of %s for round %s dropped: %s", reading.printable(name), round, why)
            return None
        self.came.append(Came(name, update, round, base))
        return Status.LATE

    def used(self, taken: Sequence[Came]) -> None:
        """Forget updates that were used."""
        self.came = [each for each in self.came if each not in taken]


def bases(choice: Choice, clients: Clients) -> dict[int, float]:
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


def factors(
    fresh: Sequence[Floats], weights: Sequence[float], late: Sequence[Floats], rounds: Ints, beta: float
) -> Floats:
    """REFL's factors of late updates, compared with the weighted mean of those in time; no mean, no comparison."""
    apart = np.zeros(len(late))
    total = float(np.sum(weights))
    if len(fresh) and total > 0.0:
        mean = sum(w * v for w, v in zip(weights, fresh, strict=True)) / total
        apart = np.array([float(np.square(v - mean).sum()) for v in late])
    return late_weights(rounds, apart, beta)


def parts(
    round: "Round", late: LateUpdates, taken: Sequence[Came], vector: Callable[[Any], ArrayLike] | None
) -> list[Part]:
    """The updates in time and those taken from earlier rounds, with their weights.

    Args:
        round: whose updates are aggregated.
        late: of the session.
        taken: that have come.
        vector: update -> numbers, by which a late one is compared with those in time; None: `flat`.
    """
    read = vector or flat
    updates, base = round.updates, bases(round.choice, round.view.clients)
    index = {name: k for name, k in round.index.items() if name in updates}
    own = [base[index[name]] for name in updates]
    kept, numbers = list(taken), []
    fresh: list[Floats] = []
    if taken and late.beta > 0.0:
        try:
            fresh = [np.asarray(read(update), dtype=np.float64).ravel() for update in updates.values()]
        except Exception as error:
            raise ContractError(
                f"a late update cannot be compared with those in time ({type(error).__name__}: {error}): give "
                "vector=function from an update to its numbers, or late_beta=0"
            ) from error
        for each in taken:
            found = _numbers(each, read, fresh)
            if found is None:
                kept.remove(each)
                round.warn("late update of %s dropped: it is not like those in time", each.name)
            else:
                numbers.append(found)
    tau = np.array([round.number - each.round for each in kept])
    if late.beta > 0.0:
        factor = factors(fresh, own, numbers, tau, late.beta)
    else:
        factor = late_weights(tau, np.zeros(len(kept)), 0.0)
    more = [f * each.base for f, each in zip(factor.tolist(), kept, strict=True)]
    total = sum(own) + sum(more) if round.choice.normalise else 1.0
    total = max(total, np.finfo(np.float64).tiny)
    in_time = [Part(name, updates[name], w / total) for name, w in zip(updates, own, strict=True)]
    return in_time + [
        Part(each.name, each.update, w / total, round.number - each.round) for each, w in zip(kept, more, strict=True)
    ]


def _numbers(each: Came, read: Callable[[Any], ArrayLike], fresh: Sequence[Floats]) -> Floats | None:
    """The numbers of a late update; None if they are not of the length of the others, or not finite."""
    try:
        found = np.asarray(read(each.update), dtype=np.float64).ravel()
    except Exception:  # whatever the client sent
        return None
    fits = np.isfinite(found).all() and (not fresh or found.shape == fresh[0].shape)
    return found if fits else None
