"""RBCS-F against Algorithms 1 and 2 of its paper: H inverted anew each round, the divide-and-conquer in loops."""

import logging
import math
from itertools import combinations

import numpy as np
import pytest

import fedpick as fp

DONE, LATE, FAILED, SURPLUS = (int(s) for s in (fp.Status.DONE, fp.Status.LATE, fp.Status.FAILED, fp.Status.SURPLUS))


# The slow twins ----------------------------------------------------------------------------------------------------


def p4(cohort, tau, queue, V):
    """The objective of (21), to be minimised."""
    return V * max(tau[n] for n in cohort) - sum(queue[n] for n in cohort)


def algorithm_1(tau, m, there, queue, V):
    """Divide and conquer for P4: for each possible slowest client the longest queues among those not slower.

    Line 13 says "break the first loop", which can only mean the inner one: otherwise a single candidate is tried.
    """
    arms = sorted(there, key=lambda n: -queue[n])
    k = min(m, len(there))
    found = []
    for slowest in there:
        cohort = []
        for n in arms:
            if tau[n] <= tau[slowest]:
                cohort.append(n)
            if len(cohort) == k:
                found.append((p4(cohort, tau, queue, V), cohort))
                break
    return min(found)


class Algorithm2:
    """RBCS-F line by line; `deadline`, `absent` and `cap` are what the paper leaves open."""

    def __init__(self, N, d, m, V, beta, ridge, alpha, deadline=None, absent="grow", cap=None):
        self.m, self.V, self.beta, self.alpha = m, V, beta, alpha
        self.deadline, self.absent, self.cap = deadline, absent, cap
        self.H = [ridge * np.eye(d) for _ in range(N)]
        self.b = [np.zeros(d) for _ in range(N)]
        self.Z = [0.0] * N

    def times(self, t, contexts):
        """Lines 7 to 9, with the max(., 0) of (19) that line 9 forgets."""
        found = []
        for H, b, c in zip(self.H, self.b, contexts, strict=True):
            inverse = np.linalg.inv(H)
            theta = inverse @ b
            found.append(max(c @ theta - self.alpha(t) * math.sqrt(c @ inverse @ c), 0.0))
        return found

    def learn(self, contexts, there, chosen, status, duration):
        """Lines 13 to 17."""
        for n in range(len(self.Z)):
            if n in there or self.absent == "grow":
                self.Z[n] = max(self.Z[n] + self.beta - (n in chosen), 0.0)  # (6)
            if self.cap is not None:
                self.Z[n] = min(self.Z[n], self.cap)
        answered = [tau for s, tau in zip(status, duration, strict=True) if s != FAILED]
        slowest = max(answered, default=None) if self.deadline is None else self.deadline
        for n, s, tau in zip(chosen, status, duration, strict=True):
            seconds = tau if s in (DONE, SURPLUS) else slowest
            if seconds is not None:
                self.H[n] = self.H[n] + np.outer(contexts[n], contexts[n])
                self.b[n] = self.b[n] + seconds * contexts[n]


def everyone(K):
    return fp.Clients(np.ones(K))


def view_of(round, clients, context, there=None):
    return fp.View(round, np.ones(len(clients), dtype=bool) if there is None else there, clients, context=context)


def outcome_of(status, duration):
    return fp.Outcome(np.asarray(status, dtype=np.int64), duration, np.full(len(status), np.nan))


def paper_contexts(rng, absent_last):
    """[1/mu, s, M/B]: mu ~ U[0.5, 2], s = 1 for those who did not take part last, M = 20 Mb, B ~ U[2, 4] MHz."""
    count = len(absent_last)
    return np.column_stack([1 / rng.uniform(0.5, 2, count), absent_last, 20 / rng.uniform(2, 4, count)])


