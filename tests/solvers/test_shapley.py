"""Shapley values: against the mean over all orders, their axioms, and what is not evaluated."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedpick as fp
from fedpick.solvers import shapley


def game(seed, players):
    """Any value for any coalition."""
    values = np.random.default_rng(seed).normal(size=2**players)
    return lambda rows: values[rows @ (1 << np.arange(players))]


def twin(value, players):
    """The mean over all orders of what each adds on joining."""
    found, orders = np.zeros(players), list(itertools.permutations(range(players)))
    for order in orders:
        row = np.zeros((1, players), dtype=bool)
        before = value(row)[0]
        for player in order:
            row[0, player] = True
            now = value(row)[0]
            found[player] += now - before
            before = now
    return found / len(orders)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**20), players=st.integers(1, 5))
def test_few_players_are_valued_exactly(seed, players):
    value = game(seed, players)
    found = shapley(value, players, np.random.default_rng(0), repeats=20, tolerance=0.0)
    np.testing.assert_allclose(found, twin(value, players), atol=1e-12)


def test_sampled_values_are_near_the_exact_ones():
    """Within four and a half standard errors: of 900 orders, in each of which a player adds what it adds."""
    value, players, repeats = game(1, 6), 6, 150
    exact = shapley(value, players, np.random.default_rng(0), repeats=repeats, tolerance=0.0)
    many = np.array(
        [shapley(value, players, np.random.default_rng(s), repeats=1, tolerance=0.0) for s in range(repeats)]
    )
    assert 2**players > 1 * players**2  # so that those are sampled
    error = many.std(axis=0, ddof=1) / np.sqrt(repeats)
    assert (np.abs(many.mean(axis=0) - exact) <= 4.5 * error).all()


@pytest.mark.parametrize("players", [3, 9])
def test_the_values_sum_to_what_all_add_and_who_adds_nothing_has_none(players):
    def value(rows):
        return np.sqrt((rows[:, :-1] * np.arange(1, players)).sum(axis=1))  # the last one is no use

    found = shapley(value, players, np.random.default_rng(0), tolerance=0.0)
    all_but = value(np.ones((1, players), dtype=bool))[0]
    assert found.sum() == pytest.approx(all_but)
    assert found[-1] == 0.0


def test_what_makes_no_difference_is_not_evaluated():
    asked = []

    def value(rows):
        asked.append(len(rows))
        return np.minimum(rows @ np.full(10, 0.5), 1.0)  # any two are worth as much as all

    found = shapley(value, 10, np.random.default_rng(0), repeats=3)
    assert len(asked) == 3  # nobody and all, then one alone, then pairs; no third
    assert asked[:2] == [2, 10]
    assert found.sum() == pytest.approx(1.0)
    asked.clear()
    assert (shapley(lambda rows: value(rows) * 1e-6, 10, np.random.default_rng(0)) == 0.0).all()
    assert asked == [2]
    assert len(shapley(value, 0, np.random.default_rng(0))) == 0


def test_every_player_is_first_equally_often():
    seen = []

    def value(rows):
        seen.append(rows.copy())
        return rows.sum(axis=1).astype(float)

    shapley(value, 8, np.random.default_rng(0), repeats=1)
    assert sorted(np.flatnonzero(row)[0] for row in seen[1]) == list(range(8))


def test_settings_out_of_bounds_are_refused():
    with pytest.raises(fp.SettingError, match="shapley: repeats = 0, but must be >= 1"):
        shapley(game(0, 2), 2, np.random.default_rng(0), repeats=0)
    with pytest.raises(fp.SettingError, match=r"shapley: tolerance = -1\.0, but must be >= 0"):
        shapley(game(0, 2), 2, np.random.default_rng(0), tolerance=-1.0)
