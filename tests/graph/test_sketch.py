"""Sketches keep squared lengths and distances in the mean, with the error that their page promises."""

import numpy as np
import pytest

import fedpick as fp
from fedpick.graph import sketch


@pytest.mark.parametrize("width", [8, 64])
def test_squared_distances_are_right_in_the_mean(width):
    rng = np.random.default_rng(0)
    ratios = []
    for length in range(300, 700):  # each length has signs of its own
        one, other = rng.normal(size=(2, length))
        ratios.append(np.sum((sketch(one, width) - sketch(other, width)) ** 2) / np.sum((one - other) ** 2))
    error = np.sqrt(2 / width)
    assert np.std(ratios) <= 1.2 * error
    assert abs(np.mean(ratios) - 1.0) <= 4 * error / np.sqrt(len(ratios))


def test_it_is_linear_and_the_same_for_rows_and_vectors():
    rows = np.random.default_rng(1).normal(size=(4, 50))
    np.testing.assert_allclose(sketch(rows, 7)[2], sketch(rows[2], 7))
    np.testing.assert_allclose(sketch(rows[0] + 2 * rows[1], 7), sketch(rows[0], 7) + 2 * sketch(rows[1], 7))


def test_what_it_cannot_take_is_an_error():
    with pytest.raises(fp.SettingError, match="sketch: width = 0"):
        sketch(np.ones(3), 0)
    with pytest.raises(fp.ContractError, match="must be one vector or a row per client"):
        sketch(np.ones((2, 2, 2)), 3)
