"""FL-DP3S against the determinants of all cohorts."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedpick as fp
from fedpick.policies import fldp3s
from zoo import view


def twin(profiles, m):
    """P of every cohort of m: det(L_Y) over the sum of all of these; S by loops."""
    K = len(profiles)
    apart = [[sum((x - y) ** 2 for x, y in zip(a, b, strict=True)) ** 0.5 for b in profiles] for a in profiles]
    largest = max(max(row) for row in apart)
    S = np.array([[1 - apart[i][j] / largest for j in range(K)] for i in range(K)])
    L = S.T @ S
    odds = {Y: np.linalg.det(L[np.ix_(Y, Y)]) for Y in itertools.combinations(range(K), m)}
    total = sum(odds.values())
    return {Y: each / total for Y, each in odds.items()}


def clients_of(profiles):
    return fp.Clients(np.ones(len(profiles)), features=profiles)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**20), m=st.integers(1, 5))
def test_chances_are_those_of_the_determinants(seed, m):
    rng = np.random.default_rng(seed)
    profiles, policy = rng.normal(size=(7, 3)), fp.FLDP3S(m)
    clients = clients_of(profiles)
    there = np.arange(7) != seed % 7
    sets = twin(profiles[there].tolist(), m)
    wanted = [sum(p for Y, p in sets.items() if k in Y) for k in range(6)]
    choice = policy.select(policy.init(clients), view(clients, 1, there), rng)
    np.testing.assert_allclose(choice.chances, wanted, rtol=1e-6)
    np.testing.assert_allclose(choice.inclusion, choice.chances[np.isin(np.flatnonzero(there), choice.ids)])
    assert sum(choice.chances) == pytest.approx(m)


def test_cohorts_come_as_often_as_their_determinants():
    profiles = np.random.default_rng(0).normal(size=(6, 2))
    clients, policy, draws = clients_of(profiles), fp.FLDP3S(3), 1500
    sets, rng, found = twin(profiles.tolist(), 3), np.random.default_rng(1), {}
    for _ in range(draws):
        ids = tuple(policy.select(policy.init(clients), view(clients), rng).ids.tolist())
        found[ids] = found.get(ids, 0) + 1
    for Y, p in sets.items():
        assert abs(found.get(Y, 0) / draws - p) <= 4 * np.sqrt(p * (1 - p) / draws) + 1e-12


def test_of_clients_that_are_alike_seldom_two_are_in_a_cohort():
    """Two kinds, a small difference inside each: a cohort of two has both nearly always; a uniform one in 60%."""
    rng = np.random.default_rng(0)
    profiles = np.repeat([[0.0, 1.0], [1.0, 0.0]], 3, axis=0) + 0.01 * rng.normal(size=(6, 2))
    sets = twin(profiles.tolist(), 2)
    assert sum(p for Y, p in sets.items() if Y[0] < 3 <= Y[1]) > 0.99
    clients, policy = clients_of(profiles), fp.FLDP3S(2)
    ids = [policy.select(policy.init(clients), view(clients), rng).ids for _ in range(100)]
    assert np.mean([a < 3 <= b for a, b in ids]) > 0.95


def test_a_rank_below_the_cohort_is_filled_uniformly():
    clients, policy = clients_of(np.repeat([[0.0], [1.0]], 4, axis=0)), fp.FLDP3S(5)
    counts = np.zeros(8)
    for seed in range(400):
        choice = policy.select(policy.init(clients), view(clients), np.random.default_rng(seed))
        assert len(np.unique(choice.ids)) == 5
        assert (choice.ids < 4).any()
        assert (choice.ids >= 4).any()
        assert choice.inclusion is None
        counts[choice.ids] += 1
    assert (np.abs(counts / 400 - 5 / 8) <= 4 * np.sqrt(15 / 64 / 400)).all()
    one = clients_of(np.ones((4, 2)))  # all alike
    assert len(fp.FLDP3S(3).select(policy.init(one), view(one), np.random.default_rng(0)).ids) == 3


def test_what_is_missing_or_too_much_is_said(monkeypatch):
    policy, bare = fp.FLDP3S(2), fp.Clients(np.ones(3))
    with pytest.raises(fp.MissingError, match=r"FLDP3S needs Clients\.features"):
        policy.select(policy.init(bare), view(bare), np.random.default_rng(0))
    monkeypatch.setattr(fldp3s, "MOST_CLIENTS", 4)
    many = clients_of(np.ones((5, 1)))
    with pytest.raises(fp.SettingError, match="FLDP3S: available clients = 5, but must be at most 4"):
        policy.select(policy.init(many), view(many), np.random.default_rng(0))
    few = clients_of(np.ones((2, 1)))
    assert policy.select(policy.init(few), view(few), np.random.default_rng(0)).inclusion.tolist() == [1.0, 1.0]
