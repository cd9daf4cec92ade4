"""Comparisons with a trainer of the user's own: its metrics count, and what it does not give is said."""

import csv
import io
import json

import numpy as np
import pytest
from typer.testing import CliRunner

import fedpick as fp
from fedpick._support import user_code
from fedpick.cli.app import app
from fedpick.experiment import Config

LOOP = '''
import numpy as np
from fedpick.core.types import Updates


class Plain:
    """Learns a little from every client; gives no more than a trainer must."""

    def __init__(self, data):
        self.data = data

    def init(self, seed):
        return {"w": np.zeros((20, 30), np.float32), "more": [np.zeros(75)]}

    def probe(self, model, ids, batch, rng):
        return np.ones(len(ids))

    def train(self, model, ids, used, epochs, round, rng):
        return Updates(np.where(used, 1.0 / round, np.nan))

    def aggregate(self, model, choice, outcome, updates):
        done = np.count_nonzero(outcome.status == 0)
        return {**model, "w": model["w"] + np.float32(done / 100)}

    def evaluate(self, model, round):
        level = float(model["w"][0, 0])
        return {"test_loss": 2.0, "macro_f1": level / (1 + level), "perplexity": 30 / (1 + level), "quality": -level}


class Rich(Plain):
    directions = {"quality": "smaller"}
    megabytes = 2.5

    def client_scores(self, model, round):
        return np.where(np.arange(len(self.data)) == 3, np.nan, np.arange(len(self.data)) / 10)

    def train(self, model, ids, used, epochs, round, rng):
        loss = np.where(used, 1.0 / round, np.nan)
        return Updates(loss, {"squared_loss": 2 * loss**2})


class Lossy(Plain):
    def evaluate(self, model, round):
        return {"train_loss": 1.0 / round}


class Silent(Plain):
    def evaluate(self, model, round):
        return {}


class Wrong(Plain):
    directions = {"quality": "up"}
'''


@pytest.fixture
def loop(tmp_path):
    file = tmp_path / "loop.py"
    file.write_text(LOOP)
    return file


def compare(tmp_path, loop, name="Plain", policies=("uniform",), **more):
    return fp.compare(
        list(policies),
        world="ideal(num_clients=30)",
        cohort_size=5,
        data={"name": "digits", "partition": "iid"},
        train={"trainer": f"{loop}:{name}"},
        seeds=2,
        rounds=20,
        out=tmp_path / "out",
        executor="serial",
        **more,
    )


def test_its_metrics_are_in_every_form_of_the_results(tmp_path, loop):
    results = compare(tmp_path, loop, policies=["uniform", "over-select(uniform, 1.5)"], target="macro_f1=0.3")
    level = 20 * 5 / 100  # after 20 rounds of five clients, who are all in time
    wanted = level / (1 + level)
    frame = results.frame()
    assert frame["macro_f1"].tolist() == pytest.approx([wanted] * 4, rel=1e-5)
    assert frame["rounds_to"].tolist() == [9.0] * 4  # 0.45 / 1.45 is the first above 0.3
    assert set(frame["target_metric"]) == {"macro_f1"}
    for format in ("text", "markdown", "latex"):
        text = results.table(format).replace("\\_", "_")
        assert "macro_f1" in text
        assert f"{wanted:.3f}" in text
        assert "not evaluated" not in text
    lines = list(csv.DictReader(io.StringIO(results.table("csv"))))
    assert {"macro_f1", "perplexity", "quality", "test_loss"} <= {line["score"] for line in lines}
    assert {(line["target"], line["target_metric"]) for line in lines} == {("0.3", "macro_f1")}
    page = results.page()
    assert '"name":"macro_f1"' in page
    assert page.index('"name":"macro_f1"') < page.index('"name":"test_loss"')  # the main one is drawn first
    assert results.plot().axes[0].get_ylabel() == "macro_f1"
    assert results.plot(size="column").axes[0].get_ylabel() == "macro_f1"


def test_a_target_that_values_have_to_fall_to(tmp_path, loop):
    results = compare(tmp_path, loop, target={"perplexity": 20}, metric="perplexity")
    assert set(results.frame()["rounds_to"]) == {10.0}  # 30 / 1.5
    text = results.table("text")
    assert text.index("perplexity") < text.index("macro_f1")  # the main metric is first
    default = fp.load(tmp_path / "out", metric="perplexity")
    assert set(default.frame()["target"]) == {15.8}  # 15 / 0.95, rounded up
    assert "perplexity 15.8: the perplexity that uniform has at the end divided by 0.95" in " ".join(
        default.table("text").split()
    )


