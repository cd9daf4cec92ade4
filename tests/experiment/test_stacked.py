"""Runs stacked into one call: each keeps its folder, goes on from where it is, and ends as it would alone."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from experiment.plays import jobs
from fedpick.core.errors import FedpickError
from fedpick.data import settings
from fedpick.experiment.config import Config
from fedpick.experiment.executors import Stopped, execute, play, stacked
from fedpick.simulate import together
from fedpick.store import Folder, read_manifest, read_rounds, read_selections

WORLD = {"name": "volatile", "num_clients": 12}
DATA = {"name": "synthetic(1, 1)", "seed": 3}
TRAIN = {"steps": 2, "batch": 8, "evaluate_every": 3}
TOLERANCE = 1e-4  # relative, of losses after a dozen rounds in float32; the docs say so


@pytest.fixture(scope="module", autouse=True)
def no_waiting_for_the_disk() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


def run(policy: str = "uniform", seed: int = 0, rounds: int = 10, every: int = 4, **train: Any) -> Config:
    return Config(policy, 3, rounds, seed, WORLD, every, DATA, {**TRAIN, **train})


def same(folder: Path, config: Config, tmp_path: Path) -> None:
    """Whether a run is what it is alone."""
    alone = execute(config, tmp_path / f"alone-{config.policy}-{config.seed}-{config.rounds}")
    mine, wanted = read_selections(folder).to_pydict(), read_selections(alone).to_pydict()
    assert (mine["client"], mine["status"]) == (wanted["client"], wanted["status"])
    # A loss near 0 is a difference of outputs of size 1, which float32 knows to 1e-7.
    np.testing.assert_allclose(mine["loss"], wanted["loss"], rtol=TOLERANCE, atol=1e-6)
    mine, wanted = read_rounds(folder).to_pydict(), read_rounds(alone).to_pydict()
    assert mine["round"] == wanted["round"] == list(range(1, config.rounds + 1))
    for metric in ("train_loss", "test_loss", "accuracy"):
        if metric in wanted:
            found, expected = (np.array(values[metric], float) for values in (mine, wanted))
            np.testing.assert_allclose(found, expected, rtol=TOLERANCE, atol=1e-6)


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many runs were in each call that trained several."""
    found: list[int] = []
    real = together.train_together

    def train(trainers: Any, jobs: Any) -> Any:
        found.append(len(trainers))
        return real(trainers, jobs)

    monkeypatch.setattr(together, "train_together", train)
    return found


def test_runs_in_one_call_are_the_runs_alone(tmp_path: Path, sizes: list[int]) -> None:
    """Policies that probe, that ask for embeddings, and that do neither; configurations built one by one."""
    configs = [run(policy, seed) for policy in ("uniform", "pow-d", "fedgs") for seed in (0, 1)]
    told: dict[int, int] = {}
    settings._build_known.cache_clear()
    play(jobs(configs, tmp_path), executor="stacked", tell=told.__setitem__)
    assert sizes == [6] * 10
    assert told == dict.fromkeys(range(6), 10)
    for i, config in enumerate(configs):
        about = read_manifest(tmp_path / str(i))["about"]
        assert (about["device"], about["played"], about["num_clients"]) == ("cpu", "stacked", 12)
        same(tmp_path / str(i), config, tmp_path)


def test_runs_at_different_rounds_meet_and_leave_when_they_are_done(tmp_path: Path, sizes: list[int]) -> None:
    configs = [run(seed=0, rounds=12), run(seed=1, rounds=12), run(seed=2, rounds=9)]
    play(jobs([run(seed=0, rounds=6), run(seed=1, rounds=2)], tmp_path), executor="serial")
    play(jobs(configs, tmp_path), executor="stacked")
    assert sizes == [2] * 4 + [3] * 3 + [2] * 3  # seed 2 alone to round 2, with seed 1 to 6, with all to 9
    for i, config in enumerate(configs):
        same(tmp_path / str(i), config, tmp_path)
    assert read_manifest(tmp_path / "0")["about"]["played"] == "alone, then stacked"
    execute(run(seed=0, rounds=15), tmp_path / "0")  # and on, alone
    same(tmp_path / "0", run(seed=0, rounds=15), tmp_path)


def test_runs_that_cannot_share_a_call_are_played_in_groups(tmp_path: Path, sizes: list[int]) -> None:
    configs = [run(seed=0), run(seed=1), run(seed=0, batch=4), run(seed=1, batch=4), run(seed=0, momentum=0.9)]
    configs.append(Config("uniform", 3, 10, 0, WORLD))  # trains nothing
    play(jobs(configs, tmp_path), executor="stacked")
    assert sizes == [2] * 20
    assert [read_rounds(tmp_path / str(i)).num_rows for i in range(6)] == [10] * 6
    assert [read_manifest(tmp_path / str(i))["about"]["played"] for i in (0, 2, 4, 5)] == [
        "stacked",
        "stacked",
        "alone",
        "alone",
    ]


