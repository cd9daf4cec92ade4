"""E3CS against Algorithms 1 and 2 of its paper, written out slowly with plain weights, decimals of 50 digits."""

import math
from decimal import Decimal, localcontext
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedpick as fp
from fedpick.policies.e3cs import allocate

quick = settings(max_examples=100, deadline=None)
seeds = st.integers(0, 2**32 - 1)
DONE, LATE, FAILED, SURPLUS = (int(s) for s in (fp.Status.DONE, fp.Status.LATE, fp.Status.FAILED, fp.Status.SURPLUS))


# The slow twins ----------------------------------------------------------------------------------------------------


def plain(log_weights):
    """Weights themselves, as decimals that neither overflow nor underflow."""
    return [Decimal(float(v)).exp() for v in log_weights]


def alpha_by_bisection(weights, k, sigma):
    """The alpha of (22): alpha / sum_j min(w_j, (1 - sigma) alpha) = 1 / (k - K sigma). The left side never falls.

    Where it is flat (k = K: all are in) the largest alpha counts, as the paper asks: the least weight over 1 - sigma.
    """
    low, high = min(weights) / (1 - sigma), max(weights) / (1 - sigma)
    for _ in range(220):
        middle = (low * high).sqrt()
        if middle * (k - len(weights) * sigma) < sum(min(w, (1 - sigma) * middle) for w in weights):
            low = middle
        else:
            high = middle
    return high


def prob_alloc(weights, k, sigma):
    """Algorithm 2, line by line: p as decimals, and S_t."""
    K, sigma = len(weights), Decimal(sigma)
    if k - K * sigma < Decimal("1e-12"):  # nothing is left to allocate
        return [Decimal(k) / K] * K, set()
    if sigma + (k - K * sigma) * max(weights) / sum(weights) > 1:
        cap = (1 - sigma) * alpha_by_bisection(weights, k, sigma)
        over = {i for i in range(K) if weights[i] > cap}
        weights = [min(w, cap) for w in weights]
    else:
        over = set()
    return [sigma + (k - K * sigma) * w / sum(weights) for w in weights], over


def by_sorting(weights, k, sigma):
    """The same in closed form (specs/e3cs.md): the n largest have p = 1, n the least that leaves nobody above 1."""
    K, sigma = len(weights), Decimal(sigma)
    down = sorted(weights, reverse=True)
    for n in range(K):
        left = (k - K * sigma) - n * (1 - sigma)
        tail = sum(down[n:])
        if left * down[n] <= (1 - sigma) * tail:
            break
    return [Decimal(1) if w > down[n] else sigma + left * w / tail for w in weights], n


def printed_rule(weights, k, sigma):
    """(23) and (24) as printed, which sort the clients by w_j <= Psi instead of w_j <= (1 - sigma) Psi; p by line 5."""
    K, w = len(weights), np.asarray(weights)
    psi = np.sort(w / (1 - sigma))
    for low, high in pairwise(psi):
        below = w <= low
        room = k - K * sigma - np.count_nonzero(~below) * (1 - sigma)
        if room > 0 and low <= (alpha := w[below].sum() / room) < high:
            capped = np.minimum(w, (1 - sigma) * alpha)
            return sigma + (k - K * sigma) * capped / capped.sum()
    raise AssertionError("no case of (24) meets its premise")


class Algorithm1:
    """E3CS as the paper's pseudocode has it, among those who are there (the paper lets everyone be there)."""

    def __init__(self, K, k, eta, max_step=None):
        self.w, self.k, self.eta, self.max_step = [Decimal(1)] * K, k, Decimal(eta), max_step

    def probabilities(self, ids, sigma):
        p, over = prob_alloc([self.w[i] for i in ids], min(self.k, len(ids)), sigma)
        return dict(zip(ids, p, strict=True)), {ids[j] for j in over}

    def learn(self, ids, sigma, chosen, x):
        p, over = self.probabilities(ids, sigma)
        for i, reward in zip(chosen, x, strict=True):
            estimate = Decimal(float(reward)) / p[i]  # (16)
            step = (min(self.k, len(ids)) - len(ids) * Decimal(sigma)) * self.eta * estimate / len(ids)
            if self.max_step is not None:
                step = min(step, Decimal(self.max_step))
            if i not in over:  # (17)
                self.w[i] *= step.exp()


@pytest.fixture(autouse=True)
def _fifty_digits():
    with localcontext() as context:
        context.prec = 50
        context.Emax, context.Emin = 10**9, -(10**9)
        yield


def everyone(K):
    return fp.Clients(np.ones(K))


def view_of(round, clients, there=None):
    return fp.View(round, np.ones(len(clients), dtype=bool) if there is None else there, clients)