def test_the_usual_target_of_the_first_metric_that_is_no_loss(tmp_path, loop):
    results = compare(tmp_path, loop)
    assert set(results.frame()["target"]) == {0.475}
    assert results.data()["rows"][0]["metric"] == "macro_f1"
    assert "macro_f1 0.475: 95% of the macro_f1 that uniform has at the end, rounded down" in results.table("text")


def test_a_metric_that_could_be_better_either_way_is_shown_without_target(tmp_path, loop):
    results = compare(tmp_path, loop, metric="quality", target="quality=-1")
    said = " ".join(results.notes)
    assert "quality: not known whether larger or smaller is better" in said
    assert "directions = {'quality': 'larger'}" in said
    assert "the target quality=-1 is ignored: it is not known whether larger or smaller" in said
    assert "rounds_to" not in results.frame()
    assert "quality" in results.table("text")
    declared = compare(tmp_path, loop, "Rich", metric="quality", target="quality=-0.5")
    assert set(declared.frame()["rounds_to"]) == {10.0}
    assert not any("not known whether" in note for note in declared.notes)


def test_a_report_without_the_code_knows_the_directions(tmp_path, loop):
    compare(tmp_path, loop, "Rich")
    loop.unlink()
    found = fp.load(tmp_path / "out", target="quality=-0.5")
    assert set(found.frame()["rounds_to"]) == {10.0}


def test_what_oort_takes_instead_is_said(tmp_path, loop):
    policies = ["oort", "uniform", "over-select(oort, 1.2)"]
    notes = compare(tmp_path, loop, policies=policies).notes
    said = "no client reported 'squared_loss', which it uses where it can; it took the square of the mean loss instead"
    assert [note for note in notes if "squared_loss" in note] == [f"oort: {said}", f"over-select(oort, 1.2): {said}"]
    given = compare(tmp_path, loop, "Rich", policies=policies).notes
    assert not any("squared_loss" in note for note in given)


@pytest.mark.parametrize(
    ("policy", "report", "took"),
    [
        (fp.TiFL(3), "accuracy", "minus the mean loss"),
        (fp.FedGS(3), "embedding", "only how often each client was chosen, without a graph"),
        (fp.Guard(fp.Oort(3)), "squared_loss", "the square of the mean loss"),
        (fp.Uniform(3), None, None),
    ],
)
def test_what_each_policy_takes_instead(loop, policy, report, took):
    trainer, clients = user_code.load(f"{loop}:Plain")(()), fp.Clients(np.ones(9))
    record = next(fp.Run(policy, fp.World(clients), trainer=trainer).rounds(1))
    assert record.lacking == (() if report is None else ((report, took),))
    assert next(fp.Run(policy, fp.World(clients)).rounds(1)).lacking == ()  # nobody trains, nobody reports


def test_a_report_that_is_needed_and_not_given_is_an_error(tmp_path, loop):
    with pytest.raises(
        fp.FedpickError, match=r"DivFL needs the report 'sketch_32', but the trainer gave none; return it"
    ):
        compare(tmp_path, loop, policies=["divfl"])


def test_bytes_are_those_of_the_models_own_arrays(tmp_path, loop):
    size = (20 * 30 * 4 + 75 * 8) / 1e6
    frame = compare(tmp_path, loop).frame()
    assert frame["gigabytes"].tolist() == pytest.approx([20 * 5 * 2 * size / 1e3] * 2)
    rich = compare(tmp_path, loop, "Rich").frame()
    assert rich["gigabytes"].tolist() == pytest.approx([20 * 5 * 2 * 2.5 / 1e3] * 2)


def test_a_size_that_the_user_gives_is_kept(loop):
    train = {"trainer": f"{loop}:Plain"}
    given = Config(
        "uniform", 5, 3, world={"name": "ideal", "model_megabytes": 7.0}, data={"name": "digits"}, train=train
    )
    assert given.build().world.model_megabytes == 7.0
    for settings in (train, {}):  # of fedpick's own trainer, too
        plan = fp.experiment.Experiment(
            "uniform", world=fp.World(model_megabytes=3.0), cohort_size=5, data="digits", train=settings, rounds=3
        )
        assert plan.configs()[0].build().world.model_megabytes == 3.0


