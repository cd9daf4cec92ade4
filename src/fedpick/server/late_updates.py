"""Late updates of a session: what comes after its round was closed is kept, and weighed in a later one (REFL)."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from fedpick.core.errors import ContractError
from fedpick.core.types import Floats, Status
from fedpick.engine.cohort import Cohort
from fedpick.engine.flight import Flight, Task
from fedpick.engine.paces import Rounds
from fedpick.engine.weights import late_weights, weigh
from fedpick.server.sizes import Sizes
from fedpick.server.validation import printable, size_or

if TYPE_CHECKING:
    from fedpick.server.round import Round

__all__ = ["LateUpdate", "LateUpdates", "Mean", "Part", "flat", "parts", "weighed"]

MOST = 10_000  # updates that wait to be used: they are models, and a server's memory is finite


@dataclass(frozen=True, eq=False)
class LateUpdate:
    """A late update, its task, and what it would have counted for in time."""

    task: Task
    update: Any
    base: float

    @property
    def name(self) -> str:
        """Of the client."""
        return str(self.task.client)

    @property
    def round(self) -> int:
        """In which the client was chosen."""
        return self.task.round


@dataclass(frozen=True, eq=False)
class Part:
    """An update to aggregate; the model is to move by the sum of weight times update."""

    name: str
    update: Any
    weight: float
    rounds: int = 0  # by how many it is late


class LateUpdates:
    """The clients that still owe an update of the last rounds, and the late updates that have come."""

    def __init__(self, pace: Rounds, flight: Flight, sizes: Sizes, log: logging.Logger, owner: str) -> None:
        self.rounds, self.beta, self._flight, self._log, self._owner = pace.late, pace.beta, flight, log, owner
        self._sizes = sizes
        self._updates: dict[int, tuple[Any, float]] = {}  # that have come, and the size that each declared; by task
        self._pulls: list[Callable[[], bool]] = []

    @property
    def waiting(self) -> list[str]:
        """Names of the clients whose updates have come and wait to be used."""
        return [str(name) for name in self._flight.held]

    def watch(self, pull: Callable[[], bool]) -> None:
        """Let `fetch` call this function, which takes a closed round's updates and returns whether more may come."""
        if self.rounds:
            self._pulls.append(pull)

    def fetch(self) -> None:
        """Take the updates of closed rounds that have come, where a framework does not hand them over by itself."""
        self._pulls = [pull for pull in self._pulls if pull()]

    def begin(self, round: int) -> None:
        """Before a round is opened: what is too old to be used in it is given up."""
        self._flight.give_up(round, self.rounds)

    def note(self, round: int, cohort: Cohort, base: Floats, most: float, names: Sequence[str]) -> None:
        """Let the late tasks of a round that ends go on; `most` is the largest size that counts beside its others."""
        if self.rounds:
            choice, sized = cohort.choice, cohort.choice.weights is None
            self._flight.add(
                Task(cohort.first + at, names[choice.ids[at]], round, float(base[at]), choice.normalise, sized, most)
                for at in cohort.late.tolist()
            )

    def owes(self, name: str, round: int) -> bool:
        """Whether an update of this client for this round may still come."""
        return self._flight.owes(name, round)

    def keep(self, name: str, update: Any, round: int, size: float | None = None) -> Status | None:
        """Keep an update that comes after its round was closed; None if it cannot be used."""
        if not self.rounds:
            raise ContractError(f"{self._owner}: late = 0, so late updates are not kept; set late to some rounds")
        full = len(self._flight.held) >= MOST
        task = self._flight.arrive(name, round, held=not full) if _known(name, round) else None
        if task is None or full:
            self.drop(name, round, f"{MOST} late updates are waiting already" if task else "nothing is owed")
            return None
        said = size_or(size, task.base) if task.sized else task.base
        self._updates[task.id] = update, said
        if task.sized:
            self._sizes.hear(name, said)
        return Status.LATE

    def drop(self, name: str, round: int, why: str) -> None:
        """Do not use an update that came; none is awaited from this client for this round any more."""
        if _known(name, round):
            self._flight.arrive(name, round, held=False)
        self._log.info("late update of %s for round %s dropped: %s", printable(name), printable(round), why)

    def come(self, round: int) -> list[LateUpdate]:
        """The updates that this round may use."""
        found = []
        for task in self._flight.come(round, self.rounds):
            update, base = self._updates[task.id]
            counted = min(self._sizes.of_answer(base, task.base), task.most) if task.sized else base
            found.append(LateUpdate(task, update, counted))
        return found

    def use(self, taken: Sequence[LateUpdate]) -> None:
        """Forget updates that were used, and those that are too old by now."""
        self._flight.use(each.task for each in taken)
        held = set(self._flight.held_ids)
        self._updates = {id: each for id, each in self._updates.items() if id in held}


def _known(name: object, round: object) -> bool:
    """Whether these can be a client's name and a round: clients may send anything."""
    return isinstance(name, str) and isinstance(round, int | np.integer)


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
    base = np.array([*bases.values(), *(base for _, base in late)], dtype=np.float64)
    relative = [round.choice.normalise] * len(bases) + [each.task.relative for each, _ in late]
    weights = weigh(base, np.array(relative, dtype=np.bool_)).tolist()
    in_time = [Part(name, updates[name], weight) for name, weight in zip(bases, weights[: len(bases)], strict=True)]
    return in_time + [
        Part(each.name, each.update, weight, round.number - each.round)
        for (each, _), weight in zip(late, weights[len(bases) :], strict=True)
    ]
