"""Comparisons from Python."""

import io
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass

import numpy as np
import pytest

import fedpick as fp
from fedpick.experiment import Experiment
from fedpick.experiment.shelf import Shelf
from fedpick.experiment.work import work_of
from fedpick.report.comparison import make_results

SMALL = {"data": None, "cohort_size": 5, "seeds": 2, "rounds": 15, "executor": "serial"}


@dataclass(frozen=True)
class Mine(fp.Uniform):
    """A policy of this test's own."""


def test_policies_classes_and_texts_are_compared(tmp_path):
    results = fp.compare(["uniform", Mine, fp.E3CS(5, quota=0.2)], out=tmp_path / "a", **SMALL)
    frame = results.frame()
    assert list(dict.fromkeys(frame["policy"])) == ["uniform", "Mine", "E3CS(quota=0.2)"]
    assert len(frame) == 6
    assert len(results.rounds()) == 6 * 15
    same = frame.set_index(["policy", "seed"])["returned"]
    assert same["uniform"].tolist() == same["Mine"].tolist()  # it is the same policy under another name
    assert "<" in results._repr_html_()
    assert results.plot() is not None


class ChoosesAnyone(fp.Uniform):
    def select(self, state, view, rng):
        return fp.Choice(rng.permutation(len(view.clients))[: self.cohort_size])


def test_nobody_gets_credit_for_clients_that_are_away(tmp_path):
    says = r"ChoosesAnyone, seed 0: ChoosesAnyone, round \d: it chose client \d+, which was not available"
    with pytest.raises(fp.ContractError, match=says):
        fp.compare(["uniform", ChoosesAnyone], world="phones", out=tmp_path, **SMALL)


@pytest.mark.parametrize(
    "policy", [fp.Uniform(6), "uniform(cohort_size=6)", fp.OverSelect(fp.Uniform(6), 1.5)], ids=["object", "text", "in"]
)
def test_a_policy_with_another_cohort_size_is_refused_also_where_runs_of_its_name_exist(policy, tmp_path):
    for known in (fp.Uniform(5), fp.OverSelect(fp.Uniform(5), 1.5), "uniform(cohort_size=5)"):
        fp.compare(known, out=tmp_path, **{**SMALL, "seeds": 1, "rounds": 2})
    with pytest.raises(fp.ConfigError, match=r"has cohort_size = 6, but the run's is 5; make them equal, or leave"):
        fp.compare(policy, out=tmp_path, **{**SMALL, "seeds": 1, "rounds": 2})


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"policy": 3}, "policy = 3, but must be a text such as"),
        ({"policy": None}, "policy = None, but must be a text such as"),
        ({"policy": ["uniform", int]}, "policy = <class 'int'>, but must be a text such as"),
        ({"world": 3}, "world = 3, but must be a text such as 'volatile'"),
        ({"world": fp.World}, "world = <class 'fedpick.worlds.world.World'>, but must be"),
        ({"data": 5}, "data = 5, but must be a text such as 'digits'"),
        ({"data": "digits", "train": "lr=0.1"}, "train = 'lr=0.1', but must be settings such as {'lr': 0.1"),
        ({"out": 5}, "out = 5, but must be the path of a folder"),
        ({"executor": 3}, "unknown executor 3"),
        ({"workers": "2"}, "workers = '2', but must be a number of processes >= 1"),
    ],
    ids=str,
)
def test_what_is_of_the_wrong_kind_is_said_in_one_sentence(wrong, says, tmp_path):
    with pytest.raises(fp.FedpickError, match=f"^{re.escape(says)}"):
        fp.compare(**{"policy": "uniform", "out": tmp_path, **SMALL, **wrong})
    assert not list(tmp_path.iterdir())


def test_why_there_is_no_accuracy_is_said_and_the_advice_helps(tmp_path):
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "mine.npz", x=rng.normal(size=(4000, 4)).astype("f4"), y=rng.integers(0, 3, 4000))
    data, world = {"name": f"{tmp_path}/mine.npz"}, "volatile(num_clients=10)"
    how = {**SMALL, "seeds": 1, "rounds": 10, "world": world, "out": tmp_path / "a"}
    results = fp.compare("uniform", **{**how, "data": data}, target=0.5)
    assert "accuracy" not in results.frame()
    assert any("no accuracy, because there are no test examples; add some" in note for note in results.notes)
    helped = fp.compare("uniform", **{**how, "data": {**data, "hold_out": 0.1}})
    short = fp.compare("uniform", **{**how, "data": {**data, "hold_out": 0.1}, "rounds": 9, "out": tmp_path / "b"})
    assert helped.frame()["accuracy"].notna().all()
    assert not any("no accuracy" in note for note in helped.notes)
    assert "accuracy" not in short.frame()
    assert any("no accuracy, because the model was not evaluated in 9 rounds" in note for note in short.notes)
    often = fp.compare(
        "uniform", **{**how, "data": {**data, "hold_out": 0.1}, "rounds": 9}, train={"evaluate_every": 3}
    )
    assert often.frame()["accuracy"].notna().all()


