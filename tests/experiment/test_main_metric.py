"""The main metric of a comparison with fedpick's own trainer: measured, first in the table, and in the runs' keys."""

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

import fedpick as fp
from fedpick.cli.app import app
from fedpick.experiment import load_experiment
from fedpick.experiment.plan import with_metric

pytestmark = pytest.mark.usefixtures("quick_start")


@pytest.mark.parametrize(
    ("metric", "train", "name"),
    [
        ("accuracy", {"lr": 0.1}, "accuracy"),
        ("loss", {"lr": 0.1}, "test_loss"),
        ("train_loss", {"lr": 0.1}, "train_loss"),
        ("auroc", {"lr": 0.1, "metrics": "auroc"}, "auroc"),
        ("my.py:score", {"lr": 0.1, "metrics": "my.py:score"}, "score"),
    ],
)
def test_what_is_measured_for_it(metric, train, name):
    assert with_metric({"lr": 0.1}, metric) == (train, name)


def test_it_is_added_once():
    assert with_metric({"metrics": ["macro_f1"]}, "auroc")[0] == {"metrics": "macro_f1, auroc"}
    assert with_metric({"metrics": ["macro_f1"]}, "macro_f1")[0] == {"metrics": "macro_f1"}
    with pytest.raises(fp.FedpickError, match=r"macrof1.*macro_f1"):
        with_metric({}, "macrof1")


def test_a_list_of_metrics_in_a_file_is_one_setting(tmp_path):
    (tmp_path / "my.py").write_text("def score(outputs, targets):\n    return 1.0\n")
    file = tmp_path / "study.toml"
    file.write_text('policy = "uniform"\n[data]\nname = "digits"\n[train]\nmetrics = ["macro_f1", "my.py:score"]\n')
    plan = load_experiment(file)
    assert [each["metrics"] for each in plan.train] == [f"macro_f1, {tmp_path}/my.py:score"]
    assert plan.references() == [f"{tmp_path}/my.py:score"]
    config = plan.configs()[0]
    assert config.as_dict()["train"] == {"metrics": "macro_f1, my.py:score"}
    assert list(config.code or {}) == ["my.py:score"]  # other code is another run
    assert config.key == replace(config, train={"metrics": config.train["metrics"].split(", ")}).key


def test_compare_measures_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my.py").write_text(
        "def half(outputs, targets):\n    return 0.5\n\nhalf.directions = {'half': 'larger'}\n"
    )
    given = ["compare", "-p", "uniform", "-d", "synthetic(1, 1)", "-w", "ideal", "-k", "10", "-m", "3", "-t", "10"]
    given += ["-s", "1", "--batch", "7", "--server", "fedadam(lr=0.01)", "--executor", "serial", "-o", "out"]
    given += ["--lr", "halving(0.1, every=5)", "--prox", "0.1", "--algorithm", "fednova"]
    result = CliRunner().invoke(app, [*given, "--metric", "macro_f1", "--target", "macro_f1=0.01"])
    assert result.exit_code == 0, result.output
    found = fp.load("out")
    assert found.data()["rows"][0]["metric"] == "accuracy"  # of a report, unless it is told
    assert found.runs[0].train == (
        "algorithm='fednova', batch=7, lr='halving(0.1, every=5)', metrics='macro_f1', prox=0.1, "
        "server='fedadam(lr=0.01)'"
    )
    assert 0 < found.frame()["macro_f1"][0] < 1
    row = json.loads((tmp_path / "out" / "results.json").read_text())["rows"][0]
    assert (row["metric"], row["target_metric"], row["target"]) == ("macro_f1", "macro_f1", 0.01)
    result = CliRunner().invoke(app, [*given, "--metric", "my.py:half", "--target", "0.5", "--num-clients", "12"])
    assert result.exit_code == 0, result.output
    frame = fp.load("out", target="half=0.5").frame()
    assert frame["half"].dropna().tolist() == [0.5]


def test_a_metric_that_the_data_do_not_have_is_refused_before_the_first_round(tmp_path):
    with pytest.raises(fp.SettingError, match="'mae' is of numbers, but synthetic"):
        fp.compare("uniform", metric="mae", seeds=1, rounds=10, out=tmp_path, executor="serial")
    assert not (tmp_path / "runs").exists()
