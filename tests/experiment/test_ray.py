"""Runs on Ray: the same files as alone, whichever node played them, with no file system in common."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from experiment.plays import configs, contents, folders, jobs
from fedpick.experiment.config import Config
from fedpick.experiment.executors import play
from fedpick.store import read_manifest

RAY = Path(sys.executable).with_name("ray")
SETTINGS = {
    "RAY_health_check_period_ms": "500",  # so that a dead node is noticed soon
    "RAY_health_check_failure_threshold": "3",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
}

# Ray leaves open files behind, which are an error in these tests: in a process of its own.
ON_RAY = """
import json, sys
from pathlib import Path
import ray
from fedpick.core.errors import StoreError
from fedpick.experiment.config import Config
from fedpick.experiment.executors import Job, play

configs = [Config(**settings) for settings in json.loads(sys.argv[1])]
folder, told = Path(sys.argv[2]), {}
play([Job(c, folder / str(i)) for i, c in enumerate(configs)], executor="ray", tell=told.__setitem__)
assert told == dict.fromkeys(range(len(configs)), 40), told
assert not ray.is_initialized()
try:
    play([Job(Config("uniform", 4, 40, 0, configs[0].world, 15), folder / "0")], executor="ray")
except StoreError as error:
    print(error)
assert not ray.is_initialized()
"""


@pytest.mark.slow
def test_what_is_written_on_ray_and_alone_is_the_same(tmp_path: Path) -> None:
    play(jobs(configs(), tmp_path / "serial"), executor="serial")
    begun = [Config(**{**c.as_dict(), "rounds": 22}) for c in configs()[:2]]
    play(jobs(begun, tmp_path / "ray"), executor="serial")  # two have begun here already
    command = [sys.executable, "-c", ON_RAY, json.dumps([c.as_dict() for c in configs()]), str(tmp_path / "ray")]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "uniform, seed 0: " in ran.stdout
    assert "holds a run of another configuration" in ran.stdout
    assert contents(folders(tmp_path / "ray")) == contents(folders(tmp_path / "serial"))


# --- GPUs: pretended, as Ray assigns whatever a node says it has; JAX trains on the CPU there


SPY = """
import json, os, time
from pathlib import Path
import fedpick as fp

class Spy(fp.Uniform):
    def select(self, state, view, rng):
        said = {"gpu": os.environ.get("CUDA_VISIBLE_DEVICES"), "at": time.time()}
        with open(os.environ["SPY"], "a") as file:
            file.write(json.dumps({"process": os.getpid(), **said}) + "\\n")
        return super().select(state, view, rng)
"""
ON_GPUS = """
import sys
from pathlib import Path
import ray
from fedpick.core.errors import MissingError
from fedpick.experiment import executors
from fedpick.experiment.plan import Experiment

folder, device = Path(sys.argv[1]), sys.argv[2]
ray.init(num_cpus=2, num_gpus=int(sys.argv[3]), include_dashboard=False, log_to_driver=False)
plan = Experiment(f"{folder}/spy.py:Spy", cohort_size=3, data="synthetic(1, 1)", seeds=4, rounds=4,
                  world="volatile(num_clients=10)", train={"steps": 2, "batch": 8})
try:
    jobs = [executors.Job(c, folder / "runs" / str(i)) for i, c in enumerate(plan.configs())]
    executors.play(jobs, executor="ray", device=device)
except MissingError as error:
    print(error)
"""


def on_gpus(folder: Path, gpus: int, device: str = "auto") -> tuple[str, list[dict[str, object]], list[str]]:
    """What was printed, which process had which GPU, and how each run says that it was played."""
    (folder / "spy.py").write_text(SPY)
    variables = {**os.environ, **SETTINGS, "SPY": str(folder / "said")}
    command = [sys.executable, "-c", ON_GPUS, str(folder), device, str(gpus)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=variables)
    assert ran.returncode == 0, ran.stderr
    said = (folder / "said").read_text().splitlines() if (folder / "said").is_file() else []
    runs = [read_manifest(path)["about"]["played"] for path in sorted((folder / "runs").glob("*"))]
    return ran.stdout, [json.loads(line) for line in said], runs


@pytest.mark.slow
def test_runs_on_ray_are_stacked_one_stack_for_each_gpu_which_it_claims(tmp_path: Path) -> None:
    _, said, runs = on_gpus(tmp_path, gpus=2)
    assert runs == ["stacked"] * 4
    gpu_of = {each["process"]: each["gpu"] for each in said}
    assert sorted(gpu_of.values()) == ["0", "1"]
    assert len(said) == 16


@pytest.mark.slow
def test_a_gpu_that_no_node_has_is_said(tmp_path: Path) -> None:
    printed, said, _ = on_gpus(tmp_path, gpus=0, device="gpu")
    assert "--device gpu, but no node of the Ray cluster has a GPU; use --device cpu" in printed
    assert not said


# --- two nodes


DRIVER = """
import json, sys, time
from pathlib import Path
import ray
from fedpick.experiment.config import Config
from fedpick.experiment.executors import Job, play

