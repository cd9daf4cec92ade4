"""Execute many runs in one process, with their cohorts stacked into one compiled call; each has its own folder.

Runs that can be stacked form a group. In a group, runs with fewer rounds are executed first, until they reach the round
of others; then they continue together.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor

import jax

from fedpick._support import devices
from fedpick.core.errors import FedpickError
from fedpick.experiment.executors.alone import Job, Listener, Seat
from fedpick.experiment.executors.stopping import Stop
from fedpick.learn.trainer import Trainer
from fedpick.simulate.together import RunError, blame, difference, play_together

__all__ = ["play_stacked"]

OPEN = 256  # runs at a time: each keeps a file open, its lock
Errors = dict[int, Exception]


def play_stacked(jobs: Sequence[tuple[int, Job]], stop: Stop, listen: Listener) -> Errors:
    """Execute numbered jobs, stacked where possible; returns the errors by number."""
    errors: Errors = {}
    for start in range(0, len(jobs), OPEN):
        seats: list[Seat] = []
        try:
            for number, job in jobs[start : start + OPEN]:
                _sit(number, job, stop, listen, seats, errors)
            for group in _groups(seats):
                _play_group(group, stop, listen, errors)
        finally:
            for seat in seats:
                seat.store.close()
    return errors


def _sit(number: int, job: Job, stop: Stop, listen: Listener, seats: list[Seat], errors: Errors) -> None:
    try:
        seats.append(Seat(number, job, stop, listen))
    except Exception as error:
        errors[number] = error


def _groups(seats: Sequence[Seat]) -> list[list[Seat]]:
    """Group runs that can be stacked; the others form groups of one."""
    groups: list[list[Seat]] = []
    for seat in seats:
        trainer = seat.run.trainer
        for group in groups:
            other = group[0].run.trainer
            if isinstance(trainer, Trainer) and isinstance(other, Trainer) and difference(other, trainer) is None:
                group.append(seat)
                break
        else:
            groups.append([seat])
    return groups


def _play_group(seats: Sequence[Seat], stop: Stop, listen: Listener, errors: Errors) -> None:
    limit, going = len(seats), list(seats)
    try:
        while going:
            stack, until = _next(going, limit)
            again: list[Seat] = []
            try:
                _play_stack(stack, until, stop, listen)
                again = [seat for seat in stack if seat.round < seat.job.config.rounds]
                going = [seat for seat in going if seat not in stack or seat in again]
                continue
            except RunError as error:  # of one run; the others were interrupted in the middle of the round
                errors[stack[error.index].number] = error.error
                again = [seat for i, seat in enumerate(stack) if i != error.index]
            except jax.errors.JaxRuntimeError as error:
                if "RESOURCE_EXHAUSTED" in str(error) and len(stack) > 1:
                    limit, again = (len(stack) + 1) // 2, stack
                else:
                    errors |= {seat.number: _explained(error) for seat in stack}
            except Exception as error:
                errors |= {seat.number: error for seat in stack}
            for seat in stack:
                going.remove(seat)
                seat.store.close()
            for seat in again:  # from its last checkpoint; later rounds were not written
                _sit(seat.number, seat.job, stop, listen, going, errors)
    finally:
        for seat in going:
            seat.store.close()


def _explained(error: Exception) -> Exception:
    if "RESOURCE_EXHAUSTED" not in str(error):
        return error
    return FedpickError(
        f"a single run needs more memory than the device has ({str(error).splitlines()[0]}); files written before are "
        "intact. Use smaller batches or cohorts, or --device cpu"
    )


def _next(seats: Sequence[Seat], limit: int) -> tuple[list[Seat], int]:
    """The runs to execute next, and until which round: the end of one of them, or the round of other runs."""
    least = min(seat.round for seat in seats)
    stack = [seat for seat in seats if seat.round == least][:limit]
    until = min(seat.job.config.rounds for seat in stack)
    ahead = [seat.round for seat in seats if seat.round > least]
    return stack, min([until, *ahead]) if len(stack) < limit else until


def _play_stack(stack: Sequence[Seat], until: int, stop: Stop, listen: Listener) -> None:
    """Execute runs that are in the same round until round `until`; write the final files of complete ones."""
    for seat in stack:
        if seat.round < until:
            seat.note("stacked" if len(stack) > 1 else "alone")
            listen.tick(seat.number, seat.round)  # the first round compiles, which may take seconds
    runs = [seat.run for seat in stack]
    rounds = ([record] for record in runs[0].rounds(until)) if len(runs) == 1 else play_together(runs, until)
    with ThreadPoolExecutor(devices.cores()) as pool:
        for records in rounds:
            for i, (seat, record) in enumerate(zip(stack, records, strict=True)):
                with blame(i):
                    seat.store.add(record)
            _write(pool, stack, [i for i, seat in enumerate(stack) if seat.store.due])
            if stop.came is not None:
                break
            if listen.due():
                for seat in stack:
                    listen.tick(seat.number, seat.round)
        _write(pool, stack, range(len(stack)))  # other runs may be next
        over = [i for i, seat in enumerate(stack) if seat.round >= seat.job.config.rounds]
        for i in over:
            with blame(i):
                stack[i].measure()
        _each(pool, over, lambda i: stack[i].finish())
        for i in over:
            listen.tick(stack[i].number, stack[i].round)
    stop.obey()


def _write(pool: Executor, stack: Sequence[Seat], some: Sequence[int]) -> None:
    """Write checkpoints of these runs."""
    _each(pool, some, lambda i: stack[i].store.flush(stack[i].run.state))
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
