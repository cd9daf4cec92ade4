"""What was measured after a round, under the names that a report knows."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedpick.store.records import ROUND_COLUMNS

__all__ = ["columns"]

MOST_METRICS = 50  # names a round; each is a column
# What the frameworks' templates call what a report calls otherwise.
TRAINED = {"loss": "train_loss", "train-loss": "train_loss", "accuracy": "train_accuracy", "acc": "train_accuracy"}
EVALUATED = {"eval_acc": "accuracy", "acc": "accuracy", "eval_loss": "test_loss", "loss": "test_loss"}


def columns(metrics: Mapping[str, Any], training: bool) -> dict[str, float]:
    """The numbers among these metrics, as columns of the rounds' table; lists have none."""
    found = {}
    for name, value in list(metrics.items())[:MOST_METRICS]:
        if not isinstance(value, bool) and isinstance(value, int | float | np.number):
            name = (TRAINED if training else EVALUATED).get(name, name)
            found[f"metric_{name}" if name in ROUND_COLUMNS else name] = float(value)
    return found
