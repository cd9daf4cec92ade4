"""The training benchmark's workloads: their size, and that our engine does what they say."""

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

TRAIN = Path(__file__).parent.parent / "benchmarks" / "train"


@pytest.fixture
def workloads(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(TRAIN))
    import workloads

    yield workloads
    for name in ("workloads", "protocol", "ours"):
        sys.modules.pop(name, None)


@pytest.fixture
def bench(workloads, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(TRAIN.parent))
    import bench_train

    yield bench_train
    for name in ("bench_train", "_manifest"):
        sys.modules.pop(name, None)


def test_the_page_of_parts_is_what_the_command_writes(bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "parts", raising=False)
    import parts

    found = json.loads((parts.RESULTS / "parts.json").read_text())
    assert parts.render(found) == (parts.RESULTS / "parts.md").read_text()
    assert list(found["workloads"]) == ["A", "B"]


def test_the_page_is_what_the_command_writes(bench) -> None:
    found = json.loads((bench.RESULTS / "train.json").read_text())["workloads"]
    assert bench.table(found) == (bench.RESULTS / "train.md").read_text()


def test_processor_time_is_of_a_process_and_its_children(bench) -> None:
    before, own = bench.processor_time(os.getpid()), time.process_time()
    code = "import time\nwhile time.process_time() < 0.2: pass\nprint(flush=True)\ninput()"
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout
    child.stdout.readline()
    used = bench.processor_time(os.getpid()) - before
    own = time.process_time() - own
    child.communicate(b"\n")
    assert used == pytest.approx(own + 0.2, abs=0.05)  # hundredths of a second, in several places


def test_a_round_is_as_large_as_the_design_says(workloads) -> None:
    gflop = {name: work.gflop for name, work in workloads.WORKLOADS.items()}
    assert gflop == pytest.approx({"A": 16.88, "B": 253.1, "C": 0.0108, "D": 0.09, "E": 0.2733}, rel=1e-3)


def test_every_client_sees_all_it_has_before_any_again(workloads) -> None:
    work = workloads.WORKLOADS["C"]
    made = workloads.make(work)
    seen = made["batches"][3, 1].reshape(-1)[: work.held]
    assert sorted(seen) == list(range(work.held))
    assert all(len(set(ids)) == work.cohort for ids in made["ids"])


@pytest.mark.parametrize("unequal", [False, True])
def test_our_engine_trains_as_written_plainly(workloads, tmp_path: Path, unequal: bool) -> None:
    import ours

    work = workloads.WORKLOADS["C"]
    if unequal:  # as E is, but small and made here
        work = workloads.WORKLOADS["U"] = replace(work, name="U", least=10, steps=0, batch=32, epochs=(1, 2))
    task = workloads.read(workloads.write(work, tmp_path))
    weight, bias = (p.astype(np.float64) for p in task.params)
    for round in range(2):
        ends = []
        for client, batches in zip(*task.plan(round), strict=True):
            w, b = weight.copy(), bias.copy()
            for batch in batches:
                x, y = task.x[client][batch], task.y[client][batch]
                grown = np.exp(x @ w + b)
                error = (grown / grown.sum(axis=1, keepdims=True) - np.eye(10)[y]) / len(y)
                w, b = w - task.work.lr * x.T @ error, b - task.work.lr * error.sum(axis=0)
            ends.append((w, b))
        shares = task.shares(round)
        assert len(set(shares)) == (3 if unequal else 1)
        weight, bias = (np.average(parts, axis=0, weights=shares) for parts in zip(*ends, strict=True))
    loop = ours.Loop(task)
    loop.run(2)
    for found, wanted in zip(loop.params(), (weight, bias), strict=True):
        np.testing.assert_allclose(found, wanted, atol=1e-5)
    assert workloads.score(task, loop.params())[0] < (0.95 if unequal else 0.8) * workloads.score(task, task.params)[0]
    loop.reset()
    np.testing.assert_array_equal(loop.params()[0], task.params[0])
