"""What is shown while runs are played."""

import io
import re

import pytest
from rich.console import Console

from fedpick.report.progress import progress_of


def test_a_run_says_that_it_compiles_until_its_first_round() -> None:
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=True, width=120)

    def after(round: int) -> str:
        shown.seek(0)
        shown.truncate()
        with progress_of(["uniform seed 0"], [10], [3], console) as tell:
            tell(0, round)
        return shown.getvalue()

    assert "uniform seed 0: compiling" in after(3)
    assert "uniform seed 0" in after(4)
    assert "compiling" not in after(4)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_progress_shows_rounds_a_second_and_the_time_left_on_one_line(width: int) -> None:
    clock, shown = [0.0], io.StringIO()
    err = Console(file=shown, force_terminal=True, width=width, color_system=None, get_time=lambda: clock[0])
    names = ["over-select(e3cs(quota=0.5), factor=1.3) seed 0", "uniform seed 0"]
    with progress_of(names, [500, 500], [0, 0], err) as tell:
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
