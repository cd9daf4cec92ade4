"""What a world tells oracles is what its draws come to on average."""

import dataclasses
from typing import Any

import numpy as np
import pytest

import fedpick as fp
from fedpick import worlds
from fedpick.worlds import World

ROUNDS = 1500


def played(world: World, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(rounds, K) success flags and seconds, and (rounds, K, d) contexts; who starts cold is drawn anew each time."""
    state, works, seconds, contexts = world.init(seed), [], [], []
    everyone = np.arange(len(world.clients))
    for round in range(1, ROUNDS + 1):
        draw = world.draw(state, seed, round)
        state.idle[:] = np.random.default_rng(round).random(len(everyone)) < 0.5
        works.append(world.works(state, draw, everyone))
        seconds.append(world.seconds(state, draw, everyone))
        contexts.append(world.view(state, draw).context)
    return np.array(works), np.array(seconds), np.array(contexts)


def near(found: np.ndarray, due: np.ndarray, samples: np.ndarray) -> bool:
    """Within 4.5 standard errors of the mean."""
    return bool((np.abs(found - due) <= 4.5 * samples.std(axis=0) / np.sqrt(len(samples)) + 1e-9).all())


def world(**parts: Any) -> World:
    return World(fp.Clients(np.linspace(50, 400, 8)), availability=worlds.Always(), deadline=None, **parts)


@pytest.mark.parametrize(
    "law",
    [worlds.Reliable(), worlds.SuccessRates(), worlds.Bursts(spell=1.0), worlds.ReplayedFlags(np.eye(8)[:3])],
    ids=lambda law: type(law).__name__,
)
def test_success_is_how_often_clients_succeed(law):
    there = world(volatility=law)
    flags = played(there, 3)[0]
    assert near(flags.mean(axis=0), there.truth(3)["success"], flags)


@pytest.mark.parametrize(
    "law",
    [
        worlds.PerClient(np.arange(1.0, 9.0)),
        worlds.Gamma(),
        worlds.LogNormalTime(),
        worlds.Replayed([[1.0] * 8, [3.0] * 8]),
    ],
    ids=lambda law: type(law).__name__,
)
def test_times_are_the_mean_seconds(law):
    there = world(latency=law)
    seconds = played(there, 5)[1]
    assert near(seconds.mean(axis=0), there.truth(5)["times"], seconds)


@pytest.mark.parametrize("law", [worlds.PerClient(np.arange(1.0, 9.0)), worlds.Gamma(shift=1.0)])
def test_speed_is_the_mean_of_the_shortest_time_over_the_clients(law):
    there = world(latency=law)
    speed = 1.0 / played(there, 7)[1]
    assert near(speed.mean(axis=0), there.truth(7)["speed"], speed)


@pytest.mark.parametrize("law", [worlds.PerClient(0.0), worlds.Gamma(shift=0.0), worlds.LogNormalTime()])
def test_a_law_without_a_shortest_time_tells_no_speed(law):
    assert "speed" not in world(latency=law).truth()


@pytest.mark.parametrize("law", [worlds.Linear(), worlds.Device(waver=0.4)], ids=lambda law: type(law).__name__)
def test_theta_turns_contexts_into_mean_seconds(law):
    there = world(latency=law)
    _, seconds, contexts = played(there, 9)
    error = seconds - np.einsum("tkd,kd->tk", contexts, there.truth(9)["theta"])
    assert near(error.mean(axis=0), np.zeros(8), error)


def test_the_truth_goes_by_the_seed_where_it_is_drawn():
    there = worlds.named("bsfl", 8)
    assert there.truth(1)["times"].tolist() != there.truth(2)["times"].tolist()
    np.testing.assert_array_equal(there.truth(1)["times"], there.truth(1)["times"])


def test_what_changes_with_the_rounds_is_no_truth():
    assert "success" not in world(volatility=worlds.Shift()).truth()


def test_a_part_of_ones_own_has_its_say_or_none():
    @dataclasses.dataclass(frozen=True)
    class Silent:
        def init(self, clients, rng):
            return {}

        def draw(self, memory, clients, round, rng):
            return np.ones(len(clients), dtype=bool)

    @dataclasses.dataclass(frozen=True)
    class Telling(Silent):
        def truth(self, memory, clients):
            return {"mood": list(range(len(clients)))}

    law = worlds.PerClient(2.0)
    assert set(world(volatility=Silent(), latency=law).truth()) == {"times", "speed"}
    assert world(volatility=Telling(), latency=law).truth()["mood"].tolist() == list(range(8))


def test_the_truth_is_a_copy():
    times = np.arange(1.0, 9.0)
    world(latency=worlds.PerClient(times)).truth()["times"][:] = 0.0
    assert times.min() == 1.0


@pytest.mark.parametrize(("base", "longer"), [(2.0, 1.0), (np.e, 1 / np.log(2)), (10.0, np.log2(10))])
def test_the_base_of_the_logarithm_scales_the_transfer(base, longer):
    clients = fp.Clients(np.ones(4))
    usual = 1.0 / np.log2([1001.0, 101.0, 11.0, 2.0])
    theta = worlds.Linear(base=base).theta(clients)
    np.testing.assert_allclose(theta[:, 2], usual * longer, rtol=1e-12)
    np.testing.assert_array_equal(theta[:, :2], worlds.Linear().theta(clients)[:, :2])


def test_a_base_of_1_is_refused():
    with pytest.raises(fp.SettingError, match=r"Linear: base = 1, but must be finite and > 1"):
        worlds.Linear(base=1)
