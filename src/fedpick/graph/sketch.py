"""Sketches: short vectors that stand for long ones, with about the same lengths and distances.

Charikar, Chen & Farach-Colton (2002), "Finding frequent items in data streams" (the count sketch): each entry is added,
with a random sign, to one of `width` sums. Squared lengths and distances are unbiased, with a relative standard error
of at most sqrt(2 / width); vectors with the same number of entries always get the same signs and sums.
"""

from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedpick.core import rng as rngs
from fedpick.core.errors import ContractError, require
from fedpick.core.types import Floats

__all__ = ["sketch"]


@lru_cache(maxsize=4)
def _tables(length: int, width: int) -> tuple[NDArray[np.int32], NDArray[np.int8]]:
    draw = rngs.stream(0, 0, f"sketch {length} {width}")
    return draw.integers(0, width, length, dtype=np.int32), draw.integers(0, 2, length, dtype=np.int8) * 2 - 1


def sketch(vectors: ArrayLike, width: int) -> Floats:
    """Each row as `width` numbers.

    Args:
        vectors: (clients, entries) array, or one vector.
        width: numbers in a sketch.

    >>> import numpy as np
    >>> sketch(np.ones((3, 1000)), 32).shape
    (3, 32)
    """
    rows = np.asarray(vectors)
    require(width >= 1, "sketch: width", width, "a whole number >= 1")
    if rows.ndim not in (1, 2):
        raise ContractError(f"vectors has shape {rows.shape}, but must be one vector or a row per client")
    where, sign = _tables(rows.shape[-1], int(width))
    each = [np.bincount(where, sign * row, width) for row in np.atleast_2d(rows)]
    return np.array(each, dtype=np.float64).reshape(*rows.shape[:-1], width)
