"""DELTA: probabilities by the paper's sums, the aggregate by enumeration, and the faults of the public code."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedpick as fp
from zoo import view

DONE, LATE, FAILED, SURPLUS = (int(s) for s in fp.Status)


def twin(p, sizes, ids, vectors, beta, least=0.1):
    """The rule with loops: q of those heard, who share what they had; then the lower bound."""
    p = dict(enumerate(p))
    dimension = len(next(iter(vectors.values()))) if vectors else 0
    mean = [sum(vectors[k][d] for k in ids) / len(ids) for d in range(dimension)]
    total = sum(sizes[k] for k in ids)
    q = {}
    for k in ids:
        apart = sum((vectors[k][d] - mean[d]) ** 2 for d in range(dimension)) ** 0.5
        length = sum(x**2 for x in vectors[k]) ** 0.5
        q[k] = sizes[k] / total * (beta * apart + (1 - beta) * length)
    if sum(q.values()) == 0:
        return list(p.values())
    held = sum(p[k] for k in ids)
    p |= {k: q[k] / sum(q.values()) * held for k in ids}
    p = [max(p[k], least / len(p)) for k in range(len(p))]
    return [each / sum(p) for each in p]


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**20), beta=st.sampled_from([0.0, 0.3, 0.5, 1.0]), m=st.integers(1, 5))
def test_probabilities_are_those_of_the_twin(seed, beta, m):
    rng = np.random.default_rng(seed)
    clients = fp.Clients(rng.integers(1, 50, 7))
    policy = fp.DELTA(m, beta=beta)
    state, p = policy.init(clients), [1 / 7] * 7
    for t in range(1, 12):
        seen = view(clients, t, rng.random(7) < 0.8)
        drawn = policy.select(state, seen, rng)
        ids = np.unique(drawn.ids)
        vectors = rng.normal(size=(len(ids), 3)) * rng.choice([0.0, 1.0, 30.0], (len(ids), 1))
        status = rng.choice([DONE, LATE, FAILED, SURPLUS], len(ids), p=[0.7, 0.1, 0.1, 0.1])
        said = vectors.copy()
        said[status == LATE] = 7.0  # not used
        if len(ids):
            said[0, 0] = rng.choice([np.nan, said[0, 0], 1e13])
        heard = [k for k, s, v in zip(ids.tolist(), status, said, strict=True) if s in (0, 3) and abs(v[0]) <= 1e12]
        of = {k: v.tolist() for k, v in zip(ids.tolist(), said, strict=True) if k in heard}
        result = fp.Outcome(status, np.ones(len(ids)), np.ones(len(ids)), {"update": said})
        state = policy.observe(state, seen, fp.Choice(ids), result)
        if heard:
            p = twin(p, clients.sizes.tolist(), heard, of, beta)
        np.testing.assert_allclose(policy.probabilities(state), p, rtol=1e-9)


SIZES, P, X = np.array([5.0, 1.0, 3.0, 1.0]), np.array([0.4, 0.1, 0.2, 0.3]), np.array([1.0, 9.0, -2.0, 4.0])


def state_with(policy, p, clients):
    state = policy.init(clients)
    state.odds[:] = p * len(p)
    return state


def test_the_mean_aggregate_is_that_of_all_there_by_enumeration():
    """Over all sequences of two draws, with one client away: the weights of the policy itself."""
    clients, policy = fp.Clients(SIZES), fp.DELTA(2)
    there = np.array([True, True, False, True])
    state, odds, weight, rng = state_with(policy, P, clients), {}, {}, np.random.default_rng(0)
    for _ in range(60):
        choice = policy.select(state, view(clients, 1, there), rng)
        assert not choice.normalise
        odds |= dict(zip(choice.ids.tolist(), choice.inclusion / 2, strict=True))
        weight |= dict(zip(choice.ids.tolist(), choice.weights, strict=True))
    assert sorted(odds) == [0, 1, 3]
    expected = sum(
        odds[a] * odds[b] * (weight[a] * X[a] + weight[b] * X[b]) for a, b in itertools.product(odds, repeat=2)
    )
    assert expected == pytest.approx((SIZES * X)[there].sum() / SIZES[there].sum(), rel=1e-12)


def test_draws_come_as_often_as_inclusion_says():
    clients, policy, draws = fp.Clients(SIZES), fp.DELTA(3), 1200
    state, rng, counts = state_with(policy, P, clients), np.random.default_rng(1), np.zeros(4)
    for _ in range(draws):
        np.add.at(counts, policy.select(state, view(clients), rng).ids, 1)
    assert (np.abs(counts / draws - 3 * P) <= 4 * np.sqrt(3 * P * (1 - P) / draws)).all()


def without_replacement(p):
    """P of each ordered pair."""
    return {(a, b): p[a] * p[b] / (1 - p[a]) for a, b in itertools.permutations(range(len(p)), 2)}


def test_the_fault_of_draws_without_replacement_with_these_weights():
    """The authors' local_update.py: the mean is 3.08, where all clients together have 2.33."""
    p, x = np.array([0.6, 0.3, 0.1]), np.array([1.0, 2.0, 4.0])
    theirs = sum(odds * (x[a] / p[a] + x[b] / p[b]) / (3 * 2) for (a, b), odds in without_replacement(p).items())
    assert theirs == pytest.approx(3.08, abs=0.005)
    ours = sum(p[a] * p[b] * (x[a] / p[a] + x[b] / p[b]) / (3 * 2) for a, b in itertools.product(range(3), repeat=2))
    assert ours == pytest.approx(x.mean())


