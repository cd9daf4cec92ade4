"""REFL's selector: the forecast against one computed step by step, what it learns, and faults of the authors' code."""

import itertools
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedpick as fp
from zoo import outcome, view


def seen_rounds(policy, clients, masks, rng):
    """The state after rounds with these masks, the choice of each being the policy's."""
    state = policy.init(clients)
    for t, mask in enumerate(masks, 1):
        seen = view(clients, t, mask)
        choice = policy.select(state, seen, rng)
        state = policy.observe(state, seen, choice, outcome(choice, rng))
    return state


def twin(history, window):
    """Transitions counted with one more of each kind; the chain is then run forward from "there", step by step."""
    number = {(a, b): 1 for a in (True, False) for b in (True, False)}
    for before, after in itertools.pairwise(history):
        number[before, after] += 1
    stay = number[True, True] / (number[True, True] + number[True, False])
    come = number[False, True] / (number[False, True] + number[False, False])
    chance, total = 1.0, 0.0
    for _ in range(window):
        chance = chance * stay + (1 - chance) * come
        total += chance
    return total / window


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**20), window=st.sampled_from([1, 2, 7]), m=st.integers(1, 6))
def test_those_who_will_soonest_be_away_are_chosen(seed, window, m):
    rng = np.random.default_rng(seed)
    masks = rng.random((25, 8)) < rng.random(8)
    policy, clients = fp.REFL(m, window=window), fp.Clients(np.ones(8))
    state = seen_rounds(policy, clients, masks, rng)
    forecast = np.array([twin(masks[:, k].tolist(), window) for k in range(8)])
    np.testing.assert_allclose(policy.forecast(state, np.arange(8)), forecast, rtol=1e-9)
    now = rng.random(8) < 0.7  # who has come or stayed is seen before the choice, and counts
    forecast = np.array([twin([*masks[:, k].tolist(), True], window) for k in range(8)])
    choice = policy.select(state, view(clients, 26, now), rng)
    assert len(choice) == min(m, now.sum())
    if len(choice):
        rest = np.setdiff1d(np.flatnonzero(now), choice.ids)
        assert forecast[choice.ids].max() <= forecast[rest].min(initial=2.0) + 1e-12


def test_the_forecast_is_learned_from_what_was_seen_and_comes_to_the_truth():
    """Clients of a chain with known odds: within four standard errors after 1,500 rounds."""
    rng, rounds = np.random.default_rng(0), 1500
    stay, come = np.array([0.9, 0.5, 0.2]), np.array([0.1, 0.5, 0.6])
    masks, now = np.zeros((rounds, 3), dtype=bool), np.ones(3, dtype=bool)
    for t in range(rounds):
        now = rng.random(3) < np.where(now, stay, come)
        masks[t] = now
    policy = fp.REFL(1)
    state = seen_rounds(policy, fp.Clients(np.ones(3)), masks, rng)
    visits = masks.sum(axis=0)
    error = np.sqrt(stay * (1 - stay) / visits)
    assert (np.abs(policy.forecast(state, np.arange(3)) - stay) <= 4 * error + 2 / visits).all()
    oracle = np.argsort(stay)
    assert np.argsort(policy.forecast(state, np.arange(3))).tolist() == oracle.tolist()


def test_what_is_seen_before_the_choice_is_used_in_it():
    """Two clients have stayed and one has come: who has stayed will more likely stay again, so the third is chosen."""
    policy, clients, everyone = fp.REFL(1), fp.Clients(np.ones(3)), np.arange(3)
    state = seen_rounds(policy, clients, np.array([[1, 1, 0]], dtype=bool), np.random.default_rng(0))
    assert policy.forecast(state, everyone).tolist() == [0.5, 0.5, 0.5]
    assert policy.forecast(state, everyone, 2).tolist() == pytest.approx([2 / 3, 2 / 3, 1 / 2])
    assert policy.forecast(state, everyone, 7).tolist() == [0.5, 0.5, 0.5]  # what was between is not known
    for seed in range(20):
        assert policy.select(state, view(clients, 2), np.random.default_rng(seed)).ids.tolist() == [2]


