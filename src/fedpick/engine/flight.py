"""Tasks in flight after their round was closed: whose clients are busy, which updates have come, which are too old."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedpick.core.types import Bools, Ints

__all__ = ["Flight", "Task"]

Client = int | str  # a number in simulated runs, a name in sessions


@dataclass(frozen=True)
class Task:
    """One client's work on one version of the model.

    Args:
        id: never used again, also after a restart.
        client: whose work it is.
        round: in which it was sent; the model's version then was one less.
        base: what its update counts for beside the others (`fedpick.engine.weights.bases`).
        relative: whether bases are divided by their sum; else this one is used as it is.
        sized: whether the base is the client's size, in whose place the size that comes with an answer stands.
        most: the largest size that counts beside those of its round.
        due: the clock when its answer comes, where that is known: in simulated runs; infinite: it never comes.
    """

    id: int
    client: Client
    round: int
    base: float = 1.0
    relative: bool = True
    sized: bool = True
    most: float = np.inf
    due: float = np.inf


@dataclass
class Flight:
    """The tasks that go on after their round was closed, and those that have come but are not used yet.

    >>> flight = Flight()
    >>> flight.add([Task(flight.issue(1), "ada", round=1)])
    >>> flight.busy, flight.arrive("ada", 1).round, flight.busy, flight.held
    (['ada'], 1, [], ['ada'])
    >>> flight.use(flight.come(round=2, late=3))
    >>> flight.held
    []
    """

    issued: int = 0  # tasks so far: the next task's id
    landed: int = 0  # answers that came since the last record
    _flying: dict[tuple[Client, int], Task] = field(default_factory=dict)  # by client and round
    _come: list[Task] = field(default_factory=list)

    def issue(self, count: int) -> int:
        """The first of so many new ids, which are consecutive."""
        self.issued += count
        return self.issued - count

    def add(self, tasks: Iterable[Task]) -> None:
        """Let tasks go on."""
        self._flying |= {(task.client, task.round): task for task in tasks}

    @property
    def busy(self) -> list[Client]:
        """The clients that still work on an earlier round, and cannot be asked."""
        return [task.client for task in self._flying.values()]

    @property
    def held(self) -> list[Client]:
        """The clients whose update has come but is not used yet."""
        return [task.client for task in self._come]

    @property
    def held_ids(self) -> list[int]:
        """Of the tasks whose update has come but is not used yet."""
        return [task.id for task in self._come]

    @property
    def first(self) -> float:
        """The clock when the next answer comes; infinite if none will."""
        return min((task.due for task in self._flying.values()), default=np.inf)

    @property
    def ids(self) -> list[int]:
        """Of the tasks in flight."""
        return [task.id for task in self._flying.values()]

    def owes(self, client: Client, round: int) -> bool:
        """Whether an answer of this client for this round is awaited."""
        return (client, round) in self._flying

    def arrive(self, client: Client, round: int, held: bool = True) -> Task | None:
        """An answer comes: its task, which ends; None if none is awaited, as for a repeated answer.

        If not `held`, its update cannot be used.
        """
        task = self._flying.pop((client, round), None)
        self.landed += task is not None
        if task is not None and held:
            self._come.append(task)
        return task

    def land(self, clock: float) -> None:
        """Let all answers arrive that are due by now."""
        for task in [task for task in self._flying.values() if task.due <= clock]:
            self.arrive(task.client, task.round)

    def give_up(self, round: int, late: int) -> None:
        """Before a round is opened: forget the tasks that are too old to be used in it; their clients are free."""
        self._flying = {key: task for key, task in self._flying.items() if round - task.round <= late}
        self._come = [task for task in self._come if round - task.round <= late]

    def leave(self, clients: Collection[Client]) -> None:
        """Forget the tasks of clients that left."""
        self._flying = {key: task for key, task in self._flying.items() if task.client not in clients}
        self._come = [task for task in self._come if task.client not in clients]

    def come(self, round: int, late: int) -> list[Task]:
        """The tasks whose updates this round may use."""
        return [task for task in self._come if round - task.round <= late]

    def use(self, tasks: Iterable[Task]) -> None:
        """Forget tasks that were used: each is used once."""
        used = {task.id for task in tasks}
        self._come = [task for task in self._come if task.id not in used]

    def mask(self, count: int) -> Bools:
        """Mask of the busy ones of so many clients, which are numbers."""
        found = np.zeros(count, dtype=np.bool_)
        if self._flying:
            found[np.array(self.busy, dtype=np.int64)] = True
        return found

    def pack(self) -> dict[str, Any]:
        """The tasks in flight as arrays, for a checkpoint; clients are numbers."""
        tasks = list(self._flying.values())
        columns = {"id": np.int64, "client": np.int64, "round": np.int64, "due": np.float64}
        return {name: np.array([getattr(t, name) for t in tasks], dtype=kind) for name, kind in columns.items()}

    @classmethod
    def unpack(cls, arrays: dict[str, Any], issued: int) -> "Flight":
        """What `pack` gave."""
        found = cls(issued)
        rows = zip(*(np.asarray(arrays[name]).tolist() for name in ("id", "client", "round", "due")), strict=True)
        found.add(Task(id, client, round, due=due) for id, client, round, due in rows)
        return found


def rows_of(ids: Ints, tasks: list[Task]) -> Ints:
    """Positions of these tasks in a column of ids; those that are not in it are left out."""
    where = {id: at for at, id in enumerate(ids.tolist())}
    return np.array([where[task.id] for task in tasks if task.id in where], dtype=np.int64)
