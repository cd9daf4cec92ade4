"""Six SuperNodes, five kinds of fault in one round; the weights of rounds by Oort and F3AST, in the model itself."""

import signal
import time
from pathlib import Path

import numpy as np
import pytest
from deployment import Deployment

import fedpick as fp

pytestmark = pytest.mark.slow
DONE, LATE, FAILED, SURPLUS = fp.Status
RAISES, POISONS, STRAGGLES, KILLED, ENDED = range(1, 6)


def test_each_fault_is_the_right_status_of_the_right_client(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path)

    def both_train() -> bool | None:
        busy = {each["partition"] for each in deployment.trained() if each["round"] == 2}
        return True if {KILLED, ENDED} <= busy else None

    try:
        deployment.superlink("--insecure")
        for node in range(6):
            deployment.supernode(node, "--insecure")
        deployment.run("run", plan="e3cs 6 3, pow-d 2 1", nodes=6, deadline=90.0, faults=True)
        deployment.rounds(1, 120)
        deployment.wait(both_train, 60, "those to be killed to train")
        deployment.send(f"node{KILLED}", signal.SIGKILL)
        deployment.send(f"node{ENDED}", signal.SIGTERM)
        first, second, third, probed = deployment.rounds(4, 200)
        deployment.ended("pow-d", 30)
    finally:
        deployment.end()

    assert sorted(first["loss"]) == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    partition = dict(zip(first["chosen"], map(int, first["loss"]), strict=True))

    def by_partition(names, values):
        return {partition[name]: value for name, value in zip(names, values, strict=True)}

    assert first["status"] == [DONE] * 6
    faults = by_partition(second["chosen"], second["status"])
    assert faults == {0: DONE, RAISES: FAILED, POISONS: FAILED, STRAGGLES: LATE, KILLED: FAILED, ENDED: FAILED}
    assert second["seconds"] == pytest.approx(90.0, abs=5.0)
    assert second["w"] == [2.0, 2.0, 2.0]
    after = by_partition(third["chosen"], third["status"])
    assert after == {0: DONE, RAISES: DONE, POISONS: DONE, STRAGGLES: DONE}

    # All are alike after round 1; round 2 raises the one that answered, round 3 those that are there again.
    steps = [by_partition(each["names"], each["state"]["log_weights"]) for each in (first, second, third)]
    assert len(set(steps[0].values())) == 1
    assert all(steps[1][fails] < steps[1][0] for fails in (RAISES, POISONS, STRAGGLES, KILLED, ENDED))
    assert all(steps[2][gone] < steps[2][back] for gone in (KILLED, ENDED) for back in (RAISES, POISONS, STRAGGLES))

    # Four are left, all of them are asked, and the two with the highest loss train.
    assert probed["policy"] == "pow-d"
    assert by_partition(probed["chosen"], probed["status"]) == {POISONS: DONE, STRAGGLES: DONE}
    assert probed["messages"] == 2 * 4 + 2 * 2

    deployment.check_records("e3cs")
    deployment.check_records("pow-d")


def test_oort_and_f3ast_over_fedavg_move_the_model_by_their_weights(tmp_path: Path) -> None:
    """Partition k adds 1 + k and has 10 (k + 1) examples: FedAvg's weights with Oort, F3AST's own, used as they are.

    In a second run, the reply of one client comes after its round was closed, and counts in the next one.
    """
    deployment = Deployment(tmp_path)
    try:
        deployment.superlink("--insecure")
        for node in range(4):
            deployment.supernode(node, "--insecure")
        deployment.run("run", plan="oort 2 6, f3ast 2 4", nodes=4, deadline=90.0, own=True)
        rounds = deployment.rounds(10, 420)
        deployment.ended("f3ast", 30)
        with deployment.held("after-1"):
            with deployment.held("node-3"):
                deployment.run("late", plan="random 4 2", nodes=4, deadline=30.0, own=True, late=3)
                deployment.rounds(11, 120)
            time.sleep(10.0)  # its reply is on its way
        late = deployment.rounds(12, 90)[10:]
        deployment.ended("random", 30)
    finally:
        deployment.end()

    assert [each["policy"] for each in rounds] == ["oort"] * 6 + ["f3ast"] * 4
    before = 0.0
    heard = {}
    for each in rounds[:6]:
        assert each["status"] == [DONE] * 2
        k = np.array(each["loss"])
        assert len(set(k)) == 2
        before += np.sum(10 * (k + 1) * (1 + k)) / np.sum(10 * (k + 1))
        assert each["w"] == pytest.approx([before] * 3)
        heard |= dict(zip(each["chosen"], k, strict=True))
        utility = dict(zip(each["names"], each["state"]["utility"], strict=True))
        for name, partition in heard.items():  # size 1 times the root of the mean squared loss
            assert utility[name] == pytest.approx(1.0 + partition)
    assert sorted(heard.values()) == [0.0, 1.0, 2.0, 3.0]  # all were explored

    policy, before, rate = fp.F3AST(2), 0.0, {}
    for each in rounds[6:]:
        assert each["status"] == [DONE] * 2
        for name in each["names"]:  # rates are updated before they weigh
            rate[name] = (1 - policy.beta) * rate.get(name, 0.5) + policy.beta * (name in each["chosen"])
        shares = [0.25 / rate[name] for name in each["chosen"]]
        before += sum(share * (1 + k) for share, k in zip(shares, each["loss"], strict=True))
        assert each["w"] == pytest.approx([before] * 3)

    k = np.arange(4)
    examples, adds = 10.0 * (k + 1), 1.0 + k
    assert sorted(late[0]["status"]) == [DONE] * 3 + [LATE]
    assert dict(zip(late[0]["status"], np.nan_to_num(late[0]["loss"], nan=3.0), strict=True))[LATE] == 3.0
    first = examples[:3] @ adds[:3] / examples[:3].sum()
    assert late[0]["w"] == pytest.approx([first] * 3)
    assert late[1]["status"] == [DONE] * 4
    half = 0.5 * examples[3]  # of a reply that is one round late, with beta = 0
    second = (examples @ adds + half * adds[3]) / (examples.sum() + half)
    assert late[1]["w"] == pytest.approx([first + second] * 3)

    deployment.check_records("oort")
    deployment.check_records("f3ast")
