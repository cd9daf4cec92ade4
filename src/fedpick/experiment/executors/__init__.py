"""Execute runs: in this process one after another, in processes, stacked on one device, or on a Ray cluster.

`execute` makes one run in this process; `play` makes many runs, each in its folder.
On a CPU all executors give the same bytes, except "stacked", which sums products in a different order: while the runs
choose the same clients, losses after a dozen rounds agree to a relative 1e-4 (float32) with those of single runs. Such
a difference can make a policy that reads losses choose differently, as can another machine.
"""

import os
from collections.abc import Callable, Sequence
from typing import Any

from fedpick._support import user_code
from fedpick._support.devices import cores, environment
from fedpick.core.errors import FedpickError
from fedpick.experiment.config import Config
from fedpick.experiment.executors import cluster, processes
from fedpick.experiment.executors.assignment import assign, check_names, kind_of_device, processes_for, take_device
from fedpick.experiment.executors.batch import Batch, execute, play_batch
from fedpick.experiment.executors.job import Job, Listener
from fedpick.experiment.executors.processes import staying
from fedpick.experiment.executors.signals import Stop, Stopped, patient

__all__ = ["Job", "Stopped", "check_names", "cores", "environment", "execute", "get_ready", "kind_of_device"]
__all__ += ["patient", "play", "staying", "take_device"]

AHEAD = ("fedpick.learn.settings", "fedpick.data.settings", "fedpick.store", "numba")  # what runs that train import
WITH_JAX = "fedpick.learn.jax.forms"
KILLED = (
    "was killed before its work was done, perhaps because memory ran out; files written before are intact. Continue "
    "with fewer workers"
)


def _nothing(index: int, value: Any) -> None:
    pass


def play(
    jobs: Sequence[Job],
    *,
    executor: str = "auto",
    workers: int | None = None,
    device: str = "auto",
    tell: Callable[[int, int], None] | None = None,
) -> None:
    """Execute runs until they are complete, each in its folder, continuing what exists.

    After a signal to stop (Ctrl-C or SIGTERM), all runs finish their round and write a checkpoint, no other run is
    begun, and Stopped is raised. If a run fails, the others are completed before the first error is raised.

    Args:
        jobs: the runs and their folders.
        executor: "serial": one after another in this process; "processes": in parallel processes; "stacked": many runs
            in one compiled call; "ray": on a Ray cluster. "auto": stacked on a GPU, else processes,
            or serial where little is to be done and nothing is trained.
        workers: number of processes, or of concurrent tasks on Ray; None: one per core; 1 with "auto" is "serial".
        device: "cpu", "gpu", or "auto": a GPU if there is one. Runs without training always use the CPU, and with
            "auto" a run continues on the kind of device that it was begun on.
        tell: called in this process with a job's index and its last round, from time to time and at the end.
    """
    check_names(executor, device, workers)
    errors: dict[int, Exception] = {}
    listen = Listener(tell or _nothing)
    with patient() as stop:
        if executor == "ray":
            errors = cluster.play_on_ray(jobs, device, workers, stop, listen)
        else:
            for part in assign(jobs, executor, device, workers):
                if part.here:
                    for batch in part.batches:
                        errors |= play_batch(batch, stop, listen)
                else:
                    errors |= _elsewhere(part.batches, part.workers, stop, listen)
        stop.obey()
    if errors:
        first = min(errors)
        raise named(jobs[first], errors[first])


def get_ready(configs: Sequence[Config], executor: str, workers: int | None, device: str) -> None:
    """In a block of `staying`, start the processes that will play these runs: they import what they need meanwhile."""
    count = processes_for(configs, executor, device, workers)
    if count:
        jax = (WITH_JAX,) if any(map(_may_need_jax, configs)) else ()
        processes.hire_ahead(count, environment(), (*AHEAD, *jax))


def _may_need_jax(config: Config) -> bool:
    """Whether fedpick's trainer has a model by name: one of the user's own may be PyTorch's."""
    return "trainer" not in config.train and not user_code.is_reference(config.train.get("model", ""))


def _elsewhere(batches: Sequence[Batch], count: int, stop: Stop, listen: Listener) -> dict[int, Exception]:
    errors: dict[int, Exception] = {}

    def tell(_: int, value: tuple[int, int]) -> None:
        listen.tick(*value)

    variables = environment()
    for i, result in processes.in_processes(_batch_in_process, batches, count, stop, tell, variables):
        if not isinstance(result, processes.Failure):
            errors |= result
            continue
        error = result.error or FedpickError(f"its process {KILLED}")
        errors |= {number: error for number, _ in batches[i].jobs}
    return errors


def _batch_in_process(batch: Batch, tell: Callable[[Any], None]) -> dict[int, Exception]:
    with patient() as stop:
        errors = play_batch(batch, stop, Listener(lambda number, round: tell((number, round))))
    return {number: processes.portable(error) for number, error in errors.items()}


def named(job: Job, error: Exception) -> Exception:
    """A run's error, with the policy and the seed of the run."""
    run = f"{job.config.policy}, seed {job.config.seed}"
    if isinstance(error, FedpickError):
        try:
            return type(error)(f"{run}: {error}")
        except TypeError:  # a class with other arguments
            return FedpickError(f"{run}: {error}")
    error.add_note(f"in the run of {run}, in {os.fspath(job.folder)}")
    return error
