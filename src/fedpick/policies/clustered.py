"""Clustered sampling: m distributions over the clients, and one client drawn from each.

Over client i, the distributions sum to m p_i (p_i its share of the data), so that the aggregate is unbiased, as it is
when m clients are drawn by size with replacement; its variance is lower. Algorithm 1 makes the distributions by size,
Algorithm 2 of clients with similar updates.

Trusts: data sizes; with by="updates" the reported vectors, which decide with which clients a client competes for a
place, but not how often it is chosen: the expected number of draws is m p_i in any case.
"""

from dataclasses import dataclass

import numpy as np

from fedpick.core.errors import require
from fedpick.core.protocol import ReportSpec, check_outcome
from fedpick.core.types import Choice, Clients, Floats, Ints, Outcome, View
from fedpick.policies import _checks as check
from fedpick.policies._common import ByValue, nobody, present
from fedpick.policies._vectors import VectorState, fresh_vectors, learn_vectors, vector_report
from fedpick.policies.about import About, Paper

__all__ = ["Clustered"]

PAPER = Paper(
    "fraboni2021clustered",
    "Fraboni, Yann and Vidal, Richard and Kameni, Laetitia and Lorenzi, Marco",
    "Clustered Sampling: Low-Variance and Improved Representativity for Clients Selection in Federated Learning",
    2021,
    "booktitle = {International Conference on Machine Learning (ICML)}",
    "https://proceedings.mlr.press/v139/fraboni21a.html",
)

BY = ("size", "updates")
MOST_CLIENTS = 10_000  # at once, by updates: Ward's method keeps the distances of all pairs


@dataclass(frozen=True, eq=False)
class Clustered(ByValue):
    """One client from each of m distributions, unbiased; a large client can be drawn more than once.

    Args:
        cohort_size: m.
        by: "size" (Algorithm 1) or "updates" (Algorithm 2).
        width: of the sketches that clients report of their updates; None: the updates themselves. Only for "updates".

    >>> import fedpick as fp
    >>> fp.traits(fp.Clustered(cohort_size=10, by="updates")).needs
    frozenset({'sketch_32'})
    """

    cohort_size: int
    by: str = "size"
    width: int | None = 32

    about = About(("clustered",), PAPER, forms=({"by": "updates"},))
    rounds_only = "it draws a cohort jointly, one client of each cluster, but clients are asked one after another"
    replace = True

    def __post_init__(self) -> None:
        check.cohort_size(self)
        check.one_of(self, "by", BY, "setting by")
        if self.width is not None:
            check.whole(self, "width", low=1)

    @property
    def needs(self) -> tuple[ReportSpec, ...]:
        """The vectors by which clients are compared, if they are."""
        return (vector_report(self.width),) if self.by == "updates" else ()

    def init(self, clients: Clients) -> VectorState:
        """Return the state before the first round."""
        width = self.width if self.by == "updates" else 0
        return VectorState(np.zeros(len(clients), dtype=np.int64), fresh_vectors(len(clients), width))

    def line(self, state: VectorState, ids: Ints, sizes: Floats) -> tuple[Ints, Floats]:
        """The distributions laid end to end, each of length 1: clients and lengths; a client may occur several times.

        Args:
            state: counts and vectors.
            ids: the available clients.
            sizes: their data sizes.
        """
        mass = self.cohort_size * (sizes / sizes.sum())
        if self.by == "size":
            order = np.argsort(-sizes, kind="stable")
            return ids[order], mass[order]
        bound = f"at most {MOST_CLIENTS} with by='updates'"
        instead = "use by='size', which needs no distances"
        require(len(ids) <= MOST_CLIENTS, "Clustered: available clients", len(ids), bound, instead)
        at, lengths = _by_updates(state.vectors[ids], mass)
        return ids[at], lengths

    def select(self, state: VectorState, view: View, rng: np.random.Generator) -> Choice:
        """Draw one client from each distribution."""
        ids = present(view)
        if len(ids) == 0:
            return nobody()
        m, sizes = self.cohort_size, view.clients.sizes[ids]
        owner, lengths = self.line(state, ids, sizes)
        ends = np.cumsum(lengths)
        ends *= m / ends[-1]
        drawn = owner[np.minimum(np.searchsorted(ends, np.arange(m) + rng.random(m), side="right"), len(ends) - 1)]
        inclusion = m * view.clients.sizes[drawn] / sizes.sum()
        return Choice(drawn, inclusion, weights=np.ones(m), chances=lambda: m * sizes / sizes.sum())

    def observe(self, state: VectorState, view: View, choice: Choice, outcome: Outcome) -> VectorState:
        """Count the drawn clients; keep the vectors that they reported."""
        check_outcome(view, choice, outcome, replace=True)
        np.add.at(state.counts, choice.ids, 1)
        vectors = state.vectors
        if self.by == "updates":
            vectors = learn_vectors(vectors, choice, outcome, vector_report(self.width).name)
        return VectorState(state.counts, vectors)


