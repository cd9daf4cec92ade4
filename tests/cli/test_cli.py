"""The command line, as a user meets it."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fedpick as fp
import fedpick.cli.app
from fedpick import cli
from fedpick.cli import console

EXAMPLES = Path(__file__).parents[2] / "examples"
CONFIG = """
policy = "e3cs(quota=0.5)"
cohort_size = 5
rounds = 30
seed = 3
checkpoint_every = 10
[world]
name = "volatile"
num_clients = 20
"""


def same(a, b):
    """Whether two Parquet files hold the same table (NaN equal to NaN)."""
    return pq.read_table(a).to_pandas().equals(pq.read_table(b).to_pandas())


def fedpick(capsys, monkeypatch, *arguments):
    """Call the command line in this process; returns exit code, standard output and error."""
    monkeypatch.setattr(sys, "argv", ["fedpick", *map(str, arguments)])
    for place in (console.out, console.err):
        monkeypatch.setattr(place, "_width", 200)
    code = 0
    try:
        cli.main()
    except SystemExit as stop:
        code = stop.code or 0
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.fixture
def call_and_draw(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: fedpick(capsys, monkeypatch, *arguments)


@pytest.fixture
def call(call_and_draw, no_pictures):
    """Figures are empty files: drawing takes most of a short comparison's time."""
    return call_and_draw


def test_version_and_help(call):
    assert call("--version")[1].strip() == fp.__version__
    code, out, _ = call("compare", "--help")
    assert code == 0
    assert "e3cs(quota=0.5)" in out


def test_help_names_the_defaults(call):
    said = {name: " ".join(call(name, "--help")[1].replace("│", " ").split()) for name in ("compare", "run")}
    plan, one = fp.Experiment("uniform"), fp.experiment.Config("uniform")
    where = plan.world[0]["name"]
    for default in (plan.cohort_size[0], plan.rounds, len(plan.seeds), where, "'synthetic(1, 1)'"):
        assert f"(default: {default}" in said["compare"]
    assert "[default: fedpick-runs/compare]" in said["compare"]
    numbers = f"cohort_size {one.cohort_size}, rounds {one.rounds}, seed {one.seed}"
    assert f"{numbers}, checkpoint_every {one.checkpoint_every}" in said["run"]
    assert one.world["name"] == where
    assert f"the world {where} (as for fedpick compare)" in said["run"]


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


def runs_in(folder, **wanted):
    """Folders of runs by (policy, seed), of those whose manifest says what is wanted."""
    found = {}
    for path in folder.glob("runs/*/manifest.json"):
        config = json.loads(path.read_text())["config"]
        if all(config.get(key) == value for key, value in wanted.items()):
            found[config["policy"], config["seed"]] = path.parent
    return found


def scores(folder):
    rows = json.loads((folder / "results.json").read_text())["rows"]
    return {row["policy"]: row["scores"] for row in rows}


def test_compare_pairs_by_seed_and_keeps_everything(call_and_draw, tmp_path):
    call = call_and_draw
    options = shlex.split("--world volatile --num-clients 20 -m 5 -t 40 -s 3 --workers 1 -d none --out cmp")
    code, out, _ = call("compare", "-p", "uniform", "-p", "e3cs(quota=0)", *options)
    assert code == 0
    assert "± is a 95% interval over seeds; differences are to uniform" in " ".join(out.split())
    found = scores(tmp_path / "cmp")
    a, b = found["uniform"]["returned"], found["e3cs(quota=0)"]["returned"]
    assert b["difference"]["mean"] == pytest.approx(b["mean"] - a["mean"])
    assert not a.get("difference")
    assert (tmp_path / "cmp/results.png").stat().st_size > 10_000
    assert {path.suffix for path in (tmp_path / "cmp").glob("results.*")} == {".json", ".csv", ".html", ".png", ".svg"}
    assert len(runs_in(tmp_path / "cmp")) == 6
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "cmp").rglob("*.parquet")}
    code, again, _ = call("resume", "cmp")  # nothing left to do, the same table
    assert code == 0
    assert again == out
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "cmp").rglob("*.parquet")} == before


