"""Metrics of a model by name, each a small function of its outputs and the targets, in NumPy.

Outputs have a row per example: of labels a number per class (the logits), of a regression the prediction.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from scipy import stats

from fedpick.core.errors import ContractError, SettingError, unknown_name
from fedpick.core.metrics import ALWAYS, MEASURED, check_directions
from fedpick.core.types import Floats, Ints
from fedpick.data.federated import Dataset

__all__ = [
    *("MEASURES", "Metric", "auroc", "balanced_accuracy", "check_metrics", "declared", "macro_f1", "mae", "measure"),
    *("perplexity", "rmse"),
]

Metric = str | Callable[..., Any]


def _counts(outputs: Floats, targets: Ints) -> Ints:
    """(predicted, true) numbers of examples."""
    classes = outputs.shape[1]
    found: Ints = np.bincount(np.argmax(outputs, axis=1) * classes + targets, minlength=classes**2)
    return found.reshape(classes, classes)


def macro_f1(outputs: Floats, targets: Ints) -> float:
    """Mean F1 score of the classes that occur or are predicted, each with the same weight.

    >>> macro_f1(np.eye(3)[[0, 0, 1]], np.array([0, 1, 1]))
    0.666...
    """
    counts = _counts(outputs, targets)
    right, seen = np.diag(counts), counts.sum(axis=0) + counts.sum(axis=1)
    there = seen > 0
    return float(np.mean(2.0 * right[there] / seen[there]))


def balanced_accuracy(outputs: Floats, targets: Ints) -> float:
    """Mean share of right answers of the classes that occur, each with the same weight.

    >>> balanced_accuracy(np.eye(2)[[0, 0, 0, 1]], np.array([0, 0, 1, 1]))
    0.75
    """
    counts = _counts(outputs, targets)
    true = counts.sum(axis=0)
    return float(np.mean(np.diag(counts)[true > 0] / true[true > 0]))


def _log_shares(outputs: Floats) -> Floats:
    """Logarithms of the classes' probabilities (log-softmax)."""
    moved = outputs - outputs.max(axis=1, keepdims=True)
    found: Floats = moved - np.log(np.exp(moved).sum(axis=1, keepdims=True))
    return found


def auroc(outputs: Floats, targets: Ints) -> float:
    """The chance that an example of a class gets a larger probability of it than one of another; a tie counts half.

    Of two classes it is that of the second; of more, the mean over the classes that some examples have and some do not
    (one against the rest). NaN where there is no such class, or an output is not finite.

    >>> auroc(np.array([[0.0, 1.0], [0.0, 2.0], [0.0, 3.0]]), np.array([0, 1, 1]))
    1.0
    """
    if not np.isfinite(outputs).all():
        return float("nan")
    if outputs.shape[1] == 2:  # the log-odds: of sure answers probabilities would be rounded to ties
        return _chance(outputs[:, 1] - outputs[:, 0], targets == 1)
    shares = _log_shares(outputs)
    each = [_chance(shares[:, k], targets == k) for k in np.unique(targets)]
    known = [value for value in each if not np.isnan(value)]
    return float(np.mean(known)) if known else float("nan")


def _chance(score: Floats, positive: Any) -> float:
    """The chance that a positive example has a larger score than a negative one (Mann-Whitney's U)."""
    many, all_ = int(np.count_nonzero(positive)), len(score)
    if many in (0, all_):
        return float("nan")
    ranks = stats.rankdata(score)
    return float((ranks[positive].sum() - many * (many + 1) / 2.0) / (many * (all_ - many)))


def perplexity(outputs: Floats, targets: Ints) -> float:
    """exp of the mean cross-entropy.

    >>> perplexity(np.zeros((3, 4)), np.array([0, 1, 2]))
    4.0...
    """
    with np.errstate(over="ignore", invalid="ignore"):
        return float(np.exp(-np.take_along_axis(_log_shares(outputs), targets[:, None], axis=1).mean()))


def mae(outputs: Floats, targets: Floats) -> float:
    """Mean absolute error."""
    return float(np.abs(outputs.reshape(targets.shape) - targets).mean())


def rmse(outputs: Floats, targets: Floats) -> float:
    """Root of the mean squared error."""
    return float(np.sqrt(np.square(outputs.reshape(targets.shape) - targets).mean()))


MEASURES: dict[str, Callable[[Any, Any], float]] = {
    "macro_f1": macro_f1,
    "balanced_accuracy": balanced_accuracy,
    "auroc": auroc,
    "perplexity": perplexity,
    "mae": mae,
    "rmse": rmse,
}
_OF_NUMBERS = ("mae", "rmse")


def check_metrics(metrics: Sequence[Metric], dataset: Dataset) -> None:
    """Raise unless these metrics can be computed on this data."""
    if isinstance(metrics, str):
        raise SettingError(f"Trainer: metrics = {metrics!r}, but must be several: metrics=({metrics!r},)")
    declared(metrics)
    for each in metrics:
        if not isinstance(each, str):
            if not callable(each):
                raise SettingError(f"Trainer: metrics has {each!r:.60}, but must have names and functions")
            continue
        if each not in MEASURED:
            raise unknown_name("metric", each, list(MEASURED))
        if each in (*_OF_NUMBERS, *MEASURES) and (each in _OF_NUMBERS) == bool(dataset.classes):
            what, other = ("numbers", "labels") if each in _OF_NUMBERS else ("labels", "numbers")
            fit = [name for name in MEASURES if (name in _OF_NUMBERS) != (each in _OF_NUMBERS)]
            raise SettingError(
                f"the metric {each!r} is of {what}, but {dataset.name} has {other}; use {', '.join(fit)}"
            )


def declared(metrics: Sequence[Metric]) -> dict[str, str]:
    """The directions that the user's functions declare."""
    found: dict[str, str] = {}
    for each in metrics:
        if not isinstance(each, str):
            found |= check_directions(getattr(each, "directions", None), _name(each))
    return found


def _name(function: Any) -> str:
    return str(getattr(function, "__name__", type(function).__name__))


def measure(metrics: Sequence[Metric], outputs: Any, targets: Any) -> dict[str, float]:
    """These metrics of outputs, but for those that every evaluation has."""
    outputs = np.asarray(outputs, dtype=np.float64)
    found: dict[str, float] = {}
    targets = np.asarray(targets)
    several = targets.ndim > 1 and np.issubdtype(targets.dtype, np.integer)  # labels of each example
    plain = (outputs.reshape(-1, outputs.shape[-1]), targets.reshape(-1)) if several else (outputs, targets)
    for each in metrics:
        if isinstance(each, str):
            found |= {} if each in ALWAYS else {each: MEASURES[each](*plain)}
            continue
        value = each(outputs, targets)
        named = value if isinstance(value, Mapping) else {_name(each): value}
        for name, number in named.items():
            try:
                found[str(name)] = float(number)
            except (TypeError, ValueError):
                raise ContractError(
                    f"the metric {_name(each)} returned {number!r:.60} for {name!r}, but must return a number, or a "
                    "dict of numbers"
                ) from None
    return found
