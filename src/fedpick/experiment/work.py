"""The work that a plan asks for: runs that are missing, and runs with too few rounds."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedpick._support import devices
from fedpick.experiment import executors
from fedpick.experiment.config import Config
from fedpick.experiment.plan import Experiment
from fedpick.experiment.shelf import Shelf

__all__ = ["Work", "work_of"]

KEPT = 100_000  # clients of checked runs that wait in memory to be played; each takes about 200 bytes


@dataclass(frozen=True)
class Work:
    """The runs of a plan, and what is still to do.

    Args:
        configs: of every run of the plan.
        folders: of the runs.
        jobs: runs to make or to continue.
        executor: that can execute them.
    """

    configs: list[Config]
    folders: list[Path]
    jobs: list[executors.Job]
    executor: str


def work_of(
    experiment: Experiment, shelf: Shelf, executor: str = "auto", device: str = "auto", workers: int | None = None
) -> Work:
    """Store a plan on a shelf, and find its runs that are missing; a mistake in any setting raises here.

    Args:
        experiment: the plan.
        shelf: folder of the runs.
        executor: that will execute them, see `executors.play`.
        device: that will be used; this process stays off the GPU if only other processes use it.
        workers: number of processes, which start now in a block of `executors.staying`.
    """
    shelf.check()
    executors.check_names(executor, device, workers)
    if device == "cpu" or executor in ("processes", "ray"):
        devices.stay_on_cpu()
    configs = experiment.configs()
    missing = shelf.missing(configs)
    if experiment.has_objects and executor not in ("serial", "stacked"):
        executor = "serial"  # objects of this process are not sent to another
    executors.get_ready(missing, executor, workers, device)
    _check(missing)
    shelf.add(experiment)
    folders = {config.key: shelf.folder(config) for config in configs}
    jobs = [executors.Job(config, folders[config.key]) for config in missing]
    return Work(configs, list(folders.values()), jobs, executor)


def _check(configs: Sequence[Config]) -> None:
    """Build a run of each combination of settings, so that a mistake raises before anything is played.

    The runs are kept to be played, so that they are built once; a run that trains only if it is the only one, because
    several may not fit into memory.
    """
    seen: set[str] = set()
    room = KEPT
    for config in configs:
        if config.combination in seen:
            continue
        seen.add(config.combination)
        run = config.build()
        room -= len(run.world.clients)
        if len(configs) == 1 or (config.data is None and room >= 0):
            config.keep(run)
