"""Whether the settings of a trainer are within their bounds."""

from typing import TYPE_CHECKING

from fedpick.core.errors import require, unknown_name
from fedpick.learn.aggregation import AGGREGATIONS
from fedpick.learn.reports import REPORTS, gives

if TYPE_CHECKING:
    from fedpick.learn.trainer import Trainer

__all__ = ["check_settings"]


def check_settings(of: "Trainer") -> None:
    """Raise unless every setting is one that a trainer can have."""
    require(of.batch >= 1, "Trainer: batch", of.batch, ">= 1 example")
    require(of.steps is None or of.steps >= 1, "Trainer: steps", of.steps, ">= 1, or None for a pass")
    require(callable(of.lr) or of.lr > 0, "Trainer: lr", of.lr, "> 0, or a function of the round")
    require(0.0 <= of.momentum < 1.0, "Trainer: momentum", of.momentum, "in [0, 1)")
    require(of.weight_decay >= 0.0, "Trainer: weight_decay", of.weight_decay, ">= 0")
    require(of.prox >= 0.0, "Trainer: prox", of.prox, ">= 0")
    require(0.0 <= of.late_beta <= 1.0, "Trainer: late_beta", of.late_beta, "in [0, 1]")
    require(of.evaluate_every >= 1, "Trainer: evaluate_every", of.evaluate_every, ">= 1 round")
    for value, known, what in (
        (of.aggregation, list(AGGREGATIONS), "aggregation"),
        (of.precision, ["float32", "bfloat16"], "precision"),
        (of.form, ["auto", "scan", "vmap", "loop"], "form"),
        *((name, [*REPORTS, "sketch_32"], "report") for name in of.reports if not gives(name)),
    ):
        if value not in known:
            raise unknown_name(what, value, known)
