"""Map a function over items: in this process, in parallel processes, or on a Ray cluster."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from fedpick.core.errors import FedpickError
from fedpick.experiment import executors
from fedpick.experiment.executors import cluster, processes

__all__ = ["call_each"]

T = TypeVar("T")
R = TypeVar("R")


def call_each(
    function: Callable[[T], R],
    items: Sequence[T],
    *,
    workers: int | None = None,
    executor: str = "processes",
    on_result: Callable[[int, R], None] | None = None,
    variables: Mapping[str, str] | None = None,
) -> list[R]:
    """The results of function(item), in order, computed in parallel processes.

    After a signal to stop, it raises Stopped when the processes have ended; `on_result` has got all results until then.

    Args:
        function: defined at the top level of a module, so that other processes can import it.
        items: one call each.
        workers: number of processes; None: one per core; 1: this process.
        executor: "processes", "serial" (this process), or "ray" (the running Ray cluster, else a local
            one); other executors behave as "processes".
        on_result: called in this process with the index and the result of each item as soon as it is done.
        variables: for the environment of processes on this machine.
    """
    executors.check_names(executor, workers=workers)
    results: dict[int, R] = {}

    def done(index: int, result: R) -> None:
        results[index] = result
        if on_result:
            on_result(index, result)

    count = min(workers or executors.cores(), len(items))
    if executor == "ray":
        _on_ray(function, items, done)
    elif count <= 1 or executor == "serial":
        for i, item in enumerate(items):
            done(i, function(item))
    else:
        with executors.patient() as stop:
            call = partial(_call, function)
            around = executors.environment() | dict(variables or {})
            for i, result in processes.in_processes(call, items, count, stop, _nothing, around):
                if isinstance(result, processes.Failure):
                    raise result.error or FedpickError(f"one of {count} processes {executors.KILLED}")
                done(i, result)
    return [results[i] for i in range(len(items))]


def _on_ray(function: Callable[[T], R], items: Sequence[T], done: Callable[[int, R], None]) -> None:
    """Call `done` with the index and result of each function(item) when it is there; lost calls are repeated."""
    with executors.patient() as stop, cluster.connected_ray() as ray:
        one = {"env_vars": executors.environment()}  # the tasks share the cores
        remote = ray.remote(num_cpus=1, max_retries=cluster.TRIES - 1, runtime_env=one)(function)
        order = {remote.remote(item): i for i, item in enumerate(items)}
        pending = list(order)
        try:
            while pending:
                stop.obey()
                ready, pending = ray.wait(pending, timeout=0.2)
                for reference in ready:
                    done(order[reference], ray.get(reference))
        except ray.exceptions.RayTaskError as error:
            raise (error.cause if isinstance(error.cause, FedpickError) else error) from None
        finally:
            for reference in pending:
                ray.cancel(reference, force=True)


def _call(function: Callable[[T], R], item: T, tell: Any) -> R:
    return function(item)


def _nothing(index: int, value: Any) -> None:
    pass
