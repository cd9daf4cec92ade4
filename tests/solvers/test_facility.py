"""Facility location: the greedy choice against one that computes everything anew, and its guarantee by brute force."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedpick as fp
from fedpick.solvers import facility, facility_location


def total(vectors, chosen):
    distance = np.linalg.norm(vectors[:, None] - vectors[None, list(chosen)], axis=2)
    return distance.min(axis=1).sum()


def is_greedy(vectors, chosen, allowed):
    """Whether nobody else would have brought the sum of distances lower, place after place; pairs are often tied."""
    for i in range(len(chosen)):
        before = list(chosen[:i])
        best = min(total(vectors, [*before, j]) for j in allowed if j not in before)
        if total(vectors, chosen[: i + 1]) > best + 1e-9:
            return False
    return True


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**20), count=st.integers(1, 25), m=st.integers(1, 8))
def test_it_is_plain_greedy(seed, count, m):
    rng = np.random.default_rng(seed)
    vectors, mask = rng.normal(size=(count, 3)), rng.random(count) < 0.7
    chosen, stands_for = facility_location(vectors, m, mask=mask, rng=rng)
    assert len(chosen) == min(m, mask.sum())
    assert is_greedy(vectors, chosen, np.flatnonzero(mask))
    if len(chosen):
        near = np.linalg.norm(vectors[:, None] - vectors[None, chosen], axis=2).argmin(axis=1)
        assert stands_for.tolist() == np.bincount(near, minlength=len(chosen)).tolist()
        assert stands_for.sum() == count


def test_many_vectors_are_compared_in_half_the_precision_and_chosen_nearly_as_well(monkeypatch):
    vectors = np.random.default_rng(0).normal(size=(120, 5))
    exact = facility_location(vectors, 8)[0]
    monkeypatch.setattr(facility, "EXACT_UP_TO", 10)
    assert total(vectors, facility_location(vectors, 8)[0]) == pytest.approx(total(vectors, exact), rel=1e-3)


@pytest.mark.parametrize("seed", range(5))
def test_the_guarantee_by_brute_force(seed):
    vectors = np.random.default_rng(seed).normal(size=(11, 2))
    worst = 2 * np.linalg.norm(vectors - vectors.mean(axis=0), axis=1).max() * 11  # nobody chosen
    best = min(total(vectors, S) for S in itertools.combinations(range(11), 3))
    found = total(vectors, facility_location(vectors, 3)[0])
    assert worst - found >= (1 - 1 / np.e) * (worst - best)


def test_a_few_candidates_for_each_place_come_near():
    """Stochastic greedy: 1 - 1/e - eps in the mean, with (N / m) ln(1 / eps) candidates."""
    vectors, rng = np.random.default_rng(0).normal(size=(200, 4)), np.random.default_rng(1)
    look = int(np.ceil(200 / 10 * np.log(10)))
    worst = 2 * np.linalg.norm(vectors - vectors.mean(axis=0), axis=1).max() * 200
    lazy = worst - total(vectors, facility_location(vectors, 10)[0])
    some = [worst - total(vectors, facility_location(vectors, 10, rng=rng, candidates=look)[0]) for _ in range(20)]
    assert np.mean(some) >= 0.9 * lazy


def test_ties_are_broken_at_random_and_nonsense_is_an_error():
    first = {facility_location(np.ones((4, 2)), 1, rng=np.random.default_rng(s))[0][0] for s in range(40)}
    assert first == {0, 1, 2, 3}
    assert facility_location(np.ones((3, 2)), 9)[1].tolist() == [1, 1, 1]  # each stands for itself
    assert len(facility_location(np.ones((3, 2)), 2, mask=np.zeros(3, bool))[0]) == 0
    with pytest.raises(fp.ContractError, match="must be a finite"):
        facility_location([[np.nan]], 1)
