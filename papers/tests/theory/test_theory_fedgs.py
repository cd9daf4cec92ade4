"""FedGS's variance and bias, each formula against a slow twin."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpick.core.errors import SettingError
from fedpick_papers import theory

quick = settings(max_examples=60, deadline=None)


seeds = st.integers(0, 2**32 - 1)


@quick
@given(seeds)
def test_update_variance_is_the_mean_square_from_the_mean(seed):
    draws = np.random.default_rng(seed).normal(size=(5, 2, 3))
    mean = sum(draws) / 5
    slow = sum(float(np.sum((g - mean) ** 2)) for g in draws) / 5
    assert theory.fedgs_update_variance(draws) == pytest.approx(slow)


def weights_by_enumeration(sizes, m):
    """E[n_k / sum_S n 1{k in S}] over all cohorts, and (19)-(20)'s form of it, E of the denominator taken first."""
    N, cohorts = len(sizes), list(itertools.combinations(range(len(sizes)), m))
    exact, others = np.zeros(N), np.zeros(N)
    for S in cohorts:
        for k in S:
            exact[k] += sizes[k] / sum(sizes[i] for i in S) / len(cohorts)
            others[k] += sum(sizes[i] for i in S if i != k) / (len(cohorts) * m / N)  # given that k is in S
    return exact, m / N * sizes / (sizes + others)


@quick
@given(seeds)
def test_bias_factor_is_20_and_never_above_the_true_one(seed):
    rng = np.random.default_rng(seed)
    sizes = rng.uniform(1, 20, int(rng.integers(1, 8)))
    m = int(rng.integers(1, len(sizes) + 1))
    exact, approximate = weights_by_enumeration(sizes, m)
    found = sizes / sizes.sum() * theory.fedgs_bias(sizes, m)
    assert found == pytest.approx(approximate)
    assert exact.sum() == pytest.approx(1)
    assert (found <= exact + 1e-12).all()
    assert found.sum() <= 1 + 1e-12


@quick
@given(st.integers(1, 50), st.floats(0.1, 1e6), st.data())
def test_equal_sizes_and_full_cohorts_are_unbiased(N, size, data):
    assert theory.fedgs_bias(np.full(N, size), data.draw(st.integers(1, N))) == pytest.approx(np.ones(N))
    uneven = np.arange(1.0, N + 1)
    assert theory.fedgs_bias(uneven, N) == pytest.approx(np.ones(N))


def test_how_far_the_approximation_is():
    """Sizes 1, 1, 4 and cohorts of two: true factors 1.4, 1.4, 0.8; the paper's 1.14, 1.14, 0.8."""
    sizes = np.array([1.0, 1.0, 4.0])
    exact, _ = weights_by_enumeration(sizes, 2)
    assert exact / (sizes / 6) == pytest.approx([1.4, 1.4, 0.8])
    assert theory.fedgs_bias(sizes, 2) == pytest.approx([8 / 7, 8 / 7, 0.8])
    assert (sizes / 6) @ theory.fedgs_bias(sizes, 2) == pytest.approx(0.914, abs=1e-3)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (
            lambda: theory.fedgs_bias([1.0, 0.0], 1),
            SettingError,
            "smallest of sizes = 0.0, but must be > 0; leave clients",
        ),
        (lambda: theory.fedgs_bias([1.0, 2.0], 3), SettingError, "m = 3, but must be from 1 to N = 2"),
    ],
)
def test_errors_give_the_value_the_bound_and_the_fix(call, error, text):
    with pytest.raises(error) as caught:
        call()
    assert text in str(caught.value)
