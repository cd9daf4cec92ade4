"""Many runs at once: in order, with the same records wherever they are computed, and no process left behind."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedpick.errors import ConfigError, FedpickError, MissingError, SettingError, StoreError, UnknownNameError
from fedpick.experiment import executors as sweeps
from fedpick.experiment.config import Config
from fedpick.experiment.executors import each, execute, sweep
from fedpick.store import Folder, read_rounds


@pytest.fixture(scope="module", autouse=True)
def no_waiting_for_the_disk() -> Iterator[None]:
    """A process that ends loses nothing that the system has; only real processes, in the slow tests, wait for it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


def square(x: int) -> int:
    return x * x


def slow_first(x: int) -> int:
    time.sleep(0.3 if x == 0 else 0.0)
    return x


def where(_: int) -> int:
    return os.getpid()


def fail_at_two(x: int) -> int:
    if x == 2:
        raise ConfigError("two is too many; give one")
    return x


def fail_or_wait(x: int) -> int:
    if x == 0:
        raise ConfigError("zero is too few; give one")
    time.sleep(300)
    return x


def die(x: int) -> int:
    if x == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return x


def configs(rounds: int = 40) -> list[Config]:
    return [
        Config(policy, 4, rounds, seed, {"name": name, "num_clients": 20}, 15)
        for policy, name in [("e3cs(quota=0.5)", "volatile"), ("rbcs-f", "rbcs-f"), ("fedgs", "fedgs-sln")]
        for seed in (0, 1)
    ]


def folders(path: Path, count: int = 6) -> list[Path]:
    return [path / str(i) for i in range(count)]


def contents(paths: list[Path]) -> list[bytes]:
    return [(path / name).read_bytes() for path in paths for name in ("rounds.parquet", "selections.parquet")]


# --- each ---


def test_one_worker_stays_in_this_process_and_keeps_the_order() -> None:
    done: list[int] = []
    assert each(where, [1, 2], workers=1, on_done=done.append) == [os.getpid()] * 2
    assert each(square, range(5), workers=1) == [0, 1, 4, 9, 16]
    assert done == [0, 1]


def test_one_item_starts_no_process() -> None:
    assert each(where, [1], workers=4) == [os.getpid()]


def test_nothing_to_do_gives_nothing() -> None:
    assert each(square, [], workers=4) == each(square, []) == []


def test_an_error_in_this_process_comes_out_as_it_is() -> None:
    done: list[int] = []
    with pytest.raises(ConfigError, match="two is too many; give one"):
        each(fail_at_two, range(5), workers=1, on_done=done.append)
    assert done == [0, 1]


def test_an_unknown_executor_is_said_with_those_there_are() -> None:
    with pytest.raises(
        UnknownNameError, match=re.escape("unknown executor 'rai'; did you mean 'ray'? There are: local")
    ):
        each(square, [1], executor="rai")


@pytest.mark.parametrize("workers", [0, -1])
def test_fewer_workers_than_one_are_refused(workers: int) -> None:
    text = f"workers = {workers}, but must be a number of processes >= 1; None is one per core"
    with pytest.raises(SettingError, match=re.escape(text)):
        each(square, [1], workers=workers)


def test_ray_that_is_not_installed_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingError, match=re.escape("--executor ray needs Ray: pip install ray")):
        each(square, [1], executor="ray")


# --- execute and sweep in this process ---


def test_runs_in_this_process_end_in_their_folders_in_order(tmp_path: Path) -> None:
    done: list[int] = []
    paths = list(sweep(configs(), folders(tmp_path / "deep" / "er"), workers=1, on_done=done.append))
    assert paths == folders(tmp_path / "deep" / "er")
    assert done == list(range(6))
    assert [read_rounds(path).num_rows for path in paths] == [40] * 6


def test_progress_files_are_removed_after_a_sweep_and_after_an_error(tmp_path: Path) -> None:
    list(sweep(configs()[:2], folders(tmp_path, 2), workers=1))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["0", "1"]
    with pytest.raises(StoreError, match="another configuration"):
        list(sweep(configs()[2:4], folders(tmp_path, 2), workers=1))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["0", "1"]


def test_progress_is_written_beside_the_folder_while_it_runs(tmp_path: Path) -> None:
    seen: list[str] = []
    list(
        sweep(
            configs()[:2],
            folders(tmp_path, 2),
            workers=1,
            on_done=lambda i: seen.append((tmp_path / f"{i}.progress").read_text()),
        )
    )
    assert seen == ["40", "40"]


