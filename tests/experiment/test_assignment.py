"""Where runs are played: by device, executor, and what they have behind them. The GPU of these tests is a word."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from experiment.plays import in_two
from fedpick._support import devices
from fedpick.core.errors import MissingError, SettingError, StoreError, UnknownNameError
from fedpick.experiment.config import Config
from fedpick.experiment.executors import Job, assignment, execute, play
from fedpick.experiment.executors.cluster import _batches
from fedpick.store import Folder, read_manifest, read_rounds

WORLD = {"name": "volatile", "num_clients": 12}
TRAINS = Config("uniform", 3, 4, 0, WORLD, 2, {"name": "synthetic(1, 1)"}, {"steps": 2, "batch": 8})
PLAIN = Config("uniform", 3, 4, 0, WORLD, 2)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "gpu_there", lambda: True)
    monkeypatch.setattr(devices, "cores", lambda: 8)


def plans(jobs: list[Job], executor: str = "auto", device: str = "auto", workers: int | None = None) -> list[Any]:
    """(where, processes, (stacked, numbers)...) of each plan."""
    found = assignment.assign(jobs, executor, device, workers)
    return [
        (
            "here" if plan.here else plan.workers,
            *((batch.stacked, [n for n, _ in batch.jobs]) for batch in plan.batches),
        )
        for plan in found
    ]


def test_without_a_gpu_runs_go_to_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "gpu_there", lambda: False)
    monkeypatch.setattr(devices, "cores", lambda: 8)
    jobs = [Job(TRAINS, tmp_path / "0"), Job(PLAIN, tmp_path / "1")]
    each = [(False, [0]), (False, [1])]
    assert plans(jobs) == plans(jobs, "processes") == [(2, *each)]
    assert plans(jobs, workers=1) == plans(jobs, "serial") == [("here", *each)]
    assert plans(jobs, "stacked") == [("here", (True, [0])), ("here", (False, [1]))]
    assert plans([]) == []
    with pytest.raises(MissingError, match="--device gpu, but JAX finds no GPU: on a machine with one, pip install"):
        plans(jobs, device="gpu")


def test_what_is_done_before_a_process_has_started_is_done_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "gpu_there", lambda: False)
    monkeypatch.setattr(devices, "cores", lambda: 8)
    jobs = [Job(PLAIN, tmp_path / "0"), Job(PLAIN, tmp_path / "1")]
    assert plans(jobs) == [("here", (False, [0]), (False, [1]))]
    assert plans(jobs, workers=2) == plans(jobs, "processes") == [(2, (False, [0]), (False, [1]))]
    rounds = assignment.SMALL // 12 // 2
    edge = [Job(Config("uniform", 3, rounds + more, 0, WORLD), tmp_path / str(more)) for more in (0, 1)]
    assert plans([edge[0], edge[0]])[0][0] == "here"
    assert plans([edge[1], edge[1]])[0][0] == 2


@pytest.mark.usefixtures("gpu")
def test_with_a_gpu_runs_that_train_are_stacked_there_and_no_other_process_may_see_it(tmp_path: Path) -> None:
    jobs = [Job(TRAINS, tmp_path / "0"), Job(PLAIN, tmp_path / "1"), Job(TRAINS, tmp_path / "2")]
    stack = ("here", (True, [0, 2]))
    assert plans(jobs) == plans(jobs, "stacked") == plans(jobs, device="gpu") == [("here", (False, [1])), stack]
    assert plans(jobs, workers=1) == [("here", (False, [1])), ("here", (False, [0, 2]))]
    # On the CPU, and so not in this process, where JAX would take the GPU.
    each = [(False, [0]), (False, [2]), (False, [1])]
    assert plans(jobs, device="cpu") == plans(jobs, "processes") == [(3, *each)]
    assert plans(jobs, "serial", device="cpu") == [(1, *each)]
    assert plans(jobs, "stacked", device="cpu") == [(1, (True, [0, 2])), ("here", (False, [1]))]
    with pytest.raises(SettingError, match="processes cannot share a GPU; use 'stacked'"):
        play(jobs, executor="processes", device="gpu")


def begun(folder: Path, device: str, rounds: int = 2) -> Job:
    """A job whose first rounds were played on this device."""
    execute(Config(**{**TRAINS.as_dict(), "rounds": rounds}), folder)
    with Folder(folder, TRAINS.as_dict()) as store:
        content = read_manifest(folder)
        store._write_manifest({**content, "about": {"device": device, "played": "alone"}})
    return Job(TRAINS, folder)


def test_a_run_goes_on_where_it_was_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [begun(tmp_path / "0", "cpu"), begun(tmp_path / "1", "gpu: NVIDIA H200"), Job(TRAINS, tmp_path / "2")]
    monkeypatch.setattr(devices, "cores", lambda: 8)
    monkeypatch.setattr(devices, "gpu_there", lambda: True)
    assert plans(jobs) == [(1, (False, [0])), ("here", (True, [1, 2]))]
    assert plans(jobs, device="cpu") == [(3, (False, [0]), (False, [1]), (False, [2]))]
    assert plans(jobs, device="gpu") == [("here", (True, [0, 1, 2]))]
    monkeypatch.setattr(devices, "gpu_there", lambda: False)
    text = r"1: was begun on a GPU, and there is none here; .* or accept the difference with --device cpu"
    with pytest.raises(StoreError, match=text):
        play(jobs)
    play(jobs[1:2], device="cpu")  # asked for, and said in the manifest
    assert read_rounds(tmp_path / "1").num_rows == 4
    assert read_manifest(tmp_path / "1")["about"]["device"] == "gpu: NVIDIA H200, then cpu"
    assert assignment.begun_on(Job(Config(**{**TRAINS.as_dict(), "rounds": 9}), tmp_path / "1")) == "cpu"


def test_a_run_that_is_over_or_was_never_begun_can_be_anywhere(tmp_path: Path) -> None:
    assert assignment.begun_on(begun(tmp_path / "over", "gpu: NVIDIA H200", rounds=4)) is None
    assert assignment.begun_on(Job(TRAINS, tmp_path / "none")) is None
    execute(PLAIN, tmp_path / "plain")
    assert assignment.begun_on(Job(Config(**{**PLAIN.as_dict(), "rounds": 9}), tmp_path / "plain")) is None
    old = begun(tmp_path / "old", "gpu: NVIDIA H200")
    content = json.loads((old.folder / "manifest.json").read_text())
    del content["about"], content["sum"], content["run"]  # as before 0.2
    (old.folder / "manifest.json").write_text(json.dumps(content))
    assert assignment.begun_on(old) is None


def test_names_that_are_not_there() -> None:
    assert assignment.EXECUTORS == ("auto", "serial", "processes", "stacked", "ray")
    assert devices.DEVICES == ("auto", "cpu", "gpu")
    with pytest.raises(UnknownNameError, match="unknown device 'gpus'; did you mean 'gpu'"):
        play([], device="gpus")
    with pytest.raises(UnknownNameError, match="unknown executor 'stack'; did you mean 'stacked'"):
        play([], executor="stack")


def test_on_a_cluster_every_gpu_gets_a_stack_of_runs_that_are_alike(tmp_path: Path) -> None:
    other = Config(**{**TRAINS.as_dict(), "train": {"steps": 3}})
    configs = [TRAINS, other, PLAIN, TRAINS, other]
    jobs = [Job(config, tmp_path / str(i)) for i, config in enumerate(configs)]

    def dealt(device: str, gpus: int) -> list[tuple[bool, list[int]]]:
        return [(batch.stacked, [n for n, _ in batch.jobs]) for batch in _batches(jobs, device, gpus)]

    assert dealt("auto", 2) == [(True, [0, 3]), (True, [1, 4]), (False, [2])]
    assert dealt("auto", 0) == dealt("cpu", 2) == [(False, [i]) for i in range(5)]


# --- looking for a GPU


def test_a_gpu_is_found_without_asking_jax(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("JAX_PLATFORMS", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    plugin, node = tmp_path / "a_jax_plugin.py", tmp_path / "nvidia0"
    monkeypatch.setattr(devices, "_PLUGINS", ("a_jax_plugin",))
    monkeypatch.setattr(devices, "_NODES", (str(node),))
    monkeypatch.syspath_prepend(tmp_path)
    assert not devices.gpu_there()
    node.touch()
    assert not devices.gpu_there()  # JAX could not use it
    plugin.touch()
    assert devices.gpu_there()
    assert "a_jax_plugin" not in sys.modules
    for name, value, there in [
        ("JAX_PLATFORMS", "cpu", False),
        ("JAX_PLATFORMS", "cuda,cpu", True),
        ("CUDA_VISIBLE_DEVICES", "", False),
        ("CUDA_VISIBLE_DEVICES", "-1", False),
        ("CUDA_VISIBLE_DEVICES", "1", True),
    ]:
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            assert devices.gpu_there() is there
    node.unlink()
    assert not devices.gpu_there()


def platform(_: int) -> tuple[str | None, int]:
    import jax

    return os.environ.get("JAX_PLATFORMS"), jax.local_device_count()


@pytest.mark.slow
def test_processes_have_one_device_each_and_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    before = dict(os.environ)
    assert in_two(platform, [0, 1]) == [("cpu", 1)] * 2
    assert dict(os.environ) == before
