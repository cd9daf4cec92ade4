"""RBCS-F's bound, lemma, regret and feasibility, each formula against a slow twin."""

import itertools
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


@quick
@given(seeds)
def test_rbcsf_bound_is_24_letter_by_letter(seed):
    rng = np.random.default_rng(seed)
    T, N, V, beta = int(rng.integers(1, 10**4)), 40, rng.uniform(1, 100), rng.uniform(0, 1)
    L, lambda_, R, S, K = rng.uniform(0.1, 5, 5)
    delta = rng.uniform(0.01, 0.5)
    zeta = max(K, 1) * max(2 * R * (3 * math.log((1 + T * L**2 / lambda_) / delta)) ** 0.5 + lambda_**0.5 * S, 1)
    printed = N * (1 + beta**2) / (2 * V) + zeta * (6 * math.log(1 + T * L**2 / (3 * lambda_)) / T) ** 0.5
    found = theory.rbcsf_bound(T, N, V, beta, L, lambda_, R, S, delta, K)
    assert found == pytest.approx(printed)
    assert theory.rbcsf_bound(100 * T + 1000, N, V, beta, L, lambda_, R, S, delta, K) < found + 1e-9
    assert theory.rbcsf_bound(T, N, 2 * V, beta, L, lambda_, R, S, delta, K) < found


def test_the_constant_of_24_has_to_carry_the_number_of_clients():
    """Sum of the widths of (20): N clients in turn exceed the printed root, and stay under it times the safe K."""
    N, T, L, ridge = 100, 300, 2.0, 1.0
    rng = np.random.default_rng(2)
    H, widths = np.tile(ridge * np.eye(3), (N, 1, 1)), []
    for t in range(T):
        c = rng.normal(size=3)
        c *= L / np.linalg.norm(c)
        widths.append(math.sqrt(c @ np.linalg.solve(H[t % N], c)))
        H[t % N] += np.outer(c, c)
    root = math.sqrt(6 * math.log(1 + T * L**2 / (3 * ridge)) / T)
    assert np.mean(widths) > 2 * root
    assert np.mean(widths) < math.sqrt(N * max(1, L**2 / ridge)) * root


def test_lemma_1_covers_the_truth():
    """Ridge regression with Gaussian noise: (20) fails in at most delta of the runs."""
    rng = np.random.default_rng(3)
    theta, alpha, failed, runs = (
        np.array([1.0, 0.5, 0.2]),
        theory.Lemma1(1.0, 2.0, 1.2, 0.1, ridge=1.0),
        0,
        200,
    )
    for _ in range(runs):
        H, b, inside = np.eye(3), np.zeros(3), True
        for t in range(1, 21):
            c = rng.uniform(0, 2 / math.sqrt(3), 3)
            off = abs(c @ np.linalg.solve(H, b) - c @ theta)
            inside &= bool(off <= alpha(t) * math.sqrt(c @ np.linalg.solve(H, c)))
            H += np.outer(c, c)
            b += (c @ theta + rng.normal()) * c
        failed += not inside
    assert failed <= 0.1 * runs
    assert alpha(1) < alpha(2)


@quick
@given(seeds)
def test_rate_stability_is_the_shortfall_of_the_guarantee(seed):
    rng = np.random.default_rng(seed)
    chosen, beta = rng.random((50, 4)) < 0.2, 0.3
    Z, queues = np.zeros(4), []
    for x in chosen:
        Z = np.maximum(Z + beta - x, 0)  # (6)
        queues.append(Z)
    rate = theory.rbcsf_rate_stability(queues)
    assert rate == pytest.approx(Z / 50)
    assert (chosen.mean(axis=0) >= beta - rate - 1e-12).all()


def test_rbcsf_regret_is_a_mean_over_rounds():
    assert theory.rbcsf_regret([5, 4, 6], [3, 4, 3]) == pytest.approx(5 / 3)


