"""Wrappers, policies and paces put together at random, in sessions whose clients fail, vanish, join late and leave.

Each plays 300 moves of the model (fewer if quick); what is promised is counted here again, in plain Python.
"""

import math
from collections import Counter, defaultdict

import numpy as np
import pytest
from served import Clock

import fedpick as fp

DONE, LATE, FAILED, SURPLUS = fp.Status
POLICIES = {
    "uniform": lambda m: fp.Uniform(m),
    "size-weighted": lambda m: fp.SizeWeighted(m, replace=False),
    "pisces": lambda m: fp.Pisces(m),
    "oort": lambda m: fp.Oort(m),
    "active-fl": lambda m: fp.ActiveFL(m),
    "e3cs": lambda m: fp.E3CS(m, quota=0.5),
    "f3ast": lambda m: fp.F3AST(m),
    "fedgs": lambda m: fp.FedGS(m, alpha=0.0),
    "refl": lambda m: fp.REFL(m),
    "ucb-cs": lambda m: fp.UCBCS(m),
    "rpow-d": lambda m: fp.PowerOfChoice(m, m + 3, variant="rpow-d"),
}
WRAPPERS = {
    "bare": (lambda policy: policy, 1),
    "guard": (lambda policy: fp.Guard(policy), 1),
    "apart": (lambda policy: fp.MinSeparation(policy, 2), 2),
    "guard(apart)": (lambda policy: fp.Guard(fp.MinSeparation(policy, 2)), 2),
    "apart(guard)": (lambda policy: fp.MinSeparation(fp.Guard(policy), 2), 2),
}
PACES = [
    {"size": 1},
    {"size": 3},
    {"size": 3, "refill": 2, "oldest": 2},
    {"size": None, "bound": 2},
    {"size": 5, "bound": 3},
    {"size": None, "every": 4.0},
    {"size": 2, "every": 3.0, "correct": True},
    {"size": None, "bound": 2, "correct": True, "oldest": 4},
    {"size": 1, "mixing": "polynomial"},
    {"size": 1, "mixing": "hinge", "oldest": 3},
]


class Player:
    """A server with one session, and its clients; what it sees is noted."""

    def __init__(self, seed, moves):
        self.rng, self.moves = np.random.default_rng(seed), moves
        choose = self.rng.choice
        self.policy = str(choose(list(POLICIES)))
        self.wrapper = str(choose(list(WRAPPERS)))
        self.pace = PACES[self.rng.integers(len(PACES))]
        self.concurrency = int(self.rng.integers(2, 7))
        self.names = [f"phone {k}" for k in range(int(self.rng.integers(16, 24)))]
        self.fails, self.vanishes, self.comes = choose([0.0, 0.2]), choose([0.0, 0.1]), choose([0.0, 0.02])
        self.coming, self.tasks, self.used, self.taken = [], {}, defaultdict(list), Counter()
        self.due = 1.0  # places that a guard allows: one, and the cap's share of those of each move
        self.speed = defaultdict(lambda: float(np.exp(self.rng.normal(0.0, 1.0))))

    def __repr__(self):
        return f"{self.wrapper} {self.policy} {self.pace} C={self.concurrency} n={len(self.names)}"

    def play(self):
        wrap, self.gap = WRAPPERS[self.wrapper]
        pace = fp.Buffered(self.concurrency, timeout=12.0, **self.pace)
        with Clock() as clock:
            self.clock = clock
            self.session = fp.Session(wrap(POLICIES[self.policy](self.concurrency)), pace=pace)
            steps = 0
            while self.session.version < self.moves:
                steps += 1
                assert steps < 200 * self.moves, self
                self.step()
        return self

    def step(self):
        session, rng = self.session, self.rng
        there = [name for name in self.names if rng.random() < 0.9]
        for task in session.ask(there):
            assert task.name in there
            assert task.name not in [each.name for each in self.tasks.values()]
            self.tasks[task.id] = task
            if rng.random() >= self.vanishes:
                self.coming.append((self.clock.now + self.speed[task.name] * rng.gamma(4.0, 0.25), task.id))
        assert len(session.tasks) <= self.concurrency
        self.clock.now = min([self.clock.now + 1.0, *(at for at, _ in self.coming)])
        for at, id in sorted(self.coming):
            if at <= self.clock.now:
                self.coming.remove((at, id))
                bad = rng.random() < self.fails
                loss = float(rng.choice([0.5, 2.0, 1e6, math.nan])) if rng.random() < 0.3 else 1.0
                if bad:
                    session.failed(id, "as chance says")
                else:
                    session.done(id, update=np.ones(2), loss=None if math.isnan(loss) else loss)
                if rng.random() < 0.1:
                    assert session.done(id, update=np.ones(2)) is None  # a repeat
        self.commits()
        working = {task.id for task in session.tasks}
        self.tasks = {id: task for id, task in self.tasks.items() if id in working}
        if rng.random() < self.comes:
            self.names.append(f"phone {len(self.names)} later")

    def commits(self):
        while commit := self.session.commit():
            parts = commit.parts()
            assert parts
            assert all(math.isfinite(weight) and weight >= 0.0 for _, _, weight in parts)
            size = self.pace["size"]
            assert size is None or len(parts) <= size
            assert size is None or "bound" in self.pace or "every" in self.pace or len(parts) == size
            record = commit.close()
            self.check(record)

    def check(self, record):
        oldest, seen = self.pace.get("oldest"), Counter()
        for each in record.tasks:
            name = each.task.client
            assert each.staleness >= 0
            assert each.status in (DONE, LATE, FAILED)
            if each.status == DONE:
                assert oldest is None or each.staleness <= oldest
            seen[name] += 1
            if self.gap > 1:
                assert all(record.round - before >= self.gap for before in self.used[name]), (self, name)
                assert seen[name] == 1, (self, name)
        for name in seen:
            self.used[name].append(record.round)
        self.taken.update(seen)
        self.due += 1.5 * len(record.tasks) / record.present


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(n, marks=pytest.mark.slow) for n in range(4, 60))])
def test_what_is_put_together_plays_and_keeps_its_promises(seed):
    player = Player(seed, 60 if seed < 4 else 300).play()
    assert sum(player.taken.values()) > 0
    counts = getattr(player.session.roster.state, "counts", None)
    if player.wrapper == "bare" and counts is not None:
        assert counts.sum() == sum(player.taken.values())
        assert sorted(counts[counts > 0]) == sorted(player.taken.values())
    if player.wrapper in ("guard", "apart(guard)"):
        assert max(player.taken.values()) <= player.due + 1e-9, player  # since there are enough that are idle


def test_over_selection_is_refused_in_any_place():
    pace = fp.Buffered(4, 2, timeout=5.0)
    for make in (
        lambda: fp.OverSelect(fp.Uniform(4), 1.5),
        lambda: fp.Guard(fp.OverSelect(fp.Uniform(4), 1.5)),
        lambda: fp.OverSelect(fp.Guard(fp.Pisces(4)), 1.5),
    ):
        with pytest.raises(fp.SettingError, match="raise the concurrency instead"):
            fp.Session(make(), pace=pace)