def test_compare_trains_and_goes_on_to_more_rounds(call, tmp_path):
    options = shlex.split("-w ideal -k 20 -m 5 -t 20 -s 2 --workers 1 -d digits --out cmp")
    code, out, _ = call("compare", "-p", "uniform", "-p", "pow-d", *options)
    assert code == 0
    assert "accuracy" in " ".join(out.split())
    found = scores(tmp_path / "cmp")
    for name in ("uniform", "pow-d"):
        assert found[name]["accuracy"]["mean"] > 0.5
        assert {"rounds_to", "hours_to", "worst_decile", "spread", "train_loss", "test_loss"} <= set(found[name])
    first = runs_in(tmp_path / "cmp")["uniform", 0] / "rounds.parquet"
    each = np.sort(pq.read_table(first.parent / "clients.parquet")["accuracy"].to_numpy())
    assert each[:2].mean() == pytest.approx(pq.read_table(first)["worst_decile"].drop_null()[-1].as_py(), rel=1e-6)
    before = first.read_bytes()
    code, _, _ = call("resume", "cmp", "--rounds", 30, "--workers", 1)
    assert code == 0
    rounds = pq.read_table(first)
    assert len(rounds) == 30
    assert rounds.slice(0, 20).equals(pq.read_table(pa.BufferReader(before)))
    assert call("resume", "cmp")[0] == 0  # the plan has grown with the runs


EPS = """
from dataclasses import dataclass

import fedpick as fp


@dataclass(frozen=True)
class EpsGreedy(fp.Uniform):
    eps: float = 0.5
"""
SMALL = shlex.split("-w volatile -k 20 -m 5 -t 20 -s 2 --workers 1 -d none --out cmp")


def test_a_policy_of_ones_own_is_compared_resumed_and_reported(call, tmp_path, monkeypatch):
    (tmp_path / "eps.py").write_text(EPS)
    assert call("check", "eps.py:EpsGreedy")[0] == 0
    code, out, _ = call("compare", "-p", "uniform", "-p", "eps.py:EpsGreedy(eps=0.1)", *SMALL)
    assert code == 0
    assert "eps.py:EpsGreedy(eps=0.1)" in out
    code, _, err = call("resume", "cmp", "--rounds", 30)
    assert code == 2
    assert "add it with its path: -p eps.py:EpsGreedy" in err
    code, _, _ = call("resume", "cmp", "--rounds", 30, "-p", "eps.py:EpsGreedy", "--workers", 1)
    assert code == 0
    (tmp_path / "eps.py").write_text("raise RuntimeError('imported')")
    assert call("report", "cmp")[0] == 0  # never imports it
    code, _, err = call("resume", "cmp", "-p", "eps.py:EpsGreedy")
    assert code == 2
    assert "has changed since this plan was made" in err
    (tmp_path / "eps.py").write_text(EPS + "# changed\n")
    before = set((tmp_path / "cmp/runs").iterdir())
    assert call("compare", "-p", "uniform", "-p", "eps.py:EpsGreedy(eps=0.1)", *SMALL)[0] == 0
    assert len(set((tmp_path / "cmp/runs").iterdir()) - before) == 2  # a changed file is a new run


def test_a_name_between_colons_is_no_emoji(call, tmp_path):
    (tmp_path / "loop.py").write_text("from fedpick import Uniform as Loop\n")
    code, out, _ = call("compare", "-p", "loop.py:Loop", *SMALL)
    assert code == 0
    assert "loop.py:Loop" in out
    assert "loop.py:Loop: this plan uses code of yours" in call("resume", "cmp")[2]


