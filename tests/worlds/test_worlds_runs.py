"""Whole worlds: the same draws for every policy, every named world plays, a million clients fit."""

import copy
import tracemalloc
from dataclasses import dataclass, replace

import numpy as np
import pytest

import fedpick as fp
from fedpick.worlds import (
    WORLDS,
    Always,
    Bernoulli,
    Bursts,
    Device,
    Diurnal,
    Gamma,
    LessDataFirst,
    Linear,
    LogNormal,
    MarkovOnOff,
    MoreDataFirst,
    PerClient,
    Reliable,
    SinLogNormal,
    SuccessRates,
    World,
    YCycle,
    YMaxFirst,
    named,
    phone_clients,
)

ROUNDS = 20
NOTHING_DRAWN = {"ideal", "fedgs-idl"}  # everyone is there, nobody fails, times are given
WHOLE = [
    *WORLDS,
    "markov",  # and parts that no named world has
]


def world_of(name):
    if name == "markov":
        return World(phone_clients(60), availability=MarkovOnOff(5.0, 3.0), volatility=Bursts(), latency=Linear())
    return named(name)


@dataclass(frozen=True)
class Greedy:
    """The first clients that are there: as unlike Uniform as can be."""

    cohort_size: int

    def init(self, clients):
        return None

    def select(self, state, view, rng):
        return fp.Choice(np.flatnonzero(view.available)[: self.cohort_size])

    def observe(self, state, view, choice, outcome):
        return None


def flat(thing):
    """All arrays of a draw or a memory, copied, in one dict."""
    if isinstance(thing, dict):
        return {f"{key}.{name}": a for key, value in thing.items() for name, a in flat(value).items()}
    return {"": np.array(thing)}


def watch(monkeypatch, policy, world, seed, rounds=ROUNDS):
    """Every draw of a run, what it means for everyone, every memory after it, and its records."""
    seen = []
    inner = World.draw

    def draw(self, state, seed, round):
        drawn = inner(self, state, seed, round)
        rested, everyone = replace(state, idle=np.ones(len(self.clients), dtype=bool)), np.arange(len(self.clients))
        parts = {"presence": drawn.presence, "latency": dict(drawn.latency)}
        parts |= {"seconds": self.seconds(rested, drawn, everyone), "works": self.works(state, drawn, everyone)}
        memory = {name: getattr(state, name) for name in ("availability", "volatility", "latency", "epochs")}
        seen.append(flat({"draw": parts, "memory": memory}))
        return drawn

    run = fp.Run(policy, world, seed)
    with monkeypatch.context() as patch:
        patch.setattr(World, "draw", draw)
        records = list(run.rounds(rounds))
    assert len(seen) == rounds
    return seen, records


