"""Asynchronous runs agree with the slow reference: the same tasks, times, versions, staleness, weights and models."""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from asynchronous import Script, play
from asynchronous_scripts import scripts
from hypothesis import HealthCheck, given, settings

import fedpick as fp
from fedpick import worlds
from fedpick.core.types import Updates
from fedpick.engine.stream import Stream

QUARTER = 0.25  # all times of a script are multiples of it


@dataclass
class Asked:
    """The tasks in the order in which they were sent: the n-th has the id n."""

    tasks: list[tuple[int, int]] = field(default_factory=list)  # client, nth
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

    def init(self, clients: fp.Clients) -> Any:
        return fp.Uniform(1).init(clients)

    def select(self, state: Any, view: fp.View, rng: Any) -> fp.Choice:
        assert view.version == view.round - 1
        chosen = self.script.choose(view.version, view.wanted, np.flatnonzero(view.available).tolist())
        weights = None if self.script.weigh is None else self.script.weigh(view.version, chosen)
        ids = np.array(chosen, dtype=np.int64)
        return fp.Choice(ids, weights=weights, normalise=self.script.normalise or weights is None)

    def observe(self, state: Any, view: fp.View, choice: fp.Choice, outcome: fp.Outcome) -> Any:
        assert len(set(choice.ids.tolist())) == len(choice)
        np.add.at(state.counts, choice.ids, 1)
        return state


def run_of(script: Script) -> tuple[fp.Run, Asked]:
    """The same script in the simulator."""
    asked, mixing = Asked(), script.mixing
    how: dict[str, Any] = {"size": None if script.every is not None else script.size, "every": script.every}
    if mixing is not None:
        how |= {"mixing": mixing.kind, "alpha": mixing.alpha, "power": mixing.p, "slope": mixing.g, "hinge": mixing.h}
    pace = fp.Buffered(
        script.concurrency,
        timeout=script.timeout,
        oldest=script.oldest,
        refill=script.refill,
        wait=QUARTER,
        **how,
    )
    world = fp.World(
        fp.Clients(script.sizes or np.ones(script.clients)),
        availability=There(script),
        volatility=worlds.Reliable(),
        latency=Takes(script=script, asked=asked),
        deadline=None,
    )
    trainer = Learns(script, asked, "fedavg" if script.sized else "mean")
    return fp.Run(Chooses(script.concurrency, script), world, 0, trainer, pace=pace), asked


def agree(script: Script, commits: int) -> int:
    """Compare the run with the reference; returns the number of commits compared."""
    # The simulator looks again every quarter; so does the reference, in which asking happens if something changed.
    script.changes = [QUARTER * n for n in range(1, int(script.until / QUARTER) + 1)]
    script.repeat, script.unknown = (lambda client, nth: None), ()
    expected = play(script, commits)
    run, asked = run_of(script)
    records, models = [], []
    for record in run.rounds(until=len(expected.commits)):
        records.append(record)
        models.append(run.state.model["x"])
    for record, commit, model in zip(records, expected.commits, models, strict=True):
        assert (record.round, record.clock, record.asked, record.flying) == (
            commit.version,
            commit.time,
            commit.asked,
            commit.flying,
        )
        assert [
            (each.task.id, *asked.tasks[each.task.id], each.task.version, each.task.sent_at, each.at, each.status)
            for each in record.tasks
        ] == [
            (each.id, each.client, each.nth, each.version, each.sent_at, each.time, each.status)
            for each in commit.ended
        ]
        for mine, theirs in zip(record.tasks, commit.ended, strict=True):
            assert mine.weight == pytest.approx(theirs.weight, rel=1e-12)
            if mine.status == fp.Status.DONE:
                assert mine.staleness == theirs.staleness
        np.testing.assert_allclose(model, commit.model, rtol=1e-9, atol=1e-12)
    counts = np.zeros(script.clients, dtype=int)
    for commit in expected.commits:
        for each in commit.ended:
            counts[each.client] += 1
    np.testing.assert_array_equal(run.state.policy.counts, counts)
    return len(expected.commits)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(scripts())
def test_runs_agree_with_the_reference(script: Script) -> None:
    agree(script, 12)


@pytest.mark.slow
@settings(max_examples=1000, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(scripts())
def test_a_thousand_scripts_agree_with_the_reference(script: Script) -> None:
    agree(script, 20)


def test_a_second_answer_and_one_to_no_task_count_for_nothing_but_traffic() -> None:
    stream = Stream(fp.Buffered(2, size=2))
    one, _ = stream.send(fp.Choice([0, 1]), [0, 1], 0.0, np.ones(2))
    assert stream.arrive(one.id, 1.0) == fp.Status.DONE
    assert stream.arrive(one.id, 1.0) is None
    assert stream.arrive(99, 1.0) is None
    assert (stream.held, stream.back, len(stream.ended), stream.free) == (1, 3, 1, 1)
