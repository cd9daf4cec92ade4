"""Statistics over seeds: intervals and their texts."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedpick.core.types import Ints
from fedpick.report.intervals import Interval, band, interval

__all__ = ["ALONE", "PAIR", "Interval", "band", "interval", "rounded", "show", "steps", "times"]


ALONE = " (one seed)"  # after a number that has no interval
PAIR = " (two seeds)"  # after their mean: an interval from two would be a guess


def show(values: ArrayLike, digits: int = 0, unit: str = "") -> str:
    """Mean and interval as text; of two seeds both numbers.

    >>> show([44980.0, 44990.0, 45000.0])
    '44,990 ± 25'
    >>> show([44980.0, 45000.0])
    '44,980 and 45,000'
    """
    both = np.asarray(values, dtype=np.float64)
    if len(both) == 2:
        return " and ".join(f"{each:,.{digits}f}{unit}" for each in both)
    mean, half = interval(values)
    width = f" ± {half:,.{digits}f}" if np.isfinite(half) else ALONE
    return f"{mean:,.{digits}f}{unit}{width}{unit if unit == '%' and np.isfinite(half) else ''}"


def steps(rounds: int, points: int = 200) -> Ints:
    """At most this many rounds, evenly spaced, including the last one."""
    return np.unique(np.linspace(1, rounds, min(points, rounds)).round().astype(np.int64))


def rounded(values: ArrayLike, digits: int = 5) -> Any:
    """Numbers rounded to this many significant digits, for a small JSON file."""
    array = np.asarray(values)
    if array.dtype.kind in "iub":
        return array.tolist()
    if array.ndim == 0:
        return float(f"{float(array):.{digits}g}")
    return [rounded(row, digits) for row in array]


def times(a: ArrayLike, b: ArrayLike) -> str:
    """Geometric mean of a/b with its 95% interval, in words."""
    gap = interval(np.log(a) - np.log(b))
    width = f" ({np.exp(gap.low):.2f} to {np.exp(gap.high):.2f})" if np.isfinite(gap.half) else ""
    return f"{np.exp(gap.mean):.2f}{width}"
