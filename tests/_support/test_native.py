"""Functions that Numba compiles at their first call."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba import njit

from fedpick._support.native import Native, native


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


def test_processes_side_by_side_compile_once(tmp_path: Path) -> None:
    """The first compiles, the others wait and load what it has kept."""
    script = tmp_path / "work.py"
    script.write_text(
        "import sys, numpy as np\n"
        "from fedpick._support.native import native\n"
        "@native\n"
        "def twice(values):\n"
        "    total = 0.0\n"
        "    for value in values:\n"
        "        total += 2.0 * value\n"
        "    return total\n"
        "assert twice(np.arange(4.0)) == 12.0\n"
        "print(sum(twice.compiled.stats.cache_misses.values()), flush=True)\n"
    )
    variables = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "kept")}
    both = [
        subprocess.Popen([sys.executable, str(script)], env=variables, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    missed = [int(process.communicate()[0]) for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert sorted(missed) == [0, 1]


def test_a_folder_without_locks_is_no_obstacle(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError("no locks here")

    monkeypatch.setattr("filelock.FileLock", refuse)
    assert Native(twice.function)(np.arange(4.0)) == 12.0
