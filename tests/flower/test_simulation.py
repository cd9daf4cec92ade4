"""Every policy under Flower's own simulation engine (Ray), in one process that is ended whatever happens."""

import contextlib
import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import fedpick as fp

pytestmark = pytest.mark.slow
NODES, ROUNDS, COHORT = 100, 5, 10
DONE, LATE, FAILED, SURPLUS = fp.Status


def finished(arguments: list[str], folder: Path) -> None:
    """Run a script to its end; Ray's own processes, which are in its group, are ended whatever happens."""
    with (folder / "log").open("wb") as log:
        command = [sys.executable, *arguments]
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder, start_new_session=True)
        try:
            code = process.wait(timeout=240)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    assert code == 0, (folder / "log").read_text(errors="replace")[-3000:]


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    folder = tmp_path_factory.mktemp("simulation")
    script = Path(__file__).with_name("simulate.py")
    finished([str(script), str(folder / "told.json"), str(NODES), str(ROUNDS)], folder)
    return json.loads((folder / "told.json").read_text())


def test_every_policy_and_base_plays_its_rounds(told) -> None:
    assert len(told) >= 20
    for name, run in told.items():
        assert run["rounds"] == (1 if name in ("everyone", "f3ast") else ROUNDS), name
        assert run["enrolled"] == NODES, name
        assert len(run["status"]) == {"over": 13, "everyone": NODES}.get(name, COHORT), name
        failed = {at for at, status in zip(run["names"], run["status"], strict=True) if status == FAILED}
        assert failed <= {"partition:3", "partition:4"}, name
        assert run["w"] is not None, name
        assert all(map(math.isfinite, run["w"])), name


def test_each_failure_is_that_of_the_right_client(told) -> None:
    run = told["everyone"]
    by = {n: (s, d) for n, s, d in zip(run["names"], run["status"], run["duration"], strict=True)}
    for partition in range(NODES):
        status, seconds = by[f"partition:{partition}"]
        assert status == (FAILED if partition in (3, 4) else DONE)
        if status == DONE:
            assert seconds == 1.0 + partition % 7


def test_they_learn(told) -> None:
    for name in "uniform", "e3cs", "pow-d", "rpow-d", "fedgs", "fedprox", "oort", "tifl", "divfl", "greedyfed":
        assert np.linalg.norm(np.array(told[name]["w"]) - [1.0, -2.0]) < 0.2, name


def test_weights_used_as_they_are_are_honoured(told) -> None:
    """F3AST's first round: each of K = 100 has the share 1/K and the rate m/K, which is updated before it weighs."""
    sys.path.insert(0, str(Path(__file__).parent))
    import simulate

    run, wanted, beta = told["f3ast"], np.zeros(2), fp.F3AST(COHORT).beta
    rate = (1 - beta) * COHORT / NODES + beta
    for name, status in zip(run["names"], run["status"], strict=True):
        if status == DONE:
            there = SimpleNamespace(node_config={"partition-id": name.removeprefix("partition:")})
            wanted += simulate.descend(np.zeros(2), *simulate.data(there)) / NODES / rate
    np.testing.assert_allclose(run["w"], wanted, rtol=1e-6)


def test_probes_are_counted_and_over_selection_keeps_the_cohort(told) -> None:
    assert told["pow-d"]["messages"] == 2 * 20 + 2 * COHORT
    assert told["rpow-d"]["messages"] == 2 * COHORT
    over = told["over"]["status"]
    assert over.count(DONE) <= COHORT < over.count(DONE) + over.count(SURPLUS) + over.count(FAILED) == 13


@pytest.mark.parametrize("name", ["uniform", "e3cs"])
def test_the_same_clients_as_without_flower(told, name: str) -> None:
    policy = fp.Uniform(COHORT) if name == "uniform" else fp.E3CS(COHORT, quota=0.5)
    clients = fp.Clients(np.ones(NODES))
    state = policy.init(clients)
    for round in range(1, ROUNDS + 1):
        view = fp.View(round, np.ones(NODES, dtype=bool), clients)
        choice = policy.select(state, view, fp.rng.stream(0, round, "policy"))
        status = np.where(np.isin(choice.ids, (3, 4)), FAILED, DONE)
        nothing = np.full(len(choice), np.nan)
        state = policy.observe(state, view, choice, fp.Outcome(status, nothing, nothing))
    assert sorted(told[name]["names"]) == sorted(f"partition:{k}" for k in choice.ids)


def test_a_reply_after_the_deadline_is_used_in_the_next_round(tmp_path) -> None:
    """The slow one's update comes a round late, and moves the model by its share and its weight of 1/2 beside two."""
    script = Path(__file__).with_name("simulate_late.py")
    finished([str(script), str(tmp_path / "told.json")], tmp_path)
    told = json.loads((tmp_path / "told.json").read_text())
    assert told["0"]["w"] == [0.0, 0.0]  # dropped
    assert told["2"]["status"][0] == [DONE, DONE, LATE]
    assert told["2"]["w"] == pytest.approx([0.2, 0.2])
