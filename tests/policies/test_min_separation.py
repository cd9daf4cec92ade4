"""MinSeparation keeps its bounds whatever is inside, through restarts and with late updates."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedpick as fp
from zoo import outcome, view

CLIENTS = fp.Clients(np.arange(1.0, 13.0), features=np.random.default_rng(1).dirichlet(np.ones(4), 12))
INSIDE = [
    lambda m: fp.Uniform(m),
    lambda m: fp.E3CS(m),
    lambda m: fp.Oort(m),
    lambda m: fp.PowerOfChoice(m, variant="rpow-d"),
    lambda m: fp.FedGS(m),
    lambda m: fp.OverSelect(fp.BSFL(m), 1.5),
]


def played(policy, rounds, seed, clients=CLIENTS, folder=None):
    """The log of a run: (rounds, clients); with a folder, saved and loaded again at random."""
    rng = np.random.default_rng(seed)
    state, when, who = policy.init(clients), [], []
    for t in range(1, rounds + 1):
        seen = view(clients, t, rng.random(len(clients)) < rng.choice([0.2, 0.7, 1.0]))
        choice = policy.select(state, seen, rng)
        state = policy.observe(state, seen, choice, outcome(choice, rng))
        when += [t] * len(choice)
        who += choice.ids.tolist()
        if folder is not None and rng.random() < 0.1:
            fp.save_state(policy, state, folder / "state.npz")
            state, _ = fp.load_state(policy, folder / "state.npz", clients)
    return np.array(when), np.array(who)


def twin(when, who, separation, at_most):
    """Whether the bounds hold, client by client."""
    for client in set(who.tolist()):
        own = sorted(when[who == client].tolist())
        if any(b - a < separation for a, b in itertools.pairwise(own)):
            return False
        if at_most is not None and len(own) > at_most:
            return False
    return True


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**20),
    make=st.sampled_from(INSIDE),
    m=st.integers(1, 6),
    rounds=st.integers(1, 7),
    at_most=st.sampled_from([None, 1, 3]),
)
def test_the_bounds_hold_around_any_policy(seed, make, m, rounds, at_most):
    policy = fp.MinSeparation(make(m), rounds, at_most)
    when, who = played(policy, 25, seed)
    assert twin(when, who, rounds, at_most)


def test_the_bounds_hold_through_restarts_and_bare_policies_break_them(tmp_path):
    policy = fp.MinSeparation(fp.Uniform(2), 5, at_most=20)
    when, who = played(policy, 300, 0, folder=tmp_path)
    assert twin(when, who, 5, 20)
    bare = played(fp.Uniform(2), 300, 0)
    assert not twin(*bare, 5, 20)


@pytest.mark.slow
def test_no_violation_in_a_hundred_thousand_rounds(tmp_path):
    for seed in range(10):
        policy = fp.MinSeparation(fp.Uniform(3), 1 + seed, at_most=None if seed % 2 else 2000)
        when, who = played(policy, 10_000, seed, fp.Clients(np.ones(40)))
        assert twin(when, who, 1 + seed, None if seed % 2 else 2000)


def test_a_round_apart_is_no_bound_and_a_plain_cycle_is_not_it():
    """With `rounds=1` the policy chooses as it does alone; a cycle breaks its distance when somebody was away."""
    one, other = played(fp.MinSeparation(fp.E3CS(3), 1), 30, 4), played(fp.E3CS(3), 30, 4)
    np.testing.assert_array_equal(one[1], other[1])
    rng, last, broken = np.random.default_rng(0), np.zeros(12, dtype=int), 0
    for t in range(1, 200):  # the faulty rule: the next three of those that are there
        there = np.flatnonzero(rng.random(12) < 0.5)
        cohort = np.roll(there, -3 * t)[:3]
        broken += int(((last[cohort] > 0) & (t - last[cohort] < 4)).sum())
        last[cohort] = t
    assert broken > 0
    assert twin(*played(fp.MinSeparation(fp.Uniform(3), 4), 200, 0), 4, None)


def test_cohorts_are_as_large_as_may_be():
    policy = fp.MinSeparation(fp.Uniform(5), 3)
    state, sizes = policy.init(CLIENTS), []
    for t in range(1, 8):
        choice = policy.select(state, view(CLIENTS, t), np.random.default_rng(t))
        sizes.append(len(choice))
        state = policy.observe(state, view(CLIENTS, t), choice, outcome(choice, np.random.default_rng(0)))
    assert sizes == [5, 5, 2, 5, 5, 2, 5]


def test_newcomers_may_take_part_at_once_and_leavers_take_their_history_along():
    policy = fp.MinSeparation(fp.E3CS(2), 10, at_most=3)
    state = policy.init(fp.Clients(np.ones(3)))
    seen = view(fp.Clients(np.ones(3)), 1)
    choice = policy.select(state, seen, np.random.default_rng(0))
    state = policy.observe(state, seen, choice, outcome(choice, np.random.default_rng(0)))
    state = fp.retire(policy, state, choice.ids)
    assert (state.last.tolist(), state.counts.tolist()) == ([1, 1], [1, 1])
    state = fp.admit(policy, state, fp.Clients(np.ones(2)))
    assert policy.select(state, view(fp.Clients(np.ones(4)), 2), np.random.default_rng(0)).ids.tolist() == [2, 3]


def test_wrappers_compose_and_say_what_they_are():
    for policy in (
        fp.MinSeparation(fp.OverSelect(fp.Oort(10), 1.3), 5),
        fp.OverSelect(fp.MinSeparation(fp.Oort(10), 5), 1.3),
    ):
        said = fp.traits(policy)
        assert (said.cohort_size, said.asks, said.fixed_size) == (10, 13, False)
        assert [report.name for report in said.reports] == ["squared_loss"]
        clients = fp.Clients(np.ones(100))
        assert len(policy.select(policy.init(clients), view(clients), np.random.default_rng(0))) == 13
    made = fp.policy("min-separation(over-select(oort, 1.5), 7, at_most=2)", cohort_size=4)
    assert made == fp.MinSeparation(fp.OverSelect(fp.Oort(4), 1.5), 7, 2)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: fp.MinSeparation(fp.Uniform(2), 0), "MinSeparation: rounds = 0, but must be a whole number >= 1"),
        (lambda: fp.MinSeparation(fp.Uniform(2), 2, 0), "MinSeparation: at_most = 0, but must be a whole number >= 1"),
        (lambda: fp.MinSeparation(fp.SizeWeighted(2), 2), "SizeWeighted draws with replacement"),
        (lambda: fp.MinSeparation(fp.OverSelect(fp.MinSeparation(fp.Uniform(2)))), "contains one already"),
        (lambda: fp.OverSelect(fp.MinSeparation(fp.OverSelect(fp.Uniform(2)))), "contains one already"),
    ],
)
def test_what_makes_no_sense_is_an_error(make, text):
    with pytest.raises(fp.SettingError, match=text):
        make()


def test_who_still_works_or_whose_update_waits_takes_part() -> None:
    """The distance begins in the last round in which the update of an earlier one could be used."""
    policy, clients = fp.MinSeparation(fp.Uniform(3), 3), fp.Clients(np.ones(3))
    state, asked = policy.init(clients), {}
    for t in range(1, 12):
        works, waits = np.array([t in (2, 3), False, False]), np.array([t == 4, t == 2, False])
        seen = fp.View(t, ~works, clients, there=np.ones(3, bool), busy=works, held=waits)
        choice = policy.select(state, seen, np.random.default_rng(t))
        state = policy.observe(state, seen, choice, outcome(choice, np.random.default_rng(0)))
        asked |= {(t, k): True for k in choice.ids.tolist()}
    assert [t for t in range(1, 12) if (t, 0) in asked] == [1, 7, 10]  # its update could be used in round 4
    assert [t for t in range(1, 12) if (t, 1) in asked] == [1, 5, 8, 11]
    assert [t for t in range(1, 12) if (t, 2) in asked] == [1, 4, 7, 10]
    assert state.counts.tolist() == [3, 4, 4]


def test_how_long_it_must_remember() -> None:
    assert fp.traits(fp.MinSeparation(fp.Uniform(2))).remembers == 0
    assert fp.traits(fp.MinSeparation(fp.Uniform(2), 10)).remembers == 9
    assert fp.traits(fp.MinSeparation(fp.Uniform(2), 10, at_most=5)).remembers == np.inf
    assert fp.traits(fp.Uniform(2)).remembers == 0