def _by_updates(vectors: Floats, mass: Floats) -> tuple[Ints, Floats]:
    """Algorithm 2: the line of distributions, given each client's expected number of draws (its mass).

    A client with a mass of 1 or more has as many distributions for itself as its mass has whole units; the remainder
    is treated like the mass of the others. Clients without a vector count as a vector of 0, as in the paper.
    """
    whole = np.floor(mass + 1e-9)
    rest = np.maximum(mass - whole, 0.0)
    rest[rest < 1e-9] = 0.0
    alone = np.repeat(np.arange(len(mass)), whole.astype(np.int64))
    small = np.flatnonzero(rest)
    places = round(rest.sum())  # masses sum to m
    if places == 0:
        return alone, np.ones(len(alone))
    groups = _groups(np.nan_to_num(vectors[small], nan=0.0), rest[small])
    weight = np.array([rest[small[group]].sum() for group in groups])
    order = np.argsort(-weight, kind="stable")
    left = [(int(small[i]), float(rest[small[i]])) for g in order[places:] for i in groups[g]][::-1]
    owner: list[int] = alone.tolist()
    lengths = [1.0] * len(alone)
    for g in order[:places]:
        room = 1.0 - weight[g]
        for i in groups[g]:
            owner.append(int(small[i]))
            lengths.append(float(rest[small[i]]))
        while left and room > 1e-12:  # fill up with the clients of the other groups, one after the other
            client, amount = left.pop()
            part = min(amount, room)
            owner.append(client)
            lengths.append(part)
            room -= part
            if amount - part > 1e-12:
                left.append((client, amount - part))
    return np.array(owner, dtype=np.int64), np.array(lengths)


def _groups(vectors: Floats, mass: Floats) -> list[Ints]:
    """Ward's tree, each branch cut where its own mass passes 1, as the authors' code does.

    (Algorithm 2 only asks for groups with a mass of at most 1. One cut through the whole tree, at the first merge that
    passes it, leaves the other branches in pieces.) The vectors are scaled to length 1, so that distances are chords of
    the angles between them (the paper's arccos similarity): Ward's method is defined for such distances, and not for
    the rows of a matrix of similarities.
    """
    if len(vectors) == 1 or vectors.shape[1] == 0:
        return [np.array([i]) for i in range(len(vectors))]
    from scipy.cluster.hierarchy import linkage  # take a while to load
    from scipy.spatial.distance import pdist

    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    tree = linkage(pdist(vectors / np.where(length > 0, length, 1.0)), "ward")
    held: list[Ints | None] = [np.array([i]) for i in range(len(vectors))]
    weight = list(mass)
    for one, other in tree[:, :2].astype(np.int64):
        first, second = held[one], held[other]
        weight.append(weight[one] + weight[other])
        whole = first is not None and second is not None and weight[-1] <= 1.0 + 1e-9
        held.append(np.concatenate([first, second]) if whole else None)
        if whole:
            held[one] = held[other] = None
    return [group for group in held if group is not None]
