"""BSFL and its genie against Algorithm 1 of the paper: lists of raw latencies, and every cohort tried for (13)."""

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedpick as fp
from fedpick.policies._speed import mean_speed
from fedpick.policies.bsfl import _bonus, generalisation

DONE, LATE, FAILED, SURPLUS = (int(s) for s in (fp.Status.DONE, fp.Status.LATE, fp.Status.FAILED, fp.Status.SURPLUS))
SIZES = np.array([10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0])


# The slow twin -----------------------------------------------------------------------------------------------------


def g_of_the_paper(target, count, t, beta):
    """(3) and (4): |target - c/t|^beta sgn(target - c/t)."""
    gap = target - count / t
    return abs(gap) ** beta * (0 if gap == 0 else math.copysign(1, gap))


class Twin:
    """What Algorithm 1 keeps of each client, as the raw list of its latencies."""

    def __init__(self, K, m, tau_min=None, tau_max=None):
        self.m, self.tau_min, self.tau_max = m, tau_min, tau_max
        self.latencies = {k: [] for k in range(K)}
        self.measured = []

    def count(self, k):
        return len(self.latencies[k])

    def mean_speed(self, k):
        """(8), with the tau_min known by now for the whole past; 0 while nothing was measured."""
        tau_min = min(self.measured, default=0.0) if self.tau_min is None else self.tau_min
        return sum(tau_min / tau for tau in self.latencies[k]) / self.count(k)

    def ucb(self, k, t):
        """(9); +infinity before the first time (initialisation)."""
        if self.count(k) == 0:
            return math.inf
        return self.mean_speed(k) + math.sqrt((self.m + 1) * math.log(t) / self.count(k))

    def learn(self, chosen, status, duration):
        """Lines 5 and 6. Whoever is late, fails or reports what is no time counts as the bound of (2)."""

        def valid(s, tau):
            return s in (DONE, SURPLUS) and math.isfinite(tau) and tau > 0

        pairs = list(zip(chosen, status, duration, strict=True))
        self.measured += [tau for _, s, tau in pairs if valid(s, tau)]
        slowest = max(self.measured, default=math.inf) if self.tau_max is None else self.tau_max
        for k, s, tau in pairs:
            seconds = tau if valid(s, tau) else slowest
            if self.tau_max is not None:
                seconds = min(seconds, self.tau_max)
            if self.tau_min is not None:
                seconds = max(seconds, self.tau_min)
            self.latencies[k].append(seconds)


def cohorts(ids, m, never):
    """Every cohort that may be chosen: clients never chosen come first."""
    m = min(m, len(ids))
    if len(never) >= m:
        return list(combinations(never, m))
    return [c for c in combinations(ids, m) if set(never) <= set(c)]


def objective(cohort, value, g, alpha, m):
    """(13)."""
    return min(value[k] for k in cohort) + alpha / m * sum(g[k] for k in cohort)


def everyone(K):
    return fp.Clients(np.ones(K))


def view_of(round, clients, there=None):
    return fp.View(round, np.ones(len(clients), dtype=bool) if there is None else there, clients)


def outcome_of(status, duration):
    return fp.Outcome(np.asarray(status, dtype=np.int64), duration, np.full(len(status), np.nan))


def draw_outcome(rng, chosen, means):
    """Statuses of every kind, and durations of which one in five is no time."""
    status = rng.choice([DONE, SURPLUS, LATE, FAILED], len(chosen), p=[0.6, 0.1, 0.15, 0.15])
    duration = 1.0 + rng.gamma(4.0, means[chosen] / 4.0)
    absurd = rng.random(len(chosen)) < 0.2
    duration[absurd] = rng.choice([np.nan, np.inf, -np.inf, -3.0, 0.0], absurd.sum())
    duration[(status == SURPLUS) & np.isnan(duration)] = np.inf  # without a duration it would be no news
    return status, duration


def play(policy, clients, rounds, seed, state=None, start=1):
    rng, means = np.random.default_rng(seed), np.linspace(0.5, 8.0, len(clients))
    state = policy.init(clients) if state is None else state
    for t in range(start, start + rounds):
        view = view_of(t, clients)
        choice = policy.select(state, view, rng)
        state = policy.observe(state, view, choice, outcome_of(*draw_outcome(rng, choice.ids, means)))
    return state