def test_the_fault_of_shares_of_the_cohort():
    """The authors' comm_helpers.py divides sizes by the cohort's: of unequal sizes, the mean is another one."""
    pairs = list(itertools.product(range(4), repeat=2))
    truth = (SIZES * X).sum() / SIZES.sum()
    theirs = sum(
        P[a] * P[b] * (SIZES[a] * X[a] / P[a] + SIZES[b] * X[b] / P[b]) / (SIZES[a] + SIZES[b]) / 2 / 2
        for a, b in pairs
    )
    ours = sum(P[a] * P[b] * (SIZES[a] * X[a] / P[a] + SIZES[b] * X[b] / P[b]) / SIZES.sum() / 2 for a, b in pairs)
    assert ours == pytest.approx(truth)
    assert abs(theirs - truth) > 0.3


def test_the_fault_of_nothing_over_nothing():
    """Where all updates are 0, the code divides 0 by 0; here nothing changes."""
    clients, policy = fp.Clients(np.ones(4)), fp.DELTA(2)
    state = state_with(policy, P, clients)
    told = fp.Outcome([DONE, DONE], [1.0, 1.0], [1.0, 1.0], {"update": np.zeros((2, 5))})
    with np.errstate(invalid="ignore"):
        assert np.isnan(np.zeros(2) / np.zeros(2).sum()).all()
    state = policy.observe(state, view(clients), fp.Choice([0, 1]), told)
    np.testing.assert_allclose(policy.probabilities(state), P)


def test_newcomers_have_the_mean_and_nobody_less_than_a_tenth_of_it():
    clients, policy = fp.Clients(np.ones(3)), fp.DELTA(2)
    told = fp.Outcome([DONE] * 3, np.ones(3), np.ones(3), {"update": np.array([[0.0, 0.0], [3.0, 4.0], [3.0, 4.0]])})
    policy = fp.DELTA(3, beta=0.0)
    state = policy.observe(policy.init(clients), view(clients), fp.Choice([0, 1, 2]), told)
    np.testing.assert_allclose(policy.probabilities(state), np.array([0.1, 1.5, 1.5]) / 3.1)
    more = fp.admit(policy, state, fp.Clients([1.0]))
    np.testing.assert_allclose(policy.probabilities(more), np.array([0.1, 1.5, 1.5, 3.1 / 3]) / (3.1 * 4 / 3))


def test_settings_out_of_bounds_are_refused_and_it_needs_rounds():
    with pytest.raises(fp.SettingError, match=r"DELTA: beta = 1\.5"):
        fp.DELTA(2, beta=1.5)
    with pytest.raises(fp.SettingError, match="DELTA: width = 0"):
        fp.DELTA(2, width=0)
    assert [each.name for each in fp.traits(fp.DELTA(2, width=16)).reports] == ["sketch_16"]
    assert fp.traits(fp.DELTA(2)).replace
