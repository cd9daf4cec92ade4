"""Many runs at once: on the cores of this machine, or on a Ray cluster; the records are the same.

`each` maps a function over items in processes; `sweep` runs configurations, each in a folder of its own.
"""

import multiprocessing
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from pathlib import Path
from typing import Any, TypeVar

from fedpick.config import Config
from fedpick.errors import MissingError, unknown_name
from fedpick.store import Folder

__all__ = ["EXECUTORS", "each", "execute", "sweep"]

T = TypeVar("T")
R = TypeVar("R")
EXECUTORS = ("local", "ray")
Tick = Callable[[int, int], None]  # (index of the item, rounds it has reached)


def each(
    function: Callable[[T], R],
    items: Sequence[T],
    *,
    workers: int | None = None,
    executor: str = "local",
    on_done: Callable[[int], None] | None = None,
) -> list[R]:
    """The results of function(item), in order, computed in parallel processes.

    Args:
        function: defined at the top of a module, so that other processes can import it.
        items: one call each.
        workers: processes; None is one per core, 1 stays in this process.
        executor: "local", or "ray" for the Ray cluster that is running (or a local one).
        on_done: called with the index of each item that is done.
    """
    if executor not in EXECUTORS:
        raise unknown_name("executor", executor, list(EXECUTORS))
    if executor == "ray":
        return _on_ray(function, items, on_done)
    count = min(workers or os.cpu_count() or 1, len(items))
    results: dict[int, R] = {}
    if count <= 1:
        for i, item in enumerate(items):
            results[i] = function(item)
            if on_done:
                on_done(i)
        return [results[i] for i in range(len(items))]
    # Spawned, not forked: threads of NumPy and JAX do not survive a fork.
    with ProcessPoolExecutor(count, mp_context=multiprocessing.get_context("spawn")) as pool:
        futures = {pool.submit(function, item): i for i, item in enumerate(items)}
        try:
            pending = set(futures)
            while pending:
                done, pending = wait(pending, return_when=FIRST_COMPLETED)
                for future in done:
                    results[futures[future]] = future.result()
                    if on_done:
                        on_done(futures[future])
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [results[i] for i in range(len(items))]


def _on_ray(function: Callable[[T], R], items: Iterable[T], on_done: Callable[[int], None] | None) -> list[R]:
    try:
        import ray
    except ImportError:
        raise MissingError("--executor ray needs Ray: pip install ray (it comes with flwr[simulation])") from None
    if not ray.is_initialized():
        ray.init(include_dashboard=False, log_to_driver=False, configure_logging=False)
    remote = ray.remote(num_cpus=1)(function)
    order = {remote.remote(item): i for i, item in enumerate(items)}
    results: dict[int, R] = {}
    pending = list(order)
    while pending:
        done, pending = ray.wait(pending)
        for reference in done:
            results[order[reference]] = ray.get(reference)
            if on_done:
                on_done(order[reference])
    return [results[i] for i in range(len(order))]


def execute(config: Config, folder: str | os.PathLike[str], tick: Callable[[int], None] | None = None) -> Path:
    """Run one configuration to its end in its folder, from wherever it is; calls `tick` with rounds reached.

    Interrupted by Ctrl-C, it writes a checkpoint first.
    """
    with Folder(folder, config.plain(), config.checkpoint_every) as store:
        run = config.build()
        run.state = store.restore(run.state, run.world.clients)
        told = time.monotonic()
        try:
            for record in run.rounds(config.rounds):
                store.append(record, run.state)
                if tick and time.monotonic() - told > 0.2:
                    told = time.monotonic()
                    tick(run.state.round)
        except KeyboardInterrupt:
            store.flush(run.state)
            raise
        store.finish(run.state)
        if tick:
            tick(run.state.round)
    return Path(folder)


def _job(job: tuple[dict[str, Any], str, str | None]) -> str:
    """One run in a process of its own; progress goes to a small file that the parent reads."""
    settings, folder, progress = job

    def tick(round: int) -> None:
        if progress:
            Path(progress).write_text(str(round))

    return str(execute(Config(**settings), folder, tick))


def sweep(
    configs: Sequence[Config],
    folders: Sequence[Path],
    *,
    workers: int | None = None,
    executor: str = "local",
    on_done: Callable[[int], None] | None = None,
) -> Iterator[Path]:
    """Run configurations in parallel, each in its folder; yields the folders in order when all are done."""
    jobs = [
        (config.plain(), str(folder), str(folder) + ".progress")
        for config, folder in zip(configs, folders, strict=True)
    ]
    for folder in folders:
        folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        yield from (Path(p) for p in each(_job, jobs, workers=workers, executor=executor, on_done=on_done))
    finally:
        for job in jobs:
            Path(str(job[2])).unlink(missing_ok=True)
