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
from fedpick.core.errors import StoreError, UnknownNameError, find_name
from fedpick.store.manifest import LABELS, MANIFEST, read_manifest

__all__ = ["RunInfo", "below", "find_runs", "planned_runs", "read_info", "sort_runs", "stored_labels"]

DEEPEST = 3  # levels below a folder that are searched for runs
NAMED = 3  # folders left out that are named
_FREE = ("seed", "rounds", "checkpoint_every")  # settings that may differ between the seeds of one configuration
_ORACLES = re.compile(r"\b(fed-?cs|genie)\b|\btheta=", re.IGNORECASE)  # for old manifests, without "about"


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
    rounds: int | None  # asked for
    identity: str = ""  # the configuration without seed and rounds, as text
    source: Path | None = None  # the folder that was searched, if it is not the run's own
    code: Mapping[str, str] = field(default_factory=dict)  # code and data of the user's own, see `own.fingerprint`
    version: str = ""  # which version of the policy's code, where these runs have several
    around: str = ""  # which version of the code of world, data and trainer, where these runs have several
    label: str = ""  # the policy's name in tables and legends; "": the policy
    directions: Mapping[str, str] = field(default_factory=dict)  # of metrics, which the trainer declares
    lacking: Mapping[str, str] = field(default_factory=dict)  # reports that the policy missed, and what it took instead

    @property
    def name(self) -> str:
        """The policy's name in tables and legends."""
        name = self.label or self.policy
        return f"{name} ({self.version})" if self.version else name

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


def _whole(value: Any) -> int | None:
    return None if value is None else int(value)


def read_info(folder: str | os.PathLike[str]) -> RunInfo:
    """Read the manifest of a run's folder."""
    path = Path(folder)
    manifest = read_manifest(path)
    config = manifest["config"]
    try:
        said = {**_derived(config), **(manifest.get("about") or {})}
        policy = str(said.get("policy") or config["policy"])
        return RunInfo(
            folder=path,
            policy=policy,
            world=None if said["world"] is None else str(said["world"]),
            cohort_size=_whole(said.get("cohort_size", config.get("cohort_size"))),
            data=None if said["data"] is None else str(said["data"]),
            train=str(said["train"] or ""),
            seed=int(config.get("seed", 0)),
            num_clients=_whole(said["num_clients"]),
            oracle=bool(said.get("oracle", _ORACLES.search(policy))),
            engine=str(said["engine"]),
            rounds=_whole(config.get("rounds")),
            code={str(name): str(text) for name, text in (config.get("code") or {}).items()},
            identity=json.dumps({k: v for k, v in config.items() if k not in _FREE}, sort_keys=True),
            directions={str(k): str(v) for k, v in said.get("directions", {}).items()},
            lacking={str(k): str(v) for k, v in said.get("lacking", {}).items()},
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StoreError(
            f"{path}: its manifest.json is not a run's ({type(error).__name__}: {error}); restore it from a backup"
        ) from None


def below(folder: Path, depth: int) -> Iterator[Path]:
    """Folders with a manifest, sorted by name; a run's folder contains no other run."""
    if (folder / MANIFEST).is_file():
        yield folder
    elif depth:
        for each in sorted(path for path in folder.iterdir() if path.is_dir()):
            yield from below(each, depth - 1)


def find_runs(folder: str | os.PathLike[str]) -> list[RunInfo]:
    """The run in a folder, or the runs up to three levels below it, in the order of its plans.

    A manifest that cannot be read is skipped with a warning if there are no rounds beside it: it may be of another
    program. With rounds it is that of a damaged run, without which the numbers of a comparison would be others.
    """
    path = Path(folder)
    if not path.is_dir():
        raise StoreError(f"{path}: there is no such folder; give the folder of a run or a comparison")
    found, foreign = [], []
    try:
        for each in below(path, DEEPEST):
            try:
                found.append(read_info(each))
            except StoreError as error:
                from fedpick.store.tables import has_begun  # needs pyarrow: whoever lacks it is told by the first table

                if has_begun(each):
                    raise
                foreign.append(error)
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
    return sort_runs(path, found)


def sort_runs(path: Path, found: list[RunInfo]) -> list[RunInfo]:
    """The runs below a folder in the order of its plans."""
    order, keys = _planned(path), planned_runs(path)

    def place(run: RunInfo) -> tuple[int, int]:
        return keys.get(run.folder.name.rsplit("_", 1)[-1], len(keys)), order.get(run.policy, len(order))

    ordered = sorted(found, key=place)  # stable: else by the folders' names
    names = stored_labels(path)
    return [
        run if run.folder == path else replace(run, source=path, label=names.get(run.policy, "")) for run in ordered
    ]


def stored_labels(folder: Path) -> dict[str, str]:
    """The labels of policies that were given in an experiment's folder; none if they cannot be read."""
    try:
        said = json.loads((folder / LABELS).read_text(encoding="utf-8"))
        return {str(policy): str(name) for policy, name in said.items()}
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


def _planned(folder: Path) -> dict[str, int]:
    """Positions of the policies in an old comparison; the others are compared with the first."""
    file = folder / "compare.json"
    if not file.is_file():
        return {}
    try:
        return {str(name): i for i, name in enumerate(json.loads(file.read_text())["policies"])}
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise StoreError(
            f"{file}: cannot be read ({type(error).__name__}: {error}); restore it from a backup, or remove it: the "
            "runs can be read without it"
        ) from None