ray.init(include_dashboard=False, log_to_driver=False, configure_logging=False)
while sum(node["Alive"] for node in ray.nodes()) < 2:
    time.sleep(0.1)
configs = [Config(**settings) for settings in json.loads(sys.argv[1])]
work, after = Path(sys.argv[2]), []

def tell(i, rounds):
    if (work / "killed").exists():
        after.append((i, rounds))
    elif rounds >= 250 and not (work / "waiting").exists():
        (work / "waiting").touch()  # nothing is fetched from here until the other node is dead
        until = time.monotonic() + 120
        while not (work / "killed").exists() and time.monotonic() < until:
            time.sleep(0.01)

play([Job(c, work / "runs" / str(i)) for i, c in enumerate(configs)], executor="ray", tell=tell)
(work / "told.json").write_text(json.dumps(after))
"""


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def answers(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def machine(work: Path, *command: str) -> Iterator[tuple[int, Path]]:
    """A command with processes and a work folder of its own; gives its process and that folder, seen from here.

    All that it started ends with it.
    """
    text = f"mount -t tmpfs -o size=256m tmpfs {work} && exec " + " ".join(command)
    apart = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", text]
    variables = {**os.environ, "TMPDIR": str(work), **SETTINGS}
    with subprocess.Popen(apart, env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield process.pid, Path(f"/proc/{process.pid}/root") / work.relative_to("/")
        finally:
            process.kill()


def first_child(pid: int) -> int:
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


def until(what: Callable[[], object], seconds: float, driver: subprocess.Popen[str] | None = None) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert driver is None or driver.poll() is None, driver.communicate()[1]
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.01)


@pytest.mark.slow
def test_runs_of_a_node_that_dies_are_played_again_and_all_reach_the_driver(tmp_path: Path) -> None:
    """Two nodes with no folder in common; one is killed while it holds a finished run that was not fetched."""
    if subprocess.run(["unshare", "--mount", "--pid", "--fork", "true"], check=False).returncode:
        pytest.skip("needs the right to make namespaces (root)")
    twelve = [Config(**{**c.as_dict(), "rounds": 2000, "checkpoint_every": 250}) for c in configs()]
    twelve += [Config(**{**c.as_dict(), "seed": c.seed + 2}) for c in twelve]
    play(jobs(twelve, tmp_path / "serial"), executor="serial")
    work, port = tmp_path / "work", free_port()
    work.mkdir()
    sessions = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))  # short: it holds sockets
    usual = ["--num-cpus=1", "--object-store-memory=100000000", "--node-ip-address=127.0.0.1", "--block"]
    head = [str(RAY), "start", "--head", f"--port={port}", f"--temp-dir={sessions}", "--include-dashboard=false"]
    other = [str(RAY), "start", f"--address=127.0.0.1:{port}"]
    script = json.dumps([c.as_dict() for c in twelve])
    try:
        with ExitStack() as stack:
            pid, mine = stack.enter_context(machine(work, *head, *usual))
            until(lambda: answers(port), 120)
            victim, theirs = stack.enter_context(machine(work, *other, *usual))
            enter = ["nsenter", "--target", str(first_child(pid)), "--mount", "--pid"]
            command = [*enter, sys.executable, "-c", DRIVER, script, str(work)]
            variables = {**os.environ, **SETTINGS, "RAY_ADDRESS": f"127.0.0.1:{port}", "TMPDIR": str(work)}
            with subprocess.Popen(command, env=variables, stderr=subprocess.PIPE, text=True) as driver:
                try:
                    until((mine / "waiting").exists, 120, driver)
                    seen: dict[str, None] = {}
                    until(lambda: seen.update(dict.fromkeys(here(theirs))) or len(seen) > 1, 120, driver)
                    held = next(iter(seen))  # a node of one core plays one run after another
                    os.kill(victim, signal.SIGKILL)
                    (mine / "killed").touch()
                    assert driver.wait(timeout=200) == 0, driver.communicate()[1]
                finally:
                    driver.kill()
            told = json.loads((mine / "told.json").read_text())
            shutil.copytree(mine / "runs", tmp_path / "ray")
    finally:
        shutil.rmtree(sessions, ignore_errors=True)
    assert min(rounds for i, rounds in told if str(i) == held) < 2000  # it was played again
    assert contents(folders(tmp_path / "ray", 12)) == contents(folders(tmp_path / "serial", 12))


def here(work: Path) -> list[str]:
    """The runs that a node has in its work folder now."""
    return [path.name for path in work.glob("fedpick-*/*")]
