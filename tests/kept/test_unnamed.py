"""A run and a comparison of 0.1 whose settings name no world: they are in `phones`, the default then.

Both were made from files with `[world]`, `num_clients = 8` alone; since 0.2 such a file means `volatile`.
"""

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

import fedpick as fp
from fedpick.cli.app import app
from fedpick.experiment.files import config_of
from fedpick.experiment.shelf import Shelf
from fedpick.experiment.work import work_of
from fedpick.store import read_rounds

HERE = Path(__file__).parent / "unnamed"


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    return Path(shutil.copytree(HERE, tmp_path / "kept"))


def test_a_comparison_s_runs_are_found(kept: Path) -> None:
    shelf = Shelf(kept / "compared")
    (plan,) = shelf.plans()
    assert work_of(plan, shelf).jobs == []
    assert [config.labels["world"] for config in plan.configs()] == ["phones(num_clients=8)"] * 2
    (derived,) = shelf.derived()
    assert {config.key for config in derived.configs()} == {config.key for config in plan.configs()}
    assert len(list((kept / "compared/plans").iterdir())) == 1  # the same plan, not a second one


def test_both_go_on(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fp.worlds.world, "OLD_DRAWS", True)  # those of the rounds that are stored
    named = fp.experiment.Config("e3cs(quota=0.5)", 3, 9, world={"name": "phones", "num_clients": 8})
    fp.experiment.executors.execute(named, kept / "named")
    for name in ("run", "compared"):
        done = CliRunner().invoke(app, ["resume", str(kept / name), "--rounds", "9"])
        assert done.exit_code == 0, done.output
    folders = [kept / "run", *(kept / "compared/runs").glob("e3cs*")]
    assert len(folders) == 2
    for folder in folders:
        assert read_rounds(folder).equals(read_rounds(kept / "named"))


def test_the_same_file_means_another_world_now(kept: Path, tmp_path: Path) -> None:
    file = tmp_path / "one.toml"
    file.write_text('policy = "e3cs(quota=0.5)"\ncohort_size = 3\nrounds = 6\n[world]\nnum_clients = 8\n')
    assert fp.experiment.load(file).world == {"name": "volatile", "num_clients": 8}
    assert config_of(kept / "run").world == {"name": "phones", "num_clients": 8}
    assert config_of(kept / "run").as_dict()["world"] == {"num_clients": 8}
    done = CliRunner().invoke(app, ["run", str(file), "--out", str(kept / "run")])
    assert isinstance(done.exception, fp.FedpickError)
