"""The process that compiles the training loops, and those that load them from the cache, give the same bits."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import sys
from pathlib import Path
import fedpick as fp
out = Path(sys.argv[1])
fp.compare(["uniform"], data="synthetic(1, 1)", rounds=4, cohort_size=5, seeds=1, executor="serial", out=out)
import pyarrow.parquet as pq
(file,) = out.rglob("selections.parquet")
print([value.hex() for value in pq.read_table(file)["loss"].to_pylist() if value is not None])
"""


@pytest.mark.slow
def test_first_process_gives_the_bits_of_later_ones(tmp_path: Path) -> None:
    """Sums of these loops may be reordered: two compiled copies of one function would differ in the last bits."""
    (tmp_path / "numba").mkdir()
    found = []
    for name in ("compiles", "loads"):
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, str(tmp_path / name)],
            env=os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "numba")},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        found.append(done.stdout)
    assert "0x" in found[0]
    assert found[0] == found[1]
