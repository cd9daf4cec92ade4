"""The Flower examples, run as their READMEs say: through examples/deploy.py."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="finds processes by their environment in /proc"),
]
EXAMPLES = Path(__file__).parents[2] / "examples"
MARK = "FEDPICK_TEST_EXAMPLES"


class Script:
    """deploy.py, whose output goes to a file; every process it starts inherits a mark, by which it is found."""

    def __init__(self, folder: Path, example: str, *options: str) -> None:
        self.folder, self.file = folder, folder / "output"
        self.mark = f"{MARK}={folder}-{time.monotonic_ns()}"
        name, _, value = self.mark.partition("=")
        env = os.environ | {name: value, "FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}
        command = [sys.executable, EXAMPLES / "deploy.py", EXAMPLES / example, "--work", folder / "work", *options]
        with self.file.open("wb") as out:
            self.process = subprocess.Popen(command, stdout=out, stderr=out, env=env)

    def __enter__(self) -> "Script":
        return self

    def __exit__(self, *exception: object) -> None:
        self.process.kill()
        self.process.wait()
        for pid in self.left():
            os.kill(pid, signal.SIGKILL)

    def output(self) -> str:
        return self.file.read_text(errors="replace")

    def ended(self, seconds: float) -> int:
        try:
            return self.process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"not ended after {seconds:g} s\n{self.output()}") from None

    def shows(self, text: str, seconds: float) -> None:
        end = time.monotonic() + seconds
        while text not in self.output():
            assert self.process.poll() is None, f"ended before {text!r}\n{self.output()}"
            assert time.monotonic() < end, f"no {text!r} after {seconds:g} s\n{self.output()}"
            time.sleep(0.2)

    def left(self) -> list[int]:
        """Processes that it started and that still run; dead ones that nobody has fetched do not count."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                marked = f"{self.mark}\0".encode() in (folder / "environ").read_bytes()
                dead = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()[0] == "Z"
            except OSError:
                continue
            if marked and not dead:
                found.append(int(folder.name))
        return found


def play(folder: Path, example: str, *options: str, seconds: float = 120) -> str:
    """Run to the end; all went well and nothing is left."""
    with Script(folder, example, *options) as script:
        assert script.ended(seconds) == 0, script.output()
        assert script.left() == [], script.output()
        return script.output()


def interrupt(folder: Path, what: signal.Signals, until: str, *options: str) -> int:
    """Run the NumPy example without an end until it shows something; nothing is left. Returns the exit code."""
    with Script(folder, "flower-numpy", *options) as script:
        script.shows(until, 120)
        assert len(script.left()) > 5  # else they would not be found either when they are left
        script.process.send_signal(what)
        code = script.ended(30)
        assert script.left() == [], script.output()
        return code


def accuracies(output: str) -> dict[int, float]:
    found = re.findall(r"after (\d+) rounds: test accuracy ([\d.]+)", output)
    return {int(round): float(accuracy) for round, accuracy in found}


def test_numpy_in_simulation_goes_on_in_a_second_run_and_can_be_ended(tmp_path: Path) -> None:
    first = play(tmp_path, "flower-numpy", "--simulate", "12", "--run-config", "num-server-rounds=3 cohort-size=5")
    assert first.count("5 DONE, 0 LATE, 0 FAILED") == 3
    assert "fedpick: 3 rounds in all, 12 clients known" in first
    endless = ("--simulate", "12", "--run-config", "num-server-rounds=100000 cohort-size=5")
    code = interrupt(tmp_path, signal.SIGTERM, "round 4: 5 DONE", *endless)
    assert code == 128 + signal.SIGTERM


def test_numpy_in_deployment_can_be_interrupted_and_knows_its_nodes_again(tmp_path: Path) -> None:
    endless = ("--nodes", "3", "--run-config", "num-server-rounds=100000 cohort-size=3")
    assert interrupt(tmp_path, signal.SIGINT, "round 1: 3 DONE", *endless) == 130
    second = play(tmp_path, "flower-numpy", "--nodes", "3", "--run-config", "num-server-rounds=1 cohort-size=3")
    assert re.search(r"round [23]: 3 DONE, 0 LATE, 0 FAILED", second)
    assert re.search(r"fedpick: [23] rounds in all, 3 clients known", second)


def test_an_app_that_fails_is_told(tmp_path: Path) -> None:
    with Script(tmp_path, "flower-numpy", "--simulate", "2", "--run-config", "cohort-size=0") as script:
        assert script.ended(60) == 1
        assert "cohort_size" in script.output()
        assert "deploy: the run is finished:failed" in script.output()
        assert script.left() == []


def test_what_is_no_app_is_told(tmp_path: Path) -> None:
    with Script(tmp_path, str(tmp_path), "--nodes", "1") as script:
        assert script.ended(20) == 2
        assert "no Flower app" in script.output()


def test_pytorch_learns_and_goes_on_in_a_second_run(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    options = ("--simulate", "50", "--run-config", "num-server-rounds=2 cohort-size=5")
    first = accuracies(play(tmp_path, "flower-pytorch", *options, seconds=240))
    assert list(first) == [0, 1, 2]
    second = accuracies(play(tmp_path, "flower-pytorch", *options, seconds=240))
    assert list(second) == [2, 3, 4]
    assert second[2] == first[2]  # the model as it was saved
    assert max(second.values()) > first[0] + 0.1
