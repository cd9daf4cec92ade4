"""Registry, statistics, saving."""

import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

from fedpick.core.errors import StoreError, UnknownNameError
from fedpick_papers import studies
from fedpick_papers.studies import _save
from fedpick_papers.studies._causes import ROOTS
from fedpick_papers.studies._index import summary
from fedpick_papers.studies._papers import PAPERS
from fedpick_papers.studies._stats import interval, rounded, show, steps
from fedpick_papers.studies._study import Finding, Reproduction
from fedpick_papers.studies._verdicts import RULES, Check, Judged, above, judge, within

DIGITS = {
    "data": {"name": "digits", "partition": "dirichlet(alpha=10, at_least=2)"},
    "train": {"model": "logistic", "lr": 0.01, "batch": 4, "steps": 1, "evaluate_every": 1000, "spread_every": 0},
}
# A few rounds of each study: small enough for a test, large enough to go through every line of it.
TINY = {
    "e3cs/fig3": {"rounds": 40, "seeds": 2, "training": DIGITS},
    "e3cs/fig4": {"rounds": 40, "seeds": 2, "training": DIGITS},
    "rbcs-f/fig2": {"rounds": 40, "early": 30, "seeds": 2},
    "rbcs-f/fig3": {"rounds": 30, "longer": 40, "seeds": 2},
    "rbcs-f/fig4": {"rounds": 30, "longer": 40, "seeds": 2},
    "rbcs-f/theorems": {"rounds": 30, "seeds": 2},
    "rbcs-f/regret": {"rounds": 30, "seeds": 2},
    "rbcs-f/regret-literal": {"rounds": 30, "seeds": 2},
    "e3cs/theorem1": {"rounds": 40, "seeds": 2},
    "bsfl/fig4": {"steps": 200, "batch": 3, "seeds": 2},
    "bsfl/regret": {"rounds": 60, "seeds": 2},
    "bsfl/theorem2": {"sizes": [[6, 3]], "steps": 300, "seeds": 2},
    "bsfl/weights": {"rounds": 60, "seeds": 2, "alphas": [0.1, 1.0], "betas": [1.0]},
    "bsfl/quality": {"rounds": 60, "seeds": 2},
    "fedgs/fig4-counts": {"rounds": 12, "seeds": 2},
    "power-of-choice/quadratic": {"rounds": 60, "seeds": 2, "draws": 50, "grid": 4},
    "power-of-choice/quadratic-centred": {"rounds": 60, "seeds": 2, "draws": 50, "grid": 4},
    "power-of-choice/theorem31": {"rounds": 40, "seeds": 2, "draws": 50, "grid": 4},
    "power-of-choice/theoremA1": {"rounds": 40, "seeds": 2, "draws": 50, "grid": 4},
    "power-of-choice/fig1": {"rounds": 6, "toys": 3, "seeds": 2},
    "oort/time": {"rounds": 8, "seeds": 2},
    "fedcor/rounds": {"rounds": 20, "seeds": 2},
    "clustered/rounds": {"rounds": 8, "seeds": 2},
    "divfl/rounds": {"rounds": 12, "seeds": 2},
    "optimal/bits": {"rounds": 8, "seeds": 2},
    "refl/device-hours": {"rounds": 8, "seeds": 2},
    "fedau/participation": {"rounds": 8, "seeds": 2},
}


