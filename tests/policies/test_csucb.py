"""CS-UCB and CS-UCB-Q against (9) of BSFL's paper and the queue recursion, both in plain loops."""

import math

import numpy as np
import pytest

import fedpick as fp
from fedpick.policies._speed import SpeedState, fresh_speed, mean_speed, upper_bound

DONE, LATE, FAILED, SURPLUS = (int(s) for s in (fp.Status.DONE, fp.Status.LATE, fp.Status.FAILED, fp.Status.SURPLUS))


def everyone(K):
    return fp.Clients(np.ones(K))


def view_of(round, clients, there=None):
    return fp.View(round, np.ones(len(clients), dtype=bool) if there is None else there, clients)


def outcome_of(status, duration):
    return fp.Outcome(np.asarray(status, dtype=np.int64), duration, np.full(len(status), np.nan))


def ucb_of_the_paper(speeds, m, t):
    """(9) from the raw list of a client's speeds; +infinity before the first."""
    return sum(speeds) / len(speeds) + math.sqrt((m + 1) * math.log(t) / len(speeds)) if speeds else math.inf


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(
    ("variant", "floor", "weight"),
    [
        ("cs-ucb", 0.5, 1.0),
        ("cs-ucb-q", 0.5, 1.0),
        ("cs-ucb-q", 1.0, 0.3),
        ("cs-ucb-q", 0.9, 0.0),
        ("cs-ucb-q", 0.0, 1.0),
    ],
)
def test_every_round_takes_the_m_highest_and_moves_the_queues(variant, floor, weight, seed):
    K, m, tau_min, tau_max = 9, 3, 1.0, 12.0
    policy = fp.CSUCB(m, variant, floor=floor, queue_weight=weight, tau_min=tau_min, tau_max=tau_max)
    clients, rng, means = everyone(K), np.random.default_rng(seed), np.linspace(0.5, 8.0, K)
    state, speeds, queue = policy.init(clients), {k: [] for k in range(K)}, [0.0] * K
    for t in range(1, 101):
        there = rng.random(K) < (0.8 if t % 9 else 0.2)
        ids = np.flatnonzero(there).tolist()
        view = view_of(t, clients, there)
        choice = policy.select(state, view, rng)
        chosen = choice.ids.tolist()
        score = {
            k: ucb_of_the_paper(speeds[k], m, t) + (weight * queue[k] if variant == "cs-ucb-q" else 0.0) for k in ids
        }
        assert len(set(chosen)) == len(chosen) == min(m, len(ids))
        assert set(chosen) <= set(ids)
        best = sorted(score.values(), reverse=True)[: len(chosen)]
        assert sorted((score[k] for k in chosen), reverse=True) == pytest.approx(best, rel=1e-9)
        status = rng.choice([DONE, SURPLUS, LATE, FAILED], len(chosen), p=[0.6, 0.1, 0.15, 0.15])
        duration = 1.0 + rng.gamma(4.0, means[chosen] / 4.0)
        state = policy.observe(state, view, choice, outcome_of(status, duration))
        for k, ended, tau in zip(chosen, status, duration, strict=True):
            speeds[k].append(tau_min / (min(tau, tau_max) if ended in (DONE, SURPLUS) else tau_max))
        if variant == "cs-ucb-q":
            for k in range(K):
                queue[k] = max(queue[k] + floor * m / K - (1 if k in chosen else 0), 0.0)
        np.testing.assert_allclose(state.queue, queue, atol=1e-9)
        assert state.speed.counts.tolist() == [len(speeds[k]) for k in range(K)]
    assert (max(queue) > 0) == (variant == "cs-ucb-q" and floor > 0)


def test_clients_never_chosen_come_first_whatever_the_queues_hold():
    policy, clients = fp.CSUCB(2, "cs-ucb-q", floor=1.0, queue_weight=1e6), everyone(4)
    state = policy.init(clients)
    for t in range(1, 20):
        state = policy.observe(
            state, view_of(t, clients), fp.Choice(np.array([0, 1])), outcome_of([DONE, DONE], [1.0, 1.0])
        )
    state.queue[:2] = 1000.0
    assert policy.select(state, view_of(20, clients), np.random.default_rng(0)).ids.tolist() == [2, 3]


