"""What the command line loads."""

import subprocess
import sys

import pytest


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
