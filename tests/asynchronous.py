"""Asynchronous training by its definition, slow and plain: what a faster engine must agree with.

`play` plays a `Script`, which says what every client does, and returns a `Log` of all that happened.

Readings, where the rules leave a choice:

1.  One instant is all that has the same time: answers by task id, timeouts by task id, the tick of the clock, changes
    of availability, then asking. So an answer at exactly sent_at + timeout is in time.
2.  A duration is more than 0: a task never ends in the instant in which it was sent.
3.  Asking happens at time 0 and in each instant in which a task ended, a commit was made or availability changed.
    Repeated or unknown answers, and ticks without a commit, change nothing, so nobody is asked because of them.
4.  `wanted` is the number of free slots, also where fewer clients are idle and there. With fewer free slots than
    `refill`, or nobody idle and there, `choose` is not called.
5.  Tasks get their ids in the order in which `choose` names the clients; it names none twice. If it names fewer than
    wanted, it is called again in the next instant in which asking happens, not before.
6.  What a client does depends on how many tasks it was given before (`nth`); one that timed out does not hold it up.
7.  An answer that is both unusable and too old is FAILED: usability is judged first.
8.  Staleness is the version in which the task ended minus the version it was sent, for LATE and FAILED tasks, too;
    their weight is 0.
9.  The weight of a DONE task is s(staleness) b, without eta/n. With FedAsync it is alpha s(staleness), and b multiplies
    nothing: client sizes and the policy's weights do not matter; eta and momentum are refused.
10. b is the policy's weight where there is one, and sizes do not matter then. It is fixed when the client is asked;
    c is the number of clients in that ask, the mean size is that of all clients.
11. The clock ticks at every, 2 every, 3 every ... seconds since the start, whenever commits were. A tick commits all
    that is in the buffer, whatever `size` is; with an empty buffer there is no commit and no new version.
12. Momentum starts at 0 and is kept from commit to commit.
13. `asked` of a commit counts the tasks sent since the commit before; `flying` those in flight right at the commit, so
    before others of the same instant end and before free slots are filled.
14. A task that ended belongs to the commit that comes next (`interval` is the version before it), so one that times out
    in the instant of a commit by size belongs to the following one, and in that of a tick to this one.
15. With `correct`, a DONE task counts b = p/S times the number of answers so far over the sum of counts p/S of all
    clients that have answered, at most 10; p is 1 or the client's size over the mean, S the sum of s(staleness) of its
    answers so far, this one too. The policy's weights do not count.
16. With a `bound`, the buffer is committed once the time since the last commit is the longest that those at work took
    for their last task, over bound + 1. Who has ended none counts as the slowest of all tasks so far; who failed took
    no time. This is looked at after the ticks of an instant; if nobody is at work, the buffer is committed at once.
17. The play ends with the last commit that is wanted, in the middle of its instant; or when nothing more can happen; or
    before the first instant after `until`.
"""

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from fedpick import Status

ANSWER, TIMEOUT, TICK, CHANGE = range(4)  # the order in an instant


def root(staleness: int) -> float:
    """FedBuff's weight of an answer."""
    return (1 + staleness) ** -0.5


@dataclass(frozen=True)
class FedAsync:
    """How far the model moves to each answer: alpha times a function of the staleness."""

    alpha: float
    kind: str = "constant"
    p: float = 0.5  # of "polynomial"
    g: float = 1.0  # of "hinge"
    h: float = 0.0

    def decay(self, staleness: int) -> float:
        if self.kind == "constant":
            return 1.0
        if self.kind == "polynomial":
            return (1 + staleness) ** -self.p
        assert self.kind == "hinge"
        return 1.0 if staleness <= self.h else 1 / (self.g * (staleness - self.h) + 1)


