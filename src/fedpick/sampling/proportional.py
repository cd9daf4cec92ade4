"""From weights to inclusion probabilities: proportional, but none above its cap."""

import math

import numpy as np
from numpy.typing import ArrayLike

from fedpick.core.errors import ContractError
from fedpick.core.types import Bools, Floats

__all__ = ["capped", "proportional"]


def capped(log_weights: ArrayLike, total: float, cap: float) -> tuple[Floats, Bools]:
    """Shares min(cap, c w) that sum to `total`, and the mask of the clients whose c w is above the cap (strictly).

    Weights are given as logarithms and may span any range: the shares of the uncapped are normalised by their own
    log-sum-exp, so that they cannot underflow next to a huge capped weight.

    Args:
        log_weights: logarithms of the weights, finite.
        total: what the shares sum to, at most cap * len(log_weights).
        cap: largest share of one client.
    """
    logs = np.asarray(log_weights, dtype=np.float64)
    count = len(logs)
    if logs.ndim != 1 or np.isnan(logs).any():
        raise ContractError(f"log_weights has shape {logs.shape} or holds NaN, but must be one number per client")
    if total > cap * count * (1.0 + 1e-9):
        raise ContractError(f"total = {total:g} cannot be shared by {count} clients with at most {cap:g} each")
    none: Bools = np.zeros(count, dtype=bool)
    if count == 0 or total <= 0.0:
        return np.zeros(count), none
    shares: Floats = logs - logs.max()  # one array for all steps: a new one of 8 MB costs more than what is done to it
    np.exp(shares, out=shares)
    scale = total / shares.sum()
    if scale <= cap:  # the largest weight is exp(0) = 1
        shares *= scale
        return shares, none

    # At most total/cap clients can be capped: sort that many of the largest weights and no more.
    total = min(total, cap * count)
    reach = min(math.floor(total / cap) + 1, count)
    parts = np.partition(logs, count - reach)
    rest, top = parts[: count - reach], np.sort(parts[count - reach :])[::-1]
    rest -= top[-1]
    with np.errstate(divide="ignore"):  # log(0) = -inf is what an empty or vanishing rest weighs
        beyond = top[-1] + np.log(np.exp(rest, out=rest).sum())
    tails = np.logaddexp.accumulate(np.concatenate([[beyond], top[::-1]]))[1:][::-1]  # all but the n largest
    left = total - cap * np.arange(reach)
    n = int(np.argmax(left * np.exp(top - tails) <= cap * (1.0 + 1e-9)))
    over: Bools = logs > top[n]
    n = int(np.count_nonzero(over))
    np.subtract(logs, tails[n], out=shares)
    np.exp(np.minimum(shares, 0.0, out=shares), out=shares)
    shares *= left[n]
    np.minimum(shares, cap, out=shares)
    shares[over] = cap
    return shares, over


def proportional(sizes: ArrayLike, k: int) -> Floats:
    """Inclusion probabilities proportional to size that sum to k, none above 1.

    >>> proportional([1.0, 1.0, 8.0], 2).tolist()
    [0.5, 0.5, 1.0]
    """
    array = np.asarray(sizes, dtype=np.float64)
    positive = int(np.count_nonzero(array > 0.0))
    if array.ndim != 1 or not (np.isfinite(array).all() and (array >= 0.0).all()):
        raise ContractError(
            "sizes hold a negative number, NaN or infinity, but must be finite and >= 0, one per client"
        )
    if k < 0:
        raise ContractError(f"k = {k}, but must be >= 0")
    if k > positive:
        raise ContractError(f"k = {k}, but only {positive} sizes are > 0: lower k to at most {positive}")
    p = np.zeros(len(array))
    p[array > 0.0], _ = capped(np.log(array[array > 0.0]), k, 1.0)
    return p
