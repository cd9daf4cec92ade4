"""A batch: jobs executed by one process, which may be this one, another one, or on another machine."""

from dataclasses import dataclass

from fedpick.experiment.executors.alone import Job, Listener, play_alone
from fedpick.experiment.executors.stopping import Stop

__all__ = ["Batch", "play_batch"]


@dataclass(frozen=True)
class Batch:
    """Numbered jobs for one process; stacked, or one after another."""

    jobs: tuple[tuple[int, Job], ...]
    stacked: bool = False


def play_batch(batch: Batch, stop: Stop, listen: Listener) -> dict[int, Exception]:
    """Execute the jobs of a batch in this process; returns the errors by number."""
    if not batch.stacked:
        return play_alone(batch.jobs, stop, listen)
    from fedpick.experiment.executors.stacked import play_stacked  # needs JAX

    return play_stacked(batch.jobs, stop, listen)