# Algorithm 2 in lock-step ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("d", [3, 5])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"penalty": 1.0, "guarantee": 0.25},
        {"penalty": 200.0, "ridge": 0.1, "exploration": 1.5},
        {"penalty": 0.0},
        {"deadline": 12.0},
        {"absent": "freeze", "penalty": 1.0},
        {"queue_cap": 0.6, "penalty": 1.0},
        {"exploration": "lemma"},
    ],
    ids=str,
)
def test_every_round_attains_p4_with_the_estimates_and_queues_of_algorithm_2(options, d):
    K, m = 12, 4
    options = dict(options)
    alpha = options.get("exploration", 0.1)
    if alpha == "lemma":
        R, L, S, delta = 0.3, 4.0, 5.0, 0.1
        rate = options["exploration"] = lambda t: R * math.sqrt(d * math.log((1 + t * L**2) / delta)) + S
    else:
        rate = lambda t: alpha  # noqa: E731
    beta = options.get("guarantee", 0.75 * m / K)
    V, cap = options.get("penalty", 10.0), options.get("queue_cap")
    policy, clients = fp.RBCSF(m, context=d, **options), everyone(K)
    twin = Algorithm2(
        K, d, m, V, beta, options.get("ridge", 1.0), rate, options.get("deadline"), options.get("absent", "grow"), cap
    )
    state, rng = policy.init(clients), np.random.default_rng(d)
    theta = rng.uniform(0.1, 2.0, (K, d))
    absent_last = np.ones(K)
    for t in range(1, 101):
        there = rng.random(K) < (0.8 if t % 11 else 0.2)
        if t == 50:
            there[:] = False
        ids = np.flatnonzero(there).tolist()
        context = paper_contexts(rng, absent_last) if d == 3 else rng.uniform(-0.5, 2.0, (K, d))
        view = view_of(t, clients, context, there)
        choice = policy.select(state, view, rng)
        chosen = choice.ids.tolist()
        if ids:
            tau = twin.times(t, context)
            best, _ = algorithm_1(tau, m, ids, twin.Z, V)
            assert set(chosen) <= set(ids)
            assert len(set(chosen)) == min(m, len(ids))
            assert p4(chosen, tau, twin.Z, V) <= best + 1e-9 * max(1.0, abs(best))
        else:
            assert chosen == []
        expected = np.maximum((context * theta).sum(axis=1)[chosen], 0.1)
        duration = expected * rng.uniform(0.01, 1.99, len(chosen))  # noise on (-c'theta, c'theta)
        status = rng.choice([DONE, SURPLUS, LATE, FAILED], len(chosen), p=[0.7, 0.1, 0.1, 0.1])
        duration[status == FAILED] = np.nan
        twin.learn(context, ids, chosen, status, duration)
        state = policy.observe(state, view, choice, outcome_of(status, duration))
        absent_last = np.ones(K)
        absent_last[chosen] = 0.0
        np.testing.assert_allclose(state.queue, twin.Z, atol=1e-9)
        np.testing.assert_allclose(state.b, twin.b, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(state.h_inverse, [np.linalg.inv(H) for H in twin.H], rtol=1e-8, atol=1e-9)
    assert max(twin.Z) > 0


def test_algorithm_1_of_the_paper_finds_what_trying_every_cohort_finds():
    """The twin itself, and that its minimum is no trivial one: neither the fastest nor the longest queues."""
    rng, trivial = np.random.default_rng(0), 0
    for _ in range(100):
        tau, queue, V = rng.gamma(2.0, size=7).tolist(), rng.gamma(2.0, size=7).tolist(), 2.0
        there = np.flatnonzero(rng.random(7) < 0.9).tolist()
        if len(there) < 4:
            continue
        best, cohort = algorithm_1(tau, 3, there, queue, V)
        assert best == pytest.approx(min(p4(c, tau, queue, V) for c in combinations(there, 3)))
        fastest, longest = sorted(there, key=tau.__getitem__)[:3], sorted(there, key=queue.__getitem__)[-3:]
        trivial += set(cohort) in (set(fastest), set(longest))
    assert trivial < 90


def test_times_are_learned_to_what_they_are():
    """Without noise the ridge estimate tends to c'theta: the oracle and the learner then choose equally well."""
    K, m, d = 6, 2, 3
    rng = np.random.default_rng(2)
    theta, clients = rng.uniform(0.5, 3.0, (K, d)), everyone(6)
    policy = fp.RBCSF(m, context=d, penalty=1e9, guarantee=0.0, exploration=0.0)
    state = policy.init(clients)
    for t in range(1, 301):
        context = rng.uniform(0.5, 2.0, (K, d))
        choice = fp.Choice(np.arange(K))
        state = policy.observe(
            state, view_of(t, clients, context), choice, outcome_of([DONE] * K, (context * theta).sum(axis=1))
        )
    for t in range(301, 321):
        context = rng.uniform(0.5, 2.0, (K, d))
        truth = (context * theta).sum(axis=1)
        # With lambda = 1 the error of c'theta_hat is at most |c| |theta| / (lambda_min(sum c c') + 1).
        errors = [
            np.linalg.norm(context[n]) * np.linalg.norm(theta[n]) * np.linalg.eigvalsh(state.h_inverse[n]).max()
            for n in range(K)
        ]
        chosen = policy.select(state, view_of(t, clients, context), rng).ids
        assert truth[chosen].max() <= np.sort(truth)[m - 1] + 2 * max(errors)
    assert max(errors) < 1.0


def test_equally_good_clients_are_equally_likely_to_be_chosen():
    K, m, draws = 8, 2, 4000
    policy, clients = fp.RBCSF(m), everyone(K)
    state, rng, counts = policy.init(clients), np.random.default_rng(6), np.zeros(K)
    for _ in range(draws):
        counts[policy.select(state, view_of(1, clients, np.ones((K, 3))), rng).ids] += 1
    assert np.abs(counts / draws - m / K).max() <= 4.5 * math.sqrt(m / K * (1 - m / K) / draws)


# Queues ------------------------------------------------------------------------------------------------------------


def rounds_away(policy, rounds):
    """Client 0 of 4 is away for some rounds; the queues then."""
    clients, rng = everyone(4), np.random.default_rng(0)
    state, there = policy.init(clients), np.array([False, True, True, True])
    for t in range(1, rounds + 1):
        view = view_of(t, clients, np.ones((4, 3)), there)
        choice = policy.select(state, view, rng)
        state = policy.observe(state, view, choice, outcome_of([DONE] * len(choice), np.ones(len(choice))))
    return state.queue


def test_the_queue_of_an_absent_client_grows_by_the_guarantee():
    assert rounds_away(fp.RBCSF(2, guarantee=0.2), 40)[0] == pytest.approx(40 * 0.2)


def test_freeze_stops_the_queue_of_an_absent_client():
    assert rounds_away(fp.RBCSF(2, guarantee=0.2, absent="freeze"), 40)[0] == 0.0


def test_the_cap_is_the_longest_that_a_queue_gets():
    assert rounds_away(fp.RBCSF(2, guarantee=0.2, queue_cap=1.5), 40)[0] == 1.5
    assert rounds_away(fp.RBCSF(2, guarantee=0.2, queue_cap=100.0), 40)[0] == pytest.approx(8.0)


def test_the_guarantee_is_three_quarters_of_m_over_k_unless_given():
    assert fp.RBCSF(8).beta(40) == pytest.approx(0.15)  # the paper's setting
    assert fp.RBCSF(8, guarantee=0.05).beta(40) == 0.05
    assert fp.RBCSF(8).beta(4) == fp.RBCSF(8).beta(1) == fp.RBCSF(8).beta(0) == 0.75


def test_where_everybody_fails_they_had_their_turn_but_teach_nothing():
    policy, clients = fp.RBCSF(1, guarantee=0.25), everyone(3)
    state = policy.init(clients)
    state.queue[:] = [2.0, 2.0, 0.1]
    state = policy.observe(
        state, view_of(1, clients, np.ones((3, 3))), fp.Choice(np.array([0])), outcome_of([FAILED], [5.0])
    )
    assert state.queue == pytest.approx([1.25, 2.25, 0.35])
    assert (state.h_inverse == np.eye(3)).all()
    assert (state.b == 0.0).all()


@pytest.mark.parametrize("slowest", [DONE, LATE])
def test_without_a_deadline_a_failed_client_is_as_slow_as_the_slowest_of_its_cohort(slowest):
    policy, clients = fp.RBCSF(3), everyone(4)
    context, cohort = np.arange(12.0).reshape(4, 3), fp.Choice(np.array([0, 1, 3]))
    outcome = outcome_of([FAILED, DONE, slowest], [np.nan, 2.0, 7.0])
    state = policy.observe(policy.init(clients), view_of(1, clients, context), cohort, outcome)
    np.testing.assert_allclose(state.b, context * np.array([7.0, 2.0, 0.0, 7.0])[:, None])


@pytest.mark.parametrize(("status", "seconds"), [(LATE, 30.0), (FAILED, 30.0), (DONE, 5.0), (SURPLUS, 5.0)])
def test_with_a_deadline_late_and_failed_clients_enter_the_regression_as_it(status, seconds):
    policy, clients, context = fp.RBCSF(1, deadline=30.0), everyone(3), np.arange(9.0).reshape(3, 3)
    state = policy.observe(
        policy.init(clients), view_of(1, clients, context), fp.Choice(np.array([1])), outcome_of([status], [5.0])
    )
    assert state.b[1] == pytest.approx(seconds * context[1])
    np.testing.assert_allclose(state.h_inverse[1], np.linalg.inv(np.eye(3) + np.outer(context[1], context[1])))
    assert (state.b[[0, 2]] == 0.0).all()


def run_rates(policy, theta, T, seed):
    """T rounds with everyone there; how often each was chosen, the last queues, and the longest expected time met."""
    K, d = theta.shape
    clients, rng = everyone(K), np.random.default_rng(seed)
    state, counts, longest = policy.init(clients), np.zeros(K), 0.0
    for t in range(1, T + 1):
        context = rng.uniform(0.5, 1.5, (K, d))
        expected = (context * theta).sum(axis=1)
        longest = max(longest, expected.max())
        view = view_of(t, clients, context)
        choice = policy.select(state, view, rng)
        counts[choice.ids] += 1
        duration = expected[choice.ids] * rng.uniform(0.1, 1.9, len(choice))
        state = policy.observe(state, view, choice, outcome_of([DONE] * len(choice), duration))
    return counts / T, state.queue, longest


@pytest.mark.parametrize("V", [1.0, *(pytest.param(V, marks=pytest.mark.slow) for V in (0.0, 50.0))])
def test_every_client_is_chosen_at_the_guaranteed_rate_less_its_queue_over_t(V):
    """(6) gives Z_T >= T beta - (times chosen), in every run."""
    K, m, T, beta = 10, 4, 2000, 0.35
    theta = np.linspace(0.1, 3.0, K)[:, None] * np.ones(3)
    rates, queue, _ = run_rates(fp.RBCSF(m, penalty=V, guarantee=beta), theta, T, seed=1)
    assert (rates >= beta - queue / T - 1e-9).all()
    assert rates.sum() == pytest.approx(m)


@pytest.mark.slow
def test_the_queues_stay_under_the_bound_of_the_drift_argument():
    """With the true times, drift <= Gamma + V tau_max - (m/K - beta) sum Z, as the m longest queues are a candidate.

    So sum Z falls whenever it is above B = (Gamma + V tau_max) / (m/K - beta), and no queue passes
    sqrt(B^2 + 2 (Gamma + V tau_max)).
    """
    K, m, T, beta, V = 10, 4, 2000, 0.3, 1.0
    theta = np.linspace(0.05, 0.6, K)[:, None] * np.ones(3)
    rates, queue, longest = run_rates(fp.RBCSF(m, penalty=V, guarantee=beta, theta=theta), theta, T, seed=3)
    gained = K * (1 + beta**2) / 2 + V * longest
    bound = math.sqrt((gained / (m / K - beta)) ** 2 + 2 * gained)
    assert queue.max() <= bound
    assert rates.min() >= beta - bound / T
    greedy, *_ = run_rates(fp.RBCSF(m, penalty=V, guarantee=0.0, theta=theta), theta, T, seed=3)
    assert greedy.min() < beta - bound / T  # it is the queues that give the rate


# The oracle --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("as_function", [False, True])
def test_the_oracle_attains_p4_with_the_true_times_and_learns_nothing(as_function):
    K, m, V, rng = 8, 3, 2.0, np.random.default_rng(4)
    theta = rng.uniform(0.1, 2.0, (K, 3))
    truth = (lambda clients: theta[: len(clients)]) if as_function else theta
    policy, clients = fp.RBCSF(m, penalty=V, guarantee=0.3, exploration=5.0, theta=truth), everyone(K)
    state, queue = policy.init(clients), [0.0] * K
    before = [state.h_inverse.copy(), state.theta.copy()]
    for t in range(1, 41):
        there = rng.random(K) < 0.8
        ids = np.flatnonzero(there).tolist()
        context = rng.uniform(0.5, 2.0, (K, 3))
        tau = [float(context[n] @ theta[n]) for n in range(K)]
        view = view_of(t, clients, context, there)
        chosen = policy.select(state, view, rng).ids.tolist()
        best = min(p4(c, tau, queue, V) for c in combinations(ids, min(m, len(ids))))
        assert p4(chosen, tau, queue, V) <= best + 1e-9 * max(1.0, abs(best))
        outcome = outcome_of([DONE] * len(chosen), rng.uniform(1, 9, len(chosen)))
        state = policy.observe(state, view, fp.Choice(np.array(chosen)), outcome)
        queue = [max(z + 0.3 - (n in chosen), 0.0) for n, z in enumerate(queue)]
        np.testing.assert_allclose(state.queue, queue, atol=1e-9)
    assert (state.h_inverse == before[0]).all()
    assert (state.theta == before[1]).all()
    assert (theta == before[1]).all()


# Exploration -------------------------------------------------------------------------------------------------------


def test_a_callable_exploration_is_asked_with_the_round_and_favours_the_unknown():
    asked = []
    policy = fp.RBCSF(1, guarantee=0.0, context=1, exploration=lambda t: asked.append(t) or (0.0 if t < 30 else 100.0))
    clients, context, state = everyone(2), np.ones((2, 1)), None
    state = policy.init(clients)
    for t in range(1, 21):  # client 0 is known to be fast, client 1 was seen once and looks slow
        state = policy.observe(
            state, view_of(t, clients, context), fp.Choice(np.array([0])), outcome_of([DONE], [1000.0])
        )
    state = policy.observe(state, view_of(21, clients, context), fp.Choice(np.array([1])), outcome_of([DONE], [2200.0]))
    rng = np.random.default_rng(0)
    assert policy.select(state, view_of(22, clients, context), rng).ids.tolist() == [0]  # 952 against 1100
    state.theta[1] = 1030.0  # 1030 - 100 sqrt(1/2) = 959 against 952 - 100 sqrt(1/21) = 931
    assert policy.select(state, view_of(30, clients, context), rng).ids.tolist() == [0]
    state.theta[1] = 990.0  # 990 - 71 = 919 against 931
    assert policy.select(state, view_of(29, clients, context), rng).ids.tolist() == [0]
    assert policy.select(state, view_of(30, clients, context), rng).ids.tolist() == [1]
    assert asked == [22, 30, 29, 30]


# Hostile clients ---------------------------------------------------------------------------------------------------

ABSURD = [np.nan, np.inf, -np.inf, 1e300, -1e300, -1.0, 0.0]


def play_beside(liar, rounds=120, d=3, seed=0, K=6):
    """Rounds in which client 0 (always chosen, beside two others) reports what `liar` draws; the last state."""
    policy, clients = fp.RBCSF(3, context=d), everyone(K)
    state, rng, lies = policy.init(clients), np.random.default_rng(seed), np.random.default_rng(99)
    for t in range(1, rounds + 1):
        context, duration = rng.uniform(0.5, 2.0, (K, d)), rng.uniform(1.0, 3.0, 3)
        others = 1 + rng.permutation(K - 1)[:2]
        if liar is not None:
            context[0], duration[0] = liar(lies, d)
        view = view_of(t, clients, context)
        assert len(policy.select(state, view, lies)) == 3
        choice = fp.Choice(np.array([0, *others]))
        state = policy.observe(state, view, choice, outcome_of([DONE] * 3, duration))
        for name in ("h_inverse", "b", "queue"):
            assert np.isfinite(getattr(state, name)).all(), f"{name} in round {t}"
    return state


@pytest.mark.parametrize("d", [1, 3, 5])
@pytest.mark.parametrize(
    "liar",
    [
        lambda rng, d: (rng.choice(ABSURD, d), 2.0),
        lambda rng, d: (np.ones(d), rng.choice(ABSURD)),
        lambda rng, d: (rng.choice(ABSURD, d), rng.choice(ABSURD)),
        lambda rng, d: (np.full(d, 1e300), 1e300),
        lambda rng, d: (rng.choice([1.0, -1.0, 1e100, -1e100], d), 1e100),
        lambda rng, d: (rng.choice([1.0, -1.0, 1e-3, 1e8, 1e50, -1e50, 1e100], d), 1e50),
    ],
    ids=["contexts", "durations", "both", "huge", "just within the limits", "of every size"],
)
def test_absurd_contexts_and_durations_stay_with_the_client_that_sent_them(liar, d):
    honest, other = play_beside(None, d=d), play_beside(liar, d=d)
    for name in ("h_inverse", "b", "queue"):
        assert (getattr(honest, name)[1:] == getattr(other, name)[1:]).all()


@pytest.mark.parametrize(("context", "seconds"), [([np.nan, 1.0, 1.0], 2.0), ([1.0, 1.0, 1.0], -1.0)])
def test_what_is_no_measurement_does_not_enter_the_regression(context, seconds):
    policy, clients = fp.RBCSF(1), everyone(2)
    contexts = np.array([context, [1.0, 1.0, 1.0]])
    state = policy.observe(
        policy.init(clients), view_of(1, clients, contexts), fp.Choice(np.array([0])), outcome_of([DONE], [seconds])
    )
    assert (state.h_inverse == np.eye(3)).all()
    assert (state.b == 0.0).all()


@pytest.mark.parametrize(
    "sent",
    [
        [[1.0, 1e8], [1.0, 1e8]],
        [[1.0, 1e16], [1.0, 1e16]],
        [[1.0, 1e100], [-1.0, -1e100]],
        [[-1.0, 1e8], [1.0, 1e100], [1e100, 1e100]],
    ],
    ids=str,
)
def test_large_contexts_do_not_bring_the_server_down(sent):
    """1 + c'H^-1 c is at least 1 in exact arithmetic; a rank-one update can lose that to cancellation."""
    policy, clients = fp.RBCSF(1, context=2), everyone(2)
    state = policy.init(clients)
    for t, context in enumerate(sent, start=1):
        view = view_of(t, clients, np.array([context, [1.0, 1.0]]))
        state = policy.observe(state, view, fp.Choice(np.array([0])), outcome_of([DONE], [1.0]))
        assert np.isfinite(state.h_inverse).all()
        assert (state.h_inverse[1] == np.eye(2)).all()
        assert len(policy.select(state, view, np.random.default_rng(0))) == 1


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3, 1e6])
def test_the_inverse_stays_that_of_h_whatever_the_unit_of_the_context(scale):
    """Bits instead of megabits make contexts of 1e6: c'theta_hat must not depend on that."""
    policy, clients, rng = fp.RBCSF(1, context=3, ridge=scale**2), everyone(1), np.random.default_rng(0)
    state, theta = policy.init(clients), np.array([1.0, 2.0, 3.0]) / scale
    H, b = scale**2 * np.eye(3), np.zeros(3)
    for t in range(1, 201):
        c = rng.uniform(0.5, 2.0, 3) * scale
        state = policy.observe(
            state, view_of(t, clients, c[None, :]), fp.Choice(np.array([0])), outcome_of([DONE], [c @ theta])
        )
        H, b = H + np.outer(c, c), b + (c @ theta) * c
    np.testing.assert_allclose(state.h_inverse[0] @ H, np.eye(3), atol=1e-9)
    np.testing.assert_allclose(state.b[0], b, rtol=1e-9)


