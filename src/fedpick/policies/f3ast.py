"""F3AST: the clients chosen least in relation to their share of the data, with weights by the inverse of their rate.

Chooses the m available clients with the highest p_k^2 / r_k^2, where p_k is a client's share of the data and r_k an
exponential average of how often it was chosen: the gradient of the variance, which is the sum of p_k^2 / r_k. Then the
averages are updated, and updates are added with weights p_k / r_k as they are, so that in the long run the weight of
each client is p_k. (So do Algorithm 1 and the authors' code: the r_k of the weight contains this round. So no weight is
above p_k / beta, however long the client was away.)

Without rounds a client counts as chosen when its task ends, and r_k is its rate per move of the model: an answer counts
p_k / r_k times the sum of all rates, which is 1 on average.

Trusts: data sizes, which decide a client's share; nothing that is reported.
"""

from dataclasses import dataclass

import numpy as np

from fedpick import solvers
from fedpick.core.protocol import check_outcome
from fedpick.core.state import shared_field
from fedpick.core.types import Choice, Clients, Floats, Ints, Outcome, View
from fedpick.policies import _checks as check
from fedpick.policies._common import ByValue, nobody, places
from fedpick.policies.about import About, Paper

__all__ = ["F3AST", "F3ASTState"]

PAPER = Paper(
    "ribero2023federated",
    "Ribero, M{\\'o}nica and Vikalo, Haris and {de Veciana}, Gustavo",
    "Federated Learning Under Intermittent Client Availability and Time-Varying Communication Constraints",
    2023,
    "journal = {IEEE Journal of Selected Topics in Signal Processing},\n  doi = {10.1109/JSTSP.2022.3224590}",
    "https://arxiv.org/abs/2205.06730",
)


@dataclass
class F3ASTState:
    """How often each client was chosen, and the average of its rate."""

    counts: Ints
    rate: Floats  # r_k times `scale`, so that a round changes the entries of the chosen alone; -1: just enrolled
    scale: float = shared_field()


@dataclass(frozen=True, eq=False)
class F3AST(ByValue):
    """Clients chosen least in relation to their share of the data, with unbiased weights.

    Args:
        cohort_size: m.
        beta: weight of a round in the average: r = (1 - beta) r + beta for those chosen. Rates are averages over about
            1 / beta rounds: where m / K is below beta, a client is chosen less than once in that time, and the weights
            of a round sum to about m / (K beta) in place of 1. The paper's theory lets beta fall.
        most: largest weight of an update as a multiple of p_k K / m, its weight if all are always
            available and hold as much: it limits the effect of a client that was away for long, but causes a bias. None
            as in the paper.

    >>> import fedpick as fp
    >>> fp.F3AST(cohort_size=10).beta
    0.01
    """

    cohort_size: int
    beta: float = 0.01
    most: float | None = None

    about = About(("f3ast",), PAPER)

    def __post_init__(self) -> None:
        check.cohort_size(self)
        check.number(self, "beta", low=0.0, high=0.5, open=True)
        check.number(self, "most", low=1.0)

    def init(self, clients: Clients) -> F3ASTState:
        """Return the state before the first round."""
        return F3ASTState(np.zeros(len(clients), dtype=np.int64), np.full(len(clients), -1.0), 1.0)

    def before_admit(self, state: F3ASTState) -> F3ASTState:
        """Bring the rates to scale 1, on which newcomers begin."""
        return F3ASTState(state.counts, state.rate / state.scale, 1.0)

    def rates(self, state: F3ASTState) -> Floats:
        """r_k; m / K for a client just enrolled, as if all were always available."""
        even = min(self.cohort_size / max(len(state.rate), 1), 1.0)
        return np.where(state.rate < 0.0, even, state.rate / state.scale)

    def select(self, state: F3ASTState, view: View, rng: np.random.Generator) -> Choice:
        """The m highest p_k / r_k of the available clients; their weights by the rates that contain this round."""
        ids, m = places(view, self.cohort_size)
        if m == 0:
            return nobody()
        sizes, rate = view.clients.sizes, self.rates(state)
        chosen = ids[solvers.top(sizes[ids] / rate[ids], m, rng)]  # in the same order as their squares
        share = sizes[chosen] / sizes.sum()
        weights = share / ((1.0 - self.beta) * rate[chosen] + self.beta)
        if view.ended is not None:  # without rounds rates are per move of the model, but an answer counts 1 on average
            weights *= rate.sum() / m
        if self.most is not None:
            weights = np.minimum(weights, self.most * share * len(sizes) / self.cohort_size)
        return Choice(chosen, weights=weights, normalise=False)

    def observe(self, state: F3ASTState, view: View, choice: Choice, outcome: Outcome) -> F3ASTState:
        """r = (1 - beta) r, plus beta for those chosen."""
        check_outcome(view, choice, outcome)
        rate, scale = state.rate, state.scale
        new = np.flatnonzero(rate < 0.0)
        rate[new] = scale * min(self.cohort_size / len(rate), 1.0)
        scale /= 1.0 - self.beta
        rate[choice.ids] += self.beta * scale
        state.counts[choice.ids] += 1
        if scale > 1e100:  # long before anything overflows
            rate, scale = rate / scale, 1.0
        return F3ASTState(state.counts, rate, scale)
