"""FLIPS: clusters of clients with similar label distributions, which have equally many places in each cohort.

Clients are clustered once by k-means on their label histograms, each scaled to the sum 1; the number of clusters is the
one with the lowest index of Davies and Bouldin, from 2 to 20 and at most half the number of different histograms. In
each round every cluster has m/k places; those left over go to the clusters that were picked least so far. Inside a
cluster, those picked least so far are chosen, ties at random. If clients of the round before were late or failed, as
large a share of m is asked in addition, of the clusters of those clients.

Where the paper says nothing: places of a cluster with too few available clients go to the others in turn. A newcomer
belongs to the nearest centre, and counts as picked as often as the least picked of its cluster; when there are twice as
many clients as when they were clustered, they are clustered again. Of more than 10,000 clients, so many at equal
distances are learned from. k-means begins with points that are far apart, not random ones.
The chance of each chosen client is known where no lot decided between clusters.

A client that told no labels counts as one whose data are the mean of the others'.

Trusts: the label counts that clients tell, once. A client that claims a rare distribution has a small cluster to
itself, and is chosen in every round if there are as many places as clusters. In the paper a trusted enclave learns the
counts and clusters the clients; here the server sees the histogram of each client.
"""

from dataclasses import dataclass

import numpy as np

from fedpick import solvers
from fedpick.core.protocol import check_outcome
from fedpick.core.state import shared_field
from fedpick.core.types import Choice, Clients, Floats, Ints, Outcome, Status, View
from fedpick.policies import _checks as check
from fedpick.policies._common import ByValue, nobody, places
from fedpick.policies._labels import centres_of, counts_of, nearest, shares_of
from fedpick.policies.about import About, Paper

__all__ = ["FLIPS", "FLIPSState", "deal"]

PAPER = Paper(
    "bhope2023flips",
    "Bhope, Rahul Atul and Jayaram, K. R. and Venkatasubramanian, Nalini and Verma, Ashish and Thomas, Gegi",
    "{FLIPS}: Federated Learning using Intelligent Participant Selection",
    2023,
    "booktitle = {International Middleware Conference}",
    "https://arxiv.org/abs/2308.03901",
)


