"""theory: each formula against a slow twin (enumeration, a linear program, the recursion it was summed from)."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from fedpick import theory
from fedpick.errors import ContractError, SettingError
from fedpick.theory import PowProblem

quick = settings(max_examples=60, deadline=None)
seeds = st.integers(0, 2**32 - 1)


# E3CS --------------------------------------------------------------------------------------------------------------


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


# Power-of-Choice ---------------------------------------------------------------------------------------------------


def quadratics(seed, K=5, G=4):
    """Scalar objectives F_k = h_k/2 (w - c_k)^2 + f_k: fractions p, minima, and losses as a function of w."""
    rng = np.random.default_rng(seed)
    h, c, f = rng.uniform(1, 20, K), rng.normal(size=K), rng.normal(size=K)
    p = rng.dirichlet(np.ones(K))
    optimum = p @ (h * c) / (p @ h)

    def losses(w):
        return h / 2 * (np.asarray(w)[..., None] - c) ** 2 + f

    return p, f, losses, optimum, rng.normal(size=G), rng


@quick
@given(seeds)
def test_gap_is_the_same_on_both_sides_of_4(seed):
    p, minima, losses, optimum, *_ = quadratics(seed)
    gap = theory.pow_gap(losses(optimum), minima, p)
    assert gap == pytest.approx(p @ losses(optimum) - p @ minima)
    assert gap >= 0


@quick
@given(seeds)
def test_size_weighted_selection_has_skew_exactly_one(seed):
    p, minima, losses, optimum, grid, _ = quadratics(seed)
    assert theory.pow_skew(losses(grid[0]), minima, p, share=p) == 1.0
    everywhere = theory.pow_skew_extremes(np.tile(p, (4, 1)), losses(grid), losses(optimum), minima, p)
    assert everywhere == pytest.approx((1, 1))


@quick
@given(seeds)
def test_skew_is_the_enumerated_expectation(seed):
    """Cohorts of 2 out of 5, each with its probability; the numerator of (5) cohort by cohort."""
    p, minima, losses, _, grid, rng = quadratics(seed)
    cohorts = list(itertools.combinations(range(5), 2))
    chance = rng.dirichlet(np.ones(len(cohorts)))
    F = losses(grid[0])
    numerator = sum(c * np.mean([F[k] - minima[k] for k in S]) for c, S in zip(chance, cohorts, strict=True))
    share = sum(c * theory.pow_share(S, 5) for c, S in zip(chance, cohorts, strict=True))
    assert theory.pow_skew(F, minima, p, share) == pytest.approx(numerator / (p @ F - p @ minima))


@quick
@given(seeds)
def test_extremes_are_those_of_the_pairs(seed):
    p, minima, losses, optimum, grid, rng = quadratics(seed)
    shares = rng.dirichlet(np.ones(5), size=3)
    at = [*losses(grid), losses(optimum)]
    found = theory.pow_skew_extremes(shares, losses(grid), losses(optimum), minima, p)
    assert found.rho_bar == pytest.approx(min(theory.pow_skew(F, minima, p, s) for F in at for s in shares))
    assert found.rho_tilde == pytest.approx(max(theory.pow_skew(at[-1], minima, p, s) for s in shares))
    assert found.rho_bar <= found.rho_tilde


def test_highest_loss_first_has_skew_zero_over_all_of_space():
    """Two quadratics at -1 and 1: the one that is chosen at w = -1 is at its minimum at w' = 1."""
    grid = np.linspace(-1, 1, 21)
    losses = np.stack([(grid + 1) ** 2, (grid - 1) ** 2], axis=1)
    shares = np.where(losses == losses.max(axis=1, keepdims=True), 1.0, 0.0)
    shares /= shares.sum(axis=1, keepdims=True)
    on_the_spot = [theory.pow_skew(F, [0, 0], [0.5, 0.5], s) for F, s in zip(losses, shares, strict=True)]
    assert min(on_the_spot) == 1.0  # at w' = w it is never below 1, as the paper says
    assert theory.pow_skew_extremes(shares, losses, [1, 1], [0, 0], [0.5, 0.5]).rho_bar == 0.0


def test_skew_where_every_client_is_at_its_minimum_is_one():
    assert theory.pow_skew([1.0, 2.0], [1.0, 2.0], [0.5, 0.5], [1.0, 0.0]) == 1.0
    skews = theory.pow_skew_extremes([[1, 0]], [[3.0, 2.0]], [1.0, 2.0], [1.0, 2.0], [0.5, 0.5])
    assert skews == (1.0, 1.0)