@pytest.mark.parametrize(
    ("package", "does"),
    [
        ("pyarrow", "fp.compare"),
        ("pyarrow", "fp.store.Folder"),
        ("pyarrow", "fp.Session(fp.Uniform(2), records='r').round(['a', 'b'])"),
        ("filelock", "fp.compare"),
        ("filelock", "fp.Session(fp.Uniform(2), state='s').round(['a', 'b'])"),
    ],
)
def test_without_a_package_for_files_it_is_said_what_to_install(package, does, tmp_path):
    code = f"""
import sys
sys.modules[{package!r}] = None
import fedpick as fp
try:
    {does}
except fp.MissingError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert f"needs {package}: pip install 'fedpick[cli]', or for a server 'fedpick[server]'" in done.stdout


def test_it_finds_what_is_there(tmp_path, monkeypatch):
    from fedpick.experiment import executors

    counted = []
    play = executors.play
    monkeypatch.setattr(executors, "play", lambda jobs, **how: (counted.append(len(jobs)), play(jobs, **how)))
    for _ in range(2):
        fp.compare(["uniform", Mine], out=tmp_path, **SMALL)
    fp.compare(["uniform", Mine], out=tmp_path, **{**SMALL, "seeds": 3})
    fp.compare(["uniform"], out=tmp_path, **{**SMALL, "rounds": 20})
    assert counted == [4, 2, 2]


def test_what_python_asks_for_is_what_a_file_asks_for(tmp_path):
    fp.compare(["uniform", "e3cs"], out=tmp_path, **SMALL)
    (tmp_path / "study.toml").write_text("policy = ['e3cs', 'uniform']\ncohort_size = 5\nseeds = 2\nrounds = 15\n")
    assert work_of(fp.experiment.load_experiment(tmp_path / "study.toml"), Shelf(tmp_path)).jobs == []


def test_fewer_rounds_are_a_narrower_view(tmp_path):
    fp.compare(["uniform"], out=tmp_path, **SMALL)
    short = fp.compare(["uniform"], out=tmp_path, **{**SMALL, "rounds": 10})
    assert set(short.frame()["rounds"]) == {10}
    fresh = fp.compare(["uniform"], out=tmp_path / "fresh", **{**SMALL, "rounds": 10})
    assert short.frame()["returned"].tolist() == fresh.frame()["returned"].tolist()


def test_two_plans_share_what_both_name_and_pruning_keeps_it(tmp_path):
    shelf = Shelf(tmp_path)
    for policies, seeds in ((["uniform", "e3cs"], 2), (["uniform", "bsfl"], 3)):
        make_results(Experiment(policies, cohort_size=5, seeds=seeds, rounds=10), tmp_path, executor="serial")
    assert len(shelf.entries()) == 4 + 6 - 2
    assert len(shelf.plans()) == 2
    shared = [entry for entry in shelf.entries() if len(entry.plans) == 2]
    assert {(entry.label, entry.seed) for entry in shared} == {("uniform", 0), ("uniform", 1)}
    next((tmp_path / "plans").glob("6-runs*")).unlink()
    assert {entry.label for entry in shelf.prune()} == {"bsfl", "uniform"}
    assert len(shelf.entries()) == 4
    for plan in (tmp_path / "plans").iterdir():
        plan.write_text("half of it")
    with pytest.raises(fp.ConfigError, match="cannot be read, so it is not known which runs are wanted"):
        shelf.prune()
    assert len(shelf.entries()) == 4


def test_a_plan_that_a_wider_one_contains_is_dropped(tmp_path):
    shelf = Shelf(tmp_path)
    for seeds in (1, 2, 1):
        make_results(Experiment("uniform", cohort_size=5, seeds=seeds, rounds=5), tmp_path, executor="serial")
    assert [plan.seeds for plan in shelf.plans()] == [(0, 1)]


def test_a_full_disk_at_the_end_is_one_line_and_the_runs_are_whole(tmp_path, monkeypatch):
    import errno
    from contextlib import contextmanager

    from fedpick.report import files

    results = fp.compare(["uniform"], out=tmp_path, **SMALL)

    @contextmanager
    def full(path):
        yield path.with_name("x.tmp")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files.atomic, "replacing", full)
    with pytest.raises(fp.ConfigError, match=r"No space left on device\); the runs are intact"):
        files.write(results, tmp_path, "results")


@pytest.mark.parametrize("killed", ["rounds.parquet", "selections.parquet"])
def test_a_run_that_was_killed_before_its_two_tables_were_joined_is_ended(tmp_path, monkeypatch, killed):
    from fedpick.store import writer

    whole = fp.compare(["uniform"], out=tmp_path / "whole", **{**SMALL, "seeds": 1}).runs[0].folder

    class Killed(BaseException):
        pass

    write = writer.write_sealed

    def die(path, table, label):
        if path.name == killed:
            raise Killed
        write(path, table, label)

    with monkeypatch.context() as patch:
        patch.setattr(writer, "write_sealed", die)
        with pytest.raises(Killed):
            fp.compare(["uniform"], out=tmp_path / "cut", **{**SMALL, "seeds": 1})
    cut = tmp_path / "cut/runs" / whole.name
    assert (cut / "rounds.parquet").is_file() == (killed == "selections.parquet")
    assert not (cut / "selections.parquet").exists()
    fp.compare(["uniform"], out=tmp_path / "cut", **{**SMALL, "seeds": 1})
    for name in ("rounds.parquet", "selections.parquet"):
        assert (cut / name).read_bytes() == (whole / name).read_bytes()
    assert not list((cut / "parts").glob("*"))


SCRIPT = """
import fedpick as fp

