"""The main metric of a comparison: what the trainer must measure for it, and what it is called."""

from collections.abc import Mapping
from typing import Any

from fedpick._support import user_code
from fedpick.core.errors import unknown_name
from fedpick.core.metrics import ALWAYS, LABELS, MEASURED, metrics_text

__all__ = ["called", "measuring"]


def called(metric: str | None) -> str | None:
    """The name of a metric in results: of a function its own name, "test_loss" for "loss" of fedpick's trainer.

    >>> called("my.py:score"), called("macro_f1")
    ('score', 'macro_f1')
    """
    if metric is None:
        return None
    return metric.rpartition(":")[2] if user_code.is_reference(metric) else metric


def measuring(train: Mapping[str, Any], metric: str | None) -> tuple[dict[str, Any], str | None]:
    """Settings of [train] with which this metric is measured, and its name in results.

    Args:
        train: settings of [train].
        metric: a name, or a function of the user's own: "my.py:score"; None: no more than the settings say.

    >>> measuring({"lr": 0.1}, "macro_f1")
    ({'lr': 0.1, 'metrics': 'macro_f1'}, 'macro_f1')
    >>> measuring({"trainer": "loop.py:Trainer"}, "quality")
    ({'trainer': 'loop.py:Trainer'}, 'quality')
    """
    settings = metrics_text(train)
    if metric is None or "trainer" in settings or metric in LABELS:
        return settings, called(metric)
    if metric in ALWAYS:
        return settings, ALWAYS[metric]
    if metric not in MEASURED and not user_code.is_reference(metric):
        raise unknown_name("metric", metric, [*MEASURED, "my.py:score"])
    before = settings.get("metrics")
    return metrics_text({**settings, "metrics": [before, metric] if before else metric}), called(metric)
