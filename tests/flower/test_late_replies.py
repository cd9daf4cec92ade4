"""Replies that come after their round was closed: used in a later round, rebased to its model, with REFL's weight."""

import logging

import numpy as np
import pytest
from fake_flower import FakeGrid, content, model
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg

import fedpick as fp
from fedpick.engine.weights import late_weights
from fedpick.flower import Selected
from fedpick.server import Lateness


def adds(amount, seconds=1.0, examples=10):
    """Trains by adding to the model that it was sent."""

    def behave(message):
        sent = message.content.array_records["arrays"]["w"].numpy()
        return seconds, content(model(*(sent + amount)), train_loss=0.5, num_examples=examples)

    return behave


def run(clock, nodes, rounds, policy=None, **options):
    strategy = Selected(FedAvg(fraction_evaluate=0.0), policy or fp.Uniform(3), deadline=10.0, **options)
    grid = FakeGrid(clock, nodes)
    result = strategy.start(grid, model(0.0, 0.0), num_rounds=rounds)
    return strategy, grid, result.arrays["w"].numpy()


NODES = {
    0: adds(np.array([1.0, 0.0]), seconds=9.0),
    1: adds(np.array([0.0, 2.0]), seconds=9.0, examples=30),
    2: adds(np.array([4.0, 4.0]), seconds=15.0, examples=20),
}


def test_a_reply_of_the_last_round_is_used_as_if_it_had_trained_this_one(clock):
    strategy, grid, found = run(clock, NODES, 2, late=2)
    mean = np.array([1.0, 0.0]) / 4 + np.array([0.0, 2.0]) * 3 / 4
    late = np.array([4.0, 4.0])
    factor = late_weights(np.array([1]), np.array([np.sum((late - mean) ** 2)]), 0.35)[0]
    second = (40 * mean + 20 * factor * late) / (40 + 20 * factor)
    np.testing.assert_allclose(found, mean + second, rtol=1e-6)
    assert sorted(grid.asked()) == [0, 0, 1, 1, 2]  # the third is busy in round 2
    statuses = strategy.last.status.tolist()
    assert statuses == [fp.Status.DONE] * 2


def test_without_the_setting_it_is_dropped(clock):
    _, grid, found = run(clock, NODES, 2)
    np.testing.assert_allclose(found, [0.5, 3.0], rtol=1e-6)
    assert sorted(grid.asked()) == [0, 0, 1, 1, 2, 2]


def test_what_comes_later_than_so_many_rounds_is_dropped_and_its_node_is_asked_again(clock):
    nodes = {**NODES, 2: adds(np.array([4.0, 4.0]), seconds=25.0)}
    waits = {k: adds(np.zeros(2), seconds=9.0) for k in (0, 1)}
    _, grid, found = run(clock, {**nodes, **waits}, 4, late=1)
    assert np.allclose(found, 0.0)
    assert grid.asked().count(2) == 2  # in rounds 1 and 3: in round 2 it is awaited


class Own:
    """Everybody, with the weights 0.2, 0.3 and 0.5."""

    cohort_size = 3

    def __init__(self, normalise):
        self.normalise = normalise

    def init(self, clients):
        return fp.Uniform(3).init(clients)

    def select(self, state, view, rng):
        ids = np.flatnonzero(view.available)
        return fp.Choice(ids, weights=np.array([0.2, 0.3, 0.5])[ids], normalise=self.normalise)

    def observe(self, state, view, choice, outcome):
        return fp.Uniform(3).observe(state, view, choice, outcome)


@pytest.mark.parametrize("normalise", [True, False])
def test_a_policys_weights_are_the_base_of_late_ones(clock, normalise):
    _, _, found = run(clock, NODES, 2, Own(normalise), late=Lateness(2, beta=0.0))
    own = [(0.2, np.array([1.0, 0.0])), (0.3, np.array([0.0, 2.0]))]
    first = sum(w * v for w, v in own) / (0.5 if normalise else 1.0)
    late = (0.5 * 0.5, np.array([4.0, 4.0]))
    second = sum(w * v for w, v in [*own, late]) / (0.75 if normalise else 1.0)
    np.testing.assert_allclose(found, first + second, rtol=1e-6)


def test_a_round_with_late_replies_alone_moves_the_model(clock):
    nodes = {k: adds(np.array([1.0, 2.0]), seconds=12.0) for k in range(2)}
    _, _, found = run(clock, nodes, 2, fp.Uniform(2), late=2, wait=0.0)
    np.testing.assert_allclose(found, [1.0, 2.0], rtol=1e-6)


@pytest.mark.parametrize("bad", [np.array([np.nan, 0.0]), np.zeros(3)])
def test_a_late_reply_that_cannot_be_used_changes_nothing(clock, bad, caplog):
    def behave(message):
        return 15.0, content(model(*bad), train_loss=0.5)

    with caplog.at_level(logging.INFO, logger="flwr.fedpick"):
        _, _, found = run(clock, {**NODES, 2: behave}, 2, late=2)
    np.testing.assert_allclose(found, [0.5, 3.0], rtol=1e-6)
    assert "late update of node:2 for round 1 dropped" in caplog.text


def test_a_base_without_weights_has_no_place_for_late_updates():
    base = FedAvg()
    del base.weighted_by_key
    with pytest.raises(fp.SettingError, match="Selected: late = 2, but FedAvg averages by no metric"):
        Selected(base, fp.Uniform(2), late=2)
    private = DifferentialPrivacyServerSideFixedClipping(FedAvg(), 0.1, 1.0, 2)
    with pytest.raises(fp.SettingError, match="late = 2, but DifferentialPrivacyServerSideFixedClipping counts on one"):
        Selected(private, fp.Uniform(2), late=2)
    Selected(private, fp.Uniform(2))


def test_a_pace_of_rounds_stands_in_the_place_of_deadline_and_late(clock):
    _, _, wanted = run(clock, NODES, 2, late=2)
    strategy = Selected(FedAvg(fraction_evaluate=0.0), fp.Uniform(3), pace=fp.Rounds(deadline=10.0, late=2))
    result = strategy.start(FakeGrid(clock, NODES), model(0.0, 0.0), num_rounds=2)
    np.testing.assert_allclose(result.arrays["w"].numpy(), wanted)
