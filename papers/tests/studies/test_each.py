"""A function mapped over items: in order, wherever it is computed, and no process left behind."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from experiment.plays import children, ended
from fedpick.core.errors import ConfigError, FedpickError, MissingError, SettingError, UnknownNameError
from fedpick_papers.studies._each import call_each


def square(x: int) -> int:
    return x * x


def where(_: int) -> int:
    return os.getpid()


def fail_at_two(x: int) -> int:
    if x == 2:
        raise ConfigError("two is too many; give one")
    return x


def die(x: int) -> int:
    if x == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return x


def test_one_worker_stays_in_this_process_and_keeps_the_order() -> None:
    done: list[int] = []
    came: list[tuple[int, int]] = []
    assert call_each(where, [1, 2], workers=1, on_result=lambda i, _: done.append(i)) == [os.getpid()] * 2
    assert call_each(square, [5, 6], executor="serial", on_result=lambda *pair: came.append(pair)) == [25, 36]
    assert came == [(0, 25), (1, 36)]
    assert call_each(square, range(5), workers=1) == [0, 1, 4, 9, 16]
    assert done == [0, 1]


def test_one_item_starts_no_process() -> None:
    assert call_each(where, [1], workers=4) == [os.getpid()]


def test_nothing_to_do_gives_nothing() -> None:
    assert call_each(square, [], workers=4) == call_each(square, []) == []


def test_an_error_in_this_process_comes_out_as_it_is() -> None:
    done: list[int] = []
    with pytest.raises(ConfigError, match="two is too many; give one"):
        call_each(fail_at_two, range(5), workers=1, on_result=lambda i, _: done.append(i))
    assert done == [0, 1]


def test_an_unknown_executor_is_said_with_those_there_are() -> None:
    with pytest.raises(
        UnknownNameError, match=re.escape("unknown executor 'rai'; did you mean 'ray'? There are: auto, processes")
    ):
        call_each(square, [1], executor="rai")


@pytest.mark.parametrize("workers", [0, -1])
def test_fewer_workers_than_one_are_refused(workers: int) -> None:
    text = f"workers = {workers}, but must be a number of processes >= 1; None is one per core"
    with pytest.raises(SettingError, match=re.escape(text)):
        call_each(square, [1], workers=workers)


def test_ray_that_is_not_installed_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingError, match=re.escape("--executor ray needs Ray: pip install ray")):
        call_each(square, [1], executor="ray")


@pytest.mark.slow
def test_processes_keep_the_order_and_get_the_variables() -> None:
    assert os.getpid() not in call_each(where, [1, 2, 3], workers=2)
    names = ["FEDPICK_GIVEN", "JAX_PLATFORMS"]
    assert call_each(os.getenv, names, workers=2, variables={"FEDPICK_GIVEN": "so"}) == ["so", "cpu"]
    assert "FEDPICK_GIVEN" not in os.environ


@pytest.mark.slow
def test_a_process_that_was_killed_is_said() -> None:
    text = (
        "one of 2 processes was killed before its work was done, perhaps because memory ran out; files written "
        "before are intact. Continue with fewer workers"
    )
    with pytest.raises(FedpickError, match=re.escape(text)):
        call_each(die, [0, 1, 2], workers=2)
    assert children(os.getpid()) == []


# Ray leaves open files behind, which are an error in these tests: in a process of its own.
ON_RAY = """
import ray
from fedpick_papers.studies._each import call_each

def square(x):
    return x * x

came = {}
assert call_each(square, [2, 3], executor="ray", on_result=came.__setitem__) == [4, 9]
assert came == {0: 4, 1: 9}
assert not ray.is_initialized()
"""


@pytest.mark.slow
def test_results_come_from_ray() -> None:
    pytest.importorskip("ray")
    ran = subprocess.run([sys.executable, "-c", ON_RAY], capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, ran.stderr


SLEEPERS = """
import sys, time
from pathlib import Path
from fedpick.experiment.executors import Stopped
from fedpick_papers.studies._each import call_each

def work(x):
    time.sleep(600 if x else 0)
    return x

if __name__ == "__main__":
    try:
        call_each(work, [0, 1, 2, 3], workers=2, on_result=lambda i, x: Path(sys.argv[1], f"done {i}").touch())
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
