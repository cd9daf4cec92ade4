"""What a server does not learn is no news: over-selection, pauses and late work do not change whom a policy prefers.

The slow half of the clients takes five times as long as the fast half; data and losses of the halves are alike.
"""

from dataclasses import replace

import numpy as np
import pytest
from harness import DONE, FAILED, LATE, SURPLUS, Setting, fast_to_slow, jain, people, play

import fedpick as fp

M, FACTOR = 10, 1.4
ROUNDS, SEEDS = 200, 4
# Ratios of single runs (8 seeds each) had a standard deviation of at most .08, so that of a mean of four is .04. Values
# that are kept for want of news change less often, which alone favours slow clients by up to a tenth (active-fl, .92).
# The bounds are this and three standard errors, and the inverse.
LOW, HIGH = 0.8, 1.25


def over(policy):
    return fp.OverSelect(policy, FACTOR)


@pytest.mark.parametrize("grace", [0.0, 1.0])
@pytest.mark.parametrize("policy", [fp.ActiveFL(M), fp.PowerOfChoice(M, variant="rpow-d"), fp.E3CS(M), fp.HiCS(M)])
def test_over_selection_makes_no_policy_prefer_fast_clients(policy, grace):
    """Before: 8.3 (active-fl) and 6.1 (rpow-d) in the issue's world; here 5.7 and 2.9."""
    assert LOW <= fast_to_slow(over(policy), ROUNDS, setting=Setting(grace=grace), seeds=SEEDS) <= HIGH


@pytest.mark.parametrize(
    "policy",
    [fp.Oort(M), fp.TiFL(M), fp.CSUCB(M), fp.CSUCB(M, variant="cs-ucb-q"), fp.BSFL(M), fp.GreedyFed(M), fp.RBCSF(M)],
    ids=lambda policy: type(policy).__name__,
)
def test_over_selection_makes_no_policy_prefer_fast_clients_more_than_it_does_alone(policy):
    """Oort and the bandits look for fast clients: the bound is what they do when they wait for as many as they ask."""
    alone = fast_to_slow(replace(policy, cohort_size=14), ROUNDS, seeds=SEEDS)
    assert fast_to_slow(over(policy), ROUNDS, seeds=SEEDS) <= HIGH * max(alone, 1.0)


@pytest.mark.parametrize(
    "policy",
    [fp.PowerOfChoice(M, variant="rpow-d"), fp.TiFL(M), fp.CSUCB(M), fp.BSFL(M), fp.GreedyFed(M), fp.HiCS(M)],
    ids=lambda policy: type(policy).__name__,
)
def test_clients_that_are_never_waited_for_are_not_asked_first_for_ever(policy):
    """Four clients, as many as are asked too many, never answer in time."""
    seconds = np.where(np.arange(50) < 4, 1e6, 1.0)
    counts = play(over(policy), people(50), seconds, 150, Setting(noise=0.1)).counts
    assert counts[:4].max() <= 0.75 * 150  # before three choices in vain are counted: all of them
    assert counts[:4].mean() <= 2.0 * counts[4:].mean()


def test_a_pause_is_no_absence_for_refl():
    """Before: Jain's index .50, and 50 of 100 clients never chosen."""
    counts = play(fp.MinSeparation(fp.REFL(10), 5), people(100), np.ones(100), 300).counts
    assert (counts > 0).all()
    assert jain(counts) >= 0.95  # .97 if uniform: counts of mean 30 and variance 27; pauses make them more equal


def test_late_work_is_no_absence_for_refl():
    """Before: slow clients, which are often busy, were chosen four times as often as fast ones, or more."""
    late = Setting(deadline=2.5, late=True)
    refl, uniform = fast_to_slow(fp.REFL(M), setting=late), fast_to_slow(fp.Uniform(M), setting=late)
    assert refl == pytest.approx(uniform, rel=0.1)  # busy clients cannot be chosen, by any policy
    assert uniform >= 1.0


def test_fedcor_learns_the_changes_of_a_cohort_that_pauses():
    """Before: a cohort was not probed in the round after, because MinSeparation let it pause."""
    log = play(fp.MinSeparation(fp.FedCor(5, warmup=4, interval=5), 4), people(30), np.ones(30), 5)
    inner = log.state.inner
    for t in range(1, 5):
        column = inner.changes[:, np.flatnonzero(inner.when == t)[0]]
        assert np.isfinite(column).all()
        assert np.isfinite(column[log.rounds[t - 1][0]]).all()


def test_fedcor_probes_nobody_who_is_busy():
    log = play(
        fp.FedCor(5, warmup=4, interval=5), people(30), np.linspace(1, 5, 30), 20, Setting(deadline=2.5, late=True)
    )
    assert log.ended(LATE) > 0  # the harness refuses probes of busy clients


def view_of(count, t=1, **masks):
    return fp.View(t, np.ones(count, dtype=bool), people(count), context=np.ones((count, 3)), **masks)


