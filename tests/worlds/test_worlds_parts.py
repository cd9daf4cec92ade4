"""Parts that are asked about the chosen: the same laws, and numbers that do not depend on who else is asked."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import fedpick as fp
from fedpick import worlds
from fedpick.worlds import World
from fedpick.worlds.parts import asks_latency, asks_volatility

CLIENTS = fp.Clients(np.linspace(50, 400, 12), labels=np.ones((12, 3)))
LATENCIES = [
    worlds.PerClient(np.arange(12.0)),
    worlds.Gamma(),
    worlds.Gamma(shape=1.0, shift=0.0),
    worlds.Gamma(shape=2.5),
    worlds.Gamma(shape=30.0),
    worlds.LogNormalTime(),
    worlds.Linear(),
    worlds.Device(),
]
VOLATILITIES = [worlds.Reliable(), worlds.SuccessRates(), worlds.Shift(at=3)]
OF_EVERYONE = [worlds.Bursts(), worlds.ReplayedFlags(np.eye(12)), worlds.Replayed(np.ones((2, 12)))]
AVAILABILITIES = [
    worlds.Always(),
    worlds.Bernoulli(),
    worlds.MoreDataFirst(),
    worlds.LessDataFirst(),
    worlds.YMaxFirst(),
    worlds.YCycle(),
    worlds.LogNormal(),
    worlds.SinLogNormal(),
    worlds.Halves(),
    worlds.MarkovOnOff(3, 3),
    worlds.Diurnal(),
]


def name_of(part):
    return type(part).__name__


def make(latency=None, volatility=None):
    parts = {"latency": latency or worlds.Gamma(), "volatility": volatility or worlds.SuccessRates()}
    return World(CLIENTS, availability=worlds.Always(), deadline=6.0, **parts)


def old(monkeypatch):
    monkeypatch.setattr(worlds.world, "OLD_DRAWS", True)


def asked(world, seed, round, ids):
    """Seconds and success of these clients in a world where nobody has taken part yet."""
    state = world.init(seed)
    draw = world.draw(state, seed, round)
    ids = np.asarray(ids, dtype=np.int64)
    return world.seconds(state, draw, ids), world.works(state, draw, ids)


# ---- the law


@pytest.mark.parametrize("part", LATENCIES, ids=name_of)
def test_the_chosen_take_as_long_as_when_everyone_is_drawn(monkeypatch, part):
    world, ids = make(latency=part), np.array([0, 11])
    new = np.array([asked(world, 2, t, ids)[0] for t in range(1, 1501)])
    old(monkeypatch)
    before = np.array([asked(world, 2, t, ids)[0] for t in range(1, 1501)])
    for k in (0, 1):
        assert stats.ks_2samp(new[:, k], before[:, k]).pvalue > 1e-3
    spread = new.std(axis=0)
    if (spread > 0).all():
        assert abs(np.corrcoef(new.T)[0, 1]) < 4.5 / np.sqrt(1500)


@pytest.mark.parametrize("part", VOLATILITIES, ids=name_of)
def test_the_chosen_succeed_as_often_as_they_should(part):
    world = make(volatility=part)
    for rounds, key in ((range(1, 4), "before"), (range(4, 7), "after")):  # those of Shift
        works = np.array([asked(world, seed, t, np.arange(12))[1] for seed in range(700) for t in rounds])
        memory = part.init(CLIENTS, np.random.default_rng(0))
        rate = memory.get(key, memory.get("rate", np.ones(12)))
        error = np.sqrt(rate * (1 - rate) / len(works))
        assert (np.abs(works.mean(axis=0) - rate) <= 4.5 * error).all()


def test_durations_and_failures_are_independent():
    world = make(latency=worlds.Gamma(shift=0.0, low=1.0, high=1.0), volatility=worlds.SuccessRates((0.5,)))
    found = [asked(world, 1, t, np.arange(12)) for t in range(1, 1001)]
    took, works = np.array([a for a, _ in found]).ravel(), np.array([b for _, b in found]).ravel()
    assert abs(np.corrcoef(took, works)[0, 1]) < 4.5 / np.sqrt(len(took))


# ---- whoever else is asked


@pytest.mark.parametrize("latency", LATENCIES, ids=name_of)
@pytest.mark.parametrize("volatility", [*VOLATILITIES, worlds.Bursts()], ids=name_of)
@given(ids=st.lists(st.integers(0, 11), max_size=15), seed=st.integers(0, 99), round=st.integers(1, 9))
@settings(max_examples=10, deadline=None)
def test_neither_the_others_nor_their_order_matter(latency, volatility, ids, seed, round):
    world = make(latency, volatility)
    took, works = asked(world, seed, round, np.arange(12))
    some = asked(world, seed, round, ids)
    assert np.array_equal(some[0], took[ids])
    assert np.array_equal(some[1], works[ids])


def test_it_does_not_matter_what_is_asked_first():
    world, ids, others = make(), np.array([3, 1, 7]), np.array([2, 3])
    state = world.init(0)
    first, second = world.draw(state, 0, 4), world.draw(state, 0, 4)
    works = world.works(state, first, ids)
    took = world.seconds(state, first, ids)
    world.seconds(state, second, others)
    assert np.array_equal(world.seconds(state, second, ids), took)
    world.works(state, second, others)
    assert np.array_equal(world.works(state, second, ids), works)
    changing = ids.copy()
    world.seconds(state, second, changing)
    changing[:] = [0, 1, 2]  # an array that is used again does not get the numbers of what it held before
    assert np.array_equal(world.works(state, second, changing), world.works(state, first, np.array([0, 1, 2])))


@pytest.mark.parametrize("name", ["volatile", "phones", "e3cs", "bsfl", "bursts"])
@given(seed=st.integers(0, 1000), sizes=st.tuples(st.integers(1, 12), st.integers(1, 24)))
@settings(max_examples=8, deadline=None)
def test_a_client_that_two_policies_choose_meets_the_same(name, seed, sizes):
    world = dataclasses.replace(worlds.named(name, 24), deadline=None)
    if isinstance(world.latency, worlds.Device):  # who starts cold is the policies' doing
        world = dataclasses.replace(world, latency=worlds.Device(cold_start=0.0))
    policies = (fp.Uniform(sizes[0]), fp.E3CS(sizes[1]), fp.OverSelect(fp.SizeWeighted(4), 2.0))
    runs = [list(fp.Run(policy, world, seed).rounds(6)) for policy in policies]
    for records in zip(*runs, strict=True):
        met: dict[int, tuple[bool, float]] = {}
        for record in records:
            heard = record.status != fp.Status.SURPLUS  # of the others nothing is known
            failed, took = record.status[heard] == fp.Status.FAILED, np.nan_to_num(record.duration[heard])
            for k, *found in zip(record.ids[heard].tolist(), failed, took, strict=True):
                assert met.setdefault(k, tuple(found)) == tuple(found)
            if name != "phones":  # there, who is available goes by the clock
                assert record.available == records[0].available


def test_by_the_task_a_client_asked_twice_in_a_round_takes_another_time():
    world, ids = make(), np.array([4, 2])
    state = world.init(0)
    draw = world.draw(state, 0, 7)
    second = dataclasses.replace(draw, nth=np.full(12, 2))
    assert not np.array_equal(world.seconds(state, draw, ids), world.seconds(state, second, ids))
    mixed = dataclasses.replace(draw, nth=np.array([7, 7, 7, 7, 2, 7, 7, 7, 7, 7, 7, 7]))
    took = world.seconds(state, mixed, ids)
    assert took.tolist() == [world.seconds(state, second, ids)[0], world.seconds(state, draw, ids)[1]]


# ---- the draws of before


@pytest.mark.parametrize("name", ["volatile", "phones", "rbcs-f", "e3cs"])
def test_the_switch_gives_the_draws_of_0_2(monkeypatch, name):
    old(monkeypatch)
    world = worlds.named(name, 30)
    state, everyone = world.init(6), np.arange(30)
    for round in range(1, 6):
        draw = world.draw(state, 6, round)
        works, rng = world.works(state, draw, everyone), fp.rng.stream(6, round, "latency")
        if name != "rbcs-f":
            due = fp.rng.stream(6, round, "volatility").random(30) < state.volatility["rate"]
            assert np.array_equal(works, due)
        took = world.seconds(state, draw, everyone)
        if name == "volatile":
            assert np.array_equal(took, 1.0 + state.latency["mean"] * (rng.standard_gamma(4.0, 30) / 4.0))
        elif name == "phones":
            noise = np.exp(0.25 * rng.standard_normal((2, 30)))
            computing = state.latency["compute"] * state.epochs * noise[0]
            assert np.array_equal(took, 2.0 + computing + state.latency["transfer"] * noise[1])
        elif name == "rbcs-f":
            c = np.column_stack([1.0 / rng.uniform(0.5, 2.0, 30), np.ones(30), 20.0 / rng.uniform(2.0, 4.0, 30)])
            mean = (c * state.latency["theta"]).sum(axis=1)
            assert np.array_equal(took, mean * (1.0 + rng.uniform(-1.0, 1.0, 30)))
        lots = fp.rng.stream(6, round, "ties").random(30)
        assert np.array_equal(draw.first(np.ones(30), everyone), np.argsort(lots))


def test_contexts_are_those_of_0_2(monkeypatch):
    """They are seen before the choice, and so are drawn for all."""
    world = worlds.named("rbcs-f")
    new = world.view(world.init(1), world.draw(world.init(1), 1, 3)).context
    old(monkeypatch)
    assert np.array_equal(new, world.view(world.init(1), world.draw(world.init(1), 1, 3)).context)


# ---- parts that users write


def test_only_parts_with_the_new_methods_are_asked():
    assert all(asks_latency(part) for part in LATENCIES)
    assert all(asks_volatility(part) for part in VOLATILITIES)
    assert not any(asks_latency(part) or asks_volatility(part) for part in OF_EVERYONE)


class Odd(worlds.SuccessRates):
    """A user's class that changes what a built-in draws."""

    def draw(self, memory, clients, round, rng):
        return np.arange(len(clients)) % 2 == 1


