"""The exact law of ALSA's and SA's walks over all selections, for problems so small that it can be computed."""

from collections.abc import Sequence
from itertools import combinations
from math import comb

import numpy as np
from scipy.special import logsumexp

from fedpick.core.types import Bools, Floats

__all__ = ["at_rest", "decades", "energies", "law", "proposals", "selections"]

ONE_BY_ONE = 200  # steps; later ones are taken in blocks, within which the temperature hardly changes


def selections(K: int, m: int) -> Bools:
    """All selections of m clients, one a row."""
    found = np.zeros((comb(K, m), K), dtype=bool)
    for row, members in zip(found, combinations(range(K), m), strict=True):
        row[list(members)] = True
    return found


def energies(value: Floats, bonus: Floats, states: Bools) -> Floats:
    """Energy (17) of every selection."""
    found: Floats = np.where(states, value, np.inf).min(axis=1) + states @ bonus
    return found


def proposals(value: Floats, bonus: Floats, states: Bools, neighbours: str) -> Floats:
    """Probability that each selection proposes each other: uniform over its neighbours, (18) or (19)."""
    one_apart = (states.astype(np.int64) @ states.T) == states[0].sum() - 1
    slow = np.where(states, value, np.inf).argmin(axis=1)
    poor = np.where(states, bonus, np.inf).argmin(axis=1)
    drops_slow = one_apart & ~states[:, slow].T  # [s, u]: the slowest of s is not in u
    drops_poor = one_apart & ~states[:, poor].T
    if neighbours == "sa":
        weight = one_apart.astype(np.float64)
    elif neighbours == "alsa":
        either = drops_slow | drops_poor
        weight = (either | either.T).astype(np.float64)
    else:  # the solver takes one of the two at random, if they are two
        weight = np.where((slow == poor)[:, None], drops_slow, 0.5 * drops_slow + 0.5 * drops_poor)
    found: Floats = weight / weight.sum(axis=1, keepdims=True)
    return found


def _step(proposed: Floats, gap: Floats, spread: float, step: float) -> Floats:
    """Transition matrix (16) at temperature spread / log(step + 1)."""
    moves: Floats = proposed * np.exp(np.minimum(gap, 0.0) * (np.log(step + 1.0) / spread))
    np.fill_diagonal(moves, 1.0 - moves.sum(axis=1))
    return moves


def _after(now: Floats, moves: Floats, count: int) -> Floats:
    """The law after so many steps with one transition matrix."""
    while True:
        if count % 2:
            now = now @ moves
        count //= 2
        if not count:
            return now
        moves = moves @ moves
        if np.ptp(moves, axis=0).max() < 1e-14:  # wherever it started
            return now @ moves


def law(proposed: Floats, energy: Floats, spread: float, at: Sequence[int], growth: float = 0.1) -> list[Floats]:
    """The law of the walk after each of these steps, from a start that is uniform over the selections.

    Args:
        proposed: from `proposals`.
        energy: of every selection.
        spread: Delta_max, of the temperature.
        at: steps, rising.
        growth: after the first steps, blocks are this share of the steps so far; the temperature of a block is that
            of its middle.
    """
    gap = energy - energy[:, None]
    now, done, found = np.full(len(energy), 1.0 / len(energy)), 0, []
    for end in at:
        while done < end:
            block = 1 if done < ONE_BY_ONE else min(int(growth * done), end - done)
            moves = _step(proposed, gap, spread, done + (block + 1) / 2)
            now, done = _after(now, moves, block), done + block
            now /= now.sum()
        found.append(now)
    return found


def at_rest(degree: Floats, energy: Floats, spread: float, log_steps: float) -> Floats:
    """The stationary law at the temperature of this step: proportional to degree * exp(E / T)."""
    logs = np.log(degree) + energy * log_steps / spread
    found: Floats = np.exp(logs - logsumexp(logs))
    return found


def decades(degree: Floats, energy: Floats, spread: float, sure: float) -> float:
    """log10 of the steps after which the law at rest has the optimum with this probability."""
    low, high, best = 0.0, 1.0, int(energy.argmax())
    while at_rest(degree, energy, spread, high * np.log(10))[best] < sure and high < 1e6:
        low, high = high, 2 * high
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (
            (low, middle) if at_rest(degree, energy, spread, middle * np.log(10))[best] >= sure else (middle, high)
        )
    return high