def test_progress_that_cannot_be_written_stops_no_run(tmp_path: Path) -> None:
    (tmp_path / "0.progress").mkdir()
    list(sweep(configs()[:1], folders(tmp_path, 1), workers=1))
    assert read_rounds(tmp_path / "0").num_rows == 40


def test_folders_and_configurations_must_be_as_many() -> None:
    with pytest.raises(ValueError, match="shorter"):
        list(sweep(configs(), [Path("x")], workers=1))


def test_relative_folders_are_those_of_this_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert list(sweep(configs()[:1], [Path("run")], workers=1)) == [Path("run")]
    assert (tmp_path / "run" / "rounds.parquet").is_file()


def test_rounds_reached_are_told(tmp_path: Path) -> None:
    told: list[int] = []
    assert execute(configs()[0], tmp_path / "run", told.append) == tmp_path / "run"
    assert told[-1] == 40


def test_a_configuration_that_cannot_be_built_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match="needs a context"):
        execute(Config("rbcs-f", world={"name": "volatile"}), tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def interrupt_in_round(monkeypatch: pytest.MonkeyPatch, at: int, numbers: list[signal.Signals]) -> None:
    """Raise signals in the middle of a round: after the world drew it, before it is over."""
    real = sweeps.Config.build

    def build(self: Config) -> Any:
        run = real(self)
        inner = run.world.view
        world = run.world

        def view(state: Any, draw: Any, probe: Any = None) -> Any:
            if draw.round == at:
                for number in numbers:
                    signal.raise_signal(number)
            return inner(state, draw, probe)

        object.__setattr__(world, "view", view)
        return run

    monkeypatch.setattr(sweeps.Config, "build", build)


CHAINS = Config(
    "e3cs", 4, 60, 3, {"name": "bursts", "num_clients": 20, "availability": "markov(on=3, off=3)"}, checkpoint_every=25
)


@pytest.mark.parametrize(
    ("numbers", "kept", "error"),
    [
        ([signal.SIGINT], 37, KeyboardInterrupt),
        ([signal.SIGTERM], 37, SystemExit),
        ([signal.SIGINT, signal.SIGINT], 25, KeyboardInterrupt),
    ],
    ids=["once", "terminated", "twice"],
)
def test_ctrl_c_in_the_middle_of_a_round_loses_and_changes_nothing(
    numbers: list[signal.Signals], kept: int, error: type[BaseException], tmp_path: Path
) -> None:
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with pytest.MonkeyPatch.context() as patch:
        interrupt_in_round(patch, 37, numbers)
        with pytest.raises(error):
            execute(CHAINS, tmp_path / "run")
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers
    assert read_rounds(tmp_path / "run").num_rows == kept
    execute(CHAINS, tmp_path / "run")
    execute(CHAINS, tmp_path / "whole")
    assert contents([tmp_path / "run"]) == contents([tmp_path / "whole"])


def test_ctrl_c_in_the_last_round_is_not_swallowed(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        interrupt_in_round(patch, 60, [signal.SIGINT])
        with pytest.raises(KeyboardInterrupt):
            execute(CHAINS, tmp_path / "run")
    assert read_rounds(tmp_path / "run").num_rows == 60


def test_a_run_in_another_thread_leaves_signals_alone(tmp_path: Path) -> None:
    thread = threading.Thread(target=execute, args=(configs()[0], tmp_path / "run"))
    thread.start()
    thread.join(timeout=60)
    assert not thread.is_alive()
    assert read_rounds(tmp_path / "run").num_rows == 40


def test_an_error_in_a_round_keeps_what_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.MonkeyPatch.context() as patch:
        real = Folder.append

        def append(self: Folder, record: Any, state: Any) -> None:
            if record.round == 33:
                raise ZeroDivisionError
            real(self, record, state)

        patch.setattr(Folder, "append", append)
        with pytest.raises(ZeroDivisionError):
            execute(CHAINS, tmp_path / "run")
    assert read_rounds(tmp_path / "run").num_rows == 25
    execute(CHAINS, tmp_path / "run")
    execute(CHAINS, tmp_path / "whole")
    assert contents([tmp_path / "run"]) == contents([tmp_path / "whole"])


# --- processes ---


def ended(pid: int, seconds: float = 30.0) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.05)
    return False


def children(pid: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if int(fields[1]) == pid and b"spawn_main" in command:
                found.append(int(entry.name))
    return found


@pytest.mark.slow
def test_processes_keep_the_order_whoever_is_done_first() -> None:
    done: list[int] = []
    assert each(slow_first, [0, 1, 2, 3], workers=2, on_done=done.append) == [0, 1, 2, 3]
    assert sorted(done) == [0, 1, 2, 3]
    assert os.getpid() not in each(where, [1, 2, 3], workers=2)


@pytest.mark.slow
def test_an_error_in_a_process_comes_out_and_ends_the_others() -> None:
    began = time.monotonic()
    with pytest.raises(ConfigError, match="zero is too few; give one"):
        each(fail_or_wait, [0, 1, 2], workers=2)
    assert time.monotonic() - began < 120  # the others would have slept for 300 s
    assert children(os.getpid()) == []


@pytest.mark.slow
def test_a_process_that_was_killed_is_said() -> None:
    text = (
        "one of 2 processes was killed before its work was done, perhaps for want of memory; what was written before "
        "is whole. Go on with fewer workers"
    )
    with pytest.raises(FedpickError, match=re.escape(text)):
        each(die, [0, 1, 2], workers=2)
    assert children(os.getpid()) == []


ON_RAY = """
import json, sys
from pathlib import Path
import ray
from fedpick.experiment.config import Config
from fedpick.errors import StoreError
from fedpick.experiment.executors import sweep

configs = [Config(**settings) for settings in json.loads(sys.argv[1])]
folders = [Path(sys.argv[2]) / str(i) for i in range(len(configs))]
done = []
list(sweep(configs, folders, executor="ray", on_done=done.append))
assert sorted(done) == list(range(len(configs))), done
assert not ray.is_initialized()
try:
    list(sweep([Config("uniform", 4, 40, 0, configs[0].world, 15)], folders[:1], executor="ray"))
except StoreError as error:
    print(error)
assert not ray.is_initialized()
"""


@pytest.mark.slow
def test_the_parallel_the_serial_and_the_ray_run_give_the_same_files(tmp_path: Path) -> None:
    serial = contents(list(sweep(configs(), folders(tmp_path / "serial"), workers=1)))
    assert contents(list(sweep(configs(), folders(tmp_path / "parallel"), workers=2))) == serial
    # In a process of its own: Ray leaves open files behind, which are an error in these tests.
    command = [sys.executable, "-c", ON_RAY, json.dumps([c.as_dict() for c in configs()]), str(tmp_path / "ray")]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "holds a run of another configuration" in ran.stdout
    assert contents(folders(tmp_path / "ray")) == serial
    assert not list(tmp_path.rglob("*.progress"))


PARENT = """
import json, sys
from pathlib import Path
from fedpick.experiment.config import Config
from fedpick.experiment.executors import sweep

if __name__ == "__main__":
    configs = [Config(**c) for c in json.loads(sys.argv[1])]
    list(sweep(configs, [Path(sys.argv[2]) / str(i) for i in range(len(configs))], workers=2))
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_sweep_that_is_stopped_leaves_no_process_and_goes_on_to_the_same_files(
    number: signal.Signals, tmp_path: Path
) -> None:
    long = [Config(**{**c.as_dict(), "rounds": 200_000}) for c in configs()[:2]]
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    command = [sys.executable, str(script), json.dumps([c.as_dict() for c in long]), str(tmp_path)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        until = time.monotonic() + 60
        while not all((tmp_path / str(i) / "checkpoint.npz").exists() for i in range(2)):
            assert process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.01)
        workers = children(process.pid)
        assert len(workers) == 2
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait(timeout=30)
    assert all(map(ended, workers))
    if number == signal.SIGINT:
        assert process.returncode == -signal.SIGINT
        assert err.count("Traceback") == 1  # of the parent, which a command line catches; none of the processes
        assert not list(tmp_path.glob("*.progress"))
    for i in range(2):
        rounds = read_rounds(tmp_path / str(i)).num_rows + 40
        again = Config(**{**long[i].as_dict(), "rounds": rounds})
        execute(again, tmp_path / str(i))
        execute(again, tmp_path / f"whole-{i}")
        assert contents([tmp_path / str(i)]) == contents([tmp_path / f"whole-{i}"])
