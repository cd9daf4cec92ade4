"""DivFL: whom it chooses, what they weigh, what becomes of clients never heard; and faults of the authors' code."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedpick as fp
from fedpick.policies._vectors import VectorState
from zoo import view


def state_of(vectors, counts=None):
    return VectorState(np.ones(len(vectors), dtype=np.int64) if counts is None else np.array(counts), np.array(vectors))


def reach(vectors, chosen):
    """(4) of the paper, with loops."""
    return sum(min(np.linalg.norm(v - vectors[i]) for i in chosen) for v in vectors)


def greedy_reach(vectors, m, available):
    """The least that greedy choice reaches, whichever of several equally good clients it takes."""
    cohorts = [[]]
    for _ in range(min(m, int(np.sum(available)))):
        longer = [[*cohort, j] for cohort in cohorts for j in np.flatnonzero(available) if j not in cohort]
        values = {}
        for cohort in longer:
            values.setdefault(tuple(cohort[:-1]), []).append((reach(vectors, cohort), cohort))
        cohorts = []
        for found in values.values():
            best = min(value for value, _ in found)
            cohorts += [cohort for value, cohort in found if value <= best + 1e-9]
    return {tuple(sorted(map(int, cohort))) for cohort in cohorts}


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**20), count=st.integers(1, 9), m=st.integers(1, 4))
def test_it_is_greedy_facility_location_and_weights_count_those_who_are_stood_for(seed, count, m):
    rng = np.random.default_rng(seed)
    vectors, available = rng.normal(size=(count, 3)), rng.random(count) < 0.7
    policy, clients = fp.DivFL(m, width=3), fp.Clients(rng.integers(1, 9, count))
    choice = policy.select(state_of(vectors), view(clients, 5, available), rng)
    assert tuple(choice.ids.tolist()) in greedy_reach(vectors, m, available)
    if len(choice):
        near = [min(choice.ids.tolist(), key=lambda i: np.linalg.norm(v - vectors[i])) for v in vectors]
        assert choice.weights.tolist() == [near.count(i) for i in choice.ids.tolist()]


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**20), count=st.integers(1, 9), m=st.integers(1, 6))
def test_of_clients_alike_each_that_is_chosen_stands_for_itself(seed, count, m):
    """Vectors of few values, so that many are equal: nobody trains for a weight of 0, and each client counts once."""
    rng = np.random.default_rng(seed)
    vectors, clients = rng.integers(0, 2, (count, 2)).astype(float), fp.Clients(rng.integers(1, 9, count))
    choice = fp.DivFL(m, width=2).select(state_of(vectors), view(clients, 5), rng)
    chosen = choice.ids.tolist()
    far = np.linalg.norm(vectors[:, None] - vectors[chosen], axis=2)
    nearest = far <= far.min(axis=1, keepdims=True) + 1e-12
    assert choice.weights.sum() == count
    assert (choice.weights >= 1).all()
    assert (choice.weights <= nearest.sum(axis=0)).all()
    for place in np.unique(vectors[chosen], axis=0):  # those at one place share what is nearest to it
        here = (vectors[chosen] == place).all(axis=1)
        others = far[:, ~here].min(axis=1, initial=np.inf)
        assert choice.weights[here].sum() >= np.count_nonzero(far[:, here].min(axis=1) < others)


def test_weights_by_size_are_those_of_the_authors_code():
    vectors, clients = (
        np.array([[0.0, 0.0], [0.1, 0.0], [5.0, 5.0], [np.nan, np.nan]]),
        fp.Clients([1.0, 2.0, 3.0, 4.0]),
    )
    by_size, paper = (
        fp.DivFL(3, width=2, weights=weights).select(state_of(vectors), view(clients), np.random.default_rng(0))
        for weights in ("size", "represented")
    )
    assert by_size.ids.tolist() == paper.ids.tolist()
    assert by_size.weights is None  # FedAvg's own
    with pytest.raises(fp.UnknownNameError, match="'sizes'; did you mean 'size'"):
        fp.DivFL(3, weights="sizes")


def test_clients_never_tried_come_first_and_one_that_only_fails_does_not_keep_its_place():
    policy, clients, rng = fp.DivFL(2, width=2), fp.Clients(np.ones(8)), np.random.default_rng(0)
    state, seen, chosen = policy.init(clients), set(), []
    for t in range(1, 40):
        choice = policy.select(state, view(clients, t), rng)
        chosen.append(choice.ids.tolist())
        status = np.where(choice.ids == 3, fp.Status.FAILED, fp.Status.DONE)
        report = np.column_stack([choice.ids, np.ones(len(choice))]).astype(float)
        state = policy.observe(
            state, view(clients, t), choice, fp.Outcome(status, [1, 1], [1, 1], {"sketch_2": report})
        )
        seen |= set(choice.ids.tolist())
        assert len(seen) == min(2 * t, 8)
    asked = np.mean([3 in ids for ids in chosen[4:]])
    assert 0 < asked <= 2 / 8 + 4 * math.sqrt(2 / 8 * 6 / 8 / len(chosen[4:]))  # as by uniform choice


def test_clients_never_heard_fill_the_places_that_are_left():
    state = state_of([[np.nan, np.nan], [1.0, 0.0], [np.nan, np.nan], [np.nan, np.nan]])
    policy, clients = fp.DivFL(3, width=2), fp.Clients(np.ones(4))
    for seed in range(20):
        choice = policy.select(state, view(clients), np.random.default_rng(seed))
        assert len(set(choice.ids.tolist())) == 3
        assert choice.weights.tolist() == [1.0, 1.0, 1.0]


def test_a_client_never_tried_stands_for_itself():
    near = [[0.0, 0.0], [0.1, 0.0], [0.0, 0.1], [np.nan, np.nan]]
    state = state_of(near, [1, 1, 1, 0])
    choice = fp.DivFL(2, width=2).select(state, view(fp.Clients(np.ones(4))), np.random.default_rng(0))
    assert choice.ids.tolist() == [0, 3]
    assert choice.weights.tolist() == [3.0, 1.0]


def test_newcomers_leavers_and_reports_of_other_widths():
    policy, clients = fp.DivFL(2, width=None), fp.Clients(np.ones(3))
    outcome = fp.Outcome([0, 0], [1, 1], [1, 1], {"update": [[1.0, 2.0, 3.0], [np.inf, 0, 0]]})
    state = policy.observe(policy.init(clients), view(clients), fp.Choice([0, 2]), outcome)
    assert state.vectors.shape == (3, 3)
    state = fp.admit(policy, fp.retire(policy, state, [2, 0]), fp.Clients([1.0]))
    assert np.isnan(state.vectors).all(axis=1).tolist() == [True, False, True]
    assert state.counts.tolist() == [1, 1, 0]
    assert len(policy.select(state, view(clients, 2), np.random.default_rng(0))) == 2


def test_settings_and_limits_are_said(monkeypatch):
    with pytest.raises(fp.SettingError, match="DivFL: width = 0"):
        fp.DivFL(3, width=0)
    with pytest.raises(fp.SettingError, match="DivFL: candidates = 0"):
        fp.DivFL(3, candidates=0)
    monkeypatch.setattr("fedpick.policies.divfl.MOST_CLIENTS", 3)
    clients = fp.Clients(np.ones(4))
    with pytest.raises(fp.SettingError, match="DivFL: clients = 4, but must be at most 3"):
        fp.DivFL(2).select(fp.DivFL(2).init(clients), view(clients), np.random.default_rng(0))


def test_of_many_clients_some_candidates_are_looked_at(monkeypatch):
    monkeypatch.setattr("fedpick.policies.divfl.ALL_UP_TO", 20)
    vectors = np.random.default_rng(0).normal(size=(60, 3))
    choice = fp.DivFL(6, width=3).select(state_of(vectors), view(fp.Clients(np.ones(60))), np.random.default_rng(0))
    assert len(choice) == 6
    assert choice.weights.sum() == 60


# ---- faults of the authors' code


def test_the_authors_fault_without_weights_a_large_group_counts_no_more_than_a_small_one():
    """90 clients pull one way and 10 the other: with the weights the mean is that of all, without it is 0."""
    vectors = np.array([[1.0, 0.0]] * 90 + [[-1.0, 0.0]] * 10)
    choice = fp.DivFL(2, width=2).select(state_of(vectors), view(fp.Clients(np.ones(100))), np.random.default_rng(0))
    everyone = vectors.mean(axis=0)
    ours = choice.shares(np.ones(2, bool)) @ vectors[choice.ids]
    faulty = vectors[choice.ids].mean(axis=0)
    np.testing.assert_allclose(ours, everyone)
    assert np.abs(faulty - everyone).max() == pytest.approx(0.8)


def test_the_authors_fault_power_of_choice_partitions_at_the_wrong_end():
    """Of 100 losses the ten highest: the last of an array in which the ten smallest alone were put in their place."""
    hits, ours = [], []
    clients = fp.Clients(np.ones(100))
    for seed in range(50):
        losses = np.random.default_rng(seed).random(100)
        best = set(np.argsort(losses)[-10:].tolist())
        smallest = np.argsort(losses)[:10]
        faulty = np.concatenate([smallest, np.setdiff1d(np.arange(100), smallest)])[-10:]
        hits.append(len(best & set(faulty.tolist())) / 10)
        seen = view(clients, probe=lambda ids, batch=None, losses=losses: losses[ids])
        policy = fp.PowerOfChoice(10, 100)
        choice = policy.select(policy.init(clients), seen, np.random.default_rng(seed))
        ours.append(len(best & set(choice.ids.tolist())) / 10)
    assert np.mean(hits) < 0.6
    assert np.mean(ours) == 1.0
