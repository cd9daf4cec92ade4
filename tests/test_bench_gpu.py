"""The GPU benchmark's page, its plan for PyTorch, and the peers that fail."""

import contextlib
import json
import sys
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import bench_gpu

    monkeypatch.setattr(bench_gpu, "WORKLOADS", dict(bench_gpu.WORKLOADS) | bench_gpu.TINY)
    yield bench_gpu
    for name in ("bench_gpu", "_manifest"):
        sys.modules.pop(name, None)


def test_the_page_is_what_the_command_writes(bench) -> None:
    folder = BENCHMARKS / "results" / "gpu"
    assert bench.render(json.loads((folder / "gpu.json").read_text())) == (folder / "gpu.md").read_text()


def test_the_plan_for_pytorch_has_our_batches_and_weights(bench, tmp_path: Path, monkeypatch) -> None:
    data = bench.make_data("logistic", clients=5)
    bench.write_plan("logistic", data, 3, tmp_path)
    plan = np.load(tmp_path / "plan.npy")
    assert plan.shape == (3, 3, 2, 8)
    ours = bench.Ours("logistic", data)

    def seen(params, drawn, owner=None):
        np.testing.assert_array_equal(drawn.index[:3, :2], plan[ours.round - 1])
        raise InterruptedError  # nothing is trained here

    monkeypatch.setattr(ours.trainers[0], "train_all", seen)
    for _ in range(3):
        with pytest.raises(InterruptedError):
            ours.turn()
    (layer,) = ours.models[0]["params"]
    np.testing.assert_array_equal(np.load(tmp_path / "p0.npy"), layer["w"])
    np.testing.assert_array_equal(np.load(tmp_path / "p1.npy"), layer["b"])


def test_a_peer_that_fails_says_why(bench, tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack, pytest.raises(bench.PeerError, match="Error"):
        bench.Peer(sys.executable, tmp_path, "loop", 20.0, stack)  # neither a plan nor, here, PyTorch


def test_a_peer_that_takes_too_long_is_stopped(bench, tmp_path: Path) -> None:
    slow = tmp_path / "python"
    slow.write_text("#!/bin/sh\nsleep 20\n")
    slow.chmod(0o755)
    with contextlib.ExitStack() as stack, pytest.raises(bench.PeerError, match="stopped after 0 s"):
        bench.Peer(str(slow), tmp_path, "vmap, compiled", 0.2, stack)


def test_engines_that_fail_on_the_way_are_left_out(bench) -> None:
    class Fine:
        def turn(self):
            return 0.5, 1.0

    class Broken(Fine):
        def __init__(self):
            self.turns = 0

        def turn(self):
            self.turns += 1
            if self.turns == 3:
                raise bench.PeerError("no memory")
            return super().turn()

    left_out = {}
    rows = bench.measure({"ours": Fine(), "peer": Broken()}, 3, left_out)
    assert list(rows) == ["ours"]
    assert rows["ours"]["quartiles"] == [0.5, 0.5]
    assert left_out == {"peer": "no memory"}