def deal(m: int, able: Ints, order: Ints) -> Ints:
    """Places of each cluster: one after the other in this order, none beyond the clients able.

    >>> deal(7, np.array([1, 9, 9]), np.array([2, 1, 0])).tolist()
    [1, 3, 3]
    """
    given = np.zeros(len(able), dtype=np.int64)
    left = min(m, int(able.sum()))
    while left > 0:
        open_ = order[given[order] < able[order]]
        each = max(min(left // len(open_), int((able - given)[open_].min())), 0)
        given[open_] += each
        left -= each * len(open_)
        if each == 0:  # fewer places than clusters are left
            given[open_[:left]] += 1
            break
    return given


@dataclass
class FLIPSState:
    """The clusters, and who was picked how often."""

    cluster: Ints  # -1: not assigned yet
    picks: Ints  # how often; a newcomer begins with the lowest of its cluster
    centres: Floats = shared_field()  # (k, labels)
    taken: Ints = shared_field()  # how often each cluster was picked
    late: Ints = shared_field()  # clients of each cluster that were late or failed in the round before
    share: float = shared_field()  # of that round's cohort
    clustered: int = shared_field()  # number of clients when they were clustered


@dataclass(frozen=True, eq=False)
class FLIPS(ByValue):
    """Equally many clients of each cluster of similar label distributions.

    Args:
        cohort_size: m.
        clusters: k; None: the best of 2 to 20.
        stragglers: whether more than m are asked after a round in which clients were late or failed.

    >>> import fedpick as fp
    >>> fp.traits(fp.FLIPS(cohort_size=10)).needs
    frozenset({'labels'})
    """

    cohort_size: int
    clusters: int | None = None
    stragglers: bool = True

    about = About(("flips",), PAPER)
    needs = ("labels",)
    rounds_only = "its cohort has places for every cluster, but clients are asked one after another"

    def __post_init__(self) -> None:
        check.cohort_size(self)
        check.whole(self, "clusters", low=1)

    @property
    def fixed_size(self) -> bool:
        """Whether cohorts always have m clients."""
        return not self.stragglers

    def init(self, clients: Clients) -> FLIPSState:
        """Return the state before the first round: the clusters are known, but nobody is assigned."""
        centres = centres_of(shares_of(counts_of(self, clients)), self.clusters)
        none = np.zeros(len(centres), dtype=np.int64)
        alone = np.full(len(clients), -1, dtype=np.int64)
        return FLIPSState(alone, np.zeros(len(clients), np.int64), centres, none, none.copy(), 0.0, len(clients))

    def _assigned(self, state: FLIPSState, clients: Clients) -> tuple[Ints, Ints]:
        """Cluster and number of picks of every client, newcomers too."""
        new = np.flatnonzero(state.cluster < 0)
        if len(new) == 0:
            return state.cluster, state.picks
        cluster, picks = state.cluster.copy(), state.picks.copy()
        cluster[new] = nearest(shares_of(counts_of(self, clients)[new]), state.centres)
        old = np.flatnonzero(state.cluster >= 0)
        lowest = np.full(len(state.centres), np.iinfo(np.int64).max)
        np.minimum.at(lowest, cluster[old], picks[old])
        begin = lowest[cluster[new]]
        picks[new] = np.where(begin == np.iinfo(np.int64).max, 0, begin)
        return cluster, picks

    def select(self, state: FLIPSState, view: View, rng: np.random.Generator) -> Choice:
        """Deal the places to the clusters; in each, those picked least."""
        ids, m = places(view, self.cohort_size)
        if m == 0:
            return nobody()
        cluster, picks = self._assigned(state, view.clients)
        kind, used = cluster[ids], picks[ids]
        able = np.bincount(kind, minlength=len(state.centres))
        lot = rng.random(len(able))
        given = self._given(state, m, able, lot)
        chosen, chances = [], []
        for c in np.flatnonzero(given):
            members = np.flatnonzero(kind == c)
            its = used[members]
            picked = members[solvers.top(-its.astype(np.float64), int(given[c]), rng)]
            last = used[picked].max()
            tied = (given[c] - np.count_nonzero(its < last)) / np.count_nonzero(its == last)
            chosen.append(ids[picked])
            chances.append(np.where(used[picked] < last, 1.0, tied))
        cohort = np.concatenate(chosen)
        order = np.argsort(cohort)
        # Where a lot between clusters decided, another lot would give other places, and the chances are not known.
        known = np.array_equal(given, self._given(state, m, able, -lot))
        return Choice(cohort[order], np.concatenate(chances)[order] if known else None)

    def _given(self, state: FLIPSState, m: int, able: Ints, lot: Floats) -> Ints:
        """Places of each cluster, and those for as many as were late; `lot` orders clusters that are equal."""
        given = deal(m, able, np.lexsort((lot, state.taken)))
        if self.stragglers and state.share > 0.0:
            more = int(np.ceil(round(self.cohort_size * state.share, 9)))
            theirs = np.where(state.late > 0, able - given, 0)
            given += deal(more, theirs, np.lexsort((lot, -state.late)))
        return given

    def observe(self, state: FLIPSState, view: View, choice: Choice, outcome: Outcome) -> FLIPSState:
        """Count the picks and the stragglers of each cluster."""
        check_outcome(view, choice, outcome)
        centres, clustered, taken = state.centres, state.clustered, state.taken
        cluster, picks = self._assigned(state, view.clients)
        picks[choice.ids] += 1
        if len(cluster) >= 2 * max(clustered, 1):
            shares = shares_of(counts_of(self, view.clients))
            centres, clustered = centres_of(shares, self.clusters), len(cluster)
            cluster = nearest(shares, centres)
            taken = np.bincount(cluster, picks, minlength=len(centres)).astype(np.int64)
        else:
            taken = taken + np.bincount(cluster[choice.ids], minlength=len(centres))
        failed = (outcome.status == Status.LATE) | (outcome.status == Status.FAILED)
        late = np.bincount(cluster[choice.ids[failed]], minlength=len(centres))
        share = float(np.mean(failed)) if len(choice) else 0.0
        return FLIPSState(cluster, picks, centres, taken, late, share, clustered)
