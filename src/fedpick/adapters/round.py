"""A round of a framework that averages whole models by a number each (Flower, NVFlare): which ones, by what numbers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fedpick.adapters.updates import Arrays, Update
from fedpick.core.types import Status
from fedpick.server.late_updates import LateUpdate, Mean, flat, weighed
from fedpick.server.round import Round
from fedpick.server.session import Session

__all__ = ["FrameworkRound"]


@dataclass(eq=False, kw_only=True)
class FrameworkRound:
    """A round of the session, the model that was sent, and late updates of earlier rounds that are used in this one.

    The framework averages updates by `Round.base`; what it adds to the model is to be multiplied by `times`.
    """

    session: Session
    round: Round
    sent: Mapping[str, Any]  # the model's arrays
    weight: str | None  # the framework's name for the number that it averages updates by; None: it uses none
    late: list[tuple[LateUpdate, float]] = field(default_factory=list)  # those that are used, and what each counts for
    _after: list[tuple[str, Update]] = field(default_factory=list)  # came while the framework aggregated
    _over: bool = False  # whether the updates in time are settled
    _mean: Mean = field(default_factory=Mean)  # of the updates in time, with which late ones are compared

    @property
    def weighted(self) -> bool:
        """Whether the policy's weights take the place of the numbers that the framework would average by."""
        return self.round.choice.weights is not None and self.weight is not None

    @property
    def closed(self) -> bool:
        """Whether the round is over, so that updates come too late for it."""
        return self.round.record is not None

    @property
    def over(self) -> bool:
        """Whether updates come too late for the round, because it is closed or its updates are being aggregated."""
        return self._over or self.closed

    def counts(self, name: str) -> bool:
        """Whether the framework gets this client's update; not with a weight of 0, as it divides by their sum."""
        return not self.weighted or self.round.base(name) > 0.0

    def note(self, update: Update, changes: Callable[[], Arrays]) -> None:
        """Note what training added to the model, where late updates are used; call it before `take`."""
        if self.session.late.rounds and not update.why:
            update.moves = changes()

    def take(self, name: str, update: Update, arrived: float | None = None) -> Status | None:
        """Record an update that was read from a message: as failed if it cannot be used, else as done.

        One that comes after the round was closed is kept for a later round, if the session uses late updates.
        `arrived` is as in `Round.done`.
        """
        with self.session.lock:
            if update.moves.keys() != self.sent.keys():  # part of a model cannot be compared with the others
                update.moves = {}
            if self.closed:
                return self._take_late(name, update)
            if self._over:
                self._after.append((name, update))
                return None
            if update.why:
                update.status = self.round.failed(name, update.why)
                return update.status
            update.status = self.round.done(
                name,
                loss=update.loss,
                seconds=update.seconds,
                reports=update.reports,
                update=update,
                size=update.size,
                arrived=arrived,
            )
            if update.status == Status.DONE and update.moves:
                numbers = flat(update.moves)
                if self._mean.fits(numbers):
                    self._mean.add(numbers, self.round.share(name))
            update.moves = {}  # as large as the model
            return update.status

    def _take_late(self, name: str, update: Update) -> Status | None:
        """Keep an update of this closed round, unless it cannot be used; then none is awaited any more."""
        late, number = self.session.late, self.round.number
        if not late.owes(name, number):
            return None
        why = update.why or ("" if update.moves else "its arrays cannot be compared with the model's")
        if not why:
            return late.keep(name, update, number, update.size)
        late.drop(name, number, why)
        return None

    def weigh_late(self) -> list[tuple[LateUpdate, float]]:
        """The late updates that have come, and what each counts for beside those in time; call it before the end."""
        self.session.late.fetch()
        beta, taken = self.session.late.beta, self.round.take_late()
        found = weighed(self.round, beta, taken, self._mean, lambda update: flat(update.moves))
        return [(late, base) for late, base in found if base > 0.0]

    def use_late(self, late: LateUpdate, base: float) -> bool:
        """Whether the framework takes this late update, which counts for `base`; adapters may hand it over here."""
        return True

    def settle(self) -> None:
        """Take no more updates but the late ones of earlier rounds that have come; then the framework aggregates."""
        with self.session.lock:
            for late, base in self.weigh_late():
                try:
                    if self.use_late(late, base):
                        self.late.append((late, base))
                except Exception as error:  # of a user's aggregator; the round goes on
                    self.round.warn("late update of %s dropped: %s", late.name, f"{type(error).__name__}: {error}")
            self.round.settle()
            self._over = True

    def close(self, model: Mapping[str, Any] | None = None) -> None:
        """End the round, so that the policy learns; a model of None has not changed, or is not known."""
        with self.session.lock:
            if not self._over:
                self.settle()
            self.round.model = model
            self.round.close()
            for name, update in self._after:
                self._take_late(name, update)
            self._after = []
            self.session.late.watch(self.pull)

    def pull(self) -> bool:
        """Take updates that came after the end, if the framework must be asked for them; whether more may come."""
        return False

    @property
    def times(self) -> float:
        """The sum of the policy's weights where they are used as they are, by which the framework divides; else 1."""
        in_time = {} if self.round.choice.normalise else self.round.weights or {}
        as_they_are = [base for late, base in self.late if not late.task.relative]
        if self.weight is None or not (in_time or as_they_are):
            return 1.0
        return sum(in_time.values()) + sum(as_they_are)
