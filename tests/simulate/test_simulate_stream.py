"""Asynchronous runs: the law of who answers how often, what is trained in one call, and what policies are shown."""

import math
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pytest

import fedpick as fp
from fedpick import worlds
from fedpick.core.types import Updates
from fedpick.engine.asking import view_now


def fleet(seconds, **changes):
    parts = {"availability": worlds.Always(), "volatility": worlds.Reliable(), "latency": worlds.PerClient(seconds)}
    return fp.World(fp.Clients(np.ones(len(seconds))), deadline=None, **{**parts, **changes})


class Wavering(worlds.LogNormalTime):
    """Log-normal times around a median of each client."""

    def init(self, clients, rng):
        return {"median": np.array(self.medians)}


def law(seconds, concurrency):
    """Shares of answers: P(busy set) is proportional to the product of its times, and a client ends 1/d times busy."""
    busy = np.zeros(len(seconds))
    for group in combinations(range(len(seconds)), concurrency):
        busy[list(group)] += math.prod(seconds[client] for client in group)
    rates = busy / np.array(seconds)
    return rates / rates.sum()


LAWS = {
    "three": ((1.0, 1.0, 4.0), 2, None),
    "five": ((1.0, 2.0, 3.0, 5.0, 8.0), 3, None),
    "one slow": ((1.0, 1.0, 1.0, 1.0, 8.0), 4, 0.8),
    "all but one": (tuple(np.geomspace(0.5, 8.0, 9).tolist()), 8, 0.5),
    "few of many": (tuple(np.geomspace(0.5, 8.0, 9).tolist()), 2, 1.0),
}


@pytest.mark.parametrize("name", LAWS)
def test_shares_of_answers_follow_the_law(name):
    """Whatever the law of the times is, only their means matter."""
    means, concurrency, sigma = LAWS[name]
    medians = means if sigma is None else tuple(mean / math.exp(sigma**2 / 2) for mean in means)
    latency = {} if sigma is None else {"latency": Wavering(medians, sigma)}
    run = fp.Run(fp.Uniform(concurrency), fleet(means, **latency), 0, pace=fp.Buffered(concurrency, size=20))
    parts = [record.ids for record in run.rounds(until=310)][10:]
    counts = np.array([np.bincount(ids, minlength=len(means)) for ids in parts]).reshape(30, 10, -1).sum(axis=1) / 200
    error = counts.std(axis=0, ddof=1) / np.sqrt(
        len(counts)
    )  # of means of long parts, which hardly depend on each other
    assert (error < 0.01).all()
    assert (np.abs(counts.mean(axis=0) - law(means, concurrency)) <= 4 * error).all()


def test_the_law_by_hand():
    assert law((1.0, 1.0, 4.0), 2) == pytest.approx([5 / 12, 5 / 12, 1 / 6])
    assert law((1.0, 2.0, 4.0), 3) == pytest.approx([4 / 7, 2 / 7, 1 / 7])  # all work: 1/d


@pytest.mark.parametrize(
    ("name", "commits"),
    [
        *((name, 300) for name in LAWS if name != "few of many"),
        pytest.param("few of many", 5000, marks=pytest.mark.slow),
    ],
)
def test_with_the_correction_each_client_counts_the_same(name, commits):
    """Within 5%, in a run of each of these fleets; without, the fastest count far more than the slowest.

    Where few of many work, chance decides more about who answers how often, and it takes longer.
    """
    means, concurrency, _ = LAWS[name]

    def weights(commits, correct):
        pace = fp.Buffered(concurrency, size=20, correct=correct)
        total = np.zeros(len(means))
        for record in fp.Run(fp.Uniform(concurrency), fleet(means), 0, pace=pace).rounds(until=commits):
            np.add.at(total, record.ids, [each.weight for each in record.tasks])
        return total / total.mean()

    np.testing.assert_allclose(weights(commits, correct=True), 1.0, atol=0.05)
    assert np.ptp(weights(50, correct=False)) > 0.3


@dataclass
class Counts:
    """A trainer that notes how many tasks it is given in one call."""

    calls: list
    aggregation: str = "mean"

    def init(self, seed):
        return {"x": np.zeros(1)}

    def train_tasks(self, models, tasks, epochs, rngs, most):
        self.calls.append(len(tasks))
        assert len(tasks) <= most
        assert {task.version for task in tasks} <= set(models)
        return Updates(np.ones(len(tasks)), {}, None, None), {"delta": np.ones((len(tasks), 1))}

    def move(self, model, rows, weights, sent=None):
        return {"x": model["x"] + weights @ rows["delta"]}

    def evaluate(self, model, round):
        return {}

    def probe(self, *args):
        raise AssertionError

    train = aggregate = probe


@pytest.mark.parametrize(("sigma", "least"), [(0.5, 34), (1.0, 14), (1.5, 6)])
def test_many_tasks_in_flight_are_trained_in_one_call(sigma, least):
    """At concurrency 100; the fewer, the more durations vary: a client that is fast answers before others are due."""
    trainer, clients = Counts([]), 1000
    world = fleet(np.ones(clients), latency=worlds.LogNormalTime((1.0,), sigma))
    run = fp.Run(fp.Uniform(100), world, 0, trainer, pace=fp.Buffered(100, size=10, timeout=1e6))
    answers = sum(len(record.tasks) for record in run.rounds(until=300))
    assert answers == 3000
    assert np.mean(trainer.calls) >= least
    assert sum(trainer.calls) <= answers + 100  # none is trained twice


@dataclass(frozen=True, eq=False)
class Watches:
    """Chooses as Uniform does, and keeps what it was shown."""

    cohort_size: int
    run: list
    shown: list

    def init(self, clients):
        return None

    def select(self, state, view, rng):
        stream = self.run[0].state.stream.stream
        now = view_now(fp.View(view.round, view.there, view.clients), stream, lambda ids: np.array(ids, dtype=np.int64))
        for name in ("available", "busy", "held", "there"):
            np.testing.assert_array_equal(getattr(view, name), getattr(now, name))
        self.shown.append((view, now))
        return fp.Uniform(self.cohort_size).select(state, view, rng)

    def observe(self, state, view, choice, outcome):
        assert not view.held.any()  # all are told
        return state


@pytest.mark.parametrize("how", [{"size": 3}, {"size": None, "every": 7.0}, {"size": 3, "refill": 4}], ids=str)
def test_views_are_true_in_each_ask_and_stay_as_they_were(how):
    parts = {"availability": worlds.MarkovOnOff(5, 2), "volatility": worlds.SuccessRates((0.7,))}
    policy = Watches(6, [], [])
    run = fp.Run(policy, fleet(np.arange(1.0, 13.0), **parts), 0, pace=fp.Buffered(6, timeout=9.0, **how))
    policy.run.append(run)
    list(run.rounds(until=60))
    assert len(policy.shown) > 50
    assert any(view.held.any() for view, _ in policy.shown)
    for view, now in policy.shown:
        for name in ("available", "busy", "held"):
            np.testing.assert_array_equal(getattr(view, name), getattr(now, name))
