"""FL-DP3S: cohorts of clients whose data profiles are unlike one another, drawn by a determinantal point process.

With S_ij = 1 - d_ij / max d, d the distance of the profiles of clients i and j, and L = S'S, a cohort Y of m clients
has probability det(L_Y) / e_m, where e_m is the m-th elementary symmetric polynomial of L's eigenvalues: a k-DPP
(Kulesza and Taskar 2011). The chance of each client is known exactly.

The profile is a feature vector that each client sends once (`Clients.features`); in the paper it is the mean output of
the first dense layer of the model before training. As only those available can be chosen, the eigenvectors are computed
anew in each round, for 1,000 clients at most. If L has a rank below m, the other places are filled uniformly, and no
chances are given.

A cohort is drawn as a whole, so it needs rounds.

Trusts: the feature vectors. A client far from all others is chosen nearly always: the largest distance grows with it,
so that all others look alike.

The server sees one feature vector of each client, once; it says much about the data.
"""

from dataclasses import dataclass

import numpy as np

from fedpick.core.errors import MissingError
from fedpick.core.types import Choice, Floats, Ints, View
from fedpick.policies import _checks as check
from fedpick.policies._common import CountingPolicy, CountState, nobody, places
from fedpick.policies.about import About, Paper

__all__ = ["FLDP3S", "kernel"]

PAPER = Paper(
    "zhang2023dpp",
    "Zhang, Yuxuan and Xu, Chao and Yang, Howard H. and Wang, Xijun and Quek, Tony Q. S.",
    "{DPP}-Based Client Selection for Federated Learning with Non-{IID} Data",
    2023,
    "booktitle = {IEEE International Conference on Acoustics, Speech and Signal Processing (ICASSP)}",
    "https://arxiv.org/abs/2303.17358",
)

MOST_CLIENTS = 1_000  # available at once: the time of a choice grows with the third power
RANK = 1e-10  # eigenvalues below this share of the largest are 0


def kernel(profiles: Floats) -> Floats:
    """S: 1 less the distance of two profiles, scaled so that the largest is 1.

    >>> kernel(np.array([[0.0], [1.0], [4.0]])).tolist()
    [[1.0, 0.75, 0.0], [0.75, 1.0, 0.25], [0.0, 0.25, 1.0]]
    """
    square = np.square(profiles).sum(axis=1)
    apart = np.sqrt(np.maximum(square[:, None] + square - 2.0 * profiles @ profiles.T, 0.0))
    np.fill_diagonal(apart, 0.0)
    found: Floats = 1.0 - apart / max(float(apart.max()), 1e-300)
    return found


def _polynomials(logs: Floats, m: int) -> Floats:
    """ln e_j of the first n eigenvalues, for n = 0 to N and j = 0 to m."""
    table = np.full((len(logs) + 1, m + 1), -np.inf)
    table[:, 0] = 0.0
    for n, log in enumerate(logs):
        table[n + 1, 1:] = np.logaddexp(table[n, 1:], table[n, :-1] + log)
    return table


@dataclass(frozen=True, eq=False)
class FLDP3S(CountingPolicy):
    """Cohorts of unlike clients, by a determinantal point process on their features.

    Args:
        cohort_size: m.

    >>> import fedpick as fp
    >>> fp.FLDP3S(cohort_size=10).needs
    ('features',)
    """

    cohort_size: int

    about = About(("fl-dp3s",), PAPER, measured_up_to=1_000)
    needs = ("features",)
    rounds_only = "its cohort is drawn as a whole, but clients are asked one after another"

    def __post_init__(self) -> None:
        check.cohort_size(self)

    def select(self, state: CountState, view: View, rng: np.random.Generator) -> Choice:
        """Draw the cohort."""
        ids, m = places(view, self.cohort_size)
        if m == 0:
            return nobody()
        if view.clients.features is None:
            raise MissingError(
                "FLDP3S needs Clients.features, a profile of each client's data, but there are none: give "
                "fp.Clients(sizes, features=...), or use another policy"
            )
        instead = "every choice needs the eigenvectors of a matrix of all pairs; use another policy for so many"
        check.few(self, "available clients", len(ids), MOST_CLIENTS, instead)
        if m == len(ids):
            return Choice(ids, np.ones(m), chances=1.0)
        values, vectors = np.linalg.eigh(kernel(view.clients.features[ids]))
        values = np.square(values)  # those of L = S'S
        some = values > RANK * values.max()
        logs, vectors = np.log(values[some]), vectors[:, some]
        rank = min(m, len(logs))
        table = _polynomials(logs, rank)
        drawn = _project(vectors[:, _eigenvectors(logs, table, rank, rng)], rng)
        if rank < m:
            others = np.setdiff1d(np.arange(len(ids)), drawn)
            drawn = np.concatenate([drawn, rng.choice(others, m - rank, replace=False, shuffle=False)])
            return Choice(np.sort(ids[drawn]))
        chances = np.minimum(np.square(vectors) @ _shares(logs, table, m), 1.0)
        drawn = np.sort(drawn)
        return Choice(ids[drawn], chances[drawn], chances=chances)


def _eigenvectors(logs: Floats, table: Floats, m: int, rng: np.random.Generator) -> Ints:
    """m eigenvectors: each set with probability in proportion to the product of its eigenvalues."""
    chosen, left = [], m
    for n in range(len(logs), 0, -1):
        if left and np.log(1.0 - rng.random()) < logs[n - 1] + table[n - 1, left - 1] - table[n, left]:
            chosen.append(n - 1)
            left -= 1
    return np.array(chosen, dtype=np.int64)


def _shares(logs: Floats, table: Floats, m: int) -> Floats:
    """Probability of each eigenvector: its eigenvalue times e_{m-1} of the others, over e_m."""
    after = _polynomials(logs[::-1], m)[::-1]  # of those from n on
    pairs = table[:-1, :m] + after[1:, m - 1 :: -1]  # e_j of those before n, e_{m-1-j} of those after
    top = pairs.max(axis=1, keepdims=True)
    without = top[:, 0] + np.log(np.exp(pairs - top).sum(axis=1))
    found: Floats = np.exp(logs + without - table[-1, m])
    return found


def _project(vectors: Floats, rng: np.random.Generator) -> Ints:
    """As many clients as there are orthonormal columns, drawn one after the other from the columns' projection."""
    left, chosen = np.square(vectors).sum(axis=1), []
    basis = np.zeros((0, vectors.shape[1]))
    for _ in range(vectors.shape[1]):
        steps = np.cumsum(np.maximum(left, 0.0))
        at = int(np.searchsorted(steps, rng.random() * steps[-1], side="right"))
        row = vectors[at] - basis.T @ (basis @ vectors[at])
        row /= np.linalg.norm(row)
        basis = np.vstack([basis, row])
        left -= np.square(vectors @ row)
        chosen.append(at)
        left[chosen] = 0.0
    return np.array(chosen, dtype=np.int64)