@dataclass
class Script:
    """The settings of the server, and what clients do; by default all are there, take a second and change nothing.

    Args:
        every: commit by the clock, so many seconds apart; None: when `size` answers are DONE.
        bound: commit by how long those at work will take, whatever `size` is.
        oldest: largest staleness that is used; None: any.
        refill: how many slots must be free before clients are asked.
        mixing: FedAsync instead of FedBuff.
        decay: s of FedBuff.
        sized: whether an update counts by its client's size.
        normalise: whether the policy's weights are divided by their mean in the ask.
        correct: whether answers count by how much of their client's has counted so far.
        duration: (client, nth) -> seconds until the answer; infinite: it vanishes.
        loss: (client, nth) -> loss; None: it reports none.
        update: (client, nth, model) -> trained minus sent; None: it reports an error.
        there: (client, time) -> whether it may be asked.
        changes: all times at which `there` changes, without 0.
        choose: (version, wanted, idle) -> clients to ask, of those idle and there, in this order.
        weigh: (version, chosen) -> the policy's weights; None: it has none.
        repeat: (client, nth) -> after how many seconds the answer comes a second time; None: it does not.
        unknown: times and ids of answers to tasks that were never sent.
        until: last time that is played.
        people: whose functions these are, to be printed.
    """

    clients: int
    concurrency: int
    size: int = 1
    timeout: float = 1000.0
    oldest: int | None = None
    refill: int = 1
    every: float | None = None
    bound: int | None = None
    mixing: FedAsync | None = None
    eta: float = 1.0
    momentum: float = 0.0
    decay: Callable[[int], float] = field(default=root, repr=False)
    sizes: Sequence[float] | None = None
    sized: bool = False
    normalise: bool = True
    correct: bool = False
    start: Sequence[float] = (0.0,)
    duration: Callable[[int, int], float] = field(default=lambda client, nth: 1.0, repr=False)
    loss: Callable[[int, int], float | None] = field(default=lambda client, nth: None, repr=False)
    update: Callable[[int, int, np.ndarray], np.ndarray | None] = field(
        default=lambda client, nth, model: np.zeros_like(model), repr=False
    )
    there: Callable[[int, float], bool] = field(default=lambda client, time: True, repr=False)
    changes: Sequence[float] = ()
    choose: Callable[[int, int, list[int]], list[int]] = field(
        default=lambda version, wanted, idle: idle[:wanted], repr=False
    )
    weigh: Callable[[int, list[int]], list[float]] | None = field(default=None, repr=False)
    repeat: Callable[[int, int], float | None] = field(default=lambda client, nth: None, repr=False)
    unknown: Sequence[tuple[float, int]] = ()
    until: float = math.inf
    people: object = None

    def __post_init__(self) -> None:
        assert 1 <= self.refill <= self.concurrency
        assert self.size >= 1
        assert 0 < self.timeout < math.inf
        assert self.every is None or self.every > 0
        if self.mixing is not None:
            assert (self.size, self.every, self.bound) == (1, None, None)
            assert (self.eta, self.momentum, self.correct) == (1.0, 0.0, False)
        if self.sized:
            assert self.sizes is not None
            assert len(self.sizes) == self.clients


@dataclass(frozen=True, eq=False)
class Task:
    """A client at work."""

    id: int
    client: int
    nth: int
    version: int  # that it was sent
    sent_at: float
    model: np.ndarray  # that it was sent
    b: float


@dataclass(frozen=True)
class Ended:
    """A task and how it ended."""

    id: int
    client: int
    nth: int
    version: int
    sent_at: float
    time: float
    status: Status
    staleness: int
    weight: float
    interval: int


@dataclass(frozen=True)
class Ask:
    """A call of `choose`."""

    time: float
    version: int
    wanted: int
    idle: tuple[int, ...]
    chosen: tuple[int, ...]
    ids: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Commit:
    """A new version; `ended` are all tasks that ended since the version before, in this order."""

    version: int
    time: float
    ended: tuple[Ended, ...]
    asked: int
    flying: int
    model: np.ndarray

    @property
    def tasks(self) -> list[Ended]:
        """Those whose updates are in it."""
        return [task for task in self.ended if task.status == Status.DONE]


