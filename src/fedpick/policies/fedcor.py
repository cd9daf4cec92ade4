"""FedCor: the clients whose losses are most correlated with the losses of all clients.

The changes of all clients' losses in a round are a Gaussian vector with the covariance S = X X' + noise^2 I, where row
k of X, a few numbers, is learned for client k by maximum likelihood from changes after uniform choices, older ones
counting less (gamma per round). The cohort is chosen greedily: the client k with the highest
alpha_k sum_i p_i S_ik / sqrt(S_kk), p_i its share of the data; then S is conditioned on it. Annealing:
alpha_k = beta^(number of times chosen since X was learned).

To learn a change, all clients are probed in two rounds in a row: in the first `warmup` rounds, and then every
`interval` rounds. In those rounds the cohort is uniform. The authors train that cohort beside the round's, and drop it;
here it is the round's. The mean of the changes is their discounted mean, as in the authors' commands. With all changes
known, X is the eigenvectors' solution (Tipping & Bishop 1999), which the authors approach by gradient steps. X is
learned at the beginning of the round that follows, so that exactly `warmup` cohorts are uniform; it is one more in the
authors' code, which counts from 0.

In the paper clients are always available. Here, those who are there and not busy are probed, also if they may not be
chosen now. The change of a client that was away at the start of the round is its change since it was last probed,
divided by the rounds in between; a client away at the end of the round has no change. For a client without any change,
one found at the start of a round counts, too. Clients without a change, as they were probed fewer than two times, are
chosen last.

Trusts: the losses that clients report, and their data sizes. A client whose loss jumps looks correlated with all
others, and is chosen until its annealing outweighs that.
"""

from dataclasses import dataclass

import numpy as np

from fedpick.core.errors import MissingError
from fedpick.core.protocol import check_outcome
from fedpick.core.state import shared_field
from fedpick.core.types import Bools, Choice, Clients, Floats, Ints, Outcome, View
from fedpick.policies import _checks as check
from fedpick.policies._common import ByValue, answers, nobody, places, valid_losses
from fedpick.policies.about import About, Paper

__all__ = ["FedCor", "FedCorState", "embed", "greedy"]

PAPER = Paper(
    "tang2022fedcor",
    "Tang, Minxue and Ning, Xuefei and Wang, Yitu and Sun, Jingwei and Wang, Yu and Li, Hai and Chen, Yiran",
    "{FedCor}: Correlation-Based Active Client Selection Strategy for Heterogeneous Federated Learning",
    2022,
    "booktitle = {IEEE/CVF Conference on Computer Vision and Pattern Recognition (CVPR)}",
    "https://arxiv.org/abs/2103.13822",
)

STEPS = 20  # of the EM algorithm, where changes are missing
FEW = 4_000  # clients by which it learns the rounds' hidden factors
BLOCK = 4_096  # clients whose matrices are in memory at once


def embed(changes: Floats, weights: Floats, dimension: int, noise: float) -> Floats:
    """X that maximises the likelihood of the changes under N(mean, X X' + noise^2 I).

    Args:
        changes: (K, M), a column for each round that was sampled; NaN where it is missing.
        weights: (M) of the rounds, >= 0.
        dimension: columns of X.
        noise: standard deviation.

    >>> embed(np.array([[1.0, -1.0], [3.0, 1.0], [4.0, 0.0]]), np.ones(2), 1, 0.0).round(3).tolist()
    [[1.0], [1.0], [2.0]]
    """
    seen = np.isfinite(changes)
    each = seen * weights
    total = each.sum(axis=1, keepdims=True)
    filled = np.where(seen, changes, 0.0)
    centred = np.where(seen, filled - (filled * each).sum(axis=1, keepdims=True) / np.maximum(total, 1e-300), 0.0)
    share = weights / max(weights.sum(), 1e-300)
    # Eigenvectors of the K x K covariance by way of the M x M products: M is small.
    scaled = centred * np.sqrt(share)
    values, right = np.linalg.eigh(scaled.T @ scaled)
    values, right = values[::-1][:dimension], right[:, ::-1][:, :dimension]
    some = values > max(noise**2, 1e-12 * values[:1].sum())
    left = scaled @ right[:, some] / np.sqrt(values[some])
    left *= np.where(left.sum(axis=0) < 0.0, -1.0, 1.0)  # one of the two possible signs
    found = np.zeros((len(changes), dimension))
    found[:, : some.sum()] = left * np.sqrt(values[some] - noise**2)
    missing = seen.any(axis=1, keepdims=True) & ~seen & (weights > 0.0)
    if noise > 0.0 and some.any() and missing.any():
        _fill(found, centred, seen, each, noise)
    return found


