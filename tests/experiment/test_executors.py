"""Many runs at once: in order, with the same records wherever they are computed, and no process left behind."""

import contextlib
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from experiment.plays import children, configs, contents, ended, folders, in_two, jobs
from fedpick._support import devices
from fedpick.core.errors import ConfigError, FedpickError, MissingError, StoreError
from fedpick.experiment.config import Config
from fedpick.experiment.executors import Job, Stopped, assignment, execute, play, processes, signals, staying
from fedpick.store import Folder, read_manifest, read_rounds


@pytest.fixture(scope="module", autouse=True)
def no_waiting_for_the_disk() -> Iterator[None]:
    """A process that ends loses nothing that the system has; only real processes, in the slow tests, wait for it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


def slow_first(x: int) -> int:
    time.sleep(5.0 if x == 0 else 0.0)
    return x


def where(_: int) -> int:
    return os.getpid()


def doubled(x: int, tell: Callable[[Any], None]) -> int:
    tell(x)
    return 2 * x


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


def test_ray_that_is_not_installed_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingError, match=re.escape("--executor ray needs Ray: pip install ray")):
        play(jobs(configs()[:1], tmp_path), executor="ray")


# --- calls in other processes ---


class Here:
    """A thread in the place of a process."""

    def __init__(self, pipe: Any) -> None:
        self.joined, self.thread = False, threading.Thread(target=self.serve, args=(pipe,), daemon=True)
        self.thread.start()

    def serve(self, pipe: Any) -> None:
        with contextlib.suppress(EOFError):
            while True:
                pipe.send_bytes(processes._attempt(pipe))

    def join(self, timeout: float | None = None) -> None:
        self.thread.join(timeout)
        self.joined = True

    def is_alive(self) -> bool:
        return self.thread.is_alive()


def test_processes_are_waited_for_when_all_results_are_there_and_not_only_told_to_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hired: list[Any] = []

    def hire(variables: Any, with_main: bool, modules: Any = ()) -> Any:
        ours, theirs = multiprocessing.Pipe()
        hired.append(processes._Worker(Here(theirs), ours, (variables, with_main)))  # type: ignore[arg-type]
        return hired[-1]

    monkeypatch.setattr(processes, "_hire", hire)
    told: list[tuple[int, Any]] = []
    made = processes.in_processes(doubled, [3, 5, 7], 2, signals.Stop(), lambda *each: told.append(each), {"A": "1"})
    assert dict(made) == {0: 6, 1: 10, 2: 14}
    assert sorted(told) == [(0, 3), (1, 5), (2, 7)]
    assert [worker.start for worker in hired] == [({"A": "1"}, False)] * 2
    assert all(worker.process.joined and worker.pipe.closed for worker in hired)


# --- execute and play in this process ---


def test_runs_in_this_process_end_in_their_folders_and_tell_how_far_they_are(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    play(jobs(configs(), tmp_path / "deep" / "er"), workers=1, tell=lambda i, rounds: told.append((i, rounds)))
    assert [read_rounds(path).num_rows for path in folders(tmp_path / "deep" / "er")] == [40] * 6
    ends = [pair for pair in told if pair[1] == 40]
    assert list(dict.fromkeys(ends)) == [(i, 40) for i in range(6)]
    assert sorted(p.name for p in (tmp_path / "deep" / "er").iterdir()) == list("012345")  # nothing beside them


def test_relative_folders_are_those_of_this_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    play([Job(configs()[0], Path("run"))], workers=1)
    assert (tmp_path / "run" / "rounds.parquet").is_file()


@pytest.mark.parametrize("executor", ["serial", "stacked"])
def test_a_run_with_an_error_is_named_and_the_others_go_on_to_their_ends(executor: str, tmp_path: Path) -> None:
    execute(configs()[5], tmp_path / "1")
    with pytest.raises(StoreError, match=r"^e3cs\(quota=0.5\), seed 1: .*holds a run of another configuration"):
        play(jobs(configs()[:4], tmp_path), executor=executor, workers=1)
    assert [read_rounds(tmp_path / str(i)).num_rows for i in (0, 2, 3)] == [40] * 3


def test_an_error_that_is_not_the_users_is_named_in_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Folder, "restore", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError) as caught:
        play(jobs(configs()[:2], tmp_path), workers=1)
    assert caught.value.__notes__ == [f"in the run of e3cs(quota=0.5), seed 0, in {tmp_path / '0'}"]


def test_the_manifest_says_where_and_how_a_run_was_played(tmp_path: Path) -> None:
    play([Job(configs()[0], tmp_path / "run", {"experiment": "mine"})], workers=1)
    about = read_manifest(tmp_path / "run")["about"]
    assert {"experiment": "mine", "device": "cpu", "played": "alone"}.items() <= about.items()
    assert (about["policy"], about["num_clients"], about["oracle"]) == ("e3cs(quota=0.5)", 20, False)
    execute(configs()[1], tmp_path / "other", about={"key": "abc"})
    assert read_manifest(tmp_path / "other")["about"]["key"] == "abc"


def test_rounds_reached_are_told(tmp_path: Path) -> None:
    told: list[int] = []
    assert execute(configs()[0], tmp_path / "run", told.append) == tmp_path / "run"
    assert told[-1] == 40


def test_a_configuration_that_cannot_be_built_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match="needs a context"):
        execute(Config("rbcs-f", world={"name": "volatile"}), tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def lasting_handlers() -> list[Any]:
    """What handles signals, if need be after the time in which copies of a signal do nothing."""
    handlers = (signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM))
    return [getattr(handler, "before", handler) for handler in handlers]


def interrupt_in_round(monkeypatch: pytest.MonkeyPatch, at: int, numbers: list[signal.Signals]) -> None:
    """Raise signals in the middle of a round: after the world drew it, before it is over."""
    real = Config.build

    def build(self: Config) -> Any:
        run = real(self)
        inner = run.world.view
        world = run.world

        def view(state: Any, draw: Any, *rest: Any) -> Any:
            if draw.round == at:
                for number in numbers:
                    signal.raise_signal(number)
            return inner(state, draw, *rest)

        object.__setattr__(world, "view", view)
        return run

    monkeypatch.setattr(Config, "build", build)


CHAINS = Config(
    "e3cs", 4, 60, 3, {"name": "bursts", "num_clients": 20, "availability": "markov(on=3, off=3)"}, checkpoint_every=25
)


@pytest.mark.parametrize(
    ("numbers", "patience", "kept"),
    [
        ([signal.SIGINT], 2.0, 37),
        ([signal.SIGTERM], 2.0, 37),
        ([signal.SIGTERM, signal.SIGINT, signal.SIGTERM], 2.0, 37),  # one wish, by the group and by the parent
        ([signal.SIGINT, signal.SIGINT], -1.0, 25),  # told again after a while
    ],
    ids=["once", "terminated", "by two ways", "again"],
)
def test_ctrl_c_in_the_middle_of_a_round_loses_and_changes_nothing(
    numbers: list[signal.Signals], patience: float, kept: int, tmp_path: Path
) -> None:
    handlers = lasting_handlers()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(signals, "IMPATIENT", patience)
        interrupt_in_round(patch, 37, numbers)
        with pytest.raises(Stopped) as stopped:
            execute(CHAINS, tmp_path / "run")
    assert stopped.value.signal == numbers[0]
    assert isinstance(stopped.value, KeyboardInterrupt)
    assert lasting_handlers() == handlers
    assert read_rounds(tmp_path / "run").num_rows == kept
    execute(CHAINS, tmp_path / "run")
    execute(CHAINS, tmp_path / "whole")
    assert contents([tmp_path / "run"]) == contents([tmp_path / "whole"])


def test_after_ctrl_c_no_other_run_begins(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        interrupt_in_round(patch, 37, [signal.SIGTERM])
        with pytest.raises(Stopped):
            play(jobs([CHAINS, CHAINS], tmp_path), workers=1)
    assert [p.name for p in tmp_path.iterdir()] == ["0"]


def test_ctrl_c_in_the_last_round_is_not_swallowed(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        interrupt_in_round(patch, 60, [signal.SIGINT])
        with pytest.raises(KeyboardInterrupt):
            execute(CHAINS, tmp_path / "run")
    assert read_rounds(tmp_path / "run").num_rows == 60


def test_ctrl_c_while_a_run_is_built_does_not_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def build(self: Config) -> Any:
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("it went on to load data")

    monkeypatch.setattr(Config, "build", build)
    with pytest.raises(Stopped):
        play(jobs(configs(), tmp_path), workers=1)
    assert not list(tmp_path.iterdir())


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


@pytest.mark.slow
def test_processes_keep_the_order_whoever_is_done_first() -> None:
    came: list[tuple[int, int]] = []
    assert in_two(slow_first, [0, 1, 2, 3], on_result=lambda *pair: came.append(pair)) == [0, 1, 2, 3]
    assert sorted(came) == [(i, i) for i in range(4)]
    assert came[-1] == (0, 0)
    assert os.getpid() not in in_two(where, [1, 2, 3])


@pytest.mark.slow
def test_processes_get_the_variables_that_are_given_beside_their_own() -> None:
    names = ["FEDPICK_TOLD", "JAX_PLATFORMS"]
    assert in_two(os.getenv, names, variables={"FEDPICK_TOLD": "so"}) == ["so", "cpu"]
    assert "FEDPICK_TOLD" not in os.environ


@pytest.mark.slow
def test_an_error_in_a_process_comes_out_and_ends_the_others() -> None:
    began = time.monotonic()
    with pytest.raises(ConfigError, match="zero is too few; give one"):
        in_two(fail_or_wait, [0, 1, 2])
    assert time.monotonic() - began < 120  # the others would have slept for 300 s
    assert children(os.getpid()) == []


@pytest.mark.slow
def test_a_process_that_was_killed_is_a_failure_without_an_error() -> None:
    with pytest.raises(ProcessLookupError, match="killed"):
        in_two(die, [0, 1, 2])
    assert children(os.getpid()) == []


@pytest.mark.slow
def test_what_is_written_in_processes_and_alone_is_the_same(tmp_path: Path) -> None:
    play(jobs(configs(), tmp_path / "serial"), executor="serial")
    told: dict[int, int] = {}
    play(jobs(configs(), tmp_path / "parallel"), executor="processes", workers=2, tell=told.__setitem__)
    assert told == dict.fromkeys(range(6), 40)
    assert contents(folders(tmp_path / "parallel")) == contents(folders(tmp_path / "serial"))


@pytest.mark.slow
def test_a_run_whose_process_is_killed_is_named_and_the_others_keep_their_work(tmp_path: Path) -> None:
    def kill(i: int, rounds: int) -> None:
        if i == 2 and rounds > 60 and not killed:
            os.kill(holder_of(tmp_path / "2"), signal.SIGKILL)
            killed.append(time.monotonic())

    killed: list[float] = []
    long = [*configs()[:2], Config("uniform", 4, 300_000, 7, {"name": "volatile"}, 50), *configs()[2:4]]
    with pytest.raises(
        FedpickError, match=r"^uniform, seed 7: its process was killed .* perhaps because memory ran out"
    ):
        play(jobs(long, tmp_path), workers=2, tell=kill)
    assert time.monotonic() - killed[0] < 60  # the other runs are short
    assert [read_rounds(tmp_path / str(i)).num_rows for i in (0, 1, 3, 4)] == [40] * 4
    assert read_rounds(tmp_path / "2").num_rows >= 50
    assert children(os.getpid()) == []


def holder_of(folder: Path) -> int:
    """The process of ours that has this run's lock open."""
    for pid in children(os.getpid()):
        open_files = [os.readlink(entry) for entry in Path(f"/proc/{pid}/fd").iterdir() if entry.is_symlink()]
        if str(folder / "run.lock") in open_files:
            return pid
    raise AssertionError(f"nobody works in {folder}")