class Late(worlds.Gamma):
    def seconds(self, memory, drawn, idle, ids, epochs):
        return 100.0 + super().seconds(memory, drawn, idle, ids, epochs)


class Open(worlds.Device):
    """It shows what is drawn."""

    def context(self, memory, drawn, idle):
        return np.column_stack([drawn["compute"], drawn["transfer"]])


class Noisier(worlds.Gamma):
    def draw(self, memory, clients, round, rng):
        return {"noise": np.full(len(clients), 3.0)}


def test_classes_that_derive_from_built_in_ones_do_what_they_did():
    assert asked(make(volatility=Odd()), 0, 1, [3, 4, 5])[1].tolist() == [True, False, True]
    assert (asked(make(latency=Late()), 0, 1, np.arange(12))[0] > 100.0).all()
    world = make(latency=Noisier(shift=0.0, low=2.0, high=2.0))
    assert asked(world, 0, 1, [0, 5])[0].tolist() == [6.0, 6.0]
    world = make(latency=Open())
    state = world.init(0)
    assert world.view(state, world.draw(state, 0, 1)).context.shape == (12, 2)


class Doubled(worlds.Gamma):
    """Derives from a built-in one, and has the new method as well."""

    def seconds(self, memory, drawn, idle, ids, epochs):
        return 2.0 * super().seconds(memory, drawn, idle, ids, epochs)

    def seconds_of(self, memory, drawn, idle, ids, epochs, noise):
        return 2.0 * super().seconds_of(memory, drawn, idle, ids, epochs, noise)


