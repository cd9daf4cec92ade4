"""A scaled-down soak (`make soak` has the whole, and judges the time too): neither memory nor files grow."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


def soak(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(BENCHMARKS / "soak.py"), *arguments]
    return subprocess.run(command, cwd=BENCHMARKS, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_memory_does_not_grow() -> None:
    done = soak("1000", "10000", "1000")  # its exit code is about time, too, which a test does not judge
    grown = [float(each) for each in re.findall(r"x the time, ([+-][0-9.]+) MB", done.stdout)]
    assert len(grown) == 3, done.stdout + done.stderr
    assert max(grown) <= 48.0, done.stdout  # MB, as in soak.py
    (files,) = re.findall(r"files of the records: +([0-9 ]+)", done.stdout)
    assert max(map(int, files.split())) <= 60, done.stdout  # of a server; a part for every write would be hundreds


def test_growth_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import soak as soaking

    meter = soaking.Meter(100)
    meter.seconds, meter.memory = [0.1] * 10, [100.0 + 20 * part for part in range(10)]
    assert meter.grown() == (1.0, 100.0)
    meter.seconds, meter.memory = [0.1 * part for part in range(1, 11)], [100.0] * 10
    slower, larger = meter.grown()
    assert slower > soaking.SLOWER
    assert larger == 0.0
    sys.modules.pop("soak")
