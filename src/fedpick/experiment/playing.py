"""Carries a plan out: plays what is missing, goes on with what is shorter, touches nothing else."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from fedpick.experiment import executors
from fedpick.experiment.config import Config
from fedpick.experiment.plan import Experiment
from fedpick.experiment.shelf import Shelf

__all__ = ["Work", "carry_out", "work_of"]


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


def work_of(experiment: Experiment, shelf: Shelf) -> Work:
    """Look what a plan asks for and what of it is there; a mistake in any of its settings shows now."""
    shelf.check()
    configs = experiment.configs()
    missing = [config for config in configs if shelf.reached(config) < config.rounds]
    seen: set[str] = set()
    for config in missing:
        combination = replace(config, seed=0).key
        if combination not in seen:
            seen.add(combination)
            config.build()
    return Work(experiment, shelf, configs, missing)


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
    if work.experiment.has_objects and executor in ("auto", "processes", "local"):
        executor = "serial"  # objects of this process cannot be named to another
    if jobs:
        executors.play(jobs, executor=executor, workers=workers, device=device, tell=tell)