def test_scores_of_single_clients_give_the_worst_tenth(tmp_path, loop):
    plain = compare(tmp_path, loop)
    assert any(note.startswith("no worst tenth of clients: the trainer gives no scores") for note in plain.notes)
    rich = compare(tmp_path, loop, "Rich")
    known = np.delete(np.arange(30) / 10, 3)
    assert rich.frame()["worst_decile"].tolist() == pytest.approx([known[:2].mean()] * 2)
    assert rich.frame()["spread"].tolist() == pytest.approx([known.std()] * 2)
    assert "worst tenth of clients" in rich.table("markdown")
    assert not any("worst tenth" in note for note in rich.notes)
    kept = fp.store.read_census(rich.runs[0].folder)["accuracy"]
    assert np.isnan(kept[3])


def test_scores_of_clients_are_one_each():
    from fedpick.simulate.round import over_clients

    assert over_clients(np.array([np.nan])) == {}
    with pytest.raises(fp.ContractError, match=r"client_scores returned an array of shape \(2, 2\)"):
        over_clients(np.ones((2, 2)))


@pytest.mark.parametrize(
    ("name", "metric", "note"),
    [
        ("Lossy", "train_loss", None),
        ("Silent", None, "the trainer's evaluate gave none in 20 rounds; return some from it"),
    ],
)
def test_notes_on_evaluation_are_true(tmp_path, loop, name, metric, note):
    results = compare(tmp_path, loop, name)
    assert results.data()["rows"][0]["metric"] == metric
    assert not any("evaluate_every" in each or "test examples" in each for each in results.notes)
    assert note is None or any(note in each for each in results.notes)


def test_a_direction_that_is_none_is_refused_before_the_first_round(tmp_path, loop):
    with pytest.raises(fp.ConfigError, match="directions has 'quality': 'up', but must be 'larger' or 'smaller'"):
        compare(tmp_path, loop, "Wrong")


def test_a_metric_that_nobody_gave_is_said(tmp_path, loop):
    results = compare(tmp_path, loop, metric="f2")
    assert results.data()["rows"][0]["metric"] == "macro_f1"
    assert any("the metric f2 is not the main one" in note and "they have test_loss" in note for note in results.notes)


def test_a_target_of_a_metric_that_nobody_gave_is_said(tmp_path, loop):
    notes = compare(tmp_path, loop, target="f2=0.5").notes
    assert any("the target f2=0.5 is ignored: these runs do not all have f2; they have test_loss" in n for n in notes)
    notes = fp.load(tmp_path / "out", target="macro_f1=60").notes
    assert any("the target macro_f1 60 is above 1, but no value is; write 0.6 for 60%" in note for note in notes)


def test_on_the_command_line(tmp_path, loop, monkeypatch):
    monkeypatch.chdir(tmp_path)
    common = ["--data", "digits", "--world", "ideal", "-k", "30", "-m", "5", "-t", "20", "-s", "2", "-o", "out"]
    given = [
        "compare",
        "-p",
        "uniform",
        "-p",
        "oort",
        "--trainer",
        "loop.py:Plain",
        *common,
        "--target",
        "macro_f1=0.3",
    ]
    result = CliRunner().invoke(app, [*given, "--label", "oort=Ours", "--executor", "serial"])
    assert result.exit_code == 0, result.output
    said = " ".join(result.output.split())
    assert "macro_f1" in said
    assert "Ours: no client reported 'squared_loss'" in said
    found = json.loads((tmp_path / "out" / "results.json").read_text())
    assert [row["policy"] for row in found["rows"]] == ["uniform", "Ours"]
    assert [row["scores"]["rounds_to"]["mean"] for row in found["rows"]] == [9.0, 9.0]
    later = CliRunner().invoke(app, ["report", "out", "--target", "perplexity=20", "-f", "csv"])
    assert "Ours,ideal" in later.output
    assert "20.0,perplexity" in later.output
    other = CliRunner().invoke(app, ["report", "out", "--label", "oort=Theirs", "--reference", "Theirs"])
    assert "differences are to Theirs" in " ".join(other.output.split())
