"""The shelf: a folder with runs, and the plans that contain them.

    runs/<labels>_<key>/         a run's folder (`fedpick.store`)
    plans/<...>_<key>.json       an experiment
    labels.json                  names of policies in tables, if some were given

Plans share runs: a run that two plans contain is made once. A plan that a later one contains is deleted. Plans can be
reconstructed from the runs.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedpick._support import atomic
from fedpick._version import __version__
from fedpick.core.errors import ConfigError, FedpickError, StoreError
from fedpick.experiment.config import Config
from fedpick.experiment.plan import Experiment
from fedpick.store.manifest import LABELS, checked_json, read_manifest, summed_json

__all__ = ["Entry", "Shelf"]

RUNS, PLANS = "runs", "plans"
_SHARED = ("cohort_size", "rounds", "checkpoint_every", "data")  # settings that the runs of one plan have in common


@dataclass(frozen=True)
class Entry:
    """A run on the shelf."""

    folder: Path
    label: str
    seed: int
    reached: int
    rounds: int  # asked for
    size: int  # bytes
    plans: tuple[str, ...]  # that contain it


class Shelf:
    """Runs and plans in one folder.

    Args:
        path: of the folder; `add` creates it.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    @staticmethod
    def is_one(path: str | os.PathLike[str]) -> bool:
        """Whether the folder is a shelf."""
        return (Path(path) / RUNS).is_dir() or (Path(path) / PLANS).is_dir()

    def check(self) -> None:
        """Raise unless the folder holds comparisons, is empty, or does not exist."""
        try:
            self.path.exists()
        except OSError as error:
            raise ConfigError(
                f"{str(self.path)[:200]}: cannot be looked at ({error.strerror}); choose another folder with --out"
            ) from None
        if (self.path / "manifest.json").is_file():
            raise ConfigError(f"{self.path}: is the folder of one run; choose another with --out")
        if self.path.exists() and not self.path.is_dir():
            raise ConfigError(f"{self.path}: is a file; choose another folder with --out")
        if not self.is_one(self.path) and self.path.is_dir() and any(self.path.iterdir()):
            raise ConfigError(
                f"{self.path}: contains files that are not fedpick's ({min(self.path.iterdir()).name}, ...); choose "
                "an empty or a new folder with --out"
            )

    def folder(self, config: Config) -> Path:
        """A run's folder, which need not exist yet; an existing one is found by its key."""
        existing = sorted((self.path / RUNS).glob(f"*_{config.key}"))
        return existing[0] if existing else self.path / RUNS / config.folder_name

    def missing(self, configs: Iterable[Config]) -> list[Config]:
        """The runs that do not exist, have too few rounds, or whose files are not complete."""
        from fedpick.store.tables import is_over  # Parquet is an extra

        return [config for config in configs if not is_over(self.folder(config), config.rounds)]

    def add(self, experiment: Experiment) -> None:
        """Store a plan, unless an existing one contains it; plans that it contains are deleted."""
        self.check()
        plans = self._plans()
        if any(experiment.within(other) for other in plans.values()):
            return
        keys = [config.key for config in experiment.configs()]
        plan = {"fedpick": __version__, "experiment": experiment.as_dict(), "runs": keys}
        text = summed_json(plan)
        digest = hashlib.blake2b(json.dumps(plan["experiment"], sort_keys=True).encode(), digest_size=5).hexdigest()
        target = self.path / PLANS / f"{len(keys)}-runs-{experiment.rounds}-rounds_{digest}.json"
        with self._writing():
            for name in (PLANS, RUNS):
                atomic.make_folder(self.path / name)
            atomic.tidy(target.parent, older=3600.0)
            atomic.write_text(target, text)
            for path, other in plans.items():
                if path != target and other.within(experiment):
                    path.unlink(missing_ok=True)

    def label(self, names: Mapping[str, str]) -> None:
        """Write names of policies for reports, besides those written before.

        Args:
            names: policy -> name.
        """
        path = self.path / LABELS
        try:
            kept = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        except ValueError:  # damaged; only names are lost
            kept = {}
        with self._writing():
            atomic.make_folder(self.path)
            atomic.write_text(path, json.dumps({**kept, **names}, indent=1) + "\n")

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise ConfigError(
                f"{self.path}: cannot be written ({error.strerror}); choose another folder with --out"
            ) from None

    def _plans(self) -> dict[Path, Experiment]:
        """The plans by file; one that cannot be read is left out, because it can be reconstructed from the runs."""
        found = {}
        for path in sorted((self.path / PLANS).glob("*.json")):
            try:
                found[path] = Experiment.stored(checked_json(path.read_bytes())["experiment"])
            except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, FedpickError):
                continue
        return found

    def plans(self) -> list[Experiment]:
        """The plans; reconstructed from the runs if none can be read."""
        return list(self._plans().values()) or self.derived()

    def derived(self) -> list[Experiment]:
        """Plans with exactly the runs that exist."""
        grids: dict[str, dict[str, Any]] = {}
        for folder in self._runs():
            try:
                config = read_manifest(folder)["config"]
                rest = {key: config.get(key) for key in _SHARED} | {"train": config.get("train") or {}}
                rest |= {"world": dict(config["world"]), "code": config.get("code") or {}}
                grid = grids.setdefault(json.dumps(rest, sort_keys=True), {**rest, "seeds_of": {}})
                grid["seeds_of"].setdefault(str(config["policy"]), []).append(int(config["seed"]))
            except (KeyError, TypeError, ValueError, StoreError):
                continue
        found = []
        for grid in grids.values():
            policies_of: dict[tuple[int, ...], list[str]] = {}
            for policy, seeds in grid.pop("seeds_of").items():
                policies_of.setdefault(tuple(sorted(seeds)), []).append(policy)
            found += [Experiment.stored({**grid, "policy": p, "seeds": s}) for s, p in policies_of.items()]
        return found

    def _runs(self) -> list[Path]:
        return sorted(path.parent for path in (self.path / RUNS).glob("*/manifest.json"))

    def entries(self) -> list[Entry]:
        """All runs on the shelf."""
        named: dict[str, list[str]] = {}
        for path in sorted((self.path / PLANS).glob("*.json")):
            for key in _keys(path) or ():
                named.setdefault(key, []).append(path.stem)
        found = []
        for folder in self._runs():
            config = read_manifest(folder)["config"]
            entry = Entry(
                folder=folder,
                label=str(config.get("policy")),
                seed=int(config.get("seed", 0)),
                reached=_reached(folder),
                rounds=int(config.get("rounds", 0)),
                size=sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()),
                plans=tuple(named.get(folder.name.rsplit("_", 1)[-1], ())),
            )
            found.append(entry)
        return found

    def prune(self) -> list[Entry]:
        """Delete and return the runs that no plan contains; raises if a plan cannot be read, or there is none."""
        plans = list((self.path / PLANS).glob("*.json"))
        if not plans or any(_keys(path) is None for path in plans):
            raise ConfigError(
                f"{self.path}: {'a plan in it cannot be read' if plans else 'has no plan'}, so it is not known which "
                "runs are wanted; remove runs by hand, or make a comparison here first"
            )
        gone = [entry for entry in self.entries() if not entry.plans]
        for entry in gone:
            shutil.rmtree(entry.folder)
        return gone


def _keys(plan: Path) -> list[str] | None:
    """Keys of a plan's runs; None if it cannot be read."""
    try:
        return [str(key) for key in checked_json(plan.read_bytes())["runs"]]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _reached(folder: Path) -> int:
    from fedpick.store.tables import reached  # Parquet is an extra

    return reached(folder)
