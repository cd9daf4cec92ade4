"""The policy's weights in Flower: relative ones, ones used as they are, and bases that take none."""

import itertools
import logging
from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest
from fake_flower import Clock, FakeGrid, content, model, trains
from flwr.serverapp.strategy import FedAdam, FedAvg, FedMedian

import fedpick as fp
from fedpick.flower import Selected
from fedpick.policies.baselines import CountState
from fedpick.server import Limits


@dataclass(frozen=True)
class Told:
    """Chooses these clients with these weights."""

    ids: tuple[int, ...]
    weights: tuple[float, ...] | None
    normalise: bool = True
    replace = True

    @property
    def cohort_size(self):
        return len(self.ids)

    def init(self, clients):
        return CountState(np.zeros(len(clients), dtype=np.int64))

    def select(self, state, view, rng):
        return fp.Choice(self.ids, weights=self.weights, normalise=self.normalise)

    def observe(self, state, view, choice, outcome):
        return state


VALUES = (2.0, 5.0, 11.0)


def played(clock: Clock, policy, start: float = 1.0, make=FedAvg, **options) -> float:
    """The model after a round of three clients, whose models are VALUES, from one full of `start`."""
    examples = (10, 30, 60)
    nodes = {k: trains(value=VALUES[k], num_examples=examples[k]) for k in range(3)}
    base = make(fraction_evaluate=0.0, **options)
    result = Selected(base, policy).start(FakeGrid(clock, nodes), model(start, start), num_rounds=1)
    return float(result.arrays["w"].numpy()[0])


def test_weights_take_the_place_of_the_number_of_examples(clock: Clock) -> None:
    assert played(clock, Told((0, 1, 2), None)) == pytest.approx(0.1 * 2 + 0.3 * 5 + 0.6 * 11)
    assert played(clock, Told((0, 1, 2), (1.0, 1.0, 2.0))) == pytest.approx(0.25 * 2 + 0.25 * 5 + 0.5 * 11)
    assert played(clock, Told((0, 1, 2), (0.0, 4.0, 0.0))) == pytest.approx(5.0)


def test_a_client_drawn_twice_has_the_sum_of_its_weights(clock: Clock) -> None:
    assert played(clock, Told((0, 1, 1), (1.0, 1.0, 1.0))) == pytest.approx(2 / 3 + 5 * 2 / 3)


@pytest.mark.parametrize("weights", [(0.5, 0.25, 1.5), (0.1, 0.1, 0.1), (0.2, 0.3, 0.5)])
def test_weights_used_as_they_are_move_the_model_by_their_sum_of_updates(clock: Clock, weights) -> None:
    wanted = 1.0 + sum(w * (value - 1.0) for w, value in zip(weights, VALUES, strict=True))
    assert played(clock, Told((0, 1, 2), weights, normalise=False)) == pytest.approx(wanted)


def test_weights_that_are_all_zero_leave_the_model(clock: Clock) -> None:
    strategy = Selected(FedAvg(fraction_evaluate=0.0), Told((0, 1), (0.0, 0.0), normalise=False))
    grid = FakeGrid(clock, {k: trains() for k in range(3)})
    strategy.start(grid, model(3.0, 3.0), num_rounds=2)
    assert grid.sent[-1].content["arrays"]["w"].numpy().tolist() == [3.0, 3.0]
    assert strategy.last.status.tolist() == [0, 0]


def test_the_mean_over_all_cohorts_is_full_participation(clock: Clock) -> None:
    """By enumeration of independent draws, in Flower's own FedAvg."""
    chance, sizes = (0.5, 0.8, 0.25), np.array([0.1, 0.3, 0.6])
    mean = 0.0
    for mask in itertools.product([False, True], repeat=3):
        odds = np.prod([p if there else 1 - p for p, there in zip(chance, mask, strict=True)])
        ids = tuple(k for k in range(3) if mask[k])
        after = 1.0
        if ids:
            after = played(clock, Told(ids, tuple(sizes[k] / chance[k] for k in ids), normalise=False))
        mean += odds * after
    assert mean == pytest.approx(1.0 + sum(sizes * (np.array(VALUES) - 1.0)), rel=1e-12)


def test_servers_with_an_optimiser_get_the_same_mean(clock: Clock) -> None:
    one = played(clock, Told((0, 1, 2), (0.5, 0.25, 1.5), normalise=False), make=FedAdam)
    moved = 0.5 * 1.0 + 0.25 * 4.0 + 1.5 * 10.0
    alone = FakeGrid(clock, {0: trains(value=1.0 + moved)})
    other = Selected(FedAdam(fraction_evaluate=0.0), fp.Uniform(1)).start(alone, model(1.0, 1.0), num_rounds=1)
    assert one == pytest.approx(float(other.arrays["w"].numpy()[0]))


def test_a_base_without_weights_is_left_as_it_is_and_the_log_says_so(clock: Clock, caplog) -> None:
    with caplog.at_level(logging.WARNING, logger="flwr"):
        found = played(clock, Told((0, 1, 2), (0.0, 0.0, 1.0)), make=FedMedian)
    assert found in VALUES
    if found != 11.0:
        assert "FedMedian averages by no metric: the weights that Told asks for are not used" in caplog.text


