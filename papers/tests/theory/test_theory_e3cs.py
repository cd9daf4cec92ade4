"""E3CS's regret, bound, rate and quota, each formula against a slow twin."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from fedpick.core.errors import ContractError, SettingError
from fedpick_papers import theory

quick = settings(max_examples=60, deadline=None)


seeds = st.integers(0, 2**32 - 1)


def game(seed):
    """A random (x, k, sigma) with quotas that change from round to round."""
    rng = np.random.default_rng(seed)
    T, K = int(rng.integers(1, 6)), int(rng.integers(1, 7))
    k = int(rng.integers(1, K + 1))
    x = rng.random((T, K)) if seed % 2 else (rng.random((T, K)) < 0.5).astype(float)
    sigma = k / K * rng.choice([0.0, 0.3, 0.9, 1.0, rng.random()], size=T)
    return x, k, sigma, rng


def best_static_by_linear_program(x, k, sigma):
    """max over q of (26), subject to sum q = 1 and q_i (k - K sigma_t) + sigma_t <= 1 for every t."""
    T, K = x.shape
    left = k - K * sigma
    rows = np.vstack([left[t] * np.eye(K) for t in range(T)])
    found = linprog(-(left @ x), A_ub=rows, b_ub=np.repeat(1 - sigma, K), A_eq=np.ones((1, K)), b_eq=[1])
    assert found.success, found.message
    return -found.fun + float(np.sum(sigma[:, None] * x))


@quick
@given(seeds)
def test_best_static_is_the_linear_programs_optimum(seed):
    x, k, sigma, _ = game(seed)
    best = theory.e3cs_best_static(x, k, sigma)
    assert best.cep == pytest.approx(best_static_by_linear_program(x, k, sigma), abs=1e-7)
    assert best.q.sum() == pytest.approx(1)
    assert best.p.sum(axis=1) == pytest.approx(np.full(len(x), k))
    assert (best.p >= sigma[:, None] - 1e-12).all()
    assert (best.p <= 1 + 1e-12).all()


@quick
@given(seeds)
def test_no_static_allocation_has_negative_regret(seed):
    x, k, sigma, rng = game(seed)
    K = x.shape[1]
    best = theory.e3cs_best_static(x, k, sigma)
    mixed = rng.random()  # between the optimum for other rewards and the uniform allocation: feasible
    q = mixed * theory.e3cs_best_static(rng.random(x.shape), k, sigma).q + (1 - mixed) / K
    p = q * (k - K * sigma)[:, None] + sigma[:, None]
    assert theory.e3cs_regret(x, p, k, sigma) >= -1e-9
    assert theory.e3cs_regret(x, best.p, k, sigma) == pytest.approx(0, abs=1e-9)


def test_an_oracle_that_moves_beats_the_static_one_and_the_bound():
    T, K = 400, 2
    x = np.tile(np.eye(2), (T // 2, 1))  # they succeed in turn
    assert theory.e3cs_best_static(x, 1, 0.0).cep == T / 2
    moving = float(np.sum(x * x))
    assert moving - T / 2 > theory.e3cs_optimal_bound(K, 1, np.zeros(T))


def test_everything_reserved_leaves_no_regret_and_no_bound():
    sigma = np.full(7, 3 / 11)  # k - K (k/K) is not exactly 0 in floating point for every K
    assert theory.e3cs_optimal_rate(11, 3, sigma) == 0
    assert theory.e3cs_optimal_bound(11, 3, sigma) == 0
    assert theory.e3cs_bound(7, 11, 3, sigma, eta=0.0) == 0
    x = np.random.default_rng(0).random((7, 11))
    assert theory.e3cs_regret(x, np.full((7, 11), 3 / 11), 3, 3 / 11) == pytest.approx(0, abs=1e-12)


@quick
@given(st.integers(2, 50), st.integers(1, 300), st.floats(0, 1), st.floats(0.01, 1), seeds)
def test_optimal_rate_minimises_the_bound(K, T, part, eta, seed):
    k = int(np.random.default_rng(seed).integers(1, K))
    sigma = np.full(T, 0.9 * part * k / K)
    best = theory.e3cs_optimal_rate(K, k, sigma)
    printed = sum(eta * (k - K * s) for s in sigma) + K / eta * math.log(K)
    assert theory.e3cs_bound(T, K, k, float(sigma[0]), eta) == pytest.approx(printed)
    assert theory.e3cs_bound(T, K, k, sigma, best) == pytest.approx(theory.e3cs_optimal_bound(K, k, sigma))
    assert theory.e3cs_optimal_bound(K, k, sigma) <= printed * (1 + 1e-12)
    assert 0 < theory.e3cs_optimal_bound(K, k, sigma) < theory.e3cs_optimal_bound(K, k, np.append(sigma, 0))


@quick
@given(st.integers(2, 100), st.floats(0.01, 0.99), seeds)
def test_safe_quota_is_where_the_largest_step_is_one(K, eta, seed):
    k = int(np.random.default_rng(seed).integers(1, K + 1))
    sigma = theory.e3cs_safe_quota(K, k, eta)
    assert 0 < sigma < k / K
    assert (k - K * sigma) * eta * (1 / sigma) / K == pytest.approx(1)  # xhat = 1/p at p = sigma


X = np.zeros((3, 4))


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: theory.e3cs_best_static(X, 5, 0.0), SettingError, "k = 5, but must be from 1 to K = 4"),
        (
            lambda: theory.e3cs_best_static(X, 2, 0.6),
            SettingError,
            "sigma = 0.6, but must be from 0 to k/K = 0.5; sigma",
        ),
        (
            lambda: theory.e3cs_best_static(X, 2, [0.1, 0.6, 0.2]),
            SettingError,
            "sigma = 0.6, but must be from 0 to k/K",
        ),
        (lambda: theory.e3cs_best_static(X, 2, [0.1, -0.1, 0.2]), SettingError, "sigma = -0.1, but must be from 0"),
        (lambda: theory.e3cs_best_static(X + 2, 2, 0.1), SettingError, "but must be within 0..1; scale it"),
        (lambda: theory.e3cs_best_static(X, 2, [0.1, 0.1]), ContractError, "has shape (2,), but must have (3)"),
        (lambda: theory.e3cs_best_static(X * np.nan, 2, 0.1), ContractError, "x is empty or holds NaN"),
        (lambda: theory.e3cs_regret(X, X[:2], 2, 0.1), ContractError, "p has shape (2, 4), but must have (3, 4)"),
        (lambda: theory.e3cs_bound(3, 4, 2, 0.1, eta=0.0), SettingError, "eta = 0.0, but must be > 0; e3cs_optimal"),
        (lambda: theory.e3cs_optimal_rate(4, 2, 0.1), ContractError, "sigma (a quota for each round) has shape ()"),
        (lambda: theory.e3cs_safe_quota(4, 2, -1.0), SettingError, "eta = -1.0, but must be > 0"),
    ],
)
def test_errors_give_the_value_the_bound_and_the_fix(call, error, text):
    with pytest.raises(error) as caught:
        call()
    assert text in str(caught.value)
