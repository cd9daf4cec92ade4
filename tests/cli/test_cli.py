"""The command line, as a user meets it."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

import fedpick as fp
from fedpick import cli

EXAMPLES = Path(__file__).parents[2] / "examples"
CONFIG = """
policy = "e3cs(quota=0.5)"
cohort_size = 5
rounds = 30
seed = 3
checkpoint_every = 10
[world]
name = "volatile"
clients = 20
"""


def same(a, b):
    """Whether two Parquet files hold the same table (NaN equal to NaN)."""
    return pq.read_table(a).to_pandas().equals(pq.read_table(b).to_pandas())


def fedpick(capsys, monkeypatch, *arguments):
    """Call the command line in this process; returns exit code, standard output and error."""
    monkeypatch.setattr(sys, "argv", ["fedpick", *map(str, arguments)])
    monkeypatch.setattr(cli, "out", Console(width=200))
    monkeypatch.setattr(cli, "err", Console(width=200, stderr=True))
    code = 0
    try:
        cli.main()
    except SystemExit as stop:
        code = stop.code or 0
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.fixture
def call(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: fedpick(capsys, monkeypatch, *arguments)


def test_version_and_help(call):
    assert call("--version")[1].strip() == fp.__version__
    code, out, _ = call("compare", "--help")
    assert code == 0
    assert "e3cs(quota=0.5)" in out


def test_run_writes_a_folder_and_says_where(call, tmp_path):
    (tmp_path / "my.toml").write_text(CONFIG)
    code, out, _ = call("run", "my.toml")
    assert code == 0
    assert "written to fedpick-runs/my" in out
    assert "e3cs(quota=0.5)" in out
    assert len(pq.read_table(tmp_path / "fedpick-runs/my/rounds.parquet")) == 30
    manifest = json.loads((tmp_path / "fedpick-runs/my/manifest.json").read_text())
    assert manifest["config"]["seed"] == 3


def test_resume_goes_past_the_horizon(call, tmp_path):
    (tmp_path / "my.toml").write_text(CONFIG)
    call("run", "my.toml", "--out", "a")
    code, _, _ = call("resume", "a", "--rounds", "45")
    assert code == 0
    (tmp_path / "my.toml").write_text(CONFIG.replace("rounds = 30", "rounds = 45"))
    call("run", "my.toml", "--out", "b")
    for name in ("rounds.parquet", "selections.parquet"):
        assert same(tmp_path / "a" / name, tmp_path / "b" / name)


def test_compare_pairs_by_seed_and_keeps_everything(call, tmp_path):
    options = shlex.split("--world volatile --clients 20 -m 5 -t 40 -s 3 --workers 1 -d none --out cmp")
    code, out, _ = call("compare", "-p", "uniform", "-p", "e3cs(quota=0)", *options)
    assert code == 0
    assert "± is a 95% interval over seeds; second lines are differences to uniform" in out
    summary = json.loads((tmp_path / "cmp/summary.json").read_text())
    a, b = summary["uniform"]["returned"], summary["e3cs(quota=0)"]["returned"]
    assert b["difference"]["mean"] == pytest.approx(b["mean"] - a["mean"])
    assert "difference" not in a
    assert (tmp_path / "cmp/compare.png").stat().st_size > 10_000
    assert (tmp_path / "cmp/compare.svg").is_file()
    assert len(list((tmp_path / "cmp").rglob("rounds.parquet"))) == 6
    assert not list((tmp_path / "cmp").rglob("*.progress"))
    code, again, _ = call("resume", "cmp")  # nothing left to do, the same table
    assert code == 0
    assert re.findall(r"[\d,.]+ ±", again) == re.findall(r"[\d,.]+ ±", out)
    code, _, err = call("compare", "-p", "uniform", "--out", "cmp")
    assert code == 2
    assert "holds another comparison" in err


def test_compare_trains(call, tmp_path):
    options = shlex.split("-w ideal --clients 20 -m 5 -t 40 -s 2 --workers 1 -d digits --out cmp")
    code, out, _ = call("compare", "-p", "uniform", "-p", "pow-d", *options)
    assert code == 0
    assert "accuracy" in " ".join(out.split())
    summary = json.loads((tmp_path / "cmp/summary.json").read_text())
    for name in ("uniform", "pow-d"):
        assert summary[name]["accuracy"]["mean"] > 0.5
        assert summary[name]["rounds_to"]["mean"] <= 40
        assert {"hours_to", "gigabytes_to", "worst_decile", "spread", "train_loss", "test_loss"} <= set(summary[name])
    before = (tmp_path / "cmp/uniform/seed-0/rounds.parquet").read_bytes()
    code, _, _ = call("resume", "cmp", "--rounds", 60)
    assert code == 0
    rounds = pq.read_table(tmp_path / "cmp/uniform/seed-0/rounds.parquet")
    assert len(rounds) == 60
    assert rounds.slice(0, 40).equals(pq.read_table(pa.BufferReader(before)))


def test_updates_that_run_away_are_failures_and_are_told(call, tmp_path):
    options = shlex.split("-w ideal --clients 20 -m 5 -t 4 -s 1 --workers 1 -d digits --lr 1e30 --out cmp")
    code, out, _ = call("compare", "-p", "uniform", *options)
    assert code == 0
    assert re.search(
        r"uniform: \d+ updates were not finite \(NaN or infinity\) and count as failed", " ".join(out.split())
    )
    assert len(pq.read_table(tmp_path / "cmp/uniform/seed-0/rounds.parquet")) == 4


def test_an_oracle_is_told_the_truth_of_the_world(call, tmp_path):
    options = ["--world", "e3cs", "-m", 5, "-t", 60, "-s", 1, "--workers", 1, "-d", "none", "--out", "cmp"]
    call("compare", "-p", "fedcs", "-p", "uniform", *options)
    summary = json.loads((tmp_path / "cmp/summary.json").read_text())
    assert summary["fedcs"]["success"]["mean"] > 0.8 > summary["uniform"]["success"]["mean"]
    code, _, _ = call(
        "compare", "-p", "fedcs(deadline=3.0)", "--world", "rbcs-f", "-t", 5, "-s", 1, "-d", "none", "--out", "r"
    )
    assert code == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["compare", "-p", "e3sc"], "unknown policy 'e3sc'; did you mean 'e3cs'?"),
        (["compare", "-p", "e3cs(qouta=1)"], "did you mean 'quota'?"),
        (["compare", "-p", "e3cs(quota=2)"], "quota = 2, but must be in [0, 1]"),
        (["compare", "-p", "uniform", "-w", "volatil"], "did you mean 'volatile'?"),
        (
            ["compare", "-p", "pow-d", "-w", "e3cs", "-d", "none"],
            "asks clients for their loss, but nothing is trained in this run",
        ),
        (["compare", "-p", "rbcs-f", "-w", "e3cs"], "RBCSF needs a context, but the latency PerClient"),
        (["compare", "-p", "uniform", "--executor", "slurm"], "unknown executor 'slurm'"),
        (["compare", "-p", "uniform", "-d", "fashoin-mnist"], "did you mean 'fashion-mnist'?"),
        (["compare", "-p", "uniform", "-d", "digits", "--partition", "labels-per-client(11)"], "labels"),
        (["compare", "-p", "uniform", "-d", "digits", "--partition", "iid(size=500)"], "500"),
        (["compare", "-p", "uniform", "-d", "digits", "--model", "mpl"], "did you mean 'mlp'?"),
        (["compare", "-p", "uniform", "-d", "digits", "--model", "mlp(outputs=7)"], "must give (2, 10)"),
        (["compare", "-p", "uniform", "-d", "digits", "--lr", "0"], "lr = 0.0, but must be > 0"),
        (["run", "none.toml"], "none.toml: there is no such file"),
        (["run", "bad.toml"], "unknown setting 'polciy'; did you mean 'policy'?"),
        (["resume", "nowhere"], "nowhere: is not a run's folder"),
        (["reproduce", "e3cs/fig5"], "unknown study 'e3cs/fig5'; did you mean 'e3cs/fig"),
        (["policies", "e3sc"], "did you mean 'e3cs'?"),
        (["check", "policy.py"], "names no policy; write it like"),
        (["check", "none.py:X"], "none.py: there is no such file"),
        (["check", "broken.py:X"], "broken.py: cannot be imported: SyntaxError"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(call, tmp_path, arguments, says):
    (tmp_path / "bad.toml").write_text('polciy = "uniform"\n')
    (tmp_path / "broken.py").write_text("class\n")
    code, out, err = call(*arguments)
    assert code == 2
    assert says in err
    assert err.startswith("error: ")
    assert "Traceback" not in out + err


def test_lists_teach(call):
    _, out, _ = call("policies")
    for name in fp.policy_names():
        assert name in out
    assert "quota" in call("policies", "e3cs")[1]
    _, out, _ = call("worlds")
    assert "volatile" in out
    assert "bernoulli(p)" in out


def test_check_tells_about_a_policy_in_a_file(call, tmp_path):
    code, out, _ = call("check", f"{EXAMPLES / 'my_policy.py'}:RoundRobin")
    assert code == 0
    assert "RoundRobin keeps all rules" in out
    (tmp_path / "worse.py").write_text(
        "import fedpick as fp\nimport numpy as np\n"
        "class Worse(fp.Uniform):\n"
        "    def select(self, state, view, rng):\n"
        "        return fp.Choice(np.arange(self.cohort_size))\n"
    )
    code, out, _ = call("check", "worse.py:Worse")
    assert code == 1
    assert "Worse breaks" in out
    assert "not available" in out
    code, _, err = call("check", "worse.py:Wurse")
    assert code == 2
    assert "did you mean 'Worse'?" in err


@pytest.mark.slow
def test_ctrl_c_stops_cleanly_says_how_to_resume_and_loses_nothing(tmp_path):
    base = [sys.executable, "-c", "from fedpick.cli import main; main()"]
    plan = shlex.split("compare -p uniform -p e3cs(quota=0.5) -s 2 -t 6000 -w volatile -d none --out")
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen([*base, *plan, "cmp"], cwd=tmp_path, start_new_session=True, **pipes)
    deadline = time.monotonic() + 60
    while not list(tmp_path.rglob("checkpoint.npz")) and time.monotonic() < deadline:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to every process of the group
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "fedpick resume cmp" in err
    assert "Traceback" not in err
    subprocess.run([*base, "resume", "cmp"], cwd=tmp_path, check=True, capture_output=True, timeout=300)
    subprocess.run([*base, *plan, "whole"], cwd=tmp_path, check=True, capture_output=True, timeout=300)
    for path in (tmp_path / "whole").rglob("*.parquet"):
        assert same(path, tmp_path / "cmp" / path.relative_to(tmp_path / "whole")), path
