"""Variance and bias of FedGS (https://arxiv.org/abs/2211.13975); equation numbers are of this paper."""

import numpy as np
from numpy.typing import ArrayLike

from fedpick.core.errors import require
from fedpick.core.types import Floats
from fedpick_papers.theory._arrays import checked

__all__ = ["fedgs_bias", "fedgs_update_variance"]


def fedgs_update_variance(updates_by_draw: ArrayLike) -> float:
    """Variance (4) = (5) of the model update, E||g - E g||^2, over equally likely draws of the cohort (axis 0).

    >>> fedgs_update_variance([[1.0, 0.0], [-1.0, 0.0]])
    1.0
    """
    updates = np.asarray(updates_by_draw, dtype=np.float64)
    updates = checked("updates_by_draw", updates.reshape(len(updates), -1), None, None)
    return float(np.var(updates, axis=0).sum())


def fedgs_bias(sizes: ArrayLike, m: int) -> Floats:
    """Bias factor gamma_k (22) of the weights n_k / sum_S n when m clients are drawn uniformly.

    (20) moves the expectation into the fraction: by Jensen's inequality the true factor is at least this, and the
    paper's expected weights n_k gamma_k / n sum to less than 1, unless the sizes are equal or m = N.

    >>> fedgs_bias([1.0, 1.0, 4.0], m=2).round(3).tolist()
    [1.143, 1.143, 0.8]
    """
    n = checked("sizes", sizes, None)
    N = len(n)
    require(bool(n.min() > 0), "smallest of sizes", float(n.min()), "> 0", "leave clients without data out")
    require(1 <= m <= N, "m", m, f"from 1 to N = {N}")
    gamma: Floats = 1 / (1 + (N - m) / (m * max(N - 1, 1)) * (n / n.mean() - 1))
    return gamma
