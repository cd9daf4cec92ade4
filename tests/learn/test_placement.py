"""Clients dealt out to the devices; data placed on them once."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from small_data import data_of

from fedpick.learn.jax import placement


@given(st.lists(st.integers(0, 9), min_size=1, max_size=12), st.integers(1, 4))
def test_a_deal_is_an_order_and_nearly_even(steps: list[int], devices: int) -> None:
    padded = np.array(steps + [0] * (-len(steps) % devices))
    order = placement.deal(padded, devices)
    assert sorted(order) == list(range(len(padded)))
    shares = padded[order].reshape(devices, -1).sum(axis=1)
    naive = np.sort(padded)[::-1].reshape(devices, -1).sum(axis=1)  # the most work to the first
    assert shares.max() <= naive.max()


def test_data_is_placed_once_for_all_trainers_that_share_it() -> None:
    dataset = data_of("pixels").dataset
    placed = placement.place(dataset, "train", 1)
    assert placement.place(dataset, "train", 1) is placed
    np.testing.assert_array_equal(placed.x, dataset.x)
    test = placement.place(dataset, "test", 1)
    assert test is not placed
    np.testing.assert_array_equal(test.y, dataset.test_y)
