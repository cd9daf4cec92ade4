"""max over |s| = m of  alpha/N s'Hs - z's: FedGS (16) (https://arxiv.org/abs/2211.13975), p-dispersion with a linear
term, which is NP-hard.

Greedy start, then swaps of one chosen client for another until none helps, from several starts. On small cases this
finds the brute-force optimum almost always (the tests count how often); general MIQP solvers were slower and worse.
"""

import time

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedpick._support.native import native
from fedpick.core.errors import ContractError, require
from fedpick.core.types import Bools, Floats, Ints
from fedpick.solvers.bottleneck import masked, top

__all__ = ["disperse"]


@native
def _finite(distance: NDArray[np.floating], ids: Ints) -> bool:
    """Whether all distances between these clients are numbers, without a mask of N x N."""
    for i in ids:
        for j in ids:
            if not np.isfinite(distance[i, j]):
                return False
    return True


@native
def _fill(
    distance: NDArray[np.floating], gain: Floats, twice: float, cohort: Ints, inside: Bools, order: Ints, given: int
) -> None:
    """Take the first `given` clients of the cohort, then the client with the largest gain; `order` breaks ties.

    `gain[i]`, which is kept up to date, is what client i would add to the objective of the current cohort.
    """
    for place in range(len(cohort)):
        if place >= given:
            pick = -1
            for j in range(len(order)):
                i = order[j]
                if not inside[i] and (pick < 0 or gain[i] > gain[pick]):
                    pick = i
            cohort[place] = pick
        inside[cohort[place]] = True
        row = distance[cohort[place]]
        for i in range(len(gain)):
            gain[i] += twice * row[i]


@native
def _swaps(
    distance: NDArray[np.floating], gain: Floats, twice: float, cohort: Ints, inside: Bools, order: Ints
) -> None:
    """Swap each chosen client for the best other one, round after round, until no swap helps."""
    m = len(cohort)
    since = 0  # places looked at since the last swap
    place = 0
    while since < m:
        out = cohort[place]
        row = distance[out]
        pick = -1
        # A swap must gain more than rounding errors, otherwise the loop might never end.
        most = gain[out] + 1e-12 * (1.0 + abs(gain[out]))
        for j in range(len(order)):
            i = order[j]
            if not inside[i]:
                there = gain[i] - twice * row[i]
                if there > most:
                    most = there
                    pick = i
        since += 1
        if pick >= 0:
            inside[out] = False
            inside[pick] = True
            cohort[place] = pick
            new_row = distance[pick]
            for i in range(len(gain)):
                gain[i] += twice * (new_row[i] - row[i])
            since = 0
        place = (place + 1) % m


def disperse(
    distance: ArrayLike,
    penalty: ArrayLike,
    m: int,
    alpha: float,
    *,
    mask: ArrayLike | None = None,
    rng: np.random.Generator | None = None,
    restarts: int = 16,
    time_limit: float | None = None,
) -> Ints:
    """Indices of m clients that are far apart and have small penalties.

    Args:
        distance: (N, N), symmetric, finite, zero diagonal.
        penalty: z, one number per client.
        m: size of the cohort; everyone if there are fewer clients.
        alpha: weight of the distances; 0 takes the smallest penalties.
        mask: True for those that may be chosen; N stays the number of all.
        rng: draws the starts and breaks ties; without it both go by index.
        restarts: starts tried, the best is kept. The same number gives the same answer on any machine.
        time_limit: seconds after which no new start is begun; the answer then depends on the machine.

    >>> import numpy as np
    >>> line = np.abs(np.subtract.outer(np.arange(5.0), np.arange(5.0)))
    >>> disperse(line, penalty=np.zeros(5), m=2, alpha=1.0).tolist()
    [0, 4]
    """
    matrix, z = np.asarray(distance), np.asarray(penalty, dtype=np.float64)
    if z.ndim != 1 or matrix.shape != (len(z), len(z)):
        raise ContractError(f"distance has shape {matrix.shape}, but {len(z)} penalties need ({len(z)}, {len(z)})")
    require(restarts >= 1, "disperse: restarts", restarts, ">= 1")
    fix = "distances are rewarded, never punished"
    require(0.0 <= alpha < np.inf, "disperse: alpha", alpha, ">= 0 and finite", fix)
    if not np.isfinite(z).all():
        raise ContractError("penalty holds NaN or infinity, but must be finite")
    ids = masked(mask, len(z))
    if m >= len(ids):
        return ids
    if m <= 0:
        return ids[:0]
    if alpha == 0.0:
        return ids[top(-z[ids], m, rng)]
    if matrix.dtype not in (np.float32, np.float64):
        matrix = matrix.astype(np.float64)
    matrix = np.ascontiguousarray(matrix)
    if not _finite(matrix, ids):
        raise ContractError("distance holds NaN or infinity; graph.shortest_paths gives unreachable pairs a number")

    twice = 2.0 * alpha / len(z)  # s'Hs counts every pair twice
    started = time.monotonic()
    chosen, best = ids[:0], -np.inf
    for attempt in range(restarts):
        order = ids if rng is None else rng.permutation(ids)
        gain, inside, cohort = -z, np.zeros(len(z), dtype=bool), np.empty(m, dtype=np.int64)
        # The first start is greedy from the least penalty; others begin with a few given clients, or all of them.
        given = 0 if attempt == 0 else 1 + (attempt * (m - 1)) // max(restarts - 1, 1)
        cohort[:given] = np.roll(order, -attempt)[:given]
        _fill(matrix, gain, twice, cohort, inside, order, given)
        _swaps(matrix, gain, twice, cohort, inside, order)
        objective = float((gain[cohort] - z[cohort]).sum() / 2.0)  # gain counts each pair from both ends, z once
        if objective > best:
            chosen, best = np.sort(cohort), objective
        if time_limit is not None and time.monotonic() - started > time_limit:
            break
    return chosen