@pytest.mark.parametrize("size", [1e2, 1e4, 1e6, 1e8])
def test_contexts_that_are_large_beside_the_ridge_still_give_the_estimate_of_17(size):
    """H is well conditioned here (contexts point everywhere): 0.1% is far more than float64 has to lose."""
    policy, clients, rng = fp.RBCSF(1, context=3), everyone(1), np.random.default_rng(0)
    state, theta = policy.init(clients), np.array([1.0, 2.0, 3.0]) / size
    H, b = np.eye(3), np.zeros(3)
    for t in range(1, 201):
        c = rng.uniform(0.5, 2.0, 3) * size
        state = policy.observe(
            state, view_of(t, clients, c[None, :]), fp.Choice(np.array([0])), outcome_of([DONE], [c @ theta])
        )
        H, b = H + np.outer(c, c), b + (c @ theta) * c
    probe = np.full(3, size)
    assert probe @ state.h_inverse[0] @ state.b[0] == pytest.approx(probe @ np.linalg.solve(H, b), rel=1e-3)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e300, -1e300])
def test_a_client_with_an_unusable_context_is_ranked_slowest(bad):
    policy, clients = fp.RBCSF(3, guarantee=0.0, exploration=0.0), everyone(5)
    state, rng, context = policy.init(clients), np.random.default_rng(0), np.ones((5, 3))
    for t in range(1, 11):
        choice = fp.Choice(np.arange(5))
        state = policy.observe(state, view_of(t, clients, context), choice, outcome_of([DONE] * 5, [1, 2, 3, 4, 1000]))
    context[0, 1] = bad
    assert policy.select(state, view_of(11, clients, context), rng).ids.tolist() == [1, 2, 3]
    there = np.array([True, True, False, False, True])
    assert policy.select(state, view_of(11, clients, context, there), rng).ids.tolist() == [0, 1, 4]
    state.queue[0] = 1e6  # not even a long queue helps while others can be chosen
    assert 0 not in policy.select(state, view_of(11, clients, context), rng).ids
    two_bad = context.copy()
    two_bad[1, 2] = bad  # two unusable, four wanted: the longer queue decides
    four = fp.RBCSF(4, guarantee=0.0, exploration=0.0)
    assert four.select(state, view_of(11, clients, two_bad), rng).ids.tolist() == [0, 2, 3, 4]