# Algorithm 1 in lock-step ------------------------------------------------------------------------------------------

QUALITY = np.array([1.0, 0.2, 0.9, 0.5, 0.0, 1.0, 0.7, 0.3])


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(
    "options",
    [
        {"alpha": 1.0},
        {"alpha": 0.0},
        {"alpha": 0.5, "beta": 2, "tau_min": 1.0},
        {"alpha": 20.0, "beta": 3, "tau_max": 9.0},
        {"alpha": 2.0, "quality": QUALITY, "tau_min": 1.0, "tau_max": 9.0},
        {"alpha": 5.0, "quality": lambda clients: np.full(len(clients), 0.4), "beta": 2},
    ],
    ids=["alpha 1", "alpha 0", "beta 2", "beta 3", "quality", "sizes"],
)
def test_every_cohort_attains_the_maximum_of_13_and_new_clients_come_first(options, seed):
    K, m = 8, 3
    policy, clients = fp.BSFL(m, **options), fp.Clients(SIZES)
    twin = Twin(K, m, options.get("tau_min"), options.get("tau_max"))
    alpha, beta, quality = options["alpha"], options.get("beta", 1), options.get("quality")
    worth = [1.0] * K if quality is None else (quality(clients) if callable(quality) else quality) * SIZES
    state, rng, means = policy.init(clients), np.random.default_rng(seed), np.linspace(0.5, 8.0, K)
    for t in range(1, 81):
        there = rng.random(K) < (0.8 if t % 9 else 0.2)
        ids = np.flatnonzero(there).tolist()
        view = view_of(t, clients, there)
        choice = policy.select(state, view, rng)
        chosen = choice.ids.tolist()
        if ids:
            ucb = {k: twin.ucb(k, t) for k in ids}
            g = {k: g_of_the_paper(m * worth[k] / sum(worth), twin.count(k), t, beta) for k in ids}
            allowed = cohorts(ids, m, [k for k in ids if twin.count(k) == 0])
            assert tuple(sorted(chosen)) in allowed
            if math.isfinite(min(ucb[k] for k in chosen)):
                best = max(objective(c, ucb, g, alpha, m) for c in allowed)
                assert objective(chosen, ucb, g, alpha, m) >= best - 1e-9
        else:
            assert chosen == []
        status, duration = draw_outcome(rng, choice.ids, means)
        twin.learn(chosen, status, duration)
        state = policy.observe(state, view, choice, outcome_of(status, duration))
        assert state.counts.tolist() == [twin.count(k) for k in range(K)]
        seen = [k for k in range(K) if twin.count(k)]
        found = mean_speed(state.speed, np.array(seen, dtype=np.int64), options.get("tau_min"))
        np.testing.assert_allclose(found, [twin.mean_speed(k) for k in seen], rtol=1e-9, atol=1e-12)


def test_the_objectives_maximum_is_not_met_by_taking_the_best_clients_one_by_one():
    """Otherwise the lock-step test would say little: slow clients come together (the paper's "important insight")."""
    policy, clients = fp.BSFL(2, alpha=4.0, tau_min=1.0, tau_max=100.0), everyone(4)
    state = policy.init(clients)
    for t in range(1, 9):  # clients 0 and 1 are fast and often chosen, 2 and 3 slow and chosen once
        chosen = [2, 3] if t == 1 else [0, 1]
        duration = [100.0, 100.0] if t == 1 else [1.0, 1.0]
        state = policy.observe(
            state, view_of(t, clients), fp.Choice(np.array(chosen)), outcome_of([DONE, DONE], duration)
        )
    assert policy.select(state, view_of(9, clients), np.random.default_rng(0)).ids.tolist() == [2, 3]


