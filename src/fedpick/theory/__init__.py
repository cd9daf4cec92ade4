"""Regret, bounds, selection skew: what the five papers prove, as functions over arrays.

One paper, one file. Names begin with the paper's, arguments keep its letters, each formula has its number. A bound
holds under its paper's assumptions only; the docstrings say where a proof needs more than the paper states.
"""

from fedpick.theory.bsfl import bsfl_bound, bsfl_delta_max, bsfl_regret, bsfl_reward
from fedpick.theory.e3cs import (
    BestStatic,
    e3cs_best_static,
    e3cs_bound,
    e3cs_optimal_bound,
    e3cs_optimal_rate,
    e3cs_regret,
    e3cs_safe_quota,
)
from fedpick.theory.fedgs import fedgs_bias, fedgs_update_variance
from fedpick.theory.power_of_choice import (
    Bound,
    PowProblem,
    Skews,
    pow_bound_decaying,
    pow_bound_fixed,
    pow_bound_weighted,
    pow_gap,
    pow_share,
    pow_skew,
    pow_skew_extremes,
)
from fedpick.theory.rbcsf import Feasible, Lemma1, rbcsf_bound, rbcsf_feasible, rbcsf_rate_stability, rbcsf_regret

__all__ = [
    "BestStatic",
    "Bound",
    "Feasible",
    "Lemma1",
    "PowProblem",
    "Skews",
    "bsfl_bound",
    "bsfl_delta_max",
    "bsfl_regret",
    "bsfl_reward",
    "e3cs_best_static",
    "e3cs_bound",
    "e3cs_optimal_bound",
    "e3cs_optimal_rate",
    "e3cs_regret",
    "e3cs_safe_quota",
    "fedgs_bias",
    "fedgs_update_variance",
    "pow_bound_decaying",
    "pow_bound_fixed",
    "pow_bound_weighted",
    "pow_gap",
    "pow_share",
    "pow_skew",
    "pow_skew_extremes",
    "rbcsf_bound",
    "rbcsf_feasible",
    "rbcsf_rate_stability",
    "rbcsf_regret",
]