@pytest.mark.slow
def test_processes_do_not_begin_the_users_script_again(tmp_path: Path) -> None:
    """A script without `if __name__ == "__main__"`, which many people write."""
    script = tmp_path / "script.py"
    script.write_text(
        "from fedpick.experiment.config import Config\nfrom fedpick.experiment.executors import Job, play\n"
        "print('begun')\nworld = {'name': 'volatile', 'num_clients': 20}\n"
        "runs = [Job(Config('uniform', 4, 5, seed, world), f'run {seed}') for seed in range(3)]\n"
        "play(runs, executor='processes', workers=2)\nprint('done')\n"
    )
    done = subprocess.run([sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["begun", "done"]
    assert len(list(tmp_path.glob("run ?/rounds.parquet"))) == 3


def test_processes_stay_for_later_calls_and_end_with_the_block() -> None:
    with staying():
        first = set(in_two(where, range(4)))
        assert set(in_two(where, range(4))) == first
        killed = first.pop()
        os.kill(killed, signal.SIGKILL)
        os.waitid(os.P_PID, killed, os.WEXITED | os.WNOWAIT)  # all of its threads have ended
        later = set(in_two(where, range(4)))
        assert first < later
        assert killed not in later
    assert all(ended(process) for process in later)


@pytest.mark.slow
def test_after_an_error_processes_that_stay_are_replaced() -> None:
    with staying():
        with pytest.raises(ConfigError, match="two is too many"):
            in_two(fail_at_two, [1, 2])
        assert in_two(fail_at_two, [0, 1, 3]) == [0, 1, 3]


def test_processes_that_were_started_ahead_are_the_ones_that_work() -> None:
    with staying():
        processes.hire_ahead(2, devices.environment(), ("json", "no.such.module"))
        early = {worker.process.pid for worker in processes._IDLE.get() or ()}
        assert len(early) == 2
        processes.hire_ahead(2, devices.environment(), ())  # they are there
        with staying():  # within the other
            assert set(in_two(where, range(4))) == early
        assert set(in_two(where, range(4))) == early
    assert all(ended(process) for process in early)
    processes.hire_ahead(2, devices.environment(), ())  # nobody would end them
    assert processes._IDLE.get() is None


@pytest.mark.parametrize(
    ("executor", "device", "workers", "runs", "data", "gpu", "count"),
    [
        ("auto", "auto", 2, 3, "digits", False, 2),
        ("auto", "auto", 4, 3, "digits", False, 3),
        ("auto", "auto", 1, 3, "digits", False, 0),
        ("auto", "auto", 2, 1, "digits", False, 0),
        ("auto", "auto", 2, 3, None, False, 0),
        ("auto", "auto", 2, 3, "digits", True, 0),
        ("auto", "cpu", 2, 3, "digits", True, 2),
        ("processes", "auto", 2, 3, "digits", True, 2),
        ("serial", "auto", 2, 3, "digits", False, 0),
        ("stacked", "auto", 2, 3, "digits", False, 0),
        ("ray", "auto", 2, 3, "digits", False, 0),
    ],
)
def test_how_many_processes_are_started_ahead(
    executor: str,
    device: str,
    workers: int,
    runs: int,
    data: str | None,
    gpu: bool,
    count: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As many as the runs are then dealt out to; none where they are not."""
    monkeypatch.setattr(devices, "gpu_there", lambda: gpu)
    of = None if data is None else {"name": data}
    asked = [Config("uniform", cohort_size=2, rounds=2, seed=seed, data=of) for seed in range(runs)]
    assert assignment.processes_for(asked, executor, device, workers) == count
    if executor != "ray" and data is not None:
        made = [Job(config, tmp_path / str(config.seed)) for config in asked]
        plans = assignment.assign(made, executor, device, workers)
        assert count == sum(plan.workers for plan in plans if not plan.here and len(plan.batches) > 1)
