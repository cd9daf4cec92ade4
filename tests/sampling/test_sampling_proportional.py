"""capped and proportional against bisection on c and against the formula of E3CS's Algorithm 2, in exact arithmetic."""

import re
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpick import sampling
from fedpick.core.errors import ContractError

quick = settings(max_examples=200, deadline=None)


def by_formula(weights, total, cap):
    """Sorted downwards, n is the smallest count for which the share of the next one is at most the cap.

    Works in whatever exact or long arithmetic the arguments come in; returns shares and the strict mask w > cap alpha.
    """
    if total == 0:
        return [0 * w for w in weights], [False] * len(weights)
    ordered = sorted(weights, reverse=True)
    n = 0
    while (total - n * cap) * ordered[n] / sum(ordered[n:]) > cap:
        n += 1
    alpha = sum(ordered[n:]) / (total - n * cap)
    over = [w > cap * alpha for w in weights]
    assert sum(over) == n
    return [cap if above else w / alpha for w, above in zip(weights, over, strict=True)], over


def by_bisection(weights, total, cap):
    """The c for which min(cap, c w) sums to `total`."""
    weights = np.asarray(weights, dtype=np.float64)
    low, high = 0.0, 1.0
    while np.minimum(cap, high * weights).sum() < total * (1.0 - 1e-13):
        high *= 2.0
    for _ in range(200):
        c = (low + high) / 2.0
        if np.minimum(cap, c * weights).sum() < total:
            low = c
        else:
            high = c
    return np.minimum(cap, high * weights)


caps = st.sampled_from([Fraction(1), Fraction(1, 2), Fraction(7, 10), Fraction(3)])


@st.composite
def whole_weights(draw):
    """Small whole weights: ties, and shares that are the cap exactly, are frequent."""
    weights = draw(st.lists(st.integers(1, 12), min_size=1, max_size=8))
    cap = draw(caps)
    return weights, cap * len(weights) * Fraction(draw(st.integers(0, 24)), 24), cap


@quick
@given(whole_weights())
def test_shares_and_mask_are_those_of_the_papers_formula(case):
    weights, total, cap = case
    shares, over = sampling.capped(np.log(weights), float(total), float(cap))
    twin_shares, twin_over = by_formula([Fraction(w) for w in weights], total, cap)
    assert shares == pytest.approx([float(s) for s in twin_shares], rel=1e-9, abs=1e-15)
    assert over.tolist() == twin_over


@quick
@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=20), st.floats(0.01, 1.0), st.sampled_from([0.3, 1.0, 2.0]))
def test_shares_are_min_of_the_cap_and_c_w_with_c_found_by_bisection(weights, part, cap):
    total = part * cap * len(weights)
    shares, _ = sampling.capped(np.log(weights), total, cap)
    assert shares == pytest.approx(by_bisection(weights, total, cap), rel=1e-8)


logs = st.lists(st.one_of(st.floats(-2000.0, 2000.0), st.sampled_from([-2000.0, 0.0, 2000.0])), min_size=1, max_size=25)


@quick
@given(logs, st.floats(0.0, 1.0), st.sampled_from([0.3, 1.0, 2.0]))
def test_log_weights_over_any_range_share_the_total_without_underflow(log_weights, part, cap):
    total = part * cap * len(log_weights)
    shares, over = sampling.capped(log_weights, total, cap)
    assert np.isfinite(shares).all()
    assert shares.sum() == pytest.approx(total, rel=1e-8)
    assert (shares >= 0.0).all()
    assert (shares <= cap).all()
    assert (shares[over] == cap).all()
    order = np.argsort(log_weights)
    assert (np.diff(shares[order]) >= 0.0).all()
    assert (np.diff(over[order].astype(int)) >= 0).all()


def exp80(x):
    with localcontext() as context:
        context.prec = 80
        return Decimal(x).exp()


@settings(max_examples=100, deadline=None)
@given(logs, st.integers(1, 100), st.sampled_from([0.25, 1.0, 2.0]))
def test_log_weights_over_any_range_give_the_formulas_shares_in_80_digits(log_weights, part, cap):
    total = part / 128 * cap * len(log_weights)  # exact in binary: the twin shares the very same total
    shares, _ = sampling.capped(log_weights, total, cap)
    with localcontext() as context:
        context.prec = 1900  # so that sums of e^2000 and e^-2000 are exact
        weights = [exp80(x) for x in log_weights]
        twin, _ = by_formula(weights, Decimal(total), Decimal(cap))
    assert shares == pytest.approx([float(s) for s in twin], rel=1e-8, abs=1e-300)


@pytest.mark.parametrize("high", [0.0, 50.0, 1e3, 1e6, 1e300])
def test_what_the_capped_leave_is_not_lost_beside_them(high):
    shares, over = sampling.capped([high, high, 0.0, np.log(3.0)] if high else [0.0] * 4, 3.0, 1.0)
    assert shares == pytest.approx([1.0, 1.0, 0.25, 0.75] if high else [0.75] * 4)
    assert over.tolist() == [high > 0.0, high > 0.0, False, False]


