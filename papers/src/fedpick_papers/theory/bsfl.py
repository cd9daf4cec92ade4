"""Regret and bounds of BSFL (https://arxiv.org/abs/2303.10373); equation numbers are of this paper."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from fedpick.core.errors import require
from fedpick.core.types import Floats
from fedpick.solvers import bottleneck
from fedpick_papers.theory._arrays import checked

__all__ = ["bsfl_bound", "bsfl_delta_max", "bsfl_regret", "bsfl_reward"]


def bsfl_reward(speed: ArrayLike, g: ArrayLike, alpha: float, cohort: ArrayLike) -> float:
    """Reward (5) of a cohort: its lowest speed plus alpha times its mean g. Use mean speeds (see `bsfl_regret`).

    >>> bsfl_reward([0.9, 0.5, 0.7], [0.0, 0.5, 0.1], alpha=1.0, cohort=[0, 1])
    0.75
    """
    ids = np.asarray(cohort, dtype=np.int64)
    return float(np.asarray(speed)[ids].min() + alpha * np.asarray(g)[ids].mean())


def bsfl_regret(
    chosen: Sequence[ArrayLike], speeds: ArrayLike, g: ArrayLike, alpha: float, available: ArrayLike | None = None
) -> Floats:
    """Cumulative regret (7) after each round, against the genie (6) with the same history and cohort size.

    Both use the lowest *mean* speed: because E[min] < min E, with drawn speeds even the genie would have regret.

    Args:
        chosen: T cohorts; an empty one costs nothing.
        speeds: (K) mean speeds.
        g: (T, K) g before each round, or (K) if it does not change.
        alpha: weight of g.
        available: (T, K) mask of the clients that the genie may choose.

    >>> bsfl_regret([[0, 1], [0, 2]], speeds=[0.9, 0.5, 0.7], g=[0.0, 0.0, 0.0], alpha=1.0).round(2).tolist()
    [0.2, 0.2]
    """
    mu, bonus = checked("speeds", speeds, None), np.asarray(g, dtype=np.float64)
    shape = (len(chosen), len(mu))
    bonus = checked("g", np.tile(bonus, (len(chosen), 1)) if bonus.ndim == 1 else bonus, *shape)
    masks = checked("available", np.ones(shape) if available is None else available, *shape) > 0
    lost = np.zeros(len(chosen))
    for t, cohort in enumerate(chosen):
        if m := np.size(cohort):
            genie = bottleneck(mu, alpha / m * bonus[t], m, mask=masks[t])
            lost[t] = bsfl_reward(mu, bonus[t], alpha, genie) - bsfl_reward(mu, bonus[t], alpha, cohort)
    return np.cumsum(lost)


def bsfl_bound(n: int, K: int, m: int, delta_max: float, delta_min: float) -> float:
    """Theorem 1 (15): bound on BSFL's regret after n rounds, for rewards that differ by delta_min or more.

    >>> round(bsfl_bound(1000, K=20, m=5, delta_max=2.5, delta_min=0.1))
    829145
    """
    require(n >= 1, "n", n, ">= 1 round")
    fix = "(15) does not apply to a continuous g"
    require(0 < delta_min <= delta_max, "delta_min", delta_min, f"> 0 and <= delta_max = {delta_max}", fix)
    return delta_max * K * (4 * (m + 1) * math.log(n) / delta_min**2 + 1 + math.pi**2 / 3)


def bsfl_delta_max(alpha: float, speeds: ArrayLike) -> float:
    """The paper's bound on Delta_max (14): 2 alpha + mu_max - mu_min, for any g in [-1, 1].

    >>> bsfl_delta_max(1.0, [0.25, 0.5, 0.75])
    2.5
    """
    return 2 * alpha + float(np.ptp(checked("speeds", speeds, None)))
