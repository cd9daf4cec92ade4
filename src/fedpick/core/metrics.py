"""Metrics by name: which way is better, what a table calls them, and targets such as "macro_f1=0.8".

Nothing here computes a metric: `fedpick.learn.measures` does, and trainers of the user's own.
"""

import sys
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from fedpick.core.errors import ConfigError, SettingError, require

__all__ = [
    *("ALWAYS", "LABELS", "MEASURED", "SIDES", "Target"),
    *("check_directions", "direction", "is_loss", "main_metric", "metrics_text"),
    *("named_metrics", "read_target"),
]

LABELS = {  # of the metrics that fedpick's trainer always gives; other metrics are shown by their names
    "accuracy": "test accuracy",
    "test_loss": "test loss",
    "train_loss": "training loss",
    "worst_decile": "accuracy of the worst tenth of clients",
    "spread": "spread of accuracy over clients",
}
SIDES = ("worst_decile", "spread")  # how a model's scores differ over clients; never the main metric
# Metrics that fedpick's trainer can measure by name, and the columns of those that every evaluation has.
MEASURED = ("accuracy", "macro_f1", "balanced_accuracy", "auroc", "loss", "perplexity", "mae", "rmse")
ALWAYS = {"accuracy": "accuracy", "loss": "test_loss"}
WAYS = ("larger", "smaller")
_LARGER = (
    *("accuracy", "acc", "top1", "top5", "f1", "auroc", "auc", "auprc", "precision", "recall", "sensitivity"),
    *("specificity", "r2", "mcc", "kappa", "bleu", "rouge", "iou", "miou", "dice", "map", "ndcg", "psnr", "ssim"),
    *("decile",),
)
_SMALLER = (
    *("loss", "perplexity", "ppl", "mae", "mse", "rmse", "mape", "error", "nll", "entropy", "brier", "ece", "wer"),
    *("cer", "fid", "spread"),
)


def direction(name: str, declared: Mapping[str, str] | None = None) -> str | None:
    """Whether "larger" or "smaller" values of a metric are better; None if that is not known.

    A name is known by one of its words, the last that is: "val_macro_f1", "roc_auc", "f1_score", "test_loss".

    Args:
        name: of the metric.
        declared: what a trainer says about its metrics.

    >>> direction("macro_f1"), direction("val_loss"), direction("roc_auc_score"), direction("quality")
    ('larger', 'smaller', 'larger', None)
    >>> direction("quality", {"quality": "larger"})
    'larger'
    """
    if declared and name in declared:
        return declared[name]
    for word in reversed(name.lower().replace("-", "_").split("_")):
        if word in _LARGER or word in _SMALLER:
            return "larger" if word in _LARGER else "smaller"
    return None


def named_metrics(text: str) -> list[str]:
    """The names in the setting `metrics` of [train], which `metrics_text` made one text.

    >>> named_metrics("macro_f1, my.py:score")
    ['macro_f1', 'my.py:score']
    """
    return [name.strip() for name in text.split(",") if name.strip()]


def metrics_text(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of [train] whose `metrics` are one text, however they were given: a name or a list of names."""
    given = settings.get("metrics")
    if given is None:
        return {key: value for key, value in settings.items() if key != "metrics"}
    each = [given] if isinstance(given, str) else given
    if not isinstance(each, list | tuple) or not all(isinstance(name, str) for name in each):
        raise ConfigError(
            f"[train] metrics = {given!r:.80}, but must be names such as ['macro_f1', 'my.py:score']; a function is "
            "named by its file, or given to fedpick.learn.Trainer"
        )
    names = dict.fromkeys(name for text in each for name in named_metrics(text))
    return {**settings, "metrics": ", ".join(names)}


def check_directions(given: Any, whose: str) -> dict[str, str]:
    """The declared directions of metrics; raises unless each is "larger" or "smaller".

    Args:
        given: the attribute `directions` of a trainer or of a function; None: nothing is declared.
        whose: name of the trainer or the function, for errors.
    """
    if given is None:
        return {}
    if not isinstance(given, Mapping) or not all(isinstance(each, str) for each in given):
        raise ConfigError(f"{whose}: directions = {given!r:.80}, but must be such as {{'quality': 'larger'}}")
    for name, way in given.items():
        if way not in WAYS:
            raise ConfigError(f"{whose}: directions has {name!r}: {way!r}, but must be 'larger' or 'smaller' (better)")
    return dict(given)


def is_loss(name: str) -> bool:
    """Whether a metric is a loss, which is not shown where there is another metric.

    >>> is_loss("test_loss"), is_loss("perplexity")
    (True, False)
    """
    return "loss" in name.lower().replace("-", "_").split("_")


def main_metric(names: Iterable[str], *, training: bool = False) -> str | None:
    """The main metric: accuracy, else the first that is not a loss, else the first loss; None: there is none.

    Args:
        names: of the metrics, in the order in which they were first given.
        training: whether a loss on the training data will do, as for a trainer that gives no other.

    >>> main_metric(["test_loss", "macro_f1", "accuracy"]), main_metric(["loss", "auroc", "f1"]), main_metric(["loss"])
    ('accuracy', 'auroc', 'loss')
    """
    known = [name for name in names if name not in SIDES]
    tested = [name for name in known if not name.startswith("train_")]
    if "accuracy" in known:
        return "accuracy"
    others = [name for name in tested if not is_loss(name)]
    return next(iter([*others, *tested, *(known if training else [])]), None)


class Target(NamedTuple):
    """A value of a metric that a run should reach.

    Args:
        metric: its name; None: the main metric of the runs.
        value: to be reached, or to fall to if smaller is better.
    """

    metric: str | None
    value: float

    def __str__(self) -> str:
        if self.metric in (None, "accuracy"):
            return f"{100 * self.value:.4g}%"
        return f"{self.metric} {self.value:.6g}"


def read_target(given: Any, metric: str | None = None) -> Target | None:
    """A target from what a user gives: 0.85, "macro_f1=0.8", {"macro_f1": 0.8}, or None.

    A number alone is a value of `metric`, or if that is None of the runs' main metric and then a share in (0, 1].

    >>> read_target("macro_f1=0.8"), read_target(0.85)
    (Target(metric='macro_f1', value=0.8), Target(metric=None, value=0.85))
    """
    if given is None or isinstance(given, Target):
        return given
    name, value = metric, given
    if isinstance(given, Mapping):
        require(len(given) == 1, "target", dict(given), "one metric and its value", "write {'macro_f1': 0.8}")
        name, value = next(iter(given.items()))
    elif isinstance(given, str):
        before, sign, after = given.rpartition("=")
        name, value = (before.strip() or None, after) if sign else (metric, given)
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            raise SettingError(f"target = {given!r}, but must be a number, or a text such as 'macro_f1=0.8'") from None
    number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max
    if name is None or name == "accuracy":
        more = "" if name else "; name another metric: 'perplexity=20'"
        share = number and 0 < value <= 1
        require(share, "target", value, "a test accuracy in (0, 1]", f"write 0.85 for 85%{more}")
    else:
        require(isinstance(name, str) and number, "target", given, "a finite number", "write {'macro_f1': 0.8}")
    return Target(name, float(value))
