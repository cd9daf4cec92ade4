"""What a run's folder holds about its clients: values such as the amount of data, names, and who was there when."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedpick.core.errors import printable
from fedpick.core.types import Floats
from fedpick.report.layout import short
from fedpick.report.run_data import RunData

__all__ = ["ClientRecords", "NameLists", "Presence", "client_records"]

MOST_NAMES, LONGEST_NAME = 300, 60  # clients of a run that the page calls by their names, and characters of a name


@dataclass(frozen=True)
class Presence:
    """Who was there when: (columns of rounds, bins of clients), each a number of clients times rounds."""

    there: Floats  # clients that were there
    known: Floats  # clients that had joined, in the rounds whose records say who was there
    complete: bool  # whether the records say it for every round, and for every bin without interpolation


@dataclass(frozen=True)
class ClientRecords:
    """What a run's folder holds about its clients."""

    run: RunData
    census: Mapping[str, Any]  # arrays with a value per client, by name
    presence: Presence
    names: tuple[str, ...] | None = None  # of the clients of a deployment, if they are few

    @property
    def clients(self) -> int:
        """How many there are."""
        return self.run.info.num_clients or 1


class NameLists:
    """The lists of names that a setting's charts use, each once."""

    def __init__(self) -> None:
        self._index: dict[tuple[str, ...], int] = {}

    def index(self, records: ClientRecords) -> int | None:
        """The position of a run's names among the lists; None if its clients have none."""
        return None if records.names is None else self._index.setdefault(records.names, len(self._index))

    @property
    def lists(self) -> list[list[str]]:
        """The lists so far."""
        return [list(names) for names in self._index]


def client_records(run: RunData, last: int, columns: int) -> ClientRecords:
    """Read what a run's folder holds about its clients; rounds 1 to `last` are shown in at most so many columns."""
    from fedpick import store

    folder, clients = run.info.folder, run.info.num_clients or 1
    census = {name: each for name, each in store.read_census(folder).items() if len(each) == clients}
    if len(run.all_rounds) > len(run.rounds):
        census.pop("accuracy", None)  # it is of a later round than all that is shown
    if not np.isfinite(census.get("size", 0.0)).all():  # of clients that left before there were records
        del census["size"]
    names = None if run.info.simulated or clients > MOST_NAMES else store.read_clients(folder)
    presence = _presence(run, store.read_presence(folder), clients, last, columns)
    return ClientRecords(run, census, presence, _shown(names, clients) if names else None)


def _shown(names: Sequence[str], clients: int) -> tuple[str, ...]:
    """Names as the page shows them, short and without control characters; a number for clients without a name."""
    everyone = [*names, *[""] * (clients - len(names))]  # the last may have joined just now
    return tuple(printable(short(name, LONGEST_NAME)) or f"number {k}" for k, name in enumerate(everyone))


def _presence(run: RunData, recorded: Any, clients: int, last: int, columns: int) -> Presence:
    """Who was there; a round without a record of it counts only if all clients that had joined were there."""
    from fedpick.store.records import bin_edges

    rounds, ends, width = run.rounds, bin_edges(clients), min(last, columns)
    joined = rounds["joined"].to_pylist() if "joined" in rounds.column_names else [None] * len(rounds)
    if run.info.simulated:
        joined = [clients] * len(rounds)
    rows = {}
    if recorded is not None:
        rows = dict(zip(recorded["round"].to_pylist(), recorded["there"].to_pylist(), strict=True))
    there, known = np.zeros((2, width, len(ends) - 1))
    complete, counted = True, "present" if "present" in rounds.column_names else "available"  # as before 0.3
    for number, here, count in zip(rounds["round"].to_pylist(), rounds[counted].to_pylist(), joined, strict=True):
        column, row = max(number - 1, 0) * width // last, rows.get(number)
        edges = bin_edges(count) if count else ends
        if count and row is not None and len(row) == len(edges) - 1:
            inside = np.frombuffer(row, np.uint8) / 255.0 * np.diff(edges)
            complete &= len(edges) - 1 == count or count == clients
            if count != clients:  # the bins of fewer clients are narrower
                inside = np.diff(np.interp(ends, edges, np.append(0.0, np.cumsum(inside))))
        elif count and here == count:
            inside = np.diff(np.minimum(ends, count))
        else:
            complete = False
            continue
        there[column] += inside
        known[column] += np.diff(np.minimum(ends, count))
    return Presence(there, known, complete)
