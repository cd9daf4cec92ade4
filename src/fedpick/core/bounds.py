"""How much a number that a client declares may count for: no more than a multiple of a quantile of everybody's."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["largest", "limited"]


def largest(values: ArrayLike, factor: float, quantile: float = 0.5) -> float:
    """`factor` times the quantile of the positive values: the lower of two that it lies between; infinite for none.

    Clients that are no more than a fraction 1 - `quantile` of all cannot move it above `factor` times the largest value
    of the others, whatever they say.

    >>> largest([600, 700, 1e15], 30.0), largest([600, 1e15], 30.0)
    (21000.0, 18000.0)
    """
    array = np.asarray(values, dtype=np.float64)
    array = array[array > 0.0]
    if not len(array):
        return np.inf
    at = int(np.ceil(quantile * len(array))) - 1 if quantile > 0.0 else 0
    return factor * float(np.partition(array, at)[at])


def limited(values: NDArray[Any], factor: float, quantile: float = 0.5) -> NDArray[Any]:
    """The values, none above `largest`; the very same array if none is.

    >>> limited(np.array([1.0, 2.0, 9.0]), 3.0).tolist()
    [1.0, 2.0, 6.0]
    """
    most = largest(values, factor, quantile)
    return np.minimum(values, most) if (values > most).any() else values
