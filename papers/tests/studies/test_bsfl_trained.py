"""BSFL, Fig. 5 and 8: tiny runs, and the score function on results that are made up."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedpick_papers import studies
from fedpick_papers.studies.bsfl import regression as study
from fedpick_papers.studies.bsfl import regret

FIG5 = study.STUDIES[0]
SEEDS = np.array([-0.01, 0.0, 0.01])
TINY = {"rounds": 30, "seeds": 2}


@pytest.fixture(scope="module", params=study.STUDIES, ids=lambda one: one.id)
def outcome(request):
    return studies.reproduce(request.param.id, workers=1, **TINY)


@pytest.mark.slow
def test_training_lowers_the_loss(outcome, tmp_path):
    for curves in outcome.result["curves"].values():
        assert all(curve[-1] < curve[0] for curve in curves.values())
    for of in outcome.result["loss"].values():
        assert list(of) == list(study.MOMENTS)
    assert len(outcome.findings) == 4
    assert all(0 < second < 20 for row in outcome.result["seconds"].values() for v in row.values() for second in v)
    assert len(studies.save(outcome, tmp_path)) == 5


@pytest.mark.slow
def test_regret_is_that_of_the_study_without_training(tmp_path):
    settings = FIG5.choose(**TINY)
    for i, item in enumerate(FIG5.items(settings)[: 3 * TINY["seeds"]]):
        expected = regret.STUDY.job(item, tmp_path / f"{i}-plain")["regret"]
        assert FIG5.job(item, tmp_path / f"{i}-trained")["regret"] == pytest.approx(expected)


@given(
    st.lists(st.floats(0.01, 10.0), min_size=1, max_size=20),
    st.lists(st.floats(0.0, 100.0), min_size=1, max_size=10),
)
def test_loss_at_a_time_is_that_of_the_last_round_that_ended(seconds, times):
    clock = np.concatenate([[0.0], np.cumsum(seconds)])
    loss = np.arange(len(clock), dtype=float)
    found = study._at({"clock": clock, "loss": loss}, np.array(times))
    assert found.tolist() == [max(i for i, end in enumerate(clock) if end <= time) for time in times]


def made_up(bsfl_regret, slopes, losses):
    names = ("BSFL", "CS-UCB", "Random")
    row = {name: (value + SEEDS).tolist() for name, value in zip(names, losses, strict=True)}
    return {
        "rounds": 2000,
        "data": {"iid": "linear-regression"},
        "final": {"BSFL": bsfl_regret, "CS-UCB": [300.0, 312.0, 320.0], "Random": [200.0, 213.0, 220.0]},
        "exponent": {name: (value + SEEDS).tolist() for name, value in zip(names, slopes, strict=True)},
        "seconds": {"iid": {name: [5.0, 5.1, 5.2] for name in names}},
        "loss": {"iid": dict.fromkeys(study.MOMENTS, row)},
    }


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (made_up([90.0, 100.0, 110.0], (0.13, 1.0, 1.0), (1.0, 1.2, 1.4)), ["reproduced"] * 3),
        (made_up([250.0, 260.0, 270.0], (0.6, 1.0, 0.5), (1.0, 0.8, 1.4)), ["contradicted"] * 3),
        (made_up([400.0, 410.0, 420.0], (1.0, 0.5, 0.5), (1.4, 1.0, 1.2)), ["contradicted"] * 3),
    ],
    ids=["holds", "fails in parts", "fails"],
)
def test_claims(result, expected):
    assert [finding.verdict for finding in FIG5.score(result)] == expected


def test_notes_say_what_does_not_hold():
    findings = FIG5.score(made_up([90.0, 100.0, 110.0], (0.6, 1.0, 0.5), (1.0, 0.8, 1.4)))
    assert "BSFL's exponent is below 1 holds, but not by 0.80: +0.40" in findings[1].reason
    assert "Random's regret is linear is contradicted: 0.50" in findings[1].reason
    assert "after a tenth: CS-UCB > BSFL is contradicted: ratio 0.80" in findings[2].reason


def test_the_loss_is_one_claim_whatever_data_we_made_for_it():
    result = made_up([90.0, 100.0, 110.0], (0.13, 1.0, 1.0), (1.0, 1.2, 1.4))
    for key in ("data", "seconds", "loss"):
        result[key] = {**result[key], "more data": result[key]["iid"]}
    assert [finding.extension for finding in FIG5.score(result)] == [False, False, False, True]
    assert "linear-regression" not in FIG5.score(result)[2].note  # the text above says it in words
    assert "| BSFL, more data | " in FIG5.body(result)
