"""The clients' reports that a policy learns from: their names, how they are read, and their arrays."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedpick.core.protocol import traits
from fedpick.core.types import Floats
from fedpick.server import validation
from fedpick.server.roster import Roster
from fedpick.server.settings import ValueFn

__all__ = ["ClientReports", "Reports"]

ClientReports = dict[str, float | list[float] | None]  # one client's reports by name


class Reports:
    """Reads what clients report; iterating gives the names of the reports that the policy uses.

    Args:
        roster: of the session; features of its clients may make a report unnecessary.
        embed: update -> vector, used as the report "embedding"; None: the client's report.
        log: of the session.
        value: updates by name -> what each is worth, used as the reports that the server computes.
    """

    def __init__(
        self,
        roster: Roster,
        embed: Callable[[Any], ArrayLike] | None,
        log: logging.Logger,
        value: ValueFn | None = None,
    ) -> None:
        self._roster, self._traits, self._embed, self._log = roster, traits(roster.policy), embed, log
        self._value = value

    def _widths(self) -> dict[str, int | None]:
        return self._traits.collect(self._roster.counted)

    def __iter__(self) -> Iterator[str]:
        return iter(self._widths())

    def read(self, name: str, update: Any, sent: Any) -> ClientReports:
        """The reports of one client that the policy uses, from all that it sent; an invalid one is None."""
        found: ClientReports = {}
        if isinstance(sent, Mapping):
            valued = self._traits.valued  # which the server computes, not the clients
            found = {each: validation.report(sent[each]) for each in self if each in sent and each not in valued}
        if self._embed is not None and update is not None and "embedding" in self._widths():
            try:
                found["embedding"] = np.asarray(self._embed(update), dtype=np.float64).ravel().tolist()
            except Exception as error:  # one client's update must not end the training of the others
                self._warn("embed() failed on the update of %s: %s", name, error)
                found["embedding"] = None
        return found

    def worth(self, updates: Mapping[str, Any]) -> dict[str, ClientReports]:
        """The reports that the server computes from the updates to aggregate, by the clients' names."""
        if self._value is None or not self._traits.valued or not updates:
            return {}
        try:
            found = {name: validation.report(each) for name, each in self._value(updates).items() if name in updates}
        except Exception as error:  # the training goes on without values
            self._warn("value() failed on %s updates: %s", len(updates), error)
            return {}
        return {name: dict.fromkeys(self._traits.valued, each) for name, each in found.items()}

    def _warn(self, text: str, about: object, error: Exception) -> None:
        why = f"{type(error).__name__}: {error}"
        self._log.warning(text, validation.printable(about), validation.printable(why))

    def tables(self, answers: Sequence[ClientReports], others: Sequence[ClientReports] = ()) -> dict[str, Floats]:
        """All reports of a round as arrays; a width that the policy does not declare is that of earlier rounds.

        Args:
            answers: of which the arrays are.
            others: earlier ones, of other clients, that count where a width is not known yet.
        """
        found: dict[str, Floats] = {}
        widths = self._roster.widths
        for name, known in self._widths().items():
            values = [each.get(name) for each in (*answers, *others)]
            array, width = validation.table(values, widths.get(name, known))
            if array is not None and width is not None:
                found[name], widths[name] = array[: len(answers)], width
        return found
