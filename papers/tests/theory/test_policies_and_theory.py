"""The library's policies and the papers' formulas agree."""

import math

import numpy as np
import pytest

import fedpick as fp
from fedpick.policies.e3cs import allocate
from fedpick_papers import theory


@pytest.mark.parametrize("quota", [0.0, 0.4, "inc", "linear", "cosine", lambda t: 1 / t])
def test_e3cs_has_the_optimal_rate_of_theorem_1(quota):
    K, k, T = 30, 6, 200
    policy = fp.E3CS(k, quota=quota, learning_rate="optimal", horizon=T)
    sigmas = [policy.share(t) * k / K for t in range(1, T + 1)]
    assert policy.init(fp.Clients(np.ones(K))).eta == pytest.approx(theory.e3cs_optimal_rate(K, k, sigmas))


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
@pytest.mark.parametrize(
    ("eta", "quota"),
    [(0.3, 0.5), *(pytest.param(*each, marks=pytest.mark.slow) for each in ((0.1, 0.1 / 1.1), ("optimal", 0.2)))],
)
def test_regret_stays_under_the_bound_28_where_no_step_exceeds_1(eta, quota, seed):
    K, k, T = 10, 2, 1500
    policy, clients = fp.E3CS(k, quota=quota, learning_rate=eta, horizon=T), fp.Clients(np.ones(K))
    rng, state = np.random.default_rng(seed), policy.init(clients)
    sigma = quota * k / K
    assert sigma >= theory.e3cs_safe_quota(K, k, state.eta) * (1 - 1e-9)
    rates = np.full(K, 0.05)
    rates[rng.permutation(K)[:k]] = 0.95
    x, p = rng.random((T, K)) < rates, np.empty((T, K))
    for t in range(1, T + 1):
        view = fp.View(t, np.ones(K, dtype=bool), clients)
        p[t - 1], _ = allocate(state.log_weights, k, sigma)
        choice = policy.select(state, view, rng)
        done = x[t - 1, choice.ids]
        status = np.where(done, fp.Status.DONE, fp.Status.FAILED)
        state = policy.observe(state, view, choice, fp.Outcome(status, np.ones(k), np.ones(k)))
    bound = theory.e3cs_bound(T, K, k, sigma, state.eta)
    assert theory.e3cs_regret(x, p, k, sigma) <= bound
    blind = np.full((T, K), k / K)
    assert theory.e3cs_regret(x, blind, k, sigma) > bound  # a policy that learns nothing does not pass


@pytest.mark.parametrize("d", [1, 3, 6])
def test_the_exploration_of_lemma_1(d):
    R, L, S, delta = 0.3, 4.0, 5.0, 0.1
    rate = theory.Lemma1(R, L, S, delta, d=d)
    for t in (1, 10, 100):
        assert rate(t) == R * math.sqrt(d * math.log((1 + t * L**2) / delta)) + S
    policy, clients = fp.RBCSF(4, context=d, exploration=rate), fp.Clients(np.ones(12))
    view = fp.View(1, np.ones(12, dtype=bool), clients, context=np.ones((12, d)))
    assert len(policy.select(policy.init(clients), view, np.random.default_rng(0))) == 4


def test_the_stability_of_rates_is_the_queue_over_the_rounds():
    queue, T = np.array([0.0, 1.5, 20.0]), 2000
    assert theory.rbcsf_rate_stability(np.tile(queue, (T, 1))) == pytest.approx(queue / T)