@pytest.mark.parametrize(
    "make", [lambda: fp.BSFL(1, alpha=0.0, tau_min=0.92, tau_max=1e12), lambda: fp.CSUCB(1, tau_min=0.92, tau_max=1e12)]
)
def test_round_t_explores_with_ln_t_as_the_proof_has_it_not_with_ln_of_the_round_before(make):
    """Algorithm 1 with (12), (13) taken to the letter has ln(t - 1); (8), (9) and the proof's (25) to (30) have ln t.

    After 5 rounds, client 0 has c = 1 and speed 0, client 1 has c = 4 and speed 0.92: in round 6 client 0 is ahead
    when sqrt(2 ln t) / 2 > 0.92, which holds for ln 6 and not for ln 5.
    """
    assert math.sqrt(2 * math.log(5)) / 2 < 0.92 < math.sqrt(2 * math.log(6)) / 2
    policy, clients = make(), everyone(2)
    state = policy.init(clients)
    for t, k in enumerate([0, 1, 1, 1, 1], start=1):
        outcome = outcome_of([FAILED if k == 0 else DONE], [1.0])
        state = policy.observe(state, view_of(t, clients), fp.Choice(np.array([k])), outcome)
    assert policy.select(state, view_of(6, clients), np.random.default_rng(0)).ids.tolist() == [0]


def test_clients_never_chosen_come_first_even_where_g_is_against_them():
    clients = fp.Clients([1.0, 1.0, 1000.0, 1000.0, 1000.0])
    policy = fp.BSFL(2, alpha=1000.0, quality=1.0)  # (4): the small ones have next to no target
    state = policy.init(clients)
    for t, chosen in enumerate([[2, 3], [3, 4], [2, 4]], start=1):
        state = policy.observe(
            state, view_of(t, clients), fp.Choice(np.array(chosen)), outcome_of([DONE, DONE], [1.0, 1.0])
        )
    assert policy.select(state, view_of(4, clients), np.random.default_rng(0)).ids.tolist() == [0, 1]


def test_among_many_clients_never_chosen_each_is_equally_likely_to_be_first():
    K, m, draws = 10, 3, 4000
    policy, clients = fp.BSFL(m), everyone(K)
    state, rng = policy.init(clients), np.random.default_rng(3)
    counts = np.zeros(K)
    for _ in range(draws):
        counts[policy.select(state, view_of(1, clients), rng).ids] += 1
    error = math.sqrt(m / K * (1 - m / K) / draws)
    assert np.abs(counts / draws - m / K).max() <= 4.5 * error


@pytest.mark.parametrize("make", [lambda m: fp.BSFL(m, tau_min=1.0), lambda m: fp.Genie(m, 0.5)])
def test_equally_good_clients_are_equally_likely_to_be_chosen(make):
    K, m, draws = 8, 2, 4000
    policy, clients = make(m), everyone(K)
    state, rng, counts = policy.init(clients), np.random.default_rng(5), np.zeros(K)
    for t in range(1, 5):  # everyone once, all equally fast
        chosen = fp.Choice(np.array([2 * t - 2, 2 * t - 1]))
        state = policy.observe(state, view_of(t, clients), chosen, outcome_of([DONE, DONE], [2.0, 2.0]))
    for _ in range(draws):
        counts[policy.select(state, view_of(5, clients), rng).ids] += 1
    assert np.abs(counts / draws - m / K).max() <= 4.5 * math.sqrt(m / K * (1 - m / K) / draws)


# g -----------------------------------------------------------------------------------------------------------------


@settings(max_examples=100, deadline=None)
@given(
    st.integers(1, 500).flatmap(lambda t: st.tuples(st.just(t), st.lists(st.integers(0, t), min_size=1, max_size=8))),
    st.floats(0, 1),
    st.sampled_from([1, 2, 3]),
)
def test_generalisation_is_3_and_4_and_falls_with_every_choice(history, target, beta):
    t, counts = history
    g = generalisation(counts, t, target, beta)
    np.testing.assert_allclose(g, [g_of_the_paper(target, c, t, beta) for c in counts], rtol=1e-12, atol=1e-300)
    assert (np.abs(g) <= 1).all()
    later = generalisation(np.add(counts, 1), t, target, beta)
    assert (later < g).all() if beta == 1 else (later <= g).all()  # powers of tiny gaps may underflow


@pytest.mark.parametrize("beta", [1, 2, 3])
def test_generalisation_is_0_at_the_target_and_odd_around_it(beta):
    assert generalisation([5], 10, 0.5, beta).tolist() == [0.0]
    below, above = generalisation([3, 7], 10, 0.5, beta)
    assert below == pytest.approx(0.2**beta)
    assert above == pytest.approx(-(0.2**beta))


