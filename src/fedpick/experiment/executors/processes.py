"""Parallel processes on this machine: each gets one item at a time, so that no item is begun after a stop."""

import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from importlib import import_module
from multiprocessing import connection
from multiprocessing.reduction import ForkingPickler
from types import ModuleType
from typing import Any, TypeVar

from fedpick.core.errors import FedpickError
from fedpick.experiment.executors.signals import Stop, Stopped

__all__ = ["Failure", "hire_ahead", "in_processes", "portable", "staying"]

T = TypeVar("T")
R = TypeVar("R")
PATIENCE = 8.0  # seconds for processes to finish a round and write a checkpoint
Tell = Callable[[Any], None]


@dataclass(frozen=True)
class Failure:
    """An item without a result.

    Args:
        error: what it raised; None: its process was killed.
    """

    error: Exception | None


@dataclass
class _Worker:
    process: Any
    pipe: connection.Connection
    start: tuple[Mapping[str, str], bool]  # its environment, and whether it imported the script
    at: int | None = None  # index of its current item


_IDLE: ContextVar[list[_Worker] | None] = ContextVar("idle", default=None)


@contextmanager
def staying() -> Iterator[None]:
    """Processes that are started in this block are used again by its later calls, and end with the outermost block.

    A process takes seconds to start and to load compiled code.
    """
    if _IDLE.get() is not None:
        yield
        return
    idle: list[_Worker] = []
    token = _IDLE.set(idle)
    try:
        yield
    finally:
        _IDLE.reset(token)
        _end(idle, patience=0.0)  # they have nothing left to write, and would need a second to exit


def hire_ahead(count: int, variables: Mapping[str, str], modules: Sequence[str]) -> None:
    """In a block of `staying`, start processes that will be needed soon, unless some have stayed.

    Args:
        count: number of processes.
        variables: for their environment.
        modules: that they import at once.
    """
    idle = _IDLE.get()
    if idle is not None and not idle:
        idle += [_hire(variables, with_main=False, modules=modules) for _ in range(count)]


def in_processes(
    function: Callable[[T, Tell], R],
    items: Sequence[T],
    count: int,
    stop: Stop,
    tell: Callable[[int, Any], None],
    variables: Mapping[str, str],
) -> Iterator[tuple[int, R | Failure]]:
    """Yield (index, result) of function(item, tell) as soon as each is there; raises Stopped after a signal to stop.

    To stop, processes get SIGTERM, which ends them at once or, during a run, at the end of the round. Results until
    then are yielded, too.

    Args:
        function: defined at the top level of a module, so that other processes can import it. It may call
            `tell(value)`.
        items: one call each.
        count: number of processes.
        stop: knows whether to stop.
        tell: called in this process with an item's index and the value that its function gave to `tell`.
        variables: for the environment of the processes.
    """
    waiting = deque(enumerate(items))
    with_main = any(b"__main__" in bytes(ForkingPickler.dumps((function, item))) for item in items)
    crew: list[_Worker] = []
    idle = _IDLE.get()
    stopped = 0.0  # when the processes were told to stop
    over = False
    try:
        while True:
            if stop.signal is not None and not stopped:
                stopped = time.monotonic()
                waiting.clear()
                _terminate(crew)
            for worker in crew:
                if worker.at is None and waiting:
                    _hand(worker, function, waiting)
            while waiting and len(crew) < count:
                crew.append(_recall(idle, (variables, with_main)) or _hire(variables, with_main))
                _hand(crew[-1], function, waiting)
            over = all(worker.at is None for worker in crew)
            if over or (stopped and time.monotonic() - stopped > PATIENCE):
                break
            for pipe in connection.wait([worker.pipe for worker in crew], timeout=0.1):
                worker = next(worker for worker in crew if worker.pipe is pipe)
                index = worker.at
                try:
                    what, value = worker.pipe.recv()
                except (EOFError, OSError):  # it ended
                    crew.remove(worker)
                    _end([worker], patience=1.0)
                    what, value = ("stopped", None) if stopped else ("result", Failure(None))
                if what == "value" and index is not None:
                    tell(index, value)
                elif what == "result" and index is not None:
                    worker.at = None
                    yield index, value
        stop.obey()
    finally:
        if not over:
            _terminate(crew)
        if over and not stopped and idle is not None:
            idle += crew
        else:
            _end(crew, patience=0.0 if stopped else PATIENCE)  # after a stop they have had this time already


def _recall(idle: list[_Worker] | None, start: tuple[Mapping[str, str], bool]) -> _Worker | None:
    """A process that has stayed and is alive, if there is one that was started this way."""
    found = [worker for worker in idle or () if worker.start == start and worker.process.is_alive()]
    if not found or idle is None:
        return None
    idle.remove(found[0])
    return found[0]


def _hire(variables: Mapping[str, str], with_main: bool, modules: Sequence[str] = ()) -> _Worker:
    # Spawned, not forked: threads of NumPy and JAX do not survive a fork.
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, modules), daemon=True)
    main = nullcontext() if with_main else _without_main()
    with _environment(variables), _without_ctrl_c(), main:  # before the new process imports anything
        process.start()
    theirs.close()  # so that reading from `ours` ends when the process does
    return _Worker(process, ours, (dict(variables), with_main))


def _hand(worker: _Worker, function: Callable[..., Any], waiting: "deque[tuple[int, Any]]") -> None:
    worker.at, item = waiting.popleft()
    with suppress(BrokenPipeError):  # it died, which is noticed when its pipe is read
        worker.pipe.send((function, item))


def _terminate(crew: Sequence[_Worker]) -> None:
    for worker in crew:
        worker.process.terminate()


def _end(crew: Sequence[_Worker], patience: float) -> None:
    """End processes by closing their pipes; kill those that take too long."""
    until = time.monotonic() + patience
    try:
        for worker in crew:
            worker.pipe.close()
        for worker in crew:
            worker.process.join(max(0.0, until - time.monotonic()))
    finally:
        for worker in crew:
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _without_ctrl_c() -> Iterator[None]:
    """Processes started in this block ignore Ctrl-C, which a terminal sends to all; only this process handles it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _without_main() -> Iterator[None]:
    """Processes started in this block do not import the script that was started.

    A script without `if __name__ == "__main__"` would begin again in each of them.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


# ---- in the other process


def _serve(pipe: connection.Connection, modules: Sequence[str]) -> None:
    """Import these modules, then process items from the pipe until it is closed."""
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)  # however the parent ended

    threading.Thread(target=watch, daemon=True).start()
    for name in modules:
        with suppress(ImportError):  # an item that needs it will say so
            import_module(name)
    with suppress(EOFError, BrokenPipeError, Stopped):  # the parent closed the pipe or died
        while True:
            pipe.send_bytes(_attempt(pipe))


def _attempt(pipe: connection.Connection) -> Any:
    """The result of the next item, pickled."""
    data = pipe.recv_bytes()
    try:
        function, item = pickle.loads(data)
        result = function(item, lambda value: pipe.send(("value", value)))
        return ForkingPickler.dumps(("result", result))
    except Exception as error:
        return ForkingPickler.dumps(("result", Failure(portable(error))))


def portable(error: Exception) -> Exception:
    """An error that can be pickled; one that is not a FedpickError gets its traceback as a note."""
    if not isinstance(error, FedpickError):
        error.add_note("in another process:\n" + "".join(traceback.format_exception(error)))
    try:
        pickle.loads(pickle.dumps(error))
        return error
    except Exception:  # of a class that cannot be pickled
        return FedpickError("".join(traceback.format_exception_only(error)).strip())
