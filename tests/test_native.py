"""Functions that Numba compiles at their first call."""

from typing import Any

import numpy as np
import pytest
from numba import njit

from fedpick.native import Native, native


@native
def twice(values: np.ndarray) -> float:
    """A sum, doubled."""
    total = 0.0
    for value in values:
        total += 2.0 * value
    return total


@native
def four_times(values: np.ndarray) -> float:
    return 2.0 * twice(values)


def test_a_function_is_compiled_at_its_first_call_and_says_what_it_is() -> None:
    assert "compiled" not in vars(Native(twice.function))
    assert twice(np.arange(4.0)) == twice.function(np.arange(4.0)) == 12.0
    assert "compiled" in vars(twice)
    assert len(twice.compiled.signatures) == 1
    assert (twice.__name__, twice.__doc__) == ("twice", "A sum, doubled.")


def test_compiled_functions_call_each_other() -> None:
    @njit
    def outer(values: np.ndarray) -> float:
        return twice(values) + four_times(values)

    assert outer(np.arange(4.0)) == 36.0
    assert Native(four_times.function, nogil=True)(np.arange(4.0)) == 24.0


def test_where_compiled_code_cannot_be_kept_it_is_compiled_all_the_same() -> None:
    there: dict[str, Any] = {}
    exec(compile("def double(x):\n    return 2 * x", "nowhere", "exec"), there)  # no file: Numba cannot keep it
    with pytest.raises(RuntimeError, match="cannot cache function"):
        njit(cache=True)(there["double"])
    assert Native(there["double"])(3) == 6
