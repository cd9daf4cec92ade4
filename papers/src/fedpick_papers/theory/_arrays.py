"""Check the arrays that are given to functions of `theory`."""

import numpy as np
from numpy.typing import ArrayLike

from fedpick.core.errors import ContractError
from fedpick.core.types import Floats


def checked(what: str, values: ArrayLike, *shape: int | None) -> Floats:
    """`values` as finite floats of this shape (None: any length)."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != len(shape) or any(n not in (None, m) for n, m in zip(shape, array.shape, strict=True)):
        asked = ", ".join("any" if n is None else str(n) for n in shape)
        raise ContractError(f"{what} has shape {array.shape}, but must have ({asked}): arrays must be aligned")
    if array.size == 0 or not np.isfinite(array).all():
        raise ContractError(f"{what} is empty or holds NaN or infinity, but must be finite; remove such entries first")
    return array
