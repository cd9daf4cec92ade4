"""DivFL: the clients whose updates best represent the updates of all clients.

Balakrishnan, Li, Zhou, Himayat, Smith & Bilmes (2022), "Diverse Client Selection for Federated Learning via Submodular
Maximization", ICLR. The cohort minimises, greedily, the sum over all clients of the distance between the client's
update and the nearest chosen one's (4); a chosen client's weight is the number of clients that it represents.

The paper's "no overhead" variant: a client's update is the last one that was heard. There all clients train in the
first round; here clients never tried come first, a cohort at a time. A client that was tried but never reported is
asked as often as by uniform choice, and represents itself. (An update of 0 would be in the middle of all, and chosen
always.)

The authors' code leaves these weights out. `aggregation = "mean"` does so here, too; the study divfl/rounds plays both.

Trusts: the reported vectors. A client far from all others is chosen, and then has the weight of one client.
"""

import math
from dataclasses import dataclass

import numpy as np

from fedpick.core.errors import require
from fedpick.core.protocol import ReportSpec, check_outcome
from fedpick.core.types import Choice, Clients, Floats, Ints, Outcome, View
from fedpick.policies._common import ByValue, check_cohort_size, check_whole, nobody, present
from fedpick.policies._vectors import fresh_vectors, known_vectors, learn_vectors, vector_report
from fedpick.solvers.facility import Greedy

__all__ = ["DivFL", "DivFLState"]

MOST_CLIENTS = 30_000  # a choice compares them all with a few times as many: the square of their number
ALL_UP_TO = 10_000  # clients; of more, some candidates are drawn for each place, and no distances kept


@dataclass
class DivFLState:
    """How often each client was chosen, and the last vector that it reported (NaN: none yet)."""

    counts: Ints
    vectors: Floats


@dataclass(frozen=True, eq=False)
class DivFL(ByValue):
    """Greedy facility location on the clients' updates.

    Args:
        cohort_size: m.
        width: of the sketches that clients report of their updates; None: the updates themselves, as in the paper.
        candidates: how many, drawn at random, are looked at for each place (stochastic greedy); None: all of them up to
            10,000, else (N / m) ln 10.

    >>> import fedpick as fp
    >>> fp.traits(fp.DivFL(cohort_size=10)).needs
    frozenset({'sketch_32'})
    """

    cohort_size: int
    width: int | None = 32
    candidates: int | None = None

    def __post_init__(self) -> None:
        check_cohort_size(self, self.cohort_size)
        for name in ("width", "candidates"):
            if getattr(self, name) is not None:
                check_whole(self, name, getattr(self, name), 1)

    @property
    def needs(self) -> tuple[ReportSpec, ...]:
        """The vectors."""
        return (vector_report(self.width),)

    def init(self, clients: Clients) -> DivFLState:
        """Return the state before the first round: no update is known."""
        return DivFLState(np.zeros(len(clients), dtype=np.int64), fresh_vectors(len(clients), self.width))

    def select(self, state: DivFLState, view: View, rng: np.random.Generator) -> Choice:
        """Greedily, the client that brings the others nearest to the cohort."""
        ids = present(view)
        m = min(self.cohort_size, len(ids))
        if m == 0:
            return nobody()
        heard = known_vectors(state.vectors)
        require(
            len(heard) <= MOST_CLIENTS,
            "DivFL: clients",
            len(heard),
            f"at most {MOST_CLIENTS}",
            "every choice compares all of them; use another policy for so many",
        )
        known = np.flatnonzero(heard)  # all of them are represented, including those not available
        there = np.flatnonzero(view.available[known])
        alone = self._alone(state, ids[~heard[ids]], m, m / len(ids), m - len(there), rng)
        look = self.candidates
        if look is None and len(known) > ALL_UP_TO:
            look = math.ceil(len(there) / m * math.log(10.0))
        greedy, chosen = Greedy(state.vectors[known], there, rng, look), []
        for _ in range(m - len(alone)):
            at = greedy.best()[1]
            greedy.take(at)
            chosen.append(at)
        stands_for = np.bincount(greedy.owner[greedy.owner >= 0], minlength=len(known))[chosen]
        cohort = np.concatenate([alone, known[chosen]]).astype(np.int64)
        weights = np.concatenate([np.ones(len(alone)), stands_for])
        order = np.argsort(cohort)
        return Choice(cohort[order], weights=weights[order])

    def _alone(
        self, state: DivFLState, ids: Ints, most: int, rate: float, least: int, rng: np.random.Generator
    ) -> Ints:
        """Of the clients without a vector: those never tried, then each other at this rate, and `least` in all."""
        fresh = rng.permutation(ids[state.counts[ids] == 0])
        tried = rng.permutation(ids[state.counts[ids] > 0])
        again = rng.random(len(tried)) < rate
        order: Ints = np.concatenate([fresh, tried[again], tried[~again]])
        return order[: min(most, max(len(fresh) + int(np.count_nonzero(again)), least))]

    def observe(self, state: DivFLState, view: View, choice: Choice, outcome: Outcome) -> DivFLState:
        """Keep the vectors that came."""
        check_outcome(view, choice, outcome)
        state.counts[choice.ids] += 1
        return DivFLState(state.counts, learn_vectors(state.vectors, choice, outcome, vector_report(self.width).name))
