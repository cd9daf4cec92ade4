"""A batch: jobs that one process plays, here, in another process, or on another machine."""

from dataclasses import dataclass

from fedpick.experiment.executors.alone import Job, Listener, play_alone
from fedpick.experiment.executors.stopping import Stop

__all__ = ["Batch", "play_batch"]


@dataclass(frozen=True)
class Batch:
    """Jobs with their numbers, played in one process; stacked, or one after another."""

    jobs: tuple[tuple[int, Job], ...]
    stacked: bool = False


def play_batch(batch: Batch, stop: Stop, listen: Listener) -> dict[int, Exception]:
    """Play the jobs of a batch in this process; gives the errors of those that have one."""
    if not batch.stacked:
        return play_alone(batch.jobs, stop, listen)
    from fedpick.experiment.executors.stacked import play_stacked  # needs JAX

    return play_stacked(batch.jobs, stop, listen)
