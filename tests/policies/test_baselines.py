"""Uniform, SizeWeighted, FixedProbabilities, FedCS, OverSelect."""

import itertools
import logging

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedpick as fp
from fedpick.policies._common import at_places
from zoo import outcome, view

SIZES = np.array([1.0, 2.0, 3.0, 4.0, 10.0])
CLIENTS = fp.Clients(SIZES)
DRAWS = 5_000


def frequencies(policy, seen, draws=DRAWS):
    """How often each client stands in a cohort, and the inclusion that the policy claims for it."""
    state, rng = policy.init(seen.clients), np.random.default_rng(7)
    counts, claimed = np.zeros(len(seen.clients)), np.full(len(seen.clients), np.nan)
    for _ in range(draws):
        choice = policy.select(state, seen, rng)
        np.add.at(counts, choice.ids, 1)
        if choice.inclusion is not None:
            claimed[choice.ids] = choice.inclusion
    return counts / draws, claimed


def close(frequency, p, draws=DRAWS):
    """Within 4.5 standard errors of a Bernoulli mean (a sum of them is no wider)."""
    error = np.sqrt(np.maximum(p * (1 - np.minimum(p, 1)), 0.25 * (p > 1)) / draws)
    return np.all(np.abs(frequency - p) <= 4.5 * error + 1e-12)


def test_uniform_gives_everyone_there_the_same_chance():
    seen = view(CLIENTS, available=[1, 1, 0, 1, 1])
    frequency, claimed = frequencies(fp.Uniform(3), seen)
    assert frequency[2] == 0
    there = [0, 1, 3, 4]
    assert close(frequency[there], np.full(4, 0.75))
    np.testing.assert_array_equal(claimed[there], 0.75)


def test_size_weighted_with_replacement_has_the_expected_counts():
    seen = view(CLIENTS, available=[1, 1, 1, 0, 1])
    frequency, claimed = frequencies(fp.SizeWeighted(3), seen)
    expected = 3 * np.where(seen.available, SIZES, 0) / 16.0
    error = np.sqrt(expected * (1 - expected / 3) / DRAWS)  # of a binomial count
    assert np.all(np.abs(frequency - expected) <= 4.5 * error)
    np.testing.assert_allclose(claimed[seen.available], expected[seen.available])


def test_size_weighted_once_each_includes_in_proportion_to_size():
    frequency, claimed = frequencies(fp.SizeWeighted(2, replace=False), view(CLIENTS))
    expected = np.array([0.1, 0.2, 0.3, 0.4, 1.0])  # 10/20 * 2 = 1, the rest shares 1
    assert close(frequency, expected)
    np.testing.assert_allclose(claimed, expected)


def test_size_weighted_with_replacement_can_choose_more_often_than_there_are_clients():
    seen = view(CLIENTS, available=[0, 0, 1, 0, 0])
    policy = fp.SizeWeighted(4)
    state = policy.init(CLIENTS)
    choice = policy.select(state, seen, np.random.default_rng(0))
    assert choice.ids.tolist() == [2, 2, 2, 2]
    state = policy.observe(state, seen, choice, outcome(choice, np.random.default_rng(0)))
    assert state.counts.tolist() == [0, 0, 4, 0, 0]


def successive(weights, m):
    """P(client in cohort) when m are drawn one after the other, by enumeration."""
    inclusion = np.zeros(len(weights))
    for order in itertools.permutations(range(len(weights)), m):
        p, left = 1.0, weights.sum()
        for client in order:
            p *= weights[client] / left
            left -= weights[client]
        inclusion[list(order)] += p
    return inclusion


def test_fixed_probabilities_draws_in_sequence():
    frequency, claimed = frequencies(fp.FixedProbabilities(2, p=SIZES / 20), view(CLIENTS))
    assert close(frequency, successive(SIZES, 2))
    assert np.isnan(claimed).all()


@pytest.mark.parametrize("sampler", [pytest.param("pivotal", marks=pytest.mark.slow), "systematic"])
def test_fixed_probabilities_can_be_exact(sampler):
    frequency, claimed = frequencies(fp.FixedProbabilities(2, p=SIZES, sampler=sampler), view(CLIENTS))
    np.testing.assert_allclose(claimed, [0.1, 0.2, 0.3, 0.4, 1.0])
    assert close(frequency, claimed)


