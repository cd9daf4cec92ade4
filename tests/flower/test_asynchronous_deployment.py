"""Asynchronous training in a real deployment, by a ServerApp that is killed and started again, and by other bases.

FEDPICK_KILLS=20 kills it so often.
"""

import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from deployment import Deployment
from optimisers import Optimiser

import fedpick as fp
from fedpick.store import read_clients, read_rounds, read_selections

pytestmark = pytest.mark.slow
DONE, LATE, FAILED, SURPLUS = fp.Status
KILLS = int(os.environ.get("FEDPICK_KILLS", "2"))
SIZE, CONCURRENCY, NODES = 2, 3, 4


def test_killed_servers_go_on_and_no_answer_counts_twice(tmp_path: Path) -> None:
    deployment, rng = Deployment(tmp_path), random.Random(5)
    options = {"nodes": NODES, "deadline": 120.0, "own": True, "keep": True, "size": SIZE}
    killed: list[int] = []  # versions told when it was killed

    def of(kind: str, pids: set[int]) -> list[dict[str, Any]]:
        """What servers with other process ids have told."""
        return [entry for entry in deployment.told() if entry["what"] == kind and entry["pid"] not in pids]

    try:
        deployment.superlink("--insecure")
        for node in range(NODES):
            deployment.supernode(node, "--insecure")
        pids: set[int] = set()
        for kill in range(KILLS):
            deployment.run(f"run{kill}", plan=f"random {CONCURRENCY} 1000", **options)
            deployment.wait(lambda: of("round", pids) or None, 120, f"a version before kill {kill + 1}")
            time.sleep(rng.uniform(0.0, 6.0))
            last = deployment.told()[-1]
            os.kill(last["pid"], signal.SIGKILL)
            pids.add(last["pid"])
            killed.append(len(of("round", set())))
        others = ", ".join(f"random {CONCURRENCY} 2 {base}" for base in ("FedAdam", "FedYogi"))
        deployment.run("last", plan=f"random {CONCURRENCY} 2, {others}", **options)
        deployment.ended("random-FedYogi", 300)
    finally:
        deployment.end()

    told = [entry for entry in deployment.told() if entry["policy"] == "random"]
    rows = check_records(tmp_path / "records-random", told)
    lost = [row for row in rows if row["status"] == "LATE"]
    assert len({entry["pid"] for entry in told}) == KILLS + 1
    assert len(lost) >= 1  # some were in flight
    final = told[-1]
    assert sum(final["state"]["counts"]) == len(rows) - len(lost)  # of those the policy is not told
    check_models(rows, told, Optimiser("FedAvg"))
    text = "kills after {} versions; of {} tasks {} were lost; {} versions\n"
    sys.stdout.write(text.format(killed, len(rows), len(lost), final["round"]))

    for base in "FedAdam", "FedYogi":
        told = [entry for entry in deployment.told() if entry["policy"] == f"random-{base}"]
        rows = check_records(tmp_path / f"records-random-{base}", told)
        assert {row["status"] for row in rows} == {"DONE"}
        check_models(rows, told, Optimiser(base))


def check_records(folder: Path, told: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The records have each version once, each task once, and all that was told; returns the tasks' rows."""
    names, rows = read_clients(folder), read_selections(folder).to_pylist()
    assert names is not None
    versions = [row["round"] for row in read_rounds(folder).to_pylist()]
    assert versions == list(range(1, told[-1]["round"] + 1))
    ids = [row["task"] for row in rows]
    assert len(set(ids)) == len(ids)
    for version in versions:
        done = [row for row in rows if row["round"] == version and row["status"] == "DONE"]
        assert len(done) == SIZE
        assert all(row["staleness"] == version - 1 - row["sent"] for row in done)
    for entry in (each for each in told if each["what"] == "round"):
        there = [row for row in rows if row["round"] == entry["round"]]
        assert [names[row["client"]] for row in there] == entry["chosen"]
        assert [row["task"] for row in there] == [task[0] for task in entry["tasks"]]
    return rows


def check_models(rows: list[dict[str, Any]], told: list[dict[str, Any]], optimiser: Optimiser) -> None:
    """Each version that was told is made of the recorded answers: partition k, whose loss is k, adds 1 + k."""
    models = {entry["round"]: entry["w"] for entry in told if entry["what"] == "round"}
    for version in range(1, told[-1]["round"] + 1):
        done = [row for row in rows if row["round"] == version and row["status"] == "DONE"]
        optimiser.move(sum(row["weight"] * (1.0 + row["loss"]) for row in done) / SIZE)
        if version in models:
            np.testing.assert_allclose(models[version], optimiser.x, rtol=1e-9)
