"""Registry, statistics, saving."""

import json

import numpy as np
import pytest
from scipy import stats

from fedpick import studies
from fedpick.errors import StoreError, UnknownNameError
from fedpick.studies._stats import interval, order, rounded, show, steps, verdict
from fedpick.studies._study import Finding, Reproduction

# A few rounds of each study: small enough for a test, large enough to go through every line of it.
TINY = {
    "e3cs/fig3": {"rounds": 40, "seeds": 2},
    "e3cs/fig4": {"rounds": 40, "seeds": 2},
    "rbcs-f/fig2": {"rounds": 30, "longer": 40, "seeds": 2},
    "rbcs-f/fig3": {"rounds": 30, "seeds": 2},
    "rbcs-f/fig4": {"rounds": 30, "seeds": 2},
    "bsfl/fig4": {"steps": 200, "batch": 3, "seeds": 2},
    "bsfl/regret": {"rounds": 60, "seeds": 2},
    "fedgs/fig4-counts": {"rounds": 12, "seeds": 2},
    "power-of-choice/quadratic": {"rounds": 60, "seeds": 2, "draws": 50, "grid": 4},
}


# Each of these goes through its lines in a test_*_trained.py of its own.
TRAINED = {
    "power-of-choice/fig4",
    "power-of-choice/table1",
    "power-of-choice/table2",
    "power-of-choice/fig8",
    "fedgs/table2-synthetic",
    "bsfl/fig5",
    "bsfl/fig8",
    "e3cs/letters-quick",
}


def test_all_studies_are_tested():
    assert set(studies.STUDIES) == set(TINY) | TRAINED


@pytest.mark.slow
@pytest.mark.parametrize("id", TINY)
def test_a_study_runs_scores_plots_and_saves(id, tmp_path):
    told = []
    outcome = studies.reproduce(id, workers=1, tell=told.append, **TINY[id])
    done = [one.done for one in told]
    assert sorted(set(done)) == list(range(outcome.study.jobs(outcome.settings) + 1))
    assert done == sorted(done)
    assert outcome.findings
    assert all(isinstance(finding, Finding) and finding.ours for finding in outcome.findings)
    assert "nan" not in " ".join(f.ours for f in outcome.findings)
    paths = studies.save(outcome, tmp_path / "out")
    assert sorted(p.name for p in paths) == sorted(p.name for p in (tmp_path / "out").iterdir())
    assert {"result.json", "findings.md", "figure.png", "figure.svg", "manifest.json"} == {p.name for p in paths}
    again = json.loads((tmp_path / "out" / "result.json").read_text())
    assert outcome.study.score(again) == outcome.findings
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["settings"] == outcome.settings
    assert manifest["study"] == id
    assert all(finding.claim in (tmp_path / "out" / "findings.md").read_text() for finding in outcome.findings)


@pytest.mark.parametrize("id", TINY)
def test_quick_changes_rounds_and_seeds_only(id):
    study = studies.STUDIES[id]
    assert set(study.quick) <= {"rounds", "seeds", "longer"}
    assert all(study.quick[name] <= study.settings[name] for name in study.quick)


@pytest.mark.slow
def test_figures_are_the_same_bytes_again(tmp_path):
    outcome = studies.reproduce("rbcs-f/fig4", workers=1, rounds=20, seeds=2)
    first, second = studies.save(outcome, tmp_path / "a"), studies.save(outcome, tmp_path / "b")
    for one, two in zip(first, second, strict=True):
        assert one.read_bytes() == two.read_bytes()


@pytest.mark.slow
def test_parallel_and_serial_runs_agree():
    tiny = {"rounds": 20, "seeds": 2}
    serial = studies.reproduce("rbcs-f/fig3", workers=1, **tiny)
    parallel = studies.reproduce("rbcs-f/fig3", workers=2, **tiny)
    assert serial.result == parallel.result


def test_unknown_ids_and_settings_say_what_there_is(tmp_path):
    with pytest.raises(UnknownNameError, match=r"unknown study 'e3cs/fig5'; did you mean 'e3cs/fig[34]'"):
        studies.reproduce("e3cs/fig5")
    with pytest.raises(UnknownNameError, match="unknown setting of e3cs/fig4 'round'; did you mean 'rounds'"):
        studies.reproduce("e3cs/fig4", round=3)


def test_a_folder_that_cannot_be_made_is_a_clear_error(tmp_path):
    (tmp_path / "file").write_text("")
    outcome = studies.reproduce("rbcs-f/fig4", workers=1, rounds=10, seeds=2)
    with pytest.raises(StoreError, match="cannot make the folder"):
        studies.save(outcome, tmp_path / "file" / "out")


def test_a_table_keeps_its_columns():
    finding = Finding("a | b", "none", "1", "in part", "a note")
    rows = Reproduction(studies.STUDIES["e3cs/fig3"], {}, {}, [finding]).table().splitlines()
    assert rows[2] == "| a \\| b | none | 1 | **in part**: a note |"


@pytest.mark.parametrize("values", [[1.0, 2.0], [3.0, 3.5, 9.0, -1.0], list(range(40))])
def test_the_interval_is_scipy_s(values):
    mean, half = interval(values)
    low, high = stats.t.interval(0.95, len(values) - 1, loc=np.mean(values), scale=stats.sem(values))
    assert (mean - half, mean + half) == pytest.approx((low, high))


def test_one_seed_proves_nothing():
    assert interval([4.0]).half == np.inf
    assert order({"A": [4.0], "B": [1.0]}, "A > B").holds == [False]
    assert show([4.0]) == "4 (one seed)"


def test_orders_are_judged_by_paired_differences():
    noise = np.array([0.0, 50.0, -30.0, 20.0])  # common to both: the worlds of the seeds
    values = {"A": noise + np.array([1.0, 1.1, 0.9, 1.0]), "B": noise, "C": noise + np.array([0.1, -0.1, 0.1, -0.1])}
    assert order(values, "A > B").holds == [True]
    assert order(values, "B > A").holds == [False]
    assert order(values, "B > C").holds == [False]
    assert order(values, "A > B = C", same=0.2).holds == [True, True, True]
    assert "B > A does not hold: difference -1.0" in order(values, "B > A", digits=1).broken[0]
    assert order({"A": [10.0, 1000.0], "B": [5.0, 499.0]}, "A > B", ratio=True).holds == [True]
    assert "ratio 0.50" in order({"A": [10.0, 1000.0], "B": [5.0, 499.0]}, "B > A", ratio=True).broken[0]


def test_verdicts():
    assert verdict([True, True]) == "reproduced"
    assert verdict([True, False]) == "in part"
    assert verdict([False]) == "not reproduced"


def test_thinning_keeps_the_ends():
    at = steps(2500, 100)
    assert (at[0], at[-1], len(at)) == (1, 2500, 100)
    assert steps(5).tolist() == [1, 2, 3, 4, 5]
    assert rounded(np.array([[1.23456789]])) == [[1.2346]]
    assert rounded(np.array([3])) == [3]