@pytest.mark.parametrize("sampler", ["sequential", "pivotal", "systematic"])
def test_a_client_with_probability_0_is_never_drawn_even_if_places_stay_empty(sampler):
    policy = fp.FixedProbabilities(2, p=[0.0, 1.0, 0.0, 2.0, 3.0], sampler=sampler)
    state = policy.init(CLIENTS)
    for seed in range(50):
        rng = np.random.default_rng(seed)
        assert set(policy.select(state, view(CLIENTS), rng).ids) < {1, 3, 4}
        assert policy.select(state, view(CLIENTS, available=[1, 1, 1, 0, 0]), rng).ids.tolist() == [1]
        assert len(policy.select(state, view(CLIENTS, available=[1, 0, 1, 0, 0]), rng)) == 0


def test_fixed_probabilities_says_whether_places_can_stay_empty():
    assert fp.traits(fp.FixedProbabilities(2, p=SIZES)).fixed_size
    assert fp.traits(fp.FixedProbabilities(2, p=0.5)).fixed_size
    assert not fp.traits(fp.FixedProbabilities(2, p=[1.0, 0.0, 1.0, 1.0, 1.0])).fixed_size
    assert not fp.traits(fp.FixedProbabilities(2, p=lambda clients: clients.sizes)).fixed_size  # which may give zeros
    zeros = fp.FixedProbabilities(3, p=lambda clients: np.arange(len(clients)) % 2.0)
    assert len(fp.checks.check_policy(zeros)) == 13


def test_fedcs_takes_the_most_reliable_always_the_same_of_the_equal_ones():
    policy = fp.FedCS(2, success=[0.9, 0.1, 0.9, 0.9, 0.3])
    state = policy.init(CLIENTS)
    chosen = [policy.select(state, view(CLIENTS), np.random.default_rng(s)).ids.tolist() for s in range(20)]
    assert chosen == [[0, 2]] * 20
    seen = view(CLIENTS, available=[0, 1, 0, 1, 1])
    assert policy.select(state, seen, np.random.default_rng(0)).ids.tolist() == [3, 4]


def test_fedcs_takes_all_that_are_expected_before_the_deadline():
    theta = np.array([[1.0, 2.0], [1.0, 1.0], [5.0, 0.0], [0.5, 0.5], [1.0, 0.0]])
    policy = fp.FedCS(deadline=3.0, theta=theta)
    seen = view(CLIENTS, available=[1, 1, 1, 1, 0], context=np.array([[1.0, 1.0]] * 5))
    assert policy.select(policy.init(CLIENTS), seen, np.random.default_rng(0)).ids.tolist() == [1, 3]  # 3.0 is not
    capped = fp.FedCS(1, deadline=3.0, theta=theta)
    assert capped.select(capped.init(CLIENTS), seen, np.random.default_rng(0)).ids.tolist() == [3]
    assert not policy.fixed_size
    assert policy.needs == ("context",)


def test_fedcs_needs_no_context_where_nobody_is_there():
    policy = fp.FedCS(deadline=3.0, theta=np.ones((5, 2)))
    seen = view(CLIENTS, available=[0] * 5, context=None)
    assert len(policy.select(policy.init(CLIENTS), seen, np.random.default_rng(0))) == 0


def test_fedcs_may_be_told_more_than_it_uses():
    told = {"success": [0.9, 0.1, 0.9, 0.9, 0.3], "theta": np.ones((5, 2)), "times": SIZES}
    reliable, fast = fp.FedCS(2, **told), fp.FedCS(2, deadline=3.0, **told)
    np.testing.assert_array_equal(reliable.init(CLIENTS).known, told["success"])
    np.testing.assert_array_equal(fast.init(CLIENTS).known, told["theta"])
    assert (fp.traits(reliable).needs, fp.traits(fast).needs) == (set(), {"context"})
    assert fp.traits(fast).context == 2
    assert fp.traits(fp.FedCS(deadline=3.0, theta=lambda clients: np.ones((len(clients), 2)))).context is None


