"""Facility location: the m clients whose vectors best represent all vectors, chosen greedily.

Minimises, over chosen sets S, the sum over all clients of the distance to the nearest one in S. The reduction is
monotone and submodular, so that greedy choice reaches at least 1 - 1/e of the largest one (Nemhauser, Wolsey & Fisher
1978). Gains are updated for each place, not computed again. With a limited number of candidates for each place it is
stochastic greedy (Mirzasoleiman et al. 2015), which stores no distances and reaches 1 - 1/e - eps in the mean with
(N / m) ln(1 / eps) candidates.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedpick._support.native import native
from fedpick.core.errors import ContractError
from fedpick.core.types import Bools, Floats, Ints

__all__ = ["Greedy", "facility_location"]

BLOCK = 256  # candidates whose gains are computed in one product
EXACT_UP_TO = 2_000  # vectors; more are compared in float32, which is twice as fast and half as large


@native
def _lower(
    gain: Floats, distance: NDArray[np.floating], rows: Ints, old: NDArray[np.floating], new: NDArray[np.floating]
) -> None:
    """Subtract from each candidate's gain what is lost because these clients are nearer to the cohort than before."""
    for r in rows:
        before, after = old[r], new[r]
        for j in range(distance.shape[1]):
            d = distance[r, j]
            gain[j] -= max(before - d, 0.0) - max(after - d, 0.0)


class Greedy:
    """Greedy choice: the next candidate is the one that reduces the sum of distances most, ties at random.

    Args:
        vectors: (N, d), finite: all of them are represented.
        candidates: positions of those that may be chosen.
        rng: for ties and for stochastic greedy.
        look: number of candidates, drawn at random, that are compared for each place; None: all.
    """

    def __init__(self, vectors: ArrayLike, candidates: Ints, rng: np.random.Generator, look: int | None = None) -> None:
        points = np.asarray(vectors, dtype=np.float64)
        if points.ndim != 2 or not np.isfinite(points).all():
            raise ContractError(f"vectors have shape {points.shape}, but must be a finite (N, d) array")
        centred = points - points.mean(axis=0) if len(points) else points
        radius = float(np.sqrt(np.square(centred).sum(axis=1).max(initial=0.0)))
        # Before the first choice, every distance to the cohort is larger than that of any two vectors.
        far = 3.0 * radius or 1.0
        kind = np.float64 if len(points) <= EXACT_UP_TO else np.float32
        self._points: NDArray[np.floating] = np.ascontiguousarray(centred, dtype=kind)
        self._squares = np.square(self._points).sum(axis=1)
        self.nearest: NDArray[np.floating] = np.full(len(points), far, dtype=kind)
        self.owner: Ints = np.full(len(points), -1, dtype=np.int64)  # the chosen one that is nearest
        self._ids, self._rng, self._look = candidates, rng, look
        self._free: Bools = np.ones(len(candidates), dtype=np.bool_)
        if look is None:
            self._matrix = self._distances(candidates)
            self._gain: Floats = far * len(points) - self._matrix.sum(axis=0, dtype=np.float64)

    def _distances(self, ids: Ints) -> NDArray[np.floating]:
        """(N, len(ids)) distances of all from these."""
        square = self._points @ self._points[ids].T
        square *= -2.0
        square += self._squares[ids]
        square += self._squares[:, None]
        square[ids, np.arange(len(ids))] = 0.0
        np.maximum(square, 0.0, out=square)
        return np.sqrt(square, out=square)

    def _gains(self, ids: Ints) -> Floats:
        """By how much the sum of distances falls if each of these is chosen next."""
        found = np.empty(len(ids))
        for start in range(0, len(ids), BLOCK):
            saved = self._distances(ids[start : start + BLOCK])
            np.subtract(self.nearest[:, None], saved, out=saved)
            np.maximum(saved, 0.0, out=saved)
            found[start : start + BLOCK] = saved.sum(axis=0, dtype=np.float64)
        return found

    def best(self) -> tuple[float, int]:
        """(gain, position) of the best candidate that is left; (-1, -1) if there is none."""
        free = np.flatnonzero(self._free)
        if len(free) == 0:
            return -1.0, -1
        if self._look is not None:
            free = self._rng.choice(free, min(self._look, len(free)), replace=False)
            gain = self._gains(self._ids[free])
        else:
            gain = self._gain[free]
        most = gain.max()
        return float(most), int(self._ids[self._rng.choice(free[gain == most])])

    def take(self, at: int) -> None:
        """Choose the candidate at this position."""
        distance = self._distances(np.array([at]))[:, 0]
        closer = np.flatnonzero(distance < self.nearest)
        old = self.nearest.copy()
        self.nearest[closer] = distance[closer]
        self.owner[closer] = at
        self.owner[at] = at  # also if one chosen before is as near: whoever is chosen stands for itself
        self._free[self._ids == at] = False
        if self._look is None:
            _lower(self._gain, self._matrix, closer, old, self.nearest)


def facility_location(
    vectors: ArrayLike,
    m: int,
    *,
    mask: Bools | None = None,
    rng: np.random.Generator | None = None,
    candidates: int | None = None,
) -> tuple[Ints, Ints]:
    """The m greedily best representatives, in the order in which they were chosen, and how many each represents.

    Args:
        vectors: (N, d), one for each client.
        m: how many are chosen; all candidates if there are fewer.
        mask: the candidates; all vectors are represented.
        rng: for ties and for stochastic greedy.
        candidates: number of candidates, drawn at random, that are compared for each place; None: all.

    >>> chosen, stands_for = facility_location([[0.0], [0.1], [0.2], [0.05], [9.0]], 2)
    >>> chosen.tolist(), stands_for.tolist()
    ([1, 4], [4, 1])
    """
    rng = np.random.default_rng(0) if rng is None else rng
    count = len(np.asarray(vectors))
    there = np.arange(count) if mask is None else np.flatnonzero(mask)
    greedy, chosen = Greedy(vectors, there, rng, candidates), []
    for _ in range(min(m, len(there))):
        at = greedy.best()[1]
        greedy.take(at)
        chosen.append(at)
    ids = np.array(chosen, dtype=np.int64)
    return ids, np.bincount(greedy.owner[greedy.owner >= 0], minlength=count)[ids]
