"""Asynchronous training in Flower's own simulation (Ray): each version is what the records say it is made of."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from optimisers import Optimiser
from test_simulation import finished

import fedpick as fp

pytestmark = pytest.mark.slow
DONE, LATE, FAILED, SURPLUS = fp.Status


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    folder = tmp_path_factory.mktemp("asynchronous")
    script = Path(__file__).with_name("simulate_asynchronous.py")
    finished([str(script), str(folder / "told.json")], folder)
    return json.loads((folder / "told.json").read_text())


@pytest.fixture(scope="module")
def simulated():
    sys.path.insert(0, str(Path(__file__).parent))
    import simulate_asynchronous

    return simulate_asynchronous


@pytest.mark.parametrize("name", ["FedAvg", "FedAdam", "FedYogi"])
def test_each_version_is_made_of_the_changes_of_the_models_that_were_sent(told, simulated, name: str) -> None:
    versions = told[name]["versions"]
    models = [np.array(version["w"]) for version in versions]
    assert len(models) == simulated.VERSIONS + 1
    heard: dict[str, int] = {}
    optimiser = Optimiser(name)
    for number, version in enumerate(versions[1:], 1):
        moved, used = np.zeros(2), 0
        for _, client, sent, status, staleness, weight in version["tasks"]:
            partition = int(client.removeprefix("partition:"))
            assert status == (FAILED if partition == simulated.CRASHES else DONE)
            if status == FAILED:
                continue
            heard[client] = len(simulated.data(partition)[1])
            mean = sum(heard.values()) / len(heard)
            assert staleness == number - 1 - sent
            assert weight == pytest.approx(heard[client] / mean / np.sqrt(1 + staleness))
            moved += weight / 2 * (simulated.descend(models[sent], partition) - models[sent])
            used += 1
        assert used == 2
        optimiser.move(moved)
        np.testing.assert_allclose(models[number], optimiser.x, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["FedAvg", "FedAdam", "FedYogi"])
def test_no_task_ends_twice_and_some_answers_are_stale(told, name: str) -> None:
    tasks = [task for version in told[name]["versions"] for task in version["tasks"]]
    ids = [task[0] for task in tasks]
    assert len(set(ids)) == len(ids)
    assert sum(told[name]["counts"]) == len(ids)
    assert max(task[4] for task in tasks) >= 1


def test_it_learns(told) -> None:
    assert np.linalg.norm(np.array(told["FedAvg"]["versions"][-1]["w"]) - [1.0, -2.0]) < 0.3
