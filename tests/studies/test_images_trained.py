"""The studies that train networks on images, with small digits in the place of the papers' images."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from fedpick import studies
from fedpick.studies._runs import play_training

IMAGES = {
    "e3cs/table3-non-iid": {"partition": "primary-label(share=0.8, size=20)"},
    "e3cs/table3-iid": {"partition": "iid(size=20, overlap=True)"},
    "e3cs/table3-non-iid-fedprox": {"partition": "primary-label(share=0.8, size=20)"},
    "e3cs/table3-iid-fedprox": {"partition": "iid(size=20, overlap=True)"},
    "fedgs/table2-cifar10": {"partition": "dirichlet(alpha=0.5, at_least=2)"},
    "fedgs/table2-fashion-mnist": {},
    "bsfl/fig6": {"clients": 60},
    "bsfl/fig7": {"clients": 60},
    "bsfl/fig9": {"clients": 60},
    "bsfl/fig10": {"clients": 60},
    "rbcs-f/fig6-cifar10": {"partition": "dirichlet-labels(alpha={gamma}, size=30)"},
    "rbcs-f/fig6-fashion-mnist": {"partition": "dirichlet-labels(alpha={gamma}, size=30)"},
}
STORED = Path(__file__).parents[2] / "docs" / "studies"
SMALL = {"data": "digits", "model": "mlp(hidden=(8,))", "rounds": 20, "seeds": 1}


@pytest.mark.slow
@pytest.mark.parametrize(
    "id", ["e3cs/table3-non-iid", "fedgs/table2-fashion-mnist", "bsfl/fig10", "rbcs-f/fig6-cifar10"]
)
def test_a_study_of_images_runs_scores_plots_and_saves(id, tmp_path):
    outcome = studies.reproduce(id, workers=1, **SMALL, **IMAGES[id])
    assert {finding.verdict for finding in outcome.findings} <= {"undecided", "reproduced"}  # one seed decides nothing
    assert all(finding.verdict == "undecided" for finding in outcome.findings)
    paths = studies.save(outcome, tmp_path / "out")
    assert {"result.json", "findings.md", "figure.png", "figure.svg", "manifest.json"} == {p.name for p in paths}


@pytest.mark.parametrize("id", IMAGES)
def test_every_item_is_a_run_that_can_be_built(id):
    study = studies.STUDIES[id]
    settings = study.choose(**SMALL, **IMAGES[id])
    items = study.items(settings)
    assert len(items) == study.jobs(settings)
    assert study.job is play_training
    for item in items[:: max(len(items) // 3, 1)]:
        run = study.job.config(item).build()
        assert len(run.world.clients) == settings["clients"]


@pytest.mark.parametrize("id", IMAGES)
def test_quick_changes_rounds_seeds_and_the_network_only(id):
    study = studies.STUDIES[id]
    assert set(study.quick) == {"rounds", "seeds", "model"}


def test_schemes_of_table_iii_are_all_judged_by_their_printed_numbers():
    study = studies.STUDIES["e3cs/table3-non-iid"]
    rng = np.random.default_rng(0)
    first = {"FedCS": (246, 817), "E3CS-0": (307, 636), "E3CS-0.5": (362, 767), "E3CS-0.8": (429, 849)}
    first |= {"E3CS-inc": (307, 631), "Random": (472, 930), "pow-d": (689, 1517)}
    final = {"FedCS": 57.8, "E3CS-0": 61.0, "E3CS-0.5": 65.6, "E3CS-0.8": 65.4, "E3CS-inc": 65.5, "Random": 65.2}
    final |= {"pow-d": 60.5}
    never = ("FedCS", "E3CS-0", "pow-d")

    def near(value, scale):
        return [float(value + scale * x) for x in rng.standard_normal(8)]

    result = {
        "kind": "non-iid",
        "prox": 0.0,
        "rounds": 2500,
        "model": "cifar-cnn",
        "first": {
            name: [near(a, 2), near(b, 2), [2501] * 8 if name in never else near(2200, 9)]
            for name, (a, b) in first.items()
        },
        "final": {name: near(value, 0.05) for name, value in final.items()},
        "rise": {"Random": near(1, 0.1)},
        "cep": {
            name: near(5000 - 500 * i, 5) for i, name in enumerate(["FedCS", *list(first)[1:4], "Random", "pow-d"])
        },
    }
    findings = study.score(result)
    assert [finding.verdict for finding in findings] == ["reproduced"] * len(findings)
    result["final"]["FedCS"] = near(70, 0.05)
    assert study.score(result)[3].verdict == "contradicted"


@pytest.mark.parametrize("id", ["e3cs/table3-non-iid", "bsfl/fig10", "rbcs-f/fig6-cifar10"])
def test_what_was_measured_on_a_gpu_is_kept_and_needs_none_to_be_read(id, tmp_path):
    shutil.copytree(STORED / ".jobs" / id, tmp_path / ".jobs" / id)
    outcome = studies.reproduce(id, seeds=1, device="gpu", out=tmp_path)
    assert outcome.result == json.loads((STORED / id / "result.json").read_text())
