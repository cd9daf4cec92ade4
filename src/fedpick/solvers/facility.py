"""Facility location: the m clients whose vectors are nearest to everybody's, chosen greedily.

Minimises, over chosen sets S, the sum over all clients of the distance to the nearest one in S. The reduction is
monotone and submodular, so that greedy choice reaches at least 1 - 1/e of the largest (Nemhauser, Wolsey & Fisher 1978);
lazily (Minoux 1978): a client's gain only falls, so that old gains are bounds, and few have to be computed anew.
With a limited number of candidates for each place it is stochastic greedy (Mirzasoleiman et al. 2015): 1 - 1/e - eps in
the mean with (N / m) ln(1 / eps) candidates.
"""

import heapq

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedpick.errors import ContractError
from fedpick.types import Bools, Floats, Ints

__all__ = ["Cover", "facility_location"]

BLOCK = 256  # candidates whose gains are computed in one product
EXACT_UP_TO = 2_000  # vectors; more are compared in float32, which is twice as fast


class Cover:
    """How far each of N vectors is from the nearest chosen one, and what each candidate would change.

    Args:
        vectors: (N, d), finite.
        far: the distance to the nearest while nobody is chosen; None: twice the largest distance from their mean.
    """

    def __init__(self, vectors: ArrayLike, far: float | None = None) -> None:
        points = np.asarray(vectors, dtype=np.float64)
        if points.ndim != 2 or not np.isfinite(points).all():
            raise ContractError(f"vectors have shape {points.shape}, but must be a finite (N, d) array")
        centred = points - points.mean(axis=0) if len(points) else points
        radius = float(np.sqrt(np.square(centred).sum(axis=1).max(initial=0.0)))
        self.far = (2.0 * radius or 1.0) if far is None else far
        kind = np.float64 if len(points) <= EXACT_UP_TO else np.float32
        self._points: NDArray[np.floating] = np.ascontiguousarray(centred, dtype=kind)
        self._squares = np.square(self._points).sum(axis=1)
        self.nearest: NDArray[np.floating] = np.full(len(points), self.far, dtype=kind)
        self.owner: Ints = np.full(len(points), -1, dtype=np.int64)  # the chosen one that is nearest

    def distances(self, ids: Ints) -> NDArray[np.floating]:
        """(len(ids), N) distances of these vectors from all."""
        square = self._points[ids] @ self._points.T
        square *= -2.0
        square += self._squares[ids, None]
        square += self._squares
        np.maximum(square, 0.0, out=square)
        square[np.arange(len(ids)), ids] = 0.0
        return np.sqrt(square, out=square)

    def gains(self, ids: Ints) -> Floats:
        """By how much the sum of distances falls if each of these is chosen next."""
        found = np.empty(len(ids))
        for start in range(0, len(ids), BLOCK):
            saved = self.distances(ids[start : start + BLOCK])
            np.subtract(self.nearest, saved, out=saved)
            np.maximum(saved, 0.0, out=saved)
            found[start : start + BLOCK] = saved.sum(axis=1, dtype=np.float64)
        return found

    def choose(self, at: int) -> None:
        """Count this one as chosen."""
        distance = self.distances(np.array([at]))[0]
        closer = distance < self.nearest
        self.nearest[closer] = distance[closer]
        self.owner[closer] = at


class Greedy:
    """Candidates of a cover, the one with the largest gain first, ties at random."""

    def __init__(self, cover: Cover, candidates: Ints, rng: np.random.Generator, look: int | None = None) -> None:
        self._cover, self._rng, self._look = cover, rng, look
        self._left = set(candidates.tolist())
        self._version = 0
        self._heap: list[tuple[float, float, int, int]] = []
        if look is None:
            self._push(candidates)

    def _push(self, ids: Ints) -> None:
        for gain, tie, at in zip(self._cover.gains(ids), self._rng.random(len(ids)), ids.tolist(), strict=True):
            heapq.heappush(self._heap, (-gain, tie, at, self._version))

    def best(self) -> tuple[float, int]:
        """(gain, candidate) of the best that is left; (-1, -1) if nobody is."""
        if not self._left:
            return -1.0, -1
        if self._look is not None:
            left = np.array(sorted(self._left), dtype=np.int64)
            looked = self._rng.choice(left, min(self._look, len(left)), replace=False)
            gains = self._cover.gains(looked)
            return float(gains.max()), int(looked[gains.argmax()])
        while True:
            top: list[int] = []
            while self._heap and len(top) < BLOCK and self._heap[0][3] != self._version:
                top.append(heapq.heappop(self._heap)[2])
                if len(top) >= 8 * (self._version > 1) + BLOCK * (self._version <= 1):
                    break
            if not top:
                gain, _, at, _ = self._heap[0]
                return -gain, at
            self._push(np.array(top, dtype=np.int64))

    def take(self, at: int) -> None:
        """Choose this one, the last `best`."""
        self._cover.choose(at)
        self._left.discard(at)
        if self._look is None:
            heapq.heappop(self._heap)
        self._version += 1


def facility_location(
    vectors: ArrayLike,
    m: int,
    *,
    mask: Bools | None = None,
    rng: np.random.Generator | None = None,
    candidates: int | None = None,
) -> tuple[Ints, Ints]:
    """The m greedily best representatives, in the order in which they were chosen, and how many each stands for.

    Args:
        vectors: (N, d), one for each client.
        m: how many are chosen; all that may be if there are fewer.
        mask: who may be chosen; everybody is represented.
        rng: for ties and for stochastic greedy.
        candidates: how many, drawn at random, are looked at for each place; None: all, lazily.

    >>> chosen, stands_for = facility_location([[0.0], [0.1], [0.2], [9.0]], 2)
    >>> sorted(chosen.tolist()), sorted(stands_for.tolist())
    ([1, 3], [1, 3])
    """
    rng = np.random.default_rng(0) if rng is None else rng
    cover = Cover(vectors)
    count = len(cover.nearest)
    there = np.arange(count) if mask is None else np.flatnonzero(mask)
    greedy, chosen = Greedy(cover, there, rng, candidates), []
    for _ in range(min(m, len(there))):
        _, at = greedy.best()
        greedy.take(at)
        chosen.append(at)
    ids = np.array(chosen, dtype=np.int64)
    return ids, np.bincount(cover.owner[cover.owner >= 0], minlength=count)[ids]