def test_without_a_penalty_only_the_queues_count_even_beside_unusable_contexts():
    policy, clients = fp.RBCSF(2, penalty=0.0, guarantee=0.0), everyone(4)
    state, context = policy.init(clients), np.ones((4, 3))
    context[3] = np.nan
    state.queue[:] = [1.0, 2.0, 3.0, 4.0]
    assert policy.select(state, view_of(1, clients, context), np.random.default_rng(0)).ids.tolist() == [2, 3]


# Clients come and go -----------------------------------------------------------------------------------------------


def test_enrolment_keeps_regressions_and_queues_beside_their_client():
    policy, clients, rng = fp.RBCSF(2, penalty=1.0), everyone(5), np.random.default_rng(0)
    state = policy.init(clients)
    for t in range(1, 21):
        view = view_of(t, clients, rng.uniform(0.5, 2.0, (5, 3)))
        choice = policy.select(state, view, rng)
        state = policy.observe(state, view, choice, outcome_of([DONE, DONE], rng.uniform(1, 3, 2)))
    old = {name: getattr(state, name).copy() for name in ("h_inverse", "b", "queue", "enrolled", "there")}
    grown = fp.admit(policy, state, everyone(2))
    for name, values in old.items():
        assert (getattr(grown, name)[:5] == values).all()
    assert (grown.h_inverse[5:] == np.eye(3)).all()
    assert grown.queue[5:].tolist() == [0.0, 0.0]
    left = fp.retire(policy, grown, [6, 3, 0])
    for name, values in old.items():
        assert (getattr(left, name)[1:] == values[[3, 0]]).all()
    view = view_of(21, everyone(3), np.ones((3, 3)))
    assert len(policy.select(left, view, rng)) == 2


