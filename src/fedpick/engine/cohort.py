"""A cohort: the clients asked at one time, and what each one's answer counts as."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedpick.core.types import LOSS_LIMIT, Bools, Choice, Floats, Ints, Outcome, Status
from fedpick.engine.weights import merged, of_used

__all__ = ["Cohort", "fits", "possible"]

FLYING = -1  # instead of a status: neither answered nor given up


def possible(loss: Any) -> Any:
    """Whether a client can have this loss, or each of an array; an answer with another one is FAILED."""
    return abs(loss) <= LOSS_LIMIT  # a NaN is not


def fits(loss: float | None) -> bool:
    """Whether a client can have this loss, or reports none."""
    return loss is None or bool(possible(loss))


class Cohort:
    """The tasks of the clients asked at one time, by their position in the choice.

    An answer is DONE, or SURPLUS if enough others were before it; an error, an update that cannot be used or an
    impossible loss is FAILED. The first answer to a task counts. When the cohort is closed, clients that still work are
    SURPLUS if enough had answered, else LATE. Only an answer that came has a duration or a loss (LATE: the deadline).

    Args:
        choice: of the policy; a client that was drawn twice gets one task.
        keep: how many draws are needed, see `fedpick.core.protocol.Traits.keeps`; None: all.
        first: id of the first task (`Flight.issue`).

    >>> cohort = Cohort(Choice([3, 5, 8]), keep=1)
    >>> cohort.arrive(1, 2.0, 0.7).name, cohort.arrive(2, 2.5, 0.9).name
    ('DONE', 'SURPLUS')
    >>> cohort.close(2.5)
    >>> cohort.outcome().status.tolist(), cohort.outcome().known.tolist()
    ([3, 0, 3], [False, True, True])
    """

    def __init__(self, choice: Choice, keep: int | None = None, first: int = 0) -> None:
        self.choice, self.keep, self.first = merged(choice), keep, first
        count = len(self.choice)
        self._times: list[int] = [1] * count if self.choice.copies is None else self.choice.copies.tolist()
        # Lists, not arrays: answers come one by one.
        self.draws = sum(self._times)
        self._status = [FLYING] * count
        self._duration, self._loss = [np.nan] * count, [np.nan] * count
        self.flying = count  # tasks without an answer
        self.drawn = 0  # draws whose update is used
        self.failed = 0  # draws that failed
        self.back = 0  # messages that came back
        self.unusable = 0  # of these, answers that failed

    def __len__(self) -> int:
        return len(self._status)

    @property
    def full(self) -> bool:
        """Whether enough updates have come: later ones are SURPLUS."""
        return self.keep is not None and self.drawn >= self.keep

    @property
    def complete(self) -> bool:
        """Whether the model can move: enough have answered, or all have answered or failed."""
        return self.flying == 0 or self.full

    def status(self, at: int) -> Status | None:
        """How a task ended; None if it has not."""
        found = self._status[at]
        return None if found == FLYING else Status(found)

    def arrive(
        self, at: int, duration: float, loss: float | None = None, usable: bool = True, answered: bool = True
    ) -> Status:
        """The answer to the task at this position; only the first one counts.

        Args:
            at: position of the client in the choice.
            duration: seconds since it was asked.
            loss: that it reports; None: none.
            usable: whether it is an update that can be aggregated; False: an error.
            answered: whether a message came back, or the failure was noticed otherwise.
        """
        if self._status[at] != FLYING:
            return Status(self._status[at])
        fine, draws = usable and fits(loss), self._times[at]
        if not fine:
            found = Status.FAILED
            self.failed += draws
            self.unusable += answered
        else:
            found = Status.SURPLUS if self.full else Status.DONE
            self._duration[at], self._loss[at] = duration, np.nan if loss is None else loss
            self.drawn += draws if found is Status.DONE else 0
        self._status[at] = found
        self.flying -= 1
        self.back += answered
        return found

    def arrive_in_turn(
        self, order: Ints, duration: Floats, loss: Floats | None, usable: Bools, answered: Bools
    ) -> Ints:
        """As `arrive` at one position after the other until the cohort is complete; returns those that have come.

        Args:
            order: positions in the choice; no client has answered before.
            duration: by position, as are all that follow: seconds since the client was asked.
            loss: that it reports; None: nobody reports one.
            usable: mask of the updates that can be aggregated.
            answered: mask of the clients from which a message comes back.
        """
        fine = (usable if loss is None else usable & possible(loss)).tolist()
        took, back = duration.tolist(), answered.tolist()
        losses = None if loss is None else loss.tolist()
        count, most = 0, self.draws if self.keep is None else self.keep
        for at in order.tolist():
            if self.drawn >= most:
                break
            count += 1
            self.back += back[at]
            if fine[at]:
                self._status[at], self._duration[at] = Status.DONE, took[at]
                self._loss[at] = np.nan if losses is None else losses[at]
                self.drawn += self._times[at]
            else:
                self._status[at] = Status.FAILED
                self.failed += self._times[at]
                self.unusable += back[at]
        self.flying -= count
        return order[:count]

    def skip(self, gone: Bools) -> None:
        """Take clients out that were not asked after all, mask of their positions."""
        kept = np.flatnonzero(~gone).tolist()
        self.choice = self.choice.take(~gone)
        for name in ("_times", "_status", "_duration", "_loss"):
            values = getattr(self, name)
            setattr(self, name, [values[at] for at in kept])
        self.draws = sum(self._times)
        self.flying = self._status.count(FLYING)

    def close(self, limit: float) -> None:
        """End the tasks that are still in flight.

        Args:
            limit: seconds after which a client is late: the deadline, or how long the round lasted.
        """
        ended, took = (Status.SURPLUS, np.nan) if self.full else (Status.LATE, limit)
        for at, status in enumerate(self._status):
            if status == FLYING:
                self._status[at], self._duration[at] = ended, took
        self.flying = 0

    @property
    def statuses(self) -> Any:
        """Of the tasks, as an array; -1 for those in flight."""
        return np.array(self._status, dtype=np.int8)

    @property
    def used(self) -> Bools:
        """Mask of the clients whose update is used."""
        mask: Bools = self.statuses == Status.DONE
        return mask

    @property
    def late(self) -> Ints:
        """Positions of the late clients of a closed cohort."""
        return np.flatnonzero(self.statuses == Status.LATE)

    def outcome(self, reports: Mapping[str, Any] | None = None) -> Outcome:
        """What the policy learns from a closed cohort."""
        return Outcome(self.statuses, self._duration, self._loss, reports)

    def settled(self) -> Choice:
        """The choice, with inclusion and weights of those used: fewer than were chosen if there is a surplus."""
        return of_used(self.choice, self.drawn, self.draws - self.drawn - self.failed if self.full else 0)