def test_ties_are_broken_at_random_and_evenly():
    K, m, draws = 10, 3, 4000
    policy, clients = fp.CSUCB(m), everyone(K)
    state, rng = policy.init(clients), np.random.default_rng(1)
    counts = np.zeros(K)
    for _ in range(draws):
        counts[policy.select(state, view_of(1, clients), rng).ids] += 1
    assert np.abs(counts / draws - m / K).max() <= 4.5 * math.sqrt(m / K * (1 - m / K) / draws)


@pytest.mark.slow
def test_plain_cs_ucb_starves_the_slow_and_the_queues_keep_the_floor():
    """By the recursion the rate is at least floor m/K less Z_T / T, in every run."""
    K, m, T, floor = 6, 2, 1500, 0.9
    clients, rates = everyone(K), {}
    for variant in ("cs-ucb", "cs-ucb-q"):
        policy = fp.CSUCB(m, variant, floor=floor, tau_min=1.0, tau_max=1000.0)
        state, rng = policy.init(clients), np.random.default_rng(0)
        for t in range(1, T + 1):
            view = view_of(t, clients)
            choice = policy.select(state, view, rng)
            slow = np.where(choice.ids < 4, 1.0, 1000.0)
            state = policy.observe(state, view, choice, outcome_of([DONE] * m, slow))
        rates[variant] = state.speed.counts / T
    assert (rates["cs-ucb-q"] >= floor * m / K - state.queue / T - 1e-9).all()
    assert rates["cs-ucb-q"][4:].min() > rates["cs-ucb"][4:].max()


@pytest.mark.parametrize("variant", ["cs-ucb", "cs-ucb-q"])
@pytest.mark.parametrize("m", [4, 7])
def test_all_are_taken_when_m_is_at_least_the_number_of_clients(variant, m):
    policy, clients = fp.CSUCB(m, variant), everyone(4)
    state = policy.init(clients)
    for t in range(1, 6):
        view = view_of(t, clients)
        choice = policy.select(state, view, np.random.default_rng(t))
        assert choice.ids.tolist() == [0, 1, 2, 3]
        state = policy.observe(state, view, choice, outcome_of([DONE] * 4, [1.0, 2.0, 3.0, 4.0]))
    assert state.queue.tolist() == [0.0] * 4  # a floor above 1 cannot be asked for


@pytest.mark.parametrize("variant", ["cs-ucb", "cs-ucb-q"])
def test_nobody_there_is_an_empty_choice_and_only_the_queues_grow(variant):
    policy, clients = fp.CSUCB(2, variant, floor=0.5), everyone(4)
    view = view_of(1, clients, np.zeros(4, dtype=bool))
    state = policy.init(clients)
    choice = policy.select(state, view, np.random.default_rng(0))
    assert len(choice) == 0
    state = policy.observe(state, view, choice, outcome_of([], []))
    assert state.speed.counts.tolist() == [0] * 4
    assert state.queue.tolist() == [0.25 if variant == "cs-ucb-q" else 0.0] * 4


