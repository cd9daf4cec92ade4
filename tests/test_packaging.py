"""The wheel works where nothing else is installed, and the examples run."""

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.slow
def test_the_bare_wheel_chooses_clients(tmp_path):
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)],
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    subprocess.run([python, "-m", "pip", "install", "--quiet", wheel], check=True, capture_output=True)
    code = """
import importlib.resources, importlib.util
import numpy as np, fedpick as fp
assert 'venv' in fp.__file__
assert importlib.resources.files('fedpick').joinpath('py.typed').is_file()
for extra in ('jax', 'flwr', 'typer', 'matplotlib', 'pandas', 'pyarrow', 'pytest'):
    assert importlib.util.find_spec(extra) is None, extra
clients = fp.Clients(np.ones(50))
policy = fp.policy('e3cs(quota=0.5)', cohort_size=10)
state = policy.init(clients)
for t in range(1, 4):
    view = fp.View(t, np.ones(50, bool), clients)
    choice = policy.select(state, view, fp.rng.stream(0, t, 'policy'))
    state = policy.observe(state, view, choice, fp.Outcome(np.zeros(10, int), np.ones(10), np.ones(10)))
print(len(choice))
"""
    done = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout.strip() == "10"


# deploy.py needs an app: tests/flower/test_examples.py gives it some.
EXAMPLES = sorted(path.name for path in (ROOT / "examples").glob("*.py") if path.name != "deploy.py")


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_example_runs(example, tmp_path):
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / example)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


@pytest.mark.slow
def test_the_benchmark_runs_and_writes_what_it_promises(tmp_path):
    subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "bench_select.py"), "--quick", "--out", str(tmp_path)],
        check=True,
        capture_output=True,
    )
    assert {p.name for p in tmp_path.iterdir()} == {
        "manifest.json",
        "select.json",
        "select.md",
        "select.png",
        "select.svg",
    }
