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


USER = """
import numpy as np
import fedpick as fp

clients = fp.Clients(np.ones(50))
policy = fp.E3CS(10, quota=0.5)
state = policy.init(clients)
view = fp.View(1, np.ones(50, dtype=bool), clients)
choice: fp.Choice = policy.select(state, view, fp.rng.stream(0, 1, "policy"))
outcome = fp.Outcome(np.zeros(10, dtype=int), np.ones(10), np.ones(10))
state = policy.observe(state, view, choice, outcome)
names: list[int] = choice.ids.tolist()
world = fp.worlds.named("volatile", 50)
for record in fp.Run(fp.policy("rbcs-f", cohort_size=10), world, seed=1).rounds(until=3):
    seconds: float = record.seconds
drawn = fp.sampling.pivotal(fp.sampling.proportional([1.0, 2.0, 3.0], 2), np.random.default_rng(0))
cohort = fp.solvers.bottleneck(np.ones(5), np.zeros(5), m=2)
"""
MISTAKES = {
    'fp.E3CS("ten")': 'Argument 1 to "E3CS" has incompatible type "str"; expected "int"',
    "fp.E3CS(10, qouta=0.5)": 'Unexpected keyword argument "qouta" for "E3CS"',
    "fp.Clients(np.ones(5)).size": '"Clients" has no attribute "size"',
    'fp.Run(fp.Uniform(3), "volatile", seed=1)': 'Argument 2 to "Run" has incompatible type "str"; expected "World"',
}


@pytest.mark.slow
def test_a_users_program_is_type_checked_against_the_installed_package(tmp_path):
    """py.typed: mypy --strict takes a right program and finds each mistake in a wrong one."""
    (tmp_path / "right.py").write_text(USER)
    (tmp_path / "wrong.py").write_text("\n".join(["import numpy as np", "import fedpick as fp", "", *MISTAKES]))
    env = {name: value for name, value in os.environ.items() if name != "MYPYPATH"}
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--cache-dir", str(tmp_path / "cache")]
    command += ["right.py", "wrong.py"]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    told = done.stdout.splitlines()
    assert [line for line in told if not line.startswith("wrong.py:")] == [], done.stderr
    for number, message in enumerate(MISTAKES.values(), 4):
        assert any(line.startswith(f"wrong.py:{number}: error: {message}") for line in told), (message, told)


# deploy.py needs an app, torch_loop.py PyTorch: tests/flower/test_examples.py and tests/pytorch run them.
ELSEWHERE = {"deploy.py", "torch_loop.py"}
EXAMPLES = sorted(path.name for path in (ROOT / "examples").glob("*.py") if path.name not in ELSEWHERE)
LONG = {"own_model.py"}  # trains models


@pytest.mark.parametrize(
    "example", [pytest.param(name, marks=[pytest.mark.slow] * (name in LONG)) for name in EXAMPLES]
)
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