def test_a_gap_in_the_rounds_is_no_transition():
    policy, clients = fp.REFL(2), fp.Clients(np.ones(2))
    state = policy.init(clients)
    none = fp.Choice([])
    for t, mask in ((1, [True, False]), (2, [True, True]), (9, [False, True])):
        state = policy.observe(state, view(clients, t, mask), none, fp.Outcome([], [], []))
    assert (state.stays.tolist(), state.comes.tolist(), state.leaves.tolist()) == ([1, 0], [0, 1], [0, 0])
    assert state.round == 9


def test_ties_are_broken_at_random_and_newcomers_have_an_even_forecast():
    policy, clients = fp.REFL(1), fp.Clients(np.ones(4))
    state = policy.init(clients)
    first = [policy.select(state, view(clients), np.random.default_rng(s)).ids[0] for s in range(2000)]
    assert (np.abs(np.bincount(first, minlength=4) / 2000 - 0.25) <= 4 * np.sqrt(0.1875 / 2000)).all()
    state = seen_rounds(policy, clients, [[True, True, False, True]] * 9, np.random.default_rng(0))
    state = fp.admit(policy, fp.retire(policy, state, [3, 2]), fp.Clients([1.0]))
    assert policy.forecast(state, np.array([0, 2])).tolist() == [pytest.approx(0.9), 0.5]


def theirs(ahead, m, rng):
    """The rule of the authors' code for more clients than places: `ahead` is the trace's next window."""
    draw = random.Random(int(rng.integers(2**31)))
    leaving, staying = [k for k in range(len(ahead)) if not ahead[k]], [k for k in range(len(ahead)) if ahead[k]]
    leaving = draw.sample(leaving, int(0.9 * len(leaving)))  # a forecast that is right 90% of the time
    staying = draw.sample(staying, int(0.9 * len(staying)))
    pool = leaving + (draw.sample(staying, m - len(leaving)) if m > len(leaving) else [])
    draw.shuffle(pool)
    return pool[: min(m, len(pool) - 1)]


def test_the_authors_faults_one_client_is_dropped_and_few_clients_raise():
    rng, clients = np.random.default_rng(0), fp.Clients(np.ones(12))
    ahead = np.arange(12) >= 3  # three are about to leave
    assert len(theirs(ahead, 4, rng)) == 3
    with pytest.raises(ValueError, match=r"[Ss]ample larger than population"):
        theirs(ahead, 11, rng)
    for m in (4, 11, 12, 20):
        policy = fp.REFL(m)
        assert len(policy.select(policy.init(clients), view(clients), rng)) == min(m, 12)
    few = fp.REFL(3).select(fp.REFL(3).init(clients), view(clients, 1, np.arange(12) == 5), rng)
    assert few.ids.tolist() == [5]


def test_the_authors_fault_the_trace_is_an_oracle():
    """Whatever comes after does not change our choice; that of a selector which reads it does change."""
    rng = np.random.default_rng(0)
    masks, policy, clients = rng.random((12, 9)) < 0.6, fp.REFL(2), fp.Clients(np.ones(9))
    state, now = seen_rounds(policy, clients, masks, rng), np.ones(9, dtype=bool)
    ours, oracle = set(), set()
    for seed in range(20):
        ahead = np.random.default_rng(seed).random(9) < 0.5  # of the trace, which nobody can know
        ours.add(tuple(policy.select(state, view(clients, 13, now), np.random.default_rng(1)).ids.tolist()))
        oracle.add(tuple(sorted(theirs(ahead, 2, np.random.default_rng(1)))))
    assert len(ours) == 1
    assert len(oracle) > 1


def test_a_setting_out_of_bounds_is_refused():
    with pytest.raises(fp.SettingError, match="REFL: window = 0, but must be a whole number >= 1"):
        fp.REFL(2, window=0)
    with pytest.raises(fp.SettingError, match="REFL: cohort_size = 0"):
        fp.REFL(0)
