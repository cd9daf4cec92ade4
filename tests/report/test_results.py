"""Results over seeds: read once, paired by seed, honest where little is known."""

import json
import math
import re
import shutil
from dataclasses import dataclass, replace

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from made_runs import WORLD, make, record, study
from scipy import stats

import fedpick as fp
from fedpick.experiment import Config
from fedpick.experiment.executors import execute
from fedpick.report import tables
from fedpick.report.intervals import Interval
from fedpick.report.labels import short_version
from fedpick.report.results import Results
from fedpick.report.runs import find_runs, read_info
from fedpick.store import Tables, parquet, read_manifest
from fedpick.store import tables as store_tables


def row(results, policy, **where):
    found = [
        each
        for each in results.data()["rows"]
        if each["policy"] == policy and all(each[key] == value for key, value in where.items())
    ]
    assert len(found) == 1, [each["policy"] for each in results.data()["rows"]]
    return found[0]


def accurate(last):
    """Curves that rise to what `last` says of a policy and a seed."""
    return lambda policy, seed: [None, last(policy, seed) / 3, None, last(policy, seed) / 2, None, last(policy, seed)]


@pytest.fixture
def opened(monkeypatch):
    """Every Parquet file that is opened, with the columns that are read of it."""
    seen = []

    @dataclass(frozen=True)
    class Counted(parquet.TableFile):
        def table(self, columns=None):
            seen[-1][1] = columns
            return super().table(columns)

    def read(path):
        seen.append([str(path), None])
        found = parquet.read_sealed(path)
        return Counted(found.path, found.file, found.label)

    monkeypatch.setattr(store_tables, "read_sealed", read)
    return seen


def test_each_file_is_read_once_and_only_the_columns_needed(tmp_path, opened):
    root = study(tmp_path, seeds=3)
    opened.clear()
    results = fp.load(root)
    assert opened == []  # manifests alone
    for _ in range(2):
        results.table()
        for format in ("text", "markdown", "csv", "json", "latex"):
            results.table(format)
        results.data()
        results.frame()
        results.rounds()
        results.plot()
        results._repr_html_()
        assert results.notes
    assert len(opened) == len({path for path, _ in opened}) == 2 * 9
    for path, columns in opened:
        if path.endswith("selections.parquet"):
            assert columns == ["round", "client", "status", "duration"]


@given(st.lists(st.tuples(*[st.floats(0.1, 1.0)] * 3), min_size=2, max_size=6))
@settings(max_examples=6)
def test_scores_and_differences_are_those_of_a_plain_twin(tmp_path_factory, ends):
    root = tmp_path_factory.mktemp("runs")
    policies = ["a", "b", "c"]
    study(root, policies, len(ends), accurate(lambda policy, seed: ends[seed][policies.index(policy)]))
    results = fp.load(root)
    for i, policy in enumerate(policies):
        mine = [end[i] for end in ends]
        scored = row(results, policy)["scores"]["accuracy"]
        assert scored["values"] == mine
        assert scored["mean"] == pytest.approx(np.mean(mine))
        assert scored["half"] == pytest.approx(stats.t.ppf(0.975, len(mine) - 1) * stats.sem(mine), abs=1e-12)
        if policy == "a":
            assert "difference" not in scored
            continue
        gaps = [end[i] - end[0] for end in ends]
        half = stats.t.ppf(0.975, len(gaps) - 1) * stats.sem(gaps)
        assert scored["difference"]["to"] == "a"
        assert scored["difference"]["mean"] == pytest.approx(np.mean(gaps), abs=1e-12)
        assert scored["difference"]["half"] == pytest.approx(half, abs=1e-9)
        assert scored["difference"]["low"] == pytest.approx(np.mean(gaps) - half, abs=1e-9)


def test_scores_are_those_of_the_run_itself(tmp_path):
    configs = [Config("uniform", cohort_size=3, rounds=20, seed=seed, world=WORLD) for seed in range(2)]
    runs = [execute(config, tmp_path / str(config.seed)) for config in configs]
    records = list(configs[1].build().rounds(20))
    chosen = np.bincount(np.concatenate([record.ids for record in records]), minlength=12)
    scored = Results(runs).frame().set_index("seed").loc[1]
    assert scored["returned"] == sum((record.status == fp.Status.DONE).sum() for record in records)
    assert scored["jain"] == pytest.approx(chosen.sum() ** 2 / (12 * (chosen**2).sum()))
    assert scored["never"] == np.mean(chosen == 0)
    assert scored["hours"] == records[-1].clock / 3600
    assert scored["messages"] == sum(record.messages for record in records)
    assert scored["num_clients"] == 12


