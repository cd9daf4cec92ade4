"""Comparisons that are killed or told to stop, as a user would: from outside."""

import os
import random
import re
import shlex
import signal
import subprocess
import sys
import time

import pytest

BASE = [sys.executable, "-m", "fedpick"]
PIPES = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
pytestmark = pytest.mark.slow


def files(folder):
    """Every run's tables, by what the run is."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.glob("runs/*/*.parquet")}


def wait_for(condition, seconds=90):
    until = time.monotonic() + seconds
    while not condition() and time.monotonic() < until:
        time.sleep(0.02)
    assert condition()


STUDY = """
policy = ["uniform", "e3cs(quota=0.5)", "eps.py:Eps", "over-select(uniform, 1.3)"]
cohort_size = [5, 10]
seeds = 5
rounds = 400
checkpoint_every = 50
[world]
name = ["volatile", "ideal", "e3cs"]
"""


def test_a_study_killed_ten_times_ends_with_the_files_of_one_that_was_not(tmp_path):
    (tmp_path / "eps.py").write_text("import fedpick as fp\nclass Eps(fp.Uniform):\n    pass\n")
    (tmp_path / "study.toml").write_text(STUDY)
    chance = random.Random(4)
    for _ in range(10):
        process = subprocess.Popen(
            [*BASE, "compare", "study.toml", "--out", "cut"], cwd=tmp_path, start_new_session=True, **PIPES
        )
        time.sleep(chance.uniform(1.0, 6.0))
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=60)
    for out in ("cut", "whole"):
        done = subprocess.run(
            [*BASE, "compare", "study.toml", "--out", out], cwd=tmp_path, timeout=500, check=False, **PIPES
        )
        assert done.returncode == 0, done.stderr
    assert len(files(tmp_path / "whole")) == 3 * 2 * 4 * 5 * 3
    assert files(tmp_path / "cut") == files(tmp_path / "whole")
    assert (tmp_path / "cut/results.json").read_bytes() == (tmp_path / "whole/results.json").read_bytes()


LONG = shlex.split("compare -p uniform -p e3cs(quota=0.5) -p bsfl -s 2 -t 6000 -w volatile -d none --workers 2 --out")


@pytest.fixture(scope="module")
def long_whole(tmp_path_factory):
    """What a comparison that nobody stops writes."""
    folder = tmp_path_factory.mktemp("long")
    subprocess.run([*BASE, *LONG, "whole"], cwd=folder, check=True, capture_output=True, timeout=400)
    return files(folder / "whole")


@pytest.mark.parametrize(
    ("number", "group", "code"), [(signal.SIGINT, True, 130), (signal.SIGTERM, False, 143)], ids=["ctrl-c", "term"]
)
def test_told_to_stop_it_stops_starts_nothing_and_says_the_command_that_goes_on(
    tmp_path, long_whole, number, group, code
):
    process = subprocess.Popen([*BASE, *LONG, "cmp"], cwd=tmp_path, start_new_session=True, **PIPES)
    wait_for(lambda: list(tmp_path.rglob("checkpoint.npz")))
    begun = len(list((tmp_path / "cmp/runs").iterdir()))
    (os.killpg if group else os.kill)(process.pid, number)  # a terminal tells every process of the group
    told = time.monotonic()
    _, err = process.communicate(timeout=120)
    assert time.monotonic() - told < 30  # well under the work that is left
    assert process.returncode == code, err
    assert "Traceback" not in err
    assert len(list((tmp_path / "cmp/runs").iterdir())) <= begun + 1  # one may have begun while we counted
    command = re.search(r"Continue with: fedpick (.*)", err)
    assert command, err
    subprocess.run([*BASE, *shlex.split(command[1])], cwd=tmp_path, check=True, capture_output=True, timeout=400)
    assert files(tmp_path / "cmp") == long_whole != {}


def test_after_more_rounds_and_a_stop_the_printed_command_is_true(tmp_path):
    plan = shlex.split("compare -p uniform -s 1 -t 50 -w volatile -d none --out ext")
    subprocess.run([*BASE, *plan], cwd=tmp_path, check=True, capture_output=True, timeout=300)
    longer = [*BASE, "resume", "ext", "--rounds", "60000"]
    process = subprocess.Popen(longer, cwd=tmp_path, start_new_session=True, **PIPES)
    checkpoint = next(tmp_path.rglob("checkpoint.npz"))
    before = checkpoint.stat().st_mtime_ns
    wait_for(lambda: checkpoint.stat().st_mtime_ns != before)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert "Continue with: fedpick resume ext" in err, err
    again = subprocess.Popen([*BASE, "resume", "ext"], cwd=tmp_path, start_new_session=True, **PIPES)
    before = checkpoint.stat().st_mtime_ns
    wait_for(lambda: checkpoint.stat().st_mtime_ns != before)  # it goes on
    os.killpg(again.pid, signal.SIGINT)
    _, err = again.communicate(timeout=60)
    assert again.returncode == 130, err
