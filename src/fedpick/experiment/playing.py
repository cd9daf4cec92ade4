"""Execute a plan: make the runs that are missing, and continue those with too few rounds."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fedpick._support import devices
from fedpick.core.errors import ConfigError, FedpickError, StoreError
from fedpick.experiment import executors
from fedpick.experiment.config import Config
from fedpick.experiment.plan import Experiment
from fedpick.experiment.shelf import Shelf
from fedpick.store.manifest import read_manifest

__all__ = ["Work", "carry_out", "config_of", "folder_of", "work_of"]


@dataclass(frozen=True, eq=False)
class Work:
    """A plan, and its runs that are still to be made."""

    experiment: Experiment
    shelf: Shelf
    configs: list[Config]  # every run of the plan
    missing: list[Config]  # those to make or to continue

    @property
    def folders(self) -> list[Path]:
        """Folders of the plan's runs."""
        return [self.shelf.folder(config) for config in self.configs]


def work_of(
    experiment: Experiment, shelf: Shelf, executor: str = "auto", device: str = "auto", workers: int | None = None
) -> Work:
    """Find the runs of a plan that are missing; a mistake in any setting raises here.

    Args:
        experiment: the plan.
        shelf: folder of the runs.
        executor: that will execute them.
        device: that will be used; this process stays off the GPU if only other processes use it.
        workers: number of processes, which start now in a block of `executors.staying`.
    """
    shelf.check()
    executor = executors.check_names(executor, device, workers)
    if device == "cpu" or executor in ("processes", "ray"):
        devices.stay_on_cpu()
    configs = experiment.configs()
    missing = shelf.missing(configs)
    if not experiment.has_objects:
        executors.get_ready(missing, executor, workers, device)
    seen: set[str] = set()
    for config in missing:
        combination = replace(config, seed=0).key
        if combination not in seen:
            seen.add(combination)
            config.build()
    return Work(experiment, shelf, configs, missing)


def folder_of(file: Path) -> Path:
    """Default folder for the run of a configuration file."""
    return Path("fedpick-runs") / file.stem


def config_of(folder: Path, named: Sequence[str] = ()) -> Config:
    """The configuration of the run in a folder.

    Args:
        folder: of a run.
        named: the user's own code that may be imported, as "FILE.py:Name".
    """
    if (folder / "compare.json").is_file():
        raise ConfigError(
            f"{folder}: holds a comparison of fedpick before 0.2; `fedpick report {folder}` shows it, and "
            f"`fedpick resume {folder}/POLICY/seed-N` continues one of its runs"
        )
    said = read_manifest(folder)["config"]
    if "engine" in said:
        raise ConfigError(
            f"{folder}: holds the records of a deployment ({said['engine']}), which only its server can continue; "
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
            f"{folder}: its manifest.json is not a run's ({type(error).__name__}: {error}); restore it from a backup"
        ) from None


def carry_out(
    work: Work,
    *,
    executor: str = "auto",
    workers: int | None = None,
    device: str = "auto",
    tell: Callable[[int, int], None] | None = None,
) -> None:
    """Execute the missing runs.

    Args:
        work: of a plan.
        executor: see `executors.play`.
        workers: number of processes.
        device: "auto", "cpu" or "gpu".
        tell: called with the index of a run in `work.missing` and its last round.
    """
    work.shelf.add(work.experiment)
    jobs = [executors.Job(config, work.shelf.folder(config)) for config in work.missing]
    if work.experiment.has_objects and executor not in ("serial", "stacked"):
        executor = "serial"  # objects of this process are not sent to another
    if jobs:
        executors.play(jobs, executor=executor, workers=workers, device=device, tell=tell)
