"""HiCS: clusters of clients with similar and equally balanced data; balanced clusters are drawn more often at first.

A client's balance is estimated by the entropy of the softmax of its update of the output layer's biases; clients are
clustered by the angle between these updates plus lambda times the difference of entropies; a cluster is drawn in
proportion to exp(gamma_t H), H its mean entropy, and a client uniformly inside it, as in the authors' code.

The authors run Ward's method on the rows of the distance matrix, but it is defined for Euclidean distances only; here
clusters are merged by mean distance. Clients never tried come first, which is the paper's warm-up. A client that was
chosen but never reported counts as the least balanced; one that was not waited for still counts as never tried, and
after three such rounds as of average balance.

Trusts: the reported updates of the output layer. A client that claims balance is drawn as often as the others of the
most balanced cluster; gamma, which can fall to 0, limits that.
"""

from dataclasses import dataclass

import numpy as np

from fedpick.core.protocol import ReportSpec, check_outcome
from fedpick.core.state import added_field
from fedpick.core.types import Choice, Clients, Floats, Ints, Outcome, View
from fedpick.policies import _checks as check
from fedpick.policies._common import EXCUSES, ByValue, nobody, places
from fedpick.policies._vectors import VectorState, fresh_vectors, known_vectors, learn_vectors
from fedpick.policies.about import About, Paper

__all__ = ["HiCS", "HiCSState", "entropies"]

PAPER = Paper(
    "chen2024heterogeneity",
    "Chen, Huancheng and Vikalo, Haris",
    "Heterogeneity-Guided Client Sampling: Towards Fast and Efficient Non-{IID} Federated Learning",
    2024,
    "booktitle = {Advances in Neural Information Processing Systems (NeurIPS)}",
    "https://arxiv.org/abs/2310.00198",
)

MOST_CLIENTS = 10_000  # available at once: the distances of all pairs are stored
REPORT = "output_update"


def entropies(updates: Floats, temperature: float) -> Floats:
    """Entropy of the softmax of each row over the temperature.

    >>> entropies(np.array([[0.0, 0.0], [9.0, 0.0]]), 1.0).round(3).tolist()
    [0.693, 0.001]
    """
    logits = updates / temperature
    logits = logits - logits.max(axis=1, keepdims=True)
    total = np.exp(logits).sum(axis=1)
    found: Floats = np.log(total) - (np.exp(logits) * logits).sum(axis=1) / total
    return found


@dataclass
class HiCSState(VectorState):
    """Counts and vectors, and how often each client was chosen and not waited for."""

    unheard: Ints = added_field()


@dataclass(frozen=True, eq=False)
class HiCS(ByValue):
    """Clusters of similar clients, balanced clusters more often.

    Args:
        cohort_size: how many train.
        clusters: how many; None: as many as places. It may be more.
        gamma: how much more often balanced clusters are drawn, in round 1.
        horizon: rounds over which gamma falls to 0; None keeps it.
        temperature: of the softmax; about the size of the updates of a bias.
        balance: lambda, the weight of a difference in entropy beside the angle.
    """

    cohort_size: int
    clusters: int | None = None
    gamma: float = 4.0
    horizon: int | None = None
    temperature: float = 0.0025
    balance: float = 10.0

    about = About(("hics",), PAPER, measured_up_to=1_000)
    needs = (ReportSpec(REPORT),)

    def __post_init__(self) -> None:
        check.cohort_size(self)
        check.whole(self, "clusters", "horizon", low=1)
        check.number(self, "gamma", "balance", low=0.0)
        check.number(self, "temperature", low=0.0, open=True)

    def init(self, clients: Clients) -> HiCSState:
        """Return the state before the first round."""
        none = np.zeros(len(clients), dtype=np.int64)
        return HiCSState(none, fresh_vectors(len(clients), None), none.copy())

    def groups(self, state: HiCSState, ids: Ints) -> tuple[Ints, Floats]:
        """The cluster of each of these clients, and the mean entropy of each cluster."""
        known = known_vectors(state.vectors)[ids]
        if not known.any():
            return np.zeros(len(ids), dtype=np.int64), np.zeros(1)
        vectors = np.nan_to_num(state.vectors[ids], nan=0.0)
        balance = entropies(vectors, self.temperature)
        untold = ~known & (state.counts[ids] == state.unheard[ids])
        balance[~known] = balance[known].min()
        balance[untold] = balance[known].mean()
        label = _clusters(vectors, self.balance * balance, self.clusters or self.cohort_size)
        number = np.bincount(label)
        return label, np.bincount(label, balance) / number

    def select(self, state: HiCSState, view: View, rng: np.random.Generator) -> Choice:
        """Clients never tried first; then, for each place, a cluster and a client of it."""
        ids, m = places(view, self.cohort_size)
        if m == 0:
            return nobody()
        first = (state.counts[ids] == state.unheard[ids]) & (state.unheard[ids] < EXCUSES)
        fresh = rng.permutation(ids[first])[:m]
        cohort = fresh.tolist()
        if len(cohort) < m:
            rest = ids[~first]
            instead = "their distances are compared in every round; use another policy for so many"
            check.few(self, "available clients", len(rest), MOST_CLIENTS, instead)
            label, entropy = self.groups(state, rest)
            gamma = self.gamma
            if self.horizon is not None:
                gamma *= max(1.0 - (view.round - 1) / self.horizon, 0.0)
            odds = np.exp(gamma * (entropy - entropy.max()))
            left = [rng.permutation(rest[label == g]).tolist() for g in range(len(entropy))]
            while len(cohort) < m:
                able = np.array([len(members) > 0 for members in left]) * odds
                if not able.any():  # what is left has odds that are 0 in floating point
                    able = np.array([float(len(members) > 0) for members in left])
                cohort.append(left[int(rng.choice(len(left), p=able / able.sum()))].pop())
        return Choice(np.sort(np.array(cohort, dtype=np.int64)))

    def observe(self, state: HiCSState, view: View, choice: Choice, outcome: Outcome) -> HiCSState:
        """Keep the updates that were reported."""
        check_outcome(view, choice, outcome)
        state.counts[choice.ids] += 1
        state.unheard[choice.ids[~outcome.known]] += 1
        return HiCSState(state.counts, learn_vectors(state.vectors, choice, outcome, REPORT), state.unheard)


def _clusters(vectors: Floats, height: Floats, count: int) -> Ints:
    """At most `count` clusters by mean distance: angle between vectors plus difference of heights."""
    if len(vectors) == 1:
        return np.zeros(1, dtype=np.int64)
    from scipy.cluster.hierarchy import fcluster, linkage  # take a while to load
    from scipy.spatial.distance import pdist

    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    chord = pdist(vectors / np.where(length > 0, length, 1.0))
    angle = 2.0 * np.arcsin(np.minimum(chord / 2.0, 1.0))
    tree = linkage(angle + pdist(height[:, None], "cityblock"), "average")
    label: Ints = np.unique(fcluster(tree, count, "maxclust"), return_inverse=True)[1]
    return label
