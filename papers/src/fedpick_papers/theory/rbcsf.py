"""Regret and bounds of RBCS-F (https://doi.org/10.1109/TPDS.2020.3040887); equation numbers are of this paper."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fedpick.core.errors import require
from fedpick.core.types import Bools, Floats
from fedpick_papers.theory._arrays import checked

__all__ = ["Feasible", "Lemma1", "rbcsf_bound", "rbcsf_feasible", "rbcsf_rate_stability", "rbcsf_regret"]


@dataclass(frozen=True)
class Lemma1:
    """Exploration alpha_t of Lemma 1, a callable round -> alpha_t that makes (20) hold.

    For all N clients together use delta/N: the lemma says "any arm" and omits the union bound.

    >>> round(Lemma1(R=1.0, L=1.0, S=1.0, delta=0.1, ridge=1.0)(10), 3)
    4.755
    """

    R: float  # the noise of the exchange time is R-sub-Gaussian
    L: float  # bound on the norm of the contexts
    S: float  # bound on the norm of theta*
    delta: float  # (20) fails with at most this probability
    ridge: float = 1.0  # lambda
    d: int = 3  # length of the contexts, 3 in the paper

    def __post_init__(self) -> None:
        require(0 < self.delta < 1, "delta", self.delta, "between 0 and 1", "delta is the probability of failure")
        require(self.ridge > 0, "ridge", self.ridge, "> 0")

    def __call__(self, round: int) -> float:
        """alpha_t in this round."""
        spread = math.log((1 + round * self.L**2 / self.ridge) / self.delta)
        return self.R * math.sqrt(self.d * spread) + math.sqrt(self.ridge) * self.S


def rbcsf_regret(times: ArrayLike, oracle_times: ArrayLike) -> float:
    """Time-average regret (23), from the rounds' times and those of the optimal policy in the same world.

    For (24) use the cohorts' max of c'theta*, not drawn times: E[max] > max E, and the policy minimises the latter.

    >>> rbcsf_regret([3.0, 2.0], [2.0, 2.0])
    0.5
    """
    spent = checked("times", times, None)
    return float(np.mean(spent - checked("oracle_times", oracle_times, len(spent))))


def rbcsf_bound(
    T: int, N: int, V: float, beta: float, L: float, lambda_: float, R: float, S: float, delta: float, K: float = 1
) -> float:
    """Theorem 3 (24) as printed, with probability (1 - delta)^2.

    zeta_T contains a "constant value" K that the paper does not give (its appendix was not available to us). N clients
    learn separately, and (20) doubles all of alpha_t, whereas zeta_T doubles only R's part: by the elliptical potential
    lemma K = 2 sqrt(N max(1, L^2/lambda)) covers both, and the default 1 can be too small unless T is much larger than
    N.

    >>> round(rbcsf_bound(500, 40, V=50, beta=0.15, L=8, lambda_=1, R=2, S=5, delta=0.1), 2)
    10.31
    """
    require(T >= 1, "T", T, ">= 1 round")
    require(V > 0, "V", V, "> 0", "there is no bound without a weight on time")
    zeta = max(K, 1) * max(Lemma1(2 * R, L, S, delta, lambda_)(T), 1)
    return N * (1 + beta**2) / (2 * V) + zeta * math.sqrt(6 * math.log(1 + T * L**2 / (3 * lambda_)) / T)


def rbcsf_rate_stability(queues: ArrayLike) -> Floats:
    """Z_T / T of each client, from the queues (T, N) after each round; by Theorem 4 all go to 0.

    By (6) a client was chosen in at least a share beta - Z_T / T of the rounds, in every run.

    >>> rbcsf_rate_stability([[0.5, 0.5], [1.0, 0.0]]).tolist()
    [0.5, 0.0]
    """
    lengths = checked("queues", queues, None, None)
    rates: Floats = lengths[-1] / len(lengths)
    return rates


@dataclass(frozen=True, eq=False)
class Feasible:
    """Whether a guarantee can be kept (then true in a boolean context), and if not, why."""

    holds: bool
    largest: float  # the largest guarantee that can be kept
    served: float  # E[min(m, available)], the places of a round
    clients: Bools  # mask of those that cannot all be served; all False if it holds
    reason: str  # empty if it holds

    def __bool__(self) -> bool:
        return self.holds


def rbcsf_feasible(guarantee: float, cohort_size: int, availability: ArrayLike) -> Feasible:
    """Whether (2) can hold at beta = guarantee, for clients that are available independently with these probabilities.

    Theorem 4 assumes this implicitly. The test is exact: every s clients need s beta <= E[min(m, number of them
    available)], and the s least available are the worst case. Testing s = 1 and s = K does not suffice: availability
    1/3, 1/3, 1 with m = 1, beta = 1/3.

    >>> bool(rbcsf_feasible(0.15, 8, np.full(40, 0.8)))
    True
    >>> rbcsf_feasible(0.3, 1, [0.2, 0.9]).reason
    'the 1 least available need 0.3 places a round, but there are 0.2 for them; lower the guarantee to 0.2'
    """
    there = checked("availability", availability, None)
    require(bool(there.min() >= 0 and there.max() <= 1), "availability", (there.min(), there.max()), "within 0..1")
    require(cohort_size >= 1, "cohort_size", cohort_size, ">= 1 client")
    order, count = np.argsort(there, kind="stable"), np.arange(1, len(there) + 1)
    law = np.zeros(min(cohort_size, len(there)) + 1)  # distribution of min(m, number of the first s that are available)
    law[0], places, served = 1.0, np.arange(len(law)), np.empty(len(there))
    for s, a in enumerate(there[order]):
        up = a * law[:-1]
        law[:-1] -= up
        law[1:] += up
        served[s] = law @ places
    largest = float(np.min(served / count))
    if guarantee <= largest * (1 + 1e-9):
        return Feasible(True, largest, float(served[-1]), np.zeros(len(there), dtype=np.bool_), "")
    worst = int(np.argmin(served - guarantee * count))
    reason = (
        f"the {worst + 1} least available need {guarantee * count[worst]:g} places a round, "
        f"but there are {served[worst]:g} for them; lower the guarantee to {largest:g}"
    )
    return Feasible(False, largest, float(served[-1]), np.isin(count - 1, order[: worst + 1]), reason)