def outcome_of(status, **reports):
    codes = np.asarray(status, dtype=np.int64)
    seconds = np.where(codes == SURPLUS, 1.0, np.nan)  # one that answered; without a duration it would be no news
    return fp.Outcome(codes, seconds, np.full(len(codes), np.nan), reports or None)


def play(policy, rates, rounds, seed, state=None, start=1):
    """Rounds with everyone there and independent successes; returns the state and the number of successes."""
    clients, rng, total = everyone(len(rates)), np.random.default_rng(seed), 0
    state = policy.init(clients) if state is None else state
    for t in range(start, start + rounds):
        view = view_of(t, clients)
        choice = policy.select(state, view, rng)
        done = rng.random(len(choice)) < np.asarray(rates)[choice.ids]
        state = policy.observe(state, view, choice, outcome_of(np.where(done, DONE, FAILED)))
        total += int(done.sum())
    return state, total


# Algorithm 2: probabilities ----------------------------------------------------------------------------------------


@st.composite
def allocations(draw, spread=1000.0):
    """Log-weights, k and sigma; weights come in few levels now and then, so that ties and plateaus are met."""
    K = draw(st.integers(1, 9))
    k = draw(st.integers(1, K))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    levels = rng.choice([-spread, -1.0, 0.0, 5e-324, 1e-9, math.log(2.0), 1.0, spread], K)
    logs = np.where(rng.random(K) < draw(st.sampled_from([0.0, 0.5, 1.0])), levels, rng.uniform(-spread, spread, K))
    return logs, k, draw(st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0])) * k / K


@quick
@given(allocations(spread=3.0))
def test_allocate_is_algorithm_2_with_alpha_of_22_found_by_bisection(case):
    logs, k, sigma = case
    twin, _ = prob_alloc(plain(logs), k, sigma)
    np.testing.assert_allclose(allocate(logs, k, sigma)[0], np.array(twin, dtype=float), rtol=1e-8)


@quick
@given(allocations())
def test_allocate_is_the_sorted_formula_for_log_weights_of_any_spread(case):
    logs, k, sigma = case
    twin, _ = by_sorting(plain(logs), k, sigma)
    np.testing.assert_allclose(allocate(logs, k, sigma)[0], np.array(twin, dtype=float), rtol=1e-8, atol=1e-300)


@settings(max_examples=200, deadline=None)
@given(allocations())
def test_allocate_sums_to_k_within_bounds_and_keeps_the_order_of_the_weights(case):
    logs, k, sigma = case
    p, capped = allocate(logs, k, sigma)
    assert p.sum() == pytest.approx(k, rel=1e-9)
    assert (p >= sigma).all()
    assert (p <= 1.0).all()
    assert (np.diff(p[np.argsort(logs)]) >= 0).all()
    assert (p[capped] == 1.0).all()
    for value in np.unique(logs):  # equal weights are treated equally
        assert len(np.unique(p[logs == value])) == 1
        assert len(np.unique(capped[logs == value])) == 1


@settings(max_examples=200, deadline=None)
@given(allocations(spread=3.0))
def test_overflowed_set_holds_exactly_the_weights_above_the_cap(case):
    logs, k, sigma = case
    weights, capped = plain(logs), allocate(logs, k, sigma)[1]
    if k - len(logs) * sigma <= 1e-9:
        assert not capped.any()
        return
    cap = Decimal(1 - sigma) * alpha_by_bisection(weights, k, Decimal(sigma))
    for w, inside in zip(weights, capped, strict=True):
        if inside:
            assert w > cap * (1 - Decimal("1e-8"))
        else:
            assert w <= cap * (1 + Decimal("1e-8"))


@pytest.mark.parametrize(
    ("weights", "k", "p", "capped"),
    [
        ([2, 1, 1], 2, [1, 0.5, 0.5], [False, False, False]),  # reaches 1 without overflow
        ([8, 2, 1, 1], 3, [1, 1, 0.5, 0.5], [True, False, False, False]),  # the second lies on the cap
        ([4, 4, 1, 1], 3, [1, 1, 0.5, 0.5], [True, True, False, False]),
        ([1, 1, 1, 1], 4, [1, 1, 1, 1], [False, False, False, False]),
    ],
)
def test_a_weight_exactly_at_the_cap_is_not_in_the_overflowed_set(weights, k, p, capped):
    found, over = allocate(np.log(weights), k, 0.0)
    assert found == pytest.approx(p)
    assert over.tolist() == capped


def test_equations_23_and_24_as_printed_give_a_probability_above_1_where_allocate_does_not():
    weights, k, sigma = np.array([2.0, 2.0, 2.0, 6.0, 12.0, 12.0]), 5, 0.5
    assert sigma + (k - 6 * sigma) * weights.max() / weights.sum() > 1  # line 1: probabilities overflow
    assert printed_rule(weights, k, sigma).max() == pytest.approx(1.1)
    twin, _ = prob_alloc(plain(np.log(weights)), k, sigma)
    found = allocate(np.log(weights), k, sigma)[0]
    np.testing.assert_allclose(found, np.array(twin, dtype=float), rtol=1e-9)
    assert found.max() == 1.0


