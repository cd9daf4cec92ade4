"""A batch: jobs executed by one process, which may be this one, another one, or on another machine."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedpick.experiment.config import Config
from fedpick.experiment.executors.job import Job, Listener, OpenRun
from fedpick.experiment.executors.signals import Stop, patient

__all__ = ["Batch", "execute", "play_batch"]


@dataclass(frozen=True)
class Batch:
    """Numbered jobs for one process; stacked, or one after another."""

    jobs: tuple[tuple[int, Job], ...]
    stacked: bool = False


def play_batch(batch: Batch, stop: Stop, listen: Listener) -> dict[int, Exception]:
    """Execute the jobs of a batch in this process; returns the errors by number."""
    if batch.stacked:
        from fedpick.experiment.executors.stacked import play_stacked  # needs JAX

        return play_stacked(batch.jobs, stop, listen)
    errors: dict[int, Exception] = {}
    for number, job in batch.jobs:
        try:
            _play(number, job, stop, listen)
        except Exception as error:
            errors[number] = error
    return errors


def execute(
    config: Config,
    folder: str | os.PathLike[str],
    tick: Callable[[int], None] | None = None,
    about: dict[str, Any] | None = None,
) -> Path:
    """Execute one run in its folder until it is complete, continuing what exists; calls `tick` with the last round.

    After a signal to stop (Ctrl-C, or SIGTERM), it finishes the round, writes a checkpoint and raises Stopped. A second
    signal after two seconds stops it at once; rounds after the last checkpoint are then played again on resume.
    """
    listen = Listener() if tick is None else Listener(lambda _, round: tick(round))
    with patient() as stop:
        _play(0, Job(config, Path(folder), about or {}), stop, listen)
    return Path(folder)


def _play(number: int, job: Job, stop: Stop, listen: Listener) -> None:
    run = OpenRun(number, job, stop, listen)
    with run.store:
        if run.round < job.config.rounds:
            run.note("alone")
            listen.tick(number, run.round)  # the first round compiles, which may take seconds
        for record in run.simulation.rounds(job.config.rounds):
            run.keep(record)
            if stop.signal is not None:
                run.save()
                break
            if listen.due():
                listen.tick(number, run.round)
        if run.round >= job.config.rounds:
            run.end()
    stop.obey()
