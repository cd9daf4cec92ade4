"""How long clients compute, against a loop over the world's own times."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedpick as fp
from fedpick.engine.work import worked


@given(st.lists(st.floats(0, 1e6), max_size=20), st.floats(0, 1e6) | st.just(np.inf))
def test_each_client_computes_until_it_is_done_or_given_up(computing, limit):
    wanted = 0.0
    for each in computing:
        wanted += each if each < limit else limit
    assert worked(np.array(computing), limit) == pytest.approx(wanted, rel=1e-9)


def twin(world, seed, records):
    """The seconds that clients compute in each round, from the parts of a fleet's times."""
    state, found = world.init(seed), []
    for record in records:
        draw = world.draw(state, seed, record.round)
        total = 0.0
        for k in record.ids:
            took = world.seconds(state, draw, np.array([k]))[0]
            sending = replace(world.latency, examples_per_second=1e300, cold_start=0.0)
            law = replace(world, latency=sending)
            own = law.init(seed)
            own.idle[:] = state.idle
            only = law.seconds(own, law.draw(own, seed, record.round), np.array([k]))[0]
            total += min(took - only, record.seconds)
        found.append(total)
        state.idle[:] = True
        state.idle[record.ids] = False
        state.clock = record.clock
    return found


@settings(max_examples=5, deadline=None)
@given(st.integers(0, 1000), st.sampled_from([5.0, 30.0, None]))
def test_rounds_count_what_all_chosen_clients_compute(seed, deadline):
    world = replace(fp.worlds.named("phones", 20), deadline=deadline, availability=fp.worlds.Always())
    records = list(fp.Run(fp.Uniform(6), world, seed).rounds(4))
    np.testing.assert_allclose([each.client_seconds for each in records], twin(world, seed, records), rtol=1e-6)


def test_laws_that_do_not_tell_computing_from_sending_count_all_of_the_time():
    times = np.array([3.0, 4.0, 50.0])
    clients = fp.Clients(np.ones(3))
    still = {"availability": fp.worlds.Always(), "latency": fp.worlds.PerClient(times)}
    world = fp.World(clients, **still, volatility=fp.worlds.Reliable(), deadline=10.0)
    (record,) = fp.Run(fp.Uniform(3), world).rounds(1)
    assert record.client_seconds == 17.0  # the third is given up at the deadline
    world = fp.World(clients, **still, volatility=fp.worlds.SuccessRates((0.0,)), deadline=None)
    (record,) = fp.Run(fp.Uniform(3), world).rounds(1)
    assert record.client_seconds == 57.0  # also of those that fail
    world = fp.World(clients, **still, volatility=fp.worlds.Reliable(), deadline=None)
    (record,) = fp.Run(fp.OverSelect(fp.Uniform(2), 1.5), world).rounds(1)
    assert record.client_seconds == 11.0  # 3 + 4, and of the third 4 until the round is closed


def test_without_rounds_work_counts_when_a_client_is_asked():
    clients = fp.Clients(np.ones(3))
    still = {"availability": fp.worlds.Always(), "volatility": fp.worlds.Reliable()}
    world = fp.World(clients, **still, latency=fp.worlds.PerClient([3.0, 4.0, 50.0]), deadline=None)
    pace = fp.Buffered(concurrency=3, size=1, timeout=20.0)
    records = list(fp.Run(fp.Uniform(3), world, pace=pace).rounds(3))
    asked = [record.asked for record in records]
    assert records[0].client_seconds == 27.0  # 3 + 4 + 20: the slow one is given up
    assert [record.client_seconds for record in records[1:]] == [3.0, 4.0]
    assert asked == [3, 1, 1]


class Still:
    """A trainer whose model never moves; clients' losses and norms are their numbers."""

    reports = ("update_norm",)

    def init(self, seed):
        return {"w": np.zeros(1)}

    def probe(self, model, ids, batch, rng):
        return np.asarray(ids, dtype=float)

    def train(self, model, ids, used, epochs, round, rng):
        return fp.Updates(np.ones(len(ids)), {"update_norm": np.asarray(ids, dtype=float) + 1.0})

    def part(self, updates, positions):
        return fp.Updates(updates.loss[positions], {"update_norm": updates.reports["update_norm"][positions]})

    def aggregate(self, model, choice, outcome, updates):
        return model

    def evaluate(self, model, round):
        return {}


def test_probes_and_first_phases_count_with_what_they_cost():
    still = {"availability": fp.worlds.Always(), "volatility": fp.worlds.Reliable(), "deadline": None}
    world = fp.World(
        fp.Clients(np.ones(4)), **still, latency=fp.worlds.PerClient([1.0, 2.0, 4.0, 8.0]), probe_share=0.5
    )
    (record,) = fp.Run(fp.PowerOfChoice(1, candidates=4), world, trainer=Still()).rounds(1)
    assert record.ids.tolist() == [3]
    assert record.client_seconds == 0.5 * 15.0 + 8.0
    (record,) = fp.Run(fp.OptimalSampling(2), world, trainer=Still()).rounds(1)
    assert record.client_seconds == 15.0  # all train, once, whoever sends