# --- Who is compared with whom -----------------------------------------------------------------------------------


def test_differences_are_within_one_world_cohort_size_data_and_training(tmp_path):
    places = [
        {"world": WORLD, "cohort_size": 4},
        {"world": {"name": "ideal", "num_clients": 12}, "cohort_size": 4},
        {"world": WORLD, "cohort_size": 2},
        {"world": WORLD, "cohort_size": 4, "data": {"name": "digits"}, "train": {}},
        {"world": WORLD, "cohort_size": 4, "data": {"name": "digits"}, "train": {"lr": 0.5}},
    ]
    for i, place in enumerate(places):
        study(tmp_path / str(i), ["uniform", "e3cs"], 3, **place)
    results = Results([run for i in range(5) for run in find_runs(tmp_path / str(i))], reference="uniform")
    assert len(results.data()["rows"]) == 10
    for i in range(5):
        alone = fp.load(tmp_path / str(i), reference="uniform")
        mine = alone.data()["rows"]
        assert [each["policy"] for each in mine] == ["uniform", "e3cs"]
        together = results.data()["rows"][2 * i : 2 * i + 2]
        assert [each["scores"] for each in together] == [each["scores"] for each in mine]
    text = results.table("markdown")
    for heading in ("world", "clients a round", "data", "training"):
        assert f"| {heading} |" in text
    assert results.plot().axes[0].get_title().startswith("volatile(num_clients=12), 4 clients a round")
    assert "| policy | models returned |" in fp.load(tmp_path / "0").table("markdown")  # nothing varies there


def test_seeds_that_differ_are_paired_over_those_in_common_and_it_is_said(tmp_path):
    for seed in range(6):
        make(tmp_path / f"u{seed}", "uniform", seed)
    for seed in (4, 5, 7, 9):
        make(tmp_path / f"e{seed}", "e3cs", seed)
    results = fp.load(tmp_path, reference="uniform")
    gap = row(results, "e3cs")["scores"]["returned"]["difference"]
    scored = results.frame().set_index(["policy", "seed"])["returned"]
    plain = [scored["e3cs", seed] - scored["uniform", seed] for seed in (4, 5)]
    assert gap["n"] == 2
    assert gap["mean"] == pytest.approx(np.mean(plain))
    assert "e3cs has seeds 4, 5, 7, 9 and uniform 0 to 5; differences use the 2 in common" in results.notes
    make(tmp_path / "f", "fedgs", 11)
    alone = fp.load(tmp_path, reference="uniform")
    assert "difference" not in row(alone, "fedgs")["scores"]["returned"]
    assert any("fedgs has seeds 11 and uniform 0 to 5; no difference is computed" in note for note in alone.notes)


def test_runs_of_other_lengths_are_compared_over_the_common_rounds(tmp_path):
    for seed in range(2):
        make(tmp_path / "long" / f"u{seed}", "uniform", seed, rounds=9)
        make(tmp_path / "long" / f"e{seed}", "e3cs", seed, rounds=5)
        make(tmp_path / "short" / f"u{seed}", "uniform", seed, rounds=5)  # the same first rounds
        make(tmp_path / "short" / f"e{seed}", "e3cs", seed, rounds=5)
    long, short = (fp.load(tmp_path / name, reference="uniform") for name in ("long", "short"))
    for policy in ("uniform", "e3cs"):
        assert row(long, policy)["scores"] == row(short, policy)["scores"]
    note = "the runs have 5 to 9 rounds; all scores are of the first 5 rounds"
    assert note in long.notes
    assert note not in short.notes
    assert "the first 5 of 5 to 9 rounds" in long.table("text")
    assert len(long.rounds()) == 2 * (9 + 5)  # a frame of rounds has them all
    assert long.plot().axes[0].lines[0].get_xdata()[-1] == 5


