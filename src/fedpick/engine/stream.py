"""A stream of work: tasks that are asked and end at any time, and the answers that wait until the model moves.

The rules of `Buffered`; the drivers (a virtual clock, a server) say what happened and when. In one instant, answers are
judged in the order of their tasks' ids, then tasks time out, then clients are asked. An answer that completes the
buffer moves the model before the next one is judged, so its staleness is final when it comes.
"""

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from fedpick.core.bounds import limited
from fedpick.core.types import Choice, Clients, Floats, Status
from fedpick.engine.cohort import fits
from fedpick.engine.flight import Client
from fedpick.engine.paces import Buffered
from fedpick.engine.rates import Rates

__all__ = ["Ended", "Job", "Stream", "TaskCall", "stream_bases"]


def stream_bases(choice: Choice, clients: Clients, sized: bool, correct: bool = False) -> Floats:
    """What each chosen client's answer counts for, on average 1.

    Args:
        choice: of the policy; its weights count if it has some.
        clients: that are enrolled.
        sized: whether a client without a weight counts by its size over the mean size, and not 1.
        correct: `Buffered.correct`: rates of answers, as they are, stand in the place of the policy's weights.

    >>> stream_bases(Choice([0, 1], weights=[3, 1]), Clients([10, 30, 20]), sized=True).tolist()
    [1.5, 0.5]
    >>> stream_bases(Choice([0, 1]), Clients([10, 30, 20]), sized=True).tolist()
    [0.5, 1.5]
    """
    if choice.weights is None or correct:
        if not sized:
            return np.ones(len(choice))
        # `most` is a multiple of the median of all: with one client asked at a time, a cohort has none.
        own = clients.sizes if choice.most is None else limited(clients.sizes, choice.most)
        found: Floats = own[choice.ids] / clients.sizes.mean()
        return found
    total = choice.weights.sum()
    relative = choice.normalise and total > 0.0
    return len(choice) * (choice.weights / total if relative else choice.weights)


@dataclass(frozen=True, slots=True)
class Job:
    """One client's work, on the model as it was when the client was asked.

    Args:
        id: never used again, also after a restart.
        client: whose work it is.
        version: of the model that it was sent.
        sent_at: the clock then.
        inclusion: probability with which it was chosen; NaN: not known.
        base: what its answer counts for.
        kept: numbers that the policy keeps with it, by name, in the order of their names.
    """

    id: int
    client: Client
    version: int
    sent_at: float
    inclusion: float = np.nan
    base: float = 1.0
    kept: tuple[tuple[str, float], ...] = ()


class TaskCall(NamedTuple):
    """Tasks that are trained in one call: the arguments of a trainer's `train_tasks`.

    Args:
        models: by version.
        tasks: each with its client and the version that it starts from.
        epochs: of each client.
        rngs: a stream of random numbers for each task.
        most: tasks that may be trained in one call at most.
    """

    models: Mapping[int, Any]
    tasks: Sequence[Job]
    epochs: Floats
    rngs: Sequence[np.random.Generator]
    most: int


@dataclass(frozen=True, slots=True)
class Ended:
    """How a task ended, and when.

    Args:
        task: that ended.
        status: DONE: it is used; FAILED: an error, or an answer that cannot be used; LATE: given up, or too stale.
        at: the clock then.
        staleness: moves of the model since it was sent.
        weight: of its update in the model's change, times the number of answers that the change is divided by.
        loss: that the client reports; NaN: none.
        took: seconds that the client took, where the driver knows better than by its clock; NaN: it does not.
    """

    task: Job
    status: Status
    at: float
    staleness: int
    weight: float = 0.0
    loss: float = np.nan
    took: float = np.nan

    @property
    def duration(self) -> float:
        """Seconds from asking to the answer; of a client that was given up, until then; NaN if it failed."""
        if self.status == Status.FAILED:
            return np.nan
        return self.at - self.task.sent_at if np.isnan(self.took) else self.took