def test_equations_23_and_24_as_printed_are_wrong_in_many_overflow_cases_and_right_at_quota_0():
    rng, wrong, cases = np.random.default_rng(0), 0, 0
    while cases < 200:
        weights, k = np.exp(rng.normal(0.0, 1.5, 8)), int(rng.integers(2, 7))
        sigma = rng.uniform(0.0, 0.9) * k / 8
        for quota in (0.0, sigma):
            if quota + (k - 8 * quota) * weights.max() / weights.sum() > 1:
                off = abs(printed_rule(weights, k, quota) - allocate(np.log(weights), k, quota)[0]).max() > 1e-6
                assert not (off and quota == 0.0)
                wrong += off
                cases += quota > 0.0
    assert wrong > 10


@pytest.mark.parametrize("quota", [0.0, 0.2])
def test_uncapped_tail_does_not_vanish_beside_huge_capped_weights(quota):
    sigma = quota * 3 / 6
    p, capped = allocate([900.0, 850.0, -800.0, -800.0, -800.0 + math.log(2), -5000.0], 3, sigma)
    assert capped.tolist() == [True, True, False, False, False, False]
    left = 1 - 4 * sigma
    np.testing.assert_allclose(p, [1, 1, sigma + left / 4, sigma + left / 4, sigma + left / 2, sigma])


@pytest.mark.parametrize(
    ("k", "sigma", "text"),
    [
        (4, 0.0, r"allocate: k = 4, but must be between 0 and the number of clients, 3"),
        (-1, 0.0, r"allocate: k = -1, but must be between 0"),
        (1, 0.5, r"allocate: sigma = 0\.5, but must be between 0 and k/K = 0\.333333"),
        (1, -0.1, r"allocate: sigma = -0\.1, but must be between 0"),
    ],
)
def test_allocate_refuses_what_no_allocation_can_meet(k, sigma, text):
    with pytest.raises(fp.SettingError, match=text):
        allocate([0.0, 0.0, 0.0], k, sigma)


def test_nobody_to_allocate_to_gives_empty_arrays():
    p, capped = allocate([], 0, 0.0)
    assert p.shape == capped.shape == (0,)


# Algorithm 1: lock-step --------------------------------------------------------------------------------------------


def paper_share(quota, t, horizon):
    """The quota as a share of k/K by the paper's text: E3CS-inc is 0 for t <= T/4, then k/K."""
    return (0.0 if t <= horizon / 4 else 1.0) if quota == "inc" else quota


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(
    ("quota", "horizon", "max_step"),
    [(0.0, None, None), (0.3, None, None), (0.8, None, None), (0.0, None, 0.2), ("inc", 160, None), (1.0, None, None)],
)
def test_every_round_has_the_probabilities_of_algorithm_1(quota, horizon, max_step, seed):
    K, k, eta = 12, 4, 0.5
    policy = fp.E3CS(k, quota=quota, learning_rate=eta, horizon=horizon, max_step=max_step)
    twin, clients = Algorithm1(K, k, eta, max_step), everyone(K)
    state, rng = policy.init(clients), np.random.default_rng(seed)
    rates, overflows = np.linspace(0.05, 0.95, K), 0
    for t in range(1, 61):
        there = rng.random(K) < (0.75 if t % 7 else 0.25)  # every seventh round often has fewer than k
        if t == 30:
            there[:] = False
        ids = np.flatnonzero(there).tolist()
        view = view_of(t, clients, there)
        choice = policy.select(state, view, rng)
        assert len(choice) == min(k, len(ids))
        status = rng.choice([LATE, FAILED], len(choice))
        good = rng.random(len(choice)) < rates[choice.ids]
        status[good] = rng.choice([DONE, SURPLUS], good.sum())
        if ids:
            sigma = paper_share(quota, t, horizon) * min(k, len(ids)) / len(ids)
            p, over = twin.probabilities(ids, sigma)
            overflows += len(ids) > k and len(over) > 0
            due = np.array([float(p[i]) for i in ids])
            found, _ = allocate(state.log_weights[ids], min(k, len(ids)), sigma)
            np.testing.assert_allclose(found, due, rtol=1e-8, atol=1e-300)
            np.testing.assert_allclose(choice.inclusion, [float(p[i]) for i in choice.ids], rtol=1e-8)
            twin.learn(ids, sigma, choice.ids.tolist(), good)
        state = policy.observe(state, view, choice, outcome_of(status))
    moved = max(twin.w) > Decimal("1.01")  # the comparison is about something
    assert moved == (quota != 1.0)
    assert overflows > 0 or quota in (0.8, 1.0) or max_step is not None


