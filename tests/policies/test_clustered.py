"""Clustered sampling against the two algorithms of Fraboni et al. (2021), written out with whole numbers."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.cluster.hierarchy import fcluster, linkage, to_tree

import fedpick as fp
from fedpick.policies._vectors import VectorState
from zoo import view


def matrix(policy, state, sizes, available=None):
    """r[k, i], the chance of client i in distribution k, from the line on which they lie."""
    ids = np.arange(len(sizes)) if available is None else np.flatnonzero(available)
    owner, lengths = policy.line(state, ids, np.asarray(sizes, dtype=float)[ids])
    r, at = np.zeros((policy.cohort_size, len(sizes))), 0.0
    for client, length in zip(owner, lengths, strict=True):
        while length > 1e-12:
            k = min(int(at + 1e-9), policy.cohort_size - 1)
            part = min(length, k + 1 - at) if k + 1 - at > 1e-12 else length
            r[k, client] += part
            at, length = at + part, length - part
    return r


def algorithm_1(sizes, m):
    """With whole numbers: each distribution holds as many units as there are examples; the largest client first."""
    total = sum(sizes)
    r = [[Fraction(0)] * len(sizes) for _ in range(m)]
    k, room = 0, total
    for i in sorted(range(len(sizes)), key=lambda i: (-sizes[i], i)):
        left = m * sizes[i]
        while left:
            part = min(left, room)
            r[k][i] += Fraction(part, total)
            left, room = left - part, room - part
            if room == 0:
                k, room = k + 1, total
    return np.array([[float(x) for x in row] for row in r])


def algorithm_2(vectors, sizes, m):
    """Whole units first; Ward's tree from its root down to branches of at most one unit; the largest are filled up."""
    total = sum(sizes)
    rest = [m * n % total for n in sizes]
    r = [[0.0] * len(sizes) for _ in range(m)]
    k = 0
    for i, n in enumerate(sizes):
        for _ in range(m * n // total):
            r[k][i] = 1.0
            k += 1
    small = [i for i in range(len(sizes)) if rest[i]]
    if not small:
        return np.array(r)

    def branches(node):
        members = [small[i] for i in sorted(node.pre_order())]
        if sum(rest[i] for i in members) <= total:
            return [members]
        return branches(node.left) + branches(node.right)

    groups = [small]
    if len(small) > 1:
        unit = vectors[small] / np.maximum(np.linalg.norm(vectors[small], axis=1, keepdims=True), 1e-300)
        groups = branches(to_tree(linkage(unit, "ward")))
    held = sorted(groups, key=lambda members: -sum(rest[i] for i in members))
    first, others = held[: m - k], [i for members in held[m - k :] for i in members]
    left = {i: rest[i] for i in others}
    for members in first:
        room = total
        for i in members:
            r[k][i] = rest[i] / total
            room -= rest[i]
        for i in others:
            part = min(left[i], room)
            r[k][i] += part / total
            left[i], room = left[i] - part, room - part
        k += 1
    return np.array(r)


SIZES = st.lists(st.integers(1, 60), min_size=1, max_size=9)


@settings(max_examples=60, deadline=None)
@given(sizes=SIZES, m=st.integers(1, 7))
def test_by_size_it_is_algorithm_1(sizes, m):
    policy = fp.Clustered(m)
    found = matrix(policy, policy.init(fp.Clients(sizes)), sizes)
    np.testing.assert_allclose(found, algorithm_1(sizes, m), atol=1e-9)


@settings(max_examples=60, deadline=None)
@given(sizes=SIZES, m=st.integers(1, 7), seed=st.integers(0, 2**20))
def test_by_updates_every_row_is_a_distribution_and_every_client_has_its_share(sizes, m, seed):
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(len(sizes), 3))
    vectors[rng.random(len(sizes)) < 0.3] = np.nan
    policy = fp.Clustered(m, by="updates", width=3)
    found = matrix(policy, VectorState(np.zeros(len(sizes), dtype=int), vectors), sizes)
    np.testing.assert_allclose(found.sum(axis=1), 1.0, atol=1e-8)
    np.testing.assert_allclose(found.sum(axis=0), m * np.array(sizes) / sum(sizes), atol=1e-8)
    # Theorem 2: the variance of each client's weight is at most that of drawing by size with replacement.
    p = np.array(sizes) / sum(sizes)
    assert ((found * (1 - found)).sum(axis=0) <= m * p * (1 - p) + 1e-7).all()


