"""Data from plain settings, as configuration files and the command line write them.

[data]
name = "fashion-mnist"                  # a data set, a generator such as "synthetic(1, 1)", a file "mine.npz" or
                                        # "mine.parquet", or an object or a function in your file:
                                        # "mine.py:hospitals(sites=12)"; see `fedpick.data.read` for what it may give
client = "hospital"                     # of your data: the column that names the client of each example,
label = "outcome"                       # the one to predict, and those of the inputs
inputs = ["age", "weight"]
partition = "dirichlet(alpha=0.3)"      # which client holds which examples of a data set
hold_out = 0.1                          # share of each client's data kept for testing; default 0
test = "held-out"                       # test on that share of all clients, not on the data set's test examples
seed = 0                                # of the partition: the same clients at every seed of the run
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from fedpick._support import user_code
from fedpick._support.text import make
from fedpick.core import rng as rngs
from fedpick.core.errors import ConfigError, DataError, FedpickError, find_name, unknown_name
from fedpick.data.federated import Dataset, Federated, hold_out
from fedpick.data.files import ENDINGS
from fedpick.data.generators import GENERATORS, generate
from fedpick.data.objects import read
from fedpick.data.partitions import partition
from fedpick.data.sources import SOURCES, load
from fedpick.data.tables import COLUMNS

__all__ = ["OWN", "SERVER_EXAMPLES", "TRAINING", "build_data", "known_name", "usual_partition"]

SETTINGS = ("name", "partition", "hold_out", "test", "seed", *COLUMNS)
SERVER_EXAMPLES = 1000  # test examples that a server has whose policy needs data of its own, at most half of them
PARTITION = "dirichlet(alpha=0.3)"  # default
PARTITIONS = {  # defaults of some data sets
    "digits": "dirichlet(alpha=0.5, at_least=2)",
    "cifar10": "primary-label(share=0.8, size=500)",  # E3CS, Table I
}

# Default settings of training for each data set; here, because reports name them without JAX.
_IMAGES = {"model": "mlp(hidden=(200, 200))", "lr": 0.05, "batch": 64, "steps": 30}
# For data of the user: an epoch is one pass, whatever the clients hold.
OWN: dict[str, Any] = {"model": "mlp(hidden=(64,))", "lr": 0.05, "batch": 32, "steps": 0}
TRAINING: dict[str, dict[str, Any]] = {
    "synthetic": {"model": "logistic", "lr": 0.05, "batch": 50, "steps": 30},  # Power-of-Choice, Fig. 4
    "fedgs-synthetic": {"model": "logistic", "lr": 0.1, "batch": 10, "steps": 10},  # FedGS, Table 2
    "linear-regression": {"model": "linear", "lr": 0.01, "batch": 20, "steps": 10},
    "quadratic": {"model": "linear", "lr": 0.001, "batch": 20, "steps": 2},
    "digits": {"model": "mlp(hidden=(64,))", "lr": 0.1, "batch": 16, "steps": 5},
    "fashion-mnist": _IMAGES,
    "mnist": _IMAGES,
    "emnist-letters": _IMAGES,
    "emnist-digits": _IMAGES,
    "ocr-letters": _IMAGES,
    "cifar10": {  # E3CS, Table I
        "model": "cifar-cnn",
        "lr": 0.01,
        "momentum": 0.9,
        "batch": 40,
        "steps": 0,
        "spread_every": 0,
    },
}


@lru_cache(maxsize=2)  # the runs of one process share the arrays
def _load(name: str) -> Dataset:
    return load(name)


@lru_cache(maxsize=2)
def _load_file(path: str, changed: float, columns: str) -> Dataset | Federated:
    return read(path, **json.loads(columns))


def known_name(settings: Mapping[str, Any]) -> str | None:
    """The name of the data set or generator, as in SOURCES or GENERATORS; None for the user's file or function."""
    name = settings.get("name")
    if not isinstance(name, str):
        raise ConfigError(f"[data] name = {name!r}, but must be a text such as 'fashion-mnist' or 'synthetic(1, 1)'")
    if name.endswith(ENDINGS) or user_code.is_reference(name):
        return None
    known = {key: key for key in (*SOURCES, *GENERATORS)}
    return find_name(name.split("(")[0].strip(), known, "data")


def usual_partition(name: str | None) -> str:
    """The partition of a data set if none is given; "" for data that may come with its clients."""
    return PARTITIONS.get(name, PARTITION) if name in SOURCES else ""