# Warnings and errors -----------------------------------------------------------------------------------------------


def watch(policy, caplog, rates, rounds=64, newcomers=0):
    """Play with clients that are there at these rates; the texts logged."""
    clients, rng = everyone(len(rates)), np.random.default_rng(0)
    state = policy.init(clients)
    if newcomers:
        state = fp.admit(policy, state, everyone(newcomers))
        clients, rates = everyone(len(rates) + newcomers), np.append(rates, np.ones(newcomers))
    with caplog.at_level(logging.WARNING, logger="fedpick"):
        for t in range(1, rounds + 1):
            view = view_of(t, clients, np.ones((len(clients), 3)), rng.random(len(clients)) < rates)
            choice = policy.select(state, view, rng)
            state = policy.observe(state, view, choice, outcome_of([DONE] * len(choice), np.ones(len(choice))))
    return [record.getMessage() for record in caplog.records if record.name.startswith("fedpick")]


def test_clients_that_are_there_too_rarely_for_the_guarantee_are_counted_in_a_warning(caplog):
    said = watch(fp.RBCSF(3, guarantee=0.3), caplog, np.array([0.05, 0.05, 1, 1, 1, 1, 1, 1]))
    assert len(said) == 1
    assert "2 clients were available in less than guarantee = 0.3 of the rounds" in said[0]
    assert "reduce guarantee, or use absent='freeze'" in said[0]