def test_a_custom_g_sees_the_history_and_decides_when_alpha_is_large():
    asked = []

    def g(counts, round, clients):
        asked.append((counts.tolist(), round, len(clients)))
        return np.arange(len(clients)) / len(clients)

    policy, clients = fp.BSFL(2, alpha=1e6, g=g), everyone(5)
    state = policy.init(clients)
    for t, chosen in enumerate([[0, 1], [2, 3], [3, 4]], start=1):
        state = policy.observe(
            state, view_of(t, clients), fp.Choice(np.array(chosen)), outcome_of([DONE, DONE], [1.0, 1.0])
        )
    there = np.array([True, True, True, True, False])
    choice = policy.select(state, view_of(4, clients, there), np.random.default_rng(0))
    assert choice.ids.tolist() == [2, 3]
    assert asked == [([1, 1, 1, 2, 1], 4, 5)]


# Durations ---------------------------------------------------------------------------------------------------------


def test_a_shorter_time_seen_later_rescales_the_past():
    policy, clients = fp.BSFL(2), everyone(2)
    rng, state, raw = np.random.default_rng(8), policy.init(clients), []
    for t in range(1, 31):
        duration = 0.2 + rng.gamma(2.0, 5.0 / t, 2)  # ever faster
        raw.append(duration)
        state = policy.observe(
            state, view_of(t, clients), fp.Choice(np.array([0, 1])), outcome_of([DONE, SURPLUS], duration)
        )
    tau_min = np.min(raw)
    assert tau_min < np.min(raw[0]) / 2
    np.testing.assert_allclose(
        mean_speed(state.speed, np.array([0, 1]), None), np.mean(tau_min / np.array(raw), axis=0), rtol=1e-12
    )


@pytest.mark.parametrize("make", [fp.BSFL, fp.CSUCB])
@pytest.mark.parametrize(
    ("status", "duration"),
    [
        (LATE, 0.1),
        (FAILED, 0.1),
        (DONE, np.nan),
        (DONE, -1.0),
        (DONE, 0.0),
        (DONE, np.inf),
        (SURPLUS, -np.inf),
        (FAILED, np.nan),
    ],
)
def test_whoever_gives_no_time_counts_as_the_bound_or_as_the_slowest_seen(make, status, duration):
    clients, both = everyone(2), fp.Choice(np.array([0, 1]))
    for tau_max, due in ((None, 2.0 / 4.0), (50.0, 2.0 / 50.0)):
        policy = make(2, tau_max=tau_max)
        state = policy.init(clients)
        state = policy.observe(state, view_of(1, clients), both, outcome_of([DONE, DONE], [4.0, 4.0]))
        state = policy.observe(state, view_of(2, clients), both, outcome_of([DONE, status], [2.0, duration]))
        speed = mean_speed(state.speed, np.array([0, 1]), None)
        np.testing.assert_allclose(speed, [(2 / 4 + 2 / 2) / 2, (2 / 4 + due) / 2])


def test_failures_before_anything_was_measured_count_as_speed_0_and_are_not_forgotten():
    policy, clients = fp.BSFL(1), everyone(1)
    state = policy.init(clients)
    for t, (status, duration) in enumerate([(FAILED, np.nan), (LATE, 9.0), (DONE, 2.0)], start=1):
        state = policy.observe(state, view_of(t, clients), fp.Choice(np.array([0])), outcome_of([status], [duration]))
    assert mean_speed(state.speed, np.array([0]), None) == pytest.approx([1 / 3])
    assert state.counts.tolist() == [3]


def test_nobody_is_faster_than_the_given_tau_min():
    policy, clients = fp.BSFL(2, tau_min=2.0), everyone(2)
    state = policy.observe(
        policy.init(clients), view_of(1, clients), fp.Choice(np.array([0, 1])), outcome_of([DONE, DONE], [1e-9, 8.0])
    )
    assert mean_speed(state.speed, np.array([0, 1]), 2.0) == pytest.approx([1.0, 0.25])


@pytest.mark.parametrize("duration", [1e300, 1e-300, 1e-310, 5e-324])
@pytest.mark.parametrize("tau_min", [None, 1.0])
def test_absurd_but_positive_durations_keep_speeds_between_0_and_1(duration, tau_min):
    policy, clients = fp.BSFL(2, tau_min=tau_min), everyone(3)
    state, rng = policy.init(clients), np.random.default_rng(0)
    for t in range(1, 6):
        view = view_of(t, clients)
        choice = fp.Choice(np.array([0, 1 + t % 2]))
        state = policy.observe(state, view, choice, outcome_of([DONE, DONE], [duration, 2.0]))
        speed = mean_speed(state.speed, np.arange(3), tau_min)
        assert ((speed >= 0) & (speed <= 1)).all()
        assert len(policy.select(state, view, rng)) == 2
    assert (speed[0] > speed[1]) == (duration < 2.0)


