"""Told to stop: real processes, with signals to the parent, to all of them, once or twice."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from experiment.plays import children, configs, contents, ended
from fedpick.experiment.config import Config
from fedpick.experiment.executors import Stopped, execute
from fedpick.experiment.executors.signals import IMPATIENT, patient
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
    ("executor", "number", "whom", "copies"),
    [
        ("processes", signal.SIGINT, ALL, False),
        ("processes", signal.SIGINT, ONE, True),
        ("processes", signal.SIGTERM, ALL, False),
        ("processes", signal.SIGTERM, ONE, True),
        ("processes", signal.SIGKILL, ONE, False),
        ("stacked", signal.SIGTERM, ONE, True),
        ("ray", signal.SIGINT, ALL, False),
        ("ray", signal.SIGTERM, ONE, False),
    ],
)
def test_a_sweep_that_is_stopped_keeps_its_rounds_begins_nothing_and_goes_on_to_the_same_files(
    executor: str, number: signal.Signals, whom: bool, copies: bool, tmp_path: Path
) -> None:
    """Checkpoints are far apart: the rounds since the last are kept, unless the parent was killed.

    Copies of a signal come all the time until the process has ended, while Python exits, too.
    """
    more = TRAINED if executor == "stacked" else {}
    every = 50 if number == signal.SIGKILL else 1_000_000
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
        (os.killpg if whom is ALL else os.kill)(process.pid, number)
        while copies and process.poll() is None and time.monotonic() - sent < IMPATIENT - 0.5:
            os.kill(process.pid, number)
            time.sleep(0.01)
        _, err = process.communicate(timeout=60)
        assert time.monotonic() - sent < 10.0
    finally:
        process.kill()
        process.communicate(timeout=30)
    assert all(map(ended, workers))
    if number != signal.SIGKILL:
        assert (process.returncode, err) == (100 + number, "")
    played = [i for i in range(5) if (tmp_path / str(i) / "checkpoint.npz").exists()]
    assert played == list(range(begun))
    for i in played[:2]:
        rounds = read_rounds(tmp_path / str(i)).num_rows + 20
        again = Config(**{**long[i].as_dict(), "rounds": rounds})
        execute(again, tmp_path / str(i))
        if executor != "stacked":  # whose rounding differs
            execute(again, tmp_path / f"whole-{i}")
            assert contents([tmp_path / str(i)]) == contents([tmp_path / f"whole-{i}"])


@pytest.fixture
def handled() -> Iterator[list[int]]:
    """Signals that reached this process's own handler, as a script's would."""
    found: list[int] = []
    before = {n: signal.signal(n, lambda number, _: found.append(number)) for n in (signal.SIGINT, signal.SIGTERM)}
    yield found
    for number, handler in before.items():
        signal.signal(number, handler)


def be_stopped(within: int) -> None:
    """A block, or several, one in another, of which the innermost is stopped by SIGTERM."""
    with contextlib.ExitStack() as blocks:
        for _ in range(within):
            stop = blocks.enter_context(patient())
        signal.raise_signal(signal.SIGTERM)
        stop.obey()


@pytest.mark.parametrize("within", [1, 2, 3])
def test_after_a_stop_copies_do_nothing_for_a_while_then_all_is_as_before(
    handled: list[int], monkeypatch: pytest.MonkeyPatch, within: int
) -> None:
    with pytest.raises(Stopped):
        be_stopped(within)
    signal.raise_signal(signal.SIGTERM)
    signal.raise_signal(signal.SIGINT)
    assert handled == []
    with patient() as again:  # the work goes on: it can be stopped again, at once
        signal.raise_signal(signal.SIGINT)
        assert again.signal == signal.SIGINT
    monkeypatch.setattr(time, "monotonic", lambda: again.time + IMPATIENT + 0.1)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGTERM):
        signal.raise_signal(number)
    assert handled == [signal.SIGTERM, signal.SIGINT, signal.SIGTERM]


def test_without_a_stop_signals_are_handled_as_before_at_once(handled: list[int]) -> None:
    with patient():
        pass
    signal.raise_signal(signal.SIGTERM)
    assert handled == [signal.SIGTERM]
