"""Many runs at once: on the cores of this machine, or on a Ray cluster; the records are the same.

`each` maps a function over items in processes; `sweep` runs configurations, each in a folder of its own.
"""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

from fedpick import devices
from fedpick.errors import FedpickError, MissingError, require, unknown_name
from fedpick.experiment.config import Config
from fedpick.store import Folder

__all__ = ["EXECUTORS", "each", "execute", "sweep"]

T = TypeVar("T")
R = TypeVar("R")
EXECUTORS = ("local", "ray")
PATIENCE = 10.0  # seconds that processes get to end a round and write a checkpoint


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

    Args:
        function: defined at the top of a module, so that other processes can import it.
        items: one call each.
        workers: processes; None is one per core, 1 stays in this process.
        executor: "local", or "ray" for the Ray cluster that is running (or a local one).
        on_result: called in this process with the index and the result of each item as soon as it is done.
        on_done: called with the index of each item that is done.
    """

    def told(i: int, result: R) -> None:
        if on_result:
            on_result(i, result)
        if on_done:
            on_done(i)

    if executor not in EXECUTORS:
        raise unknown_name("executor", executor, list(EXECUTORS))
    require(workers is None or workers >= 1, "workers", workers, "a number of processes >= 1", "None is one per core")
    if executor == "ray":
        return _on_ray(function, items, told)
    count = min(workers or os.cpu_count() or 1, len(items))
    results: dict[int, R] = {}
    if count <= 1:
        for i, item in enumerate(items):
            results[i] = function(item)
            told(i, results[i])
        return [results[i] for i in range(len(items))]
    # Spawned, not forked: threads of NumPy and JAX do not survive a fork.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(count, mp_context=context, initializer=_settle) as pool:
        try:
            futures = {pool.submit(function, item): i for i, item in enumerate(items)}
            pending = set(futures)
            while pending:
                done, pending = wait(pending, return_when=FIRST_COMPLETED)
                for future in done:
                    results[futures[future]] = future.result()
                    told(futures[future], results[futures[future]])
        except BrokenProcessPool:
            _stop(pool)
            raise FedpickError(
                f"one of {count} processes was killed before its work was done, perhaps for want of memory; what was "
                "written before is whole. Go on with fewer workers"
            ) from None
        except BaseException:
            _stop(pool)
            raise
    return [results[i] for i in range(len(items))]


def _settle() -> None:
    """Make a new process leave Ctrl-C to its parent, and end when the parent does, however that ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    devices.reserve(1)  # the processes share the cores
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _stop(pool: ProcessPoolExecutor) -> None:
    """End a pool's processes now: they are told to, and killed if they take too long."""
    processes = list((pool._processes or {}).values())
    pool.shutdown(wait=False, cancel_futures=True)
    for process in processes:
        process.terminate()
    until = time.monotonic() + PATIENCE
    for process in processes:
        process.join(max(0.0, until - time.monotonic()))
        if process.is_alive():
            process.kill()


def _on_ray(function: Callable[[T], R], items: Iterable[T], told: Callable[[int, R], None]) -> list[R]:
    try:
        import ray
    except ImportError:
        raise MissingError("--executor ray needs Ray: pip install ray (it comes with flwr[simulation])") from None
    ours = not ray.is_initialized()
    if ours:
        # Without it Ray hides accelerators from tasks that ask for none, and warns that it will stop doing so.
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        ray.init(include_dashboard=False, log_to_driver=False, configure_logging=False)
    results: dict[int, R] = {}
    try:
        one = {"env_vars": {"XLA_FLAGS": devices.flags(1)}}  # the tasks share the cores
        remote = ray.remote(num_cpus=1, max_retries=0, runtime_env=one)(function)
        order = {remote.remote(item): i for i, item in enumerate(items)}
        pending = list(order)
        try:
            while pending:
                done, pending = ray.wait(pending)
                for reference in done:
                    results[order[reference]] = ray.get(reference)
                    told(order[reference], results[order[reference]])
        except BaseException:
            for reference in pending:
                ray.cancel(reference, force=True)
            raise
    except ray.exceptions.RayTaskError as error:
        raise (error.cause if isinstance(error.cause, FedpickError) else error) from None
    finally:
        if ours:
            ray.shutdown()
    return [results[i] for i in range(len(order))]


@contextmanager
def _patient() -> Iterator[list[int]]:
    """Let a first signal to stop wait for the end of the round; holds the signals that came."""
    came: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        came.append(number)
        if len(came) > 1:
            raise KeyboardInterrupt

    before: dict[signal.Signals, Any] = {}
    if threading.current_thread() is threading.main_thread():  # others cannot, and get no signals
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) not in (signal.SIG_IGN, None):
                before[number] = signal.signal(number, note)
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _obey(signals: list[int]) -> None:
    if signals:
        raise KeyboardInterrupt if signals[0] == signal.SIGINT else SystemExit(128 + signals[0])


def execute(config: Config, folder: str | os.PathLike[str], tick: Callable[[int], None] | None = None) -> Path:
    """Run one configuration to its end in its folder, from wherever it is; calls `tick` with rounds reached.

    Told to stop (Ctrl-C, or SIGTERM), it ends the round and writes a checkpoint; told twice, it stops at once, and
    what came after the last checkpoint is replayed when it goes on.
    """
    run = config.build()
    with Folder(folder, config.as_dict(), config.checkpoint_every) as store, _patient() as signals:
        run.state = store.restore(run.state, run.world.clients)
        told = time.monotonic()
        for record in run.rounds(config.rounds):
            store.append(record, run.state)
            if signals:
                store.flush(run.state)
                _obey(signals)
            if tick and time.monotonic() - told > 0.2:
                told = time.monotonic()
                tick(run.state.round)
        store.finish(run.state)
        if tick:
            tick(run.state.round)
        _obey(signals)
    return Path(folder)


def _job(job: tuple[dict[str, Any], str, str | None]) -> str:
    """One run in a process of its own; progress goes to a small file that the parent reads."""
    settings, folder, progress = job

    def tick(round: int) -> None:
        if progress:
            with suppress(OSError):  # not worth a run
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
        (config.as_dict(), str(Path(folder).absolute()), str(Path(folder).absolute()) + ".progress")
        for config, folder in zip(configs, folders, strict=True)
    ]
    try:
        each(_job, jobs, workers=workers, executor=executor, on_done=on_done)
        yield from map(Path, folders)
    finally:
        for job in jobs:
            with suppress(OSError):
                Path(str(job[2])).unlink()
