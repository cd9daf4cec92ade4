"""HiCS: entropies, clusters and odds against loops; and the authors' code with more clusters than places."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import entropy as scipy_entropy

import fedpick as fp
from fedpick.policies.hics import HiCSState, entropies
from zoo import view


def state_of(vectors, counts=None):
    chosen = np.ones(len(vectors), dtype=np.int64) if counts is None else np.array(counts)
    return HiCSState(chosen, np.array(vectors), np.zeros(len(vectors), dtype=np.int64))


def distance(a, b, height):
    """The paper's: the angle between two updates plus the weighted difference of entropies."""
    cosine = a @ b / (np.linalg.norm(a) * np.linalg.norm(b))
    return math.acos(min(max(cosine, -1.0), 1.0)) + height


def twin_clusters(vectors, heights, count):
    """Merge the two clusters with the smallest mean distance until `count` are left."""
    groups = [[i] for i in range(len(vectors))]
    while len(groups) > count:

        def mean(g, h):
            pairs = [distance(vectors[i], vectors[j], abs(heights[i] - heights[j])) for i in g for j in h]
            return sum(pairs) / len(pairs)

        pairs = [(x, y) for x in range(len(groups)) for y in range(x)]
        a, b = min(pairs, key=lambda pair: mean(groups[pair[0]], groups[pair[1]]))
        groups[b] += groups.pop(a)
    return {frozenset(group) for group in groups}


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**20), count=st.integers(2, 9), clusters=st.integers(1, 5))
def test_clusters_and_entropies_are_the_papers(seed, count, clusters):
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(count, 4))
    policy = fp.HiCS(3, clusters=clusters, temperature=0.5, balance=2.0)
    p = np.exp(vectors / 0.5) / np.exp(vectors / 0.5).sum(axis=1, keepdims=True)
    wanted = scipy_entropy(p, axis=1)
    np.testing.assert_allclose(entropies(vectors, 0.5), wanted, rtol=1e-9)
    label, mean = policy.groups(state_of(vectors), np.arange(count))
    found = {frozenset(np.flatnonzero(label == g).tolist()) for g in range(label.max() + 1)}
    assert found == twin_clusters(vectors, 2.0 * wanted, min(clusters, count))
    for g in range(label.max() + 1):
        assert mean[g] == pytest.approx(wanted[label == g].mean())


def test_balanced_clusters_are_drawn_by_the_exponential_of_their_entropy():
    """Two clusters of two and one place: the chance of each client, within four standard errors."""
    vectors = np.array([[1.0, 1.01], [1.01, 1.0], [3.0, 0.0], [3.0, 0.01]])
    policy, clients, draws = fp.HiCS(1, clusters=2, gamma=2.0, temperature=1.0), fp.Clients(np.ones(4)), 1000
    H = entropies(vectors, 1.0)
    odds = np.exp(2.0 * np.array([H[:2].mean(), H[2:].mean()]))
    wanted = np.repeat(odds / odds.sum(), 2) / 2
    counts, rng = np.zeros(4), np.random.default_rng(0)
    for _ in range(draws):
        counts[policy.select(state_of(vectors), view(clients), rng).ids] += 1
    assert (np.abs(counts / draws - wanted) <= 4 * np.sqrt(wanted * (1 - wanted) / draws)).all()


