"""Metrics of a round, renamed to the column names that reports use."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedpick.store.records import ROUND_COLUMNS

__all__ = ["columns"]

MOST_METRICS = 50  # per round; each is a column
# Names in the frameworks' templates -> column names.
TRAINED = {"loss": "train_loss", "train-loss": "train_loss", "accuracy": "train_accuracy", "acc": "train_accuracy"}
EVALUATED = {"eval_acc": "accuracy", "acc": "accuracy", "eval_loss": "test_loss", "loss": "test_loss"}


def columns(metrics: Mapping[str, Any], training: bool) -> dict[str, float]:
    """The metrics that are numbers, under the names of their columns in the rounds' table; lists are left out."""
    found = {}
    for name, value in list(metrics.items())[:MOST_METRICS]:
        if not isinstance(value, bool) and isinstance(value, int | float | np.number):
            name = (TRAINED if training else EVALUATED).get(name, name)
            found[f"metric_{name}" if name in ROUND_COLUMNS else name] = float(value)
    return found
