"""Execute many runs in one process, with their cohorts stacked into one compiled call; each has its own folder.

Runs that can be stacked form a group. In a group, runs with fewer rounds are executed first, until they reach the round
of others; then they continue together.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor

from fedpick._support import devices
from fedpick.core.errors import FedpickError
from fedpick.engine.paces import Rounds
from fedpick.experiment.executors.job import Job, Listener, OpenRun
from fedpick.experiment.executors.signals import Stop
from fedpick.learn.trainer import Trainer
from fedpick.simulate.together import RunError, blame, difference, of_device, play_together

__all__ = ["play_stacked"]

OPEN = 256  # runs at a time: each keeps a file open, its lock
Errors = dict[int, Exception]


def play_stacked(jobs: Sequence[tuple[int, Job]], stop: Stop, listen: Listener) -> Errors:
    """Execute numbered jobs, stacked where possible; returns the errors by number."""
    errors: Errors = {}
    for start in range(0, len(jobs), OPEN):
        runs: list[OpenRun] = []
        try:
            for number, job in jobs[start : start + OPEN]:
                _open(number, job, stop, listen, runs, errors)
            for group in _groups(runs):
                _play_group(group, stop, listen, errors)
        finally:
            for run in runs:
                run.store.close()
    return errors


def _open(number: int, job: Job, stop: Stop, listen: Listener, runs: list[OpenRun], errors: Errors) -> None:
    try:
        runs.append(OpenRun(number, job, stop, listen))
    except Exception as error:
        errors[number] = error


def _groups(runs: Sequence[OpenRun]) -> list[list[OpenRun]]:
    """Group runs that can be stacked; the others form groups of one."""
    groups: list[list[OpenRun]] = []
    for run in runs:
        trainer = run.simulation.trainer
        for group in groups:
            other = group[0].simulation.trainer
            if len({isinstance(each.simulation.pace, Rounds) for each in (run, group[0])}) > 1:
                continue  # a move of the model is no round
            if isinstance(trainer, Trainer) and isinstance(other, Trainer) and difference(other, trainer) is None:
                group.append(run)
                break
        else:
            groups.append([run])
    return groups


def _play_group(runs: Sequence[OpenRun], stop: Stop, listen: Listener, errors: Errors) -> None:
    limit, going = len(runs), list(runs)
    try:
        while going:
            stack, until = _next(going, limit)
            again: list[OpenRun] = []
            try:
                _play_stack(stack, until, stop, listen)
                again = [run for run in stack if run.round < run.job.config.rounds]
                going = [run for run in going if run not in stack or run in again]
                continue
            except RunError as error:  # of one run; the others were interrupted in the middle of the round
                errors[stack[error.index].number] = error.error
                again = [run for i, run in enumerate(stack) if i != error.index]
            except Exception as error:
                if not of_device(error):
                    errors |= {run.number: error for run in stack}
                elif "RESOURCE_EXHAUSTED" in str(error) and len(stack) > 1:
                    limit, again = (len(stack) + 1) // 2, stack
                else:
                    errors |= {run.number: _explained(error) for run in stack}
            for run in stack:
                going.remove(run)
                run.store.close()
            for run in again:  # from its last checkpoint; later rounds were not written
                _open(run.number, run.job, stop, listen, going, errors)
    finally:
        for run in going:
            run.store.close()


def _explained(error: Exception) -> Exception:
    if "RESOURCE_EXHAUSTED" not in str(error):
        return error
    return FedpickError(
        f"a single run needs more memory than the device has ({str(error).splitlines()[0]}); files written before are "
        "intact. Use smaller batches or cohorts, or --device cpu"
    )


def _next(runs: Sequence[OpenRun], limit: int) -> tuple[list[OpenRun], int]:
    """The runs to execute next, and until which round: the end of one of them, or the round of other runs."""
    least = min(run.round for run in runs)
    stack = [run for run in runs if run.round == least][:limit]
    until = min(run.job.config.rounds for run in stack)
    ahead = [run.round for run in runs if run.round > least]
    return stack, min([until, *ahead]) if len(stack) < limit else until


def _play_stack(stack: Sequence[OpenRun], until: int, stop: Stop, listen: Listener) -> None:
    """Execute runs that are in the same round until round `until`; write the final files of complete ones."""
    for run in stack:
        if run.round < until:
            run.note("stacked" if len(stack) > 1 else "alone")
            listen.tick(run.number, run.round)  # the first round compiles, which may take seconds
    first, *others = [run.simulation for run in stack]
    rounds = play_together([first, *others], until) if others else ([record] for record in first.rounds(until))
    with ThreadPoolExecutor(devices.cores()) as pool:
        for records in rounds:
            for i, (run, record) in enumerate(zip(stack, records, strict=True)):
                with blame(i):
                    run.store.add(record)
            _write(pool, stack, [i for i, run in enumerate(stack) if run.store.due])
            if stop.signal is not None:
                break
            if listen.due():
                for run in stack:
                    listen.tick(run.number, run.round)
        _write(pool, stack, range(len(stack)))  # other runs may be next
        over = [i for i, run in enumerate(stack) if run.round >= run.job.config.rounds]
        for i in over:
            with blame(i):
                stack[i].measure()
        _each(pool, over, lambda i: stack[i].finish())
        for i in over:
            listen.tick(stack[i].number, stack[i].round)
    stop.obey()


def _write(pool: Executor, stack: Sequence[OpenRun], some: Sequence[int]) -> None:
    """Write checkpoints of these runs."""
    _each(pool, some, lambda i: stack[i].store.flush(stack[i].simulation.state))
    for i in some:
        with blame(i):
            stack[i].tell()


def _each(pool: Executor, some: Sequence[int], write: Callable[[int], None]) -> None:
    """Write files of these runs side by side: most of the time is spent waiting for the disk."""

    def blamed(i: int) -> None:
        with blame(i):
            write(i)

    for _ in pool.map(blamed, some):
        pass
