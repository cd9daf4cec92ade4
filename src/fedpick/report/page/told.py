"""What a run's folder tells of its clients: their arrays and names, and who was there when."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedpick.core.types import Floats
from fedpick.report.played import Played
from fedpick.report.tables import printable

__all__ = ["Names", "There", "Told", "told"]

MOST_NAMES, LONGEST_NAME = 300, 60  # clients of a run that the page calls by their names, and characters of a name


@dataclass(frozen=True)
class Told:
    """What a run's folder tells of its clients.

    Args:
        run: its tables.
        census: arrays with a value per client, by name.
        there: who was there when.
        names: of the clients of a deployment, if they are few.
    """

    run: Played
    census: Mapping[str, Any]
    there: "There"
    names: tuple[str, ...] | None = None

    @property
    def clients(self) -> int:
        """How many there are."""
        return self.run.info.num_clients or 1


@dataclass(frozen=True)
class There:
    """Who was there when: (columns of rounds, bins of clients), each a number of clients times rounds.

    Args:
        there: clients that were there.
        known: clients that had joined, in rounds of which it is known who was there.
        complete: whether it is known of every round, and of every bin without interpolation.
    """

    there: Floats
    known: Floats
    complete: bool


class Names:
    """The lists of names that a setting's charts use, each once."""

    def __init__(self) -> None:
        self._at: dict[tuple[str, ...], int] = {}

    def at(self, each: Told) -> int | None:
        """The place of a run's names among the lists; None if its clients have none."""
        return None if each.names is None else self._at.setdefault(each.names, len(self._at))

    @property
    def lists(self) -> list[list[str]]:
        """The lists so far."""
        return [list(names) for names in self._at]


def told(run: Played, last: int, columns: int) -> Told:
    """Read what a run's folder tells of its clients.

    Args:
        run: its tables.
        last: round of the setting.
        columns: of rounds, at most.
    """
    from fedpick import store

    folder, clients = run.info.folder, run.info.num_clients or 1
    found = {name: each for name, each in store.read_census(folder).items() if len(each) == clients}
    if len(run.all_rounds) > len(run.rounds):
        found.pop("accuracy", None)  # it is of a later round than all that is shown
    if not np.isfinite(found.get("size", 0.0)).all():  # of clients that left before there were records
        del found["size"]
    said = None if run.info.simulated or clients > MOST_NAMES else store.read_clients(folder)
    names = _shown(said, clients) if said else None
    return Told(run, found, _there(run, store.read_presence(folder), clients, last, columns), names)


def _shown(names: Sequence[str], clients: int) -> tuple[str, ...]:
    """Names as the page shows them, short and without control characters; a number for clients without."""
    everyone = [*names, *[""] * (clients - len(names))]  # the last may have joined just now
    cut = (name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…" for name in everyone)
    return tuple(printable(name) or f"number {k}" for k, name in enumerate(cut))


def _there(run: Played, recorded: Any, clients: int, last: int, columns: int) -> There:
    """Who was there; of rounds that do not tell it is known only if nobody was away."""
    from fedpick.store.records import bin_edges

    rounds, ends, width = run.rounds, bin_edges(clients), min(last, columns)
    numbers = rounds["round"].to_pylist()
    joined = rounds["joined"].to_pylist() if "joined" in rounds.column_names else [None] * len(rounds)
    if run.info.simulated:
        joined = [clients] * len(rounds)
    rows = {}
    if recorded is not None:
        rows = dict(zip(recorded["round"].to_pylist(), recorded["there"].to_pylist(), strict=True))
    there, known = np.zeros((2, width, len(ends) - 1))
    complete = True
    for number, here, people in zip(numbers, rounds["available"].to_pylist(), joined, strict=True):
        column, row = max(number - 1, 0) * width // last, rows.get(number)
        own = bin_edges(people) if people else ends
        if people and row is not None and len(row) == len(own) - 1:
            inside = np.frombuffer(row, np.uint8) / 255.0 * np.diff(own)
            complete &= len(own) - 1 == people or people == clients
            if people != clients:  # the bins of fewer clients are narrower
                inside = np.diff(np.interp(ends, own, np.append(0.0, np.cumsum(inside))))
        elif people and here == people:
            inside = np.diff(np.minimum(ends, people))
        else:
            complete = False
            continue
        there[column] += inside
        known[column] += np.diff(np.minimum(ends, people))
    return There(there, known, complete)
