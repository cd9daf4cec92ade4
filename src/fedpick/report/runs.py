"""Find runs and read their manifests; no run is built, and no code that a manifest names is imported."""

import inspect
import json
import os
import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fedpick import worlds
from fedpick.core.errors import StoreError, UnknownNameError, find_name, printable
from fedpick.experiment.given import needs_server_data, train_text
from fedpick.experiment.worlds import MOST_CLIENTS
from fedpick.store.manifest import LABELS, MANIFEST, numbers_of, read_manifest

__all__ = ["RunInfo", "find_runs", "is_buffered", "planned_runs", "read_info", "readable_runs", "stored_labels"]

DEEPEST = 3  # levels below a folder that are searched for runs
NAMED = 3  # unreadable folders that warnings name one by one
SETTINGS = (
    "policy",
    "world",
    "cohort_size",
    "pace",
    "data",
    "train",
    "seed",
    "engine",
)  # of a run, in frames and trackers
_FREE = ("seed", "rounds", "checkpoint_every")  # settings that may differ between the seeds of one configuration
SET_ASIDE = 1000  # test examples that a server valued updates on before manifests said so
_ORACLES = re.compile(r"\b(fed-?cs|genie)\b|\btheta=", re.IGNORECASE)  # for manifests without "about"


def is_buffered(pace: str) -> bool:
    """Whether a pace, as text, is one without rounds."""
    return pace.startswith("buffered(")


@dataclass(frozen=True)
class RunInfo:
    """A run as its manifest describes it."""

    folder: Path
    policy: str
    world: str | None  # None: real clients
    cohort_size: int | None  # None: the policy decides
    data: str | None  # None: no training, or the data of a deployment
    train: str  # settings of training; "": the defaults
    seed: int
    num_clients: int | None  # None: not in the manifest; it is estimated from the selections
    oracle: bool
    engine: str  # "simulator", or the server of a deployment: "flower", "nvflare", "http"
    rounds: int | None  # the planned number of rounds
    identity: str = ""  # the configuration without seed and rounds, as text
    pace: str = ""  # as text; "": rounds with the world's settings
    source: Path | None = None  # the folder that was searched, if it is not the folder of the run
    code: Mapping[str, str] = field(default_factory=dict)  # the user's code and data, see `own.fingerprint`
    numbers: str = ""  # since which version of fedpick a seed gives the numbers of this run
    version: str = ""  # which version of the policy's code, where these runs have several
    setting_version: str = ""  # which version of world, data and trainer, or of seeds, where these runs have several
    label: str = ""  # the policy's name in tables and legends; "": the policy
    given: tuple[str, ...] = ()  # what the policy needs that others do without
    directions: Mapping[str, str] = field(default_factory=dict)  # of metrics, which the trainer declares
    lacking: Mapping[str, str] = field(default_factory=dict)  # reports that no client gave -> what was used instead

    @property
    def name(self) -> str:
        """The policy's name in tables and legends."""
        name = self.label or self.policy
        return f"{name} ({self.version})" if self.version else name

    @property
    def key(self) -> str:
        """The key of the run in plans, which ends the name of its folder."""
        return self.folder.name.rsplit("_", 1)[-1]

    @property
    def settings(self) -> dict[str, Any]:
        """What frames and trackers tell about the run."""
        found = {name: vars(self)[name] for name in SETTINGS}
        return {name: printable(value) if isinstance(value, str) else value for name, value in found.items()}

    @property
    def simulated(self) -> bool:
        """Whether its clients and its time are simulated."""
        return self.engine == "simulator"


def _settings(given: Mapping[str, Any], *left_out: str) -> str:
    return ", ".join(f"{key}={value}" for key, value in given.items() if key not in left_out)


def _world(config: Mapping[str, Any]) -> tuple[str, int | None]:
    """A world's label, and its number of clients if the configuration has it; no world is built."""
    given = dict(config.get("world", {"name": "phones"}))
    name, more = str(given.get("name", "phones")), _settings(given, "name")
    count = given.get("num_clients", given.get("clients"))
    if count is None:
        try:
            signature = inspect.signature(find_name(name, worlds.WORLDS, "world"))
            count = next(iter(signature.parameters.values())).default
        except (UnknownNameError, StopIteration):
            pass
    return (f"{name}({more})" if more else name), (count if isinstance(count, int) else None)


