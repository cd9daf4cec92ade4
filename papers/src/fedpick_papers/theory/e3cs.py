"""Regret and bounds of E3CS (https://arxiv.org/abs/2011.08756); equation numbers are of this paper."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fedpick.core.errors import require
from fedpick.core.types import Floats
from fedpick_papers.theory._arrays import checked

__all__ = [
    "BestStatic",
    "e3cs_best_static",
    "e3cs_bound",
    "e3cs_optimal_bound",
    "e3cs_optimal_rate",
    "e3cs_regret",
    "e3cs_safe_quota",
]


class BestStatic(NamedTuple):
    """The comparator of E3CS's regret: shares q (K), probabilities p (T, K), and their CEP."""

    q: Floats
    p: Floats
    cep: float


def _residual(K: int, k: int, sigma: Floats) -> Floats:
    """k - K sigma_t: what remains to allocate after every client has its quota."""
    require(1 <= k <= K, "k", k, f"from 1 to K = {K}")
    worst = float(sigma.min() if sigma.min() < 0 else sigma.max())
    fix = "sigma is a client's probability floor, not the fraction of k/K"
    require(0 <= worst <= k / K * (1 + 1e-9), "sigma", worst, f"from 0 to k/K = {k / K:g}", fix)
    left = k - K * sigma
    return np.where(left > 1e-9 * k, left, 0.0)


def _quotas(sigma: ArrayLike, T: int | None = None) -> Floats:
    """One quota per round; if T is known, a single number is repeated T times."""
    quota = np.asarray(sigma, dtype=np.float64)
    return checked("sigma (a quota for each round)", quota if T is None or quota.ndim else np.full(T, quota), T)


def e3cs_best_static(x: ArrayLike, k: int, sigma: ArrayLike) -> BestStatic:
    """The best static allocation: one q for all rounds that maximises (26) under Fact 9, found greedily.

    The paper writes q*_{i,t}, but from (41) on its proof uses the same q for all t: against an oracle that changes from
    round to round, the bound (28) does not hold.

    Args:
        x: (T, K) success flags, or rewards in [0, 1].
        k: clients per round.
        sigma: quota per client, one number or one per round.

    >>> e3cs_best_static([[1, 0, 1], [1, 0, 0]], k=2, sigma=0.0).p[0].tolist()
    [1.0, 0.0, 1.0]
    """
    reward = checked("x", x, None, None)
    require(bool(reward.min() >= 0 and reward.max() <= 1), "x", (reward.min(), reward.max()), "within 0..1", "scale it")
    quota, K = _quotas(sigma, len(reward)), reward.shape[1]
    left = _residual(K, k, quota)
    room = float(np.min((1 - quota[left > 0]) / left[left > 0], initial=1.0))  # the largest q of a client
    q = np.empty(K)
    q[np.argsort(-(left @ reward), kind="stable")] = np.clip(1 - room * np.arange(K), 0, room)
    p = left[:, None] * q + quota[:, None]
    return BestStatic(q, p, float(np.sum(p * reward)))


def e3cs_regret(x: ArrayLike, p: ArrayLike, k: int, sigma: ArrayLike) -> float:
    """Regret (27): CEP of the best static allocation minus that of the policy, whose probabilities were p (T, K).

    >>> round(e3cs_regret([[1, 0], [1, 0]], p=[[0.5, 0.5], [0.8, 0.2]], k=1, sigma=0.0), 6)
    0.7
    """
    best = e3cs_best_static(x, k, sigma)
    return best.cep - float(np.sum(checked("p", p, *best.p.shape) * np.asarray(x, dtype=np.float64)))


def e3cs_bound(T: int, K: int, k: int, sigma: ArrayLike, eta: float) -> float:
    """Bound (28) on the regret after T rounds at learning rate eta; 0 if nothing remains to allocate.

    As printed it is K ln K / eta at sigma = k/K, although the regret is 0 there (as the paper remarks). The proof needs
    steps <= 1 (Fact 8, which is false as stated): see `e3cs_safe_quota`.

    >>> round(e3cs_bound(2500, 100, 20, 0.1, eta=0.5))
    13421
    """
    total = float(_residual(K, k, _quotas(sigma, T)).sum())
    if total == 0 or K == 1:
        return 0.0
    require(eta > 0, "eta", eta, "> 0", "e3cs_optimal_rate gives the best")
    return eta * total + K / eta * math.log(K)


def e3cs_optimal_rate(K: int, k: int, sigma: ArrayLike) -> float:
    """The learning rate that minimises (28), for one quota sigma per round; 0 if every rate is optimal (sigma = k/K).

    >>> round(e3cs_optimal_rate(100, 20, np.zeros(2500)), 4)
    0.096
    """
    total = float(_residual(K, k, _quotas(sigma)).sum())
    return math.sqrt(K * math.log(K) / total) if total > 0 else 0.0


def e3cs_optimal_bound(K: int, k: int, sigma: ArrayLike) -> float:
    """Bound (29): (28) at the optimal rate, for one quota sigma per round.

    >>> round(e3cs_optimal_bound(100, 20, np.zeros(2500)))
    9597
    """
    return 2 * math.sqrt(K * math.log(K) * float(_residual(K, k, _quotas(sigma)).sum()))


def e3cs_safe_quota(K: int, k: int, eta: float) -> float:
    """The smallest sigma at which no step (37) exceeds 1: k eta / (K (1 + eta)).

    Fact 8 claims this for every sigma because xhat < 1; but xhat = x/p, and p can be as small as sigma.

    >>> round(e3cs_safe_quota(100, 20, eta=0.5), 4)
    0.0667
    """
    require(eta > 0, "eta", eta, "> 0")
    return k * eta / (K * (1 + eta))
