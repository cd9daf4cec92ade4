"""Shared by the modules of `graph`: checks of arrays, and rows scaled to length 1."""

import numpy as np
from numpy.typing import ArrayLike

from fedpick.core.errors import ContractError
from fedpick.core.types import Floats

CHUNK = 512  # rows processed at once, so that 10,000 clients need 40 MB of temporary memory, not 800


def matrix(what: str, values: ArrayLike) -> Floats:
    """Return `values` as a float matrix with one row per client, or raise a ContractError."""
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ContractError(f"{what} must be numbers: {error}") from None
    if array.ndim != 2:
        raise ContractError(f"{what} has shape {array.shape}, but must be a matrix with one row per client")
    return array


def square(what: str, values: ArrayLike) -> Floats:
    """Return `values` as a finite (K, K) matrix, or raise a ContractError."""
    array = matrix(what, values)
    if array.shape[0] != array.shape[1]:
        raise ContractError(f"{what} has shape {array.shape}, but must be square: a row and a column per client")
    if not np.isfinite(array).all():
        raise ContractError(f"{what} holds NaN or infinity, but must be finite; use 0 for unknown values")
    return array


def unit_rows(what: str, vectors: ArrayLike) -> Floats:
    """Return the rows divided by their lengths; a row of zeros, or one with NaN or infinity in it, becomes zeros."""
    rows = matrix(what, vectors).copy()
    rows[~np.isfinite(rows).all(axis=1)] = 0.0
    # First divide by the largest entry: the square of 1e200 would overflow, that of 1e-200 underflow.
    largest = np.abs(rows).max(axis=1, keepdims=True, initial=0.0)
    rows /= np.where(largest > 0, largest, 1.0)
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    rows /= np.where(length > 0, length, 1.0)
    return rows


def cosine_rows(units: Floats, first: int, last: int) -> Floats:
    """Rows first..last-1 of the similarity matrix max(cosine, 0), from the result of `unit_rows`."""
    # Rounded, so that equal clients are exactly equal in whatever order the matrix product is summed.
    cosine: Floats = np.clip(units[first:last] @ units.T, 0.0, 1.0).round(12)
    return cosine
