"""Comparisons of rounds with asynchronous training: ratios paired by seed, and what is said of them in words."""

import csv
import io
import json
import math

import numpy as np
import pytest
from made_runs import PACE, make
from scipy import stats

import fedpick as fp
from fedpick.report.notes import legend
from fedpick.report.paces import comparisons, is_mixed

SEEDS = 6
SLOW = [0.1, 0.2, 0.5, 0.6, 0.75, 0.9]  # reaches 0.8 in round 6, of 60 s each


def curve(at, moves, top=0.9):
    """An accuracy that is 0.9 from this move on, and 0.3 before."""
    return [top if t + 1 >= at else 0.3 for t in range(moves)]


def both(root, reach=lambda seed: 12 + seed, policies=("uniform",), seeds=SEEDS, moves=40, seconds=10.0, **config):
    """Runs that reach 80% after 6 rounds of 60 seconds, and runs that reach it after `reach(seed)` moves."""
    for policy in policies:
        for seed in range(seeds):
            make(root / f"a-{policy[:9]}-{seed}", policy, seed, accuracy=SLOW, **config)
            scored = curve(reach(seed), moves)
            make(root / f"b-{policy[:9]}-{seed}", policy, seed, moves, scored, pace=PACE, seconds=seconds, **config)
    return root


def test_ratios_are_paired_by_seed_and_their_interval_is_that_of_the_logarithms(tmp_path):
    results = fp.load(both(tmp_path), target=0.8)
    (found,) = comparisons(results._rows)
    moves = np.array([12 + seed for seed in range(SEEDS)])
    logs = np.log(10.0 * moves / 360.0)
    half = stats.t.ppf(0.975, SEEDS - 1) * logs.std(ddof=1) / math.sqrt(SEEDS)
    ratio = found.ratios["hours_to"]
    assert ratio.mean == pytest.approx(math.exp(logs.mean()))
    assert (ratio.low, ratio.high) == pytest.approx((math.exp(logs.mean() - half), math.exp(logs.mean() + half)))
    assert ratio.inverse.low == pytest.approx(1 / ratio.high)
    assert found.ratios["tasks_to"].mean == pytest.approx(math.exp(np.log((2 + 4 * moves) / 24.0).mean()))
    assert found.ratios["gigabytes_to"].mean == pytest.approx(math.exp(np.log(70.0 * moves / 2400.0).mean()))
    assert found.ratios["messages_to"].mean == pytest.approx(math.exp(np.log(7.0 * moves / 48.0).mean()))


def test_the_verdict_says_how_much_sooner_and_for_what(tmp_path):
    results = fp.load(both(tmp_path), target=0.8)
    (said,) = results.data()["paces"]
    assert said == (
        "uniform: asynchronous reaches 80% 2.2 to 2.9 times sooner than rounds, for 0.37 to 0.48 times the traffic and "
        "2.2 to 2.8 times the client work; 6 paired seeds."
    )
    for format in ("text", "markdown", "latex"):
        assert "times sooner than rounds" in " ".join(results.table(format).split())
    assert said in str(results._repr_html_())


def test_rounds_are_no_axis_of_a_comparison_of_paces(tmp_path):
    results = fp.load(both(tmp_path), target=0.8)
    heads = results._sheet.heads
    assert not [head for head in heads if "rounds" in head]
    assert [head for head in heads if "80%" in head] == ["minutes to 80%", "GB sent to 80%", "client tasks to 80%"]
    assert heads[-3:] == ["times sooner", "times the traffic", "times the client work"]
    assert "6 rounds and 40 moves of the model" in results._sheet.title
    alone = fp.load(*(tmp_path / f"b-uniform-{seed}" for seed in range(SEEDS)), target=0.8)
    assert not is_mixed(alone._rows)
    assert "moves to 80%" in alone._sheet.heads  # of one pace they are
    assert alone.data()["paces"] == []
    assert "models are evaluated" not in alone.table("text")


INTERVAL = "± is a 95% interval over seeds"
BARE = "without ±: all seeds give the same number, so there is no interval"
STALENESS = "staleness: moves of the model between asking a client and using its answer; a fresh one has 0"
RATIOS = (
    "times sooner, times the ...: compared with rounds, for the same policy; geometric means over seeds, in brackets "
    "95% intervals (*: it excludes 1). A client task is one client's training, used or not"
)
TARGET = "80%: 95% of the test accuracy that uniform has at the end, rounded down to a whole percent"


