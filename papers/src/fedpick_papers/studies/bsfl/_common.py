"""Shared by the figures of BSFL: the paper, and regret against an oracle that knows all speeds."""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaincinv

from fedpick.core.types import Floats
from fedpick.policies.bsfl import generalisation
from fedpick.worlds import Gamma, World
from fedpick_papers import theory
from fedpick_papers.studies._runs import chosen_in
from fedpick_papers.studies._study import Item, table
from fedpick_papers.studies._verdicts import Check, Limit, above, within

__all__ = ["LIMITS", "LOOKS", "PAPER", "exponent", "linear", "logarithmic", "mean_speeds", "over_time", "regret_of"]

PAPER = (
    "Ben Ami, Cohen & Zhao (2023), Client Selection for Generalization in Accelerated Federated Learning: A "
    "Multi-Armed Bandit Approach"
)

Losses = Mapping[str, Mapping[str, Mapping[str, Sequence[float]]]]  # by kind of data, moment and scheme

# A scheme has the same colour in all figures of the paper.
LOOKS = {"BSFL": 0, "CS-UCB": 1, "CS-UCB-Q": 1, "Random": 2, "Random by size": 2}

LIMITS = {
    "logarithmic": Limit(
        1.5,
        "times the exponent 1/ln n of a logarithm: constants beside it still count at these n",
        "2026-11-15: set after the run",
    ),
    "logarithmic, half-width": Limit(
        0.1, "a wider interval cannot tell a logarithm from a square root", "2026-11-15: set after the run"
    ),
    "linear": Limit(
        0.85,
        "exponent at least: a curve that is bent at first is not quite linear over its last half",
        "2026-11-15: set after the run",
    ),
}


def logarithmic(exponents: ArrayLike, name: str, rounds: int) -> Check:
    """Check that regret grows more slowly than linearly, and by the size of the claim: as a logarithm does."""
    size = 1.0 - LIMITS["logarithmic"].value / float(np.log(rounds))
    below = 1.0 - np.asarray(exponents, dtype=np.float64)
    return above(below, f"{name}'s exponent is below 1", size=size, half=LIMITS["logarithmic, half-width"].value)


def linear(exponents: ArrayLike, name: str) -> Check:
    """Check that regret grows linearly; it may grow faster for a while, if the policy tries the slow clients last."""
    return within(exponents, f"{name}'s regret is linear", low=LIMITS["linear"].value)


def over_time(title: str, parts: Losses, shown: Callable[[Sequence[float]], str]) -> str:
    """A table of schemes by the share of the time compared, as Markdown.

    Args:
        title: its heading.
        parts: for each kind of data ("": the only one) and moment the values of each scheme, one per seed.
        shown: these values as text.
    """
    moments = list(next(iter(parts.values())))
    rows = [["scheme", *(f"after {moment}" for moment in moments)], ["---", *["---:"] * len(moments)]]
    for kind, of in parts.items():
        for name in of[moments[0]]:
            rows.append([f"{name}, {kind}" if kind else name, *(shown(of[moment][name]) for moment in moments)])
    return f"## {title} over the time compared\n\n{table(rows)}"


@lru_cache(maxsize=4)
def _unit_noise(shape: float) -> Floats:
    """Equally likely values of the gamma law with mean 1."""
    values: Floats = gammaincinv(shape, (np.arange(20_000) + 0.5) / 20_000) / shape
    return values


def mean_speeds(world: World, seed: int, tau_min: float, tau_max: float) -> Floats:
    """E[tau_min / tau] of each client under the shifted gamma law, times cut at tau_max as the policy counts them."""
    law = world.latency
    assert isinstance(law, Gamma)
    noise = _unit_noise(law.shape)
    return np.array(
        [(tau_min / np.minimum(law.shift + mean * noise, tau_max)).mean() for mean in world.init(seed).latency["mean"]]
    )


def regret_of(item: Item, folder: Path, speeds: Floats, share: Any) -> Floats:
    """Regret (7) after every round of a run.

    Args:
        item: the job.
        folder: of the run.
        speeds: of the clients, from `mean_speeds`.
        share: target rate of each client: a number, or one per client.
    """
    rounds = item["rounds"]
    cohorts = chosen_in(folder, rounds)
    counts, g = np.zeros(item["clients"], dtype=np.int64), np.empty((rounds, item["clients"]))
    for t, cohort in enumerate(cohorts):
        g[t] = generalisation(counts, t + 1, share, item["beta"])
        counts[cohort] += 1
    return theory.bsfl_regret(cohorts, speeds, g, item["alpha"])


def exponent(regret: Floats) -> float:
    """Local exponent over the last half: 1 is linear, 0.5 a square root; a logarithm would give about 1/ln n."""
    n = len(regret)
    return float(np.log2(regret[-1] / regret[n // 2 - 1]) / np.log2(n / (n // 2)))
