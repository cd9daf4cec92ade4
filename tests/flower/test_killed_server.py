"""A ServerApp that is killed, between rounds and in mid-round, and started again on the same SuperLink."""

import os
import signal
from pathlib import Path

import pytest
from deployment import Deployment

import fedpick as fp

pytestmark = pytest.mark.slow


def test_a_killed_server_goes_on_where_it_was(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path)

    def kill() -> None:
        """End the ServerApp that began last as kill -9 does."""
        os.kill(deployment.told()[-1]["pid"], signal.SIGKILL)

    def two_train() -> bool | None:
        return True if [len(each) for each in by_run(3).values()] == [2] else None

    def by_run(round: int) -> dict[int, set[int]]:
        """The partitions that trained in this round, by the run for which they did."""
        found: dict[int, set[int]] = {}
        for each in deployment.trained():
            if each["round"] == round:
                found.setdefault(each["run"], set()).add(each["partition"])
        return found

    try:
        deployment.superlink("--insecure")
        for node in range(3):
            deployment.supernode(node, "--insecure")
        options = {"nodes": 3, "deadline": 60.0}
        with deployment.held("after-2"):
            deployment.run("run1", plan="rpow-d 2 9", **options)
            deployment.rounds(2, 120)
            kill()
        with deployment.held("train-3"):
            deployment.run("run2", plan="rpow-d 2 9", **options)
            deployment.wait(two_train, 60, "round 3 to be in its middle")
            kill()
        deployment.run("run3", plan="rpow-d 2 2", **options)
        deployment.ended("rpow-d", 90)
    finally:
        deployment.end()

    told = deployment.told()
    steps = [(entry["what"], entry["round"]) for entry in told]
    once = [("begins", 0), ("round", 1), ("round", 2)]
    assert steps == [*once, ("begins", 2), ("begins", 2), ("round", 3), ("round", 4), ("ends", 4)]
    assert len({entry["pid"] for entry in told}) == 3

    # What the first had told is what both that came after it found, to the last digit, under the same names.
    _, _, second, again, once_more, third, fourth, _ = told
    for found in again, once_more:
        assert found["state"] == second["state"]
        assert found["names"] == second["names"]
    assert len(set(second["names"])) == 3
    assert fourth["names"] == third["names"] == second["names"]

    # Two train in each round: counts go on from round to round, and each client is still itself.
    assert [sum(entry["state"]["counts"]) for entry in (second, third, fourth)] == [4, 6, 8]
    for before, entry in (second, third), (third, fourth):
        raised = [new - old for old, new in zip(before["state"]["counts"], entry["state"]["counts"], strict=True)]
        assert raised == [int(name in entry["chosen"]) for name in entry["names"]]
        assert entry["status"] == [fp.Status.DONE] * 2
    partition: dict[str, float] = {}
    for entry in (each for each in told if each["what"] == "round"):
        for name, loss in zip(entry["chosen"], entry["loss"], strict=True):
            assert partition.setdefault(name, loss) == loss
    assert sorted(partition.values()) == [0.0, 1.0, 2.0]

    # The round that was cut off was played again with the same cohort, and the clients saw its number.
    cut, played = by_run(3).values()
    assert cut == played
    assert fourth["w"] == [4.0, 4.0, 4.0]
    deployment.check_records("rpow-d")
