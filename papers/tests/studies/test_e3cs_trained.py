"""E3CS on letters: a tiny run on digits, and the score function on results that are made up."""

import jax
import numpy as np
import pytest

from fedpick import learn
from fedpick_papers import studies
from fedpick_papers.studies.e3cs import letters as study
from fedpick_papers.studies.e3cs._accuracy import when

SEEDS = np.tile([-0.02, -0.01, -0.005, 0.005, 0.01, 0.02], 2)
TINY = {
    "data": "digits",
    "partition": "primary-label(0.8, size=40)",
    "clients": 8,
    "cohort_size": 4,
    "batch": 10,
    "epochs": [2],  # one shape, so that little is compiled
    "rounds": {"o2": 4, "normalised": 8, "normalised, CNN": 0},
    "seeds": 2,
}


@pytest.fixture(scope="module")
def outcome():
    return studies.reproduce(study.STUDY.id, workers=1, **TINY)


@pytest.mark.slow
def test_a_tiny_run(outcome, tmp_path):
    result = outcome.result
    assert list(result["final"]) == ["o2", "normalised"]
    for part in result["final"]:
        rounds = TINY["rounds"][part]
        assert list(result["final"][part]) == list(study.PRINTED)
        for name in study.PRINTED:
            assert all(0 <= share <= 1 for share in result["final"][part][name])
            assert all(0 <= count <= 4 * rounds for count in result["cep"][part][name])
            assert all(1 <= first <= rounds + 1 for row in result["first"][part][name] for first in row)
    assert max(result["curves"]["normalised"]["FedCS"]) > 0.2  # it learns: ten labels
    assert len(outcome.findings) == 2 * 4 + 1
    assert len(studies.save(outcome, tmp_path)) == 5


def test_the_networks_fit_the_letters():
    for part in study.STUDY.settings["parts"].values():
        network = learn.model(part["model"], (16, 8, 1), 26)
        params = jax.eval_shape(network.init, jax.random.key(0))
        letters = jax.ShapeDtypeStruct((3, 16, 8, 1), np.float32)
        assert jax.eval_shape(lambda p, x, f=network.apply: f(p, x, None), params, letters).shape == (3, 26)


@pytest.mark.slow
def test_early_e3cs_inc_is_e3cs_0(outcome):
    assert outcome.result["early"]["normalised"]["E3CS-inc"] == outcome.result["early"]["normalised"]["E3CS-0"]


def test_a_part_without_rounds_is_left_out():
    settings = study.STUDY.choose(quick=True)
    assert study._played(settings) == ["o2", "normalised"]
    assert study.STUDY.jobs(settings) == 2 * 7 * 2
    full = study.STUDY.choose()
    assert study.STUDY.jobs(full) == 7 * (5 + 5 + 3)  # the slow part has fewer seeds


def test_nobody_trains_on_what_anybody_holds_out():
    federated = study._federated("digits", TINY["partition"], 0.1, 8, 0)
    assert len(federated.held) == 8 * 4
    assert not np.isin(federated.examples, federated.held).any()
    assert len(federated.dataset.test_x) == 0  # else the data set's own test would be used


def made_up(first, final, cep):
    """A result of the paper's part with these numbers per scheme."""

    def of(values, scale):
        return {name: (value * (1 + SEEDS * scale)).tolist() for name, value in zip(study.PRINTED, values, strict=True)}

    rounds = {name: [row, [2 * x for x in row], [401] * 12] for name, row in of(first, 1.0).items()}
    return {
        "levels": [0.45, 0.55, 0.65],
        "data": "digits",
        "rounds": {"o2": 400},
        "parts": {"o2": {"model": "mlp", "aggregation": "o2"}},
        "first": {"o2": rounds},
        "final": {"o2": of(final, 0.01)},
        "rise": {"o2": of([0.01] * 7, 0.1)},
        "cep": {"o2": of(cep, 0.1)},
        "early": {"o2": of(cep, 0.1)},
    }


PAPERS_FIRST = [row[0] for row in study.PRINTED.values()]
PAPERS_FINAL = [row[3] / 100 for row in study.PRINTED.values()]
CEP = [7200, 6500, 5000, 4200, 4400, 3800, 3500]


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (made_up(PAPERS_FIRST, PAPERS_FINAL, CEP), ["reproduced"] * 5),
        (made_up([39, 58, 67, 75, 90, 78, 60], [0.84, 0.86, 0.87, 0.87, 0.87, 0.83, 0.86], CEP),
         ["contradicted", "reproduced", "contradicted", "contradicted", "contradicted"]),
        (made_up([90, 80, 75, 70, 60, 50, 40], [0.9, 0.88, 0.86, 0.85, 0.8, 0.84, 0.8], CEP[::-1]),
         ["contradicted"] * 5),
    ],
    ids=["holds", "fails in parts", "fails"],
)  # fmt: skip
def test_claims(result, expected):
    assert [finding.verdict for finding in study.STUDY.score(result)] == expected


def test_levels_that_are_not_reached_are_said():
    findings = study.STUDY.score(made_up(PAPERS_FIRST, PAPERS_FINAL, CEP))
    assert "65% not by all of both" in findings[1].ours
    assert "Random 78 ± " in findings[0].ours
    assert when(np.array([401.0, 401.0]), 400) == "never"
    assert when(np.array([300.0, 401.0]), 400).endswith("(1 of 2 never: 401 counted)")
