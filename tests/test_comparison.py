"""Comparisons from Python."""

import io
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass

import pytest

import fedpick as fp
from fedpick.experiment import Experiment
from fedpick.experiment.playing import carry_out, work_of
from fedpick.experiment.shelf import Shelf

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
    assert work_of(fp.experiment.load_experiment(tmp_path / "study.toml"), Shelf(tmp_path)).missing == []


def test_fewer_rounds_are_a_narrower_view(tmp_path):
    fp.compare(["uniform"], out=tmp_path, **SMALL)
    short = fp.compare(["uniform"], out=tmp_path, **{**SMALL, "rounds": 10})
    assert set(short.frame()["rounds"]) == {10}
    fresh = fp.compare(["uniform"], out=tmp_path / "fresh", **{**SMALL, "rounds": 10})
    assert short.frame()["returned"].tolist() == fresh.frame()["returned"].tolist()


def test_two_plans_share_what_both_name_and_pruning_keeps_it(tmp_path):
    shelf = Shelf(tmp_path)
    for policies, seeds in ((["uniform", "e3cs"], 2), (["uniform", "bsfl"], 3)):
        carry_out(work_of(Experiment(policies, cohort_size=5, seeds=seeds, rounds=10), shelf), executor="serial")
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
        carry_out(work_of(Experiment("uniform", cohort_size=5, seeds=seeds, rounds=5), shelf), executor="serial")
    assert [plan.seeds for plan in shelf.plans()] == [(0, 1)]


def test_a_full_disk_at_the_end_is_one_line_and_the_runs_are_whole(tmp_path, monkeypatch):
    import errno
    from contextlib import contextmanager

    from fedpick import comparison

    results = fp.compare(["uniform"], out=tmp_path, **SMALL)

    @contextmanager
    def full(path):
        yield path.with_name("x.tmp")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(comparison.atomic, "replacing", full)
    with pytest.raises(fp.ConfigError, match=r"No space left on device\); the runs are intact"):
        comparison.write(results, tmp_path, "results")


def test_a_run_that_was_killed_between_its_two_joined_files_is_ended(tmp_path, monkeypatch):
    from fedpick.store import writing

    whole = fp.compare(["uniform"], out=tmp_path / "whole", **{**SMALL, "seeds": 1}).runs[0].folder

    class Killed(BaseException):
        pass

    write = writing.write_sealed

    def die(path, table, label):
        if path.name == "selections.parquet":
            raise Killed
        write(path, table, label)

    with monkeypatch.context() as patch:
        patch.setattr(writing, "write_sealed", die)
        with pytest.raises(Killed):
            fp.compare(["uniform"], out=tmp_path / "cut", **{**SMALL, "seeds": 1})
    cut = tmp_path / "cut/runs" / whole.name
    assert (cut / "rounds.parquet").is_file()
    assert not (cut / "selections.parquet").exists()
    fp.compare(["uniform"], out=tmp_path / "cut", **{**SMALL, "seeds": 1})
    for name in ("rounds.parquet", "selections.parquet"):
        assert (cut / name).read_bytes() == (whole / name).read_bytes()


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