def _from_user(settings: Mapping[str, Any], num_clients: int, seed: int) -> Dataset | Federated:
    """Data from the user's file, or from a function, a generator or an object in the user's code."""
    name = settings["name"]
    columns = json.dumps({key: settings[key] for key in COLUMNS if key in settings}, default=repr)
    if not user_code.is_reference(name):
        path = Path(name)
        return _load_file(str(path), path.stat().st_mtime if path.is_file() else 0.0, columns)
    return _call(name, num_clients, seed, user_code.fingerprint(name), columns)


@lru_cache(maxsize=1)
def _call(name: str, num_clients: int, seed: int, code: str, columns: str) -> Dataset | Federated:
    """What the user's code gives, once for all runs of one process."""
    rng = rngs.stream(seed, 0, "data")
    try:
        made = make(
            name, "data", {}, values={}, example="mine.py:hospitals(sites=12)", num_clients=num_clients, rng=rng
        )
        if callable(made):  # a generator's settings: called as the built-in ones are
            made = made(num_clients, rng)
    except FedpickError:
        raise
    except Exception as error:  # it is the user's code
        raise ConfigError(f"{name}: {type(error).__name__}: {error}{user_code.place(error)}") from None
    try:
        return read(made, **json.loads(columns))
    except DataError as error:
        raise ConfigError(f"{name}: {error}") from None


def build_data(settings: Mapping[str, Any], num_clients: int, given: Dataset | Federated | None = None) -> Federated:
    """The data of this many clients; data that comes with its clients keeps them.

    Args:
        settings: of [data].
        num_clients: that data is divided among, if it comes without.
        given: the data, if it is an object of the user's.

    >>> build_data({"name": "synthetic(1, 1)"}, num_clients=30).dataset.classes
    10
    """
    for key in settings:
        if key not in SETTINGS:
            raise unknown_name("setting of [data]", key, list(SETTINGS))
    if given is not None or known_name(settings) is None:  # the user's file or function, which may change
        return _build(settings, num_clients, given)
    return _build_known(json.dumps(dict(settings), sort_keys=True, default=repr), num_clients)


@lru_cache(maxsize=8)  # the runs of one process share the clients' data, too
def _build_known(text: str, num_clients: int) -> Federated:
    return _build(json.loads(text), num_clients)


def _build(settings: Mapping[str, Any], num_clients: int, given: Dataset | Federated | None = None) -> Federated:
    name = None if given is not None else known_name(settings)
    seed, share = settings.get("seed", 0), settings.get("hold_out", 0)
    if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
        raise ConfigError(f"[data] seed = {seed!r}, but must be a whole number >= 0")
    odd = [key for key in COLUMNS if key in settings]
    if name is not None and odd:
        raise ConfigError(f"[data] {odd[0]}: {name} has no columns of yours; leave {odd[0]} out")
    found: Dataset | Federated
    if given is not None:
        found = given
    elif name in GENERATORS:
        found = generate(settings["name"], num_clients, rngs.stream(seed, 0, "data"))
    else:
        found = _from_user(settings, num_clients, seed) if name is None else _load(name)
    if isinstance(found, Federated):
        if "partition" in settings:
            raise ConfigError(f"[data] partition: {settings['name']} comes with its clients; leave the partition out")
    else:
        text = settings.get("partition", PARTITIONS.get(name or "", PARTITION))
        if not isinstance(text, str):
            raise ConfigError(f"[data] partition = {text!r}, but must be a text such as 'dirichlet(alpha=0.3)'")
        found = partition(text, found, num_clients, rngs.stream(seed, 0, "partition"))
    if share:
        found = hold_out(found, share, rngs.stream(seed, 0, "hold out"))
    return _tested_on(found, settings.get("test", "own"))


def _tested_on(federated: Federated, test: object) -> Federated:
    """The data, tested on the data set's test examples or only on what the clients hold out."""
    if test == "own":
        return federated
    if test != "held-out":
        raise ConfigError(f"[data] test = {test!r}, but must be 'own' (the data set's test examples) or 'held-out'")
    if not len(federated.held):
        raise ConfigError("[data] test = 'held-out', but no client holds anything out; set hold_out = 0.1")
    dataset = federated.dataset
    return replace(federated, dataset=replace(dataset, test_x=dataset.test_x[:0], test_y=dataset.test_y[:0]))
