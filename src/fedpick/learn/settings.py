"""A trainer from plain settings, as configuration files and the command line write them.

[train]
model = "mlp(hidden=(64, 30), dropout=0.5)"
lr = 0.05                               # or "halving(0.05, every=300)"
batch = 64
steps = 30                              # local steps an epoch; 0: one pass over the client's data
metrics = ["macro_f1", "my.py:score"]   # besides accuracy and loss, see `fedpick.learn.measures`

Settings that are not given are taken from `fedpick.data.settings.TRAINING`.
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from fedpick._support import user_code
from fedpick._support.text import Makers, make
from fedpick.core import schedules
from fedpick.core.errors import ConfigError, unknown_name
from fedpick.core.metrics import named_metrics
from fedpick.data.federated import Federated
from fedpick.data.settings import OWN, TRAINING, known_name
from fedpick.learn.reports import gives
from fedpick.learn.setup import model_from
from fedpick.learn.trainer import Trainer

__all__ = ["build_trainer"]

_WHOLE = ("batch", "steps", "spread_every", "evaluate_every", "set_aside")
_TEXTS = ("aggregation", "server", "precision", "form", "optimizer", "place", "algorithm")
LARGEST = 10**6  # whole number in a setting
_RATES: Makers = {
    "step": schedules.Step,
    "linear": schedules.Linear,
    "cosine": schedules.Cosine,
    "decay": schedules.Decay,
    "halving": schedules.Halving,
}


def build_trainer(
    data: Federated, source: Mapping[str, Any] | None, settings: Mapping[str, Any], reports: tuple[str, ...] = ()
) -> Trainer:
    """A trainer for this data.

    Args:
        data: of all clients.
        source: the [data] settings it was made from, which decide the defaults; None: it was made by the user.
        settings: the [train] settings.
        reports: names of the reports that the policy uses; those that this trainer cannot give are left out.
    """
    known = [entry.name for entry in fields(Trainer) if entry.init and entry.name not in ("data", "reports")]
    for key in settings:
        if key not in known:
            raise unknown_name("setting of [train]", key, known)
    name = None if source is None else known_name(source)
    chosen = {**TRAINING.get(name or "", OWN), **settings}
    text, rate, metrics = chosen.pop("model"), chosen.pop("lr"), chosen.pop("metrics", "")
    if not isinstance(text, str) and isinstance(text, int | float | list | tuple | dict | None):
        raise ConfigError(
            f"[train] model = {text!r}, but must be a text such as 'mlp(hidden=(64, 30))' or 'net.py:Net'; in Python "
            "also a model or a torch.nn.Module"
        )
    if isinstance(rate, str):
        rate = make(rate, "learning rate", _RATES, values={}, example="halving(0.05, every=300)")
    loss = chosen.pop("loss", None)
    if isinstance(loss, str):
        if not user_code.is_reference(loss):
            raise ConfigError(f"[train] loss = {loss!r}, but must name a function in a file of yours: 'net.py:my_loss'")
        loss = user_code.load(loss)
    for key, value in chosen.items():
        kind = str if key in _TEXTS else (int, float)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise ConfigError(f"[train] {key} = {value!r}, but must be a {'text' if kind is str else 'number'}")
        if key in _WHOLE and not (float(value).is_integer() and 0 <= float(value) <= LARGEST):
            raise ConfigError(f"[train] {key} = {value!r}, but must be a whole number from 0 to {LARGEST:,}")
    chosen["steps"] = chosen["steps"] or None
    network = model_from(text, data.dataset)
    given = ("update_norm", *(name for name in reports if gives(name) and name != "update_norm"))
    measured = tuple(user_code.load(name) if user_code.is_reference(name) else name for name in named_metrics(metrics))
    return Trainer(data, network, lr=rate, reports=given, metrics=measured, loss=loss, **chosen)
