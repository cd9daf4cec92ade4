"""Sizes of clients: they sum to the total, and follow their laws."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from splits import rng

from fedpick.data.partitions import (
    LogNormalSizes,
    PowerLawSizes,
)
from fedpick.data.partitions.sizes import share_out


# Sizes
@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=20), st.integers(0, 1000))
def test_shares_sum_to_the_total_and_are_off_by_less_than_one(weights, total):
    exact = np.array(weights) / sum(weights) * total
    shares = share_out(np.array([total]), np.array([weights]))[0]
    assert shares.sum() == total
    assert np.abs(shares - exact).max() < 1 + 1e-9


@pytest.mark.parametrize("law", [PowerLawSizes(at_least=3), LogNormalSizes(at_least=3), LogNormalSizes(0.0)])
@given(clients=st.integers(1, 40), total=st.integers(400, 5000))
def test_laws_give_everything_and_their_least_to_everyone(law, clients, total):
    sizes = law(clients, rng(clients), total)
    assert sizes.sum() == total
    assert sizes.min() >= law.at_least


def test_the_power_law_is_the_papers():
    """P(x) = 3x^2 has P(x <= t) = t^3 and mean 3/4."""
    K = 40_000
    sizes = PowerLawSizes(at_least=1)(K, rng(), total=1000 * K) / 1000 * 0.75
    for t in (0.3, 0.5, 0.9):
        assert abs((sizes <= t).mean() - t**3) < 4.5 * np.sqrt(t**3 * (1 - t**3) / K) + 0.005


def test_the_log_normal_law_has_its_sigma():
    K = 40_000
    logs = np.log(LogNormalSizes(1.5, at_least=1)(K, rng(), total=10_000 * K) - 1.0)
    assert abs(logs.std() - 1.5) < 4.5 * 1.5 / np.sqrt(2 * K) + 0.005