def test_the_legend_explains_what_is_shown_of_each_pace_and_nothing_else(tmp_path):
    def said(*runs, shown, given=True, target=0.8):
        return legend(fp.load(*runs, target=target)._rows, shown, "uniform", given=given)

    both(tmp_path)
    assert said(tmp_path, shown=["tasks_to", "stale_mean"]) == [INTERVAL, BARE, STALENESS, RATIOS]
    assert said(tmp_path, shown=["hours_to"]) == [INTERVAL]
    assert said(tmp_path, shown=["rounds_to"]) == [INTERVAL, BARE, RATIOS]
    assert said(tmp_path, shown=["stale_mean"]) == [INTERVAL, STALENESS]
    stream = [tmp_path / f"b-uniform-{seed}" for seed in range(SEEDS)]
    assert said(*stream, shown=["tasks_to", "stale_mean"]) == [INTERVAL, STALENESS]
    assert said(*stream, shown=["rounds_to"]) == [INTERVAL]
    rounds = [tmp_path / f"a-uniform-{seed}" for seed in range(SEEDS)]
    assert said(*rounds, shown=["tasks_to", "stale_mean"], given=False) == [BARE, TARGET]
    other = "buffered(concurrency=20, size=10)"
    for seed in range(SEEDS):
        make(tmp_path / f"c-{seed}", "uniform", seed, 40, curve(12, 40), pace=other, seconds=10.0)
    two = [*stream, *(tmp_path / f"c-{seed}" for seed in range(SEEDS))]
    assert said(*two, shown=["rounds_to"])[-1] == RATIOS.replace("rounds", "the first pace")


def test_each_pace_is_scored_over_all_that_was_played_under_it(tmp_path):
    """40 moves are not cut to 6 because the runs in rounds have 6; and a shorter run cuts those of its pace alone."""
    both(tmp_path, reach=lambda seed: 30)
    make(tmp_path / "short", "uniform", SEEDS, 35, curve(30, 35), pace=PACE)
    results = fp.load(tmp_path, target=0.8)
    rounds, stream = results._rows
    assert [run.last for run in rounds.group.runs] == [6] * SEEDS
    assert {run.last for run in stream.group.runs} == {35}
    assert stream.scores["hours_to"].reached == SEEDS + 1
    notes = [note for note in results.notes if "all scores are of the first" in note]
    assert notes == ["the runs have 35 to 40 moves of the model; all scores are of the first 35 moves of the model"]


def test_csv_and_json_have_the_ratios_with_all_digits(tmp_path):
    results = fp.load(both(tmp_path), target=0.8)
    ratio = comparisons(results._rows)[0].ratios["hours_to"]
    rows = list(csv.DictReader(io.StringIO(results.table("csv"))))
    (row,) = [each for each in rows if each["score"] == "hours_to" and each["pace"] == PACE]
    assert float(row["ratio_mean"]) == ratio.mean
    assert (row["ratio_to"], row["ratio_n"], row["ratio_clear"]) == ("uniform, rounds", "6", "True")
    assert all(not each["ratio_to"] for each in rows if each["pace"] == "")
    stored = json.loads(results.table("json"))["rows"][1]["scores"]["hours_to"]["ratios"]
    assert stored[0]["to"] == {"policy": "uniform", "pace": "rounds"}
    assert stored[0]["high"] == ratio.high


def test_no_difference_is_said_to_be_none_that_could_be_shown(tmp_path):
    results = fp.load(both(tmp_path, reach=lambda seed: (20, 60)[seed % 2], moves=80), target=0.8)
    (said,) = results.data()["paces"]
    assert said.startswith("uniform: no difference in the time to 80% could be shown: asynchronous takes ")
    assert said.endswith("6 paired seeds.")


def test_later_is_called_later(tmp_path):
    results = fp.load(both(tmp_path, reach=lambda seed: 70 + seed, moves=80), target=0.8)
    (said,) = results.data()["paces"]
    assert "reaches 80% in 2.0 to 2.1 times the time, so later, compared with rounds" in said


def test_one_seed_has_a_ratio_and_no_interval(tmp_path):
    results = fp.load(both(tmp_path, seeds=1), target=0.8)
    (said,) = results.data()["paces"]
    assert "3.0 times sooner than rounds" in said
    assert said.endswith("one seed: a difference may be chance.")
    stored = results.data()["rows"][1]["scores"]["hours_to"]["ratios"][0]
    assert (stored["low"], stored["high"], stored["n"], stored["clear"]) == (None, None, 1, False)


@pytest.mark.parametrize(
    ("reach", "moves", "said"),
    [
        (lambda seed: 99, 40, "80% was never reached by asynchronous; it was by rounds with 6 of 6 seeds."),
        (
            lambda seed: 99,
            20,
            "80% was never reached by asynchronous; it was by rounds with 6 of 6 seeds. The runs of asynchronous end "
            "before the others reach it: give them more moves of the model.",
        ),
        (
            lambda seed: 12 if seed else 99,
            40,
            "80% was reached by asynchronous with 5 of 6 seeds and rounds with 6 of 6 seeds, so there is no ratio: the "
            "seeds that reached it are not all.",
        ),
    ],
    ids=["never", "too short", "some"],
)
def test_a_level_that_is_not_reached_is_no_ratio(tmp_path, reach, moves, said):
    results = fp.load(both(tmp_path, reach=reach, moves=moves), target=0.8)
    assert results.data()["paces"] == [f"uniform: {said}"]
    assert "times sooner" not in results._sheet.heads


def test_a_level_that_nobody_reaches(tmp_path):
    results = fp.load(both(tmp_path), target=0.95)
    assert results.data()["paces"] == [
        "uniform: 95% was never reached, neither by asynchronous nor by rounds (6 seeds)."
    ]