def test_what_arrived_from_a_surplus_client_is_news():
    policy, view, both = fp.ActiveFL(2), view_of(3), fp.Choice([0, 1])
    state = policy.observe(policy.init(view.clients), view, both, fp.Outcome([DONE, SURPLUS], [1, 2], [0.5, 0.7]))
    assert state.value[:2] == pytest.approx([5.0, 7.0])
    state = policy.observe(state, view, both, fp.Outcome([DONE, SURPLUS], [1.0, 2.0], [0.1, np.nan]))
    assert state.value[:2] == pytest.approx([1.0, 7.0])  # a duration says nothing of the loss
    state = policy.observe(state, view, both, fp.Outcome([DONE, FAILED], [1.0, np.nan], [0.1, np.nan]))
    assert state.value[:2] == pytest.approx([1.0, 1.0])


def test_oort_keeps_what_it_knew_and_tries_again_who_never_answered():
    policy, view, three = fp.Oort(3), view_of(4, 2), fp.Choice([0, 1, 2])
    state = policy.init(view.clients)
    first = fp.Outcome([DONE, DONE, SURPLUS], [1.0, 2.0, np.nan], [0.5, 0.7, np.nan])
    state = policy.observe(state, view_of(4), three, first)
    assert state.last.tolist() == [1, 1, 0, 0]
    assert state.counts.tolist() == [1, 1, 1, 0]
    second = fp.Outcome([DONE, SURPLUS, SURPLUS], [1.0, np.nan, 3.0], [0.5, np.nan, np.nan])
    state = policy.observe(state, view, three, second)
    assert state.utility[1] == pytest.approx(70.0)
    assert state.duration[:3].tolist() == [1.0, 2.0, 3.0]
    assert state.last.tolist() == [2, 1, 2, 0]


def test_guard_holds_no_failure_against_a_client_that_was_not_waited_for_and_forgives_none():
    policy, view, both = fp.Guard(fp.Uniform(2)), view_of(3), fp.Choice([0, 1])
    state = policy.init(view.clients)
    for status in (FAILED, SURPLUS, SURPLUS, LATE):
        outcome = fp.Outcome([DONE, status], [1.0, np.nan], [0.5, np.nan])
        state = policy.observe(state, view, both, outcome)
    assert state.failures.tolist() == [0, 2, -1]
    state = policy.observe(state, view, both, fp.Outcome([DONE, SURPLUS], [1.0, 1.0], [0.5, np.nan]))
    assert state.failures.tolist() == [0, 0, -1]  # it answered


def test_guard_counts_the_share_among_those_who_are_there():
    policy, half = fp.Guard(fp.Uniform(1), cap=1.0, window=0), np.array([True, True, False, False])
    clients, there = people(4), np.ones(4, dtype=bool)
    for seen, share in ((there, 0.25), (half, 0.5)):
        view = fp.View(1, half, clients, there=seen)
        state = policy.init(clients)
        state.used[3] = 2.0
        state = policy.observe(state, view, fp.Choice([0]), fp.Outcome([DONE], [1.0], [1.0]))
        assert state.used[3] == pytest.approx(2.0 - share)


def test_rbcsf_lets_the_queue_of_a_client_grow_while_it_pauses():
    there = np.array([True, True, True, False])
    policy, clients = fp.RBCSF(1, absent="freeze"), people(4)
    view = fp.View(1, np.array([True, False, False, False]), clients, context=np.ones((4, 3)), there=there)
    state = policy.observe(policy.init(clients), view, fp.Choice([0]), fp.Outcome([DONE], [1.0], [1.0]))
    assert state.queue.tolist() == pytest.approx([0.0, 0.1875, 0.1875, 0.0])
    assert state.there.tolist() == [1, 1, 1, 0]


def test_min_separation_does_not_ask_a_client_whose_update_waits_to_be_used():
    policy, clients = fp.MinSeparation(fp.Uniform(4), 2), people(4)
    view = fp.View(1, np.ones(4, dtype=bool), clients, held=np.array([False, True, False, True]))
    assert policy.select(policy.init(clients), view, np.random.default_rng(0)).ids.tolist() == [0, 2]


@pytest.mark.parametrize("make", [fp.BSFL, fp.CSUCB])
def test_a_bandit_counts_whom_it_chose_and_averages_what_it_measured(make):
    policy, clients, both = make(2), people(3), fp.Choice([0, 1])
    state = policy.init(clients)
    for t, seconds in enumerate([4.0, np.nan, np.nan, 2.0], start=1):
        status = [DONE, SURPLUS if np.isnan(seconds) else DONE]
        state = policy.observe(state, view_of(3, t), both, fp.Outcome(status, [1.0, seconds], [0.5, np.nan]))
    assert state.speed.counts.tolist() == [4, 4, 0]
    assert state.speed.timed.tolist() == [4, 2, 0]
    assert state.speed.rate.tolist() == pytest.approx([1.0, (1 / 4 + 1 / 2) / 2, 0.0])


def test_tifl_gives_no_time_to_a_client_that_was_not_waited_for():
    policy, clients, both = fp.TiFL(2, tiers=2), people(4), fp.Choice([0, 1])
    state = policy.init(clients)
    for t in (1, 2, 3):
        state = policy.observe(state, view_of(4, t), both, fp.Outcome([DONE, SURPLUS], [1.0, np.nan], [0.5, np.nan]))
        assert np.isnan(state.duration[1])
    state = policy.observe(state, view_of(4, 4), both, fp.Outcome([DONE, FAILED], [1.0, np.nan], [0.5, np.nan]))
    assert np.isinf(state.duration[1])
