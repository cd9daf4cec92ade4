"""Optimal client sampling: a pool of clients train and report the length of their update; a few of them send it.

Client i is asked with probability p_i = min(1, c w_i |U_i|), independently of the others, where w_i is its share of the
data and c makes the sum m (Algorithm 1, equation (7)); the aggregate, the sum of w_i U_i / p_i over those asked, is
unbiased and has the least variance. AOCS (Algorithm 2) finds c by a few sums, which can be secure ones, instead of
sorting.

A round has two phases: the view's `norms` sends the model to a pool of clients, drawn uniformly, or to all available.
Only uploads are saved. Shares, inclusion and weights are of the pool: the authors' runs draw 32 clients, of whom 3
send. Given the pool the aggregate is unbiased for the mean over the pool; for that over all clients only if all have
the same size.

Trusts: the reported lengths, and data sizes. A client that reports a long update is asked for it, at most with
certainty; it then weighs w_i / p_i, no more than its share, which is that of its declared size.
"""

from dataclasses import dataclass, field

import numpy as np

from fedpick import sampling
from fedpick.core.errors import MissingError
from fedpick.core.types import LOSS_LIMIT, Choice, Floats, View
from fedpick.policies import _checks as check
from fedpick.policies._common import CountingPolicy, CountState, answers, nobody, present
from fedpick.policies.about import About, Paper

__all__ = ["OptimalSampling", "approximate", "optimal"]

PAPER = Paper(
    "chen2022optimal",
    "Chen, Wenlin and Horv{\\'a}th, Samuel and Richt{\\'a}rik, Peter",
    "Optimal Client Sampling for Federated Learning",
    2022,
    "journal = {Transactions on Machine Learning Research}",
    "https://openreview.net/forum?id=8GvRCWKHIL",
)


def optimal(lengths: Floats, m: int) -> Floats:
    """p_i = min(1, c lengths_i) that sum to m, or to as many as have a length > 0 if those are fewer; (7).

    >>> optimal(np.array([1.0, 1.0, 8.0]), 2).tolist()
    [0.5, 0.5, 1.0]
    """
    p = np.zeros(len(lengths))
    some = np.flatnonzero(lengths > 0.0)
    if len(some) <= m:
        p[some] = 1.0  # also if m is the number of all clients, where c would be a division by 0
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
        if held <= 0.0:  # all others have nothing to send
            break
        c = (m - n + number) / held
        p = np.where(below, np.minimum(c * p, 1.0), p)
        if c <= 1.0:
            break
    return np.maximum(p, 0.0)


@dataclass(frozen=True, eq=False)
class OptimalSampling(CountingPolicy):
    """Clients with probability proportional to size times length of their update, in two phases, unbiased.

    Args:
        cohort_size: m, how many are asked in the mean.
        steps: of AOCS; None finds the probabilities exactly.
        pool: how many clients, drawn uniformly, train and tell the length of their update; None: all available.

    >>> import fedpick as fp
    >>> sorted(fp.OptimalSampling(cohort_size=3).needs)
    ['norms']
    """

    cohort_size: int
    steps: int | None = None
    pool: int | None = field(default=None, metadata={"added": True})

    about = About(("optimal",), PAPER)
    needs = ("norms",)
    fixed_size = False

    def __post_init__(self) -> None:
        check.cohort_size(self)
        check.whole(self, "steps", low=1)
        if self.pool is not None:
            check.whole_number("OptimalSampling: pool", self.pool, self.cohort_size, "the cohort is drawn from it")

    def select(self, state: CountState, view: View, rng: np.random.Generator) -> Choice:
        """Ask for the lengths of the pool's updates; draw each of these clients independently."""
        ids = present(view)
        if len(ids) == 0:
            return nobody()
        if self.pool is not None and self.pool < len(ids):
            ids = np.sort(ids[rng.choice(len(ids), self.pool, replace=False, shuffle=False)])
        if view.norms is None:
            raise MissingError(
                "OptimalSampling asks for the lengths of all updates, but view.norms is None; use a View with such a "
                "function (a simulated run with a trainer has one), or a policy that needs none"
            )
        norms = answers(view.norms, ids, "view.norms", "length")
        with np.errstate(invalid="ignore"):
            usable = (norms >= 0.0) & (norms <= LOSS_LIMIT)  # the others failed, or reported an impossible length
        ids, norms = ids[usable], norms[usable]
        sizes = view.clients.sizes[ids]
        share = sizes / max(sizes.sum(), 1e-300)
        lengths = share * norms
        m = self.cohort_size
        p = optimal(lengths, m) if self.steps is None else approximate(lengths, m, self.steps)
        drawn = np.flatnonzero(rng.random(len(ids)) < p)
        return Choice(ids[drawn], inclusion=p[drawn], weights=share[drawn] / p[drawn], normalise=False)
