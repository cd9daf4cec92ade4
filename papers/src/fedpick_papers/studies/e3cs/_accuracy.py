"""Accuracy over rounds: what the trained studies of E3CS measure of a scheme, and the words for it."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedpick.core.types import Floats
from fedpick_papers.studies._stats import show
from fedpick_papers.studies._trained import reached

__all__ = ["first_of", "measured", "when"]


def measured(some: Sequence[Mapping[str, Any]], rounds: int, levels: Sequence[float], last: int) -> dict[str, Any]:
    """Numbers of a scheme, one per seed; accuracies are shares.

    Args:
        some: the measurement of each seed.
        rounds: of a run.
        levels: accuracies whose first round is wanted; one that is not reached counts as one round after the end.
        last: number of evaluations whose mean is the final accuracy.
    """
    at, accuracy = some[0]["at"], np.array([one["accuracy"] for one in some])
    three_quarters = max(3 * len(at) // 4, 1)
    final, before = accuracy[:, -last:].mean(axis=1), accuracy[:, :three_quarters][:, -last:].mean(axis=1)
    return {
        "first": [
            [int(np.nan_to_num(reached(at, row, level), nan=rounds + 1)) for row in accuracy] for level in levels
        ],
        "final": final,
        "rise": final - before,  # in the last quarter of the rounds
        "cep": np.array([one["returned"].sum() for one in some]),
        "early": np.array([one["returned"][: max(rounds // 4, 1)].sum() for one in some]),
        "at": at,
        "accuracy": accuracy,
    }


def first_of(rows: Mapping[str, Sequence[Sequence[float]]], level: int) -> dict[str, Floats]:
    """First round with this level, by scheme and seed."""
    return {name: np.asarray(row[level], dtype=np.float64) for name, row in rows.items()}


def when(rounds: Floats, end: int) -> str:
    """Mean round with its interval; "never" if no seed reached the level."""
    missing = int((rounds > end).sum())
    if missing == len(rounds):
        return "never"
    return show(rounds) + (f" ({missing} of {len(rounds)} never: {end + 1} counted)" if missing else "")
