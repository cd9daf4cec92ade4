"""Optimal client sampling: all available clients train and report the length of their update; a few send it.

Chen, Horváth & Richtárik (2022), "Optimal Client Sampling for Federated Learning", TMLR. Client i is asked with
probability p_i = min(1, c w_i |U_i|), independently of the others, where w_i is its share of the data and c makes the
sum m (Algorithm 1, equation (7)); the aggregate, the sum of w_i U_i / p_i over those asked, is that of all in the mean
and has the least variance. AOCS (Algorithm 2) finds c by a few sums, which can be secure ones, instead of sorting.

A round has two phases: the view's `norms` sends the model to all available clients. Only uploads are saved.

Trusts: the reported lengths. A client that reports a long update is asked for it, at most with certainty; it then
weighs w_i / p_i, no more than its share.
"""

from dataclasses import dataclass

import numpy as np

from fedpick import sampling
from fedpick.core.errors import ContractError, MissingError
from fedpick.core.protocol import check_outcome
from fedpick.core.types import Choice, Clients, Floats, Outcome, View
from fedpick.policies._common import (
    LOSS_LIMIT,
    ByValue,
    CountState,
    check_cohort_size,
    check_whole,
    counted,
    nobody,
    present,
)

__all__ = ["OptimalSampling", "approximate", "optimal"]


def optimal(lengths: Floats, m: int) -> Floats:
    """p_i = min(1, c lengths_i) that sum to m, or to as many as have a length > 0 if those are fewer; (7).

    >>> optimal(np.array([1.0, 1.0, 8.0]), 2).tolist()
    [0.5, 0.5, 1.0]
    """
    p = np.zeros(len(lengths))
    some = np.flatnonzero(lengths > 0.0)
    if len(some) <= m:
        p[some] = 1.0  # also where m is as large as the federation: nothing is divided by what is left over
    else:
        p[some] = sampling.capped(np.log(lengths[some]), m, 1.0)[0]
    return p


def approximate(lengths: Floats, m: int, steps: int) -> Floats:
    """Algorithm 2 (AOCS): probabilities of which the server sees no more than two sums in each step.

    >>> approximate(np.array([1.0, 1.0, 8.0]), 2, steps=4).tolist()
    [0.5, 0.5, 1.0]
    """
    n, total = len(lengths), lengths.sum()
    if total <= 0.0:
        return np.zeros(n)
    p: Floats = np.minimum(m * lengths / total, 1.0)
    for _ in range(steps):
        below = p < 1.0
        number, held = int(below.sum()), float(p[below].sum())  # the two sums
        if held <= 0.0:  # all are asked, or who is not has nothing to send
            break
        c = (m - n + number) / held
        p = np.where(below, np.minimum(c * p, 1.0), p)
        if c <= 1.0:
            break
    return np.maximum(p, 0.0)


@dataclass(frozen=True, eq=False)
class OptimalSampling(ByValue):
    """Clients asked with a probability in proportion to size times length of update; weights that make it unbiased.

    Args:
        cohort_size: m, how many are asked in the mean.
        steps: of AOCS; None finds the probabilities exactly.

    >>> import fedpick as fp
    >>> sorted(fp.OptimalSampling(cohort_size=3).needs)
    ['norms']
    """

    cohort_size: int
    steps: int | None = None

    needs = ("norms",)
    fixed_size = False

    def __post_init__(self) -> None:
        check_cohort_size(self, self.cohort_size)
        if self.steps is not None:
            check_whole(self, "steps", self.steps, 1)

    def init(self, clients: Clients) -> CountState:
        """Return the state before the first round."""
        return CountState(np.zeros(len(clients), dtype=np.int64))

    def select(self, state: CountState, view: View, rng: np.random.Generator) -> Choice:
        """Ask for the lengths of all updates; draw each client independently."""
        ids = present(view)
        if len(ids) == 0:
            return nobody()
        if view.norms is None:
            raise MissingError(
                "OptimalSampling asks for the lengths of all updates, but view.norms is None; use a View with such a "
                "function (a simulated run with a trainer has one), or a policy that needs none"
            )
        norms = np.asarray(view.norms(ids), dtype=np.float64)
        if norms.shape != ids.shape:
            raise ContractError(f"view.norms returned shape {norms.shape} for {len(ids)} ids; one length per id is due")
        with np.errstate(invalid="ignore"):
            usable = (norms >= 0.0) & (norms <= LOSS_LIMIT)  # others have failed, or say nonsense
        ids, norms = ids[usable], norms[usable]
        sizes = view.clients.sizes[ids]
        share = sizes / max(sizes.sum(), 1e-300)
        lengths = share * norms
        m = self.cohort_size
        p = optimal(lengths, m) if self.steps is None else approximate(lengths, m, self.steps)
        drawn = np.flatnonzero(rng.random(len(ids)) < p)
        return Choice(ids[drawn], inclusion=p[drawn], weights=share[drawn] / p[drawn], normalise=False)

    def observe(self, state: CountState, view: View, choice: Choice, outcome: Outcome) -> CountState:
        """Count who was asked."""
        check_outcome(view, choice, outcome)
        return counted(state, choice.ids)