@dataclass
class Stream:
    """The tasks in flight, and those that have ended since the model last moved.

    >>> stream = Stream(Buffered(concurrency=2, size=1, timeout=60))
    >>> one, two = stream.send(Choice([3, 5]), [3, 5], now=0.0, base=np.ones(2))
    >>> stream.arrive(two.id, now=4.0, loss=0.7).name, stream.full, stream.free
    ('DONE', True, 1)
    >>> [(each.task.client, each.weight) for each in stream.commit(4.0)], stream.version
    ([(5, 1.0)], 1)
    """

    pace: Buffered
    version: int = 0  # how often the model has moved
    issued: int = 0  # tasks so far: the next one's id
    moved_at: float = 0.0  # the clock when the model last moved
    flying: dict[int, Job] = field(default_factory=dict)  # by id
    ended: list[Ended] = field(default_factory=list)  # since the model last moved, in order
    asked: int = 0  # since then
    back: int = 0  # messages that came back since then
    held: int = 0  # answers that are used when it moves next
    ticks: int = 1  # of the clock so far, if it moves the model
    rates: Rates = field(default_factory=Rates)  # of the clients' answers, if the pace corrects by them
    seconds: dict[Client, float] = field(default_factory=dict)  # that clients took last, if the pace has a bound
    slowest: float = 0.0  # of all that they took
    _timeouts: list[tuple[float, int]] = field(default_factory=list)  # a heap; also of tasks that have ended

    def __post_init__(self) -> None:
        self.pace = self.pace.within(None)
        self._wait_for_flying()

    def _wait_for_flying(self) -> None:
        self._timeouts = [(task.sent_at + self.timeout, id) for id, task in self.flying.items()]
        heapq.heapify(self._timeouts)

    @property
    def timeout(self) -> float:
        """Seconds after which a task is given up."""
        assert self.pace.timeout is not None
        return self.pace.timeout

    @property
    def free(self) -> int:
        """Clients that may be asked now: 0 until `refill` places are free."""
        free = self.pace.concurrency - len(self.flying)
        return free if free >= self.pace.refill else 0

    @property
    def full(self) -> bool:
        """Whether enough answers have come: the model moves before anything else happens."""
        return self.pace.size is not None and self.held >= self.pace.size

    def due(self, now: float) -> bool:
        """Whether the model moves by the clock: it ticks, or what is at work would become too stale."""
        return self.held > 0 and (self._tick(now) == now or self._bounded() <= now)

    def _bounded(self) -> float:
        """The clock when the model has to move by the pace's bound, as far as is known now."""
        if self.pace.bound is None:
            return np.inf
        longest = max((self.seconds.get(client, self.slowest) for client in self.busy), default=0.0)
        return self.moved_at + longest / (self.pace.bound + 1)

    def note_time(self, task: Job, now: float) -> None:
        """Remember how long a client took, if the pace needs it."""
        if self.pace.bound is not None:
            took = self.seconds[task.client] = now - task.sent_at
            self.slowest = max(self.slowest, took)

    def _tick(self, now: float) -> float:
        """The first tick of the clock that is not before now; infinite: it does not tick."""
        every = self.pace.every
        if every is None:
            return np.inf
        while self.ticks * every < now:
            self.ticks += 1
        return self.ticks * every

    def next(self, now: float) -> float:
        """The clock when, after now, the next task times out or the model moves by the clock; infinite: neither."""
        while self._timeouts and self._timeouts[0][1] not in self.flying:
            heapq.heappop(self._timeouts)
        first = self._timeouts[0][0] if self._timeouts else np.inf
        if not self.held:
            return first
        if self.pace.every is not None:
            tick = self._tick(now)
            first = min(first, tick if tick > now else (self.ticks + 1) * self.pace.every)
        return min(first, max(self._bounded(), now))

    def send(self, choice: Choice, clients: Sequence[Client], now: float, base: Floats) -> list[Job]:
        """Give tasks to these clients, which are those of the choice; `base` is what each answer counts for."""
        first, inclusion = self.issued, choice.inclusion
        chances = [np.nan] * len(clients) if inclusion is None else inclusion.tolist()
        names = sorted(choice.kept or {})
        columns = [(choice.kept or {})[name].tolist() for name in names]
        rows = [tuple(zip(names, row, strict=True)) for row in zip(*columns, strict=True)] or [()] * len(clients)
        tasks = [
            Job(first + at, client, self.version, now, chances[at], each, rows[at])
            for at, (client, each) in enumerate(zip(clients, base.tolist(), strict=True))
        ]
        for task in tasks:
            self.flying[task.id] = task
            heapq.heappush(self._timeouts, (now + self.timeout, task.id))
        if len(self._timeouts) > 2 * len(self.flying) + 100:  # most have ended: with a long timeout they would pile up
            self._wait_for_flying()
        self.issued += len(tasks)
        self.asked += len(tasks)
        return tasks

    def arrive(
        self,
        id: int,
        now: float,
        loss: float | None = None,
        usable: bool = True,
        answered: bool = True,
        took: float = np.nan,
    ) -> Status | None:
        """An answer, or an error; None if no task of this id is in flight, as for an answer that comes twice.

        Args:
            id: of the task.
            now: the clock.
            loss: that the client reports; None: none.
            usable: whether it is an update that can be aggregated; False: an error.
            answered: whether a message came, or the failure was noticed otherwise.
            took: see `Ended`.
        """
        task = self.flying.pop(id, None)
        self.back += answered
        if task is None:
            return None
        tau = self.version - task.version
        if not (usable and fits(loss)):
            self.ended.append(Ended(task, Status.FAILED, now, tau))
            return Status.FAILED
        self.note_time(task, now)
        late = self.pace.oldest is not None and tau > self.pace.oldest
        status, weight = Status.LATE if late else Status.DONE, 0.0
        if not late:
            weight = self._weight(task, tau)
            self.held += 1
        self.ended.append(Ended(task, status, now, tau, weight, np.nan if loss is None else loss, took))
        return status

    def _weight(self, task: Job, tau: int) -> float:
        """What this answer counts for."""
        damping = float(self.pace.damping(tau))
        if self.pace.mixing is not None:
            return damping
        return damping * (self.rates.weigh(task.client, task.base, damping) if self.pace.correct else task.base)

    def expire(self, now: float) -> list[Ended]:
        """Give up the tasks that have timed out; their clients are free."""
        found = []
        while self._timeouts and self._timeouts[0][0] <= now:
            task = self.flying.pop(heapq.heappop(self._timeouts)[1], None)
            if task is not None:
                self.note_time(task, now)
                found.append(Ended(task, Status.LATE, now, self.version - task.version))
        self.ended += found
        return found

    def commit(self, now: float) -> list[Ended]:
        """Move the model: the tasks that ended since it last moved, in order; those that are DONE are its change."""
        found = self.ended
        self.ended, self.held, self.asked, self.back = [], 0, 0, 0
        self.version, self.moved_at = self.version + 1, now
        return found

    @property
    def busy(self) -> list[Client]:
        """The clients that work."""
        return [task.client for task in self.flying.values()]

    @property
    def untold(self) -> list[Client]:
        """The clients of the tasks that have ended, of which the policy learns when the model moves next."""
        return [each.task.client for each in self.ended]

    def pack(self) -> dict[str, Any]:
        """Everything as arrays, for a checkpoint; clients are numbers."""
        tasks, ended = list(self.flying.values()), self.ended
        every = [*tasks, *(each.task for each in ended)]
        found = {name: np.array([getattr(task, name) for task in every], dtype=kind) for name, kind in _TASK.items()}
        found |= {
            f"ended_{name}": np.array([getattr(each, name) for each in ended], dtype=np.float64) for name in _ENDED
        }
        for at, (name, _) in enumerate(every[0].kept if every else ()):
            found[f"kept/{name}"] = np.array([task.kept[at][1] for task in every])
        counts = (self.version, self.issued, self.asked, self.back, self.held, self.ticks)
        found |= self.rates.pack() if self.pace.correct else {}
        if self.pace.bound is not None:
            found["seconds"] = np.array([*self.seconds.items(), (-1, self.slowest)], dtype=np.float64)
        return found | {"counts": np.array(counts, dtype=np.int64), "moved_at": np.float64(self.moved_at)}

    @classmethod
    def unpack(cls, pace: Buffered, arrays: dict[str, Any]) -> "Stream":
        """What `pack` gave."""
        rows = zip(*(np.asarray(arrays[name]).tolist() for name in _TASK), strict=True)
        names = sorted(name for name in arrays if name.startswith("kept/"))
        kept = [
            tuple(zip((name.removeprefix("kept/") for name in names), row, strict=True))
            for row in zip(*(np.asarray(arrays[name]).tolist() for name in names), strict=True)
        ]
        tasks = [
            Job(**dict(zip(_TASK, row, strict=True)), kept=kept[at] if names else ()) for at, row in enumerate(rows)
        ]
        columns = [np.asarray(arrays[f"ended_{name}"]).tolist() for name in _ENDED]
        flying = len(tasks) - len(columns[0])
        ended = [
            Ended(task, Status(int(status)), at, int(stale), *rest)
            for task, status, at, stale, *rest in zip(tasks[flying:], *columns, strict=True)
        ]
        version, issued, asked, back, held, ticks = np.asarray(arrays["counts"]).tolist()
        by_id = {task.id: task for task in tasks[:flying]}
        moved_at, rates = float(arrays["moved_at"]), Rates.unpack(arrays)
        *took, (_, slowest) = np.asarray(arrays.get("seconds", [(-1.0, 0.0)])).tolist()
        seconds: dict[Client, float] = {int(client): each for client, each in took}
        return cls(pace, version, issued, moved_at, by_id, ended, asked, back, held, ticks, rates, seconds, slowest)


_TASK = {"id": np.int64, "client": np.int64, "version": np.int64, "sent_at": float, "inclusion": float, "base": float}
_ENDED = ("status", "at", "staleness", "weight", "loss", "took")