@pytest.mark.parametrize(("status", "moves"), [(DONE, True), (SURPLUS, True), (LATE, False), (FAILED, False)])
def test_surplus_is_a_success_and_late_or_failed_is_none(status, moves):
    policy, clients = fp.E3CS(1), everyone(3)
    state = policy.observe(policy.init(clients), view_of(1, clients), fp.Choice(np.array([1])), outcome_of([status]))
    step = 1 * 0.5 * 3 / 3  # (k - K sigma) eta x / (p K) with p = 1/3
    assert state.log_weights - state.log_weights[0] == pytest.approx([0.0, step if moves else 0.0, 0.0])


@pytest.mark.parametrize("inclusion", [True, False])
def test_a_client_that_was_not_waited_for_keeps_its_weight_and_the_estimates_are_of_those_heard(inclusion):
    """x minus its mean over those heard, over the probability of being chosen and heard, by hand."""
    policy, clients, rng = fp.E3CS(4, quota=0.2), everyone(8), np.random.default_rng(1)
    state = policy.init(clients)
    state.log_weights[:] = rng.normal(size=8)
    before, view = state.log_weights.copy(), view_of(1, clients)
    p, over = allocate(before, 4, 0.1)
    assert not over.any()
    ids = np.array([0, 2, 3, 5])
    told = p[ids] * 2 / 3 if inclusion else None  # as the engine gives it: 2 used, 1 surplus
    outcome = fp.Outcome([DONE, FAILED, DONE, SURPLUS], [1.0, 1.0, 2.0, np.nan], np.full(4, np.nan))
    state = policy.observe(state, view, fp.Choice(ids, told), outcome)
    heard, mean, open_plays = 2 / 3, 2 / 3, 4 - 8 * 0.1
    due = np.zeros(8)
    for client, x in ((0, 1.0), (2, 0.0), (3, 1.0)):
        due[client] = open_plays * 0.5 * (x - mean) / (p[client] * heard * 8)
    np.testing.assert_allclose(state.log_weights - before, due, rtol=1e-12, atol=1e-15)


def test_absent_clients_keep_their_weight_relative_to_those_who_did_not_move():
    policy, clients = fp.E3CS(2, quota=0.2), everyone(6)
    state, _ = play(policy, np.linspace(0.1, 0.9, 6), 40, seed=3)
    before = state.log_weights.copy()
    there = np.array([True, True, True, False, True, False])
    state = policy.observe(state, view_of(41, clients, there), fp.Choice(np.array([0, 2])), outcome_of([DONE, FAILED]))
    same = [1, 2, 3, 4, 5]
    assert state.log_weights[same] - state.log_weights[1] == pytest.approx(before[same] - before[1])
    assert state.log_weights[0] - state.log_weights[1] > before[0] - before[1]


def test_overflowed_clients_do_not_move_even_when_they_succeed():
    policy, clients = fp.E3CS(2), everyone(4)
    state = policy.init(clients)
    state.log_weights[:] = [9.0, 0.0, 0.0, 0.0]
    state = policy.observe(state, view_of(1, clients), fp.Choice(np.array([0, 1])), outcome_of([DONE, DONE]))
    step = 2 * 0.5 / 4 / (1 / 3)
    assert state.log_weights - state.log_weights[3] == pytest.approx([9.0, step, 0.0, 0.0])


def test_a_cap_that_no_chosen_client_shows_is_still_the_cap():
    """Beside w = e^50 and e^45 the quota of the others rounds their own share away: p - sigma is 0."""
    policy, clients = fp.E3CS(2, quota=0.5), everyone(4)
    state, view = policy.init(clients), view_of(1, clients)
    state.log_weights[:] = [50.0, 45.0, 0.0, 0.0]
    p, capped = allocate(state.log_weights, 2, 0.25)
    assert capped.tolist() == [True, False, False, False]
    state = policy.observe(state, view, fp.Choice([0, 2], inclusion=p[[0, 2]]), outcome_of([DONE, DONE]))
    assert state.log_weights[0] == 50.0
    assert state.log_weights[2] > 0.0


