"""What manifests say, old and new, and where runs are found; nothing is built or imported for it."""

import json
import re
import shutil
import sys

import pytest
from made_runs import WORLD, make

import fedpick as fp
from fedpick import worlds
from fedpick.experiment import Config
from fedpick.experiment.executors import execute
from fedpick.report.runs import find_runs, read_info


def manifest(folder, config, **more):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "manifest.json").write_text(json.dumps({"config": config, **more}))
    return folder


def test_a_run_of_the_simulator_says_what_it_is(tmp_path):
    config = Config("e3cs(quota=0.5)", cohort_size=3, rounds=4, seed=7, world={"name": "volatile", "deadline": 9.0})
    info = read_info(execute(config, tmp_path / "run"))
    assert (info.policy, info.seed, info.cohort_size, info.rounds) == ("e3cs(quota=0.5)", 7, 3, 4)
    assert (info.world, info.data, info.train) == ("volatile(deadline=9.0)", None, "")
    assert info.num_clients == 100  # the world's own number, which the manifest leaves out
    assert info.engine == "simulator"
    assert info.simulated
    assert not info.oracle


def test_what_a_manifest_says_about_its_run_is_taken(tmp_path):
    about = {
        "policy": "mine",
        "world": "night",
        "cohort_size": 3,
        "data": "digits",
        "train": "lr=0.1",
        "num_clients": 50,
        "oracle": True,
        "engine": "simulator",
        "device": "cpu",
        "played": "alone",
    }
    config = {"policy": "eps.py:Mine(0.1)", "cohort_size": 9, "rounds": 5, "seed": 2, "world": {"name": "gone"}}
    info = read_info(manifest(tmp_path, config, about=about))
    assert (info.policy, info.world, info.cohort_size, info.data, info.train) == (
        "mine",
        "night",
        3,
        "digits",
        "lr=0.1",
    )
    assert (info.num_clients, info.oracle, info.seed) == (50, True, 2)


def test_manifests_from_before(tmp_path):
    old = {"policy": "uniform", "cohort_size": 5, "rounds": 9, "seed": 1, "world": {"name": "volatile", "clients": 33}}
    info = read_info(manifest(tmp_path / "a", old))
    assert (info.world, info.num_clients) == ("volatile(clients=33)", 33)
    trained = {**old, "data": {"name": "digits", "partition": "iid"}, "train": {"lr": 0.1}}
    info = read_info(manifest(tmp_path / "b", trained))
    assert (info.data, info.train) == ("digits, iid", "lr=0.1")
    unknown = {"policy": "uniform", "world": {"name": "a world that is gone"}}
    info = read_info(manifest(tmp_path / "c", unknown))
    assert (info.num_clients, info.cohort_size, info.rounds, info.seed) == (None, None, None, 0)
    served = {"engine": "flower", "policy": "E3CS(quota=0.5)", "base": "FedAvg", "cohort_size": 3, "seed": 0}
    info = read_info(manifest(tmp_path / "d", served))
    assert (info.engine, info.world, info.data, info.num_clients) == ("flower", None, None, None)


@pytest.mark.parametrize(
    ("policy", "oracle"),
    [
        ("fedcs", True),
        ("FedCS(deadline=3.0)", True),
        ("over-select(fedcs, 1.3)", True),
        ("genie", True),
        ("uniform", False),
        ("fedcsx", False),
    ],
)
def test_oracles_are_known_by_their_names_where_the_manifest_does_not_say(tmp_path, policy, oracle):
    assert read_info(manifest(tmp_path, {"policy": policy})).oracle is oracle


def test_no_world_is_built_and_no_code_imported(tmp_path, monkeypatch):
    (tmp_path / "boom.py").write_text("raise RuntimeError('imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    make(tmp_path / "runs" / "a", f"{tmp_path}/boom.py:Policy(eps=0.1)")
    make(tmp_path / "runs" / "b", "boom:Policy")

    def refuse(*arguments, **named):
        raise AssertionError("a world was built")

    monkeypatch.setattr(worlds.World, "__init__", refuse)
    results = fp.load(tmp_path)
    assert "boom.py:Policy(eps=0.1)" in results.table("text").replace("\n", "")
    results.frame()
    results.rounds()
    results.plot()
    assert "boom" not in sys.modules


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "manifest.json: cannot be read (JSONDecodeError"),
        ("{}", "manifest.json: cannot be read (KeyError"),
        ('{"config": 3}', "manifest.json: cannot be read (TypeError"),
        ('{"config": {"colour": "red"}}', "its manifest.json is not a run's (KeyError: 'policy')"),
        ('{"config": {"policy": "uniform", "seed": "one"}}', "its manifest.json is not a run's (ValueError"),
        ('{"config": {"policy": "uniform", "world": 3}}', "its manifest.json is not a run's (TypeError"),
        ('{"config": {"policy": "uniform", "data": "digits"}}', "its manifest.json is not a run's (TypeError"),
        ('{"config": {"policy": "uniform"}, "about": "mine"}', "its manifest.json is not a run's (TypeError"),
    ],
)
def test_a_damaged_manifest_is_one_line_and_left_out_beside_others(tmp_path, text, says):
    (tmp_path / "runs" / "x").mkdir(parents=True)
    (tmp_path / "runs" / "x" / "manifest.json").write_text(text)
    with pytest.raises(fp.StoreError) as caught:
        fp.load(tmp_path)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
    whole = make(tmp_path / "runs" / "whole")
    with pytest.warns(UserWarning, match="left out: " + re.escape(str(caught.value))):
        found = fp.load(tmp_path)
    assert [run.folder for run in found.runs] == [whole]
    with pytest.raises(fp.StoreError, match=re.escape(says)):  # asked for by name
        fp.load(whole, tmp_path / "runs" / "x")


def test_a_damaged_manifest_beside_rounds_is_never_left_out(tmp_path):
    for seed, name in enumerate(("whole", "damaged")):
        make(tmp_path / name, "uniform", seed)
    assert len(fp.load(tmp_path).runs) == 2
    (tmp_path / "damaged" / "manifest.json").write_text("{")
    with pytest.raises(fp.StoreError, match=r"damaged/manifest\.json: cannot be read"):
        fp.load(tmp_path)


def test_runs_are_found_up_to_three_levels_below(tmp_path):
    run = make(tmp_path / "one")
    for place in ("a/x", "b/runs/y", "c/d/e/z", "far/away/from/here/w"):
        shutil.copytree(run, tmp_path / "all" / place)
    shutil.copytree(run, tmp_path / "all" / "a" / "x" / "inside")  # a run's folder holds no other run
    found = {str(info.folder.relative_to(tmp_path / "all")) for info in find_runs(tmp_path / "all")}
    assert found == {"a/x", "b/runs/y"}
    assert [info.folder for info in find_runs(run)] == [run]


def test_folders_without_runs_say_so(tmp_path):
    with pytest.raises(fp.StoreError, match="there is no such folder"):
        fp.load(tmp_path / "nowhere")
    with pytest.raises(fp.StoreError, match="has no runs"):
        fp.load(tmp_path)
    with pytest.raises(fp.SettingError, match="one folder or more"):
        fp.load()
    manifest(tmp_path / "run", {"policy": "uniform", "world": WORLD})
    with pytest.raises(fp.StoreError, match="has no rounds yet"):
        fp.load(tmp_path).table()