problems = st.builds(
    lambda L, kappa, G, sigma, tau, m, Gamma, rho, more: PowProblem(
        L=L, mu=L / kappa, G=G, sigma=sigma, tau=tau, m=m, Gamma=Gamma, rho_bar=rho, rho_tilde=rho + more
    ),
    st.floats(0.1, 10),
    st.floats(1, 50),
    st.floats(0, 3),
    st.floats(0, 3),
    st.integers(1, 30),
    st.integers(1, 8),
    st.floats(0, 2),
    st.floats(0.2, 3),
    st.floats(0, 2),
)


def simple(on):
    """B, C, D of (65)."""
    B = 1 + 3 * on.rho_bar / 8
    C = 32 * on.tau**2 * on.G**2 + on.sigma**2 / on.m + 6 * on.rho_bar * on.L * on.Gamma
    return B, C, 2 * on.Gamma * (on.rho_tilde - on.rho_bar)


def weighted(on):
    """B, C, D of (82)."""
    m = on.m
    C = 32 * m**2 * (m - 1) * on.tau**2 * on.G**2 + on.sigma**2 * m + 2 * on.L * (2 + m) * on.rho_bar * on.Gamma
    return 1 / m + on.rho_bar / 2, C, 2 * on.Gamma * (on.rho_tilde - on.rho_bar)


cases = pytest.mark.parametrize(
    ("bound", "coefficients", "beta_mu", "gamma_mu_over_L"),
    [
        (theory.pow_bound_decaying, simple, lambda m: 1, lambda m: 4),
        (theory.pow_bound_weighted, weighted, lambda m: m, lambda m: 4 * m * (1 + m)),
    ],
    ids=["decaying", "weighted"],
)


@cases
@quick
@given(on=problems, distance=st.floats(0, 5), T=st.integers(0, 400))
def test_closed_form_is_what_the_induction_gives(bound, coefficients, beta_mu, gamma_mu_over_L, on, distance, T):
    """(66)-(67): L/2 psi/(T + gamma), psi = gamma d^2 + (beta^2 C + beta D (T + gamma))/(beta mu B - 1)."""
    B, C, D = coefficients(on)
    beta, gamma = beta_mu(on.m) / on.mu, gamma_mu_over_L(on.m) * on.L / on.mu
    psi = gamma * distance**2 + (beta**2 * C + beta * D * (T + gamma)) / (beta * on.mu * B - 1)
    found = bound(T, on, distance)
    assert found.total == pytest.approx(on.L / 2 * psi / (T + gamma))
    delta = distance**2  # and it is above the recursion (65) itself
    for t in range(T):
        eta = beta / (t + gamma)
        delta = (1 - eta * on.mu * B) * delta + eta**2 * C + eta * D
    assert on.L / 2 * delta <= found.total * (1 + 1e-9) + 1e-12


@cases
@quick
@given(on=problems, distance=st.floats(0.1, 5), T=st.integers(0, 10**6))
def test_decaying_bounds_fall_to_their_bias(bound, coefficients, beta_mu, gamma_mu_over_L, on, distance, T):
    now, later = bound(T, on, distance), bound(2 * T + 1, on, distance)
    assert now.vanishing > later.vanishing > 0
    assert now.bias == later.bias >= 0
    assert bound(T, replace(on, rho_tilde=on.rho_bar), distance).bias == 0


@quick
@given(on=problems, excess=st.floats(0, 50), part=st.floats(0.01, 1), T=st.integers(0, 400))
def test_fixed_rate_bound_is_the_recursion(on, excess, part, T):
    B, C, D = simple(on)
    eta = part * min(1 / (2 * on.mu * B), 1 / (4 * on.L))
    found = theory.pow_bound_fixed(T, on, excess, eta)
    delta = 2 / on.mu * excess
    for _ in range(T):
        delta = (1 - eta * on.mu * B) * delta + eta**2 * C + eta * D
    assert found.total == pytest.approx(on.L / 2 * delta, rel=1e-9, abs=1e-9)
    assert found.total >= -1e-9 * max(1, abs(found.bias))
    assert abs(theory.pow_bound_fixed(T + 1, on, excess, eta).vanishing) <= abs(found.vanishing)


@quick
@given(on=problems)
def test_small_fixed_rate_has_less_bias_than_a_decaying_one(on):
    """The remark under Theorem A.1."""
    tiny = theory.pow_bound_fixed(10, replace(on, G=0.0, sigma=0.0), 1.0, eta=1e-12 / on.L)
    assert tiny.bias <= theory.pow_bound_decaying(10, on, 1.0).bias + 1e-9


def test_weighted_bound_does_not_give_the_simple_one_back():
    on = PowProblem(L=2, mu=1, G=1, sigma=1, tau=5, m=10, Gamma=0.5)
    assert theory.pow_bound_weighted(10**5, on, 1.0).total > 100 * theory.pow_bound_decaying(10**5, on, 1.0).total


