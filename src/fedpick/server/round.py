"""One round of a session: the chosen clients, their answers, and the status of each."""

import math
import threading
from collections.abc import Callable, Collection, Mapping
from time import monotonic
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike

from fedpick.core.bounds import largest
from fedpick.core.errors import ContractError
from fedpick.core.types import LOSS_LIMIT, Choice, Outcome, Status, View
from fedpick.engine.cohort import Cohort, fits
from fedpick.server.late_updates import LateUpdate, Part, flat, parts
from fedpick.server.reports import ClientReports
from fedpick.server.validation import number, printable, size_or
from fedpick.store.records import Record

if TYPE_CHECKING:
    from fedpick.server.session import Session

__all__ = ["Round"]


class Round:
    """A round from the policy's choice until the policy learns from it; made by `Session.round`.

    In a `with` block, the round ends with the block: clients that did not answer are LATE, and the policy learns. If
    the block raises, the round is abandoned: nothing is learned, and the next round has the same number. `done`,
    `failed` and `skip` may be called from any thread; the first call for a client counts.
    """

    def __init__(
        self, session: "Session", view: View, choice: Choice, *, probes: int, wall: float, begun: float
    ) -> None:
        self.view = view
        self.probes, self.wall = probes, wall  # clients probed before the choice, and seconds that the choice took
        self.limit = session.deadline  # seconds; the duration of LATE clients
        self.megabytes = 0.0  # of the model, for the records; in units of 1e6 bytes
        self.model: Mapping[str, Any] | None = None  # the new one, kept with `Session(model=...)`; None: no change
        self.record: Record | None = None  # set when the round has ended
        self._session, self._asked = session, monotonic()
        self.before = self._asked - begun  # seconds that enrolling, probing and choosing took
        self._names = session.roster.names
        self.cohort = Cohort(choice, session.traits.keeps, session.flight.issue(len(choice)))
        self._index = {self._names[k]: at for at, k in enumerate(self.cohort.choice.ids.tolist())}  # position by name
        self._worked: list[float] = []  # seconds that clients report, NaN for an answer without
        self._sizes = view.clients.sizes[self.cohort.choice.ids].tolist()  # declared, by position
        self._largest: float | None = None  # see `_most`; None: not known
        self._updates: dict[int, Any] = {}  # by position, in the order of arrival
        self._reports: dict[int, ClientReports] = {}
        self._shares: tuple[tuple[int, int], Any] = (-1, -1), None
        self._taken: list[LateUpdate] | None = None  # late updates that this round uses
        self._refusing = False  # whether answers are no longer accepted
        self._settled: tuple[Choice, Outcome] | None = None  # what the policy learns from
        self._took: float | None = None  # seconds until it is settled
        self._over = False
        self._changed = threading.Condition(session.lock)

    @property
    def choice(self) -> Choice:
        """The policy's choice, each client once; once it is settled, with inclusion and weights of those used."""
        return self.cohort.settled()

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
            if self._refusing or not self.cohort.flying:
                return ()
            return tuple(name for name, at in self._index.items() if self.cohort.status(at) is None)

    @property
    def updates(self) -> dict[str, Any]:
        """The updates to aggregate (of clients that are DONE) by name, in the order of arrival."""
        with self._changed:
            ids, status = self.cohort.choice.ids, self.cohort.status
            done = (at for at in self._updates if status(at) == Status.DONE)
            return {self._names[ids[at]]: self._updates[at] for at in done}

    @property
    def weights(self) -> dict[str, float] | None:
        """What the policy asks for: the model is to move by the sum of weight times update over `updates`.

        They sum to 1 unless the policy's are used as they are (`Choice.normalise`); of a client drawn twice they are
        added up. None: the policy leaves them to you (as a rule, examples over the sum of examples).
        """
        with self._changed:
            shares = self.choice.shares(self.cohort.used)
            return None if shares is None else {name: float(shares[self._index[name]]) for name in self.updates}

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
            self._taken = self._session.late.come(self.number)
        return self._taken

    def base(self, name: str) -> float:
        """What a chosen client's update counts for beside the others: the policy's weight, else `size` of its `done`.

        Weights of a client drawn twice are added up. Without either it is the client's size.
        """
        at = self._index[name]
        if self.cohort.choice.weights is None:
            return self.size(name) * int(self.cohort.choice.times[at])
        counted = self.cohort.drawn, self.cohort.failed
        if self._shares[0] != counted:  # weights of those used depend on how many these are
            self._shares = counted, self.choice.weights
        assert self._shares[1] is not None
        return float(self._shares[1][at])

    def share(self, name: str) -> float:
        """As `base`, but for a factor that all clients of the round have in common, which is known when it is full."""
        weights = self.cohort.choice.weights
        return self.base(name) if weights is None else float(weights[self._index[name]])

    def size(self, name: str, said: float | None = None) -> float:
        """What a chosen client's size counts for, as things stand.

        Args:
            name: of the client.
            said: with its answer; None: what `done` was given, else the size that it joined with.
        """
        at = self._index[name]
        size = self._sizes[at] if said is None else said
        return min(self._session.sizes.of_answer(size, self._known(at)), self._most())

    def _most(self) -> float:
        """The largest size that counts beside the others of the round (`Choice.most`), as in `engine.weights.bases`."""
        factor = self.cohort.choice.most
        if factor is None:
            return math.inf
        if self._largest is None:
            heard, sizes = self._session.sizes, []
            for name, at in self._index.items():  # of those that have not answered, what they said last
                size = self._sizes[at] if at in self._updates else heard.last(name, self._sizes[at])
                sizes.append(heard.of_answer(size, self._known(at)))
            self._largest = largest(sizes, factor)
        return self._largest

    def _known(self, at: int) -> float:
        """The size of the client at this position of the choice, as it counts since it joined."""
        return float(self.view.clients.sizes[self.cohort.choice.ids[at]])

    def drawn(self, name: str) -> int:
        """How often a chosen client was drawn: more than once only with replacement."""
        return int(self.cohort.choice.times[self._index[name]])

    def warn(self, text: str, *names: str) -> None:
        """Write a line about this round to the session's log."""
        self._session.log.warning(f"round %d: {text}", self.number, *map(printable, names))

    @property
    def seconds(self) -> float:
        """Seconds since the clients were chosen, until the round is settled."""
        return monotonic() - self._asked if self._took is None else self._took

    @property
    def full(self) -> bool:
        """Whether as many clients are DONE as the policy keeps; later ones are SURPLUS (OverSelect)."""
        return self.cohort.full

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
            arrived: seconds from the choice to the answer; None: until now.
        """
        with self._changed:
            at = self._waits_for(name)
            if at is None or (before := self.cohort.status(at)) is not None:
                return None if at is None else before
            value = None if loss is None else number(loss)
            took, session = self.seconds if arrived is None else arrived, self._session
            if fits(value) and (seconds is not None or session.durations == "arrival"):  # else its times do not count
                reported = number(seconds)
                possible = 0 < reported < math.inf and (self.limit is None or reported <= self.limit)
                if session.durations == "arrival":
                    took = session.delay.duration(reported if possible else None, took)
                elif possible:
                    took = reported
            said = math.nan if seconds is None else number(seconds)
            self._worked.append(said if 0.0 <= said < math.inf else math.nan)
            status = self.cohort.arrive(at, took, value)
            if status == Status.FAILED:
                self._log_failure(name, f"loss = {printable(loss)[:40]}, but must be at most {LOSS_LIMIT:g}")
            else:
                self._updates[at] = update
                if reports is not None or update is not None:
                    self._reports[at] = session.reports.read(name, update, reports)
                if self.cohort.choice.weights is None:
                    self._sizes[at] = size_or(size, self._known(at))
                    session.sizes.hear(name, self._sizes[at])
                    self._largest = None
            if self.cohort.complete:
                self._changed.notify_all()
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
            if at is None or (before := self.cohort.status(at)) is not None:
                return None if at is None else before
            self._log_failure(name, why or "no reason given")
            status = self.cohort.arrive(at, math.nan, usable=False, answered=answered)
            self._changed.notify_all()
            return status

    def _log_failure(self, name: str, why: str) -> None:
        self._session.log.warning("round %d: %s failed: %s", self.number, printable(name), printable(why))

    def _log_sizes(self) -> None:
        """Log whose sizes the session limits; a limit of the policy's (`Choice.most`) is no news."""
        limit = self._session.sizes.largest
        over = [name for name, at in self._index.items() if self._sizes[at] > limit(self._known(at))]
        if over:
            first = self._index[over[0]]
            size, most = self._sizes[first], limit(self._known(first))
            self.warn(f"{len(over)} sizes are too large to be true: that of %s, {size:g}, counts as {most:g}", over[0])

    def skip(self, names: Collection[str]) -> None:
        """Remove clients that were not asked from the round, so that they do not count as failed."""
        with self._changed:
            gone = np.zeros(len(self.cohort), dtype=np.bool_)
            gone[[self._index[name] for name in names if name in self._index]] = True
            moved = np.cumsum(~gone) - 1
            self.cohort.skip(gone)
            self._index = {name: int(moved[at]) for name, at in self._index.items() if not gone[at]}
            self._sizes = [size for at, size in enumerate(self._sizes) if not gone[at]]
            self._largest = None
            self._updates = {int(moved[at]): each for at, each in self._updates.items() if not gone[at]}
            self._reports = {int(moved[at]): each for at, each in self._reports.items() if not gone[at]}
            self._changed.notify_all()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until enough clients have answered, or all have answered or failed; returns whether it is so.

        With `fp.OverSelect`, enough is the cohort size of the policy inside; else it is all. Later answers are not
        accepted, so `updates` and what the policy learns from do not change afterwards.

        Args:
            seconds: longest time since the choice; None: the session's deadline.
        """
        with self._changed:
            self.limit = self.limit if seconds is None else seconds
            left = None if self.limit is None else max(self.limit - self.seconds, 0.0)
            self._changed.wait_for(lambda: self._refusing or self.cohort.complete, left)
            self._refusing = True
            return self.cohort.complete

    def settle(self) -> None:
        """Accept no more answers, and fix what the policy learns from; `close` does this, too.

        An adapter calls it before its framework aggregates the updates, which may change them, and `close` after that,
        so that the new model can be kept with the round.
        """
        with self._changed:
            if self._settled is None:
                self._refusing, self._took = True, self.seconds
                self.cohort.close(self.seconds if self.limit is None else self.limit)
                self._settled = self.cohort.settled(), self._make_outcome()
                self._log_sizes()

    def close(self) -> Record:
        """End the round and let the policy learn; the end of the `with` block does this."""
        with self._changed:
            if self.record is None:
                if self._over:
                    raise ContractError(f"round {self.number} was abandoned; call session.round() to play it again")
                self._end()
                self.settle()
                assert self._settled is not None
                self.record = self._session._learn(self, *self._settled, [late.task for late in self._taken or ()])
                self._session.late.use(self._taken or ())
                weights = self.cohort.choice.weights
                base = np.array([self.base(name) for name in self._index]) if weights is None else weights
                self._session.late.note(self.number, self.cohort, base, self._most(), self._names)
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

    @property
    def client_seconds(self) -> float | None:
        """Seconds that the clients worked, as those that answered report them; None: one of them did not."""
        total = sum(self._worked)
        return total if self._worked and math.isfinite(total) else None

    @property
    def messages(self) -> int:
        """Messages sent and received, including probes and late answers to earlier rounds."""
        return len(self.cohort) + self._back + 2 * self.probes

    @property
    def traffic(self) -> float:
        """Megabytes sent and received; a probe's answer, one number, is not counted."""
        return self.megabytes * (len(self.cohort) + self._back + self.probes)

    @property
    def _back(self) -> int:
        return self.cohort.back + self._session.flight.landed

    def _make_outcome(self) -> Outcome:
        """The outcome that the policy learns from, aligned with its choice."""
        # Only clients that succeeded have reports: a failed one must not decide the shape of the arrays.
        worth = self._session.reports.worth(self.updates)
        names = (self._names[k] for k in self.cohort.choice.ids)
        reports = [self._reports.get(at, {}) | worth.get(name, {}) for at, name in enumerate(names)]
        return self.cohort.outcome(self._session.reports.tables(reports))
