"""A run and a comparison of 0.1 whose settings name no world: they are in `phones`, the default then.

Both were made from files with `[world]`, `num_clients = 8` alone; since 0.2 such a file means `volatile`.
"""

import csv
import itertools
import shutil
import warnings
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

import fedpick as fp
from fedpick.cli.app import app
from fedpick.experiment.files import config_of
from fedpick.experiment.shelf import Shelf
from fedpick.experiment.work import work_of
from fedpick.report.runs import read_info
from fedpick.store import read_rounds

HERE = Path(__file__).parent / "unnamed"


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    return Path(shutil.copytree(HERE, tmp_path / "kept"))


def test_a_comparison_is_in_the_world_of_before(kept: Path) -> None:
    shelf = Shelf(kept / "compared")
    (plan,) = shelf.plans()
    assert [config.labels["world"] for config in plan.configs()] == ["phones(num_clients=8)"] * 2
    (derived,) = shelf.derived()
    assert {config.key for config in derived.configs()} == {config.key for config in plan.configs()}
    assert len(work_of(plan, shelf).jobs) == 2  # seeds give other numbers since 0.3
    assert len(list((kept / "compared/plans").iterdir())) == 1  # the same plan, not a second one


def test_a_run_goes_on_and_says_that_seeds_give_other_numbers_now(kept: Path) -> None:
    before = read_rounds(kept / "run")
    with pytest.warns(UserWarning, match="was begun by a version of fedpick .* rounds from 7 on"):
        fp.experiment.executors.execute(replace(config_of(kept / "run"), rounds=9), kept / "run")
    after = read_rounds(kept / "run")
    assert after["round"].to_pylist() == list(range(1, 10))
    assert after.select(before.column_names).slice(0, 6).equals(before)
    assert read_info(kept / "run").numbers == "0.1, then 0.3"
    with warnings.catch_warnings(action="error"):  # said once
        fp.experiment.executors.execute(config_of(kept / "run"), kept / "run")


def test_a_comparison_is_played_again_and_both_versions_are_kept_apart(kept: Path) -> None:
    named = fp.experiment.Config("e3cs(quota=0.5)", 3, 9, world={"name": "phones", "num_clients": 8})
    fp.experiment.executors.execute(named, kept / "named")
    done = CliRunner().invoke(app, ["resume", str(kept / "compared"), "--rounds", "9"])
    assert done.exit_code == 0, done.output
    found = {read_info(folder).numbers: folder for folder in (kept / "compared/runs").glob("e3cs*")}
    assert sorted(found) == ["0.1", "0.3"]
    assert read_rounds(found["0.3"]).equals(read_rounds(kept / "named"))
    results = fp.load(kept / "compared")
    rows = csv.DictReader(results.table("csv").splitlines())
    shown = {(row["policy"], row["code"]) for row in rows}
    assert shown == set(
        itertools.product(("uniform", "e3cs(quota=0.5)"), ["seeds of fedpick 0.1", "seeds of fedpick 0.3"])
    )
    assert "(0.1; 0.3), and are not compared with each other" in " ".join(results.table("text").split())
    done = CliRunner().invoke(app, ["runs", str(kept / "compared"), "--prune"])
    assert done.exit_code == 0, done.output
    assert {read_info(folder).numbers for folder in (kept / "compared/runs").iterdir()} == {"0.3"}


def test_the_same_file_means_another_world_now(kept: Path, tmp_path: Path) -> None:
    file = tmp_path / "one.toml"
    file.write_text('policy = "e3cs(quota=0.5)"\ncohort_size = 3\nrounds = 6\n[world]\nnum_clients = 8\n')
    assert fp.experiment.load(file).world == {"name": "volatile", "num_clients": 8}
    assert config_of(kept / "run").world == {"name": "phones", "num_clients": 8}
    assert config_of(kept / "run").as_dict()["world"] == {"num_clients": 8}
    done = CliRunner().invoke(app, ["run", str(file), "--out", str(kept / "run")])
    assert isinstance(done.exception, fp.FedpickError)