@pytest.mark.parametrize(
    ("weights", "total", "shares", "over"),
    [
        ([2, 1, 1], 2.0, [1.0, 0.5, 0.5], [False, False, False]),  # the first is at the cap, not above it
        ([2.001, 1, 1], 2.0, [1.0, 0.5, 0.5], [True, False, False]),
        ([9, 2, 1, 1], 3.0, [1.0, 1.0, 0.5, 0.5], [True, False, False, False]),
        ([5, 5, 1, 1], 3.0, [1.0, 1.0, 0.5, 0.5], [True, True, False, False]),
        ([2, 2, 1, 1], 3.0, [1.0, 1.0, 0.5, 0.5], [False, False, False, False]),
        ([4, 4, 4, 4], 2.0, [0.5, 0.5, 0.5, 0.5], [False, False, False, False]),
        ([3, 2, 1], 3.0, [1.0, 1.0, 1.0], [True, True, False]),  # total = cap K: the least is at the cap
        ([7], 1.0, [1.0], [False]),
    ],
)
def test_the_mask_holds_those_strictly_above_the_cap(weights, total, shares, over):
    found, mask = sampling.capped(np.log(weights), total, 1.0)
    assert found == pytest.approx(shares)
    assert mask.tolist() == over


@pytest.mark.parametrize("total", [0.0, -1.0])
def test_nothing_to_share_gives_everyone_nothing(total):
    shares, over = sampling.capped([1.0, 2.0], total, 1.0)
    assert shares.tolist() == [0.0, 0.0]
    assert over.tolist() == [False, False]


def test_nobody_shares_nothing():
    shares, over = sampling.capped([], 0.0, 1.0)
    assert len(shares) == len(over) == 0


@pytest.mark.parametrize("cap", [0.3, 1.0])
def test_a_total_that_rounding_lifts_over_cap_times_k_gives_everyone_the_cap(cap):
    shares, _ = sampling.capped([5.0, 0.0, -700.0], 3 * cap * (1.0 + 5e-10), cap)
    assert shares == pytest.approx([cap] * 3)
    assert (shares <= cap).all()


def test_more_than_cap_times_k_is_refused():
    message = "total = 2.5 cannot be shared by 2 clients with at most 1 each"
    with pytest.raises(ContractError, match=f"^{re.escape(message)}$"):
        sampling.capped([0.0, 1.0], 2.5, 1.0)


# proportional ------------------------------------------------------------------------------------------------------

sizes = st.lists(st.one_of(st.just(0.0), st.floats(1e-3, 1e3)), min_size=1, max_size=20)


@quick
@given(sizes, st.data())
def test_proportional_is_min_of_1_and_c_times_size_and_sums_to_k(array, data):
    positive = sum(s > 0.0 for s in array)
    k = data.draw(st.integers(0, positive))
    p = sampling.proportional(array, k)
    assert p.sum() == pytest.approx(k, rel=1e-8)
    assert ((p >= 0.0) & (p <= 1.0)).all()
    assert (p[np.array(array) == 0.0] == 0.0).all()
    assert p == pytest.approx(by_bisection(array, k, 1.0) if k else np.zeros(len(array)), rel=1e-8)


@quick
@given(st.lists(st.floats(-300.0, 300.0), min_size=1, max_size=20), st.data(), st.integers(0, 2**32 - 1))
def test_proportional_feeds_the_exact_designs_whatever_the_spread_of_the_sizes(powers, data, seed):
    k = data.draw(st.integers(0, len(powers)))
    p = sampling.proportional(10.0 ** np.array(powers), k)
    for design in (sampling.pivotal, sampling.systematic):
        assert len(design(p, np.random.default_rng(seed))) == k


@pytest.mark.parametrize(
    ("array", "k", "message"),
    [
        ([1.0, 0.0, 2.0], 3, "k = 3, but only 2 sizes are > 0: lower k to at most 2"),
        (
            [1.0, -1.0],
            1,
            "sizes hold a negative number, NaN or infinity, but must be finite and >= 0, one per client",
        ),
        (
            [1.0, np.nan],
            1,
            "sizes hold a negative number, NaN or infinity, but must be finite and >= 0, one per client",
        ),
        (
            [1.0, np.inf],
            1,
            "sizes hold a negative number, NaN or infinity, but must be finite and >= 0, one per client",
        ),
        (
            [[1.0, 2.0]],
            1,
            "sizes hold a negative number, NaN or infinity, but must be finite and >= 0, one per client",
        ),
    ],
)
def test_wrong_sizes_are_refused(array, k, message):
    with pytest.raises(ContractError, match=f"^{re.escape(message)}$"):
        sampling.proportional(array, k)


@pytest.mark.parametrize(
    ("logs", "shape"), [([0.0, np.nan, 1.0], r"\(3,\)"), ([[0.0, 1.0]], r"\(1, 2\)"), ([[0.0], [1.0]], r"\(2, 1\)")]
)
def test_wrong_weights_are_refused(logs, shape):
    with pytest.raises(ContractError, match=f"^log_weights has shape {shape} or holds NaN, but must be one number per"):
        sampling.capped(logs, 1, 1.0)
