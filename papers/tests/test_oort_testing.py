"""Oort's testing selector against exact probabilities, and a fault of a public copy."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import hypergeom

import fedpick as fp
from fedpick_papers.oort_testing import cover_categories, enough_for_deviation


def deviation_risk(n, population, ones, deviation):
    """P(|mean of n drawn - mean of all| >= deviation), exactly, of a population of zeros and ones."""
    law, mean = hypergeom(population, ones, n), ones / population
    k = np.arange(n + 1)
    off = np.abs(k / n - mean) >= deviation - 1e-12
    return float(law.pmf(k)[off].sum())


@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.999])
@pytest.mark.parametrize(("population", "deviation"), [(200, 0.1), (1000, 0.05), (50, 0.2)])
def test_enough_clients_keep_the_promise_exactly(confidence, population, deviation):
    n = enough_for_deviation(deviation, 1.0, population, confidence)
    assert 1 <= n <= population
    for share in (0.1, 0.3, 0.5):
        assert deviation_risk(n, population, int(share * population), deviation) <= 1 - confidence


def test_fedscales_fault_the_testing_selector_ignores_its_confidence():
    def theirs(deviation, spread, population, confidence):
        factor = 1.0 - 2 * population / math.log(1 - 0.8) * (deviation / spread) ** 2  # 0.8, whatever was asked
        return math.ceil((population + 1.0) / factor)

    asked = (0.05, 1.0, 1000, 0.999)
    assert deviation_risk(theirs(*asked), 1000, 500, 0.05) > 1 - 0.999
    assert deviation_risk(enough_for_deviation(*asked), 1000, 500, 0.05) <= 1 - 0.999
    assert theirs(0.05, 1.0, 1000, 0.8) == theirs(*asked)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**20))
def test_categories_are_covered_by_nobody_s_more_than_it_has(seed):
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 30, (int(rng.integers(2, 9)), 3))
    wanted = (counts.sum(axis=0) * rng.uniform(0, 1, 3)).astype(int)
    seconds = rng.uniform(0.5, 3.0, len(counts))
    found = cover_categories(counts, wanted, seconds)
    assert (found.sum(axis=0) == wanted).all()
    assert ((found >= 0) & (found <= counts)).all()
    # No slower than everyone giving in proportion to what it has, plus one example a category by rounding.
    share = wanted / np.maximum(counts.sum(axis=0), 1)
    assert (found.sum(axis=1) * seconds).max() <= ((counts * share).sum(axis=1) * seconds).max() + 3 * seconds.max()


def test_few_clients_and_categories_that_nobody_has():
    counts = np.array([[9, 0], [0, 9], [5, 5], [1, 1]])
    assert (cover_categories(counts, [5, 5], at_most=1) > 0).any(axis=1).tolist() == [False, False, True, False]
    with pytest.raises(fp.MissingError, match="at_most = 1 clients do not hold what is wanted"):
        cover_categories(counts, [9, 9], at_most=1)
    with pytest.raises(fp.MissingError, match="99 examples of category 1 are wanted, but all clients hold 15"):
        cover_categories(counts, [1, 99])
    assert cover_categories(counts, [0, 0]).sum() == 0
    with pytest.raises(fp.ContractError, match="must be"):
        cover_categories(counts, [1, 2, 3])
    with pytest.raises(fp.SettingError, match="confidence = 1, but must be"):
        enough_for_deviation(1.0, 1.0, 10, 1)