@pytest.mark.parametrize(("few", "many"), [(2, 3), pytest.param(5, 10, marks=pytest.mark.slow)])
def test_a_comparison_grows_and_only_what_is_missing_is_played(call, tmp_path, monkeypatch, few, many):
    from fedpick.experiment import executors

    played = []
    play = executors.play
    monkeypatch.setattr(executors, "play", lambda jobs, **how: (played.append(len(jobs)), play(jobs, **how)))
    base = shlex.split("compare -p uniform -p e3cs -w volatile -k 20 -m 5 -t 20 --workers 1 -d none")
    call(*base, "-s", few, "--out", "a")
    code, grown, _ = call(*base, "-s", many, "--out", "a")
    assert code == 0
    assert played == [2 * few, 2 * (many - few)]
    _, fresh, _ = call(*base, "-s", many, "--out", "b")
    assert grown.replace("written to a:", "") == fresh.replace("written to b:", "")
    for name in ("results.json", "results.csv"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    for key, folder in runs_in(tmp_path / "a").items():
        for name in ("rounds.parquet", "selections.parquet"):
            assert (folder / name).read_bytes() == (runs_in(tmp_path / "b")[key] / name).read_bytes()


def test_a_comparison_of_other_policies_worlds_or_fewer_seeds_shares_its_runs(call, tmp_path, monkeypatch):
    from fedpick.experiment import executors

    played = []
    play = executors.play
    monkeypatch.setattr(executors, "play", lambda jobs, **how: (played.append(len(jobs)), play(jobs, **how)))
    base = shlex.split("compare -p uniform -p e3cs -w volatile -k 20 -m 5 -t 20 --workers 1 -d none")
    call(*base, "-s", 3, "--out", "a")
    played.clear()
    call(*base, "-p", "bsfl", "-w", "ideal", "-s", 2, "--out", "a")  # another policy and world: what is new
    assert played == [2 * 3 * 2 - 2 * 2]
    code, out, _ = call(*base, "-s", 2, "--out", "a")  # fewer is a narrower view
    assert code == 0
    assert "2 seeds" in out
    assert played == [8]
    code, out, _ = call("runs", "a")
    assert code == 0
    assert "14 runs" in out
    code, out, _ = call("runs", "a", "--prune")
    assert "0 runs" in out  # every run is in a plan
    next((tmp_path / "a/plans").glob("12-runs*")).unlink()
    assert "8 runs" in call("runs", "a", "--prune")[1]
    assert len(runs_in(tmp_path / "a")) == 6


@pytest.mark.filterwarnings("default::UserWarning")  # as on the command line
def test_ways_to_write_a_policy_share_a_run(call, tmp_path):
    code, _, said = call("compare", "-p", "over-select(uniform, 1.3)", "-p", "over-select(uniform,1.3)", *SMALL)
    assert code == 0
    assert "warning: policy over-select(uniform, 1.3) is given more than once; its runs are made once" in said
    assert len(runs_in(tmp_path / "cmp")) == 2
    assert call("compare", "-p", "OverSelect(uniform,1.30)", *SMALL)[0] == 0
    assert len(runs_in(tmp_path / "cmp")) == 2


def test_several_cohort_sizes_and_a_file(call, tmp_path):
    (tmp_path / "study.toml").write_text(
        'policy = ["uniform", "e3cs"]\ncohort_size = [3, 5]\nrounds = 10\nseeds = 1\n'
        '[world]\nname = ["volatile", "ideal"]\nnum_clients = 20\n'
    )
    code, _, _ = call("compare", "study.toml", "--workers", 1, "--out", "cmp")
    assert code == 0
    assert len(runs_in(tmp_path / "cmp")) == 2  # by policy and seed
    assert len(list((tmp_path / "cmp/runs").iterdir())) == 8
    call("compare", "study.toml", "-m", 3, "-m", 5, "-m", 7, "--workers", 1, "--out", "cmp")
    assert len(list((tmp_path / "cmp/runs").iterdir())) == 12


def test_a_lost_plan_is_made_again_from_the_runs(call, tmp_path):
    call("compare", "-p", "uniform", "-p", "e3cs", *SMALL)
    for plan in (tmp_path / "cmp/plans").iterdir():
        plan.write_bytes(b"")
    code, _, err = call("resume", "cmp", "--rounds", 25, "--workers", 1)
    assert code == 0, err
    assert len(pq.read_table(runs_in(tmp_path / "cmp")["e3cs", 1] / "rounds.parquet")) == 25


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """Two policies, two seeds, for tests that only read them."""
    world = {"name": "volatile", "num_clients": 20}
    folder = tmp_path_factory.mktemp("compared")
    fp.compare(["uniform", "e3cs"], world=world, cohort_size=5, data=None, seeds=2, rounds=20, workers=1, out=folder)
    return folder


@pytest.mark.parametrize("format", ["markdown", "csv", "json", "latex", "text"])
def test_report_in_a_format(call, compared, format):
    code, out, _ = call("report", compared, "--format", format)
    assert code == 0
    assert "uniform" in out
    assert fp.load(compared).table(format) == out


def test_updates_that_run_away_are_failures_and_are_told(call, tmp_path):
    options = shlex.split("-w ideal -k 20 -m 5 -t 4 -s 1 --workers 1 -d digits --lr 1e30 --out cmp")
    code, out, _ = call("compare", "-p", "uniform", *options)
    assert code == 0
    assert re.search(
        r"uniform: \d+ updates were not finite \(NaN or infinity\) and count as failed", " ".join(out.split())
    )


def test_an_oracle_is_told_the_truth_of_the_world(call, tmp_path):
    options = ["--world", "e3cs", "-m", 5, "-t", 60, "-s", 1, "--workers", 1, "-d", "none", "--out", "cmp"]
    _, out, _ = call("compare", "-p", "fedcs", "-p", "uniform", *options)
    assert "fedcs (oracle)" in out
    found = scores(tmp_path / "cmp")
    assert found["fedcs"]["success"]["mean"] > 0.8 > found["uniform"]["success"]["mean"]
    code, _, _ = call(
        *["compare", "-p", "fedcs(deadline=3.0)", "--world", "rbcs-f", "-t", 5, "-s", 1, "-d", "none"],
        *["--workers", 1, "--out", "r"],
    )
    assert code == 0


def test_a_run_is_not_lost_for_want_of_a_plot(call, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # as if it were not installed
    code, out, err = call("compare", "-p", "uniform", *SMALL)
    assert code == 0
    assert "matplotlib" in err
    assert "pip install" in err
    assert "results.json" in out


def test_a_wrong_target_is_refused_before_the_runs(call, tmp_path):
    code, _, err = call("compare", "-p", "uniform", "-d", "none", "-t", 5, "-s", 1, "--target", 85, "-o", "c")
    assert code == 2
    assert "target = 85.0, but must be a test accuracy in (0, 1]; write 0.85 for 85%" in err
    assert not list(tmp_path.glob("c/runs/*"))
    with pytest.raises(fp.FedpickError, match=r"write 0\.85 for 85%"):
        fp.compare(["uniform"], data=None, rounds=5, seeds=1, target=85, out=tmp_path / "d")
    assert not list(tmp_path.glob("d/runs/*"))


def test_rich_is_the_table_of_a_terminal(call):
    assert call("compare", "-p", "uniform", "-d", "none", "-t", 5, "-s", 1, "-o", "c")[0] == 0
    assert call("report", "c", "-f", "rich") == call("report", "c")


def test_the_folder_of_a_study_is_no_run(call, tmp_path):
    (tmp_path / "manifest.json").write_text(json.dumps({"study": "bsfl/fig4", "settings": {}}))
    code, _, err = call("report", ".")
    assert code == 2
    assert "holds the result of the study bsfl/fig4, not a run; see its findings.md" in err


@pytest.mark.parametrize(
    ("words", "offers"),
    [
        ("fedpick comp", ["compare"]),
        ("fedpick compare --policy e3", ["e3cs"]),
        ("fedpick compare -p uniform --world vol", ["volatile"]),
        ("fedpick compare -d fash", ["fashion-mnist"]),
        ("fedpick compare --executor st", ["stacked"]),
        ("fedpick policies pow-", ["pow-d"]),
    ],
)
def test_a_shell_completes_commands_and_values(words, offers, monkeypatch, capsys):
    monkeypatch.setenv("_FEDPICK_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))
    with pytest.raises(SystemExit):
        cli.app.app(prog_name="fedpick")
    assert capsys.readouterr().out.split() == offers


@pytest.mark.parametrize(
    ("missing", "arguments", "says"),
    [
        ("typer", ["policies"], "the command line needs typer: pip install 'fedpick[cli]'"),
        ("pyarrow", ["compare", "-p", "uniform"], "reading them needs pyarrow: pip install 'fedpick[cli]', or for"),
        ("filelock", ["compare", "-p", "uniform"], "locking a folder needs filelock: pip install 'fedpick[cli]'"),
        ("jax", ["compare", "-p", "uniform"], "training needs jax: pip install 'fedpick[learn]', or train nothing"),
    ],
)
def test_a_missing_extra_is_one_line(tmp_path, missing, arguments, says):
    program = f"import sys; sys.modules[{missing!r}] = None; from fedpick.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert says in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


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
        (["compare"], "no policy is given"),
        (["compare", "-p", "uniform", "-m", "200"], "cohort_size = 200, but there are only 100 clients"),
        (["compare", "-p", "uniform", "--device", "tpu"], "unknown device 'tpu'"),
        (["compare", "-p", "uniform", "--out", "full"], "contains files that are not fedpick's"),
        (["compare", "-p", "none.py:X"], "there is no file 'none.py'"),
        (["compare", "-p", "uniform", "-d", "none.npz"], "none.npz: there is no such file"),
        (["compare", "bad.toml"], "bad.toml: unknown setting 'polciy'; did you mean 'policy'?"),
        (["runs", "nowhere"], "nowhere: holds no comparisons"),
        (["report", "full"], "full: has no runs"),
        (["compare", "-p", "uniform", "--executor", "slurm"], "unknown executor 'slurm'"),
        (["compare", "-p", "uniform", "-d", "fashoin-mnist"], "did you mean 'fashion-mnist'?"),
        (["compare", "-p", "uniform", "-d", "digits", "--partition", "labels-per-client(11)"], "labels"),
        (["compare", "-p", "uniform", "-d", "digits", "--partition", "iid(size=500)"], "500"),
        (["compare", "-p", "uniform", "-d", "digits", "--model", "mpl"], "did you mean 'mlp'?"),
        (["compare", "-p", "uniform", "-d", "digits", "--model", "mlp(outputs=7)"], "must give (2, 10)"),
        (["compare", "-p", "uniform", "-d", "digits", "--lr", "0"], "lr = 0.0, but must be > 0"),
        (["compare", "-p", "uniform", "-d", "digits", "--lr", "fast"], "unknown learning rate 'fast'"),
        (["compare", "-p", "uniform", "-d", "digits", "--algorithm", "scafold"], "did you mean 'scaffold'?"),
        (["compare", "-p", "uniform", "-d", "digits", "--prox", "-1"], "prox = -1.0, but must be >= 0"),
        (["run", "none.toml"], "none.toml: there is no such file"),
        (["run", "bad.toml"], "unknown setting 'polciy'; did you mean 'policy'?"),
        (["resume", "nowhere"], "nowhere: is not a run's folder"),
        (["policies", "e3sc"], "did you mean 'e3cs'?"),
        (["check", "policy.py"], "names no policy; write it like"),
        (["check", "unifrom"], "did you mean 'uniform'?"),
        (["compare", "full"], "full: is a folder, but a policy or a file is needed here; fedpick report full shows"),
        (["compare", "-p", "full"], "fedpick resume full continues them, and --out full adds to them"),
        (["compare", "uniform"], "there is no such file; policies are given with -p: fedpick compare -p uniform"),
        (["check", "none.py:X"], "there is no file 'none.py'"),
        (["check", "broken.py:X"], "cannot be imported: SyntaxError"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(call, tmp_path, arguments, says):
    (tmp_path / "bad.toml").write_text('polciy = "uniform"\n')
    (tmp_path / "broken.py").write_text("class\n")
    (tmp_path / "full").mkdir()
    (tmp_path / "None").mkdir()  # is not meant where no file is given
    (tmp_path / "full/thesis.tex").write_text("{}")
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
    assert call("policies", "RBCSF")[1] == call("policies", "rbcs-f")[1] != ""
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
    code, out, _ = call("check", "uniform")  # a built-in policy
    assert code == 0
    assert "Uniform keeps all rules" in out
    code, _, err = call("check", "worse.py:Wurse")
    assert code == 2
    assert "did you mean 'Worse'?" in err


def test_help_shows_what_an_argument_is(capsys):
    """With Click 8.5, Typer 0.20 drops the help of arguments and suggests a command twice."""
    with pytest.raises(SystemExit):
        cli.app.app(["resume", "--help"])
    said = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "Folder of a run or of comparisons." in said
    with pytest.raises(SystemExit):
        cli.app.app(["reusme"])
    assert capsys.readouterr().err.count("'resume'") == 1


@pytest.mark.slow
def test_the_baselines_of_the_literature_are_compared_in_one_line(call, tmp_path):
    line = (
        "compare -p random -p oort -p divfl -p clustered -p optimal -p tifl -p refl -p f3ast -p fedcor -p hics "
        "-p greedyfed -p 'min-separation(uniform, 10)' --world phones --data digits"
    )
    code, out, err = call(*shlex.split(line), "--rounds", 10, "--seeds", 1, "--out", tmp_path / "zoo")
    assert code == 0, err
    rows = json.loads((tmp_path / "zoo/results.json").read_text())["rows"]
    assert len(rows) == 12
    for name in ("random", "fedcor", "greedyfed", "optimal"):
        assert name in out