@pytest.mark.parametrize(
    ("log_weights", "k", "step"),
    [
        ([math.log(2.0), 0.0, 0.0], 2, 2 * 0.5 / 3),  # p = 1 without overflow
        ([math.log(8.0), math.log(2.0), 0.0, 0.0], 3, 3 * 0.5 / 4),  # client 1 lies on the cap, client 0 above it
        ([60.0, 0.0, 0.0, 0.0], 1, 0.5 / 4),  # p = 1 by rounding; one play never overflows
    ],
)
def test_a_client_whose_probability_is_1_without_overflow_still_moves(log_weights, k, step):
    K = len(log_weights)
    policy, clients = fp.E3CS(k), everyone(K)
    state, view = policy.init(clients), view_of(1, clients)
    state.log_weights[:] = log_weights
    choice = policy.select(state, view, np.random.default_rng(0))
    who = k - 2 if k > 1 else 0
    assert choice.ids.tolist()[who] == who
    assert choice.inclusion[who] == 1.0
    status = np.full(k, FAILED)
    status[who] = DONE
    state = policy.observe(state, view, choice, outcome_of(status))
    assert state.log_weights[who] - state.log_weights[-1] == pytest.approx(log_weights[who] + step)


def test_max_step_bounds_the_step_that_fact_8_wrongly_calls_bounded():
    clients = everyone(4)
    steps = {}
    for most in (None, 1.0):
        policy = fp.E3CS(1, max_step=most)
        state = policy.init(clients)
        state.log_weights[:] = [0.0, 0.0, 0.0, -6.0]
        p = allocate(state.log_weights, 1, 0.0)[0][3]
        state = policy.observe(state, view_of(1, clients), fp.Choice(np.array([3])), outcome_of([DONE]))
        steps[most] = state.log_weights[3] - state.log_weights[0] + 6.0
    assert steps[None] == pytest.approx(0.5 / 4 / p)
    assert steps[None] > 100.0  # (37) claims at most 1
    assert steps[1.0] == pytest.approx(1.0)


# Quotas and the learning rate --------------------------------------------------------------------------------------


def test_a_number_is_the_quota_of_every_round():
    assert {fp.E3CS(5, quota=0.8).share(t) for t in (1, 7, 10**6)} == {0.8}


@pytest.mark.parametrize(("horizon", "last_greedy"), [(2500, 625), (400, 100), (10, 2), (11, 2), (3, 0)])
def test_inc_is_0_through_a_quarter_of_the_horizon_then_1_for_good(horizon, last_greedy):
    policy = fp.E3CS(5, quota="inc", horizon=horizon)
    due = [0.0] * last_greedy + [1.0] * (3 * horizon - last_greedy)
    assert [policy.share(t) for t in range(1, 3 * horizon + 1)] == due


def test_linear_and_cosine_rise_from_0_to_1_over_the_horizon_and_stay_there():
    linear, cosine = fp.E3CS(5, quota="linear", horizon=11), fp.E3CS(5, quota="cosine", horizon=11)
    assert [linear.share(t) for t in range(1, 12)] == pytest.approx([i / 10 for i in range(11)])
    assert [cosine.share(t) for t in range(1, 12)] == pytest.approx(
        [(1 - math.cos(math.pi * i / 10)) / 2 for i in range(11)]
    )
    for policy in (linear, cosine):
        assert [policy.share(t) for t in (12, 50, 10**9)] == [1.0, 1.0, 1.0]


def test_a_callable_quota_is_asked_with_the_round_and_moves_the_floor():
    asked = []
    policy, clients = fp.E3CS(2, quota=lambda t: asked.append(t) or (0.0 if t < 5 else 0.6)), everyone(4)
    state = policy.init(clients)
    state.log_weights[:] = [0.0, 0.0, 0.0, -50.0]
    rng = np.random.default_rng(0)
    early = policy.select(state, view_of(4, clients), rng)
    assert 3 not in early.ids
    assert asked == [4]
    late = [policy.select(state, view_of(5, clients), rng) for _ in range(40)]
    floor = [p for c in late for i, p in zip(c.ids, c.inclusion, strict=True) if i == 3]
    assert floor
    assert floor == pytest.approx([0.6 * 2 / 4] * len(floor))


@pytest.mark.parametrize("quota", [0.0, 0.4, "inc", "linear", "cosine", lambda t: 1 / t])
def test_the_optimal_rate_is_that_of_theorem_1(quota):
    K, k, T = 30, 6, 200
    policy = fp.E3CS(k, quota=quota, learning_rate="optimal", horizon=T)
    sigmas = [policy.share(t) * k / K for t in range(1, T + 1)]
    due = math.sqrt(K * math.log(K) / sum(k - K * s for s in sigmas))
    assert policy.init(everyone(K)).eta == pytest.approx(due, rel=1e-12)


def test_the_optimal_rate_is_the_one_that_observe_uses():
    clients, eta = everyone(8), math.sqrt(8 * math.log(8) / (50 * 2))
    policy = fp.E3CS(2, learning_rate="optimal", horizon=50)
    state = policy.observe(policy.init(clients), view_of(1, clients), fp.Choice(np.array([3])), outcome_of([DONE]))
    assert state.log_weights[3] - state.log_weights[0] == pytest.approx(2 * eta / (8 * 0.25))


