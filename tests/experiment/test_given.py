"""What policies are given beyond the others, and that a comparison is tested on the same examples."""

import json

import pytest

import fedpick as fp
from fedpick.experiment import Experiment
from fedpick.experiment.config import Config
from fedpick.experiment.given import given_to, needs_server_data
from fedpick.report.runs import read_info
from fedpick.store.manifest import summed_json


def trains(policies, data="digits", **more):
    return [config.train for config in Experiment(policy=policies, data=data, seeds=1, rounds=2, **more).configs()]


@pytest.mark.parametrize(
    "policy", ["greedyfed", "S-FedAvg", "over-select(greedyfed, 1.3)", fp.GreedyFed, fp.GreedyFed(20), fp.SFedAvg(20)]
)
def test_all_runs_of_a_plan_are_tested_without_the_servers_examples(policy):
    assert needs_server_data(policy)
    assert trains(["uniform", policy, "e3cs(quota=0.5)"]) == [{"set_aside": 1000}] * 3
    assert trains(["uniform", policy], train={"set_aside": 50, "lr": 0.1}) == [{"set_aside": 50, "lr": 0.1}] * 2


def test_other_plans_test_on_all_examples_as_before():
    policies = ["uniform", "pow-d", "fedcs", "flips", fp.FedCor]
    assert trains(policies) == [{}] * 5
    assert trains(["uniform", "greedyfed"], data=None) == [{}] * 2
    own = {"trainer": "loop.py:Trainer"}  # decides itself; its file is not imported, it does not exist
    assert not needs_server_data("policy.py:Valued")
    assert Experiment(policy=["uniform", "greedyfed"], data="digits", train=own).train == (own,)


def test_plans_that_are_read_again_have_the_same_runs():
    plan = Experiment(policy=["uniform", "greedyfed"], data="digits", seeds=1, rounds=2)
    again = Experiment.stored(json.loads(json.dumps(plan.as_dict())))
    keys = [config.key for config in plan.configs()]
    assert [config.key for config in again.configs()] == keys
    alone = Experiment(policy=["uniform"], data="digits", seeds=1, rounds=2).configs()[0]
    assert alone.key not in keys  # it is tested on other examples
    assert alone.key == Config("uniform", data={"name": "digits"}, rounds=2).key


def test_what_is_given():
    wanted = {
        fp.Uniform(2): [],
        fp.GreedyFed(2): ["server data"],
        fp.PowerOfChoice(2): ["losses on request"],
        fp.OptimalSampling(2): ["norms on request"],
        fp.FLDP3S(2): ["features"],
        fp.DivFL(2): ["report sketch_32"],
        fp.OverSelect(fp.FLIPS(2), 1.5): ["label counts"],
    }
    for policy, words in wanted.items():
        assert given_to(fp.traits(policy)) == words


def manifest(folder, policy, train=None, about=None, data="digits"):
    config = {"policy": policy, "seed": 0, "rounds": 4, "cohort_size": 5, "world": {"name": "volatile"}}
    config |= {"data": {"name": data}, "train": train or {}} if data else {}
    folder.mkdir()
    (folder / "manifest.json").write_text(summed_json({"config": config, **({"about": about} if about else {})}))
    return read_info(folder)


def test_old_runs_that_were_tested_on_fewer_examples_are_not_compared_with_others(tmp_path):
    assert manifest(tmp_path / "a", "greedyfed").train == "set_aside=1000"
    assert manifest(tmp_path / "b", "greedyfed", {"lr": 0.1}).train == "lr=0.1, set_aside=1000"
    assert manifest(tmp_path / "c", "uniform", {"lr": 0.1}).train == "lr=0.1"
    assert manifest(tmp_path / "d", "greedyfed", data=None).train == ""
    assert manifest(tmp_path / "e", "uniform").given == ()