def test_the_warning_comes_in_rounds_64_128_and_256_and_not_before(caplog):
    rates = np.array([0.05, 1, 1, 1, 1, 1, 1, 1])
    assert watch(fp.RBCSF(3, guarantee=0.3), caplog, rates, rounds=63) == []
    assert len(watch(fp.RBCSF(3, guarantee=0.3), caplog, rates, rounds=260)) == 3


def test_nothing_is_logged_where_the_guarantee_can_be_kept(caplog):
    assert watch(fp.RBCSF(3, guarantee=0.3), caplog, np.full(8, 0.9), rounds=130) == []


def test_a_guarantee_that_newcomers_made_infeasible_is_warned_of(caplog):
    assert watch(fp.RBCSF(3, guarantee=0.3), caplog, np.ones(8), rounds=63, newcomers=4) == []
    said = watch(fp.RBCSF(3, guarantee=0.3), caplog, np.ones(8), newcomers=4)
    assert any("guarantee = 0.3 for each of 12 clients is more than cohort_size = 3 can give" in text for text in said)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"cohort_size": 0}, fp.SettingError, r"RBCSF: cohort_size = 0, but must be a whole number >= 1"),
        ({"guarantee": 1.2}, fp.SettingError, r"RBCSF: guarantee = 1\.2, but must be a number >= 0 and <= 1"),
        ({"guarantee": -0.1}, fp.SettingError, r"RBCSF: guarantee = -0\.1, but must be a number >= 0 and <= 1"),
        ({"penalty": -1}, fp.SettingError, r"RBCSF: penalty = -1, but must be a number >= 0"),
        ({"ridge": 0.0}, fp.SettingError, r"RBCSF: ridge = 0\.0, but must be a number > 0"),
        ({"exploration": -0.1}, fp.SettingError, r"RBCSF: exploration = -0\.1, but must be a number >= 0"),
        ({"context": 0}, fp.SettingError, r"RBCSF: context = 0, but must be a .*number >= 1"),
        ({"absent": "freez"}, fp.UnknownNameError, r"'freez'; did you mean 'freeze'\?.*freeze, grow"),
        ({"queue_cap": 0}, fp.SettingError, r"RBCSF: queue_cap = 0, but must be a number > 0"),
        ({"deadline": -2.0}, fp.SettingError, r"RBCSF: deadline = -2\.0, but must be a number > 0"),
    ],
)
def test_a_setting_out_of_bounds_is_refused_with_value_and_bound(options, error, text):
    with pytest.raises(error, match=text):
        fp.RBCSF(**{"cohort_size": 3, **options})