@pytest.mark.parametrize("seed", range(12))
def test_by_updates_it_is_algorithm_2(seed):
    """Row sets are compared: in which order groups of equal mass and their fillings stand is not the paper's to say."""
    rng = np.random.default_rng(seed)
    count, m = int(rng.integers(4, 12)), int(rng.integers(2, 6))
    sizes = [int(n) for n in rng.integers(1, 1000, count)]  # so that no two groups weigh the same
    vectors = rng.normal(size=(count, 4))
    policy = fp.Clustered(m, by="updates", width=4)
    found = matrix(policy, VectorState(np.zeros(count, dtype=int), vectors), sizes)
    wanted = algorithm_2(vectors, sizes, m)
    np.testing.assert_allclose(found.sum(axis=0), wanted.sum(axis=0), atol=1e-8)
    np.testing.assert_allclose((found**2).sum(), (wanted**2).sum(), atol=1e-7)  # the same groups, whatever the order


@pytest.mark.parametrize("by", ["size", "updates"])
def test_the_mean_weight_is_full_participation_by_enumeration(by):
    sizes, m = np.array([9, 1, 4, 6]), 3
    policy, rng = fp.Clustered(m, by=by, width=2), np.random.default_rng(0)
    state = VectorState(np.zeros(4, dtype=int), rng.normal(size=(4, 2)))
    r = matrix(policy, state, sizes)
    expected = np.zeros(4)
    for cohort in itertools.product(range(4), repeat=m):
        odds = math.prod(r[k, i] for k, i in enumerate(cohort))
        choice = fp.Choice(cohort, weights=np.ones(m))
        np.add.at(expected, choice.ids, odds * choice.shares(np.ones(m, bool)))
    np.testing.assert_allclose(expected, sizes / sizes.sum(), rtol=1e-9)


@pytest.mark.parametrize("by", ["size", "updates"])
def test_draws_follow_the_distributions(by):
    sizes, m, draws = np.array([9.0, 1.0, 4.0, 6.0, 2.0]), 3, 1000
    policy, clients = fp.Clustered(m, by=by, width=2), fp.Clients(sizes)
    state = VectorState(np.zeros(5, dtype=int), np.random.default_rng(0).normal(size=(5, 2)))
    r, rng, counts = matrix(policy, state, sizes), np.random.default_rng(1), np.zeros((m, 5))
    for _ in range(draws):
        choice = policy.select(state, view(clients), rng)
        counts[np.arange(m), choice.ids] += 1
        np.testing.assert_allclose(choice.inclusion, m * sizes[choice.ids] / sizes.sum())
    assert (np.abs(counts / draws - r) <= 4 * np.sqrt(r * (1 - r) / draws) + 1e-9).all()