def test_updates_are_valued_on_what_the_server_knows(clock: Clock) -> None:
    """Models 2, 5 and 11 of 10, 30 and 60 examples, and a server that wants 5: exact values, by all orders."""
    nodes = {k: trains(value=VALUES[k], num_examples=(10, 30, 60)[k]) for k in range(3)}

    def value(arrays):
        return -abs(float(arrays["w"].numpy()[0]) - 5.0)

    strategy = Selected(FedAvg(fraction_evaluate=0.0), fp.GreedyFed(3), value=value)
    strategy.start(FakeGrid(clock, nodes), model(1.0, 1.0), num_rounds=1)

    def worth(members):
        share = np.array([(10, 30, 60)[k] for k in members], dtype=float)
        mean = 1.0 if not members else float(share @ [VALUES[k] for k in members] / share.sum())
        return -abs(mean - 5.0)

    wanted, orders = np.zeros(3), list(itertools.permutations(range(3)))
    for order in orders:
        for at, k in enumerate(order):
            wanted[k] += (worth(order[: at + 1]) - worth(order[:at])) / len(orders)
    state = strategy.roster.state
    found = {name: state.worth[i] for i, name in enumerate(strategy.roster.names)}
    assert sorted(found.values()) == pytest.approx(sorted(wanted), rel=1e-5)
    with pytest.raises(fp.MissingError, match="Selected: GreedyFed needs shapley"):
        Selected(FedAvg(), fp.GreedyFed(3))


@pytest.mark.parametrize("broken", [lambda arrays: float("nan"), lambda arrays: 1 / 0])
def test_a_server_that_cannot_value_updates_moves_no_client(clock: Clock, caplog, broken) -> None:
    strategy = Selected(FedAvg(fraction_evaluate=0.0), fp.GreedyFed(3), value=broken)
    with caplog.at_level(logging.WARNING, logger="flwr"):
        strategy.start(FakeGrid(clock, {k: trains(value=VALUES[k]) for k in range(3)}), model(1.0, 1.0), num_rounds=1)
    assert strategy.roster.state.worth.tolist() == [0.0, 0.0, 0.0]
    assert strategy.roster.state.excused.tolist() == [1, 1, 1]
    assert "value() failed on 3 updates" in caplog.text


def capture(clock: Clock, policy, examples, **settings):
    """The strategy and the model after one round: the first client has 8 and so many examples, the others 1 and 10."""
    nodes = {k: trains(value=8.0 if k == 0 else 1.0, seconds=1.0 + k, num_examples=10) for k in range(5)}
    nodes[0] = trains(value=8.0, num_examples=examples)  # it is the first to answer
    strategy = Selected(FedAvg(fraction_evaluate=0.0), policy, wait=0.0, **settings)
    result = strategy.start(FakeGrid(clock, nodes), model(0.0, 0.0), num_rounds=1)
    return strategy, float(result.arrays["w"].numpy()[0])


def test_a_number_of_examples_is_limited(clock: Clock, caplog) -> None:
    """One reply of five that says 1e15 was the whole model."""
    examples = 10**15
    for policy, limits, weight in (
        (fp.Uniform(5), None, 300.0),
        (fp.Guard(fp.Uniform(5)), None, 15.0),
        (fp.Uniform(5), Limits(size_factor=None), float(examples)),
    ):
        caplog.clear()
        _, moved = capture(clock, policy, examples, limits=limits)
        assert moved == pytest.approx((weight * 8.0 + 40.0) / (weight + 40.0))
        assert ("sizes are too large to be true" in caplog.text) == (limits is None)
    for examples in (10, 299):  # an honest one is left as it is
        _, moved = capture(clock, fp.Uniform(5), examples)
        assert moved == pytest.approx((examples * 8.0 + 40.0) / (examples + 40.0))


def test_what_clients_are_worth_is_computed_with_limited_sizes(clock: Clock) -> None:
    """Of the mean of all five, which is the first that is valued."""
    means = []

    def value(record):
        means.append(float(record["w"].numpy()[0]))
        return means[-1]

    capture(clock, fp.SFedAvg(5), 10**15, value=value)
    assert max(means) == pytest.approx(8.0)  # the first alone
    every = (300 * 8.0 + 40.0) / 340
    assert any(abs(mean - every) < 1e-9 for mean in means)
    assert not any(7.999999 < mean < 8.0 for mean in means)


def test_metrics_of_evaluation_are_averaged_with_limited_sizes(clock: Clock) -> None:
    def behave(message, wrong, train):
        if message.metadata.message_type.startswith("evaluate"):
            return 0.1, content(accuracy=1.0 if wrong else 0.0, num_examples=10**15 if wrong else 10)
        return train(message)

    nodes = {k: partial(behave, wrong=k == 0, train=trains()) for k in range(5)}
    for limits, expected in ((None, 300 / 340), (Limits(size_factor=None), 1.0)):
        strategy = Selected(FedAvg(fraction_evaluate=1.0), fp.Uniform(5), wait=0.0, limits=limits)
        result = strategy.start(FakeGrid(clock, nodes), model(0.0, 0.0), num_rounds=1)
        assert result.evaluate_metrics_clientapp[1]["accuracy"] == pytest.approx(expected)
