"""FedLECC: the highest losses of the clusters of clients that have the highest losses.

Clients are clustered by their label histograms; the J clusters of the highest mean loss have equally many places, and
in each the clients of the highest loss are chosen. Losses are those of the clients' last training, or with `probe=True`
those of the current model, asked of all available clients before each choice.

The paper clusters by Hellinger's distance; here it is k-means on the square roots of the shares, whose Euclidean
distances are Hellinger's, with the number of clusters as in `fp.FLIPS`. We could read abstract and summaries of the
paper, not its algorithm. So these are ours, too: J is 3; places that the J clusters cannot fill go to the next ones; a
mean is over the available clients whose loss is known; a newcomer belongs to the nearest centre and has an infinite
loss, so that it comes first, as clients never tried do, in random order; when there are twice as many clients as when
they were clustered, they are clustered again. A client that was late or failed has the lowest loss of its cohort.

Trusts: the label counts and the losses that clients tell. A client that claims a high loss lifts its whole cluster, and
is chosen first in it.

The server sees the label counts of each client, once, and its losses; with `probe=True` those of all clients in every
round.
"""

from dataclasses import dataclass
from functools import partial

import numpy as np

from fedpick import solvers
from fedpick.core.errors import MissingError
from fedpick.core.protocol import check_outcome
from fedpick.core.state import shared_field
from fedpick.core.types import Choice, Clients, Floats, Ints, Outcome, View
from fedpick.policies import _checks as check
from fedpick.policies._common import EXCUSES, ByValue, answers, nobody, places, told, unheard_lowest, valid_losses
from fedpick.policies._labels import centres_of, counts_of, nearest, shares_of
from fedpick.policies.about import About, Paper

__all__ = ["FedLECC", "FedLECCState"]

PAPER = Paper(
    "jimenez2026fedlecc",
    "Jimenez-Gutierrez, Daniel M. and Giunta, Giovanni and Hassanzadeh, Mehrdad and Anagnostopoulos, Aris and "
    "Chatzigiannakis, Ioannis and Vitaletti, Andrea",
    "{FedLECC}: Cluster- and Loss-Guided Client Selection for Federated Learning under Non-{IID} Data",
    2026,
    "note = {arXiv 2603.08911}",
    "https://arxiv.org/abs/2603.08911",
)


@dataclass
class FedLECCState:
    """The clusters, and what clients said last."""

    cluster: Ints  # -1: not assigned yet
    loss: Floats  # infinite: none yet
    counts: Ints  # how often chosen
    centres: Floats = shared_field()  # (k, labels), square roots of shares
    clustered: int = shared_field()  # number of clients when they were clustered


@dataclass(frozen=True, eq=False)
class FedLECC(ByValue):
    """The highest losses of the clusters with the highest losses.

    Args:
        cohort_size: m.
        worst: J, how many clusters have places.
        clusters: how many there are; None: the best of 2 to 20.
        probe: whether all available clients are asked for the loss of the current model before each choice.

    >>> import fedpick as fp
    >>> sorted(fp.FedLECC(cohort_size=10, probe=True).needs)
    ['labels', 'probe']
    """

    cohort_size: int
    worst: int = 3
    clusters: int | None = None
    probe: bool = False

    about = About(("fedlecc",), PAPER, forms=({"probe": True},))
    rounds_only = "its cohort has places for the worst clusters, but clients are asked one after another"

    def __post_init__(self) -> None:
        check.cohort_size(self)
        check.whole(self, "worst", "clusters", low=1)

    @property
    def needs(self) -> tuple[str, ...]:
        """Label counts, and a probe if it is wanted."""
        return ("labels", "probe") if self.probe else ("labels",)

    def init(self, clients: Clients) -> FedLECCState:
        """Return the state before the first round: the centres are known, but nobody is assigned."""
        count, roots = len(clients), np.sqrt(shares_of(counts_of(self, clients)))
        none = np.zeros(count, dtype=np.int64)
        return FedLECCState(none - 1, np.full(count, np.inf), none, centres_of(roots, self.clusters), count)

    def _assigned(self, state: FedLECCState, clients: Clients) -> Ints:
        """Cluster of every client, newcomers too."""
        new = np.flatnonzero(state.cluster < 0)
        if len(new) == 0:
            return state.cluster
        cluster = state.cluster.copy()
        cluster[new] = nearest(np.sqrt(shares_of(counts_of(self, clients, new))), state.centres)
        return cluster

    def select(self, state: FedLECCState, view: View, rng: np.random.Generator) -> Choice:
        """Clients never tried, then the highest losses of the worst clusters."""
        ids, m = places(view, self.cohort_size)
        if m == 0:
            return nobody()
        loss, kind = self._losses(state, view, ids), self._assigned(state, view.clients)[ids]
        fresh = np.isposinf(loss)
        if fresh.any() and not fresh.all():
            often = fresh & (state.counts[ids] >= EXCUSES)  # was never waited for; else it would come first for ever
            loss[often], fresh[often] = np.median(loss[~fresh]), False
        first = rng.permutation(np.flatnonzero(fresh))[:m]
        chosen, rest = [first], np.flatnonzero(~fresh)
        able = np.bincount(kind[rest], minlength=len(state.centres))
        mean = np.bincount(kind[rest], loss[rest], minlength=len(able)) / np.maximum(able, 1)
        order = np.lexsort((rng.random(len(able)), np.where(able > 0, -mean, np.inf)))
        given = self._given(m - len(first), able, order)
        for c in np.flatnonzero(given):
            members = rest[kind[rest] == c]
            chosen.append(members[solvers.top(loss[members], int(given[c]), rng)])
        return Choice(np.sort(ids[np.concatenate(chosen)]))

    def _given(self, m: int, able: Ints, order: Ints) -> Ints:
        """Places of each cluster: equally many for the worst, what they cannot fill for the next in order."""
        given, left = np.zeros(len(able), dtype=np.int64), m
        while left > 0:
            for c in order:
                taken = min(-(-m // self.worst), int(able[c] - given[c]), left)
                given[c] += taken
                left -= taken
        return given

    def _losses(self, state: FedLECCState, view: View, ids: Ints) -> Floats:
        if not self.probe:
            return state.loss[ids]
        if view.probe is None:
            raise MissingError(
                "FedLECC: with probe=True it asks all available clients for their loss, but view.probe is None; give "
                "the View a probe, or use probe=False"
            )
        losses = answers(partial(view.probe, batch=None), ids, "view.probe", "loss")
        usable = valid_losses(losses)
        return np.where(usable, losses, losses[usable].min() if usable.any() else 0.0)

    def observe(self, state: FedLECCState, view: View, choice: Choice, outcome: Outcome) -> FedLECCState:
        """Keep the losses."""
        check_outcome(view, choice, outcome)
        ids = choice.ids
        heard = outcome.succeeded & valid_losses(outcome.loss)
        state.loss[ids[heard]] = outcome.loss[heard]
        lowest = unheard_lowest(state.loss[ids], heard)
        state.loss[ids] = np.where(told(outcome, outcome.loss), lowest, state.loss[ids])
        state.counts[ids] += 1
        cluster, centres, clustered = self._assigned(state, view.clients), state.centres, state.clustered
        if len(cluster) >= 2 * max(clustered, 1):
            roots = np.sqrt(shares_of(counts_of(self, view.clients)))
            centres, clustered = centres_of(roots, self.clusters), len(cluster)
            cluster = nearest(roots, centres)
        return FedLECCState(cluster, state.loss, state.counts, centres, clustered)