def _derived(config: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest's "about", derived from the configuration, for manifests that have none."""
    if "engine" in config:
        return {"world": None, "data": None, "train": "", "num_clients": None, "engine": config["engine"]}
    label, count = _world(config)
    data = config.get("data")
    if data is not None:
        parts = [str(data["name"]), str(data.get("partition", "")), _settings(data, "name", "partition")]
        data = ", ".join(part for part in parts if part)
    train = _settings(config.get("train") or {})
    return {"world": label, "data": data, "train": train, "num_clients": count, "engine": "simulator"}


def _set_aside(policy: str, about: Mapping[str, Any], config: Mapping[str, Any]) -> bool:
    """Whether a run whose manifest does not say so was tested without examples, which its server valued updates on."""
    own = "trainer" in (config.get("train") or {})
    return about["engine"] == "simulator" and about["data"] is not None and not own and needs_server_data(policy)


def _whole(value: Any, most: int = 2**63 - 1) -> int | None:
    if value is not None and not 0 <= int(value) <= most:
        raise ValueError(f"{str(value)[:40]} is not a number from 0 to {most}")
    return None if value is None else int(value)


def read_info(folder: str | os.PathLike[str]) -> RunInfo:
    """Read the manifest of a run's folder."""
    path = Path(folder)
    manifest = read_manifest(path)
    config = manifest["config"]
    try:
        about = {**_derived(config), **(manifest.get("about") or {})}
        policy = str(about.get("policy") or config["policy"])
        if "given" not in about and _set_aside(policy, about, config):
            about["train"] = train_text(config.get("train") or {}, SET_ASIDE)
        return RunInfo(
            folder=path,
            policy=policy,
            world=None if about["world"] is None else str(about["world"]),
            cohort_size=_whole(about.get("cohort_size", config.get("cohort_size"))),
            data=None if about["data"] is None else str(about["data"]),
            train=str(about["train"] or ""),
            seed=int(config.get("seed", 0)),
            num_clients=_whole(about["num_clients"], MOST_CLIENTS),
            given=tuple(map(str, about.get("given", ()))),
            oracle=bool(about.get("oracle", _ORACLES.search(policy))),
            engine=str(about["engine"]),
            pace=str(config.get("pace", "")),
            rounds=_whole(config.get("rounds")),
            code={str(name): str(text) for name, text in (config.get("code") or {}).items()},
            numbers=numbers_of(manifest),
            identity=json.dumps({k: v for k, v in config.items() if k not in _FREE}, sort_keys=True),
            directions={str(k): str(v) for k, v in about.get("directions", {}).items()},
            lacking={str(k): str(v) for k, v in about.get("lacking", {}).items()},
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise StoreError(
            f"{path}: its manifest.json is not a run's ({type(error).__name__}: {str(error)[:200]}); restore it from a "
            "backup"
        ) from None


def _within(folder: Path, depth: int = DEEPEST) -> Iterator[tuple[Path, RunInfo | StoreError]]:
    """Folders with a manifest, sorted by name, each with its run, or with the reason why it cannot be read."""
    if (folder / MANIFEST).is_file():  # the folder of a run contains no other run
        try:
            yield folder, read_info(folder)
        except StoreError as error:
            yield folder, error
    elif depth:
        for each in sorted(path for path in folder.iterdir() if path.is_dir()):
            yield from _within(each, depth - 1)


def find_runs(folder: str | os.PathLike[str]) -> list[RunInfo]:
    """The run in a folder, or the runs up to three levels below it, in the order of its plans.

    A manifest that cannot be read is skipped with a warning if there are no rounds beside it: another program may have
    written it. With rounds beside it, the run is damaged, and the comparison would be wrong without it: an error.
    """
    path = Path(folder)
    if not path.is_dir():
        raise StoreError(f"{path}: there is no such folder; give the folder of a run or a comparison")
    found, foreign = [], []
    try:
        for each, run in _within(path):
            if isinstance(run, RunInfo):
                found.append(run)
                continue
            from fedpick.store.tables import has_begun  # needs pyarrow, which is an extra

            if has_begun(each):
                raise run
            foreign.append(run)
    except OSError as error:
        raise StoreError(f"{path}: cannot be read ({error.strerror}); make it readable, or give another") from None
    if foreign and not found:
        raise foreign[0]
    for why in foreign[:NAMED]:
        warnings.warn(f"left out: {why}", stacklevel=2)
    if len(foreign) > NAMED:
        warnings.warn(f"left out: {len(foreign) - NAMED} more folders of this kind in {path}", stacklevel=2)
    if not found:
        raise StoreError(
            f"{path}: has no runs: no {MANIFEST} in it or up to {DEEPEST} levels below; start one with fedpick run"
        )
    return _in_order(path, found)


def readable_runs(folder: Path) -> tuple[list[RunInfo], dict[Path, str]]:
    """The runs in a folder that may be written in this moment, and the reasons why others cannot be read."""
    found, broken = [], {}
    try:
        for each, run in _within(folder):
            if isinstance(run, RunInfo):
                found.append(run)
            else:
                broken[each] = str(run)
    except FileNotFoundError:  # not made yet, or removed in this moment
        pass
    except OSError as error:
        broken[folder] = f"{error.filename or folder}: cannot be read ({error.strerror})"
    return _in_order(folder, found), broken


def _in_order(path: Path, found: list[RunInfo]) -> list[RunInfo]:
    """The runs below a folder in the order of its plans."""
    keys = planned_runs(path)
    ordered = sorted(found, key=lambda run: keys.get(run.key, len(keys)))  # others stay sorted by folder
    names = stored_labels(path)
    return [
        run if run.folder == path else replace(run, source=path, label=names.get(run.policy, "")) for run in ordered
    ]


def stored_labels(folder: Path) -> dict[str, str]:
    """The labels of policies that were given in an experiment's folder; none if they cannot be read."""
    try:
        labels = json.loads((folder / LABELS).read_text(encoding="utf-8"))
        return {str(policy): str(name) for policy, name in labels.items()}
    except (ValueError, AttributeError, OSError):
        return {}


def planned_runs(folder: Path) -> dict[str, int]:
    """Positions of the runs in an experiment's plans, by key; a plan that cannot be read is ignored."""
    named: dict[str, int] = {}
    for file in sorted((folder / "plans").glob("*.json")):
        try:
            for key in json.loads(file.read_text(encoding="utf-8"))["runs"]:
                named.setdefault(str(key), len(named))
        except (ValueError, KeyError, TypeError, OSError):
            continue
    return named
