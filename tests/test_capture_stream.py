"""What liars can win without rounds: Guard under `Buffered`, after as many moves as rounds in `test_capture`.

The clients and the lies are those of `benchmarks/arena.py`; the driver is a plain loop around the engine's stream.
"""

import heapq
import sys
from collections import Counter
from itertools import count
from pathlib import Path

import numpy as np
import pytest

import fedpick as fp
from fedpick.engine.asking import Asker, lessons, tell, view_now
from fedpick.engine.stream import Stream, stream_bases

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
AT = (30, 50, 100, 500)  # moves of the model
MOST = {10: (0.20, 0.25), 1: (0.03, 0.03)}  # as in test_capture: of the places and of the weight


@pytest.fixture(scope="module")
def arena():
    sys.path.insert(0, str(BENCHMARKS))
    import arena

    yield arena
    sys.path.remove(str(BENCHMARKS))
    sys.modules.pop("arena", None)


class Fleet:
    """Clients at work on a virtual clock; liars answer at once if they lie about the time, never if they are dead."""

    def __init__(self, policy, pace, lie, liars, seed=0, clients=100):
        self.policy, self.lie, self.rng = policy, lie, fp.rng.stream(seed, 0, "arena")
        self.lying = np.isin(np.arange(clients), self.rng.permutation(clients)[:liars])
        features = self.rng.dirichlet(np.full(10, 0.5), clients)
        features[self.lying] *= -1e3 if lie.odd else 1.0
        self.clients = fp.Clients(np.where(self.lying, min(lie.size, 30 * 600.0), 600.0), None, features)
        self.hard = self.rng.lognormal(0.0, 0.3, clients)
        self.slow = self.rng.lognormal(0.0, 1.0, clients)
        self.stream, self.state, self.asker = Stream(pace), policy.init(self.clients), Asker(policy)
        self.coming, self.now, self.seed, self.asks = [], 0.0, seed, count(1)
        self.ended, self.commits = [], []

    def find(self, clients):
        return np.array(clients, dtype=np.int64)

    def view(self):
        seen = fp.View(1, np.ones(len(self.lying), dtype=bool), self.clients)
        return view_now(seen, self.stream, self.find)

    def loss(self, client):
        true = self.hard[client] * (0.2 + 2.0 * np.exp(-self.stream.version / 100.0))
        return float(self.lie.loss if self.lying[client] and self.lie.loss is not None else true)

    def ask(self):
        free, view = self.stream.free, self.view()
        if not free or not view.available.any():
            return
        choice = self.asker.ask(self.state, view, free, fp.rng.stream(self.seed, next(self.asks), "policy"))
        base = stream_bases(choice, self.clients, sized=True, correct=self.stream.pace.correct)
        for task in self.stream.send(choice, choice.ids.tolist(), self.now, base):
            lies, seconds = self.lying[task.client], self.slow[task.client] * self.rng.gamma(8.0, 1 / 8.0)
            if lies and self.lie.duration is not None:
                seconds = 1e-3
            if not (lies and self.lie.dead) and (lies or self.rng.random() > 0.05):
                heapq.heappush(self.coming, (self.now + seconds, task.id, task.client))

    def reports(self, part):
        return {"squared_loss": np.array([each.loss**2 for each in part])}

    def move(self):
        ended = self.stream.commit(self.now)
        self.state = tell(self.policy, self.state, lessons(self.view(), ended, self.find, self.reports))
        self.commits.append(ended)

    def play(self, commits):
        while len(self.commits) < commits:
            self.ask()
            first = self.coming[0][0] if self.coming else np.inf
            self.now = min(first, self.stream.next(self.now))
            while self.coming and self.coming[0][0] <= self.now:
                _, id, client = heapq.heappop(self.coming)
                if id in self.stream.flying:
                    self.stream.arrive(id, self.now, self.loss(client))
                    if self.stream.full:
                        self.move()
            self.stream.expire(self.now)
            if self.stream.due(self.now):
                self.move()
        return self

    def shares(self, commits):
        """Of the places and of the weight in the model's moves, those of the liars."""
        ended = [each for part in self.commits[:commits] for each in part]
        lies = np.array([self.lying[each.task.client] for each in ended])
        weight = np.array([each.weight for each in ended])
        return lies.mean(), weight[lies].sum() / weight.sum()

    def taken(self):
        """Places of each client, by commit."""
        found = np.zeros((len(self.commits), len(self.lying)))
        for at, part in enumerate(self.commits):
            for client, times in Counter(each.task.client for each in part).items():
                found[at, client] = times
        return found


class Wants(fp.Uniform):
    """The clients with the lowest numbers."""

    def select(self, state, view, rng):
        return fp.Choice(np.flatnonzero(view.available)[: self.cohort_size])