def test_time_is_not_shown_where_nothing_takes_time(tmp_path):
    for policy in ("uniform", "e3cs"):
        execute(Config(policy, 5, 4, world={"name": "ideal", "num_clients": 20}), tmp_path / f"{policy}-ideal")
        execute(Config(policy, 5, 4, world={"name": "volatile", "num_clients": 20}), tmp_path / policy)
    sheet = fp.load(tmp_path)._sheet
    at = next(i for i, heading in enumerate(sheet.heads) if "simulated" in heading)
    for line in sheet.rows:
        assert (line.cells[at].main == "–") == ("ideal" in line.names[1])


@pytest.mark.parametrize("every", [1, 2, 3])
def test_the_legend_says_how_often_models_are_evaluated(tmp_path, every):
    curve = [None if t % every else t / 10 for t in range(1, 7)]
    study(tmp_path, policies=("uniform",), seeds=2, curve=lambda policy, seed: curve)
    note = f"models are evaluated every {every} rounds: rounds to the target are multiples of {every}"
    assert (note in fp.load(tmp_path).table("markdown")) == (every > 1)


def test_runs_with_fewer_rounds_than_planned_are_said_to_be_incomplete(tmp_path):
    make(tmp_path / "u", "uniform", rounds=9)
    assert not any("not complete" in note for note in fp.load(tmp_path).notes)
    cut = make(tmp_path / "e", "e3cs", rounds=5, finish=False, planned=200)
    how = "; if stopped, fedpick resume FOLDER continues"
    assert f"1 of 2 runs are not complete: at round 5 of 200{how}" in fp.load(tmp_path).notes
    assert f"the run is not complete: at round 5 of 200{how}" in fp.load(cut).table("text").replace("\n", " ")
    assert not any("not complete" in note for note in Results([cut], rounds=5).notes)


def test_a_view_of_fewer_rounds_is_that_of_shorter_runs(tmp_path):
    for seed in range(2):
        make(tmp_path / "long" / f"u{seed}", "uniform", seed, rounds=9)
        make(tmp_path / "short" / f"u{seed}", "uniform", seed, rounds=5)
    long, short = (find_runs(tmp_path / name) for name in ("long", "short"))
    for format in ("text", "csv", "json", "latex", "markdown"):
        assert Results(long, rounds=5).table(format) == Results(short).table(format)


def test_the_reference_comes_first_and_must_be_there(tmp_path):
    study(tmp_path, ["a-policy", "uniform", "E3CS(quota=0.5)"], 2)
    assert fp.load(tmp_path).reference == "a-policy"
    results = fp.load(tmp_path, reference="e3cs(quota=0.5)")  # however it is written
    assert results.data()["rows"][0]["policy"] == results.reference == "E3CS(quota=0.5)"
    with pytest.raises(fp.UnknownNameError, match="did you mean 'uniform'"):
        fp.load(tmp_path, reference="unifrom")


def test_a_place_without_the_reference_has_no_differences_and_says_so(tmp_path):
    study(tmp_path / "a", ["uniform", "e3cs"], 2)
    study(tmp_path / "b", ["fedgs", "e3cs"], 2, cohort_size=2)
    results = fp.load(tmp_path / "a", tmp_path / "b", reference="uniform")
    assert "difference" in row(results, "e3cs", cohort_size=4)["scores"]["jain"]
    assert "difference" not in row(results, "e3cs", cohort_size=2)["scores"]["jain"]
    assert any("the reference uniform has no rounds in: volatile(num_clients=12), 2" in note for note in results.notes)


def test_the_order_of_files_changes_nothing(tmp_path):
    runs = find_runs(study(tmp_path, seeds=5))
    first = Results(runs, reference="uniform")
    order = [each.policy for each in runs]
    again = Results(sorted(runs, key=lambda run: (order.index(run.policy), -run.seed)), reference="uniform")
    for format in ("text", "csv", "json", "latex", "markdown"):
        assert first.table(format) == again.table(format)


# --- The same run twice ------------------------------------------------------------------------------------------


