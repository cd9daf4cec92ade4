"""A trainer from plain settings, as configuration files and the command line write them.

[data]
name = "fashion-mnist"                  # a data set, or a generator such as "synthetic(1, 1)"
partition = "dirichlet(alpha=0.3)"      # who holds what of a data set
hold_out = 0.1                          # share of each client's data kept for testing; 0 unless said
seed = 0                                # of the partition: the same clients at every seed of the run

[train]
model = "mlp(hidden=(64, 30), dropout=0.5)"
lr = 0.05                               # or "halving(0.05, every=300)"
batch = 64
steps = 30                              # local steps an epoch; 0: one pass over the client's data

What is not said is taken from `DEFAULTS`.
"""

import json
from collections.abc import Mapping
from dataclasses import fields
from functools import lru_cache
from typing import Any

from fedpick import data, schedules
from fedpick import rng as rngs
from fedpick.errors import ConfigError, unknown_name
from fedpick.learn.models import model
from fedpick.learn.trainer import Trainer
from fedpick.text import Makers, make

__all__ = ["DEFAULTS", "build_data", "build_trainer"]

_IMAGES = {"partition": "dirichlet(alpha=0.3)", "model": "mlp(hidden=(200, 200))", "lr": 0.05, "batch": 64, "steps": 30}
DEFAULTS: dict[str, dict[str, Any]] = {
    "synthetic": {"model": "logistic", "lr": 0.05, "batch": 50, "steps": 30},  # Power-of-Choice, Fig. 4
    "linear-regression": {"model": "linear", "lr": 0.01, "batch": 20, "steps": 10},
    "quadratic": {"model": "linear", "lr": 0.001, "batch": 20, "steps": 2},
    "digits": {
        "partition": "dirichlet(alpha=0.5, at_least=2)",
        "model": "mlp(hidden=(64,))",
        "lr": 0.1,
        "batch": 16,
        "steps": 5,
    },
    "fashion-mnist": _IMAGES,
    "mnist": _IMAGES,
    "emnist-letters": _IMAGES,
    "emnist-digits": _IMAGES,
    "ocr-letters": _IMAGES,
    "cifar10": {  # E3CS, Table I
        "partition": "primary-label(share=0.8, size=500)",
        "model": "cifar-cnn",
        "lr": 0.01,
        "momentum": 0.9,
        "batch": 40,
        "steps": 0,
        "spread_every": 0,
    },
}
_DATA = ("name", "partition", "hold_out", "seed")
_RATES: Makers = {
    "step": schedules.Step,
    "linear": schedules.Linear,
    "cosine": schedules.Cosine,
    "halving": schedules.Halving,
}


@lru_cache(maxsize=2)  # the runs of one process share the arrays
def _load(name: str) -> data.Dataset:
    return data.load(name)


def _plain_name(settings: Mapping[str, Any]) -> str:
    name = settings.get("name")
    if not isinstance(name, str):
        raise ConfigError(f"[data] name = {name!r}, but must be a text such as 'fashion-mnist' or 'synthetic(1, 1)'")
    return name.split("(")[0].strip().lower().replace("_", "-")


def build_data(settings: Mapping[str, Any], num_clients: int) -> data.Federated:
    """The data of so many clients.

    >>> build_data({"name": "synthetic(1, 1)"}, num_clients=30).dataset.classes
    10
    """
    for key in settings:
        if key not in _DATA:
            raise unknown_name("setting of [data]", key, list(_DATA))
    return _build(json.dumps(dict(settings), sort_keys=True, default=repr), num_clients)


@lru_cache(maxsize=8)  # the runs of one process share the clients' data, too
def _build(text: str, num_clients: int) -> data.Federated:
    settings = json.loads(text)
    name, seed, share = _plain_name(settings), settings.get("seed", 0), settings.get("hold_out", 0)
    if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
        raise ConfigError(f"[data] seed = {seed!r}, but must be a whole number >= 0")
    if name in data.GENERATORS:
        if "partition" in settings:
            raise ConfigError(f"[data] partition: {name} makes data client by client; leave the partition out")
        people = data.generate(settings["name"], num_clients, rngs.stream(seed, 0, "data"))
    else:
        if name not in data.SOURCES:
            raise unknown_name("data", settings["name"], [*data.SOURCES, *data.GENERATORS])
        split = settings.get("partition", DEFAULTS[name]["partition"])
        if not isinstance(split, str):
            raise ConfigError(f"[data] partition = {split!r}, but must be a text such as 'dirichlet(alpha=0.3)'")
        people = data.partition(split, _load(name), num_clients, rngs.stream(seed, 0, "partition"))
    return data.hold_out(people, share, rngs.stream(seed, 0, "hold out")) if share else people


def build_trainer(
    people: data.Federated, of: Mapping[str, Any], settings: Mapping[str, Any], reports: tuple[str, ...] = ()
) -> Trainer:
    """A trainer for this data.

    Args:
        people: who holds what.
        of: the [data] settings it was made of: they say what is usual for it.
        settings: the [train] settings.
        reports: what the policy needs to hear from clients.
    """
    known = [entry.name for entry in fields(Trainer) if entry.init and entry.name not in ("data", "reports")]
    for key in settings:
        if key not in known:
            raise unknown_name("setting of [train]", key, known)
    usual = {key: value for key, value in DEFAULTS[_plain_name(of)].items() if key != "partition"}
    chosen = {**usual, **settings}
    text, rate = chosen.pop("model"), chosen.pop("lr")
    if not isinstance(text, str):
        raise ConfigError(f"[train] model = {text!r}, but must be a text such as 'mlp(hidden=(64, 30))'")
    if isinstance(rate, str):
        rate = make(rate, "learning rate", _RATES, values={}, example="halving(0.05, every=300)")
    for key, value in chosen.items():
        kind = str if key in ("aggregation", "server", "precision", "form") else (int, float)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise ConfigError(f"[train] {key} = {value!r}, but must be a {'text' if kind is str else 'number'}")
    chosen["steps"] = chosen["steps"] or None
    network = model(text, people.dataset.inputs, people.dataset.classes or 1)
    return Trainer(people, network, lr=rate, reports=("update_norm", *reports), **chosen)