def test_the_optimal_rate_is_finite_where_nothing_is_left_to_learn():
    for policy, K in ((fp.E3CS(2, 1.0, "optimal", horizon=9), 8), (fp.E3CS(1, 0.0, "optimal", horizon=9), 1)):
        assert math.isfinite(policy.init(everyone(K)).eta)


# Rewards -----------------------------------------------------------------------------------------------------------


def test_a_reward_report_takes_the_place_of_the_success_flag():
    K, k = 9, 3
    policy, clients = fp.E3CS(k, quota=0.3, reward="gain"), everyone(K)
    assert fp.traits(policy).reports == (fp.ReportSpec("gain", width=0),)
    twin, state, rng = Algorithm1(K, k, 0.5), policy.init(clients), np.random.default_rng(5)
    sigma = 0.3 * k / K
    for t in range(1, 41):
        view = view_of(t, clients)
        choice = policy.select(state, view, rng)
        reported = rng.choice([np.nan, np.inf, -np.inf, -3.0, 7.0, 0.0, 0.25, 0.5, 1.0], k)
        status = rng.choice([DONE, LATE, FAILED, SURPLUS], k)
        x = []
        for value, ended in zip(reported, status, strict=True):
            x.append(0.0 if not math.isfinite(value) or ended in (LATE, FAILED) else min(max(value, 0.0), 1.0))
        twin.learn(list(range(K)), sigma, choice.ids.tolist(), x)
        state = policy.observe(state, view, choice, outcome_of(status, gain=reported))
        due, _ = twin.probabilities(list(range(K)), sigma)
        found, _ = allocate(state.log_weights, k, sigma)
        np.testing.assert_allclose(found, [float(due[i]) for i in range(K)], rtol=1e-8)
    assert max(twin.w) > 1


def test_a_missing_reward_report_is_named_with_those_there_are():
    policy, clients = fp.E3CS(1, reward="gain"), everyone(3)
    with pytest.raises(fp.MissingError, match=r"reward='gain', but the outcome's reports are \['norm'\]"):
        policy.observe(
            policy.init(clients), view_of(1, clients), fp.Choice(np.array([0])), outcome_of([DONE], norm=[1.0])
        )