if __name__ == "__main__":
    fp.compare(["uniform", "e3cs"], data=None, cohort_size=5, seeds=1, rounds=ROUNDS, out="runs", executor="serial")
"""


def test_progress_is_shown_on_a_terminal_alone(tmp_path, capsys, monkeypatch):
    from rich.console import Console

    from fedpick.report import progress

    fp.compare(["uniform"], out=tmp_path / "a", **SMALL)
    assert capsys.readouterr() == ("", "")  # stderr is no terminal here
    shown = io.StringIO()
    monkeypatch.setattr(progress, "terminal", lambda: Console(file=shown, force_terminal=True, width=120))
    fp.compare(["uniform"], out=tmp_path / "b", **SMALL)
    assert "finding existing runs" in shown.getvalue()
    assert "2 runs, rounds" in shown.getvalue()


@pytest.mark.slow
def test_a_script_shows_progress_on_a_terminal(tmp_path):
    pty = pytest.importorskip("pty")
    ours, theirs = pty.openpty()
    program = [sys.executable, "-c", SCRIPT.replace("ROUNDS", "300")]
    with subprocess.Popen(program, cwd=tmp_path, stdout=subprocess.PIPE, stderr=theirs, text=True) as process:
        os.close(theirs)
        shown = b""
        try:
            while chunk := os.read(ours, 65536):
                shown += chunk
        except OSError:  # Linux: the other end is closed
            pass
        os.close(ours)
        out, _ = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "")
    told = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode())
    assert "finding existing runs" in told
    assert "2 runs, rounds" in told
    assert "/600" in told


def test_tell_replaces_the_bars(tmp_path, monkeypatch):
    from fedpick.report import progress

    monkeypatch.setattr(progress, "terminal", lambda: pytest.fail("asked for a terminal"))
    told = []
    fp.compare(["uniform"], out=tmp_path, **SMALL, tell=lambda index, round: told.append((index, round)))
    assert {(0, 15), (1, 15)} <= set(told)


@pytest.mark.parametrize(("number", "by"), [(signal.SIGINT, "Ctrl-C"), (signal.SIGTERM, "SIGTERM")])
def test_stopped_it_says_by_what_and_where_everything_is(tmp_path, number, by):
    def tell(index, round):
        os.kill(os.getpid(), number)

    where = re.escape(str(tmp_path))
    with pytest.raises(KeyboardInterrupt, match=f"stopped by {by}; .* kept in {where}: run the same script again"):
        fp.compare(["uniform"], out=tmp_path, **SMALL, tell=tell)
    again = fp.compare(["uniform"], out=tmp_path, **SMALL).frame()
    assert again["rounds"].tolist() == [15, 15]


def test_a_report_counts_planned_runs_that_have_not_begun(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        fp.compare(["uniform"], out=tmp_path, **SMALL, tell=lambda index, round: os.kill(os.getpid(), signal.SIGINT))
    assert fp.load(tmp_path).notes[0] == "1 of 2 planned runs are missing: not begun, or not readable"
    fp.compare(["uniform"], out=tmp_path, **SMALL)
    assert not any("missing" in note for note in fp.load(tmp_path).notes)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_script_that_is_stopped_says_what_is_kept_where_and_how_to_go_on(tmp_path, number):
    program = [sys.executable, "-c", SCRIPT.replace("ROUNDS", "1_000_000")]
    with subprocess.Popen(program, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        until = time.monotonic() + 60
        while not list(tmp_path.glob("runs/runs/*/checkpoint.npz")) and time.monotonic() < until:
            time.sleep(0.05)
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    by = "Ctrl-C" if number == signal.SIGINT else "SIGTERM"
    assert process.returncode == 1
    assert err.endswith(
        f"stopped by {by}; everything until then is kept in runs: run the same script again to continue\n"
    )
    assert len(err.splitlines()) < 10  # no traceback through fedpick
    found = fp.load(tmp_path / "runs").frame()
    rounds = int(found["rounds"].max())
    assert rounds > 0
    whole = fp.compare(["uniform"], out=tmp_path / "b", **SMALL | {"seeds": 1, "rounds": rounds}).frame()
    assert whole["returned"].tolist() == found["returned"].tolist()
