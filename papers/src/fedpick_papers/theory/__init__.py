"""Regret, bounds and selection skew from the five papers, as functions of arrays.

Each paper has a module. Functions begin with the paper's name, arguments keep its letters, and numbers in brackets are
its equations. A bound holds only under its paper's assumptions; docstrings say where a proof needs more than the paper
states.
"""

from fedpick_papers.theory.bsfl import bsfl_bound, bsfl_delta_max, bsfl_regret, bsfl_reward
from fedpick_papers.theory.e3cs import (
    BestStatic,
    e3cs_best_static,
    e3cs_bound,
    e3cs_optimal_bound,
    e3cs_optimal_rate,
    e3cs_regret,
    e3cs_safe_quota,
)
from fedpick_papers.theory.fedgs import fedgs_bias, fedgs_update_variance
from fedpick_papers.theory.power_of_choice import (
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
from fedpick_papers.theory.rbcsf import (
    Feasible,
    Lemma1,
    rbcsf_bound,
    rbcsf_feasible,
    rbcsf_rate_stability,
    rbcsf_regret,
)

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