# Solvers -----------------------------------------------------------------------------------------------------------


def trained(K, m, seed, **options):
    """A policy, its clients and a state in which everyone was chosen at least once."""
    policy, clients = fp.BSFL(m, **options), everyone(K)
    state = play(policy, clients, 3 * K, seed)
    assert state.counts.min() > 0
    return policy, clients, state


def values_of(policy, state, clients, t):
    """ucb and g of every client, by (9) and (3)."""
    m, K = policy.cohort_size, len(clients)
    speed = mean_speed(state.speed, np.arange(K), policy.tau_min)
    ucb = [s + math.sqrt((m + 1) * math.log(t) / c) for s, c in zip(speed, state.counts, strict=True)]
    return ucb, [g_of_the_paper(m / K, c, t, policy.beta) for c in state.counts]


@pytest.mark.parametrize("solver", ["alsa", "alsa-drop", "sa"])
def test_annealing_gives_whole_cohorts_of_those_there_never_better_than_the_exact_one(solver):
    K, m = 40, 8
    exact, clients, state = trained(K, m, 5, alpha=2.0)
    annealing = fp.BSFL(m, alpha=2.0, solver=solver, steps=300)
    rng = np.random.default_rng(1)
    for t in range(121, 151):
        there = rng.random(K) < 0.7
        view = view_of(t, clients, there)
        ucb, g = values_of(exact, state, clients, t)
        best = objective(exact.select(state, view, rng).ids, ucb, g, 2.0, m)
        found = annealing.select(state, view, rng).ids
        assert len(set(found.tolist())) == m
        assert there[found].all()
        assert objective(found, ucb, g, 2.0, m) <= best + 1e-9


@pytest.mark.parametrize("solver", ["alsa", "alsa-drop", "sa"])
def test_annealing_improves_on_the_random_cohort_that_it_starts_from(solver):
    K, m, t, runs = 10, 3, 31, 150
    exact, clients, state = trained(K, m, 2, alpha=2.0)
    ucb, g = values_of(exact, state, clients, t)
    start = np.mean([objective(c, ucb, g, 2.0, m) for c in combinations(range(K), m)])
    policy, rng = fp.BSFL(m, alpha=2.0, solver=solver, steps=3000), np.random.default_rng(0)
    ends = [objective(policy.select(state, view_of(t, clients), rng).ids, ucb, g, 2.0, m) for _ in range(runs)]
    assert np.mean(ends) - start > 4.5 * np.std(ends, ddof=1) / math.sqrt(runs)


@pytest.mark.parametrize("solver", ["exact", "alsa", "alsa-drop", "sa"])
@pytest.mark.parametrize("m", [4, 9])
def test_every_solver_takes_all_when_no_more_than_m_are_there(solver, m):
    policy, clients = fp.BSFL(m, solver=solver), everyone(4)
    state = play(policy, clients, 3, seed=0)
    assert policy.select(state, view_of(4, clients), np.random.default_rng(0)).ids.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("solver", ["exact", "alsa", "alsa-drop", "sa"])
def test_every_solver_chooses_nobody_when_nobody_is_there(solver):
    policy, clients = fp.BSFL(2, solver=solver), everyone(4)
    view = view_of(1, clients, np.zeros(4, dtype=bool))
    state = policy.init(clients)
    choice = policy.select(state, view, np.random.default_rng(0))
    assert len(choice) == 0
    assert policy.observe(state, view, choice, outcome_of([], [])).counts.tolist() == [0] * 4


