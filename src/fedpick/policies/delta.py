"""DELTA: clients whose updates are long and unlike the others' are drawn more often, with weights that undo it.

Each client has a probability p; m are drawn with replacement, and the updates are added with weights w_i / (m p_i), w_i
its share of the data, as they are: the expected change is that of all available clients together. The theory, (11), has
p_i in proportion to sqrt(alpha_1 |grad F_i - grad f|^2 + alpha_2 sigma_i^2). This is the practical form, as in the
authors' code: for the clients heard in a round q_i = s_i (beta |g_i - mean| + (1 - beta) |g_i|), s_i the share of their
data and mean that of their updates, each counted once; their probabilities are shared out in proportion to q, and the
others keep theirs.

Ours: p is at least a tenth of the mean, so that no weight is beyond bounds; a newcomer has the mean; a round in which
all q are 0 changes nothing (0/0 in the authors' code). If a client is drawn twice, it trains once and counts twice.

A policy that draws with replacement cannot do without rounds.

Trusts: the lengths of updates, which the server computes from the updates themselves, and data sizes. The paper says
that the rule is biased towards attackers: a client with a huge update is drawn often, although its weight falls as its
probability grows, so that in the mean over rounds it counts for its share.

Nothing is told beyond the update that FedAvg sends, but the server must see each single one: not under secure
aggregation.
"""

from dataclasses import dataclass

import numpy as np

from fedpick import sampling
from fedpick.core.protocol import ReportSpec, check_outcome
from fedpick.core.types import Bools, Choice, Clients, Floats, Ints, Outcome, View
from fedpick.policies import _checks as check
from fedpick.policies._common import ByValue, nobody, present
from fedpick.policies._vectors import LARGEST_ENTRY, vector_report
from fedpick.policies.about import About, Paper

__all__ = ["DELTA", "DELTAState"]

PAPER = Paper(
    "wang2023delta",
    "Wang, Lin and Guo, Yongxin and Lin, Tao and Tang, Xiaoying",
    "{DELTA}: Diverse Client Sampling for Fasting Federated Learning",
    2023,
    "booktitle = {Advances in Neural Information Processing Systems (NeurIPS)}",
    "https://arxiv.org/abs/2205.13925",
)

LEAST = 0.1  # of the mean probability


@dataclass
class DELTAState:
    """How often each client was drawn, and its probability, relative to the mean of all (0: a newcomer)."""

    counts: Ints
    odds: Floats


@dataclass(frozen=True, eq=False)
class DELTA(ByValue):
    """Clients with long and unusual updates drawn more often, with replacement, unbiased.

    Args:
        cohort_size: m.
        beta: weight of an update's distance from the mean beside its length, in [0, 1].
        width: of the sketches that clients report of their updates; None: the updates themselves, as in the paper.

    >>> import fedpick as fp
    >>> fp.traits(fp.DELTA(cohort_size=10)).replace
    True
    """

    cohort_size: int
    beta: float = 0.5
    width: int | None = None

    about = About(("delta",), PAPER)
    rounds_only = "it draws with replacement, but a client cannot work on two tasks at once"
    replace = True

    def __post_init__(self) -> None:
        check.cohort_size(self)
        check.number(self, "beta", low=0.0, high=1.0)
        if self.width is not None:
            check.whole(self, "width", low=1)

    @property
    def needs(self) -> tuple[ReportSpec, ...]:
        """The vectors."""
        return (vector_report(self.width),)

    def init(self, clients: Clients) -> DELTAState:
        """Return the state before the first round: all alike."""
        return DELTAState(np.zeros(len(clients), dtype=np.int64), np.zeros(len(clients)))

    def probabilities(self, state: DELTAState) -> Floats:
        """p of all clients; the sum is 1."""
        known = state.odds > 0.0
        odds = np.where(known, state.odds, state.odds[known].mean() if known.any() else 1.0)
        found: Floats = odds / odds.sum()
        return found

    def select(self, state: DELTAState, view: View, rng: np.random.Generator) -> Choice:
        """Draw m times, with replacement."""
        ids = present(view)
        if len(ids) == 0:
            return nobody()
        p = self.probabilities(state)[ids]
        p, m = p / p.sum(), self.cohort_size
        drawn = sampling.with_replacement(p, m, rng)
        sizes = view.clients.sizes[ids]
        weights = sizes[drawn] / sizes.sum() / (m * p[drawn])
        return Choice(ids[drawn], m * p[drawn], weights, normalise=False, chances=m * p)

    def observe(self, state: DELTAState, view: View, choice: Choice, outcome: Outcome) -> DELTAState:
        """Share out the probabilities of those heard anew."""
        check_outcome(view, choice, outcome, replace=True)
        np.add.at(state.counts, choice.ids, 1)
        vectors, heard = self._heard(outcome)
        odds, ids = state.odds, choice.ids[heard]
        if len(ids) > 0:
            apart = np.linalg.norm(vectors - vectors.mean(axis=0), axis=1)
            q = view.clients.sizes[ids] * (self.beta * apart + (1.0 - self.beta) * np.linalg.norm(vectors, axis=1))
            if q.sum() > 0.0:
                odds = self.probabilities(state) * len(odds)
                odds[ids] = q / q.sum() * odds[ids].sum()
                odds = np.maximum(odds, LEAST)
        return DELTAState(state.counts, odds)

    def _heard(self, outcome: Outcome) -> tuple[Floats, Bools]:
        """The usable vectors of a round, and the mask of those who sent them."""
        said = outcome.reports.get(vector_report(self.width).name)
        if said is None or len(outcome) == 0:
            return np.zeros((0, 0)), np.zeros(len(outcome), dtype=np.bool_)
        vectors = np.asarray(said, dtype=np.float64).reshape(len(outcome), -1)
        with np.errstate(invalid="ignore"):
            heard = outcome.succeeded & (np.abs(vectors) <= LARGEST_ENTRY).all(axis=1)
        return vectors[heard], heard