def test_a_run_that_is_there_twice_is_shown_once(tmp_path):
    run = make(tmp_path / "a" / "run")
    assert len(Results([run, run, tmp_path / "a" / ".." / "a" / "run"]).runs) == 1
    shutil.copytree(run, tmp_path / "b" / "run")
    results = fp.load(tmp_path / "a", tmp_path / "b")
    assert len(results.frame()) == 1
    assert "1 run is there twice, with the same configuration and seed; shown once" in results.notes
    make(tmp_path / "c" / "run", rounds=9)
    assert len(fp.load(tmp_path / "a", tmp_path / "c").rounds()) == 9  # the longer one


def test_versions_of_a_policys_code_are_groups_that_are_not_compared_unasked(tmp_path):
    texts = {"one": "eps.py 1111, net.py 22", "two": "eps.py 1111, net.py 33"}
    for seed in range(2):
        make(tmp_path / f"uniform-{seed}", "uniform", seed)
        for name, text in texts.items():  # a changed file: the label is the same, the run is not
            make(tmp_path / f"{name}-{seed}", "eps.py:Eps", seed, code={"eps.py:Eps": text})
    named = [f"eps.py:Eps (code {short_version(text)})" for text in texts.values()]
    results = fp.load(tmp_path, reference="uniform")
    rows = results.data()["rows"]
    assert [each["policy"] for each in rows] == ["uniform", *named]
    assert all(each["seeds"] == [0, 1] for each in rows)
    assert all("difference" in each["scores"]["returned"] for each in rows[1:])  # each with uniform
    (note,) = [each for each in results.notes if "versions of the code" in each]
    assert "eps.py:Eps: these runs are of 2 versions of the code" in note
    assert "net.py has changed" in note
    unasked = fp.load(tmp_path, reference="eps.py:Eps")
    assert not any("difference" in each["scores"]["returned"] for each in unasked.data()["rows"])
    assert any("several versions of its code, so no differences are computed" in note for note in unasked.notes)
    asked = fp.load(tmp_path, reference=named[1]).data()["rows"]
    assert asked[0]["policy"] == named[1]
    assert {each["scores"]["returned"]["difference"]["to"] for each in asked[1:]} == {named[1]}


def test_runs_of_an_old_trainer_are_not_compared_with_those_of_the_new_one(tmp_path):
    texts = {"uniform": "loop.py 11, net.py 22", "oort": "loop.py 11, net.py 33"}
    for policy, text in texts.items():
        for seed in range(3):
            code = {"loop.py:Trainer": text}
            make(tmp_path / f"{policy}-{seed}", policy, seed, code=code, train={"trainer": "loop.py:Trainer"})
    results = fp.load(tmp_path, reference="uniform")
    rows = results.data()["rows"]
    assert {each["code"] for each in rows} == {
        f"loop.py:Trainer (code {short_version(text)})" for text in texts.values()
    }
    assert not any("difference" in each["scores"]["returned"] for each in rows)
    assert f"loop.py:Trainer (code {short_version(texts['oort'])})" in " ".join(results.table("text").split())
    assert any("the reference uniform has no rounds in" in note for note in results.notes)
    alone = fp.load(tmp_path / "uniform-0", tmp_path / "uniform-1")
    assert {each["code"] for each in alone.data()["rows"]} == {""}
    assert not any("versions" in note for note in alone.notes)


def test_deployments_of_the_same_policy_are_told_apart_by_their_folders(tmp_path):
    served = {"engine": "flower", "base": "FedAvg"}
    for name in ("monday", "tuesday"):
        make(tmp_path / "real" / name, "E3CS", **served)
    rows = fp.load(tmp_path / "real" / "monday", tmp_path / "real" / "tuesday").data()["rows"]
    assert [each["policy"] for each in rows] == [f"E3CS in {tmp_path}/real/{name}" for name in ("monday", "tuesday")]


# --- Targets -----------------------------------------------------------------------------------------------------


def test_the_target_is_a_little_less_than_what_the_reference_reaches(tmp_path):
    root = study(tmp_path, ["uniform", "e3cs"], 5, accurate(lambda policy, seed: 0.8 if policy == "uniform" else 0.9))
    results = fp.load(root, reference="uniform")
    assert results.target == 0.76  # 95% of 0.8
    assert "rounds to 76%" in " ".join(results.table("markdown").split())
    assert "76%: 95% of the test accuracy that uniform has at the end" in " ".join(results.table("text").split())
    assert fp.load(root, reference="e3cs").target == 0.85  # of 0.9, down from 0.855
    given = fp.load(root, reference="uniform", target=0.4)
    assert given.target == 0.4
    assert "95% of the test accuracy" not in given.table("text")
    scored = row(given, "uniform")["scores"]
    assert scored["rounds_to"]["values"] == [4.0] * 5  # 0.8/2 in round 4
    assert scored["hours_to"]["mean"] == pytest.approx(4 * 60 / 3600)
    assert scored["gigabytes_to"]["mean"] == pytest.approx(4 * 400e6 / 1e9)


