"""The study of Balanced: its partition, what is measured of a run, ranks, and verdicts on made-up results."""

import numpy as np
import pytest

from fedpick.data.federated import Dataset
from fedpick_papers import studies
from fedpick_papers.studies.balanced import worlds
from fedpick_papers.studies.balanced._sorted import Sorted

STUDY = studies.STUDIES["balanced/worlds"]


def made_up(seconds, final=80.0, jain=0.99):
    """A result in which Balanced takes this share of uniform's time; the rivals take 0.8 of it."""
    rng, cases = np.random.default_rng(0), {}
    for case, about in worlds.CASES.items():
        base, cell = 10.0 + rng.random(6), {}
        for name in worlds.POLICIES:
            share = seconds if name == worlds.OURS else 1.0 if name == worlds.FIRST else 0.8
            ours = name == worlds.OURS
            cell[name] = {
                "minutes": (share * base * (1 + 0.01 * rng.random(6))).tolist(),
                "rounds": [20.0] * 6,
                "reached": [1.0] * 6,
                "round_s": [30.0] * 6,
                "final": ((final if ours else 80.0) + 0.1 * rng.random(6)).tolist(),
                "worst": ((final if ours else 80.0) - 20.0 + 0.1 * rng.random(6)).tolist(),
                "jain": ((jain if ours else 0.9) + 0.001 * rng.random(6)).tolist(),
                "used": [100.0] * 6,
            }
        cases[case] = {"differ": about["differ"], "policies": cell}
    return {"rounds": 60, "clients": 40, "cohort_size": 8, "seeds": 6, "cases": cases}


def verdicts(result):
    return [finding.verdict for finding in STUDY.score(result)]


def test_a_policy_as_it_should_be_holds_all_claims():
    assert set(verdicts(made_up(0.5))) == {"reproduced"}
    assert "(better)" not in STUDY.body(made_up(0.5))


def test_each_claim_can_fail():
    ranks = ["contradicted"] * len(worlds.RIVALS)
    assert verdicts(made_up(0.9)) == ["reproduced"] * 2 + ["contradicted", "reproduced", *ranks, "reproduced"]
    worse = made_up(0.5, final=70.0, jain=0.9)
    assert verdicts(worse)[:2] == ["contradicted"] * 2
    assert verdicts(worse)[-1] == "contradicted"
    assert STUDY.body(worse).count("(worse)") == 2 * len(worlds.CASES)


def test_ranks_are_means_over_the_worlds_in_which_devices_differ():
    found = worlds._ranks(made_up(0.5))
    assert found[worlds.OURS].tolist() == [1.0] * 6
    assert found[worlds.FIRST].tolist() == [7.0] * 6
    assert len(worlds._differing(made_up(0.5))) == len(worlds.CASES) - 1


def test_a_run_that_misses_the_level_counts_with_its_whole_length():
    run = {
        "clock": np.array([60.0, 120.0, 240.0]),
        "accuracy": np.array([0.2, 0.6, 0.5]),
        "worst": np.array([0.1]),
        "jain": 0.9,
        "used": 1.0,
    }
    there, missed = worlds._measured(run, 0.6), worlds._measured(run, 0.7)
    assert (there["minutes"], there["rounds"], there["reached"]) == (2.0, 2.0, 1.0)
    assert (missed["minutes"], missed["rounds"], missed["reached"]) == (4.0, 3.0, 0.0)
    assert there["round_s"] == 80.0


def test_sorted_clients_have_the_lower_labels_first():
    rng = np.random.default_rng(0)
    data = Dataset("toy", rng.random((600, 2), dtype=np.float32), np.arange(600, dtype=np.int32) % 6, classes=6)
    split = Sorted(alpha=0.3, size=20)(data, 30, rng)
    lower = split.labels[:, :3].sum(axis=1) / 20
    assert split.sizes.tolist() == [20] * 30
    assert (np.diff(lower) <= 0).all()
    assert lower[0] > lower[-1]


@pytest.mark.slow
def test_it_runs_from_its_jobs_to_its_page(tmp_path):
    cases = {name: worlds.CASES[name] for name in ("data go with speed", "equal devices")}
    outcome = studies.reproduce("balanced/worlds", quick=True, workers=1, executor="serial", cases=cases, out=tmp_path)
    assert "## Each world" in (tmp_path / "balanced" / "worlds" / "findings.md").read_text()
    assert outcome.result["cases"].keys() == cases.keys()