def same(a, b):
    return all(x.keys() == y.keys() and all(np.array_equal(x[k], y[k]) for k in x) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("name", WHOLE)
def test_draws_are_the_same_for_every_policy(monkeypatch, name):
    uniform, records = watch(monkeypatch, fp.Uniform(10), world_of(name), seed=5)
    greedy, others = watch(monkeypatch, Greedy(3), world_of(name), seed=5)
    learner, _ = watch(monkeypatch, fp.E3CS(10), world_of(name), seed=5)
    assert same(uniform, greedy)
    assert same(uniform, learner)
    assert not all(np.array_equal(a.ids, b.ids) for a, b in zip(records, others, strict=True))


@pytest.mark.parametrize("name", WHOLE)
def test_draws_go_by_the_seed(monkeypatch, name):
    first, records = watch(monkeypatch, fp.Uniform(10), world_of(name), seed=5)
    again, repeated = watch(monkeypatch, fp.Uniform(10), world_of(name), seed=5)
    other, _ = watch(monkeypatch, fp.Uniform(10), world_of(name), seed=6)
    assert same(first, again)
    for a, b in zip(records, repeated, strict=True):
        for field in ("round", "clock", "seconds", "ids", "inclusion", "status", "duration", "available"):
            np.testing.assert_array_equal(getattr(a, field), getattr(b, field))
    assert same(first, other) == (name in NOTHING_DRAWN)


@pytest.mark.parametrize("policy", [fp.Uniform(10), fp.E3CS(10, quota=0.5)], ids=["uniform", "e3cs"])
@pytest.mark.parametrize("name", WHOLE)
def test_every_named_world_plays_without_nan(monkeypatch, name, policy):
    draws, records = watch(monkeypatch, policy, world_of(name), seed=1)
    for arrays in draws:
        for key, array in arrays.items():
            assert np.isfinite(array).all(), key
    clock = 0.0
    for record in records:
        assert len(record.ids) == min(10, record.available)
        assert record.seconds >= 0
        clock += record.seconds
        assert record.clock == clock
        assert np.array_equal(np.isnan(record.duration), record.status == fp.Status.FAILED)


@pytest.mark.parametrize("name", ["markov", "bursts", "phones"])
def test_a_copied_state_goes_on_as_the_original_does(name):
    world = world_of(name)
    state = world.init(3)
    for round in range(1, 6):
        world.draw(state, 3, round)
    twin = copy.deepcopy(state)
    for round in range(6, 12):
        a, b = world.draw(state, 3, round), world.draw(twin, 3, round)
        np.testing.assert_array_equal(a.presence, b.presence)
        everyone = np.arange(len(world.clients))
        np.testing.assert_array_equal(world.works(state, a, everyone), world.works(twin, b, everyone))
        np.testing.assert_array_equal(world.seconds(state, a, everyone), world.seconds(twin, b, everyone))


def test_named_worlds_have_as_many_clients_as_asked():
    for name in WORLDS:
        assert len(named(name, 37).clients) == 37
    assert {name: len(named(name).clients) for name in ("e3cs", "rbcs-f", "bsfl", "phones")} == {
        "e3cs": 100,
        "rbcs-f": 40,
        "bsfl": 20,
        "phones": 100,
    }


def test_the_clients_of_a_named_world_are_the_same_every_time():
    for name in WORLDS:
        a, b = named(name).clients, named(name).clients
        np.testing.assert_array_equal(a.sizes, b.sizes)
        assert (a.labels is None) == (b.labels is None)
        if a.labels is not None:
            np.testing.assert_array_equal(a.labels, b.labels)
    assert not np.array_equal(phone_clients(100, seed=1).sizes, phone_clients(100).sizes)


def test_the_fedgs_worlds_give_two_labels_to_each_client():
    labels = named("fedgs-yc", 200).clients.labels
    assert np.all((labels > 0).sum(axis=1) == 2)
    np.testing.assert_allclose(labels.sum(axis=1), named("fedgs-yc", 200).clients.sizes)


def test_the_clients_of_the_fedgs_worlds():
    """Log-normal sizes from 10 on, 150 in the median; two labels of ten, half of the examples each."""
    clients = named("fedgs-ln", 4000).clients
    logs = np.log(clients.sizes - 10.0)
    assert clients.sizes.min() > 10
    assert abs(logs.mean() - 5.0) < 4 * 0.8 / np.sqrt(4000)
    assert abs(logs.std() - 0.8) < 4 * 0.8 / np.sqrt(8000)
    assert clients.labels.shape == (4000, 10)
    has = clients.labels > 0
    np.testing.assert_array_equal(clients.labels[has], np.repeat(clients.sizes / 2, 2))
    np.testing.assert_array_equal(clients.features, has / 2)
    pairs = has.T.astype(int) @ has  # clients with both labels: 45 pairs, all alike
    number = 4000 / 45
    assert (np.abs(pairs[np.triu_indices(10, 1)] - number) < 4 * np.sqrt(number)).all()


def test_the_clients_of_the_fedgs_worlds_are_always_these():
    """As a data set: results of other versions are of the same clients."""
    for name in WORLDS:
        if name.startswith("fedgs"):
            clients = named(name).clients
            assert clients.sizes[:6].tolist() == [262, 112, 195, 148, 90, 137]
            assert [np.flatnonzero(row).tolist() for row in clients.labels[:6]] == [
                [6, 8],
                [5, 7],
                [2, 6],
                [2, 4],
                [2, 6],
                [2, 8],
            ]
            assert clients.sizes.sum() == 19390


CLIENTS = {"rbcs-f": 40, "bsfl": 20}  # 100 in the others
PHONES = Device(200.0, 20.0, None, 0.7, 0.25, 2.0)
CONTEXTS = Linear((1.0, 2.0, 3.0, 4.0), 1.0, (1000.0, 100.0, 10.0, 1.0), 20.0, 2.0)
CLASSES = SuccessRates((0.1, 0.3, 0.6, 0.9))
PARTS = {  # each number is one of a paper, or is said in the docs
    "phones": (Diurnal(0.8, 0.2, 8.0), SuccessRates((0.7, 0.85, 0.95, 0.99)), PHONES, 30.0, (1, 2, 3, 4)),
    "volatile": (Bernoulli(0.9), CLASSES, Gamma(1.0, 4.0, 1.0, 8.0), 12.0, (1, 2, 3, 4)),
    "ideal": (Always(), Reliable(), PerClient(0.0), None, (1,)),
    "e3cs": (Always(), CLASSES, PerClient(1.0), None, (1, 2, 3, 4)),
    "bursts": (Always(), Bursts((0.1, 0.3, 0.6, 0.9), 10.0), PerClient(1.0), None, (1, 2, 3, 4)),
    "rbcs-f": (Bernoulli(0.8), Reliable(), CONTEXTS, None, (1,)),
    "bsfl": (Always(), Reliable(), Gamma(1.0, 4.0, 0.2, 8.0), 20.0, (1,)),
    "fedgs-idl": (Always(), Reliable(), PerClient(1.0), None, (1,)),
    "fedgs-mdf": (MoreDataFirst(0.7), Reliable(), PerClient(1.0), None, (1,)),
    "fedgs-ldf": (LessDataFirst(0.7), Reliable(), PerClient(1.0), None, (1,)),
    "fedgs-ymf": (YMaxFirst(0.9), Reliable(), PerClient(1.0), None, (1,)),
    "fedgs-yc": (YCycle(0.9), Reliable(), PerClient(1.0), None, (1,)),
    "fedgs-ln": (LogNormal(0.5), Reliable(), PerClient(1.0), None, (1,)),
    "fedgs-sln": (SinLogNormal(0.5), Reliable(), PerClient(1.0), None, (1,)),
}


@pytest.mark.parametrize("name", WORLDS)
def test_the_numbers_of_a_named_world(name):
    world = named(name)
    parts = world.availability, world.volatility, world.latency, world.deadline, world.epochs
    assert repr(parts) == repr(PARTS[name])
    assert len(world.clients) == CLIENTS.get(name, 100)
    assert (world.probe_share, world.wait, world.late) == (0.1, 60.0, 0)
    if name in ("phones", "volatile"):
        np.testing.assert_array_equal(world.clients.labels, phone_clients(100).labels)
    elif "fedgs" not in name:
        assert (world.clients.sizes == 500.0).all()


def test_equal_times_come_in_a_random_order_that_is_the_same_for_every_policy():
    """By its time, then by a number of the client and the round, whoever else was asked."""
    world, everyone, took = named("e3cs", 30), np.arange(30), np.repeat([2.0, 1.0, 3.0], 10)
    firsts = np.zeros(30)
    for round in range(1, 401):
        draw = world.draw(world.init(5), 5, round)
        order = draw.first(took, everyone)
        assert took[order].tolist() == sorted(took)
        firsts[order[[0, 10, 20]]] += 1
        some = np.flatnonzero(np.random.default_rng(round).random(30) < 0.5)
        assert some[draw.first(took[some], some)].tolist() == [k for k in order if k in some]
    assert (np.abs(firsts - 40) < 4 * np.sqrt(400 * 0.1 * 0.9)).all()  # each is first of ten alike
    tied = draw.first(np.ones(30), everyone).tolist()
    assert sorted(tied) == everyone.tolist() != tied
    assert draw.first(np.array([3.0, 1.0, 2.0, 1.0]), np.arange(4))[2:].tolist() == [2, 0]
    assert draw.first(np.array([3.0, 1.0, 2.0]), np.arange(3)).tolist() == [1, 2, 0]


def test_every_named_world_says_what_it_is():
    for name, make in WORLDS.items():
        assert make.__doc__, name
        assert len(make.__doc__.strip().splitlines()[0]) > 20


def test_the_rbcs_f_world_carries_a_model_of_20_megabits():
    assert named("rbcs-f").model_megabytes * 8 == named("rbcs-f").latency.megabits == 20.0


def test_a_name_that_is_not_there_suggests_the_nearest():
    message = r"unknown world 'volatil'; did you mean 'volatile'\? There are: bsfl, bursts, e3cs, fedgs-idl"
    with pytest.raises(fp.errors.UnknownNameError, match=message):
        named("volatil")


def test_a_world_needs_clients():
    with pytest.raises(fp.errors.SettingError, match="world 'e3cs': num_clients = 0, but must be >= 1"):
        named("e3cs", 0)


def test_phones_at_home_are_interesting():
    statuses = np.concatenate([r.status for r in fp.Run(fp.Uniform(20), World(), 0).rounds(300)])
    shares = np.bincount(statuses, minlength=4) / len(statuses)
    assert shares[fp.Status.DONE] > 0.5
    assert shares[fp.Status.LATE] > 0.02  # slow ones and silent failures, which a server cannot tell apart


@pytest.mark.parametrize(
    "availability",
    [Bernoulli(0.8), *(pytest.param(each, marks=pytest.mark.slow) for each in (Diurnal(), MarkovOnOff()))],
    ids=lambda a: type(a).__name__,
)
def test_a_million_clients_fit_in_memory(availability):
    world = World(
        fp.Clients(np.full(1_000_000, 100.0)), availability=availability, volatility=Bursts(), latency=Device()
    )
    tracemalloc.start()
    try:
        records = list(fp.Run(fp.Uniform(1000), world).rounds(2))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [len(r.ids) for r in records] == [1000, 1000]
    assert peak < 500e6