# Newcomers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_newcomers_after_200_rounds_of_learning_are_chosen_at_the_average_rate(seed):
    K, k, new = 100, 20, 5
    policy = fp.E3CS(k, learning_rate=0.05)  # so slow that nobody overflows: the average is then k/K exactly
    state, _ = play(policy, np.repeat([0.1, 0.3, 0.6, 0.9], K // 4), 200, seed)
    assert not allocate(state.log_weights, k, 0.0)[1].any()
    state = fp.admit(policy, state, everyone(new))
    p, _ = allocate(state.log_weights, k, 0.0)
    assert p[K:] == pytest.approx(np.full(new, k / (K + new)), rel=1e-9)


def test_a_newcomer_is_not_shut_out_by_the_large_step_of_the_round_before():
    policy, clients = fp.E3CS(1), everyone(4)
    state = policy.init(clients)
    state.log_weights[:] = [5.0, 0.0, 0.0, 0.0]
    state = policy.observe(state, view_of(1, clients), fp.Choice(np.array([3])), outcome_of([DONE]))
    state = fp.admit(policy, state, everyone(1))
    assert allocate(state.log_weights, 1, 0.0)[0][4] == pytest.approx(1 / 5, rel=1e-9)


def test_retired_clients_leave_the_others_weights_as_they_were():
    policy = fp.E3CS(3, quota=0.2)
    state, _ = play(policy, np.linspace(0.1, 0.9, 10), 60, seed=1)
    keep = [0, 3, 4, 8, 9]
    due = state.log_weights[keep].copy()
    assert fp.retire(policy, state, keep).log_weights.tolist() == due.tolist()


# Long runs and guarantees ------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_3000_greedy_rounds_stay_finite_and_beat_a_blind_draw():
    K, k, T = 100, 20, 3000
    rates = np.repeat([0.1, 0.3, 0.6, 0.9], K // 4)
    policy, clients, rng = fp.E3CS(k), everyone(K), np.random.default_rng(11)
    state, successes = policy.init(clients), 0
    for t in range(1, T + 1):
        view = view_of(t, clients)
        choice = policy.select(state, view, rng)
        done = rng.random(k) < rates[choice.ids]
        successes += int(done.sum())
        state = policy.observe(state, view, choice, outcome_of(np.where(done, DONE, FAILED)))
        assert np.isfinite(state.log_weights).all()
        if t % 50 == 0:
            p, _ = allocate(state.log_weights, k, 0.0)
            assert p.sum() == pytest.approx(k, rel=1e-9)
    blind = rates.mean() * k * T
    assert successes > blind + 4.5 * math.sqrt(0.25 * k * T)


@quick
@given(st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.3, 0.9]))
def test_whatever_a_client_reports_its_probability_stays_between_the_quota_and_1(seed, quota):
    K, k, drawn = 6, 2, np.random.default_rng(seed)
    said = drawn.choice([DONE, LATE, FAILED, SURPLUS], 30).tolist()
    lies = zip(said, drawn.choice([np.nan, np.inf, -1e300, 0.0, 1.0], 30).tolist(), strict=True)
    policy, clients = fp.E3CS(k, quota=quota, reward="gain"), everyone(K)
    state, rng, sigma = policy.init(clients), np.random.default_rng(0), quota * k / K
    for t, (status, number) in enumerate(lies, start=1):
        view = view_of(t, clients)
        chosen = np.array([0, 1 + t % (K - 1)])
        outcome = fp.Outcome([status, DONE], [number, 1.0], [number, 1.0], {"gain": [number, 0.7]})
        state = policy.observe(state, view, fp.Choice(chosen), outcome)
        p, _ = allocate(state.log_weights, k, sigma)
        assert sigma <= p[0] <= 1.0
        assert p.sum() == pytest.approx(k, rel=1e-9)
        assert len(policy.select(state, view, rng)) == k


def test_durations_and_losses_have_no_influence():
    clients, runs = everyone(8), []
    for lie in (1.0, np.nan, -1e300):
        policy, rng = fp.E3CS(3, quota=0.1), np.random.default_rng(4)
        state = policy.init(clients)
        for t in range(1, 31):
            view = view_of(t, clients)
            choice = policy.select(state, view, rng)
            status = rng.choice([DONE, FAILED], 3)
            state = policy.observe(state, view, choice, fp.Outcome(status, np.full(3, lie), np.full(3, lie)))
        runs.append(state.log_weights)
    assert runs[0].tolist() == runs[1].tolist() == runs[2].tolist()


# Samplers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sampler", ["pivotal", pytest.param("systematic", marks=pytest.mark.slow)])
def test_clients_are_chosen_as_often_as_their_probability_says(sampler):
    K, k, draws = 12, 4, 5_000
    policy, clients = fp.E3CS(k, quota=0.1, sampler=sampler), everyone(K)
    state = policy.init(clients)
    state.log_weights[:] = np.linspace(-3.0, 3.0, K)
    there = np.ones(K, dtype=bool)
    there[[2, 7]] = False
    view, rng = view_of(1, clients, there), np.random.default_rng(17)
    p = np.zeros(K)
    p[there], capped = allocate(state.log_weights[there], k, 0.1 * k / 10)
    assert capped.any()
    counts, inclusion = np.zeros(K), np.zeros(K)
    for _ in range(draws):
        choice = policy.select(state, view, rng)
        counts[choice.ids] += 1
        inclusion[choice.ids] = choice.inclusion
    assert counts.sum() == k * draws
    error = np.sqrt(p * (1 - p) / draws)
    assert (np.abs(counts / draws - p) <= 4.5 * error + 1e-12).all()
    np.testing.assert_allclose(inclusion[there], p[there], rtol=1e-12)


def test_the_papers_multinomial_draw_has_no_known_inclusion_and_leaves_sure_clients_out():
    policy, clients = fp.E3CS(2, sampler="multinomial"), everyone(3)
    state = policy.init(clients)
    state.log_weights[:] = [math.log(2.0), 0.0, 0.0]  # p = (1, 1/2, 1/2)
    view, rng, draws, hits = view_of(1, clients), np.random.default_rng(23), 6000, 0
    for _ in range(draws):
        choice = policy.select(state, view, rng)
        assert choice.inclusion is None
        hits += 0 in choice.ids
    due = 5 / 6  # 1 - P(another first) P(another then) = 1 - 1/2 * 1/3, where the paper claims 1
    assert abs(hits / draws - due) <= 4.5 * math.sqrt(due * (1 - due) / draws)


@pytest.mark.parametrize("sampler", ["pivotal", "systematic", "multinomial"])
def test_every_sampler_takes_all_when_no_more_than_k_are_there_and_nobody_when_none_is(sampler):
    policy, clients = fp.E3CS(4, quota=0.5, sampler=sampler), everyone(6)
    state, rng = policy.init(clients), np.random.default_rng(0)
    there = np.array([True, False, True, False, False, True])
    assert policy.select(state, view_of(1, clients, there), rng).ids.tolist() == [0, 2, 5]
    empty = policy.select(state, view_of(1, clients, np.zeros(6, dtype=bool)), rng)
    assert len(empty) == 0
    after = policy.observe(state, view_of(1, clients, np.zeros(6, dtype=bool)), empty, outcome_of([]))
    assert after.log_weights.tolist() == [0.0] * 6


def test_the_same_seed_gives_the_same_cohort_and_select_leaves_the_state_alone():
    policy, clients = fp.E3CS(5), everyone(20)
    state, _ = play(policy, np.linspace(0, 1, 20), 30, seed=2)
    before, view = state.log_weights.copy(), view_of(31, clients)
    one, other = (policy.select(state, view, np.random.default_rng(9)).ids.tolist() for _ in range(2))
    assert one == other
    assert state.log_weights.tolist() == before.tolist()


# Errors ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "error", "text"),
    [
        (
            {"cohort_size": 0},
            fp.SettingError,
            r"E3CS: cohort_size = 0, but must be a whole number >= 1; it is the number",
        ),
        ({"cohort_size": 2.5}, fp.SettingError, r"E3CS: cohort_size = 2\.5, but must be a whole number >= 1"),
        ({"cohort_size": True}, fp.SettingError, r"E3CS: cohort_size = True, but must be a whole number >= 1"),
        ({"quota": 1.5}, fp.SettingError, r"E3CS: quota = 1\.5, but must be in \[0, 1\]; it is the share of k/K"),
        ({"quota": -0.1}, fp.SettingError, r"E3CS: quota = -0\.1, but must be in \[0, 1\]"),
        ({"quota": math.nan}, fp.SettingError, r"E3CS: quota = nan, but must be in \[0, 1\]"),
        ({"quota": "incr", "horizon": 9}, fp.UnknownNameError, r"'incr'; did you mean 'inc'\?.*cosine, inc, linear"),
        ({"quota": "inc"}, fp.SettingError, r"E3CS: quota='inc' needs the number of rounds: pass horizon=T"),
        ({"learning_rate": "optimal"}, fp.SettingError, r"learning_rate='optimal' needs the number of rounds"),
        ({"learning_rate": 0}, fp.SettingError, r"E3CS: learning_rate = 0, but must be a number > 0"),
        ({"learning_rate": "best"}, fp.SettingError, r"learning_rate = 'best', but must be a number or 'optimal'"),
        ({"sampler": "pivot"}, fp.UnknownNameError, r"'pivot'; did you mean 'pivotal'\?.*multinomial, pivotal, sys"),
        ({"max_step": 0.0}, fp.SettingError, r"E3CS: max_step = 0\.0, but must be a number > 0"),
        ({"quota": "inc", "horizon": 1}, fp.SettingError, r"E3CS: horizon = 1, but must be a whole number >= 2"),
    ],
)
def test_a_setting_out_of_bounds_is_refused_with_value_bound_and_fix(settings, error, text):
    with pytest.raises(error, match=text):
        fp.E3CS(**{"cohort_size": 5, **settings})