def guarantee_by_linear_program(m, there):
    """The largest beta that any rule keeps: how often each set of available clients is served by each cohort."""
    K, rows, caps, columns = len(there), [], [], []
    states = [np.array(s, dtype=bool) for s in itertools.product([0, 1], repeat=K)]
    for s in states:
        for S in itertools.combinations(np.flatnonzero(s), min(m, int(s.sum()))):
            columns.append((np.isin(np.arange(K), S), [np.array_equal(s, other) for other in states]))
    caps = [float(np.prod(np.where(s, there, 1 - np.asarray(there)))) for s in states]
    take = np.array([c[0] for c in columns], dtype=float).T
    rows = np.array([c[1] for c in columns], dtype=float).T
    found = linprog(
        np.append(np.zeros(len(columns)), -1.0),
        A_ub=np.hstack([-take, np.ones((K, 1))]),
        b_ub=np.zeros(K),
        A_eq=np.hstack([rows, np.zeros((len(states), 1))]),
        b_eq=caps,
    )
    assert found.success, found.message
    return -found.fun


@settings(max_examples=25, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=4), st.integers(1, 5))
def test_feasibility_is_exact(there, m):
    """Against the linear program over all rules, and E[min(m, available)] against enumeration."""
    largest = guarantee_by_linear_program(m, there)
    found = theory.rbcsf_feasible(0.0, m, there)
    assert found.largest == pytest.approx(largest, abs=1e-7)
    chance = [
        np.prod([a if on else 1 - a for a, on in zip(there, state, strict=True)])
        for state in itertools.product([0, 1], repeat=len(there))
    ]
    sizes = [sum(state) for state in itertools.product([0, 1], repeat=len(there))]
    assert found.served == pytest.approx(sum(c * min(m, n) for c, n in zip(chance, sizes, strict=True)))
    assert found.holds
    assert not found.clients.any()
    assert found.reason == ""
    assert theory.rbcsf_feasible(found.largest, m, there)
    assert not theory.rbcsf_feasible(found.largest + 0.01, m, there)


def test_neither_each_client_nor_all_of_them_but_two_are_too_many():
    there = [1.0, 1 / 3, 1 / 3]
    found = theory.rbcsf_feasible(1 / 3, 1, there)
    assert found.served >= 3 * (1 / 3)  # the two conditions that are usually checked hold
    assert min(there) >= 1 / 3
    assert not found
    assert found.clients.tolist() == [False, True, True]
    assert found.largest == pytest.approx(5 / 18)
    assert found.reason == (
        "the 2 least available need 0.666667 places a round, but there are 0.555556 for them; "
        "lower the guarantee to 0.277778"
    )


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: theory.Lemma1(1, 1, 1, delta=1.0), SettingError, "delta = 1.0, but must be between 0 and 1; delta is"),
        (lambda: theory.Lemma1(1, 1, 1, 0.1, ridge=0), SettingError, "ridge = 0, but must be > 0"),
        (
            lambda: theory.rbcsf_bound(9, 4, 0, 0.1, 1, 1, 1, 1, 0.1),
            SettingError,
            "V = 0, but must be > 0; there is no bound",
        ),
        (lambda: theory.rbcsf_bound(0, 4, 1, 0.1, 1, 1, 1, 1, 0.1), SettingError, "T = 0, but must be >= 1 round"),
        (lambda: theory.rbcsf_regret([1, 2], [1]), ContractError, "oracle_times has shape (1,), but must have (2)"),
        (lambda: theory.rbcsf_feasible(0.1, 0, [0.5]), SettingError, "cohort_size = 0, but must be >= 1 client"),
        (lambda: theory.rbcsf_feasible(0.1, 1, [1.5]), SettingError, "but must be within 0..1"),
    ],
)
def test_errors_give_the_value_the_bound_and_the_fix(call, error, text):
    with pytest.raises(error) as caught:
        call()
    assert text in str(caught.value)