def test_a_number_of_context_columns_that_is_not_whole_is_refused_as_a_setting():
    with pytest.raises(fp.SettingError, match="context"):
        fp.RBCSF(2, context=2.5).init(everyone(4))


def test_a_guarantee_beyond_m_over_k_is_refused_with_what_it_asks_for():
    text = (
        r"guarantee = 0\.5 for each of 10 clients asks for 5 clients a round, but must be at most m/K = 0\.3; reduce it"
    )
    with pytest.raises(fp.SettingError, match=text):
        fp.RBCSF(3, guarantee=0.5).init(everyone(10))
    fp.RBCSF(3, guarantee=0.3).init(everyone(10))  # m/K itself can be kept


def test_a_view_without_context_is_refused_with_what_to_give():
    policy, clients = fp.RBCSF(2, context=4), everyone(3)
    view = fp.View(1, np.ones(3, dtype=bool), clients)
    text = r"view\.context, but that is None; give the View an array with one row per client and 4 columns"
    with pytest.raises(fp.MissingError, match=text):
        policy.select(policy.init(clients), view, np.random.default_rng(0))
    with pytest.raises(fp.MissingError, match=text):
        policy.observe(policy.init(clients), view, fp.Choice(np.array([0])), outcome_of([DONE], [1.0]))


