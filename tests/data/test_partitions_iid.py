"""IID splits: every example equally likely, shared by chance alone."""

import numpy as np
import pytest
from splits import EVEN, REGRESSION, labelled, rng

from fedpick.data.partitions import (
    IID,
)


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
