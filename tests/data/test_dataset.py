"""Data sets whose arrays do not belong together are refused."""

import numpy as np
import pytest

from fedpick.core.errors import ContractError
from fedpick.data import Dataset

X, Y = np.zeros((4, 2), np.float32), np.arange(4, dtype=np.int32) % 2


@pytest.mark.parametrize(
    ("arrays", "text"),
    [
        ((X, Y[:3]), "mine: 4 inputs, but y has 3: they must be aligned"),
        ((X, Y, X[:2], Y[:1]), "mine: 2 inputs, but test_y has 1: they must be aligned"),
        ((X.astype(np.float64), Y), "mine: inputs are float64, but must be uint8 pixels, float32, or int32 (tokens)"),
    ],
)
def test_what_is_not_aligned_or_of_another_type_is_refused(arrays, text):
    with pytest.raises(ContractError) as caught:
        Dataset("mine", *arrays, classes=2)
    assert str(caught.value) == text


def test_a_data_set_without_a_test_has_an_empty_one():
    made = Dataset("mine", X, Y, classes=2)
    assert (made.test_x.shape, made.test_y.shape) == ((0, 2), (0,))
