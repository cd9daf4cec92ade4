"""A real deployment, killed and started again with its model, in which one of four sites is not approved."""

import json
import os
import signal
from pathlib import Path

import pytest
from deployment import Deployment

pytestmark = pytest.mark.slow


def test_a_killed_server_goes_on_with_its_model_and_never_asks_a_site_that_is_not_approved(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path)

    def kill() -> None:
        """End the ServerApp that began last as kill -9 does."""
        os.kill(deployment.told()[-1]["pid"], signal.SIGKILL)

    def two_train() -> bool | None:
        return True if sum(each["round"] == 3 for each in deployment.trained()) == 2 else None

    try:
        deployment.superlink("--insecure")
        for node in range(4):
            deployment.supernode(node, "--insecure")
        options = {"nodes": 4, "deadline": 60.0, "keep": True, "approved": 3}
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

    # Each server started with zeros of its own, and got the model of the round that its state was of.
    told = deployment.told()
    steps = [(entry["what"], entry["round"], entry.get("w", [None])[0]) for entry in told]
    assert steps == [
        *[("begins", 0, None), ("starts", 0, 0.0), ("round", 1, 1.0), ("round", 2, 2.0)],
        *[("begins", 2, None), ("starts", 2, 2.0)],
        *[("begins", 2, None), ("starts", 2, 2.0), ("round", 3, 3.0), ("round", 4, 4.0), ("ends", 4, None)],
    ]
    assert len({entry["pid"] for entry in told}) == 3
    assert len(list((tmp_path / "model").glob("model-*.npz"))) == 3
    assert "takes the place of initial_arrays" in deployment.log("run3")
    assert "begins again" not in deployment.log("run3")

    # One site was never asked anything: it is not enrolled, and neither trained nor evaluated.
    assert len(told[-1]["names"]) == 3
    trained = {each["partition"] for each in deployment.trained()}
    notes = [json.loads(file.read_text()) for file in tmp_path.glob("evaluated-*.json")]
    evaluated = {each["partition"] for each in notes}
    assert len(evaluated) == 3
    assert trained <= evaluated
    assert {each["round"] for each in notes} == {1, 2, 3, 4}
    deployment.check_records("rpow-d")