def test_seeds_that_did_not_get_there_are_counted_not_averaged(tmp_path):
    root = study(
        tmp_path,
        ["uniform", "e3cs", "never"],
        5,
        accurate(lambda p, s: {"uniform": 0.8, "e3cs": 0.5 + 0.1 * s}.get(p, 0.2)),
    )
    results = fp.load(root, reference="uniform", target=0.65)
    scored = row(results, "e3cs")["scores"]["rounds_to"]
    assert (scored["reached"], scored["n"], scored["mean"]) == (3, 3, 6.0)
    assert scored["values"] == [None, None, 6.0, 6.0, 6.0]
    assert scored["half"] is scored["low"] is None
    assert "difference" not in scored
    assert row(results, "never")["scores"]["rounds_to"]["mean"] is None
    text = results.table("text")
    assert "6 (3 of 5)" in text
    assert "0 of 5" in text
    assert "number of seeds that reached the target" in text
    for format in ("text", "markdown", "latex", "json"):
        assert "nan" not in results.table(format).lower()
    unsure = fp.load(root, reference="e3cs", target=0.65)  # nor is there a difference to a reference that did not
    assert "difference" not in row(unsure, "uniform")["scores"]["rounds_to"]
    assert "difference" in row(unsure, "uniform")["scores"]["accuracy"]


def test_each_world_and_data_has_a_target_of_its_own(tmp_path):
    study(tmp_path / "a", ["uniform"], 2, accurate(lambda p, s: 0.8))
    study(tmp_path / "b", ["uniform"], 2, accurate(lambda p, s: 0.4), cohort_size=2)
    results = fp.load(tmp_path / "a", tmp_path / "b")
    assert results.target is None
    assert [each["target"] for each in results.data()["rows"]] == [0.76, 0.38]
    assert "| target |" in results.table("markdown")


@pytest.mark.parametrize("wrong", [0, -1, 1.5, 85, math.nan, True, "85"])
def test_a_target_is_an_accuracy(tmp_path, wrong):
    make(tmp_path / "run")
    with pytest.raises(fp.SettingError, match=r"must be a test accuracy in \(0, 1\]; write 0.85 for 85%"):
        fp.load(tmp_path, target=wrong)


def test_a_target_without_accuracies_is_said_to_be_of_no_use(tmp_path):
    results = fp.load(study(tmp_path, seeds=2), target=0.5)
    assert any("the target 0.5 is ignored" in note for note in results.notes)
    assert results.target is None or results.target == 0.5


# --- How much can be trusted -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("seeds", "says"), [(1, "one seed gives no interval"), (3, "only 3 seeds"), (5, None)])
def test_few_seeds_are_warned_of(tmp_path, seeds, says):
    results = fp.load(study(tmp_path, seeds=seeds))
    warned = [note for note in results.notes if "seed" in note]
    assert len(warned) == (says is not None)
    assert all(says in note for note in warned)
    text = results.table("text")
    assert ("±" in text) == (seeds > 1)
    assert ("paired by seed" in " ".join(text.split())) == (seeds > 1)
    if seeds == 1:
        assert row(results, "uniform")["scores"]["returned"]["half"] is None
        assert "difference" not in row(results, "fedcs")["scores"]["returned"]


def test_no_interval_of_width_0_is_ever_marked(tmp_path):
    root = study(tmp_path, ["uniform", "e3cs"], 5, accurate(lambda policy, seed: 0.5 if policy == "uniform" else 0.75))
    results = fp.load(root, reference="uniform", target=0.5)
    gap = row(results, "e3cs")["scores"]["accuracy"]["difference"]
    assert (gap["mean"], gap["half"], gap["clear"]) == (0.25, 0.0, False)
    text = results.table("markdown")
    assert "0.750 (+0.250)" in text
    assert "±0.000" not in text
    assert "**+0.250" not in text
    assert "all seeds give the same number" in text