# Each of these goes through its lines in a test_*_trained.py of its own.
TRAINED = {
    "power-of-choice/fig4",
    "power-of-choice/table1",
    "power-of-choice/table2",
    "power-of-choice/fig8",
    "power-of-choice/fig5",
    "power-of-choice/fig9",
    "power-of-choice/fig11",
    "power-of-choice/fig12",
    "power-of-choice/fig14",
    "tournament/synthetic",
    "tournament/fashion-mnist",
    "tournament/cifar10",
    "fedgs/table2-synthetic",
    "fedgs/table2-authors",
    "fedgs/fig3",
    "fedgs/table3",
    "fedgs/built-synthetic",
    "fedgs/built-cifar10",
    "fedgs/built-fashion-mnist",
    "rbcs-f/fig5",
    "bsfl/fig5",
    "bsfl/fig8",
    "e3cs/letters-quick",
    "e3cs/table2-non-iid",
    "e3cs/table2-iid",
    "e3cs/table2-non-iid-fedprox",
    "e3cs/table2-iid-fedprox",
    "e3cs/fig7",
    "e3cs/table3-non-iid",
    "e3cs/table3-iid",
    "e3cs/table3-non-iid-fedprox",
    "e3cs/table3-iid-fedprox",
    "fedgs/table2-cifar10",
    "fedgs/table2-fashion-mnist",
    "bsfl/fig6",
    "bsfl/fig7",
    "bsfl/fig9",
    "bsfl/fig10",
    "rbcs-f/fig6-cifar10",
    "rbcs-f/fig6-fashion-mnist",
    "asynchrony/speed",
    "asynchrony/tied",
    "asynchrony/policies",
    "fedbuff/updates",
    "papaya/scale",
    "fedasync/mixing",
    "pisces/guided",
    "balanced/worlds",
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
    assert all(finding.claim in (tmp_path / "out" / "findings.md").read_text() for finding in outcome.shown)


@pytest.mark.parametrize("id", TINY)
def test_quick_changes_rounds_and_seeds_only(id):
    study = studies.STUDIES[id]
    assert set(study.quick) <= {"rounds", "steps", "seeds", "longer"}
    assert all(study.quick[name] <= study.settings[name] for name in study.quick)


@pytest.mark.slow
def test_figures_are_the_same_bytes_again(tmp_path):
    outcome = studies.reproduce("rbcs-f/fig4", workers=1, rounds=20, longer=30, seeds=2)
    first, second = studies.save(outcome, tmp_path / "a"), studies.save(outcome, tmp_path / "b")
    for one, two in zip(first, second, strict=True):
        assert one.read_bytes() == two.read_bytes()


@pytest.mark.slow
def test_parallel_and_serial_runs_agree():
    tiny = {"rounds": 20, "longer": 30, "seeds": 2}
    serial = studies.reproduce("rbcs-f/fig3", workers=1, **tiny)
    parallel = studies.reproduce("rbcs-f/fig3", workers=2, **tiny)
    assert serial.result == parallel.result


def test_unknown_ids_and_settings_say_what_there_is(tmp_path):
    with pytest.raises(UnknownNameError, match=r"unknown study 'e3cs/fig5'; did you mean 'e3cs/fig[347]'"):
        studies.reproduce("e3cs/fig5")
    with pytest.raises(UnknownNameError, match="unknown setting of e3cs/fig4 'round'; did you mean 'rounds'"):
        studies.reproduce("e3cs/fig4", round=3)


def test_a_folder_that_cannot_be_made_is_a_clear_error(tmp_path):
    (tmp_path / "file").write_text("")
    outcome = studies.reproduce("rbcs-f/fig4", workers=1, rounds=10, longer=20, seeds=2)
    with pytest.raises(StoreError, match="cannot make the folder"):
        studies.save(outcome, tmp_path / "file" / "out")


def test_a_table_keeps_its_columns():
    ours = Finding("b", "none", "2", Judged("reproduced"), extension=True)
    finding = Finding("a | b", "none", "1", Judged("undecided", ("A > B is undecided",), seeds=12), "a note")
    page = Reproduction(studies.STUDIES["e3cs/fig3"], {}, {}, [ours, finding])
    rows = page.table().splitlines()
    assert rows[2] == "| a \\| b | none | 1 | **undecided** |"
    assert page.why() == "- *undecided*: a | b. About 12 seeds would decide. A > B is undecided.\n"
    assert len(rows) == 3  # extensions of ours have a page of their own
    assert page.table(page.beyond).splitlines()[2] == "| b | none | 2 | **reproduced** |"
    alone = Reproduction(studies.STUDIES["e3cs/fig3"], {}, {}, [ours])
    assert (alone.shown, alone.beyond) == ([ours], [])
    assert "- a | b: a note." in page.notes()
    assert "- dozens, at least: 12 (a dozen)" in page.notes()


def test_a_page_says_once_that_there_is_one_seed():
    checks = [above([1.0], "A > B"), above([-2.0], "B > C")]
    finding = Finding("a", "none", f"A {show([3.0])}; B {show([2.0])}", judge(checks), f"took {show([7.0])} s")
    page = Reproduction(studies.STUDIES["e3cs/fig3"], {"seeds": 1}, {}, [finding])
    assert page.table().splitlines()[0].split(" | ")[2] == "ours (one seed, so no interval)"
    assert page.table().splitlines()[2] == "| a | none | A 3; B 2 | **too few seeds** |"
    said = "At least 3 seeds are needed; so far 1 of 2 parts is as claimed, not so: B > C: -2.00."
    assert page.why() == f"- *too few seeds*: a. {said}\n"
    assert "- a: took 7 s." in page.notes()


def test_a_page_gives_the_worst_part_and_keeps_the_others_for_the_notes():
    judged = Judged("contradicted", ("A > B is contradicted", "C > D is undecided", "E"), "2 of 5 parts are reproduced")
    finding = Finding("a", "none", "1", judged, "shared")
    other = Finding("b", "none", "1", Judged("reproduced"), "shared")
    page = Reproduction(studies.STUDIES["e3cs/fig3"], {"seeds": 3}, {}, [finding, other])
    said = "2 of 5 parts are reproduced. A > B is contradicted"
    assert page.why() == f"- *contradicted*: a. {said}; 2 more are in the notes.\n"
    assert f"- a: {said}. C > D is undecided. E." in page.notes()
    assert "- a; b: shared." in page.notes()


def test_more_seeds_are_asked_for_while_they_are_cheap():
    def page(seeds, *wanted):
        judged = [Judged("undecided", ("A > B is undecided",), seeds=each) for each in wanted]
        findings = [Finding("a", "", "", each) for each in (*judged, Judged("reproduced"))]
        return Reproduction(studies.STUDIES["e3cs/fig4"], {"seeds": seeds}, {}, findings)

    assert page(10, 12, 40, 41, 1001).more() == (40, "40 seeds would decide about 2 more claims")
    assert page(10, 41, 1001).more() is None
    assert page(10).more() is None
    assert page(1).more() is None
    assert page(1, None, 4).more() == (3, "3 seeds are the fewest that can decide a claim")
    assert page(10, 41).again() == "Again: `fedpick reproduce e3cs/fig4`."
    told = "Again: `fedpick reproduce e3cs/fig4 --seeds 5`. `--seeds 9` adds to these runs: 9 seeds would decide about "
    assert page(5, 9).again() == told + "one more claim."


def test_how_many_seeds_would_decide_is_said():
    def told(seeds):
        return Finding("", "", "", judge([Check("undecided", "A > B is undecided", seeds)])).reason

    assert told(40) == "About 40 seeds would decide. A > B is undecided"
    assert told(1001) == "More than 1,000 seeds would decide. A > B is undecided"


@pytest.mark.parametrize("values", [[1.0, 2.0], [3.0, 3.5, 9.0, -1.0], list(range(40))])
def test_the_interval_is_scipy_s(values):
    mean, half = interval(values)
    low, high = stats.t.interval(0.95, len(values) - 1, loc=np.mean(values), scale=stats.sem(values))
    assert (mean - half, mean + half) == pytest.approx((low, high))


def test_one_seed_proves_nothing():
    assert interval([4.0]).half == np.inf
    assert show([4.0]) == "4 (one seed)"


def test_two_seeds_are_shown_both_without_an_interval():
    assert show([4.0, 5.5], 1) == "4.0 and 5.5"
    assert show([40.0, 55.0], 1, "%") == "40.0% and 55.0%"
    check = within([0.5, 1.5], "A", high=2.0)
    assert check.seen == "A is undecided: 1.00 (two seeds), to be at most 2.00"
    assert judge([within([0.5, 1.5], "A", high=0.8)]).reasons[0].endswith("not so: A: 1.00, to be at most 0.80")


# ---- the index, and results that are judged anew

RBCSF = {name: [base + x for x in (0.0, 0.1, -0.1, 0.05)] for name, base in
         (("Random", 0.1), ("RBCS-F(1)", 0.2), ("RBCS-F(10)", 0.5), ("RBCS-F(50)", 0.9), ("RBCS-F(100)", 1.4),
          ("FedCS(3)", 2.0))}  # fmt: skip


def stored(folder, limits=None):
    """A result of rbcs-f/fig4 as `reproduce` stores it."""
    result = {"rounds": 500, "longer": 10_000, "guarantee": 0.15, "spread": RBCSF, "pulls": {}}
    result |= {"least": RBCSF, "least_later": RBCSF}
    at = folder / "rbcs-f/fig4"
    at.mkdir(parents=True)
    (at / "result.json").write_text(json.dumps(result))
    settings = dict(studies.STUDIES["rbcs-f/fig4"].settings) | {"seeds": 4}
    manifest = {"settings": settings} | ({} if limits is None else {"limits": limits})
    (at / "manifest.json").write_text(json.dumps(manifest))
    return at


def test_stored_results_are_judged_anew_without_running(tmp_path, caplog):
    at = stored(tmp_path)
    before = (at / "manifest.json").read_text()
    outcome = studies.judge("rbcs-f/fig4", tmp_path)
    assert outcome.findings == studies.STUDIES["rbcs-f/fig4"].score(outcome.result)
    page = (at / "findings.md").read_text()
    assert outcome.table() in page
    assert "some of them set or changed after the run" in page
    assert (at / "manifest.json").read_text() == before  # it tells of the run, not of the judging
    assert not (at / "figure.png").exists()
    assert studies.NOT_DRAWN in page
    assert "figure.png" not in page
    assert studies.judge("rbcs-f/fig3", tmp_path) is None
    other = json.loads(before)
    other["settings"]["cohort_size"] = 4  # of earlier settings: its page would say what was not done
    (at / "manifest.json").write_text(json.dumps(other))
    assert studies.judge("rbcs-f/fig4", tmp_path) is None
    (at / "manifest.json").write_text(before)
    (at / "result.json").write_text(json.dumps({name: outcome.result[name] for name in ("rounds",)}))
    assert studies.judge("rbcs-f/fig4", tmp_path) is None  # lacks what the study measures now
    assert "which the study measures now; repeat `fedpick reproduce rbcs-f/fig4 --out" in caplog.text
    (at / "result.json").write_text("{")
    with pytest.raises(StoreError, match=r"cannot read the result .* repeat `fedpick reproduce rbcs-f/fig4 --out"):
        studies.judge("rbcs-f/fig4", tmp_path)
    with pytest.raises(UnknownNameError, match="unknown study 'rbcs-f/fig9'"):
        studies.judge("rbcs-f/fig9", tmp_path)


def test_figures_are_drawn_anew_if_asked(tmp_path):
    id = "power-of-choice/fig1"
    curves = {name: {"mean": [0.5, 0.2], "half": [0.1, 0.1]} for name in ("random", "higher loss")}
    far = {"random": [0.5, 0.6, 0.7], "higher loss": [0.1, 0.2, 0.25]}
    (tmp_path / id).mkdir(parents=True)
    result = {"rounds": 2, "first": 2, "far": far, "curves": curves}
    (tmp_path / id / "result.json").write_text(json.dumps(result))
    (tmp_path / id / "manifest.json").write_text(json.dumps({"settings": dict(studies.STUDIES[id].settings)}))
    assert studies.judge(id, tmp_path, draw=True).findings
    first = (tmp_path / id / "figure.svg").read_bytes()
    assert (tmp_path / id / "figure.png").is_file()
    curves["random"]["mean"] = [0.5, 0.3]
    (tmp_path / id / "result.json").write_text(json.dumps(result))
    studies.judge(id, tmp_path, draw=True)
    assert (tmp_path / id / "figure.svg").read_bytes() != first
    assert "](figure.png)" in (tmp_path / id / "findings.md").read_text()
    drawn = studies.draw(id, tmp_path, tmp_path / "elsewhere")
    assert drawn.read_bytes() == (tmp_path / id / "figure.png").read_bytes()


def test_a_page_tells_whether_its_thresholds_were_fixed_before(tmp_path):
    limits = {name: limit.value for name, limit in studies.STUDIES["rbcs-f/fig4"].limits.items()}
    at = stored(tmp_path, limits | {"one that is no longer used": 1.0})
    studies.judge("rbcs-f/fig4", tmp_path)
    page = (at / "findings.md").read_text()  # the same as when it was run, but one was changed after an earlier run
    assert "Thresholds, some of them set or changed after the run" in page
    assert ". Changed on 2026-11-19: before, a share of 0.9 beta" in page
    never = Reproduction(studies.STUDIES["e3cs/fig3"], {}, {}, [Finding("a", "", "", Judged("reproduced"))])
    assert "Thresholds, fixed before the run" in never.notes()


def test_every_study_is_on_its_paper_s_page_and_what_is_not_run_has_a_reason():
    entries = [entry for paper in PAPERS.values() for entry in paper.entries]
    of_papers = {id for id, study in studies.STUDIES.items() if study.paper}  # the others are listed beyond the papers
    assert {id for entry in entries for id in entry.studies} == of_papers
    assert all(entry.studies or entry.left for entry in entries)
    for slug, paper in PAPERS.items():
        assert len({entry.name for entry in paper.entries}) == len(paper.entries)
        assert {id for id, _, _ in paper.headlines} <= {id for entry in paper.entries for id in entry.studies}
        assert all(id.startswith(f"{slug}/") for entry in paper.entries for id in entry.studies)


def test_the_pages_count_the_papers_claims_only(tmp_path):
    made = [
        Finding("a", "", "", Judged("reproduced")),
        Finding("b", "", "", Judged("contradicted", ("no",))),
        Finding("c", "", "", Judged("reproduced"), extension=True),
    ]
    outcome = Reproduction(studies.STUDIES["rbcs-f/fig4"], {"seeds": 9}, {}, made)
    page = studies.save_index([outcome], tmp_path).read_text()
    assert "| [RBCS-F (Huang et al. 2021)](rbcs-f/index.md) | 2 | 1 | 0 | 0 | 1 | 0 |" in page
    assert "2 claims of the five papers were judged, in 1 studies, which rerun 2 of the " in page
    paper = (tmp_path / "rbcs-f/index.md").read_text()
    # A study that is named in two rows has its verdicts in the first.
    assert "| Fig. 4: [fig4](fig4/findings.md) | 1 of 2 | 1 contradicted |" in paper
    assert "Theorem 4:" not in paper
    assert "| Fig. 3: not run yet |  |  |" in paper
    beyond = (tmp_path / "rbcs-f/beyond.md").read_text()
    assert "| c |  |  | **reproduced** |" in beyond
    assert "| a |" not in beyond


def test_one_root_cause_is_counted_once(tmp_path):
    of = {
        "bsfl/fig5": ["BSFL's regret is logarithmic", "BSFL has the smallest test loss"],
        "bsfl/fig8": ["BSFL's regret is logarithmic"],
        "bsfl/fig6": ["BSFL reaches the lowest test loss", "something that nobody looked into"],
    }
    done = [
        Reproduction(
            studies.STUDIES[id], {"seeds": 9}, {}, [Finding(claim, "", "", Judged("contradicted")) for claim in claims]
        )
        for id, claims in of.items()
    ]
    few = Finding("a", "", "", Judged("too few seeds"))
    done += [Reproduction(studies.STUDIES[id], {}, {}, [few, few]) for id in ("bsfl/fig7", "bsfl/fig9")]
    said = summary(done)
    assert "| the paper | 2 | 1 |" in said
    assert "| our setting | 2 | 1 |" in said
    assert "| stand-in data | 0 | 0 |" in said
    assert "| too little power | 4 | 2 (2 studies) |" in said
    assert "| BSFL has the smallest test loss |  |  | **contradicted** (our setting) |" in done[0].table()
    assert "| something that nobody looked into |  |  | **contradicted** |" in done[2].table()
    assert (
        "Cause, the paper: "
        in Reproduction(
            studies.STUDIES["bsfl/fig5"], {}, {}, [Finding("logarithmic", "", "", Judged("direction only", ("no",)))]
        ).why()
    )
    studies.save_index(done, tmp_path)
    page = (tmp_path / "bsfl/index.md").read_text()
    assert "- *the paper* (2 claims: [fig5](fig5/findings.md), [fig8](fig8/findings.md)): the gap between" in page
    assert "- *too little power* (4 claims: " in page
    assert "- the settings of Fig. 5 to 10\n" in page


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    """The stored results, judged into a copy."""
    folder = tmp_path_factory.mktemp("judged")
    for path in sorted(DOCS.glob("*/*/result.json")):
        at = folder / path.parent.relative_to(DOCS)
        at.mkdir(parents=True)
        for name in ("result.json", "manifest.json"):
            (at / name).write_text((path.parent / name).read_text())
    outcomes = [outcome for id in studies.STUDIES if (outcome := studies.judge(id, folder))]
    studies.save_index(outcomes, folder)
    return folder, outcomes


DOCS = Path(__file__).parents[3] / "docs" / "studies"


def read(page):
    """The words of a page as a reader sees them: without addresses, bars and marks."""
    text = re.sub(r"\]\([^)]*\)|<[^>]*>|[|*#`\[]", " ", page.read_text())
    return [word for word in text.split() if re.search(r"\w", word)]


def test_every_stored_verdict_has_a_cause_and_every_cause_a_verdict(judged):
    _, outcomes = judged
    found = [
        (one.study.id, finding, one.root(finding))
        for one in outcomes
        if one.study.id.partition("/")[0] in PAPERS
        for finding in one.findings
        if not finding.extension
    ]
    assert not [(id, f.claim) for id, f, root in found if (root is None) != (f.verdict == "reproduced")]
    used = {root for _, _, root in found}
    assert not [root.what for roots in ROOTS.values() for root in roots if root not in used]
    for paper in PAPERS.values():
        for id, claim, _ in paper.headlines:
            assert [f for study, f, _ in found if study == id and claim in f.claim], (id, claim)


def test_the_pages_can_be_read_in_ten_minutes(judged):
    folder, _ = judged
    assert len(read(folder / "index.md")) <= 600
    for paper in PAPERS:
        assert len(read(folder / paper / "index.md")) <= 900, paper
    for page in folder.glob("*/*/findings.md"):
        before = page.read_text().partition("<details")[0]
        assert len(before.split()) < 900, page


def test_changes_of_rules_are_dated(judged):
    folder, outcomes = judged
    last = RULES[-1][0]
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", last)
    assert f"- {last}: " in (folder / "rules.md").read_text()
    assert f"The rules were last changed on {last}" in summary(outcomes)
    for one in outcomes:
        page = (folder / one.study.id / "findings.md").read_text()
        assert not one.study.paper or f"last changed on {last}" in page
        some = "set or changed after the run" in page
        assert not some or not one.limits_first or any(limit.changed for limit in one.study.limits.values())
        for limit in one.study.limits.values():
            assert not limit.changed or re.match(r"\d{4}-\d\d-\d\d: ", limit.changed)


def test_the_numbers_go_between_the_marks_of_a_page(tmp_path):
    outcome = Reproduction(studies.STUDIES["rbcs-f/fig4"], {}, {}, [Finding("a", "", "", Judged("reproduced"))])
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- studies:begin, by a command -->\nold\n<!-- studies:end -->\nafter\n")
    for _ in range(2):
        studies.save_summary([outcome], page)
    text = page.read_text()
    assert text.startswith("before\n<!-- studies:begin, by a command -->\n\n1 claims")
    assert text.endswith("<!-- studies:end -->\nafter\n")
    assert "old" not in text
    page.write_text("nothing")
    with pytest.raises(StoreError, match="has no marks"):
        studies.save_summary([outcome], page)
    with pytest.raises(StoreError, match="cannot read"):
        studies.save_summary([outcome], tmp_path / "none.md")


def test_thinning_keeps_the_ends():
    at = steps(2500, 100)
    assert (at[0], at[-1], len(at)) == (1, 2500, 100)
    assert steps(5).tolist() == [1, 2, 3, 4, 5]
    assert rounded(np.array([[1.23456789]])) == [[1.2346]]
    assert rounded(np.array([3])) == [3]


@pytest.mark.slow
def test_the_page_of_a_study_s_runs_is_written_beside_them(tmp_path):
    how = {"workers": 1, "seeds": 2, "out": tmp_path}
    studies.reproduce("rbcs-f/fig4", rounds=5, longer=5, **how)
    studies.reproduce("rbcs-f/fig4", rounds=10, longer=10, **how)  # the runs of other settings are not shown
    page = (tmp_path / studies.JOBS / "rbcs-f/fig4" / "page.html").read_text(encoding="utf-8")
    assert page.lstrip().startswith("<!doctype html>")
    assert "10 rounds" in page
    assert "the first 5" not in page
    assert not list((tmp_path / "rbcs-f/fig4").glob("*.html"))  # not among what is kept for a repository


def test_the_page_of_runs_that_are_storage_with_another_study_s_is_in_a_folder_of_its_own(monkeypatch, tmp_path):
    monkeypatch.setattr(_save, "Results", lambda runs: SimpleNamespace(page=lambda: f"{len(runs)} runs"))
    runs = [tmp_path / "theirs" / name for name in "ab"]
    assert _save.save_runs([], tmp_path / "ours") is None
    assert _save.save_runs(runs, tmp_path / "ours").read_text() == "2 runs"
    assert [path.name for path in tmp_path.glob("*/page.html")] == ["page.html"]


# ---- quick studies side by side


def test_studies_that_share_jobs_are_not_run_side_by_side(monkeypatch, tmp_path):
    given = []

    def each(function, items, on_result, **how):
        for i, item in enumerate(items):
            given.append(item[0])
            on_result(i, [(id, {"seeds": 1}, {}, [], 2.0) for id in item[0]])

    monkeypatch.setattr(studies, "call_each", each)
    ids = ["power-of-choice/fig1", "e3cs/table3-non-iid", "tournament/synthetic", "e3cs/fig7"]
    told = []
    outcomes = studies.reproduce_quickly(ids, tmp_path, done=lambda outcome, seconds: told.append(seconds))
    assert given == [["tournament/synthetic"], ["e3cs/table3-non-iid", "e3cs/fig7"], ["power-of-choice/fig1"]]
    assert [outcome.study.id for outcome in outcomes] == ids
    assert told == [2.0] * 4


@pytest.mark.slow
def test_quick_studies_side_by_side_measure_what_each_alone_does(tmp_path):
    ids = ["rbcs-f/fig4", "power-of-choice/fig1"]
    program = [sys.executable, "-c", "from fedpick.cli import main; main()", "reproduce", *ids, "--quick"]
    program += ["--seeds", "2", "--workers", "2", "--out", str(tmp_path)]
    said = subprocess.run(program, capture_output=True, text=True, check=True).stdout
    for id in ids:
        alone = studies.reproduce(id, quick=True, seeds=2, workers=1)
        assert json.loads((tmp_path / id / "result.json").read_text()) == alone.result
        names = {"result.json", "findings.md", "figure.png", "figure.svg", "manifest.json"}
        assert {path.name for path in (tmp_path / id).iterdir()} == names
        assert re.search(rf"^written to .*{id} \(.* s\)$", said, re.MULTILINE)
        assert re.search(rf"^ +[0-9.]+ s  {id}$", said, re.MULTILINE)
    assert (tmp_path / studies.JOBS / "rbcs-f/fig4" / "page.html").is_file()
    assert "2 studies in " in said


def test_pages_and_the_index_say_which_numbers_are_of_earlier_rules(tmp_path):
    study = studies.STUDIES["rbcs-f/fig4"]
    made = [Finding("a", "", "", Judged("reproduced"))]
    now, before = (Reproduction(study, {"seeds": 9}, {}, made, numbers=numbers) for numbers in (study.numbers, "0.1"))
    assert "before fedpick 0.3; their pages say so" in studies.save_index([before], tmp_path).read_text()
    assert "1 of the studies are of the draws and rules before fedpick 0.3" in summary([before, now])
    assert "before fedpick" not in studies.save_index([now], tmp_path).read_text()
    same = Reproduction(studies.STUDIES["bsfl/fig4"], {"seeds": 2}, {}, made, numbers="0.1")
    assert not same.earlier  # the same since then
    studies.reproduce("power-of-choice/fig1", rounds=2, toys=2, seeds=2, workers=1, out=tmp_path)
    manifest = json.loads((tmp_path / "power-of-choice/fig1/manifest.json").read_text())
    assert manifest["numbers"] == "0.1"  # of the study, not of the version that ran it
    assert manifest["seconds"] >= 0


def test_a_result_says_of_which_numbers_it_is_and_one_without_is_of_the_first(tmp_path):
    studies.reproduce("rbcs-f/fig4", quick=True, seeds=1, workers=1, executor="serial", out=tmp_path)
    manifest = tmp_path / "rbcs-f/fig4/manifest.json"
    stored = json.loads(manifest.read_text())
    stored["settings"] = studies.STUDIES["rbcs-f/fig4"].choose(seeds=1)  # judged is what has the study's settings
    page = tmp_path / "rbcs-f/fig4/findings.md"
    for numbers, earlier in (("0.3", False), ("", True)):
        assert stored.pop("numbers") == "0.3"
        manifest.write_text(json.dumps({**stored, "numbers": numbers} if numbers else stored))
        assert studies.judge("rbcs-f/fig4", tmp_path)
        assert ("**These numbers are of the draws and rules before fedpick 0.3**" in page.read_text()) == earlier
        stored["numbers"] = "0.3"