# The genie ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options", [{}, {"alpha": 8.0, "beta": 2}, {"alpha": 3.0, "quality": QUALITY}, {"alpha": 0.0}], ids=str
)
def test_the_genie_attains_6_with_the_true_speeds(options):
    K, m = 8, 3
    speeds = np.array([0.9, 0.2, 0.55, 0.5, 0.1, 0.8, 0.3, 0.75])
    policy, clients = fp.Genie(m, speeds, **options), fp.Clients(SIZES)
    alpha, beta = options.get("alpha", 1.0), options.get("beta", 1)
    worth = options["quality"] * SIZES if "quality" in options else np.ones(K)
    state, rng, counts = policy.init(clients), np.random.default_rng(0), [0] * K
    for t in range(1, 61):
        there = rng.random(K) < 0.8
        ids = np.flatnonzero(there).tolist()
        view = view_of(t, clients, there)
        choice = policy.select(state, view, rng)
        g = [g_of_the_paper(m * worth[k] / worth.sum(), counts[k], t, beta) for k in range(K)]
        best = max(objective(c, speeds, g, alpha, m) for c in combinations(ids, min(m, len(ids))))
        assert set(choice.ids) <= set(ids)
        assert len(choice) == min(m, len(ids))
        assert objective(choice.ids, speeds, g, alpha, m) >= best - 1e-12
        state = policy.observe(state, view, choice, outcome_of([FAILED] * len(choice), [np.nan] * len(choice)))
        for k in choice.ids:
            counts[k] += 1
        assert state.counts.tolist() == counts
    if alpha:
        assert min(counts) > 0 or "quality" in options


def test_the_genie_takes_all_or_nobody_when_few_are_there():
    policy, clients = fp.Genie(3, 0.5), everyone(4)
    state, rng = policy.init(clients), np.random.default_rng(0)
    assert policy.select(state, view_of(1, clients, np.array([1, 0, 0, 1], dtype=bool)), rng).ids.tolist() == [0, 3]
    assert len(policy.select(state, view_of(1, clients, np.zeros(4, dtype=bool)), rng)) == 0


# Clients come and go -----------------------------------------------------------------------------------------------


def test_enrolment_keeps_what_is_known_of_each_client_beside_it():
    policy = fp.BSFL(3, quality=lambda clients: 1.0 / clients.sizes)
    clients, new = fp.Clients(SIZES), fp.Clients([5.0, 6.0])
    state = play(policy, clients, 20, seed=0)
    counts, rate = state.counts.copy(), state.speed.rate.copy()
    fastest, slowest = state.speed.fastest, state.speed.slowest
    state = fp.admit(policy, state, new)
    assert state.counts.tolist() == [*counts.tolist(), 0, 0]
    assert state.speed.rate.tolist() == [*rate.tolist(), 0.0, 0.0]
    assert state.worth == pytest.approx(np.ones(10))
    assert (state.speed.fastest, state.speed.slowest) == (fastest, slowest)
    grown = clients.join(new)
    choice = policy.select(state, view_of(21, grown), np.random.default_rng(0))
    assert {8, 9} <= set(choice.ids.tolist())  # newcomers were never chosen
    state = policy.observe(state, view_of(21, grown), choice, outcome_of([DONE] * 3, [1.0] * 3))
    keep = [9, 0, 5]
    due = state.counts[keep].tolist(), state.speed.rate[keep].tolist()
    left = fp.retire(policy, state, keep)
    assert (left.counts.tolist(), left.speed.rate.tolist()) == due
    assert len(policy.select(left, view_of(22, grown.take(keep)), np.random.default_rng(0))) == 3


def test_the_genie_enrols_newcomers_with_the_truth_about_them():
    policy = fp.Genie(1, lambda clients: 1.0 / clients.sizes)
    state = fp.admit(policy, policy.init(fp.Clients([2.0, 4.0])), fp.Clients([8.0]))
    assert state.speed.tolist() == [0.5, 0.25, 0.125]
    assert state.counts.tolist() == [0, 0, 0]


# Errors ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"cohort_size": 0}, fp.SettingError, r"BSFL: cohort_size = 0, but must be a whole number >= 1"),
        ({"alpha": -0.5}, fp.SettingError, r"BSFL: alpha = -0\.5, but must be a number >= 0"),
        ({"beta": 0}, fp.SettingError, r"BSFL: beta = 0, but must be a number > 0"),
        ({"solver": "exac"}, fp.UnknownNameError, r"'exac'; did you mean 'exact'\?.*alsa, alsa-drop, exact, sa"),
        ({"tau_min": 0.0}, fp.SettingError, r"BSFL: tau_min = 0\.0, but must be a number > 0"),
        ({"tau_max": -1}, fp.SettingError, r"BSFL: tau_max = -1, but must be a number > 0"),
        ({"steps": -1}, fp.SettingError, r"BSFL: steps = -1, but must be a whole number >= 0"),
    ],
)
def test_a_setting_out_of_bounds_is_refused_with_value_and_bound(options, error, text):
    with pytest.raises(error, match=text):
        fp.BSFL(**{"cohort_size": 2, **options})


