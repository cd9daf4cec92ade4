"""A script of asynchronous training, played by `fp.Session` on a clock of its own: a log as of the reference."""

import heapq
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import fedpick as fp
from asynchronous import Ask, Commit, Ended, Log, Script
from fedpick.server import stream

QUARTER = 0.25  # all times of a script are multiples of it


class Clock:
    """In place of `monotonic`; on it the server waits as long as it should."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.start = self.now

    def __enter__(self) -> "Clock":
        self.before, stream.monotonic = stream.monotonic, lambda: self.now
        return self

    def __exit__(self, *exception: object) -> None:
        stream.monotonic = self.before


@dataclass(frozen=True, eq=False)
class Chooses:
    """The script's choices, with its weights; what it is told is checked."""

    cohort_size: int
    player: Any = field(repr=False)

    def init(self, clients: fp.Clients) -> Any:
        return fp.Uniform(1).init(clients)

    def select(self, state: Any, view: fp.View, rng: Any) -> fp.Choice:
        script, player = self.player.script, self.player
        assert (view.version, view.version) == (view.round - 1, player.version)
        clients = player.clients
        idle = sorted(clients[k] for k in np.flatnonzero(view.available))
        assert sorted(clients[k] for k in np.flatnonzero(view.busy)) == sorted(c for c, _, _ in player.flying.values())
        chosen = script.choose(view.version, view.wanted, list(idle))
        player.log.asks.append(Ask(player.time, view.version, view.wanted, tuple(idle), tuple(chosen), ()))
        weights = None if script.weigh is None else script.weigh(view.version, chosen)
        ids = np.array([clients.index(c) for c in chosen], dtype=np.int64)
        return fp.Choice(ids, weights=weights, normalise=script.normalise or weights is None)

    def observe(self, state: Any, view: fp.View, choice: fp.Choice, outcome: fp.Outcome) -> Any:
        assert len(set(choice.ids.tolist())) == len(choice)
        np.add.at(state.counts, choice.ids, 1)
        return state


def pace_of(script: Script) -> fp.Buffered:
    """The script's, as fedpick writes it."""
    mixing = script.mixing
    how: dict[str, Any] = {"size": None if script.every is not None else script.size, "every": script.every}
    if mixing is not None:
        how |= {"mixing": mixing.kind, "alpha": mixing.alpha, "power": mixing.p, "slope": mixing.g, "hinge": mixing.h}
    return fp.Buffered(
        script.concurrency,
        timeout=script.timeout,
        oldest=script.oldest,
        refill=script.refill,
        correct=script.correct,
        **how,
    )


class Player:
    """Clients that do what the script says, and a server that is looked at in each quarter of a second."""

    def __init__(self, script: Script, clock: Clock, **settings: Any) -> None:
        self.script, self.clock, self.log = script, clock, Log()
        self.settings = settings
        self.session = self.new()
        if script.sized:  # the mean size is that of the enrolled: in the reference, of all from the beginning
            self.session.roster.enrol([str(k) for k in range(script.clients)], fp.Clients(script.sizes))
        self.model = np.array(script.start, dtype=np.float64)
        self.velocity = np.zeros_like(self.model)
        self.flying: dict[int, tuple[int, int, int]] = {}  # client, nth, version
        self.told: dict[int, tuple[int, int, float, np.ndarray]] = {}  # of all tasks
        self.given = [0] * script.clients
        self.coming: list[tuple[float, int]] = [(time, number) for time, number in script.unknown]
        heapq.heapify(self.coming)
        self.statuses: dict[int, list[Any]] = {}

    def new(self) -> fp.Session:
        return fp.Session(
            Chooses(self.script.concurrency, self), pace=pace_of(self.script), durations="arrival", **self.settings
        )

    @property
    def time(self) -> float:
        return self.clock.now - self.clock.start

    @property
    def version(self) -> int:
        return self.session.version

    @property
    def clients(self) -> list[int]:
        """By index of the session."""
        return [int(name) for name in self.session.names]

    def play(self, commits: int) -> Log:
        """Until so many commits are made, or the script is over."""
        for step in range(int(self.script.until / QUARTER) + 1):
            self.clock.now = self.clock.start + step * QUARTER
            if self.instant(commits):
                break
        return self.log

    def instant(self, commits: int) -> bool:
        """Answers, commits, asking; whether it is over."""
        while self.coming and self.coming[0][0] <= self.time:
            self.answer(heapq.heappop(self.coming)[1])
        if self.commit(commits):
            return True
        self.ask()
        return False

    def answer(self, number: int) -> None:
        status = None
        if number not in self.told:
            status = self.session.done(number, update=np.ones(2), loss=0.5)
        else:
            client, nth, _, sent = self.told[number]
            update, loss = self.script.update(client, nth, sent), self.script.loss(client, nth)
            if update is None or np.shape(update) != np.shape(sent):  # the user's own check
                status = self.session.failed(number, "as the script says")
            else:
                moved = update if self.script.mixing is None else sent + update
                status = self.session.done(number, update=moved, loss=loss)
            if not self.statuses.get(number) and (again := self.script.repeat(client, nth)) is not None:
                heapq.heappush(self.coming, (self.time + again, number))
        self.statuses.setdefault(number, []).append(status)
        if status is None:
            self.log.ignored.append((self.time, number))
        else:
            self.flying.pop(number)

    def commit(self, commits: int) -> bool:
        """Whether it is over."""
        while commit := self.session.commit():
            if self.script.mixing is None:
                self.velocity = self.script.momentum * self.velocity + self.script.eta * commit.change()
                self.model = self.model + self.velocity
            else:
                self.model = commit.apply(self.model)
            record = commit.close()
            ended = tuple(self.ended(each, record.round - 1) for each in record.tasks)
            what = (record.round, record.clock, ended, record.asked, record.flying, self.model)
            self.log.commits.append(Commit(*what))
            self.log.ended += ended
            if record.round == commits:
                return True
        working = {task.id for task in self.session.tasks}
        self.flying = {id: each for id, each in self.flying.items() if id in working}
        return False

    def ended(self, each: Any, interval: int) -> Ended:
        task = each.task
        client, nth, _, _ = self.told[task.id]
        what = (task.id, client, nth, task.version, task.sent_at)
        return Ended(*what, each.at, each.status, each.staleness, each.weight, interval)

    def ask(self) -> None:
        script = self.script
        there = [client for client in range(script.clients) if script.there(client, self.time)]
        sizes = script.sizes if script.sized else [1.0] * script.clients
        for task in self.session.ask({str(client): sizes[client] for client in there}):
            client = int(task.name)
            nth = self.given[client]
            self.given[client] += 1
            assert task.version == self.version
            self.flying[task.id] = client, nth, task.version
            self.told[task.id] = client, nth, self.time, self.model
            heapq.heappush(self.coming, (self.time + script.duration(client, nth), task.id))
