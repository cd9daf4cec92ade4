"""What updates count for, against loops: clients drawn twice, over-selection, late updates, sums."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedpick as fp
from fedpick.engine.weights import bases, late_weights, merged, of_used, weigh

small = st.integers(0, 20).map(lambda n: n / 4)


@given(st.lists(st.tuples(st.integers(0, 5), small), max_size=10), st.booleans())
def test_of_a_client_drawn_twice_the_weights_are_added_up(draws, weighted):
    ids = np.array([k for k, _ in draws], dtype=np.int64)
    chances = np.arange(1, 7) / 8
    choice = fp.Choice(ids, chances[ids], [w for _, w in draws] if weighted else None)
    found = merged(choice)
    unique = list(dict.fromkeys(ids.tolist()))
    assert found.ids.tolist() == unique
    assert found.times.tolist() == [ids.tolist().count(k) for k in unique]
    assert found.inclusion.tolist() == chances[unique].tolist()
    sums = [sum(w for j, w in draws if j == k) for k in unique]
    assert found.weights is None if not weighted else found.weights.tolist() == sums
    sizes = np.arange(1.0, 7.0)
    base = bases(found, np.asarray(sizes, dtype=np.float64))
    assert base.tolist() == (sums if weighted else [sizes[k] * ids.tolist().count(k) for k in unique])
    assert merged(found) is found or merged(found).ids.tolist() == unique


@given(st.lists(st.tuples(st.integers(1, 9), small), max_size=8), st.sampled_from([0.0, 0.35, 1.0]))
def test_late_weights_are_those_of_the_formula(late, beta):
    """Abdelmoniem et al. (2023), section 4.2."""
    found = late_weights(np.array([tau for tau, _ in late], dtype=np.int64), np.array([far for _, far in late]), beta)
    most = max((far for _, far in late), default=0.0)
    wanted = [(1 - beta) / (tau + 1) + (beta * (1 - math.exp(-far / most)) if most else 0.0) for tau, far in late]
    np.testing.assert_allclose(found, wanted)
    assert (found <= 1.0).all()


@given(st.lists(st.tuples(small, st.booleans()), max_size=8))
def test_relative_weights_are_divided_by_their_sum_and_no_others(parts):
    found = weigh(np.array([base for base, _ in parts]), np.array([flag for _, flag in parts], dtype=bool))
    total = sum(base for base, flag in parts if flag)
    np.testing.assert_allclose(found, [(base / total if total else 0.0) if flag else base for base, flag in parts])
    if total:
        assert sum(w for w, (_, flag) in zip(found, parts, strict=True) if flag) == pytest.approx(1.0)


def test_a_late_weight_that_stands_as_it_is_does_so_with_nobody_else():
    """F3AST's .0047 became 1.0 when nobody was chosen."""
    assert weigh(np.array([0.0047]), np.array([False])).tolist() == [0.0047]


@pytest.mark.parametrize("normalise", [True, False])
def test_over_selection_scales_chances_and_weights_that_stand_as_they_are(normalise):
    choice = fp.Choice([1, 2, 3], [0.3, 0.6, 0.9], [1.0, 2.0, 3.0], normalise=normalise)
    found = of_used(choice, used=2, surplus=1)
    np.testing.assert_allclose(found.inclusion, [0.2, 0.4, 0.6])
    np.testing.assert_allclose(found.weights, [1.0, 2.0, 3.0] if normalise else [1.5, 3.0, 4.5])
    assert of_used(choice, used=3, surplus=0) is choice
    assert of_used(choice, used=0, surplus=3) is choice
    assert of_used(fp.Choice([1, 2]), 1, 1).weights is None


def test_with_equal_chances_of_being_first_the_weights_are_right_in_the_mean():
    """Ten clients of different sizes; 4 of 6 are used. The mean of the estimates is the sum of all shares, 1."""
    rng, sizes, total = np.random.default_rng(0), np.arange(1.0, 11.0), 0.0
    share, runs = sizes / sizes.sum(), 20_000
    for _ in range(runs):
        chosen = rng.choice(10, 6, replace=False)
        choice = fp.Choice(chosen, np.full(6, 0.6), share[chosen] / 0.6, normalise=False)
        total += of_used(choice, 4, 2).weights[:4].sum()  # the order is random: the first four have answered
    # The sum has a standard deviation of at most .4, so that of the mean is .003.
    assert total / runs == pytest.approx(1.0, abs=0.012)