@pytest.mark.parametrize("make", [fp.BSFL, fp.CSUCB])
def test_a_shortest_time_above_the_deadline_is_refused(make):
    with pytest.raises(fp.SettingError, match="tau_min"):
        make(2, tau_min=10.0, tau_max=1.0)


def test_where_no_data_are_worth_anything_each_client_is_to_be_chosen_never():
    """The sum by which the targets of (4) are divided is 0."""
    policy, clients, counts = fp.BSFL(2, alpha=3.0, beta=2.0, quality=0.0), everyone(3), np.array([0, 1, 4])
    bonus = _bonus(policy, counts, policy.init(clients).worth, view_of(4, clients), np.array([0, 2]))
    assert bonus.tolist() == [0.0, -1.5]


@pytest.mark.parametrize("make", [fp.BSFL, lambda m, **options: fp.Genie(m, 0.5, **options)])
@pytest.mark.parametrize(
    ("quality", "error", "text"),
    [
        (1.5, fp.SettingError, r"quality = .*1\.5.*, but must be in \[0, 1\]"),
        ([0.1, -0.2, 0.3], fp.SettingError, r"quality = .*-0\.2.*, but must be in \[0, 1\]"),
        (
            [0.5, 0.5],
            fp.ContractError,
            r"quality has shape \(2,\), but needs 1 axes and .* row for each of .*3 clients",
        ),
        (math.nan, fp.SettingError, r"quality holds NaN or infinity, but must be finite"),
    ],
)
def test_a_quality_that_is_no_share_or_not_one_per_client_is_refused(make, quality, error, text):
    with pytest.raises(error, match=text):
        make(2, quality=quality).init(everyone(3))


def test_a_quality_array_cannot_enrol_newcomers_and_says_what_can():
    policy = fp.BSFL(2, quality=[0.5, 0.5, 0.5])
    with pytest.raises(fp.ContractError, match=r"to enrol clients later, give a function of fp\.Clients"):
        fp.admit(policy, policy.init(everyone(3)), everyone(1))


@pytest.mark.parametrize(
    ("g", "shape"),
    [([0.0], r"\(1,\)"), (np.zeros((3, 2)), r"\(3, 2\)"), (0.5, r"\(\)"), ([0.0, np.nan, 0.0], r"\(3,\)")],
)
def test_a_g_of_the_wrong_shape_or_not_finite_is_refused(g, shape):
    clients = everyone(3)
    for policy in (fp.BSFL(1, g=lambda *_: g), fp.Genie(1, 0.5, g=lambda *_: g)):
        state = policy.init(clients)
        for t in range(1, 4):
            chosen = fp.Choice(np.array([t - 1]))
            state = policy.observe(state, view_of(t, clients), chosen, outcome_of([DONE], [1.0]))
        with pytest.raises(
            fp.ContractError, match=rf"g returned shape {shape}, but must return one finite number per client"
        ):
            policy.select(state, view_of(4, clients), np.random.default_rng(0))


@pytest.mark.parametrize("make", [fp.BSFL, lambda m: fp.Genie(m, 0.5)])
@pytest.mark.parametrize(
    ("chosen", "status", "text"),
    [
        ([0, 1], [DONE], r"the outcome has 1 entries, but 2 clients were chosen"),
        ([0, 3], [DONE, DONE], r"client 3 was chosen, but was not available"),
        ([1, 1], [DONE, DONE], r"client 1 reports twice in one outcome"),
    ],
)
def test_an_outcome_that_cannot_belong_to_the_round_is_refused(make, chosen, status, text):
    policy, clients = make(2), everyone(4)
    view = view_of(1, clients, np.array([True, True, True, False]))
    with pytest.raises(fp.ContractError, match=text):
        policy.observe(policy.init(clients), view, fp.Choice(np.array(chosen)), outcome_of(status, [1.0] * len(status)))
