"""What the command line shows while it works, and what it loads."""

import io
import re
import subprocess
import sys

import pytest
from rich.console import Console

from fedpick.cli import console


def test_a_run_says_that_it_compiles_until_its_first_round(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.StringIO()
    monkeypatch.setattr(console, "err", Console(file=shown, force_terminal=True, width=120))

    def after(round: int) -> str:
        shown.seek(0)
        shown.truncate()
        with console.progress_of(["uniform seed 0"], [10], [3]) as tell:
            tell(0, round)
        return shown.getvalue()

    assert "uniform seed 0: compiling" in after(3)
    assert "uniform seed 0" in after(4)
    assert "compiling" not in after(4)


@pytest.mark.slow
def test_listing_policies_loads_neither_experiments_nor_reports() -> None:
    program = (
        "import sys; sys.argv = ['fedpick', 'policies']\n"
        "import atexit; atexit.register(lambda: sys.stderr.write(' '.join(sys.modules)))\n"
        "from fedpick.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "e3cs" in done.stdout
    loaded = set(done.stderr.split())
    assert "fedpick.policies" in loaded
    assert not loaded & {"fedpick.experiment", "fedpick.report", "scipy.special", "jax", "pyarrow"}


@pytest.mark.parametrize("width", [60, 80, 120])
def test_progress_shows_rounds_a_second_and_the_time_left_on_one_line(width: int, monkeypatch) -> None:
    clock, shown = [0.0], io.StringIO()
    err = Console(file=shown, force_terminal=True, width=width, color_system=None, get_time=lambda: clock[0])
    monkeypatch.setattr(console, "err", err)
    names = ["over-select(e3cs(quota=0.5), factor=1.3) seed 0", "uniform seed 0"]
    with console.progress_of(names, [500, 500], [0, 0]) as tell:
        for round in range(0, 101, 20):
            clock[0] = round / 10
            tell(0, round)
    frames = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.getvalue()).replace("\r", "\n").splitlines()
    frames = [line for line in frames if line.strip()]
    assert all(len(line) <= width for line in frames)
    whole, run = frames[-2:]
    assert "100/1000" in whole
    assert "10/s" in whole
    assert "1:30 left" in whole
    assert run.startswith("over-select(")
    assert "100/500" in run
