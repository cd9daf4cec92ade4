"""max over |S| = m of  min_S value + sum_S bonus: exact in O(K log K).

BSFL (13) (https://arxiv.org/abs/2303.10373) calls this infeasible and uses annealing, RBCS-F's Algorithm 1
(https://doi.org/10.1109/TPDS.2020.3040887) takes O(N^2); one sort and one heap are enough. Go through the clients from
the largest value down: the best cohort whose smallest value is at least the current one has the m largest bonuses so
far.
"""

import numpy as np
from numpy.typing import ArrayLike

from fedpick._support.native import native
from fedpick.core.errors import ContractError
from fedpick.core.types import Floats, Ints

__all__ = ["bottleneck", "masked", "top"]

_PRUNE_FROM = 4096  # with fewer clients, sorting all is cheaper than pruning


def top(values: ArrayLike, m: int, rng: np.random.Generator | None = None) -> Ints:
    """Indices of the m largest values, ties at random (by index without an rng); all of them if there are fewer.

    NaN (not known) ranks last.

    >>> top([3.0, 1.0, 2.0], 2).tolist()
    [0, 2]
    """
    array = np.asarray(values, dtype=np.float64)
    if m >= len(array):
        return np.arange(len(array))
    if m <= 0:
        return np.empty(0, dtype=np.int64)
    edge = np.partition(array, len(array) - m)[len(array) - m]
    if np.isnan(edge) or np.isnan(array.max()):
        return top(np.nan_to_num(array, nan=-np.inf, posinf=np.inf, neginf=-np.inf), m, rng)
    above = np.flatnonzero(array > edge)
    tied = np.flatnonzero(array == edge)
    missing = m - len(above)
    if missing < len(tied):
        tied = tied[:missing] if rng is None else rng.choice(tied, missing, replace=False, shuffle=False)
    return np.sort(np.concatenate([above, tied]))


@native
def _sweep(values: Floats, bonus: Floats, m: int, picks: Floats) -> float:
    """Values sorted downwards; return the smallest value that the best cohort may hold.

    `picks`, a uniform number for each, choose among thresholds that are equally good (empty: the first).
    """
    heap = np.empty(m)  # min-heap of the m largest bonuses so far
    total = 0.0
    best = -np.inf
    threshold = values[m - 1]
    equals = 0
    for i in range(len(values)):
        b = bonus[i]
        if i < m:
            j = i
            while j > 0 and heap[(j - 1) // 2] > b:
                heap[j] = heap[(j - 1) // 2]
                j = (j - 1) // 2
            heap[j] = b
            total += b
        elif b > heap[0]:
            total += b - heap[0]
            j = 0
            while True:
                child = 2 * j + 1
                if child >= m:
                    break
                if child + 1 < m and heap[child + 1] < heap[child]:
                    child += 1
                if heap[child] >= b:
                    break
                heap[j] = heap[child]
                j = child
            heap[j] = b
        if i >= m - 1:
            objective = values[i] + total
            if objective > best:
                best = objective
                threshold = values[i]
                equals = 1
            elif objective == best and values[i] != threshold and len(picks):
                equals += 1
                if picks[i] * equals < 1.0:
                    threshold = values[i]
    return float(threshold)


def masked(mask: ArrayLike | None, count: int) -> Ints:
    """Indices where the mask is True; all of them without a mask."""
    if mask is None:
        return np.arange(count)
    array = np.asarray(mask)
    if array.dtype != np.bool_ or array.shape != (count,):
        raise ContractError(f"mask is {array.dtype} of shape {array.shape}, but must be boolean of shape ({count},)")
    return np.flatnonzero(array)


def bottleneck(
    value: ArrayLike,
    bonus: ArrayLike,
    m: int,
    mask: ArrayLike | None = None,
    rng: np.random.Generator | None = None,
) -> Ints:
    """Indices of the m clients that maximise min value + sum bonus, exactly; ties at random if an rng is given.

    Args:
        value: one number per client, infinities allowed.
        bonus: one finite number per client.
        m: size of the cohort; everyone if there are fewer clients.
        mask: True for those that may be chosen.
        rng: breaks ties; without it they go by index.

    >>> bottleneck(value=[5.0, 4.0, 1.0], bonus=[0.0, 0.0, 2.0], m=2).tolist()
    [0, 1]
    >>> bottleneck(value=[5.0, 4.0, 1.0], bonus=[0.0, 0.0, 9.0], m=2).tolist()
    [0, 2]
    """
    values, bonuses = np.asarray(value, dtype=np.float64), np.asarray(bonus, dtype=np.float64)
    if values.ndim != 1 or values.shape != bonuses.shape:
        raise ContractError(f"value has shape {values.shape} and bonus {bonuses.shape}, but both must be (K,)")
    ids: Ints = masked(mask, len(values))
    if len(ids) < len(values):
        values, bonuses = values[ids], bonuses[ids]
    if m >= len(ids):
        return ids
    if m <= 0:
        return ids[:0]
    if np.isnan(values).any() or not np.isfinite(bonuses).all():
        raise ContractError("value holds NaN, or bonus NaN or infinity: rank unknown clients explicitly")

    if not np.isfinite(values).all():
        endless, hopeless = values == np.inf, values == -np.inf
        if np.count_nonzero(endless) >= m:  # their minimum beats any bonus
            ids, bonuses = ids[endless], bonuses[endless]
            return ids[top(bonuses, m, rng)]
        if len(ids) - np.count_nonzero(hopeless) < m:  # nobody can avoid -inf: the bonuses decide
            return ids[top(bonuses, m, rng)]
        ids, bonuses, endless = ids[~hopeless], bonuses[~hopeless], endless[~hopeless]
        values = values[~hopeless]
        values[endless] = values[~endless].max()  # beside a finite value, +inf is as good as the largest of them
        if m == len(ids):
            return ids
    pool_values, pool_bonuses = values, bonuses
    if len(ids) >= _PRUNE_FROM:
        # Behind the `head` largest values, only a bonus above the m-th largest of the head can still enter the cohort.
        head = int(np.sqrt(len(ids) * m)) + 1  # about as many as are then left behind it
        front = np.argpartition(values, len(ids) - head)[len(ids) - head :]
        keep = bonuses > np.partition(bonuses[front], head - m)[head - m]
        keep[front] = True
        pool_values, pool_bonuses = values[keep], bonuses[keep]
    order = np.argsort(-pool_values)
    picks = rng.random(len(order)) if rng is not None else np.empty(0)
    threshold = _sweep(pool_values[order], pool_bonuses[order], m, picks)
    pool = np.flatnonzero(values >= threshold)
    return ids[pool[top(bonuses[pool], m, rng)]]
