"""Where runs are played: here one after another, in processes, stacked on one device, or on a Ray cluster.

`each` maps a function over items; `execute` plays one run here; `play` plays many jobs, each in its folder. On a CPU
the same bytes come out of all but "stacked", whose products add up in another order: while the runs choose the same
clients, losses after a dozen rounds agree with those of runs played alone to 1e-4, relative (float32). A policy that
reads losses may choose otherwise on such a difference, as it may on another machine.
"""

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from fedpick import devices
from fedpick.devices import DEVICES
from fedpick.errors import FedpickError
from fedpick.experiment.executors import cluster, processes
from fedpick.experiment.executors.alone import Job, Listener, execute
from fedpick.experiment.executors.batch import Batch, play_batch
from fedpick.experiment.executors.choosing import EXECUTORS, check_names, deal_out
from fedpick.experiment.executors.stopping import Stop, Stopped, patient

__all__ = ["DEVICES", "EXECUTORS", "Job", "Stopped", "check_names", "each", "execute", "play"]

T = TypeVar("T")
R = TypeVar("R")


def each(
    function: Callable[[T], R],
    items: Sequence[T],
    *,
    workers: int | None = None,
    executor: str = "local",
    on_result: Callable[[int, R], None] | None = None,
    on_done: Callable[[int], None] | None = None,
) -> list[R]:
    """The results of function(item), in order, computed in parallel processes.

    Told to stop, it raises Stopped when the processes have ended; what was given to `on_result` is not lost.

    Args:
        function: defined at the top of a module, so that other processes can import it.
        items: one call each.
        workers: processes; None is one per core, 1 stays in this process.
        executor: "processes" (or "local"), "serial" for this process, or "ray" for the Ray cluster that is running
            (or a local one); the others are as "processes".
        on_result: called here with the index and the result of each item as it is done.
        on_done: called with the index alone.
    """
    executor = check_names(executor, workers=workers)
    results: dict[int, R] = {}

    def done(index: int, result: R) -> None:
        results[index] = result
        if on_result:
            on_result(index, result)
        if on_done:
            on_done(index)

    count = min(workers or devices.cores(), len(items))
    if executor == "ray":
        with patient() as stop:
            cluster.each_on_ray(function, items, stop, done)
    elif count <= 1 or executor == "serial":
        for i, item in enumerate(items):
            done(i, function(item))
    else:
        with patient() as stop:
            call = partial(_plainly, function)
            variables = devices.environment()
            for i, result in processes.in_processes(call, items, count, stop, _nothing, variables):
                if not isinstance(result, processes.Failed):
                    done(i, result)
                elif result.error is not None:
                    raise result.error
                else:
                    raise FedpickError(
                        f"one of {count} processes was killed before its work was done, perhaps for want of memory; "
                        "what was written before is whole. Go on with fewer workers"
                    )
    return [results[i] for i in range(len(items))]


def _plainly(function: Callable[[T], R], item: T, tell: Any) -> R:
    return function(item)


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
    """Play runs to their ends, each in its folder, from wherever it is.

    Told to stop (Ctrl-C or SIGTERM), all runs end their round and write a checkpoint, nothing new begins, and Stopped
    is raised. If a run has an error, the others go on to their ends before the first error is raised.

    Args:
        jobs: what is played, and where it is kept.
        executor: "serial": here, one after another; "processes": on the cores; "stacked": many runs in one compiled
            call; "ray": on a Ray cluster. "auto": stacked on a GPU, else processes.
        workers: processes, or tasks at a time on Ray; None is one per core, 1 is "serial" unless another is named.
        device: "cpu", "gpu", or "auto": a GPU if there is one. Runs that train nothing are always played on the CPU,
            and a run that was begun on one kind of device goes on there unless another is named.
        tell: called here with a job's index and the rounds that it has reached, now and then and at its end.
    """
    executor = check_names(executor, device, workers)
    errors: dict[int, Exception] = {}
    listen = Listener(tell or _nothing)
    with patient() as stop:
        if executor == "ray":
            errors = cluster.play_on_ray(jobs, device, workers, stop, listen)
        else:
            for plan in deal_out(jobs, executor, device, workers):
                if plan.here:
                    for batch in plan.batches:
                        errors |= play_batch(batch, stop, listen)
                else:
                    errors |= _elsewhere(plan.batches, plan.workers, stop, listen)
        stop.obey()
    if errors:
        first = min(errors)
        raise named(jobs[first], errors[first])


def _elsewhere(batches: Sequence[Batch], count: int, stop: Stop, listen: Listener) -> dict[int, Exception]:
    errors: dict[int, Exception] = {}

    def tell(_: int, value: tuple[int, int]) -> None:
        listen.tick(*value)

    variables = devices.environment()
    for i, result in processes.in_processes(_batch_in_process, batches, count, stop, tell, variables):
        if not isinstance(result, processes.Failed):
            errors |= result
            continue
        error = result.error or FedpickError(
            "its process was killed before its work was done, perhaps for want of memory; what was written before is "
            "whole. Go on with fewer workers"
        )
        errors |= {number: error for number, _ in batches[i].jobs}
    return errors


def _batch_in_process(batch: Batch, tell: Callable[[Any], None]) -> dict[int, Exception]:
    with patient() as stop:
        errors = play_batch(batch, stop, Listener(lambda number, round: tell((number, round))))
    return {number: processes.portable(error) for number, error in errors.items()}


def named(job: Job, error: Exception) -> Exception:
    """The error of a run with what the run is."""
    run = f"{job.config.policy}, seed {job.config.seed}"
    if isinstance(error, FedpickError):
        try:
            return type(error)(f"{run}: {error}")
        except TypeError:  # a class of its own
            return FedpickError(f"{run}: {error}")
    error.add_note(f"in the run of {run}, in {os.fspath(job.folder)}")
    return error
