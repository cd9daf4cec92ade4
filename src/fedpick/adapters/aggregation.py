"""A framework's aggregation, from round to round: which updates fit together, and what happens when it fails."""

import logging
from collections.abc import Collection, Hashable, Iterator
from contextlib import contextmanager

from fedpick.adapters.round import FrameworkRound
from fedpick.adapters.updates import Update, agree

__all__ = ["Aggregation"]


class Aggregation:
    """The framework's aggregation, with a memory of earlier rounds; messages call it `called`."""

    def __init__(self, called: str, log: logging.Logger) -> None:
        self.called, self._log = called, log
        self._usual: dict[str, Hashable] = {}  # what the updates of the last round had in common
        self._warned = False  # whether the log says that it takes no weights
        self._error: Exception | None = None  # the last one of this run
        self._worked = False  # whether it ever succeeded in this run

    def agree(self, kind: str, updates: Collection[Update]) -> None:
        """Mark updates as unusable that are not like most others of this kind (training, evaluation)."""
        self._usual[kind] = agree(updates, self._usual.get(kind))

    @contextmanager
    def run(self) -> Iterator[None]:
        """A run of many rounds; if the aggregation failed in all of them, its last exception is raised at the end."""
        self._error, self._worked = None, False
        yield
        if self._error is not None and not self._worked:
            raise self._error  # the cause is not one client

    @contextmanager
    def attempt(self, round: FrameworkRound, clients: str) -> Iterator[None]:
        """Aggregate a round's updates in this block; `clients` are its clients in words.

        An exception is logged, because one client's update must not end the training.
        """
        if round.weight is None and round.round.choice.weights is not None and not self._warned:
            self._warned = True
            text = "%s averages by no metric: the weights that %s asks for are not used"
            self._log.warning(text, self.called, type(round.session.policy).__name__)
        with self.trying(f"round {round.round.number}", clients):
            yield

    @contextmanager
    def trying(self, when: str, clients: str) -> Iterator[None]:
        """As `attempt`, without a round: `when` stands in the log."""
        try:
            yield
            self._worked = True
        except Exception as error:
            text = "%s: %s could not aggregate the updates of %s; the model does not change"
            self._log.exception(text, when, self.called, clients)
            self._error = error