def test_the_default_level_is_reached_under_both_paces(tmp_path):
    """95% of what the first policy has at the end, under the pace where that is less."""
    for seed in range(3):
        make(tmp_path / f"r{seed}", "uniform", seed, accuracy=[0.1, 0.2, 0.5, 0.6, 0.6, 0.6])
        make(tmp_path / f"b{seed}", "uniform", seed, 20, curve(9, 20), pace=PACE)
    results = fp.load(tmp_path)
    assert results.target == 0.57
    assert {score.reached for row in results._rows for score in [row.scores["tasks_to"]]} == {3}
    assert "under the worse pace" in results.table("text").replace("\n", " ")


def test_rounds_with_over_selection_are_compared_with_the_policy_inside(tmp_path):
    for seed in range(3):
        for name, policy in {"a": "over-select(uniform, 1.3)", "b": "uniform"}.items():
            make(tmp_path / f"{name}{seed}", policy, seed, accuracy=SLOW)
        make(tmp_path / f"c{seed}", "uniform", seed, 20, curve(9, 20), pace=PACE)
    results = fp.load(tmp_path, target=0.8)
    said = results.data()["paces"]
    assert [each.split(", for")[0] for each in said] == [
        "uniform: asynchronous reaches 80% 4.0 times sooner than rounds of over-select(uniform, 1.3)",
        "uniform: asynchronous reaches 80% 4.0 times sooner than rounds",
    ]
    (row,) = [row for row in results._sheet.rows if PACE in row.names]
    assert row.cells[-3].main == "4.0, 4.0"
    rows = [row for row in csv.DictReader(io.StringIO(results.table("csv"))) if row["score"] == "hours_to"]
    assert rows[-1]["ratio_to"] == "over-select(uniform, 1.3), rounds; uniform, rounds"


def test_two_paces_without_rounds_are_called_by_their_names(tmp_path):
    other = "buffered(concurrency=6, size=6)"
    for seed in range(3):
        make(tmp_path / f"a{seed}", "uniform", seed, 20, curve(9, 20), pace=PACE)
        make(tmp_path / f"b{seed}", "uniform", seed, 20, curve(18, 20), pace=other)
    (said,) = fp.load(tmp_path, target=0.8).data()["paces"]
    assert said.startswith(f"uniform: {other} reaches 80% in 2.0 times the time, so later, compared with {PACE}")


def test_places_are_kept_apart_and_named(tmp_path):
    for world in ("volatile", "phones"):
        both(tmp_path / world, seeds=2, world={"name": world, "num_clients": 12})
    said = fp.load(tmp_path, target=0.8).data()["paces"]
    assert [each.split(":")[0] for each in said] == [
        "uniform (phones(num_clients=12))",
        "uniform (volatile(num_clients=12))",
    ]


def test_a_world_in_which_nothing_takes_time_is_compared_by_work(tmp_path):
    results = fp.load(both(tmp_path, seconds=0.0), target=0.8)
    (said,) = results.data()["paces"]
    assert "times the client work of rounds" in said
    assert "sooner" not in said


def test_without_training_nothing_is_compared_and_that_is_said(tmp_path):
    for seed in range(2):
        make(tmp_path / f"r{seed}", "uniform", seed)
        make(tmp_path / f"b{seed}", "uniform", seed, 20, pace=PACE)
    results = fp.load(tmp_path)
    (said,) = results.data()["paces"]
    assert said.startswith("Paces are compared by the time to a level of a metric, and there is none")
    assert not [head for head in results._sheet.heads if "times" in head]


def test_staleness_and_work_are_scores(tmp_path):
    results = fp.load(both(tmp_path, seeds=1), target=0.8)
    frame = results.frame().set_index("pace")
    stored = fp.store.read_selections(tmp_path / "b-uniform-0").to_pandas()
    used = stored[stored.status == "DONE"].staleness
    assert frame.loc[PACE, "stale_mean"] == used.mean()
    assert frame.loc[PACE, "stale_max"] == used.max()
    assert frame.loc[PACE, "flying"] == 6
    assert frame.loc[PACE, "tasks"] == 6 + 39 * 4
    assert frame.loc["", "tasks"] == 24
    assert math.isnan(frame.loc["", "stale_mean"])
    assert "mean staleness" in results._sheet.heads


def test_the_methods_paragraph_says_what_the_paces_are_and_cites_them(tmp_path):
    results = fp.load(both(tmp_path, seeds=3), target=0.8)
    text = results.table("methods")
    assert r"without rounds~\cite{nguyen2022federated} at the pace \texttt{buffered(concurrency=6, size=3)}" in text
    assert r"until the model has moved 40 times" in text
    assert r"until 80\% is reached, as ratios for the same policy and seed" in text
    assert "nguyen2022federated" in results.table("bibtex")
    other = fp.load(make(tmp_path / "c", pace="buffered(concurrency=6, mixing='hinge', size=1)"))
    assert "xie2019asynchronous" in other.table("bibtex")
    assert "Paces are compared" not in other.table("methods")
