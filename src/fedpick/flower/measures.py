"""What the records call things: policies and metrics under names that a report knows."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from fedpick.store.records import ROUND_COLUMNS

__all__ = ["label", "metrics"]

MOST = 50  # names; each is a column
# What Flower's own templates call what a report calls otherwise.
TRAINED = {"loss": "train_loss", "train-loss": "train_loss", "accuracy": "train_accuracy", "acc": "train_accuracy"}
EVALUATED = {"eval_acc": "accuracy", "acc": "accuracy", "eval_loss": "test_loss", "loss": "test_loss"}


def label(policy: Any) -> str:
    """A policy as people write it: its class and the plain settings that are not the defaults."""
    if not is_dataclass(policy):
        return type(policy).__name__
    said = []
    for entry in fields(policy):
        value = getattr(policy, entry.name)
        if is_dataclass(value):
            said.append(label(value))
        elif isinstance(value, str | int | float) and entry.name != "cohort_size" and value != entry.default:
            said.append(f"{entry.name}={value!r}")
    return type(policy).__name__ + (f"({', '.join(said)})" if said else "")


def metrics(measured: Mapping[str, Any], trained: bool = False) -> dict[str, float]:
    """The numbers of a MetricRecord under the names of a report."""
    found, aliases = {}, TRAINED if trained else EVALUATED
    for name, value in list(measured.items())[:MOST]:
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue  # lists have no column
        name = aliases.get(name, name)
        found[f"metric_{name}" if name in ROUND_COLUMNS else name] = float(value)
    return found
