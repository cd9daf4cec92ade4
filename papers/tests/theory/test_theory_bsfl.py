"""BSFL's regret and bound, each formula against a slow twin."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpick.core.errors import ContractError, SettingError
from fedpick_papers import theory

quick = settings(max_examples=60, deadline=None)


seeds = st.integers(0, 2**32 - 1)


@quick
@given(seeds)
def test_bsfl_regret_is_the_enumerated_one(seed):
    rng = np.random.default_rng(seed)
    T, K, m, alpha = 4, 6, int(rng.integers(1, 4)), float(rng.uniform(0, 3))
    speeds, g = rng.random(K), rng.uniform(-1, 1, (T, K))
    available = rng.random((T, K)) < 0.7
    available[:, :m] = True
    chosen = [rng.choice(np.flatnonzero(row), m, replace=False) for row in available]

    def reward(t, S):
        return min(speeds[i] for i in S) + alpha / m * sum(g[t, i] for i in S)

    lost = [
        max(reward(t, S) for S in itertools.combinations(np.flatnonzero(available[t]), m)) - reward(t, chosen[t])
        for t in range(T)
    ]
    found = theory.bsfl_regret(chosen, speeds, g, alpha, available)
    assert found == pytest.approx(np.cumsum(lost), abs=1e-12)
    assert (np.diff(found, prepend=0) >= -1e-12).all()
    assert found[-1] <= T * theory.bsfl_delta_max(alpha, speeds)


def test_bsfl_regret_skips_empty_rounds():
    assert theory.bsfl_regret([[], [1]], [0.9, 0.5], [0.0, 0.0], 1.0) == pytest.approx([0, 0.4])


def test_with_drawn_speeds_the_genie_itself_would_regret():
    rng = np.random.default_rng(1)
    drawn = rng.uniform(0, 1, (2000, 4))
    means = np.full(4, 0.5)
    genie = [0, 1]
    assert theory.bsfl_regret([genie], means, np.zeros(4), 1.0)[-1] == 0
    naive = np.mean([0.5 - theory.bsfl_reward(row, np.zeros(4), 1.0, genie) for row in drawn])
    assert naive == pytest.approx(0.5 - 1 / 3, abs=0.02)


def test_bsfl_bound_is_15_and_grows_as_a_logarithm():
    one = theory.bsfl_bound(1, 20, 5, 2.0, 0.5)
    assert one == pytest.approx(2.0 * 20 * (1 + math.pi**2 / 3))
    grow = [theory.bsfl_bound(10**e, 20, 5, 2.0, 0.5) - one for e in (1, 2, 3)]
    assert grow == pytest.approx([2.0 * 20 * 4 * 6 * e * math.log(10) / 0.25 for e in (1, 2, 3)])


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (
            lambda: theory.bsfl_regret([[0]], [0.5], [[0.0, 1.0]], 1.0),
            ContractError,
            "g has shape (1, 2), but must have",
        ),
        (lambda: theory.bsfl_bound(0, 4, 2, 1.0, 0.1), SettingError, "n = 0, but must be >= 1 round"),
        (
            lambda: theory.bsfl_bound(9, 4, 2, 1.0, 0.0),
            SettingError,
            "delta_min = 0.0, but must be > 0 and <= delta_max",
        ),
    ],
)
def test_errors_give_the_value_the_bound_and_the_fix(call, error, text):
    with pytest.raises(error) as caught:
        call()
    assert text in str(caught.value)