WIDTHS = [(10, 10), (30, 3), (10, 40)]  # concurrency and size


@pytest.mark.parametrize(("C", "K"), WIDTHS)
def test_nobody_has_more_than_the_cap_of_the_places_so_far_and_one(arena, C, K):
    """A policy that always wants the same, and liars that answer at once: the bound of the docstring at each move."""
    pace = fp.Buffered(C, K, timeout=20.0)
    fleet = Fleet(fp.Guard(Wants(C), probation=0), pace, arena.LIES["fast"], 10).play(40)
    due = 1.5 * np.array([len(part) for part in fleet.commits]).cumsum() / 100 + 1
    assert (fleet.taken().cumsum(axis=0).max(axis=1) <= due + 1e-9).all()
    bare = Fleet(Wants(C), pace, arena.LIES["fast"], 10).play(40)
    assert bare.taken().sum(axis=0).max() > 2 * due[-1]


def test_the_state_is_that_of_a_twin_that_counts_every_place(arena):
    """Whoever may be chosen has used up nothing; a client that is told twice in a move gets the move's share once."""
    K, window = 8, 3
    policy = fp.Guard(Wants(6), cap=2.0, window=window, probation=0)
    fleet = Fleet(policy, fp.Buffered(6, K, timeout=20.0), arena.LIES["fast"], 3, clients=8)
    used, twice = [0.0] * 8, 0
    for move in range(1, 80):
        fleet.play(move)
        clients = [each.task.client for each in fleet.commits[-1]]
        parts, part = [], []
        for client in clients:
            if client in part:
                parts.append(part)
                part = []
            part.append(client)
        parts.append(part)
        twice += len(parts) > 1
        for part in parts:
            used = [max(value - 2.0 * len(part) / 8, -2.0 * len(clients) / 8 * window) for value in used]
            for client in part:
                used[client] += 1.0
        np.testing.assert_allclose(fleet.state.used, used, atol=1e-9)
    assert twice > 5


def test_half_of_the_places_stay_taken_whoever_is_left_and_more_if_somebody_may_be_asked(arena):
    """All 20 clients can work, but 19 of them never answer in time: the last one still moves the model."""
    lie = arena.LIES["dead"]
    fleet = Fleet(fp.Guard(fp.Uniform(20), probation=0), fp.Buffered(20, 2, timeout=20.0), lie, 19, clients=20)
    busy, ask = [], fleet.asker.ask

    def asked(state, view, wanted, rng):
        choice = ask(state, view, wanted, rng)
        busy.append(view.busy.sum() + len(choice))
        return choice

    fleet.asker.ask = asked
    fleet.play(40)
    assert min(busy) >= 10
    assert max(busy) == 20


def over(arena, make, C, lie, liars, at, correct):
    """Where liars have more than MOST of the places and of the weight, by moves."""
    pace = fp.Buffered(C, 10, timeout=20.0, correct=correct)
    fleet = Fleet(fp.Guard(make(C)), pace, arena.LIES[lie], liars).play(max(at))
    # A fresh answer counts more than a stale one unless that is corrected, so who is fast has more weight than places.
    most = (MOST[liars][0], MOST[liars][1] * (1.0 if correct else 1.2))
    return {each: got for each in at if (got := fleet.shares(each))[0] > most[0] or got[1] > most[1]}


CASES = [(fp.Pisces, "fast", 30), (fp.Oort, "fast", 100), (fp.ActiveFL, "big", 10)]


@pytest.mark.parametrize(("make", "lie", "C"), CASES)
def test_liars_get_no_more_of_the_places_than_in_rounds(arena, make, lie, C):
    for liars, correct in ((10, False), (10, True), (1, False)):
        assert over(arena, make, C, lie, liars, AT[:2], correct) == {}
    bare = Fleet(make(C), fp.Buffered(C, 10, timeout=20.0), arena.LIES[lie], 10).play(50)
    assert max(bare.shares(50)) > 0.5


LIED = [("loud", False), ("fast", False), ("fast", True), ("big", False), ("dead", False)]


@pytest.mark.slow
@pytest.mark.parametrize("C", [10, 30, 100])
@pytest.mark.parametrize(("lie", "correct"), LIED)
def test_nor_under_policies_that_trust_them_in_the_long_run(arena, lie, correct, C):
    """F3AST's weights are left out: of one client at a time, a guard has no others to compare a weight with."""
    for make in (fp.Uniform, fp.Pisces, fp.Oort, fp.ActiveFL, fp.E3CS):
        for liars in MOST:
            assert over(arena, make, C, lie, liars, AT, correct) == {}, (make, liars)
