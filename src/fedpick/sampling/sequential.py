"""Sequential draws from weights: one client after the other, with probability proportional to what is left.

Efraimidis & Spirakis (2006), "Weighted random sampling with a reservoir", https://doi.org/10.1016/j.ipl.2005.11.003:
their A-ExpJ draws without replacement in one pass and needs random numbers only where the reservoir changes.
"""

import math

import numpy as np
from numpy.typing import ArrayLike

from fedpick._support.native import native
from fedpick.core.errors import ContractError
from fedpick.core.types import Floats, Ints

__all__ = ["multinomial_nr", "weighted", "with_replacement"]


def _check(weights: ArrayLike, k: int, *, distinct: bool) -> Floats:
    array = np.asarray(weights, dtype=np.float64)
    if array.ndim != 1:
        raise ContractError(f"weights has shape {array.shape}, but must be one weight per client")
    if k < 0:
        raise ContractError(f"k = {k}, but must be >= 0")
    largest = array.max(initial=0.0)
    if not (array.min(initial=0.0) >= 0.0 and math.isfinite(largest)):
        raise ContractError("weights hold a negative number, NaN or infinity, but must be finite and >= 0")
    positive = int(np.count_nonzero(array))
    if positive < (k if distinct else min(k, 1)):
        raise ContractError(f"k = {k}, but only {positive} weights are > 0: lower k or give more clients a weight")
    return array


@native
def _sift(keys: Floats, ids: Ints, key: float, item: int) -> None:
    """Replace the root of a min-heap."""
    n = len(keys)
    i = 0
    while True:
        child = 2 * i + 1
        if child >= n:
            break
        if child + 1 < n and keys[child + 1] < keys[child]:
            child += 1
        if keys[child] >= key:
            break
        keys[i] = keys[child]
        ids[i] = ids[child]
        i = child
    keys[i] = key
    ids[i] = item


@native
def _reservoir(weights: Floats, k: int, rng: np.random.Generator) -> Ints:
    """A-ExpJ with keys log(u)/w, the k largest kept in a heap."""
    keys = np.full(k, -np.inf)
    ids = np.full(k, -1, dtype=np.int64)
    filled = 0
    i = 0
    n = len(weights)
    while filled < k:
        if weights[i] > 0.0:
            _sift(keys, ids, math.log(1.0 - rng.random()) / weights[i], i)
            filled += 1
        i += 1
    skip = math.log(1.0 - rng.random()) / keys[0]
    while i < n:
        skip -= weights[i]
        if skip < 0.0 and weights[i] > 0.0:
            # A key above the lowest one: log of a uniform number on (exp(lowest * w), 1), without cancellation.
            key = math.log1p(math.expm1(keys[0] * weights[i]) * (1.0 - rng.random())) / weights[i]
            _sift(keys, ids, key, i)
            skip = math.log(1.0 - rng.random()) / keys[0]
        i += 1
    return ids


def weighted(weights: ArrayLike, k: int, rng: np.random.Generator) -> Ints:
    """Draw k distinct clients one after the other, each time with probability proportional to weight.

    The inclusion probabilities of this draw are *not* proportional to the weights: see `pivotal` for that.

    >>> import numpy as np
    >>> weighted([1.0, 0.0, 5.0], 2, np.random.default_rng(0)).tolist()
    [0, 2]
    """
    array = _check(weights, k, distinct=True)
    if k == 0:
        return np.empty(0, dtype=np.int64)
    largest, smallest = array.max(), array.min(initial=np.inf, where=array > 0.0)
    if smallest > largest * 1e-200:
        return np.sort(_reservoir(array / largest, k, rng))
    # The keys of such weights underflow: draw the same with Gumbel noise added to the logarithms.
    with np.errstate(divide="ignore"):
        keys = np.log(array) + rng.gumbel(size=len(array))
    return np.sort(np.argpartition(-keys, k - 1)[:k])


def multinomial_nr(p: ArrayLike, k: int, rng: np.random.Generator) -> Ints:
    """The papers' `multinomialNR(p/k, k)` (E3CS (11), torch.multinomial): k draws without replacement from p.

    E3CS claims that client i is then chosen with probability p[i]. That holds for the first of the k draws only:
    clients with p = 1 are sometimes left out, and those with small p are drawn too often. It is kept to compare with
    the papers; with `pivotal` and `systematic` the probability is p[i].
    """
    return weighted(p, k, rng)


def with_replacement(weights: ArrayLike, k: int, rng: np.random.Generator) -> Ints:
    """Draw k clients independently with probability proportional to weight; a client can be drawn more than once.

    >>> import numpy as np
    >>> with_replacement([0.0, 1.0], 3, np.random.default_rng(0)).tolist()
    [1, 1, 1]
    """
    array = _check(weights, k, distinct=False)
    if k == 0:
        return np.empty(0, dtype=np.int64)
    steps = np.cumsum(array / array.max())  # so that sums cannot overflow
    drawn: Ints = np.searchsorted(steps, np.sort(rng.random(k)) * steps[-1], side="right")
    return drawn