def test_a_derived_class_may_have_the_new_method_too():
    took, _ = asked(make(latency=Doubled()), 0, 1, [0, 5])
    assert np.array_equal(took, 2.0 * asked(make(latency=worlds.Gamma()), 0, 1, [0, 5])[0])


@dataclasses.dataclass(frozen=True)
class Plain:
    """A part of 0.2: it has settings whose names are anyone's guess."""

    times: float = 3.0
    works: bool = False

    def init(self, clients, rng):
        return {}

    def draw(self, memory, clients, round, rng):
        return {"u": rng.random(len(clients))}

    def context(self, memory, drawn, idle):
        return None

    def seconds(self, memory, drawn, idle, ids, epochs):
        return self.times + drawn["u"][ids]


def test_a_part_of_0_2_is_drawn_for_everyone():
    took, _ = asked(make(latency=Plain()), 3, 2, [7, 1])
    assert np.array_equal(took, 3.0 + fp.rng.stream(3, 2, "latency").random(12)[[7, 1]])
    assert len(list(fp.Run(fp.Uniform(3), make(latency=Plain()), 0).rounds(5))) == 5


# ---- by the round and by the clock


@pytest.mark.parametrize("part", AVAILABILITIES, ids=name_of)
def test_who_is_there_can_be_asked_at_any_time_of_a_round(part):
    memory = part.init(CLIENTS, fp.rng.stream(0, 0, "availability"))
    for round in range(1, 8):
        drawn = part.draw(memory, CLIENTS, round, fp.rng.stream(0, round, "availability"))
        kept = {name: array.copy() for name, array in memory.items()}
        clocks = (0.0, 40_000.0, 1e7)
        first = [part.mask(memory, drawn, CLIENTS, round, clock).copy() for clock in clocks]
        for clock, mask in reversed([*zip(clocks, first, strict=True)]):
            assert np.array_equal(part.mask(memory, drawn, CLIENTS, round, clock), mask)
        if not isinstance(part, worlds.Diurnal):  # all others go by the round
            assert all(np.array_equal(mask, first[0]) for mask in first)
        assert all(np.array_equal(memory[name], kept[name]) for name in kept)
