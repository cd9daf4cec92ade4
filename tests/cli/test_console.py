"""What the command line shows while it works, and what it loads."""

import io
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
