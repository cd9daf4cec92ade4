"""DivFL: the clients whose updates best represent the updates of all clients.

The cohort minimises, greedily, the sum over all clients of the distance between the client's update and the nearest
chosen one's (4); a chosen client's weight is the number of clients that it represents (2). Of several chosen clients
that are equally near, the first represents a client, but each chosen client represents itself: so none has the weight
0. The authors' code leaves these weights out and averages by data size, as `weights="size"` does.

This is the paper's "no overhead" variant: a client's update is the last one that it sent. In the paper all clients
train in the first round; here clients never tried come first, a cohort at a time. A client that was tried but never
reported is asked as often as by uniform choice, and represents itself: an update of 0 would be in the middle of all,
and chosen always.

Trusts: the reported vectors. A client far from all others is chosen, and then has the weight of one client.
"""

import math
from dataclasses import dataclass, field

import numpy as np

from fedpick.core.protocol import ReportSpec, check_outcome
from fedpick.core.types import Choice, Clients, Ints, Outcome, View
from fedpick.policies import _checks as check
from fedpick.policies._common import ByValue, nobody, places
from fedpick.policies._vectors import VectorState, fresh_vectors, known_vectors, learn_vectors, vector_report
from fedpick.policies.about import About, Paper
from fedpick.solvers.facility import Greedy

__all__ = ["DivFL"]

PAPER = Paper(
    "balakrishnan2022diverse",
    "Balakrishnan, Ravikumar and Li, Tian and Zhou, Tianyi and Himayat, Nageen and Smith, Virginia and Bilmes, Jeffrey",
    "Diverse Client Selection for Federated Learning via Submodular Maximization",
    2022,
    "booktitle = {International Conference on Learning Representations (ICLR)}",
    "https://openreview.net/forum?id=nwKXyFvaUm",
)

WEIGHTS = ("represented", "size")
MOST_CLIENTS = 30_000  # the time of a choice grows with the square of this
ALL_UP_TO = 10_000  # clients; with more, candidates are drawn for each place, and distances are not stored


@dataclass(frozen=True, eq=False)
class DivFL(ByValue):
    """The cohort whose updates best represent those of all clients.

    Args:
        cohort_size: m.
        width: of the sketches that clients report of their updates; None: the updates themselves, as in the paper.
        candidates: number of clients, drawn at random, that are compared for each place (stochastic greedy); None: all
            of up to 10,000 clients, else (N / m) ln 10.
        weights: of the chosen: "represented", how many clients each represents, or "size", its data size.

    >>> import fedpick as fp
    >>> fp.traits(fp.DivFL(cohort_size=10)).needs
    frozenset({'sketch_32'})
    """

    cohort_size: int
    width: int | None = 32
    candidates: int | None = None
    weights: str = field(default="represented", metadata={"added": True})

    about = About(("divfl",), PAPER, measured_up_to=10_000)
    rounds_only = "its cohort represents all clients together, but clients are asked one after another"

    def __post_init__(self) -> None:
        check.cohort_size(self)
        if self.width is not None:
            check.whole(self, "width", low=1)
        check.whole(self, "candidates", low=1)
        check.one_of(self, "weights", WEIGHTS, "setting weights")

    @property
    def needs(self) -> tuple[ReportSpec, ...]:
        """The vectors."""
        return (vector_report(self.width),)

    def init(self, clients: Clients) -> VectorState:
        """Return the state before the first round: no update is known."""
        return VectorState(np.zeros(len(clients), dtype=np.int64), fresh_vectors(len(clients), self.width))

    def select(self, state: VectorState, view: View, rng: np.random.Generator) -> Choice:
        """Add the client that brings all others nearest to the cohort, one after the other."""
        ids, m = places(view, self.cohort_size)
        if m == 0:
            return nobody()
        heard = known_vectors(state.vectors)
        instead = "every choice compares all of them; use another policy for so many"
        check.few(self, "clients", len(heard), MOST_CLIENTS, instead)
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
        cohort = np.concatenate([alone, known[chosen]]).astype(np.int64)
        if self.weights == "size":
            return Choice(np.sort(cohort))
        stands_for = np.bincount(greedy.owner[greedy.owner >= 0], minlength=len(known))[chosen]
        weights = np.concatenate([np.ones(len(alone)), stands_for])
        order = np.argsort(cohort)
        return Choice(cohort[order], weights=weights[order])

    def _alone(
        self, state: VectorState, ids: Ints, most: int, rate: float, least: int, rng: np.random.Generator
    ) -> Ints:
        """Clients without a vector: those never tried, then others with probability `rate`; `least` to `most`."""
        fresh = rng.permutation(ids[state.counts[ids] == 0])
        tried = rng.permutation(ids[state.counts[ids] > 0])
        again = rng.random(len(tried)) < rate
        order: Ints = np.concatenate([fresh, tried[again], tried[~again]])
        return order[: min(most, max(len(fresh) + int(np.count_nonzero(again)), least))]

    def observe(self, state: VectorState, view: View, choice: Choice, outcome: Outcome) -> VectorState:
        """Keep the vectors that were reported."""
        check_outcome(view, choice, outcome)
        state.counts[choice.ids] += 1
        return VectorState(state.counts, learn_vectors(state.vectors, choice, outcome, vector_report(self.width).name))
