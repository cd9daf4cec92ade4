"""The splits: exact where the papers say how many, and drawn as they say; IID examples are shared by chance alone."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from splits import EVEN, REGRESSION, labelled, rng

from fedpick.data.partitions import IID, Dirichlet, DirichletLabels, LabelsPerClient, LogNormalSizes, PrimaryLabel


# IID
def test_iid_gives_equal_parts_of_a_regression_too():
    split = IID()(REGRESSION, 3, rng())
    assert split.sizes.tolist() == [16, 16, 16]
    assert split.labels is None


@pytest.mark.parametrize("overlap", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_iid_examples_are_equally_likely(overlap):
    draws, data = 4_000, labelled(6, 4)
    first = np.zeros(len(data))
    for seed in range(draws):
        first[IID(size=3, overlap=overlap)(data, 2, rng(seed)).examples_of(1)] += 1
    assert np.abs(first / draws - 0.3).max() < 4.5 * np.sqrt(0.3 * 0.7 / draws)


def test_clients_that_draw_independently_share_as_many_as_chance_has_it():
    data, K, n = EVEN, 200, 60
    split = IID(size=n, overlap=True)(data, K, rng())
    drawn = np.bincount(split.examples, minlength=len(data))  # binomial(K, n / N)
    p = n / len(data)
    assert abs(drawn.var() - K * p * (1 - p)) < 0.25 * K * p  # 4 sd of a variance of 600: sqrt(2 / 600) = 6%


def test_more_clients_than_examples_must_share():
    assert (IID(size=2, overlap=True)(labelled(3, 2), 50, rng()).sizes == 2).all()


# PrimaryLabel
def primary_label_twin(data, clients, share, size, rng):
    """The paper's words, one client after the other; counts of labels only."""
    table = []
    for _ in range(clients):
        primary = rng.choice([label for label in range(data.classes) if (data.y == label).any()])
        own = rng.choice(np.flatnonzero(data.y == primary), round(share * size), replace=False)
        rest = rng.choice(np.flatnonzero(data.y != primary), size - len(own), replace=False)
        table.append(np.bincount(data.y[np.concatenate([own, rest])], minlength=data.classes))
    return np.array(table)


@pytest.mark.parametrize(
    "data", [pytest.param(labelled(100, 100, 100), marks=pytest.mark.slow), labelled(200, 0, 100, 30)]
)
def test_primary_labels_are_drawn_as_the_paper_says(data):
    K, size, share = 3_000, 20, 0.8
    fast = PrimaryLabel(share, size)(data, K, rng(1)).labels
    slow = primary_label_twin(data, K, share, size, rng(2))
    assert (fast.max(axis=1) >= 16).all()
    for own in np.flatnonzero(np.bincount(data.y)):  # the same mix given the primary label, and as many of each
        mine, its = (table[table[:, own] >= 16] for table in (fast, slow))
        assert abs(len(mine) - len(its)) < 4.5 * np.sqrt(2 * K / 3)
        error = np.sqrt(mine.var(axis=0) / len(mine) + its.var(axis=0) / len(its))
        assert (np.abs(mine.mean(axis=0) - its.mean(axis=0)) <= 4.5 * error).all()
        assert np.abs(mine.var(axis=0) - its.var(axis=0)).max() < 0.3  # of at most 1.2


def test_primary_label_has_its_share_exactly():
    split = PrimaryLabel(share=0.5, size=30)(EVEN, 40, rng())
    assert (np.sort(split.labels, axis=1)[:, -1] == 15).all()
    everything = PrimaryLabel(share=1.0, size=30)(EVEN, 40, rng())
    assert (np.count_nonzero(everything.labels, axis=1) == 1).all()


def test_a_label_that_has_too_few_examples_is_nobodys_primary_label():
    split = PrimaryLabel(share=0.8, size=50)(labelled(39, 40, 200), 300, rng())
    assert set(split.labels.argmax(axis=1)) == {1, 2}
    mostly = PrimaryLabel(share=0.2, size=100)(labelled(960, 60), 100, rng())  # label 0 leaves only 60 others
    assert (mostly.labels == [80, 20]).all()


# DirichletLabels
def test_dirichlet_labels_have_the_moments_of_their_dirichlet():
    alpha, K, n, L = 0.4, 4_000, 300, 4
    data = labelled(*[400] * L)
    mixes = DirichletLabels(alpha, size=n)(data, K, rng()).labels / n
    variance = (1 / L) * (1 - 1 / L) / (L * alpha + 1)
    assert np.abs(mixes.mean(axis=0) - 1 / L).max() < 4.5 * np.sqrt(variance / K)
    assert np.abs(mixes.var(axis=0) - variance).max() < 0.08 * variance  # bounded kurtosis: 4.5 sd is below 7%


