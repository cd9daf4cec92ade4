"""Statistics over seeds: intervals and paired orders, and their texts."""

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fedpick.report.intervals import Interval, band, interval
from fedpick.studies._study import Verdict
from fedpick.types import Ints

__all__ = ["Interval", "Order", "band", "interval", "order", "rounded", "show", "steps", "verdict"]


def show(values: ArrayLike, digits: int = 0, unit: str = "") -> str:
    """Mean and interval as text.

    >>> show([44980.0, 44990.0, 45000.0])
    '44,990 ± 25'
    """
    mean, half = interval(values)
    width = f" ± {half:,.{digits}f}" if np.isfinite(half) else " (one seed)"
    return f"{mean:,.{digits}f}{unit}{width}{unit if unit == '%' and np.isfinite(half) else ''}"


def verdict(holds: Sequence[bool]) -> Verdict:
    """The verdict: reproduced if all links hold, in part if some do."""
    if all(holds):
        return "reproduced"
    return "in part" if any(holds) else "not reproduced"


class Order(NamedTuple):
    """Which links of a claimed order hold, and the paired differences as text."""

    holds: list[bool]
    broken: list[str]
    shown: str


def order(
    values: Mapping[str, ArrayLike], claim: str, *, digits: int = 0, same: float = 0.0, ratio: bool = False
) -> Order:
    """Judge "A > B = C > D" by paired differences: > holds if their 95% interval is above 0.

    Args:
        values: one number per seed for each name, the same seeds throughout.
        claim: names joined by " > " (the first is larger) and " = ".
        digits: decimals in the texts.
        same: "=" holds if the mean difference is at most this.
        ratio: compare logarithms, for numbers > 0 whose size varies from seed to seed.

    >>> order({"A": [3.0, 4.0, 5.0], "B": [1.0, 2.1, 2.9]}, "A > B").holds
    [True]
    """
    groups = [part.split(" = ") for part in claim.split(" > ")]
    holds, broken = [], []

    def judge(a: str, b: str, equal: bool) -> None:
        x, y = np.asarray(values[a], dtype=np.float64), np.asarray(values[b], dtype=np.float64)
        gap = interval(np.log(x) - np.log(y) if ratio else x - y)
        good = abs(gap.mean) <= same if equal else gap.low > 0
        holds.append(good)
        if not good:
            width = f" ± {gap.half:,.{digits}f}" if np.isfinite(gap.half) else ""
            seen = f"difference {gap.mean:+,.{digits}f}{width}"
            if ratio:
                seen = f"ratio {np.exp(gap.mean):.2f} (95% {np.exp(gap.low):.2f} to {np.exp(gap.high):.2f})"
            broken.append(f"{a} {'=' if equal else '>'} {b} does not hold: {seen}")

    for group in groups:
        for a, b in pairwise(group):
            judge(a, b, True)
    for group, following in pairwise(groups):
        for a in group:
            for b in following:
                judge(a, b, False)
    names = re.split(" [>=] ", claim)
    return Order(holds, broken, "; ".join(f"{name} {show(values[name], digits)}" for name in names))


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