def test_a_small_interval_is_shown_with_more_digits_not_as_0(tmp_path):
    ends = [0.5, 0.50001, 0.50002, 0.50001, 0.5]
    root = study(tmp_path, ["uniform"], 5, accurate(lambda policy, seed: ends[seed]))
    assert "0.50001 ±0.00001" in fp.load(root).table("text")


def test_a_difference_that_is_marked_is_seen_to_be_larger_than_its_interval(tmp_path):
    gaps = [0.0200, 0.0207, 0.0202, 0.0003, 0.0204]  # 0.0163 ± 0.0111: clear; with one digit less 0.02 ± 0.01
    near = [0.0140, 0.0148, 0.0141, 0.0003, 0.0144]
    ends = {"uniform": [0.0] * 5, "a": gaps, "b": near}
    root = study(tmp_path, ["uniform", "a", "b"], 5, accurate(lambda p, s: 0.5 + ends[p][s]))
    results = fp.load(root, reference="uniform")
    for policy in ("a", "b"):
        assert row(results, policy)["scores"]["accuracy"]["difference"]["clear"]
    marked = re.findall(r"\*\*([+-])([\d.]+) ±([\d.]+)\*\*", results.table("markdown"))
    assert marked
    assert all(float(mean) > float(half) for _, mean, half in marked)


@given(st.floats(-2, 2), st.floats(1e-9, 2), st.integers(0, 3))
@example(0.0, 0.5, 0)  # halves are rounded to even numbers
def test_what_is_shown_of_a_difference_agrees_with_its_mark(mean, half, digits):
    gap = Interval(mean, half, 5)
    shown = tables.number(mean, half, digits, "+", gap.clear)
    if not gap.has_width:
        return
    left, right = shown.split(" ±")
    assert float(right) > 0
    assert not left.startswith("-0.0") or float(left) < 0  # no minus before a 0
    if gap.clear and half > 1e-6:
        assert abs(float(left)) > float(right) or abs(abs(mean) - half) < 1e-12
    if not gap.clear:
        assert abs(float(left)) <= float(right)


def test_updates_that_were_not_finite_are_told(tmp_path):
    results = Results([make(tmp_path / "run", rounds=20, failed_seconds=3.0)])
    assert any("updates were not finite (NaN or infinity) and count as failed" in note for note in results.notes)


def test_a_title_in_words_stands_in_tables_and_on_the_page(tmp_path):
    results = fp.load(study(tmp_path, seeds=2))
    assert "volatile" in results.table("text")
    assert results.titled("Clients come & go", "Made by hand.") is results
    for text in (results.table("text"), results.table("markdown")):
        assert text.startswith("Clients come & go: 6 rounds, 4 of 12 clients a round, 2 seeds")
        assert "Made by hand." in text
    page = results.page()
    assert "<title>fedpick: Clients come &amp; go: 6 rounds" in page
    assert "<bdi>Clients come &amp; go: 6 rounds" in page  # the table's caption
    assert "Made by hand." in page
    assert results.plot().get_suptitle().startswith("Clients come & go: ")


def test_oracles_are_marked_in_table_and_figure(tmp_path):
    results = fp.load(study(tmp_path, seeds=2))
    for format in ("text", "markdown", "latex"):
        assert "fedcs (oracle)" in results.table(format)
        assert "uniform (oracle)" not in results.table(format)
    assert row(results, "fedcs")["oracle"] is True
    said = [text.get_text() for text in results.plot().legends[0].get_texts()]
    assert "fedcs (oracle)" in said
    assert "uniform" in said


def test_a_run_without_rounds_is_left_out_and_it_is_said(tmp_path):
    study(tmp_path, ["uniform", "e3cs"], 2)
    waiting = tmp_path / "runs" / "new"
    waiting.mkdir()
    config = {"policy": "fedgs", "cohort_size": 4, "rounds": 6, "seed": 0, "world": WORLD}
    (waiting / "manifest.json").write_text(json.dumps({"config": config}))
    results = fp.load(tmp_path)
    assert "4 of 5 runs have rounds so far; left out: fedgs seed 0" in results.notes
    assert "fedgs" not in results.table("csv")
    assert fp.load(tmp_path, reference="fedgs").table("text")  # though nothing can be compared with it yet


