"""Read configurations and experiments: from TOML files, and one run's from its folder.

Paths in a file (a trace, a Python file) are relative to the file's folder.
"""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import fields
from os import PathLike
from pathlib import Path
from typing import Any

from fedpick._support import user_code
from fedpick.core.errors import ConfigError, FedpickError, StoreError, unknown_name
from fedpick.core.metrics import metrics_text
from fedpick.experiment.config import Config
from fedpick.experiment.plan import Experiment
from fedpick.experiment.worlds import trace_beside
from fedpick.store.manifest import read_manifest

__all__ = ["config_of", "experiment_from", "load", "load_experiment"]

DATA_FILES = (".npz", ".parquet")
DEFAULT_DATA = "synthetic(1, 1)"  # of a comparison without a file


def _read(source: Path) -> dict[str, Any]:
    if not source.is_file():
        raise ConfigError(f'{source}: there is no such file; create it with at least policy = "e3cs(quota=0.5)"')
    try:
        return tomllib.loads(source.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f'{source}: is not TOML: {error}; texts need quotes: policy = "uniform"') from None
    except OSError as error:
        raise ConfigError(f"{source}: cannot be read ({error.strerror}); make it readable, or give another") from None


def _here(value: Any, folder: Path, key: str = "") -> Any:
    """Settings with the paths, which are relative to the file's folder, made relative to the working directory."""
    if isinstance(value, dict):
        return {name: _here(each, folder, name) for name, each in value.items()}
    if isinstance(value, list):
        return [_here(each, folder, key) for each in value]
    if not isinstance(value, str):
        return value
    if key == "availability":
        value = trace_beside(value, folder)
    if key == "name" and value.endswith(DATA_FILES) and not Path(value).is_absolute():
        return str(folder / value)
    return user_code.moved(value, folder) if user_code.references(value) else value


def load(path: str | PathLike[str]) -> Config:
    """Read the configuration of one run; a mistake raises a ConfigError that says where it is and how to correct it."""
    source = Path(path)
    data = _read(source)
    known = [entry.name for entry in fields(Config) if entry.name not in ("code", "made")]
    try:
        for key in data:
            if key not in known:
                raise unknown_name("setting", key, known)
        if "policy" not in data:
            raise ConfigError("policy is missing; add policy = 'e3cs(quota=0.5)'; `fedpick policies` lists them all")
        if isinstance(data["policy"], list):
            raise ConfigError("policy is a list, but `fedpick run` makes one run; use `fedpick compare FILE.toml`")
        config = Config(**_here(data, source.parent))
        config.keep(config.build())  # shows every mistake before anything runs
    except FedpickError as error:
        raise ConfigError(f"{source}: {error}") from None
    return config


def config_of(folder: Path, named: Sequence[str] = ()) -> Config:
    """The configuration of the run in a folder.

    Args:
        folder: of a run.
        named: the user's own code that may be imported, as "FILE.py:Name".
    """
    stored = read_manifest(folder)["config"]
    if "engine" in stored:
        raise ConfigError(
            f"{folder}: holds the records of a deployment ({stored['engine']}), which only its server can continue; "
            f"fedpick report {folder} shows them"
        )
    try:
        settings = {"code": {}, **stored, "seeds": [stored.get("seed", 0)]}
        del settings["seed"]
        return Experiment.stored(settings).naming(named).configs()[0]
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        if isinstance(error, FedpickError):
            raise
        raise StoreError(
            f"{folder}: its manifest.json is not a run's ({type(error).__name__}: {error}); restore it from a backup"
        ) from None


def _varied(table: Any, name: str, vary: tuple[str, ...] | None) -> list[Any]:
    """A table whose settings may be lists, as one table per combination; `vary` names those settings, None is all."""
    if isinstance(table, list):
        return [each for one in table for each in _varied(one, name, vary)]
    if not isinstance(table, dict):
        return [table]
    found: list[dict[str, Any]] = [{}]
    for key, value in table.items():
        several = value if isinstance(value, list) and (vary is None or key in vary) else [value]
        if not several:
            raise ConfigError(f"[{name}] {key} = [], but must have at least one entry")
        found = [{**one, key: each} for one in found for each in several]
    return found


def load_experiment(path: str | PathLike[str]) -> Experiment:
    """Read an experiment: the settings of `load`, each of which may be a list.

    policy = ["uniform", "e3cs(quota=0.5)", "my_policy.py:EpsGreedy"]
    cohort_size = [5, 10]
    seeds = 5                              # or a list of seeds
    rounds = 200
    [world]
    name = ["volatile", "ideal"]           # or several [[world]] tables
    [data]
    name = "digits"
    [train]
    lr = [0.05, 0.1]
    """
    return experiment_from(Path(path), {})


def experiment_from(
    file: Path | None,
    given: Mapping[str, Any],
    *,
    num_clients: int | None = None,
    partition: str | None = None,
    train: Mapping[str, Any] | None = None,
) -> Experiment:
    """An experiment from a file and settings, which replace those of the file.

    Args:
        file: TOML, see `load_experiment`; None: the default settings of a comparison.
        given: settings of an experiment.
        num_clients: of every world.
        partition: of every data set.
        train: settings of [train].
    """
    settings: dict[str, Any] = {"data": DEFAULT_DATA} if file is None else _read_experiment(file)
    settings |= given
    prefix = "" if file is None else f"{file}: "
    try:
        if "policy" not in settings:
            raise ConfigError("no policy is given; add -p uniform -p 'e3cs(quota=0.5)', or name policies in a file")
        if num_clients is not None:
            worlds = Experiment(**settings).world
            settings["world"] = [{**each, "num_clients": num_clients} for each in worlds]
        if partition is not None:
            data = Experiment(**{**settings, "train": {}}).data
            settings["data"] = [None if each is None else {**each, "partition": partition} for each in data]
        if train:
            every = settings.get("train", {})
            settings["train"] = [{**each, **train} for each in (every if isinstance(every, list) else [every])]
        return Experiment(**settings)
    except FedpickError as error:
        raise ConfigError(f"{prefix}{error}") from None
    except (TypeError, ValueError, AttributeError) as error:
        raise ConfigError(f"{prefix}{error}; see fedpick compare --help, and docs/worlds.md for a file") from None


def _read_experiment(source: Path) -> dict[str, Any]:
    data: dict[str, Any] = _here(_read(source), source.parent)
    known = [entry.name for entry in fields(Experiment) if entry.name != "code"]
    try:
        for key in data:
            if key not in known:
                raise unknown_name("setting", key, known)
        for name, vary in (("world", ("name", "num_clients", "deadline")), ("data", ("name", "partition", "seed"))):
            if name in data:
                data[name] = _varied(data[name], name, vary)
        if "train" in data:  # a list of metrics is one setting
            several = data["train"] if isinstance(data["train"], list) else [data["train"]]
            tables = [metrics_text(each) if isinstance(each, dict) else each for each in several]
            data["train"] = _varied(tables, "train", None)
    except FedpickError as error:
        raise ConfigError(f"{source}: {error}") from None
    return data