# BSFL --------------------------------------------------------------------------------------------------------------


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


# RBCS-F ------------------------------------------------------------------------------------------------------------


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


# FedGS -------------------------------------------------------------------------------------------------------------


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


# Errors ------------------------------------------------------------------------------------------------------------

ON = {"L": 2.0, "mu": 1.0, "G": 1.0, "sigma": 1.0, "tau": 2, "m": 4, "Gamma": 0.5}
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
        (
            lambda: theory.pow_gap([1.0, 0.5], [0.0, 1.0], [0.5, 0.5]),
            SettingError,
            "minimum = -0.5, but must be >= 0; the",
        ),
        (lambda: theory.pow_gap([1.0, 1.0], [0.0, 0.0], [3, 1]), SettingError, "sum of p = 4.0, but must be 1; divide"),
        (lambda: theory.pow_gap([1.0, 1.0], [0.0], [1.0]), ContractError, "losses has shape (2,), but must have (1)"),
        (lambda: theory.pow_skew([1, 1], [0, 0], [0.5, 0.5], [2, -1]), SettingError, "least of share = -1.0, but must"),
        (
            lambda: theory.pow_skew_extremes([[1, 0], [1, 1], [0, 1]], [[1, 1]], [1, 1], [0, 0], [0.5, 0.5]),
            SettingError,
            "sum of shares = 2.0, but must be 1; divide by the sum",
        ),
        (lambda: theory.pow_share([[0, 3]], 3), ContractError, "cohorts must hold ids 0..2"),
        (lambda: theory.pow_share([[0, -1]], 3), ContractError, "cohorts must hold ids 0..2"),
        (lambda: theory.pow_share([], 3), ContractError, "and not be empty"),
        (lambda: PowProblem(**ON | {"mu": 3.0}), SettingError, "mu = 3.0, but must be > 0 and <= L = 2.0; curvature"),
        (lambda: PowProblem(**ON | {"m": 0}), SettingError, "(m, tau) = (0, 2), but must be >= 1"),
        (lambda: PowProblem(**ON | {"Gamma": -1}), SettingError, "Gamma = -1, but must be >= 0; see pow_gap"),
        (lambda: PowProblem(**ON, rho_bar=0.0), SettingError, "rho_bar = 0.0, but must be > 0; take its grid nearer"),
        (lambda: PowProblem(**ON, rho_bar=2.0), SettingError, "rho_tilde = 1.0, but must be >= rho_bar = 2.0; see pow"),
        (
            lambda: theory.pow_bound_fixed(9, PowProblem(**ON), 1.0, eta=0.2),
            SettingError,
            "eta = 0.2, but must be > 0 and <= min(1/(2 mu B), 1/(4L)) = 0.125; take a smaller step",
        ),
        (
            lambda: theory.pow_bound_fixed(9, PowProblem(**ON | {"L": 1.0}, rho_bar=8.0, rho_tilde=8.0), 1.0, eta=0.2),
            SettingError,
            "<= min(1/(2 mu B), 1/(4L)) = 0.125; take a smaller step",
        ),
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
        (lambda: theory.Lemma1(1, 1, 1, delta=1.0), SettingError, "delta = 1.0, but must be between 0 and 1; it is"),
        (lambda: theory.Lemma1(1, 1, 1, 0.1, ridge=0), SettingError, "ridge = 0, but must be > 0"),
        (lambda: theory.rbcsf_bound(9, 4, 0, 0.1, 1, 1, 1, 1, 0.1), SettingError, "V = 0, but must be > 0; without a"),
        (lambda: theory.rbcsf_bound(0, 4, 1, 0.1, 1, 1, 1, 1, 0.1), SettingError, "T = 0, but must be >= 1 round"),
        (lambda: theory.rbcsf_regret([1, 2], [1]), ContractError, "oracle_times has shape (1,), but must have (2)"),
        (lambda: theory.rbcsf_feasible(0.1, 0, [0.5]), SettingError, "cohort_size = 0, but must be >= 1 client"),
        (lambda: theory.rbcsf_feasible(0.1, 1, [1.5]), SettingError, "but must be within 0..1"),
        (
            lambda: theory.fedgs_bias([1.0, 0.0], 1),
            SettingError,
            "least of sizes = 0.0, but must be > 0; leave clients",
        ),
        (lambda: theory.fedgs_bias([1.0, 2.0], 3), SettingError, "m = 3, but must be from 1 to N = 2"),
    ],
)
def test_errors_give_the_value_the_bound_and_the_fix(call, error, text):
    with pytest.raises(error) as caught:
        call()
    assert text in str(caught.value)