def test_gamma_falls_to_0_over_the_horizon():
    vectors = np.array([[1.0, 1.0], [9.0, 0.0]])
    policy, clients = fp.HiCS(1, clusters=2, gamma=50.0, temperature=1.0, horizon=10), fp.Clients(np.ones(2))
    state = state_of(vectors)

    def pick(t):
        return [policy.select(state, view(clients, t), np.random.default_rng(s)).ids[0] for s in range(100)]

    assert np.mean(pick(1)) == 0.0
    assert abs(np.mean(pick(11)) - 0.5) <= 4 * 0.5 / 10


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**20), m=st.integers(1, 6), clusters=st.sampled_from([None, 1, 4, 12]))
def test_cohorts_are_whole_distinct_and_there(seed, m, clusters):
    rng = np.random.default_rng(seed)
    policy, clients = fp.HiCS(m, clusters=clusters), fp.Clients(np.ones(9))
    state = policy.init(clients)
    for t in range(1, 8):
        seen = view(clients, t, rng.random(9) < 0.7)
        choice = policy.select(state, seen, rng)
        assert len(np.unique(choice.ids)) == len(choice) == min(m, seen.available.sum())
        status = rng.choice([0, 1, 2], len(choice))
        reports = {
            "output_update": rng.normal(size=(len(choice), 3)) * rng.choice([1e-3, 1.0, np.nan], (len(choice), 1))
        }
        told = fp.Outcome(status, np.ones(len(choice)), np.ones(len(choice)), reports)
        state = policy.observe(state, seen, choice, told)


def test_clients_never_tried_come_first_and_one_tried_in_vain_is_the_least_balanced():
    policy, clients = fp.HiCS(2, clusters=3, gamma=100.0, temperature=1.0), fp.Clients(np.ones(4))
    nan = [np.nan, np.nan]
    state = state_of([[1.0, 1.0], nan, [5.0, 0.0], nan], [1, 0, 1, 3])
    assert 1 in policy.select(state, view(clients), np.random.default_rng(0)).ids
    state.counts[1], state.vectors[1] = 1, [1.0, 1.0]
    for seed in range(30):
        assert policy.select(state, view(clients), np.random.default_rng(seed)).ids.tolist() == [0, 1]
    state = fp.admit(policy, fp.retire(policy, state, [2, 0]), fp.Clients([1.0]))
    assert state.counts.tolist() == [1, 1, 0]
    assert 2 in policy.select(state, view(fp.Clients(np.ones(3))), np.random.default_rng(0)).ids


def test_the_authors_fault_more_clusters_than_places_is_an_index_error():
    """Their list of clusters drawn has as many entries as there are places."""

    def theirs(odds, places, rng):
        drawn = [0] * places
        for _ in range(places):
            drawn[rng.choice(len(odds), p=odds / odds.sum())] += 1
        return drawn

    vectors = np.eye(6) + 0.1
    policy, clients = fp.HiCS(2, clusters=6, temperature=1.0), fp.Clients(np.ones(6))
    _, entropy = policy.groups(state_of(vectors), np.arange(6))
    assert len(entropy) == 6
    with pytest.raises(IndexError):
        [theirs(np.exp(entropy), 2, np.random.default_rng(seed)) for seed in range(20)]
    for seed in range(20):
        assert len(policy.select(state_of(vectors), view(clients), np.random.default_rng(seed))) == 2


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"clusters": 0}, "HiCS: clusters = 0, but must be a whole number >= 1"),
        ({"horizon": 0}, "HiCS: horizon = 0, but must be a whole number >= 1"),
        ({"gamma": -1.0}, r"HiCS: gamma = -1\.0, but must be a number >= 0"),
        ({"temperature": 0.0}, r"HiCS: temperature = 0\.0, but must be a number > 0"),
        ({"balance": -1.0}, r"HiCS: balance = -1\.0, but must be a number >= 0"),
    ],
)
def test_a_setting_out_of_bounds_is_refused(options, text):
    with pytest.raises(fp.SettingError, match=text):
        fp.HiCS(**{"cohort_size": 2, **options})


def test_so_many_clients_that_their_distances_do_not_fit_are_refused(monkeypatch):
    monkeypatch.setattr("fedpick.policies.hics.MOST_CLIENTS", 3)
    with pytest.raises(fp.SettingError, match="HiCS: available clients = 4, but must be at most 3"):
        fp.HiCS(2).select(state_of(np.eye(4)), view(fp.Clients(np.ones(4))), np.random.default_rng(0))
