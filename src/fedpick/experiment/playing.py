"""Carries a plan out: plays what is missing, goes on with what is shorter, touches nothing else."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fedpick import devices
from fedpick.errors import ConfigError, FedpickError, StoreError
from fedpick.experiment import executors
from fedpick.experiment.config import Config
from fedpick.experiment.plan import Experiment
from fedpick.experiment.shelf import Shelf
from fedpick.store.manifest import read_manifest

__all__ = ["Work", "carry_out", "config_of", "folder_of", "work_of"]


@dataclass(frozen=True, eq=False)
class Work:
    """What a plan still asks for."""

    experiment: Experiment
    shelf: Shelf
    configs: list[Config]  # every run that the plan names
    missing: list[Config]  # those to be played, or played on

    @property
    def folders(self) -> list[Path]:
        """Where the plan's runs are."""
        return [self.shelf.folder(config) for config in self.configs]


def work_of(experiment: Experiment, shelf: Shelf, executor: str = "auto", device: str = "auto") -> Work:
    """Look what a plan asks for and what of it is there; a mistake in any of its settings shows now.

    Args:
        experiment: the plan.
        shelf: where its runs are kept.
        executor: where they will be played.
        device: on what; this process leaves a GPU alone that others are to use.
    """
    shelf.check()
    executor = executors.check_names(executor, device)
    if device == "cpu" or executor in ("processes", "ray"):
        devices.stay_on_cpu()
    configs = experiment.configs()
    missing = shelf.missing(configs)
    seen: set[str] = set()
    for config in missing:
        combination = replace(config, seed=0).key
        if combination not in seen:
            seen.add(combination)
            config.build()
    return Work(experiment, shelf, configs, missing)


def folder_of(file: Path) -> Path:
    """Where the run of a configuration file is kept, unless said."""
    return Path("fedpick-runs") / file.stem


def config_of(folder: Path, named: Sequence[str] = ()) -> Config:
    """The configuration of the run in a folder, which can only name code of the user's own: who wants it, says so.

    Args:
        folder: of a run.
        named: what of the user's own may be imported, as "FILE.py:Name".
    """
    if (folder / "compare.json").is_file():
        raise ConfigError(
            f"{folder}: holds a comparison of fedpick before 0.2; `fedpick report {folder}` shows it, and "
            f"`fedpick resume {folder}/POLICY/seed-N` goes on with a run of it"
        )
    said = read_manifest(folder)["config"]
    if "engine" in said:
        raise ConfigError(
            f"{folder}: holds the records of a deployment ({said['engine']}), which its own server goes on with; "
            f"fedpick report {folder} shows them"
        )
    try:
        settings = {"code": {}, **said, "seeds": [said.get("seed", 0)]}
        del settings["seed"]
        return Experiment(**settings).naming(named).configs()[0]
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        if isinstance(error, FedpickError):
            raise
        raise StoreError(
            f"{folder}: its manifest.json is not a run's ({type(error).__name__}: {error}); put the right one back"
        ) from None


def carry_out(
    work: Work,
    *,
    executor: str = "auto",
    workers: int | None = None,
    device: str = "auto",
    tell: Callable[[int, int], None] | None = None,
) -> None:
    """Play what is missing.

    Args:
        work: of a plan.
        executor: where, see `executors.play`.
        workers: processes.
        device: "auto", "cpu" or "gpu".
        tell: called with the index of a run among `work.missing` and the round that it has reached.
    """
    work.shelf.add(work.experiment)
    jobs = [executors.Job(config, work.shelf.folder(config)) for config in work.missing]
    if work.experiment.has_objects and executor not in ("serial", "stacked"):
        executor = "serial"  # objects of this process cannot be named to another
    if jobs:
        executors.play(jobs, executor=executor, workers=workers, device=device, tell=tell)
