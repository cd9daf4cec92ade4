"""Power-of-Choice's gap, skew and bounds, each formula against a slow twin."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpick.core.errors import ContractError, SettingError
from fedpick_papers import theory
from fedpick_papers.theory import PowProblem

quick = settings(max_examples=60, deadline=None)


seeds = st.integers(0, 2**32 - 1)


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


ON = {"L": 2.0, "mu": 1.0, "G": 1.0, "sigma": 1.0, "tau": 2, "m": 4, "Gamma": 0.5}


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (
            lambda: theory.pow_gap([1.0, 0.5], [0.0, 1.0], [0.5, 0.5]),
            SettingError,
            "minimum = -0.5, but must be >= 0; the",
        ),
        (lambda: theory.pow_gap([1.0, 1.0], [0.0, 0.0], [3, 1]), SettingError, "sum of p = 4.0, but must be 1; divide"),
        (lambda: theory.pow_gap([1.0, 1.0], [0.0], [1.0]), ContractError, "losses has shape (2,), but must have (1)"),
        (
            lambda: theory.pow_skew([1, 1], [0, 0], [0.5, 0.5], [2, -1]),
            SettingError,
            "smallest of share = -1.0, but must",
        ),
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
        (lambda: PowProblem(**ON, rho_bar=0.0), SettingError, "rho_bar = 0.0, but must be > 0; compute it on a grid"),
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
    ],
)
def test_errors_give_the_value_the_bound_and_the_fix(call, error, text):
    with pytest.raises(error) as caught:
        call()
    assert text in str(caught.value)