@dataclass
class Log:
    """All that happened, in order; `ignored` are times and ids of answers that counted for nothing."""

    commits: list[Commit] = field(default_factory=list)
    ended: list[Ended] = field(default_factory=list)
    asks: list[Ask] = field(default_factory=list)
    ignored: list[tuple[float, int]] = field(default_factory=list)

    @property
    def model(self) -> np.ndarray:
        """The last one."""
        return self.commits[-1].model


def play(script: Script, commits: int) -> Log:
    """Play until so many commits were made, or nothing more can happen."""
    return _Play(script).run(commits)


class _Play:
    def __init__(self, script: Script) -> None:
        self.script, self.log = script, Log()
        self.now, self.version = 0.0, 0
        self.model = np.array(script.start, dtype=np.float64)
        self.velocity = np.zeros_like(self.model)
        self.flying: dict[int, Task] = {}
        self.buffer: list[tuple[float, np.ndarray, Task]] = []  # weight and update
        self.issued = 0  # tasks, which is the next id
        self.given = [0] * script.clients  # tasks of each client
        self.ended: list[Ended] = []  # since the last commit
        self.asked = 0  # since the last commit
        self.took: list[tuple[int, float]] = []  # client and seconds of all tasks that ended and did not fail
        self.used: list[tuple[int, float, float]] = []  # client, s(staleness) and p of all answers so far
        self.events: list[tuple[float, int, int]] = [(0.0, CHANGE, 0)]  # time, kind, id
        for time in script.changes:
            heapq.heappush(self.events, (time, CHANGE, 0))
        for time, number in script.unknown:
            heapq.heappush(self.events, (time, ANSWER, number))
        if script.every is not None:
            heapq.heappush(self.events, (script.every, TICK, 1))

    def run(self, commits: int) -> Log:
        while self.can_go_on():
            self.now = min(self.events[0][0], self.bounded())
            changed = False
            while self.events and self.events[0][0] == self.now:
                _, kind, number = heapq.heappop(self.events)
                changed |= self.happen(kind, number)
                if len(self.log.commits) == commits:
                    return self.log
            if self.now >= self.bounded():
                self.commit()
                changed = True
                if len(self.log.commits) == commits:
                    return self.log
            if changed:
                self.ask()
        return self.log

    def bounded(self) -> float:
        """When the buffer is committed because of the bound, if nothing happens before."""
        if self.script.bound is None or not self.buffer:
            return math.inf
        last = dict(self.took)
        slowest = max((seconds for _, seconds in self.took), default=0.0)
        longest = max((last.get(task.client, slowest) for task in self.flying.values()), default=0.0)
        moved = self.log.commits[-1].time if self.log.commits else 0.0
        return max(self.now, moved + longest / (self.script.bound + 1))

    def can_go_on(self) -> bool:
        if not self.events or min(self.events[0][0], self.bounded()) > self.script.until:
            return False
        waits = self.flying or self.buffer
        return bool(waits) or any(kind != TICK for _, kind, _ in self.events)

    def happen(self, kind: int, number: int) -> bool:
        """Whether anything changed."""
        if kind == ANSWER:
            return self.answer(number)
        if kind == TIMEOUT:
            if number not in self.flying:
                return False
            self.end(self.flying[number], Status.LATE)
            return True
        if kind == TICK:
            heapq.heappush(self.events, ((number + 1) * self.script.every, TICK, number + 1))
            if not self.buffer:
                return False
            self.commit()
            return True
        assert kind == CHANGE
        return True

    def answer(self, number: int) -> bool:
        if number not in self.flying:  # unknown, a repeat, or after the timeout
            self.log.ignored.append((self.now, number))
            return False
        task = self.flying[number]
        staleness = self.version - task.version
        loss = self.script.loss(task.client, task.nth)
        update = self.script.update(task.client, task.nth, task.model)
        if not usable(loss, update, self.model):
            self.end(task, Status.FAILED)
        elif self.script.oldest is not None and staleness > self.script.oldest:
            self.end(task, Status.LATE)
        else:
            if self.script.mixing is None:
                weight = self.script.decay(staleness)
                weight *= self.corrected(task, weight) if self.script.correct else task.b
            else:
                weight = self.script.mixing.alpha * self.script.mixing.decay(staleness)
            self.end(task, Status.DONE, weight)
            self.buffer.append((weight, np.array(update, dtype=np.float64), task))
            if self.script.every is None and self.script.bound is None and len(self.buffer) == self.script.size:
                self.commit()
        return True

    def corrected(self, task: Task, damping: float) -> float:
        self.used.append((task.client, damping, task.b))

        def summed(client: int) -> float:
            return sum(each for other, each, _ in self.used if other == client)

        total = 0.0
        for client in {client for client, _, _ in self.used}:
            share = [p for other, _, p in self.used if other == client]
            total += len(share) * share[-1] / summed(client)
        return min(10.0, task.b / summed(task.client) * len(self.used) / total)

    def end(self, task: Task, status: Status, weight: float = 0.0) -> None:
        del self.flying[task.id]
        if status != Status.FAILED:
            self.took.append((task.client, self.now - task.sent_at))
        what = (task.id, task.client, task.nth, task.version, task.sent_at)
        how = (self.now, status, self.version - task.version, weight, self.version)
        self.ended.append(Ended(*what, *how))
        self.log.ended.append(self.ended[-1])

    def commit(self) -> None:
        if self.script.mixing is not None:
            [(weight, update, task)] = self.buffer
            self.model = (1 - weight) * self.model + weight * (task.model + update)
        else:
            total = sum(weight * update for weight, update, _ in self.buffer)
            self.velocity = self.script.momentum * self.velocity + self.script.eta / len(self.buffer) * total
            self.model = self.model + self.velocity
        self.version += 1
        ended = tuple(self.ended)
        self.log.commits.append(Commit(self.version, self.now, ended, self.asked, len(self.flying), self.model))
        self.buffer, self.ended, self.asked = [], [], 0

    def ask(self) -> None:
        wanted = self.script.concurrency - len(self.flying)
        busy = {task.client for task in self.flying.values()}
        idle = [c for c in range(self.script.clients) if c not in busy and self.script.there(c, self.now)]
        if wanted < self.script.refill or not idle:
            return
        chosen = self.script.choose(self.version, wanted, list(idle))
        if len(chosen) > wanted or len(set(chosen)) < len(chosen) or not set(chosen) <= set(idle):
            raise ValueError(f"chosen: {chosen}, but {wanted} are wanted, each once, of those idle and there: {idle}")
        ids = tuple(range(self.issued, self.issued + len(chosen)))
        self.log.asks.append(Ask(self.now, self.version, wanted, tuple(idle), tuple(chosen), ids))
        for client, b in zip(chosen, self.bases(chosen), strict=True):
            self.send(client, b)

    def bases(self, chosen: list[int]) -> list[float]:
        """What each update counts for beside the others."""
        if self.script.weigh is not None and chosen and not self.script.correct:
            weights = self.script.weigh(self.version, chosen)
            whole = sum(weights) if self.script.normalise else 1.0
            return [len(chosen) * weight / whole for weight in weights]
        if self.script.sized:
            mean = sum(self.script.sizes) / self.script.clients
            return [self.script.sizes[client] / mean for client in chosen]
        return [1.0] * len(chosen)

    def send(self, client: int, b: float) -> None:
        task = Task(self.issued, client, self.given[client], self.version, self.now, self.model, b)
        self.issued += 1
        self.asked += 1
        self.given[client] += 1
        self.flying[task.id] = task
        heapq.heappush(self.events, (self.now + self.script.timeout, TIMEOUT, task.id))
        duration = self.script.duration(client, task.nth)
        assert duration > 0
        if duration < math.inf:
            heapq.heappush(self.events, (self.now + duration, ANSWER, task.id))
            again = self.script.repeat(client, task.nth)
            if again is not None:
                heapq.heappush(self.events, (self.now + duration + again, ANSWER, task.id))


def usable(loss: float | None, update: np.ndarray | None, model: np.ndarray) -> bool:
    """Whether an answer is not FAILED."""
    if loss is not None and not abs(loss) <= 1e12:  # a NaN is not
        return False
    return update is not None and np.shape(update) == model.shape and bool(np.isfinite(update).all())
