"""Told to stop: real processes, with signals to the parent, to all of them, once or twice."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from experiment.plays import children, configs, contents, ended
from fedpick.experiment.config import Config
from fedpick.experiment.executors import execute
from fedpick.store import read_rounds

PARENT = """
import json, sys
from pathlib import Path
from fedpick.experiment.config import Config
from fedpick.experiment.executors import Job, Stopped, play

if __name__ == "__main__":
    configs, folder = [Config(**c) for c in json.loads(sys.argv[1])], Path(sys.argv[2])
    reached = {}

    def tell(i, rounds):
        reached[i] = rounds
        if sum(rounds > 60 for rounds in reached.values()) == int(sys.argv[4]):
            (folder / "under way").touch()

    try:
        play([Job(c, folder / str(i)) for i, c in enumerate(configs)], executor=sys.argv[3], workers=2, tell=tell)
    except Stopped as stopped:
        sys.exit(100 + stopped.signal)
"""
ONE, ALL = False, True  # the parent alone, or the whole process group as a terminal does
TRAINED = {"policy": "uniform", "data": {"name": "synthetic(1, 1)"}, "world": {"name": "volatile", "num_clients": 20}}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("executor", "numbers", "whom"),
    [
        ("processes", [signal.SIGINT], ALL),
        ("processes", [signal.SIGINT], ONE),
        ("processes", [signal.SIGTERM], ALL),
        ("processes", [signal.SIGTERM, signal.SIGTERM], ONE),
        ("processes", [signal.SIGKILL], ONE),
        ("stacked", [signal.SIGTERM], ONE),
        ("ray", [signal.SIGINT], ALL),
        ("ray", [signal.SIGTERM], ONE),
    ],
)
def test_a_sweep_that_is_stopped_keeps_its_rounds_begins_nothing_and_goes_on_to_the_same_files(
    executor: str, numbers: list[signal.Signals], whom: bool, tmp_path: Path
) -> None:
    """Checkpoints are far apart: the rounds since the last are kept, unless the parent was killed."""
    more = TRAINED if executor == "stacked" else {}
    every = 50 if numbers == [signal.SIGKILL] else 1_000_000
    long = [Config(**{**c.as_dict(), "rounds": 1_000_000, "checkpoint_every": every, **more}) for c in configs()[:5]]
    begun = 5 if executor == "stacked" else 2
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    settings = json.dumps([c.as_dict() for c in long])
    command = [sys.executable, str(script), settings, str(tmp_path), executor, str(begun)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        waited = time.monotonic()
        while not (tmp_path / "under way").exists():
            assert process.poll() is None, process.communicate()[1]
            assert time.monotonic() - waited < 180
            time.sleep(0.05)
        workers = children(process.pid)
        assert len(workers) == (2 if executor == "processes" else 0)
        sent = time.monotonic()
        for number in numbers:
            (os.killpg if whom is ALL else os.kill)(process.pid, number)
            time.sleep(0.3)
        _, err = process.communicate(timeout=60)
        assert time.monotonic() - sent < 10.0
    finally:
        process.kill()
        process.communicate(timeout=30)
    assert all(map(ended, workers))
    if numbers != [signal.SIGKILL]:
        assert (process.returncode, err) == (100 + numbers[0], "")
    played = [i for i in range(5) if (tmp_path / str(i) / "checkpoint.npz").exists()]
    assert played == list(range(begun))
    for i in played[:2]:
        rounds = read_rounds(tmp_path / str(i)).num_rows + 20
        again = Config(**{**long[i].as_dict(), "rounds": rounds})
        execute(again, tmp_path / str(i))
        if executor != "stacked":  # whose rounding differs
            execute(again, tmp_path / f"whole-{i}")
            assert contents([tmp_path / str(i)]) == contents([tmp_path / f"whole-{i}"])


SLEEPERS = """
import sys, time
from pathlib import Path
from fedpick.experiment.executors import Stopped, each

def work(x):
    time.sleep(600 if x else 0)
    return x

if __name__ == "__main__":
    try:
        each(work, [0, 1, 2, 3], workers=2, on_result=lambda i, x: Path(sys.argv[1], f"done {i}").touch())
    except Stopped as stopped:
        sys.exit(100 + stopped.signal)
"""


@pytest.mark.slow
def test_other_work_that_is_stopped_ends_at_once_and_keeps_its_results(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(SLEEPERS)
    with subprocess.Popen([sys.executable, str(script), str(tmp_path)], stderr=subprocess.PIPE, text=True) as process:
        try:
            waited = time.monotonic()
            while not (tmp_path / "done 0").exists():
                assert time.monotonic() - waited < 120
                time.sleep(0.05)
            workers = children(process.pid)
            sent = time.monotonic()
            process.terminate()
            _, err = process.communicate(timeout=60)
            assert time.monotonic() - sent < 10.0
        finally:
            process.kill()
    assert (process.returncode, err) == (100 + signal.SIGTERM, "")
    assert len(workers) == 2
    assert all(map(ended, workers))
    assert [path.name for path in tmp_path.glob("done*")] == ["done 0"]