def test_a_large_alpha_is_the_same_mix_for_all_and_a_small_one_label():
    alike = DirichletLabels(1e6, size=50)(EVEN, 20, rng())
    assert np.abs(alike.labels - 5).max() <= 1
    apart = DirichletLabels(0.001, size=50)(EVEN, 20, rng())
    assert (apart.labels.max(axis=1) >= 49).mean() >= 0.8


# Dirichlet
def dirichlet_twin(data, clients, alpha, at_least, rng):
    """The rule in plain words: shares for everyone, those who are full set to 0, drawn again until all have enough."""
    N = len(data)
    while True:
        table = [[0] * data.classes for _ in range(clients)]
        for label in range(data.classes):
            there = int((data.y == label).sum())
            if there == 0:
                continue
            shares = rng.dirichlet([alpha] * clients)
            shares = [share if sum(row) < N / clients else 0.0 for share, row in zip(shares, table, strict=True)]
            total, given, upto = sum(shares), 0, 0.0
            for k, share in enumerate(shares):
                upto += share / total
                cut = int(upto * there + 1e-9)
                table[k][label] = cut - given
                given = cut
        if min(sum(row) for row in table) >= at_least:
            return np.array(table)


@pytest.mark.parametrize(
    "data", [pytest.param(labelled(40, 40, 40), marks=pytest.mark.slow), labelled(100, 0, 30, 60, 7)]
)
@pytest.mark.parametrize("alpha", [0.3, pytest.param(2.0, marks=pytest.mark.slow)])
def test_the_dirichlet_rule_is_the_papers(data, alpha):
    draws, K = 1_500, 4
    fast = np.array([Dirichlet(alpha, at_least=3)(data, K, rng(seed)).labels for seed in range(draws)])
    slow = np.array([dirichlet_twin(data, K, alpha, 3, rng(10_000 + seed)) for seed in range(draws)])
    for what in (lambda t: t, lambda t: t**2, lambda t: t.sum(axis=2) ** 2, lambda t: t.sum(axis=2).min(axis=1)):
        mine, its = what(fast), what(slow)
        error = np.sqrt((mine.var(axis=0) + its.var(axis=0)) / draws)
        assert (np.abs(mine.mean(axis=0) - its.mean(axis=0)) <= 4.5 * error + 1e-9).all()


@given(st.lists(st.integers(0, 60), min_size=1, max_size=6), st.integers(1, 8), st.floats(0.1, 10), st.integers(0, 999))
def test_dirichlet_gives_all_the_data_once(counts, clients, alpha, seed):
    assume(sum(counts) >= 20 * clients)
    split = Dirichlet(alpha, at_least=1)(labelled(*counts), clients, rng(seed))
    assert sorted(split.examples.tolist()) == list(range(sum(counts)))
    # Full clients take no more: whoever exceeds N/K did so with its last label alone.
    last = np.array([row[np.flatnonzero(row)[-1]] for row in split.labels])
    assert ((split.sizes - last) * clients < sum(counts)).all()


# LabelsPerClient
def test_fedgs_has_two_labels_and_equal_sizes():
    split = LabelsPerClient(2)(EVEN, 100, rng())
    assert (np.count_nonzero(split.labels, axis=1) == 2).all()
    assert (split.sizes == 6).all()
    pairs = {tuple(np.flatnonzero(row)) for row in split.labels}
    assert len(pairs) > 25  # of 45: not the same few again and again


@given(st.lists(st.integers(0, 80), min_size=1, max_size=7), st.integers(1, 4), st.integers(1, 15), st.integers(0, 999))
def test_labels_per_client_are_exact_and_evenly_in_demand(counts, labels, clients, seed):
    assume(labels <= np.count_nonzero(counts))
    assume(min(count for count in counts if count) >= clients)  # else a label may have fewer examples than holders
    split = LabelsPerClient(labels)(labelled(*counts), clients, rng(seed))
    assert (np.count_nonzero(split.labels, axis=1) == labels).all()
    holders = np.count_nonzero(split.labels, axis=0)
    given_away = split.labels.sum(axis=0)
    np.testing.assert_array_equal(given_away, np.where(holders > 0, counts, 0))
    for label in np.flatnonzero(holders):
        parts = split.labels[:, label][split.labels[:, label] > 0]
        assert parts.max() - parts.min() <= 1
    if len(set(counts)) == 1:
        assert holders.max() - holders.min() <= 1


def test_sizes_of_few_labels_can_be_given_or_skewed():
    given_size = LabelsPerClient(3, size=10)(EVEN, 20, rng())
    assert (given_size.sizes == 10).all()
    assert sorted(given_size.labels[0][given_size.labels[0] > 0]) == [3, 3, 4]
    skewed = LabelsPerClient(2, size=LogNormalSizes(1.0, at_least=4))(EVEN, 20, rng())
    assert skewed.sizes.sum() == 600
    assert skewed.sizes.max() > 4 * skewed.sizes.min()
    assert (np.count_nonzero(skewed.labels, axis=1) == 2).all()