def test_similar_clients_compete_for_one_place():
    """Two groups of three: a cohort of two always has one of each, which by size it has not."""
    vectors = np.array([[1.0, 0.0], [1.0, 0.1], [1.0, -0.1], [-1.0, 0.0], [-1.0, 0.1], [-1.0, -0.1]])
    clients, policy = fp.Clients([2, 2, 2, 2, 2, 2]), fp.Clustered(2, by="updates", width=2)
    state = VectorState(np.zeros(6, dtype=int), vectors)
    for seed in range(50):
        ids = policy.select(state, view(clients), np.random.default_rng(seed)).ids
        assert sorted(ids // 3) == [0, 1]


def test_a_branch_that_is_too_heavy_does_not_keep_the_others_apart():
    """Four pairs, of which one is heavier than a place and merges first: the other three are still groups."""
    angles = np.array([0.0, 0.001, 1.5, 1.6, 3.0, 3.1, 4.5, 4.6])
    vectors, sizes, m = np.column_stack([np.cos(angles), np.sin(angles)]), [30, 31, 10, 9, 11, 8, 12, 7], 4
    policy = fp.Clustered(m, by="updates", width=2)
    found = matrix(policy, VectorState(np.zeros(8, dtype=int), vectors), sizes)
    for one, other in ((2, 3), (4, 5), (6, 7)):  # never two of a pair of which each would have its own place
        assert np.count_nonzero((found[:, one] > 1e-9) & (found[:, other] > 1e-9)) >= 1
    assert (found**2).sum() == pytest.approx((algorithm_2(vectors, sizes, m) ** 2).sum())


def kinds_in_a_cohort(by, draws=300):
    """Mean number of kinds of data in a cohort of 10, of 10 kinds that 100 clients of unequal size have."""
    rng = np.random.default_rng(0)
    kind = np.arange(100) % 10
    vectors = 3.0 * np.eye(10)[kind] + 0.5 * rng.normal(size=(100, 10))
    clients = fp.Clients(np.round(rng.lognormal(4.0, 0.3, 100)))
    policy = fp.Clustered(10, by=by, width=10)
    state = VectorState(np.zeros(100, dtype=int), vectors if by == "updates" else np.zeros((100, 0)))
    return np.mean([len(set(kind[policy.select(state, view(clients), rng).ids])) for _ in range(draws)])


def test_a_cohort_has_nearly_all_kinds_of_data():
    """One cut through the whole tree fills places with groups of single clients: 7.6 of 10 kinds in place of 8.6."""
    found = kinds_in_a_cohort("updates")
    assert found > 8.3
    assert found > kinds_in_a_cohort("size") + 1.5


def test_the_authors_fault_a_large_client_is_drawn_once_instead_of_four_times():
    """p = 0.4 and m = 10; the faulty rule gives each group of Ward's tree one distribution, whatever its mass."""
    sizes, m = np.array([40] + [6] * 10), 10
    vectors = np.random.default_rng(0).normal(size=(11, 3))

    def faulty():
        label = fcluster(linkage(vectors, "ward"), m, "maxclust")
        r = np.zeros((m, 11))
        for g in range(m):
            members = np.flatnonzero(label == g + 1)
            r[g, members] = sizes[members] / sizes[members].sum()
        return r

    policy = fp.Clustered(m, by="updates", width=3)
    ours = matrix(policy, VectorState(np.zeros(11, dtype=int), vectors), sizes)
    assert ours.sum(axis=0)[0] == pytest.approx(4.0)
    assert faulty().sum(axis=0)[0] <= 1.0 + 1e-9


def test_only_those_who_are_there_are_drawn_and_newcomers_have_no_vector():
    policy = fp.Clustered(3, by="updates", width=2)
    clients = fp.Clients([5.0, 1.0, 2.0])
    state, seen = policy.init(clients), view(fp.Clients([5.0, 1.0, 2.0]), 1, [True, False, True])
    choice = policy.select(state, seen, np.random.default_rng(0))
    assert set(choice.ids) <= {0, 2}
    reports = {"sketch_2": np.arange(6.0).reshape(3, 2)}
    state = policy.observe(state, seen, fp.Choice([0, 2, 2]), fp.Outcome([0, 0, 0], np.ones(3), np.ones(3), reports))
    assert state.counts.tolist() == [1, 0, 2]
    assert state.vectors[2].tolist() == [4.0, 5.0]
    state = fp.admit(policy, fp.retire(policy, state, [2, 0]), fp.Clients([3.0]))
    np.testing.assert_array_equal(state.vectors, [[4.0, 5.0], [0.0, 1.0], [np.nan, np.nan]])
    assert len(policy.select(state, view(fp.Clients([1.0, 2.0, 3.0])), np.random.default_rng(0))) == 3


def test_a_vector_of_nonsense_or_of_whoever_failed_is_not_kept():
    policy, clients = fp.Clustered(4, by="updates", width=None), fp.Clients(np.ones(4))
    reports = {"update": [[1.0, 2.0], [np.nan, 0.0], [1e300, 0.0], [3.0, 3.0]]}
    outcome = fp.Outcome([0, 0, 0, 2], np.ones(4), np.ones(4), reports)
    state = policy.observe(policy.init(clients), view(clients), fp.Choice([0, 1, 2, 3]), outcome)
    assert np.isnan(state.vectors).any(axis=1).tolist() == [False, True, True, True]
    with pytest.raises(fp.ContractError, match="'update' has 3 columns, but earlier ones had 2"):
        policy.observe(state, view(clients), fp.Choice([0]), fp.Outcome([0], [1], [1], {"update": [[1.0, 1.0, 1.0]]}))


def test_settings_and_limits_are_said(monkeypatch):
    with pytest.raises(fp.UnknownNameError, match="'updatse'; did you mean 'updates'"):
        fp.Clustered(3, by="updatse")
    with pytest.raises(fp.SettingError, match="Clustered: width = 0"):
        fp.Clustered(3, width=0)
    monkeypatch.setattr("fedpick.policies.clustered.MOST_CLIENTS", 3)
    policy, clients = fp.Clustered(2, by="updates"), fp.Clients(np.ones(4))
    with pytest.raises(fp.SettingError, match="at most 3 with by='updates'; use by='size'"):
        policy.select(policy.init(clients), view(clients), np.random.default_rng(0))
    assert fp.traits(fp.Clustered(3)).needs == frozenset()


@pytest.mark.parametrize(("by", "width", "columns"), [("updates", 5, 5), ("updates", None, 0), ("size", 5, 0)])
def test_vectors_have_their_width_before_any_is_reported(by, width, columns):
    state = fp.Clustered(3, by=by, width=width).init(fp.Clients(np.ones(4)))
    assert state.vectors.shape == (4, columns)
    assert np.isnan(state.vectors).all()
