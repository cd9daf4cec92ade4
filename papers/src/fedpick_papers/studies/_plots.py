"""Shared by the figures: colours that colour-blind readers can distinguish, and reproducible files."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from fedpick_papers.studies._stats import interval

if TYPE_CHECKING:  # matplotlib takes half a second to import, and worker processes do not need it
    from matplotlib.figure import Figure

BAND = 5  # fewest seeds for a band: with fewer it would hide the curves and say little
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#000000")
LINES = ("-", "--", "-.", (0, (1, 1)), (0, (5, 1, 1, 1, 1, 1)), "-", "--")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")


@contextmanager
def style() -> Iterator[None]:
    """The style within which figures are drawn and saved."""
    import matplotlib

    rules: Any = {
        "font.size": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "grid.alpha": 0.3,
        "grid.linewidth": 0.6,
        "legend.frameon": False,
        "svg.hashsalt": "fedpick",
    }
    with matplotlib.rc_context(rules):
        yield


def figure(width: float, height: float, columns: int = 1, rows: int = 1, **how: Any) -> "tuple[Figure, Any]":
    """A figure and its axes (always an array), made without pyplot, which would keep it open globally."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    made = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(made)
    return made, made.subplots(rows, columns, squeeze=False, **how)


def writer(made: "Figure", kind: str) -> Callable[[Path], None]:
    """A function that writes the figure in this format, without a date, so that the file is reproducible."""
    no_date = {"Date": None} if kind == "svg" else {}
    return lambda path: made.savefig(path, format=kind, dpi=150, metadata=no_date)


def line(i: int) -> dict[str, Any]:
    """Colour and dashes of the i-th line."""
    return {"color": COLOURS[i % len(COLOURS)], "linestyle": LINES[i % len(LINES)], "linewidth": 1.6}


def banded(
    axis: Any,
    at: ArrayLike,
    mean: ArrayLike,
    half: ArrayLike | None,
    i: int,
    label: str | None = None,
    seeds: int = BAND,
) -> None:
    """Draw the i-th line with its band; for few seeds, or without half-widths (an older result), the line alone."""
    middle, look = np.asarray(mean, dtype=np.float64), line(i)
    axis.plot(at, middle, label=label, **look)
    if half is not None and seeds >= BAND:
        width = np.nan_to_num(np.asarray(half, dtype=np.float64))
        axis.fill_between(at, middle - width, middle + width, color=look["color"], alpha=0.2, linewidth=0)


def spread(axis: Any, x: float, values: ArrayLike, i: int) -> None:
    """Draw mean and 95% interval of a number as the i-th mark; of few seeds the single numbers."""
    found, look = np.asarray(values, dtype=np.float64), {"color": COLOURS[i], "marker": MARKERS[i], "markersize": 5}
    if len(found) < BAND:
        axis.plot(np.full(len(found), x), found, linestyle="none", **look)
    else:
        seen = interval(found)
        axis.errorbar(x, seen.mean, seen.half, capsize=2, **look)


def seeds_label(seeds: int, banded: bool = True) -> str:
    """A label that says what lines and marks show, for this number of seeds; an older result may have no bands.

    >>> seeds_label(8)
    'mean and 95% interval of 8 seeds'
    >>> seeds_label(2)
    'mean of 2 seeds, too few for a band'
    """
    if seeds >= BAND:
        return f"mean {'and 95% interval ' if banded else ''}of {seeds} seeds"
    return "one seed" if seeds == 1 else f"mean of {seeds} seeds, too few for a band"


def closer(axis: Any, start: float = 0.1) -> None:
    """Choose the height without the steep first part of curves, beside which all later differences vanish.

    Args:
        axis: with its lines and marks.
        start: the share of each line that may be cut off above or below; marks never are.
    """
    kept = []
    for each in axis.get_lines():
        x, y = (np.asarray(part, dtype=np.float64) for part in each.get_data())
        kept.append(y[x >= start * x.max()] if len(x) > 10 else y)
    values = np.concatenate(kept) if kept else np.empty(0)
    values = values[np.isfinite(values)]
    if len(values) and values.max() > values.min():
        margin = 0.06 * (values.max() - values.min())
        axis.set_ylim(values.min() - margin, values.max() + margin)
