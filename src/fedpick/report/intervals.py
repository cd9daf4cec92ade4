"""Means over seeds with 95% t-intervals; all intervals of the project are computed here."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fedpick.core.errors import ContractError
from fedpick.core.types import Floats

__all__ = ["Interval", "band", "interval", "paired"]

ROUNDING = 1e-12  # relative; a smaller difference is a rounding error


@dataclass(frozen=True)
class Interval:
    """A mean over seeds and half the width of its t-interval (95% by default); infinite for one seed."""

    mean: float
    half: float
    n: int

    def __iter__(self) -> Iterator[float]:
        """For `mean, half = interval(values)`."""
        return iter((self.mean, self.half))

    @property
    def low(self) -> float:
        """The lower end."""
        return self.mean - self.half

    @property
    def high(self) -> float:
        """The upper end."""
        return self.mean + self.half

    @property
    def has_width(self) -> bool:
        """Whether the width is finite and positive: not for a single seed, nor if all seeds give the same number."""
        return bool(ROUNDING * abs(self.mean) < self.half < np.inf)

    @property
    def clear(self) -> bool:
        """Whether the interval excludes 0; False if it has no width."""
        return self.has_width and abs(self.mean) > self.half


def _quantile(n: int, level: float = 0.95) -> float:
    """Of the t-distribution, for an interval from n values."""
    from scipy.special import stdtrit  # slow to import

    return float(stdtrit(n - 1, 0.5 + level / 2))


def interval(values: ArrayLike, level: float = 0.95) -> Interval:
    """The t-interval of the mean, from one number per seed; of another level where many are compared at once.

    >>> interval([1.0, 2.0, 3.0])
    Interval(mean=2.0, half=2.484..., n=3)
    """
    x = np.asarray(values, dtype=np.float64)
    if x.ndim != 1 or not len(x):
        raise ContractError(f"values has shape {x.shape}, but must be one number per seed")
    if len(x) == 1:
        return Interval(float(x[0]), float("inf"), 1)
    with np.errstate(invalid="ignore"):  # the interval of an infinite score is NaN
        half = _quantile(len(x), level) * x.std(ddof=1) / np.sqrt(len(x))
    return Interval(float(x.mean()), float(half), len(x))


def paired(values: ArrayLike, base: ArrayLike, level: float = 0.95) -> Interval:
    """The t-interval of the mean difference, paired by seed: all policies have the same world for the same seed.

    >>> paired([3.0, 5.0, 4.0], [1.0, 2.0, 3.0]).mean
    2.0
    """
    x, y = np.asarray(values, dtype=np.float64), np.asarray(base, dtype=np.float64)
    if x.shape != y.shape:
        raise ContractError(f"values has shape {x.shape} and base {y.shape}, but both must have the same seeds")
    with np.errstate(invalid="ignore"):
        gap = x - y
        gap[np.abs(gap) <= ROUNDING * np.maximum(np.abs(x), np.abs(y))] = 0.0
    return interval(gap, level)


def band(curves: ArrayLike) -> tuple[Floats, Floats]:
    """Mean and half width of the 95% t-interval at every point of curves (seeds, points); width 0 for one seed."""
    y = np.asarray(curves, dtype=np.float64)
    if len(y) < 2:
        return y.mean(axis=0), np.zeros(y.shape[1])
    return y.mean(axis=0), _quantile(len(y)) * y.std(axis=0, ddof=1) / np.sqrt(len(y))
