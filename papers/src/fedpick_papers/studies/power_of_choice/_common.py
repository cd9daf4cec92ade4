"""Shared by the figures and tables of Power-of-Choice."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedpick.core.types import Floats
from fedpick_papers.studies import _plots
from fedpick_papers.studies._stats import band, rounded, show
from fedpick_papers.studies._study import Result

__all__ = ["PAPER", "censored", "curve_of", "line", "or_none", "show_rounds", "tail"]

PAPER = (
    "Cho, Wang & Joshi (2021), Client Selection in Federated Learning: Convergence Analysis and Power-of-Choice "
    "Selection Strategies"
)


def tail(curves: ArrayLike, over: int) -> Floats:
    """Mean of the last evaluations of each seed's curve."""
    ends: Floats = np.asarray(curves, dtype=np.float64)[:, -over:].mean(axis=1)
    return ends


def curve_of(runs: Sequence[Mapping[str, Any]], name: str) -> Result:
    """The mean curve of some runs, and half the width of its 95% band."""
    mean, half = band(np.array([run[name] for run in runs]))
    return {"at": rounded(runs[0][f"{name}_at"]), "mean": rounded(mean), "half": rounded(half)}


def or_none(values: ArrayLike) -> Any:
    """None for NaN, which JSON does not have."""
    return [None if np.isnan(x) else float(x) for x in np.asarray(values, dtype=np.float64)]


def censored(values: Sequence[float | None], rounds: int) -> Floats:
    """Rounds until an event; if it did not happen, the number of all rounds."""
    return np.array([rounds if x is None else x for x in values], dtype=np.float64)


def show_rounds(values: Sequence[float | None], rounds: int) -> str:
    """Rounds until an event, as text."""
    missed = sum(x is None for x in values)
    if missed == len(values):
        return f"not in {rounds:,}"
    return show(censored(values, rounds)) + (f" ({missed} of {len(values)} seeds not in {rounds:,})" if missed else "")


def line(axis: Any, curve: Mapping[str, Any], i: int, label: str, seeds: int, scale: float = 1.0) -> None:
    """Draw a mean curve with its band as the i-th line; older results have no band."""
    half = scale * np.asarray(curve["half"]) if "half" in curve else None
    _plots.banded(axis, curve["at"], scale * np.asarray(curve["mean"]), half, i, label, seeds)
