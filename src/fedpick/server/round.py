"""One round of a session: the chosen clients, their answers, and the status of each."""

import math
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike

from fedpick.core.errors import ContractError
from fedpick.core.types import LOSS_LIMIT, Choice, Outcome, Status, View
from fedpick.server.late_updates import LateUpdate, Part, base_weights, flat, parts
from fedpick.server.reports import ClientReports
from fedpick.server.validation import number, printable, size_or
from fedpick.store.records import Record

if TYPE_CHECKING:
    from fedpick.server.session import Session

__all__ = ["Round"]


@dataclass(frozen=True, eq=False)
class _Answer:
    status: Status
    seconds: float = math.nan
    loss: float = math.nan
    reports: ClientReports = field(default_factory=dict)
    answered: bool = True  # whether a message came back
    update: Any = None
    size: float | None = None


class Round:
    """A round from the policy's choice until the policy learns from it; made by `Session.round`.

    In a `with` block, the round ends with the block: clients that did not answer are LATE, and the policy learns. If
    the block raises, the round is abandoned: nothing is learned, and the next round has the same number. `done`,
    `failed` and `skip` may be called from any thread; the first call for a client counts.
    """

    def __init__(
        self, session: "Session", view: View, choice: Choice, *, probes: int, wall: float, begun: float
    ) -> None:
        self.view, self.choice = view, choice
        self.probes, self.wall = probes, wall  # clients probed before the choice, and seconds that the choice took
        self.limit = session.deadline  # seconds; the duration of LATE clients
        self.megabytes = 0.0  # of the model, for the records; in units of 1e6 bytes
        self.model: Mapping[str, Any] | None = None  # the new one, kept with `Session(model=...)`; None: no change
        self.record: Record | None = None  # set when the round has ended
        self._session, self._begun = session, begun
        self._names = session.roster.names
        self._index = {self._names[k]: k for k in dict.fromkeys(choice.ids.tolist())}
        self._bases = base_weights(choice, view.clients)
        self._answers: dict[int, _Answer] = {}  # by index, in the order of arrival
        self._taken: list[LateUpdate] | None = None  # late updates that this round uses
        self._refusing = False  # whether answers are no longer accepted
        self._outcome: Outcome | None = None  # what the policy learns from, once it is settled
        self._took: float | None = None  # seconds until it is settled
        self._over = False
        self._changed = threading.Condition(session.lock)

    @property
    def number(self) -> int:
        """Number of the round, from 1; a restart of the server continues the count."""
        return self.view.round

    @property
    def chosen(self) -> tuple[str, ...]:
        """Names of the clients that train; a client that was drawn twice trains once."""
        return tuple(self._index)

    @property
    def waiting(self) -> tuple[str, ...]:
        """Names of the clients that may still answer."""
        with self._changed:
            return () if self._refusing else tuple(name for name, k in self._index.items() if k not in self._answers)

    @property
    def updates(self) -> dict[str, Any]:
        """The updates to aggregate (of clients that are DONE) by name, in the order of arrival."""
        with self._changed:
            return {self._names[k]: each.update for k, each in self._answers.items() if each.status == Status.DONE}

    @property
    def weights(self) -> dict[str, float] | None:
        """What the policy asks for: the model is to move by the sum of weight times update over `updates`.

        They sum to 1 unless the policy's are used as they are (`Choice.normalise`); of a client drawn twice they are
        added up. None: the policy leaves them to you (as a rule, examples over the sum of examples).
        """
        with self._changed:
            done = [k for k, each in self._answers.items() if each.status == Status.DONE]
            shares = self.choice.shares(np.isin(self.choice.ids, done))
            if shares is None:
                return None
            sums = dict.fromkeys(done, 0.0)
            for k, share in zip(self.choice.ids.tolist(), shares.tolist(), strict=True):
                if k in sums:
                    sums[k] += share
            return {self._names[k]: total for k, total in sums.items()}

    def parts(self, vector: Callable[[Any], ArrayLike] | None = None) -> list[Part]:
        """All updates to aggregate with their weights, among them the late ones of earlier rounds (`Session.late`).

        The model is to move by the sum of weight times update. Weights are the policy's, or the clients' sizes, times
        REFL's factor for late ones, divided by their sum unless the policy's are used as they are. Call it once, when
        no more answers are awaited: late updates that it returned are not returned in later rounds.

        Args:
            vector: update -> numbers, by which late updates are compared with those in time; None: updates are arrays,
                or lists or mappings of arrays.
        """
        with self._changed:
            return parts(self, self._session.late.beta, self.take_late(), vector or flat)

    def take_late(self) -> list[LateUpdate]:
        """The late updates that this round uses; they are not used in later ones."""
        if self._taken is None:
            self._taken = self._session.late.due(self.number)
        return self._taken

    def base(self, name: str) -> float:
        """What a chosen client's update counts for beside the others: the policy's weight, else `size` of its `done`.

        Weights of a client drawn twice are added up. Without either it is the client's size.
        """
        at = self._index[name]
        answer = self._answers.get(at)
        size = None if answer is None or self.choice.weights is not None else answer.size
        return self._bases[at] if size is None else size

    def warn(self, text: str, *names: str) -> None:
        """Write a line about this round to the session's log."""
        self._session.log.warning(f"round %d: {text}", self.number, *map(printable, names))

    @property
    def seconds(self) -> float:
        """Seconds since the round began, until it is settled."""
        return monotonic() - self._begun if self._took is None else self._took

    @property
    def full(self) -> bool:
        """Whether as many clients are DONE as the policy keeps; later ones are SURPLUS (OverSelect)."""
        keep = self._session.traits.keeps
        with self._changed:
            return keep is not None and sum(each.status == Status.DONE for each in self._answers.values()) >= keep

    def done(
        self,
        name: str,
        /,
        *,
        loss: float | None = None,
        seconds: float | None = None,
        reports: Mapping[str, Any] | None = None,
        update: Any = None,
        size: float | None = None,
        arrived: float | None = None,
    ) -> Status | None:
        """Record a client's answer; invalid values never raise.

        Returns DONE if its update is to be used, SURPLUS if enough others had answered before, FAILED if the loss is
        impossible (NaN, infinity, above 1e12), and None if the client was not chosen in this round or answers too late.
        Only the first call for a client counts.

        Args:
            name: of the client.
            loss: mean training loss that it reports.
            seconds: duration that it reports; the session's `durations` says how it is used.
            reports: by name; those that the policy learns from are kept.
            update: any object, returned by `updates`.
            size: number of examples that it trained on, for `parts`; None: the client's size.
            arrived: seconds from the start of the round to the answer; None: until now.
        """
        with self._changed:
            at = self._waits_for(name)
            if at is None or at in self._answers:
                return None if at is None else self._answers[at].status
            value = math.nan if loss is None else number(loss)
            if loss is not None and not abs(value) <= LOSS_LIMIT:
                return self.failed(name, f"loss = {printable(loss)[:40]}, but must be at most {LOSS_LIMIT:g}")
            took, reported = self.seconds if arrived is None else arrived, number(seconds)
            possible = 0 < reported < math.inf and (self.limit is None or reported <= self.limit)
            if self._session.durations == "arrival":
                took = self._session.delay.duration(reported if possible else None, took)
            elif possible:
                took = reported
            kept = self._session.reports.read(name, update, reports)
            status = Status.SURPLUS if self.full else Status.DONE
            examples = None if size is None else size_or(size, float(self.view.clients.sizes[at]))
            self._note(at, _Answer(status, took, value, kept, update=update, size=examples))
            return status

    def failed(self, name: str, why: str = "", /, *, answered: bool = True) -> Status | None:
        """Record that a client failed: an error, a lost connection, an update that cannot be used.

        Args:
            name: of the client.
            why: for the log.
            answered: whether a message came back, for the records.
        """
        with self._changed:
            at = self._waits_for(name)
            if at is None or at in self._answers:
                return None if at is None else self._answers[at].status
            shown = printable(name), printable(why or "no reason given")
            self._session.log.warning("round %d: %s failed: %s", self.number, *shown)
            self._note(at, _Answer(Status.FAILED, answered=answered))
            return Status.FAILED

    def skip(self, names: Collection[str]) -> None:
        """Remove clients that were not asked from the round, so that they do not count as failed."""
        with self._changed:
            gone = {self._index.pop(name) for name in names if name in self._index}
            kept = ~np.isin(self.choice.ids, list(gone))
            self.choice = self.choice.take(kept)
            self._answers = {at: each for at, each in self._answers.items() if at not in gone}
            self._changed.notify_all()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until all chosen clients have answered or failed; returns whether they have.

        Later answers are not accepted, so `updates` and what the policy learns from do not change afterwards.

        Args:
            seconds: longest time since the start of the round; None: the session's deadline.
        """
        with self._changed:
            self.limit = self.limit if seconds is None else seconds
            left = None if self.limit is None else max(self.limit - self.seconds, 0.0)
            self._changed.wait_for(lambda: not self.waiting, left)
            complete, self._refusing = not self.waiting, True
            return complete

    def settle(self) -> None:
        """Accept no more answers, and fix what the policy learns from; `close` does this, too.

        An adapter calls it before its framework aggregates the updates, which may change them, and `close` after that,
        so that the new model can be kept with the round.
        """
        with self._changed:
            if self._outcome is None:
                self._refusing, self._took = True, self.seconds
                self._outcome = self._make_outcome()

    def close(self) -> Record:
        """End the round and let the policy learn; the end of the `with` block does this."""
        with self._changed:
            if self.record is None:
                if self._over:
                    raise ContractError(f"round {self.number} was abandoned; call session.round() to play it again")
                self._end()
                self.settle()
                assert self._outcome is not None
                self.record = self._session._learn(self, self._outcome, len(self._taken or ()))
                self._session.late.used(self._taken or ())
            return self.record

    def abandon(self) -> None:
        """End the round without learning from it; the next round has the same number."""
        with self._changed:
            if not self._over:
                self._end()
                self._session.log.warning("round %d: abandoned; it will be played again", self.number)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is not None:
            self.abandon()
        elif not self._over:
            self.close()

    def _end(self) -> None:
        self._over = self._refusing = True
        self._session._ended(self)
        self._changed.notify_all()

    def _waits_for(self, name: str) -> int | None:
        """The index of a client that may answer; None, with a line in the log, for any other."""
        at = self._index.get(name) if isinstance(name, str) and not self._refusing else None
        if at is None:
            why = "too late" if self._refusing else "was not chosen"
            self._session.log.info("round %d: unexpected answer of %s: %s", self.number, printable(name), why)
        return at

    def _note(self, at: int, answer: _Answer) -> None:
        self._answers[at] = answer
        self._changed.notify_all()

    @property
    def messages(self) -> int:
        """Messages sent and received, including probes."""
        return len(self._index) + self._messages_back + 2 * self.probes

    @property
    def traffic(self) -> float:
        """Megabytes sent and received; a probe's answer, one number, is not counted."""
        return self.megabytes * (len(self._index) + self._messages_back + self.probes)

    @property
    def _messages_back(self) -> int:
        return sum(each.answered for each in self._answers.values())

    def _make_outcome(self) -> Outcome:
        """The outcome that the policy learns from, aligned with its choice."""
        late = _Answer(Status.LATE, self.seconds if self.limit is None else self.limit, answered=False)
        answers = [self._answers.get(int(k), late) for k in self.choice.ids]
        # Only clients that succeeded have reports: a failed one must not decide the shape of the arrays.
        worth = self._session.reports.worth(self.updates)
        pairs = zip(self.choice.ids, answers, strict=True)
        reports = [answer.reports | worth.get(self._names[k], {}) for k, answer in pairs]
        return Outcome(
            status=np.array([answer.status for answer in answers], dtype=np.int8),
            duration=[answer.seconds for answer in answers],
            loss=[answer.loss for answer in answers],
            reports=self._session.reports.tables(reports),
        )