def out_of_memory(monkeypatch: pytest.MonkeyPatch, most: int, at: int) -> list[int]:
    """From round `at` on, calls with more than so many runs need more memory than there is."""
    tried: list[int] = []
    real = together.train_together

    def train(trainers: Any, jobs: Any) -> Any:
        tried.append(len(trainers))
        if len(trainers) > most and jobs[0].round >= at:
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 9 bytes.")
        return real(trainers, jobs)

    monkeypatch.setattr(together, "train_together", train)
    return tried


def test_memory_that_runs_out_halves_the_stack_and_nothing_is_written_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = out_of_memory(monkeypatch, most=2, at=6)
    written: list[tuple[str, int]] = []
    real = Folder.write

    def write(self: Folder, records: Any, metrics: Any) -> None:
        written.extend((self.path.name, record.round) for record in records)
        real(self, records, metrics)

    monkeypatch.setattr(Folder, "write", write)
    configs = [run(seed=seed) for seed in range(5)]
    play(jobs(configs, tmp_path), executor="stacked")
    assert tried[:6] == [5] * 6
    assert 3 in tried
    assert set(tried[8:]) == {2}
    assert sorted(written) == [(str(i), round) for i in range(5) for round in range(1, 11)]
    monkeypatch.undo()
    for i, config in enumerate(configs):
        same(tmp_path / str(i), config, tmp_path)


def test_a_run_that_has_no_room_even_alone_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def launch(*_: Any) -> Any:
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 9 bytes.")

    for examples in ("placement.Arrays", "dense.Rows"):
        monkeypatch.setattr(f"fedpick.learn.jax.{examples}.launch", launch)
    text = r"^uniform, seed 0: a single run needs more memory than the device has \(RESOURCE_EXHAUSTED: Out of"
    with pytest.raises(FedpickError, match=text):
        play(jobs([run(seed=0), run(seed=1)], tmp_path), executor="stacked")


def test_an_error_of_one_run_is_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Folder.add

    def add(self: Folder, record: Any) -> None:
        if self.path.name == "1" and record.round == 7:
            raise ZeroDivisionError("in round 7")
        real(self, record)

    with monkeypatch.context() as patch:
        patch.setattr(Folder, "add", add)
        with pytest.raises(ZeroDivisionError, match="in round 7") as caught:
            play(jobs([run(seed=seed) for seed in range(3)], tmp_path), executor="stacked")
    assert "in the run of uniform, seed 1" in caught.value.__notes__[0]
    for i in (0, 2):
        same(tmp_path / str(i), run(seed=i), tmp_path)
    execute(run(seed=1), tmp_path / "1")  # from its last checkpoint, and its folder is free
    same(tmp_path / "1", run(seed=1), tmp_path)


def test_an_error_while_one_run_is_written_is_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Folder.flush

    def flush(self: Folder, state: Any) -> None:
        if self.path.name == "1" and state.round >= 5:
            raise ZeroDivisionError("no room")
        real(self, state)

    with monkeypatch.context() as patch:
        patch.setattr(Folder, "flush", flush)
        with pytest.raises(ZeroDivisionError, match="no room") as caught:
            play(jobs([run(seed=seed) for seed in range(3)], tmp_path), executor="stacked")
    assert "in the run of uniform, seed 1" in caught.value.__notes__[0]
    for i in (0, 2):
        same(tmp_path / str(i), run(seed=i), tmp_path)


def test_told_to_stop_all_runs_of_the_stack_keep_the_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = stacked.play_together

    def interrupted(runs: Any, until: int) -> Any:
        for number, records in enumerate(real(runs, until), start=1):
            if number == 6:
                signal.raise_signal(signal.SIGTERM)
            yield records

    configs = [run(seed=seed) for seed in range(3)]
    with monkeypatch.context() as patch:
        patch.setattr(stacked, "play_together", interrupted)
        with pytest.raises(Stopped) as stopped:
            play(jobs(configs, tmp_path), executor="stacked")
    assert stopped.value.signal == signal.SIGTERM
    assert [read_rounds(tmp_path / str(i)).num_rows for i in range(3)] == [6] * 3
    play(jobs(configs, tmp_path), executor="stacked")
    for i, config in enumerate(configs):
        same(tmp_path / str(i), config, tmp_path)


def test_a_folder_that_cannot_be_opened_stops_no_other_run(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "manifest.json").write_text(json.dumps({"config": {"policy": "other", "seed": 9}}))
    with pytest.raises(FedpickError, match=r"^uniform, seed 1: .*another configuration"):
        play(jobs([run(seed=seed) for seed in range(3)], tmp_path), executor="stacked")
    assert [read_rounds(tmp_path / str(i)).num_rows for i in (0, 2)] == [10] * 2