def test_over_select_asks_for_more_and_learns_from_all():
    policy = fp.OverSelect(fp.Uniform(10), 1.25)
    clients = fp.Clients(np.ones(50))
    state = policy.init(clients)
    choice = policy.select(state, view(clients), np.random.default_rng(0))
    assert (len(choice), policy.asks, policy.cohort_size) == (13, 13, 10)
    np.testing.assert_allclose(choice.inclusion, 13 / 50)
    state = policy.observe(state, view(clients), choice, outcome(choice, np.random.default_rng(0)))
    assert state.counts.sum() == 13


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (
            lambda: fp.Uniform(0),
            fp.SettingError,
            "Uniform: cohort_size = 0, but must be a whole number >= 1; it is the",
        ),
        (lambda: fp.Uniform(2.5), fp.SettingError, "cohort_size = 2.5, but must be a whole number"),
        (lambda: fp.FixedProbabilities(2, p=[1], sampler="piv"), fp.UnknownNameError, "did you mean 'pivotal'"),
        (
            lambda: fp.FixedProbabilities(2, p=[1, -1]).init(fp.Clients([1, 1])),
            fp.SettingError,
            "p holds -1.0, but must",
        ),
        (
            lambda: fp.FixedProbabilities(2, p=[0, 0]).init(fp.Clients([1, 1])),
            fp.SettingError,
            "p is 0 for every client",
        ),
        (
            lambda: fp.FixedProbabilities(2, p=[1]).init(CLIENTS),
            fp.ContractError,
            r"p has shape \(1,\), but needs 1 axes",
        ),
        (lambda: fp.FedCS(2), fp.SettingError, "give either success=rates, or deadline=seconds"),
        (lambda: fp.FedCS(2, success=[1], deadline=1), fp.SettingError, "give either times= or theta="),
        (lambda: fp.FedCS(deadline=1), fp.SettingError, "give either times= or theta="),
        (lambda: fp.FedCS(success=[1]), fp.SettingError, "FedCS: cohort_size = None, but must be"),
        (lambda: fp.FedCS(2, success=[np.nan] * 5).init(CLIENTS), fp.SettingError, "success holds NaN or infinity"),
        (lambda: fp.FedCS(deadline=-1.0, times=[1]), fp.SettingError, "deadline = -1.0, but must be a number > 0"),
        (lambda: fp.OverSelect(fp.Uniform(5), 0.9), fp.SettingError, "factor = 0.9, but must be a number >= 1"),
        (lambda: fp.OverSelect(object()), fp.SettingError, "object has no cohort_size to raise"),
        (lambda: fp.OverSelect(fp.PowerOfChoice(5, 6), 2.0), fp.SettingError, "candidates = 6, but must be >= cohort"),
    ],
)
def test_errors_give_the_value_the_bound_and_the_fix(make, error, says):
    with pytest.raises(error, match=says):
        make()


def test_fedcs_needs_a_context_that_fits_its_theta():
    policy = fp.FedCS(deadline=1.0, theta=np.ones((5, 2)))
    with pytest.raises(fp.MissingError, match=r"view\.context, but that is None"):
        policy.select(policy.init(CLIENTS), view(CLIENTS, context=None), np.random.default_rng(0))
    with pytest.raises(fp.ContractError, match=r"context has shape \(5, 3\), but theta \(5, 2\)"):
        policy.select(policy.init(CLIENTS), view(CLIENTS), np.random.default_rng(0))


def test_the_library_says_nothing_unless_asked():
    assert any(isinstance(handler, logging.NullHandler) for handler in logging.getLogger("fedpick").handlers)


@given(st.sets(st.integers(0, 299), max_size=6), st.lists(st.integers(0, 290), min_size=1, max_size=20))
def test_clients_at_places_are_those_of_the_list_of_all(away, positions):
    """Up to three of 300 are away: the short way, which counts the others from those; more: the list itself."""
    available = np.ones(300, dtype=bool)
    available[list(away)] = False
    seen = fp.View(1, available, fp.Clients(np.ones(300)))
    found = at_places(seen, np.array(positions), int(available.sum()))
    np.testing.assert_array_equal(found, np.flatnonzero(available)[positions])
