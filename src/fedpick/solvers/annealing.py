"""Simulated annealing for max of min_S value + sum_S bonus: BSFL's ALSA and the classic SA it is compared with.

Ben Ami, Cohen & Zhao, "Client Selection for Generalization in Accelerated Federated Learning: A Multi-Armed Bandit
Approach", https://arxiv.org/abs/2303.10373, section V. Kept for the paper's comparison: `bottleneck` solves the same
problem exactly and faster. Three neighbourhoods:

- "sa": (18), swap any chosen client for any other.
- "alsa": (19) as printed, symmetric: a swap in which the client that leaves has the lowest value or bonus of the old
  cohort, or the one that comes has the lowest value or bonus of the new one. Theorem 2 is about this one.
- "alsa-drop": only the first half of (19), drop the client with the lowest value or bonus. It breaks the symmetry that
  Theorem 2 needs, but it is the only one that reaches the energies that the paper reports.
"""

import math

import numpy as np
from numpy.typing import ArrayLike

from fedpick._support.native import native
from fedpick.core.errors import ContractError, require, unknown_name
from fedpick.core.types import Bools, Floats, Ints

__all__ = ["NEIGHBOURS", "anneal"]

NEIGHBOURS = ("sa", "alsa", "alsa-drop")


@native
def _two_lowest(values: Floats, cohort: Ints) -> tuple[int, float, float]:
    """Position of the lowest value of the cohort, that value, and the lowest without it."""
    at = 0
    low = np.inf
    next_low = np.inf
    for i in range(len(cohort)):
        v = values[cohort[i]]
        if v < low:
            next_low = low
            low = v
            at = i
        elif v < next_low:
            next_low = v
    return at, low, next_low


@native
def _walk(
    value: Floats,
    bonus: Floats,
    cohort: Ints,
    inside: Bools,
    steps: int,
    spread: float,
    kind: int,
    rng: np.random.Generator,
    energies: Floats,
) -> tuple[Ints, Ints]:
    """Metropolis walk (16) with temperature spread / log(i + 1); returns the last and the best cohort."""
    n = len(value)
    m = len(cohort)
    slow, low, next_low = _two_lowest(value, cohort)
    poor, small, _ = _two_lowest(bonus, cohort)
    total = 0.0
    for i in range(m):
        total += bonus[cohort[i]]
    energy = low + total
    best = energy
    best_cohort = cohort.copy()
    for step in range(1, steps + 1):
        # Propose: `out` is a position in the cohort, `come` a client outside it, uniform over the neighbourhood.
        while True:
            come = rng.integers(0, n)
            if inside[come]:
                continue
            if kind == 2:
                out = slow if slow == poor or rng.random() < 0.5 else poor
                break
            out = int(rng.integers(0, m))
            if kind == 0 or out in (slow, poor):
                break
            if value[come] <= low or bonus[come] <= small:
                break
        lowest = min(next_low if out == slow else low, value[come])
        new_total = total - bonus[cohort[out]] + bonus[come]
        new_energy = lowest + new_total
        if new_energy >= energy or rng.random() < math.exp((new_energy - energy) * math.log(step + 1.0) / spread):
            inside[cohort[out]] = False
            inside[come] = True
            cohort[out] = come
            total = new_total
            energy = new_energy
            slow, low, next_low = _two_lowest(value, cohort)
            poor, small, _ = _two_lowest(bonus, cohort)
            if energy > best:
                best = energy
                for i in range(m):
                    best_cohort[i] = cohort[i]
        if len(energies):
            energies[step - 1] = energy
    return cohort, best_cohort


def anneal(
    value: ArrayLike,
    bonus: ArrayLike,
    m: int,
    steps: int,
    rng: np.random.Generator,
    neighbours: str = "alsa",
    *,
    best: bool = False,
    energies: Floats | None = None,
) -> Ints:
    """Indices of m clients with a high min value + sum bonus, found by annealing.

    Args:
        value: one finite number per client.
        bonus: one finite number per client.
        m: size of the cohort; everyone if there are fewer clients.
        steps: proposals, each accepted or rejected by (16).
        rng: draws the start, the proposals and the acceptances.
        neighbours: "alsa", "alsa-drop" or "sa", see the module.
        best: return the best cohort visited instead of the last one (the paper's).
        energies: an array of length `steps` that receives the energy (17) after each step (Fig. 4).

    >>> import numpy as np
    >>> anneal([5.0, 4.0, 1.0], [0.0, 0.0, 2.0], m=2, steps=200, rng=np.random.default_rng(0), best=True).tolist()
    [0, 1]
    """
    if neighbours not in NEIGHBOURS:
        raise unknown_name("neighbourhood", neighbours, list(NEIGHBOURS))
    require(steps >= 0, "anneal: steps", steps, ">= 0")
    values, bonuses = np.asarray(value, dtype=np.float64), np.asarray(bonus, dtype=np.float64)
    if values.ndim != 1 or values.shape != bonuses.shape:
        raise ContractError(f"value has shape {values.shape} and bonus {bonuses.shape}, but both must be (K,)")
    if not (np.isfinite(values).all() and np.isfinite(bonuses).all()):
        raise ContractError("annealing needs finite values and bonuses; bottleneck takes infinite values")
    if energies is not None and energies.shape != (steps,):
        raise ContractError(f"energies has shape {energies.shape}, but must be ({steps},), one per step")
    count = len(values)
    if m >= count or m <= 0:
        everyone = np.arange(max(min(m, count), 0))
        if energies is not None:
            energies[:] = values[everyone].min(initial=np.inf) + bonuses[everyone].sum()
        return everyone
    cohort = rng.choice(count, m, replace=False)
    inside = np.zeros(count, dtype=bool)
    inside[cohort] = True
    # Delta_max of (14): no two cohorts differ by more.
    ordered = np.sort(bonuses)
    spread = float(values.max() - values.min() + ordered[-m:].sum() - ordered[:m].sum())
    trace = np.empty(0) if energies is None else energies
    last, found = _walk(values, bonuses, cohort, inside, steps, spread or 1.0, NEIGHBOURS.index(neighbours), rng, trace)
    return np.sort(found if best else last)