@pytest.mark.parametrize("horizon", [10.5, math.inf])
def test_a_horizon_that_is_no_number_of_rounds_is_refused_as_a_setting(horizon):
    with pytest.raises(fp.SettingError, match="horizon"):
        fp.E3CS(2, learning_rate="optimal", horizon=horizon).init(everyone(5))


def test_numpys_numbers_serve_as_a_quota():
    assert fp.E3CS(2, quota=np.float32(0.5)).share(1) == 0.5
    assert fp.E3CS(2, quota=np.int64(1)).share(1) == 1.0


@pytest.mark.parametrize("value", [1.3, -0.2, math.nan])
def test_a_schedule_that_leaves_the_unit_interval_is_refused_with_its_round(value):
    policy, clients = fp.E3CS(2, quota=lambda t: 0.5 if t < 7 else value), everyone(4)
    state = policy.init(clients)
    policy.select(state, view_of(6, clients), np.random.default_rng(0))
    with pytest.raises(
        fp.SettingError, match=rf"E3CS: quota in round 7 = {value}, but must be in \[0, 1\]; correct the"
    ):
        policy.select(state, view_of(7, clients), np.random.default_rng(0))


@pytest.mark.parametrize(
    ("chosen", "status", "text"),
    [
        ([0, 1], [DONE], r"the outcome has 1 entries, but 2 clients were chosen: give one entry per chosen client"),
        ([0, 3], [DONE, DONE], r"client 3 was chosen, but was not available: give observe the same view as select"),
        ([1, 1], [DONE, DONE], r"client 1 reports twice in one outcome, but this policy chooses each client at most"),
        ([0, 4], [DONE, DONE], r"the choice holds client 4, but clients are numbered 0 to 3"),
    ],
)
def test_an_outcome_that_cannot_belong_to_the_round_is_refused(chosen, status, text):
    policy, clients = fp.E3CS(2), everyone(4)
    view = view_of(1, clients, np.array([True, True, True, False]))
    with pytest.raises(fp.ContractError, match=text):
        policy.observe(policy.init(clients), view, fp.Choice(np.array(chosen)), outcome_of(status))