def test_a_run_that_goes_on_shows_what_it_has(tmp_path):
    make(tmp_path / "run", rounds=4, finish=False)
    assert len(fp.load(tmp_path).rounds()) == 4


def test_nothing_else_than_numbers_that_all_have(tmp_path):
    """A deployment beside a simulated run: real time, no world, accuracy in one of them alone."""
    make(tmp_path / "sim", "e3cs", 0, accuracy=[0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
    make(tmp_path / "real", "E3CS(quota=0.5)", 0, engine="flower", base="FedAvg")
    both = fp.load(tmp_path / "sim", tmp_path / "real")
    text = both.table("markdown")
    assert "test accuracy" not in text
    assert "simulated" not in text
    assert "| minutes |" in text
    assert "real clients (flower)" in text
    assert [each["world"] for each in both.data()["rows"]] == ["volatile(num_clients=12)", None]
    assert "difference" not in row(both, "E3CS(quota=0.5)")["scores"]["jain"]
    shutil.rmtree(tmp_path / "real")
    make(
        tmp_path / "real",
        "E3CS(quota=0.5)",
        0,
        engine="flower",
        base="FedAvg",
        accuracy=[None, None, 0.4, 0.5, 0.6, 0.7],
    )
    both = fp.load(tmp_path / "sim", tmp_path / "real")
    assert "test accuracy" in both.table("markdown")
    assert len(both.plot().axes) == 6
    assert both.frame()["accuracy"].tolist() == [0.6, 0.7]


def test_real_clients_are_not_paired(tmp_path):
    """At one seed two deployments do not meet the same world."""
    for seed in range(3):
        for policy in ("Uniform", "E3CS"):
            make(tmp_path / f"{policy}{seed}", policy, seed, engine="flower", base="FedAvg")
    for each in fp.load(tmp_path).data()["rows"]:
        assert all("difference" not in score for score in each["scores"].values())


def test_clients_in_trouble_have_their_names(tmp_path):
    run = make(tmp_path / "run", "E3CS", rounds=20, engine="flower", base="FedAvg")
    with fp.store.Tables(run) as tables:
        tables.name_clients([f"node\x1b[2J{k}" for k in range(14)], np.ones(14))
    results = Results([run])
    assert "node?[2J" in str(results.trouble())
    assert results.frame()["num_clients"].tolist() == [14]  # two were never chosen
    assert results.frame()["never"].tolist() == [2 / 14]
    assert fp.load(study(tmp_path / "many", seeds=2)).trouble() is None


# --- Damage ------------------------------------------------------------------------------------------------------


def test_a_damaged_table_is_one_line(tmp_path):
    for name in ("rounds", "selections"):
        run = make(tmp_path / name)
        (run / f"{name}.parquet").write_bytes(b"PAR1 nothing more")
        with pytest.raises(fp.StoreError, match=rf"{name}\.parquet: cannot be read"):
            fp.load(run).table()


def test_a_table_of_something_else_is_one_line(tmp_path):
    run = make(tmp_path / "run")
    table, label = pq.read_table(run / "selections.parquet"), parquet.read_sealed(run / "selections.parquet").label
    parquet.write_sealed(run / "selections.parquet", table.drop_columns(["status"]), label)
    with pytest.raises(fp.StoreError, match="has no column 'status', so it is not a table of selections"):
        fp.load(run).table()
    parquet.write_sealed(run / "selections.parquet", table.set_column(1, "client", [["x"] * len(table)]), label)
    with pytest.raises(fp.StoreError, match="its tables are not a run's"):
        fp.load(run).table()
    other = make(tmp_path / "other")
    table, label = pq.read_table(other / "rounds.parquet"), parquet.read_sealed(other / "rounds.parquet").label
    parquet.write_sealed(other / "rounds.parquet", table.drop_columns(["done"]), label)
    with pytest.raises(fp.StoreError, match="its tables are not a run's"):
        fp.load(other).table()
    empty = make(tmp_path / "empty")
    parquet.write_sealed(empty / "rounds.parquet", pq.read_table(empty / "rounds.parquet").slice(0, 0), label)
    with pytest.raises(fp.StoreError, match=r"has no rounds in its rounds\.parquet"):
        fp.load(empty).table()


def test_no_runs_at_all_are_refused():
    with pytest.raises(fp.StoreError, match="there are no runs to show"):
        Results([])


def test_results_say_what_they_are(tmp_path):
    results = Results([read_info(run.folder) for run in find_runs(study(tmp_path, seeds=2))])
    assert repr(results) == "Results(6 runs: 3 policies, 2 seeds)"
    assert str(results) + "\n" == results.table("text") == str(results.table()) + "\n"


def test_what_was_sent_has_a_unit_that_fits(tmp_path):
    """A table with "GB sent 0" says nothing: small amounts are in megabytes, large ones in terabytes."""
    results = fp.load(study(tmp_path, policies=("uniform", "e3cs"), seeds=2))
    assert "GB sent" in results._sheet.heads  # 2.4
    rows = results._rows
    for factor, unit in ((1e-4, "MB sent"), (1e3, "TB sent")):
        small = []
        for row in rows:
            each = row.scores["gigabytes"]
            over = Interval(each.over.mean * factor, each.over.half * factor, each.over.n)
            values = [value * factor for value in each.values]
            small.append(replace(row, scores={**row.scores, "gigabytes": replace(each, values=values, over=over)}))
        sheet = tables.make_sheet(small, "uniform", [])
        assert unit in sheet.heads
        at = sheet.heads.index(unit)
        assert sheet.rows[0].cells[at].main == {"MB sent": "0.2", "TB sent": "2.4"}[unit]
    assert results.data()["rows"][0]["scores"]["gigabytes"]["mean"] == pytest.approx(2.4)


def test_times_have_a_unit_that_fits(tmp_path):
    """A table with "hours 0.00" says nothing; the data stays in hours."""
    results = fp.load(study(tmp_path, policies=("uniform", "e3cs"), seeds=2))  # six rounds of a minute
    for factor, head, text in ((1e-2, "seconds", "3.6"), (1.0, "minutes", "6.0"), (100.0, "hours", "10.00")):
        rows = []
        for row in results._rows:
            each = row.scores["hours"]
            over = Interval(each.over.mean * factor, each.over.half * factor, each.over.n)
            values = [value * factor for value in each.values]
            rows.append(replace(row, scores={**row.scores, "hours": replace(each, values=values, over=over)}))
        sheet = tables.make_sheet(rows, "uniform", [])
        assert sheet.rows[0].cells[sheet.heads.index(f"simulated {head}")].main == text
    assert results.data()["rows"][0]["scores"]["hours"]["mean"] == pytest.approx(0.1)


def test_a_curve_of_which_the_model_began_again_is_noted_and_gives_no_target(tmp_path):
    """A deployment restarted before round 4 with a fresh model: 0.9, then from 0.1 again."""
    curve = [0.7, 0.8, 0.9, 0.1, 0.3, 0.5]
    make(tmp_path / "whole", "E3CS", accuracy=curve, engine="flower", base="FedAvg")
    assert fp.load(tmp_path / "whole").data()["rows"][0]["target"] is not None
    with Tables(tmp_path / "again", read_manifest(tmp_path / "whole")["config"]) as tables:
        rng = fp.rng.stream(0, 4, "made")
        rounds = [record(t + 1, rng, 12, 4, each) for t, each in enumerate(curve)]
        rounds[3] = replace(rounds[3], metrics={**rounds[3].metrics, "fresh_model": 1.0})
        tables.write(rounds, ["accuracy", "test_loss", "fresh_model"])
        tables.join(6)
    found = fp.load(tmp_path / "again")
    assert found.data()["rows"][0]["target"] is None
    assert not any(name.endswith("_to") for name in found.data()["rows"][0]["scores"])
    note = (
        "the model began again before round 4, because the server was restarted without the model of the round before"
    )
    assert any(note in each for each in found.data()["notes"])
    given = fp.load(tmp_path / "again", target=0.8)
    assert given.data()["rows"][0]["scores"]["rounds_to"]["mean"] == 2.0  # asked for; the note is there all the same
    assert any(note in each for each in given.data()["notes"])
