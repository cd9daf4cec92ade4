"""The same policy, world and seed in our simulator and under Flower's: the same clients, the same losses."""

import json
from pathlib import Path

import numpy as np
import pytest
from parity import CLIENTS, HELD, LR, POLICIES, ROUNDS, SEED, START, WORLD, loss_and_gradient, row
from test_simulation import finished

import fedpick as fp
from fedpick import learn

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def flower(tmp_path_factory):
    folder = tmp_path_factory.mktemp("parity")
    finished([str(Path(__file__).with_name("parity.py")), str(folder / "told.json")], folder)
    return json.loads((folder / "told.json").read_text())


def global_loss(w: np.ndarray) -> float:
    everything = HELD.examples
    return loss_and_gradient(w, HELD.dataset.x[everything].astype(np.float64), HELD.dataset.y[everything])[0]


@pytest.mark.parametrize("name", POLICIES)
def test_the_simulator_and_flower_agree(flower, name: str) -> None:
    trainer = learn.Trainer(HELD, learn.logistic((60,), 10), lr=LR, batch=int(HELD.sizes.max()))
    run = fp.Run(POLICIES[name], WORLD, seed=SEED, trainer=trainer)
    run.state.model["params"][0] = {"w": START[:-1], "b": START[-1]}
    ours, theirs = [row(record) for record in run.rounds(ROUNDS)], flower[name]
    assert theirs["names"] == [f"partition:{k}" for k in range(CLIENTS)]
    for round, (one, other) in enumerate(zip(ours, theirs["rounds"], strict=True), 1):
        assert one["ids"] == other["ids"], f"round {round}"
        assert one["status"] == other["status"], f"round {round}"
        np.testing.assert_allclose(one["duration"], other["duration"], rtol=1e-12)
        np.testing.assert_allclose(one["loss"], other["loss"], rtol=1e-4)  # float32 here, float64 there
    layer = run.state.model["params"][0]
    w = np.concatenate([layer["w"], layer["b"][None]])
    np.testing.assert_allclose(w, theirs["w"], atol=1e-4)
    assert global_loss(w) == pytest.approx(global_loss(np.array(theirs["w"])), rel=1e-4)
    assert global_loss(w) < 0.9 * global_loss(START.astype(np.float64))  # it learned something