def test_a_context_of_another_width_is_refused_with_the_setting_that_fits():
    policy, clients = fp.RBCSF(2), everyone(4)
    text = r"view\.context has 5 columns, but context = 3; make the policy with context=5"
    with pytest.raises(fp.ContractError, match=text):
        policy.select(policy.init(clients), view_of(1, clients, np.ones((4, 5))), np.random.default_rng(0))


@pytest.mark.parametrize(
    ("theta", "error", "text"),
    [
        (
            np.ones((3, 3)),
            fp.ContractError,
            r"theta has shape \(3, 3\), but needs 2 axes and .* row for each of .*4 clients",
        ),
        (np.ones(4), fp.ContractError, r"theta has shape \(4,\), but needs 2 axes"),
        (np.ones((4, 2)), fp.SettingError, r"theta's columns = 2, but must be context = 3"),
        (np.full((4, 3), np.nan), fp.SettingError, r"theta holds NaN or infinity, but must be finite"),
    ],
)
def test_a_theta_of_the_wrong_shape_is_refused(theta, error, text):
    with pytest.raises(error, match=text):
        fp.RBCSF(2, theta=theta).init(everyone(4))


@pytest.mark.parametrize(
    ("chosen", "status", "text"),
    [
        ([0, 1], [DONE], r"the outcome has 1 entries, but 2 clients were chosen"),
        ([0, 3], [DONE, DONE], r"client 3 was chosen, but was not available"),
        ([1, 1], [DONE, DONE], r"client 1 reports twice in one outcome"),
    ],
)
def test_an_outcome_that_cannot_belong_to_the_round_is_refused(chosen, status, text):
    policy, clients = fp.RBCSF(2), everyone(4)
    view = view_of(1, clients, np.ones((4, 3)), np.array([True, True, True, False]))
    with pytest.raises(fp.ContractError, match=text):
        policy.observe(policy.init(clients), view, fp.Choice(np.array(chosen)), outcome_of(status, [1.0] * len(status)))
