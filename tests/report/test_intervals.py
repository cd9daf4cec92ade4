"""Intervals against SciPy, and paired differences against a plain twin."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import fedpick as fp
from fedpick.report.intervals import Interval, band, interval, paired

numbers = st.floats(-1e6, 1e6)


def twin(values, base):
    """Mean and half width of the differences, one by one, with the textbook's formulas."""
    gaps = [a - b for a, b in zip(values, base, strict=True)]
    mean = sum(gaps) / len(gaps)
    variance = sum((gap - mean) ** 2 for gap in gaps) / (len(gaps) - 1)
    return mean, stats.t.ppf(0.975, len(gaps) - 1) * math.sqrt(variance / len(gaps))


@given(st.lists(numbers, min_size=2, max_size=12))
def test_the_interval_is_the_t_interval(values):
    mine = interval(values)
    mean, error = np.mean(values), stats.sem(values)
    low, high = (mean, mean) if error == 0 else stats.t.interval(0.95, len(values) - 1, mean, error)
    assert mine.low == pytest.approx(low, rel=1e-9, abs=1e-6)
    assert mine.high == pytest.approx(high, rel=1e-9, abs=1e-6)
    assert mine.n == len(values)
    assert tuple(mine) == (mine.mean, mine.half)


@given(st.lists(st.tuples(numbers, numbers), min_size=2, max_size=12))
def test_paired_differences_are_those_of_a_plain_twin(pairs):
    values, base = zip(*pairs, strict=True)
    mean, half = twin(values, base)
    mine = paired(values, base)
    assert mine.mean == pytest.approx(mean, rel=1e-9, abs=1e-5)
    assert mine.half == pytest.approx(half, rel=1e-6, abs=1e-5)


@given(st.lists(numbers, min_size=1, max_size=8), numbers)
def test_seeds_that_all_agree_claim_nothing(base, gap):
    """The difference is the same everywhere, but for the rounding of a + gap - a."""
    whole = [round(value) for value in base]  # so that the difference is exact
    found = paired([value + round(gap) for value in whole], whole)
    assert found.mean == round(gap)
    assert not found.clear
    assert not found.has_width


def test_rounding_is_no_difference():
    found = paired([0.1 + 0.2, 0.7 + 0.1, 0.3], [0.3, 0.8, 0.1 + 0.2])
    assert found.mean == 0.0
    assert not found.clear
    assert not interval([0.1, 0.1, 0.1]).has_width  # whose standard deviation is 1e-17


def test_one_seed_has_no_interval_and_is_never_clear():
    alone = interval([3.0])
    assert alone == Interval(3.0, math.inf, 1)
    assert not alone.clear
    assert not alone.has_width


def test_a_difference_is_clear_if_its_interval_leaves_0_out():
    assert paired([11.0, 22.1, 33.2], [10.0, 21.0, 32.0]).clear
    assert not paired([11.0, 21.0, 33.0], [10.0, 23.0, 32.0]).clear


@pytest.mark.filterwarnings("error")
def test_scores_that_are_not_finite_have_no_interval():
    for bad in (math.nan, math.inf):
        found = interval([1.0, bad, 2.0])
        assert not math.isfinite(found.mean)
        assert not found.has_width
        assert not paired([1.0, bad], [1.0, 2.0]).clear


def test_the_band_is_the_interval_at_every_point():
    curves = np.random.default_rng(0).normal(size=(6, 5))
    mean, half = band(curves)
    for j in range(5):
        one = interval(curves[:, j])
        assert (mean[j], half[j]) == pytest.approx((one.mean, one.half), rel=1e-12)
    assert band(curves[:1])[1].tolist() == [0.0] * 5


def test_what_is_not_a_number_per_seed_is_refused():
    for wrong in ([], [[1.0, 2.0]]):
        with pytest.raises(fp.ContractError, match="one number per seed"):
            interval(wrong)
    with pytest.raises(fp.ContractError, match="the same seeds"):
        paired([1.0, 2.0], [1.0])