def _fill(vectors: Floats, centred: Floats, seen: Bools, each: Floats, noise: float) -> None:
    """The EM algorithm, for changes of which some are missing; writes into the rows of X.

    A round's hidden factors are a few numbers, for which FEW clients are enough: the others only need the last step.
    """
    known = np.flatnonzero(each.any(axis=1))
    some = known[np.linspace(0, len(known) - 1, min(len(known), FEW)).astype(np.int64)]
    for step in range(STEPS):
        mean, second = _factors(vectors[some], centred[some], seen[some], noise)
        rows = known if step == STEPS - 1 else some
        for block in np.array_split(rows, -(-len(rows) // BLOCK)):
            left = (each[block] * centred[block]) @ mean
            right = np.tensordot(each[block], second, 1)
            vectors[block] = np.linalg.solve(right, left[:, :, None])[:, :, 0]


def _factors(rows: Floats, centred: Floats, seen: Bools, noise: float) -> tuple[Floats, Floats]:
    """Mean and second moment of each round's hidden factors, given the rows of X and the changes seen."""
    number, dimension = centred.shape[1], rows.shape[1]
    mean, second = np.zeros((number, dimension)), np.zeros((number, dimension, dimension))
    for s in range(number):
        those = rows[seen[:, s]]
        inverse = np.linalg.inv(those.T @ those + noise**2 * np.eye(dimension))
        mean[s] = inverse @ (those.T @ centred[seen[:, s], s])
        second[s] = noise**2 * inverse + np.outer(mean[s], mean[s])
    return mean, second


def greedy(vectors: Floats, noise: float, p: Floats, alpha: Floats, able: Ints, m: int) -> Ints:
    """The m of the clients `able`, each with the highest alpha_k sum_i p_i S_ik / sqrt(S_kk) given those before it.

    S, of all pairs, is never built: given the clients chosen, it is 0 for them, and S_ik = x_i' A x_k for two others,
    with a small matrix A, plus noise^2 where i = k.

    >>> greedy(np.array([[1, 0], [1, 0], [0, 0.5]]), 0.1, np.full(3, 1 / 3), np.ones(3), np.arange(3), 2).tolist()
    [0, 2]
    """
    rows, own = vectors[able], noise**2
    rest = vectors.T @ p  # sum of p_i x_i over those not chosen
    inner = np.eye(vectors.shape[1])
    spread = np.square(rows).sum(axis=1) + own  # S_kk
    left, chosen = np.ones(len(able), dtype=np.bool_), np.empty(m, dtype=np.int64)
    for place in range(m):
        explained = rows @ (inner @ rest) + own * p[able]  # sum over i of p_i S_ik
        at = int(np.argmax(np.where(left, alpha[able] * explained / np.sqrt(spread), -np.inf)))
        chosen[place], left[at] = able[at], False
        rest = rest - p[able[at]] * rows[at]
        pull = inner @ rows[at]
        scale = own + float(rows[at] @ pull)
        inner = inner - np.outer(pull, pull) / scale
        # The noise of a client is independent of the others.
        spread = np.maximum(spread - np.square(rows @ pull) / scale, own)
    return chosen


@dataclass
class FedCorState:
    """The last losses, the changes that are remembered, and what was learned from them."""

    losses: Floats  # NaN: never asked
    heard: Ints  # the rounds of the losses
    changes: Floats  # (K, samples); NaN: missing
    vectors: Floats  # (K, dimension): the rows of X
    counts: Ints  # how often chosen since X was learned
    when: Ints = shared_field()  # (samples): the rounds of the changes; 0: none


@dataclass(frozen=True, eq=False)
class FedCor(ByValue):
    """Clients whose loss changes explain those of all clients, chosen greedily.

    Args:
        cohort_size: m.
        warmup: rounds of uniform choices at the start, whose changes are learned from; at least 2.
        interval: afterwards, rounds from one uniform choice to the next; at least 2.
        beta: annealing, in (0, 1].
        gamma: how much less a change counts for each round of its age, in (0, 1].
        samples: how many changes are remembered.
        dimension: of what is learned for each client.
        noise: standard deviation of a change that no other client's change explains.

    >>> import fedpick as fp
    >>> sorted(fp.FedCor(cohort_size=3).needs)
    ['probe']
    """

    cohort_size: int
    warmup: int = 15
    interval: int = 10
    beta: float = 0.95
    gamma: float = 0.95
    samples: int = 25
    dimension: int = 15
    noise: float = 0.01

    about = About(("fedcor",), PAPER, measured_up_to=100_000)
    needs = ("probe",)

    def __post_init__(self) -> None:
        check.cohort_size(self)
        check.whole(self, "warmup", "interval", "samples", low=2)
        check.whole(self, "dimension", low=1)
        check.number(self, "beta", "gamma", low=0.0, high=1.0, open=True)
        check.number(self, "noise", low=0.0, open=True)

    def samples_in(self, round: int) -> bool:
        """Whether this round's change is learned from: its cohort is uniform."""
        return 1 <= round <= self.warmup or (round > self.warmup and (round - self.warmup) % self.interval == 0)

    def init(self, clients: Clients) -> FedCorState:
        """Return the state before the first round."""
        number = len(clients)
        return FedCorState(
            np.full(number, np.nan),
            np.zeros(number, dtype=np.int64),
            np.full((number, self.samples), np.nan),
            np.zeros((number, self.dimension)),
            np.zeros(number, dtype=np.int64),
            np.zeros(self.samples, dtype=np.int64),
        )

    def select(self, state: FedCorState, view: View, rng: np.random.Generator) -> Choice:
        """Probe all clients if a change is to be learned; choose uniformly in rounds learned from, else greedily."""
        ids, m = places(view, self.cohort_size)
        if m == 0:
            return nobody()
        probed, changes, vectors, counts = None, state.changes, state.vectors, state.counts
        if self.samples_in(view.round) or self.samples_in(view.round - 1):
            probed = self._probe(view)
            changes, when = self._changes(state, view.round, probed)
            if self._learns(view.round, when):  # before this round's choice, so that the warm-up is over
                vectors, counts = self._learned(changes, when, view.round), np.zeros_like(counts)
        if self.samples_in(view.round) or not vectors[ids].any():
            chosen = np.sort(ids[rng.choice(len(ids), m, replace=False, shuffle=False)])
            return Choice(chosen, inclusion=np.full(m, m / len(ids)), probed=probed)
        p = view.clients.sizes / view.clients.sizes.sum()
        alpha = np.power(self.beta, counts)
        ids = rng.permutation(ids)  # ties at random
        known = np.isfinite(changes[ids]).any(axis=1)
        able, rest = ids[known], ids[~known]
        chosen = greedy(vectors, self.noise, p, alpha, able, min(m, len(able)))
        return Choice(np.sort(np.concatenate([chosen, rest[: m - len(chosen)]])), probed=probed)

    def _probe(self, view: View) -> Floats:
        # Also those who pause, such as the last cohort inside MinSeparation: its changes are what is learned from.
        ids = np.flatnonzero(view.there & ~view.busy)
        if view.probe is None:
            raise MissingError(
                "FedCor asks all clients for their loss in some rounds, but view.probe is None; give the View a probe, "
                "or use a policy that needs none"
            )
        losses = answers(view.probe, ids, "view.probe", "loss")
        everyone = np.full(len(view.clients), np.nan)
        everyone[ids] = np.where(valid_losses(losses), losses, np.nan)
        return everyone

    def observe(self, state: FedCorState, view: View, choice: Choice, outcome: Outcome) -> FedCorState:
        """Keep the probed losses; after a round that is learned from, keep the change and learn X."""
        check_outcome(view, choice, outcome)
        losses, heard, changes, when = state.losses, state.heard, state.changes, state.when
        vectors, counts = state.vectors, state.counts
        round, probed = view.round, choice.probed
        if probed is not None:
            changes, when = self._changes(state, round, probed)
            if self._learns(round, when):
                vectors = self._learned(changes, when, round)
                counts[:] = 0
            known = np.isfinite(probed)
            losses[known], heard[known] = probed[known], round
        counts[choice.ids] += 1
        return FedCorState(losses, heard, changes, vectors, counts, when)

    def _changes(self, state: FedCorState, round: int, probed: Floats) -> tuple[Floats, Ints]:
        """The changes that are remembered once these losses are known, and their rounds."""
        changes, when = state.changes.copy(), state.when.copy()
        rate = (probed - state.losses) / np.maximum(round - state.heard, 1)
        if self.samples_in(round - 1) and np.isfinite(rate).any():
            at = int(np.argmin(when))  # replaces the oldest
            changes[:, at], when[at] = rate, round - 1
        elif when.any():
            unknown = ~np.isfinite(changes).any(axis=1)
            changes[unknown, int(np.argmax(when))] = rate[unknown]
        return changes, when

    def _learns(self, round: int, when: Ints) -> bool:
        """Whether X is learned in this round, in which clients were probed."""
        return not self.samples_in(round) and bool(when.any())

    def _learned(self, changes: Floats, when: Ints, round: int) -> Floats:
        weights = np.where(when > 0, self.gamma ** (round - when), 0.0)
        return embed(changes, weights, self.dimension, self.noise)
