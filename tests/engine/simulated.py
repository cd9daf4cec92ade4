"""The simulator as a player of scripts: what the reference's `play` returns, played by `fp.Run` and `fp.Buffered`."""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import fedpick as fp
from asynchronous import Ask, Commit, Ended, Log, Script, root
from fedpick import worlds
from fedpick.core.types import Updates

QUARTER = 0.25  # all times of a script are multiples of it


def grid(script: Script) -> float:
    """What all its times are multiples of, those of its commits, too."""
    return QUARTER if script.bound is None else QUARTER / (script.bound + 1)


class AsScripted(fp.Buffered):
    """With the script's own weight of stale answers."""

    decay: Any

    def damping(self, staleness: Any) -> Any:
        return self.decay(staleness)


@dataclass
class Asked:
    """The tasks in the order in which they were sent: the n-th has the id n."""

    tasks: list[tuple[int, int]] = field(default_factory=list)  # client, nth
    asks: list[Ask] = field(default_factory=list)
    nth: dict[int, int] = field(default_factory=lambda: defaultdict(int))


class There(worlds.Always):
    def __init__(self, script: Script) -> None:
        object.__setattr__(self, "script", script)

    def mask(self, memory: Any, drawn: Any, clients: fp.Clients, round: int, clock: float) -> Any:
        return np.array([self.script.there(k, clock) for k in range(len(clients))])


@dataclass(frozen=True, eq=False)
class Takes(worlds.PerClient):
    script: Any = None
    asked: Any = None

    def seconds_of(self, memory: Any, drawn: Any, idle: Any, ids: Any, epochs: Any, noise: Any) -> Any:
        found = []
        for k in ids.tolist():
            nth = self.asked.nth[k]
            self.asked.nth[k] += 1
            self.asked.tasks.append((k, nth))
            found.append(self.script.duration(k, nth))
        return np.array(found)


@dataclass
class Learns:
    """A trainer in float64 that does what the script says."""

    script: Script
    asked: Asked
    aggregation: str
    calls: list[int] = field(default_factory=list)

    def init(self, seed: int) -> Any:
        start = np.array(self.script.start, dtype=np.float64)
        return {"x": start, "u": np.zeros_like(start)}

    def probe(self, *args: Any) -> Any:
        raise AssertionError("nobody asks")

    train = aggregate = probe

    def train_tasks(self, models: Any, tasks: Any, epochs: Any, rngs: Any, most: int) -> Any:
        self.calls.append(len(tasks))
        assert len(tasks) == len(rngs) <= most
        loss, usable, rows = [], [], []
        for task in tasks:
            client, nth = self.asked.tasks[task.id]
            assert client == task.client
            model = models[task.version]["x"]
            update, said = self.script.update(client, nth, model), self.script.loss(client, nth)
            fits = update is not None and np.shape(update) == model.shape and bool(np.isfinite(update).all())
            usable.append(fits)
            rows.append(update if fits else np.zeros_like(model))
            loss.append(0.0 if said is None else said)
        return Updates(np.array(loss), {}, None, np.array(usable)), {"delta": np.array(rows)}

    def move(self, model: Any, rows: Any, weights: Any, sent: Any = None) -> Any:
        delta = rows["delta"] if sent is None else rows["delta"] + sent["x"] - model["x"]
        step = self.script.momentum * model["u"] + self.script.eta * (weights[:, None] * delta).sum(axis=0)
        return {"x": model["x"] + step, "u": step}

    def evaluate(self, model: Any, round: int) -> dict[str, float]:
        return {}


@dataclass(frozen=True, eq=False)
class Chooses:
    """The script's choices, with its weights; what it is told is checked."""

    cohort_size: int
    script: Any
    asked: Any
    clock: Any  # a list that holds the run

    def init(self, clients: fp.Clients) -> Any:
        return fp.Uniform(1).init(clients)

    def select(self, state: Any, view: fp.View, rng: Any) -> fp.Choice:
        assert view.version == view.round - 1
        idle = np.flatnonzero(view.available).tolist()
        chosen = self.script.choose(view.version, view.wanted, idle)
        ids = tuple(range(len(self.asked.tasks), len(self.asked.tasks) + len(chosen)))
        now = self.clock[0].state.world.clock
        self.asked.asks.append(Ask(now, view.version, view.wanted, tuple(idle), tuple(chosen), ids))
        weights = None if self.script.weigh is None else self.script.weigh(view.version, chosen)
        ids = np.array(chosen, dtype=np.int64)
        return fp.Choice(ids, weights=weights, normalise=self.script.normalise or weights is None)

    def observe(self, state: Any, view: fp.View, choice: fp.Choice, outcome: fp.Outcome) -> Any:
        assert len(set(choice.ids.tolist())) == len(choice)
        np.add.at(state.counts, choice.ids, 1)
        return state


def pace_of(script: Script) -> fp.Buffered:
    """The settings of the server."""
    mixing = script.mixing
    how: dict[str, Any] = {"every": script.every, "bound": script.bound}
    how["size"] = script.size if script.every is None and script.bound is None else None
    if mixing is not None:
        how |= {"mixing": mixing.kind, "alpha": mixing.alpha, "power": mixing.p, "slope": mixing.g, "hinge": mixing.h}
    found = (fp.Buffered if script.decay is root else AsScripted)(
        script.concurrency,
        timeout=script.timeout,
        oldest=script.oldest,
        refill=script.refill,
        correct=script.correct,
        wait=grid(script),
        **how,
    )
    if isinstance(found, AsScripted):
        object.__setattr__(found, "decay", script.decay)
    return found


def run_of(script: Script) -> tuple[fp.Run, Asked]:
    """The same script in the simulator."""
    asked, pace = Asked(), pace_of(script)
    world = fp.World(
        fp.Clients(script.sizes or np.ones(script.clients)),
        availability=There(script),
        volatility=worlds.Reliable(),
        latency=Takes(script=script, asked=asked),
        deadline=None,
    )
    trainer, clock = Learns(script, asked, "fedavg" if script.sized else "mean"), []
    clock.append(fp.Run(Chooses(script.concurrency, script, asked, clock), world, 0, trainer, pace=pace))
    return clock[0], asked


def ended_of(each: Any, asked: Asked, interval: int) -> Ended:
    task = each.task
    what = (task.id, *asked.tasks[task.id], task.version, task.sent_at)
    return Ended(*what, each.at, each.status, each.staleness, each.weight, interval)


def simulated(script: Script, commits: int) -> Log:
    """As `play` of the reference; answers that come twice, or to no task, are not simulated."""
    run, asked = run_of(script)
    log = Log()
    for record in run.rounds(until=commits):
        ended = tuple(ended_of(each, asked, record.round - 1) for each in record.tasks)
        log.commits.append(Commit(record.round, record.clock, ended, record.asked, record.flying, run.state.model["x"]))
        log.ended += ended
    log.asks = asked.asks
    return log
