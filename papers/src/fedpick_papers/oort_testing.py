"""Oort's testing selector: the clients on which to test a model, so that the result is valid for all clients.

Lai et al. (2021), section 5. Two functions: how many clients, drawn at random, keep the deviation from all clients
small (nothing is known of them), and which examples of which clients make up a wanted test set in the shortest time
(the counts per category are known).
"""

import math

import numpy as np
from numpy.typing import ArrayLike

from fedpick.core.errors import ContractError, MissingError, require
from fedpick.core.types import Floats, Ints

__all__ = ["cover_categories", "enough_for_deviation"]


def enough_for_deviation(deviation: float, spread: float, clients: int, confidence: float = 0.95) -> int:
    """How many clients, drawn without replacement, so that their mean is off by `deviation` at most.

    By the inequality of Hoeffding and Serfling: P(|mean - mean of all| >= deviation) is at most
    2 exp(-2 n deviation^2 / ((1 - (n - 1) / N) spread^2)), two-sided as the promise is.

    Args:
        deviation: tolerated, in the unit of what is averaged (examples of a category, say).
        spread: the largest less the smallest value that a client can have.
        clients: N, from whom they are drawn.
        confidence: probability with which it is to hold.

    >>> enough_for_deviation(deviation=5.0, spread=100.0, clients=10_000, confidence=0.95)
    688
    """
    require(deviation > 0, "enough_for_deviation: deviation", deviation, "> 0")
    require(spread >= 0 and math.isfinite(spread), "enough_for_deviation: spread", spread, ">= 0 and finite")
    require(clients >= 1, "enough_for_deviation: clients", clients, ">= 1")
    require(0 < confidence < 1, "enough_for_deviation: confidence", confidence, "in (0, 1)")
    alone = math.log(2.0 / (1.0 - confidence)) * (spread / deviation) ** 2 / 2.0  # for infinitely many clients
    return min(max(math.ceil(alone * (clients + 1) / (clients + alone)), 1), clients)


def cover_categories(
    counts: ArrayLike, wanted: ArrayLike, seconds: ArrayLike | None = None, at_most: int | None = None
) -> Ints:
    """How many examples of each category each client is tested on, so that the slowest is done soonest.

    A linear programme: examples sum to what is wanted, no client uses more than it has, and the longest time is
    minimal. The solution is then rounded to whole numbers.

    Args:
        counts: (K, C) examples that each client holds of each category.
        wanted: (C) examples of each.
        seconds: that each client takes for an example; None: all the same.
        at_most: clients that may be asked; they are taken greedily, who covers most of what is missing first.

    Returns:
        (K, C) whole numbers.

    >>> cover_categories([[5, 0], [5, 4], [0, 4]], wanted=[6, 4]).sum(axis=0).tolist()
    [6, 4]
    """
    held = np.asarray(counts, dtype=np.float64)
    need = np.asarray(wanted, dtype=np.float64)
    if held.ndim != 2 or need.shape != held.shape[1:] or not ((held >= 0).all() and (need >= 0).all()):
        raise ContractError(
            f"counts has shape {held.shape} and wanted {need.shape}, but must be (K, C) and (C,), all >= 0"
        )
    pace = np.ones(len(held)) if seconds is None else np.asarray(seconds, dtype=np.float64)
    if pace.shape != (len(held),) or not (pace > 0).all():
        raise ContractError(f"seconds has shape {pace.shape}, but needs one number > 0 for each of {len(held)} clients")
    short = np.flatnonzero(held.sum(axis=0) < need)
    if len(short):
        c = short[0]
        raise MissingError(
            f"{need[c]:g} examples of category {c} are wanted, but all clients hold {held[:, c].sum():g}"
        )
    asked = np.arange(len(held)) if at_most is None else _cover(held, need, at_most)
    whole = np.zeros(held.shape, dtype=np.int64)
    if need.any():
        whole[asked] = _share(held[asked], need, pace[asked])
    return whole


def _cover(held: Floats, need: Floats, at_most: int) -> Ints:
    """Greedily: the client that gives most of what is missing, until nothing is."""
    missing, chosen = need.copy(), np.zeros(len(held), dtype=np.bool_)
    while missing.any():
        gain = np.where(chosen, -1.0, np.minimum(held, missing).sum(axis=1))
        best = int(gain.argmax())
        if np.count_nonzero(chosen) == at_most:
            raise MissingError(
                f"at_most = {at_most} clients do not hold what is wanted, as far as a greedy search finds; "
                f"{missing.sum():g} examples are missing: raise at_most"
            )
        chosen[best] = True
        missing = np.maximum(missing - held[best], 0.0)
    return np.flatnonzero(chosen)


def _share(held: Floats, need: Floats, pace: Floats) -> Ints:
    """The linear programme, then whole numbers: rounded down, and the rest to those who are done first."""
    from scipy.optimize import linprog  # takes a while to load
    from scipy.sparse import csr_array, hstack, kron, vstack

    clients, categories = held.shape
    variables = clients * categories  # n[i, c], and the longest time at the end
    per_client = kron(csr_array(np.diag(pace)), np.ones((1, categories)))
    time = hstack([per_client, csr_array(-np.ones((clients, 1)))])
    total = hstack([kron(np.ones((1, clients)), csr_array(np.eye(categories))), csr_array((categories, 1))])
    bounds = [(0.0, float(most)) for most in held.ravel()] + [(0.0, None)]
    cost = np.zeros(variables + 1)
    cost[-1] = 1.0
    solved = linprog(
        cost, A_ub=vstack([time]).tocsr(), b_ub=np.zeros(clients), A_eq=total.tocsr(), b_eq=need, bounds=bounds
    )
    if not solved.success:
        raise ContractError(f"the linear programme was not solved: {solved.message}")
    exact = np.clip(solved.x[:-1].reshape(clients, categories), 0.0, held)
    whole = np.floor(exact + 1e-7)
    for c in range(categories):
        left = round(need[c] - whole[:, c].sum())
        while left > 0:  # at most one for each that was rounded down, as a rule
            room = whole[:, c] < held[:, c]
            i = int(np.where(room, (whole.sum(axis=1) + 1) * pace, np.inf).argmin())
            whole[i, c] += 1
            left -= 1
    found: Ints = whole.astype(np.int64)
    return found
