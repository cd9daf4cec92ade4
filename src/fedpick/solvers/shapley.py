"""Shapley values by truncated sampling of permutations: what each player adds, on average over the orders of joining.

Liu, Chen, Yu, Liu & Cui (2022), "GTG-Shapley: Efficient and Accurate Participant Contribution Evaluation in Federated
Learning", ACM TIST, which GreedyFed uses: every player is first in equally many orders; an order ends early once the
value of its coalition is near that of all players; all values are 0 if all players together change nothing.
"""

from collections.abc import Callable

import numpy as np

from fedpick.core.errors import require
from fedpick.core.types import Bools, Floats

__all__ = ["shapley"]


def shapley(
    value: Callable[[Bools], Floats],
    players: int,
    rng: np.random.Generator,
    *,
    repeats: int = 2,
    tolerance: float = 1e-4,
) -> Floats:
    """The Shapley value of each player; exact if there are no more coalitions than would be sampled.

    Args:
        value: returns the values of coalitions, given as a mask of (coalitions, players); called with dozens at once.
        players: number of players.
        rng: for the orders.
        repeats: in how many orders each player is first.
        tolerance: differences of values up to this count as none.

    >>> shapley(lambda rows: rows @ np.array([1.0, 2.0, 4.0]), 3, np.random.default_rng(0)).tolist()
    [1.0, 2.0, 4.0]
    """
    require(repeats >= 1, "shapley: repeats", repeats, ">= 1")
    require(tolerance >= 0.0, "shapley: tolerance", tolerance, ">= 0")
    if players == 0:
        return np.empty(0)
    nobody, everybody = value(np.array([[False] * players, [True] * players])).tolist()
    if abs(everybody - nobody) <= tolerance:
        return np.zeros(players)
    if 2**players <= repeats * players**2:
        return _exact(value, players)
    firsts = np.tile(np.arange(players), repeats)
    orders = np.array([_led_by(first, rng.permutation(players)) for first in firsts])
    rows, joined = np.arange(len(orders)), np.zeros((len(orders), players), dtype=np.bool_)
    before, total = np.full(len(orders), nobody), np.zeros(players)
    for place in range(players):
        joined[rows, orders[:, place]] = True
        going = np.flatnonzero(np.abs(everybody - before) > tolerance)
        now = before.copy()
        if place == players - 1:
            now[going] = everybody
        elif len(going):
            different, of = np.unique(joined[going], axis=0, return_inverse=True)
            now[going] = value(different)[of.ravel()]
        np.add.at(total, orders[:, place], now - before)
        before = now
    return total / len(orders)


def _led_by(first: int, order: np.ndarray) -> np.ndarray:
    """The order with this player moved to its front."""
    return np.concatenate([[first], order[order != first]])


def _exact(value: Callable[[Bools], Floats], players: int) -> Floats:
    """The mean over all orders, from the values of all coalitions."""
    codes = np.arange(2**players)
    rows = (codes[:, None] >> np.arange(players)) & 1 == 1
    values, size = value(rows), rows.sum(axis=1)
    weight = np.ones(players)  # of a coalition with s others: s! (n - s - 1)! / n!
    weight[0] = 1.0 / players
    for s in range(1, players):
        weight[s] = weight[s - 1] * s / (players - s)
    found = np.zeros(players)
    for player in range(players):
        without = codes[~rows[:, player]]
        found[player] = weight[size[without]] @ (values[without + 2**player] - values[without])
    return found