def test_enrolment_keeps_counts_speeds_and_queues_beside_their_client():
    policy, clients = fp.CSUCB(2, "cs-ucb-q"), everyone(5)
    state, rng = policy.init(clients), np.random.default_rng(0)
    for t in range(1, 31):
        view = view_of(t, clients)
        choice = policy.select(state, view, rng)
        state = policy.observe(state, view, choice, outcome_of([DONE, DONE], rng.uniform(1, 9, 2)))
    old = [state.speed.counts.tolist(), state.speed.rate.tolist(), state.queue.tolist()]
    state = fp.admit(policy, state, everyone(2))
    assert [state.speed.counts.tolist(), state.speed.rate.tolist(), state.queue.tolist()] == [
        [*values, 0, 0] for values in old
    ]
    assert policy.select(state, view_of(31, everyone(7)), rng).ids.tolist() == [5, 6]
    keep = np.array([False, True, True, False, True, False, True])
    due = [np.array([*values, 0, 0])[keep].tolist() for values in old]
    state = fp.retire(policy, state, keep)
    assert [state.speed.counts.tolist(), state.speed.rate.tolist(), state.queue.tolist()] == due


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"cohort_size": 0}, fp.SettingError, r"CSUCB: cohort_size = 0, but must be a whole number >= 1"),
        ({"variant": "cs-ucbq"}, fp.UnknownNameError, r"'cs-ucbq'; did you mean 'cs-ucb-q'\?.*cs-ucb, cs-ucb-q"),
        ({"floor": 1.5}, fp.SettingError, r"CSUCB: floor = 1\.5, but must be a number >= 0 and <= 1"),
        ({"floor": -0.5}, fp.SettingError, r"CSUCB: floor = -0\.5, but must be "),
        ({"queue_weight": -1.0}, fp.SettingError, r"CSUCB: queue_weight = -1\.0, but must be a number >= 0"),
        ({"tau_min": -1.0}, fp.SettingError, r"CSUCB: tau_min = -1\.0, but must be a number > 0"),
        ({"tau_max": 0.0}, fp.SettingError, r"CSUCB: tau_max = 0\.0, but must be a number > 0"),
    ],
)
def test_a_setting_out_of_bounds_is_refused_with_value_and_bound(options, error, text):
    with pytest.raises(error, match=text):
        fp.CSUCB(**{"cohort_size": 2, **options})


def test_a_floor_that_is_no_number_is_refused_as_a_setting():
    with pytest.raises(fp.SettingError, match="floor"):
        fp.CSUCB(2, floor="half")


@pytest.mark.parametrize(
    ("chosen", "status", "text"),
    [
        ([0, 1], [DONE], r"the outcome has 1 entries, but 2 clients were chosen"),
        ([0, 3], [DONE, DONE], r"client 3 was chosen, but was not available"),
        ([1, 1], [DONE, DONE], r"client 1 reports twice in one outcome"),
    ],
)
def test_an_outcome_that_cannot_belong_to_the_round_is_refused(chosen, status, text):
    policy, clients = fp.CSUCB(2), everyone(4)
    view = view_of(1, clients, np.array([True, True, True, False]))
    with pytest.raises(fp.ContractError, match=text):
        policy.observe(policy.init(clients), view, fp.Choice(np.array(chosen)), outcome_of(status, [1.0] * len(status)))


def test_clients_that_are_never_waited_for_count_as_of_average_speed():
    """After three choices in vain; (9) for those who were timed, infinity for others."""
    chosen, in_vain = np.array([4, 2, 3, 5, 0, 2]), np.array([0, 0, 3, 5, 0, 2])
    state = SpeedState(chosen, np.array([0.5, 0.25, 0.0, 0.0, 0.0, 0.0]), 1.0, 9.0, in_vain)
    mean, bonus = 0.375, math.sqrt(3 * math.log(7))
    expected = [0.5 + bonus / 2, 0.25 + bonus / 2**0.5, mean + bonus / 3**0.5, mean + bonus / 5**0.5, np.inf, np.inf]
    np.testing.assert_allclose(upper_bound(state, np.arange(6), 1.0, 2, 7), expected)
    nobody = SpeedState(in_vain, np.zeros(6), np.nan, np.nan, in_vain)
    np.testing.assert_allclose(upper_bound(nobody, np.array([3]), None, 2, 7), [bonus / 5**0.5])


@pytest.mark.parametrize("tau_min", [None, 2.0])
def test_nobody_has_a_speed_before_a_duration_is_known(tau_min):
    state = fresh_speed(3)
    state.counts[:2] = 1  # both failed
    assert mean_speed(state, np.arange(3), tau_min).tolist() == [0.0, 0.0, 0.0]
