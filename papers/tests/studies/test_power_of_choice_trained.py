"""The trained studies of Power-of-Choice: a few rounds on small data, and claims on made-up results."""

import copy
import json
import warnings

import numpy as np
import pytest

import fedpick as fp
from fedpick.core.errors import DataError, SettingError
from fedpick.data.sources import loader
from fedpick.simulate.round import Updates
from fedpick_papers.studies import _trained, reproduce, save
from fedpick_papers.studies._trained import Halved, ideal_world, play_trained, reached, split
from fedpick_papers.studies.power_of_choice import _fashion, fig4, fig5, fig8, fig9, fig11, fig12, fig14, table1, table2

FIG4, FIG5, FIG8, FIG9, TABLE1, TABLE2 = (one.STUDY for one in (fig4, fig5, fig8, fig9, table1, table2))
FIG11, FIG12, FIG14 = (one.STUDY for one in (fig11, fig12, fig14))

SMALL = {
    "data": "digits",
    "clients": 10,
    "model": "mlp(hidden=(8, 6), dropout=0.5)",
    "rounds": 4,
    "seeds": 2,
    "evaluate_every": 1,
    "loss_every": 2,
    "steps": 3,
    "batch": 16,
}
TINY = {
    FIG4: {
        "problems": {"even sizes": "synthetic(1, 1, test=0, size=30)"},
        "clients": 8,
        "cohort_sizes": [1],
        "rounds": 6,
        "seeds": 2,
        "steps": 3,
    },
    TABLE1: SMALL,
    TABLE2: {**SMALL, "rounds": 3, "rates": [0.5], "level": 0.1},
    FIG8: {**SMALL, "rates": [0.005]},
    FIG5: {**SMALL, "rates": [0.005]},
}


@pytest.mark.slow
@pytest.mark.parametrize("study", TINY, ids=lambda study: study.id)
def test_a_study_runs_scores_plots_and_saves(study, tmp_path):
    outcome = reproduce(study.id, workers=1, **TINY[study])
    assert outcome.findings
    told = " ".join(f"{f.claim} {f.ours} {f.note}" for f in outcome.findings)
    assert "nan" not in told
    save(outcome, tmp_path)
    text = (tmp_path / "result.json").read_text()
    assert "NaN" not in text
    assert study.score(json.loads(text)) == outcome.findings


@pytest.mark.parametrize("study", TINY, ids=lambda study: study.id)
def test_quick_changes_rounds_seeds_and_when_the_loss_is_measured_only(study):
    assert set(study.quick) - {"loss_every"} == {"rounds", "seeds"}
    assert all(study.quick[name] < study.settings[name] for name in study.quick)
    settings = study.choose(True)
    for name in {"evaluate_every", "loss_every"} & set(settings):  # so that every curve has a point
        assert settings["rounds"] % settings[name] == 0


def test_policies_of_one_seed_meet_the_same_data_and_seeds_do_not():
    items = TABLE1.items(TABLE1.choose(**SMALL))
    first = split(items[0]["data"], items[0]["partition"], items[0]["clients"], 0)
    assert first is split(items[-2]["data"], items[-2]["partition"], items[-2]["clients"], 0)
    assert not np.array_equal(first.sizes, split("digits", items[1]["partition"], 10, 1).sizes)


def test_the_tables_have_the_paper_s_cohorts_and_rates():
    settings = TABLE2.choose()
    items = TABLE2.items(settings)
    assert len(items) == 6 * 2 * 8
    assert [item["cohort_size"] for item in items[::8]] == 2 * [10, 3, 3, 3, 3, 3]
    assert {item["lr"] for item in items} == {0.005, 0.0005}
    assert all(item["away"] is None and item["partition"] == "dirichlet(alpha=2)" for item in items)
    assert {item["away"] for item in FIG8.items(FIG8.choose())} == {0.2}


def test_fig4_has_the_paper_s_candidates():
    items = FIG4.items(FIG4.choose(seeds=1))
    texts = [item["policy"] for item in items[8:12]]  # m = 3
    assert texts == [
        "size-weighted",
        "pow-d(candidates=6)",
        "pow-d(candidates=30)",
        "pow-d(schedule=step(30, 3, at=400))",
    ]


def test_data_that_cannot_be_had_is_the_loader_s_error(monkeypatch, tmp_path):
    def offline(name, *rest):
        raise DataError(f"{name} is not in the cache and cannot be fetched")

    monkeypatch.setenv("FEDPICK_DATA", str(tmp_path))
    monkeypatch.setattr(loader, "_get", offline)
    _trained.dataset.cache_clear()
    _trained.split.cache_clear()
    with pytest.raises(DataError, match="fashion-mnist is not in the cache and cannot be fetched"):
        reproduce(TABLE1.id, rounds=1, seeds=1, workers=1)


# ---- what runs share


class Toy:
    """A trainer whose loss is 1 / round; evaluated in even rounds, its training loss in every fourth."""

    def init(self, seed):
        return {"round": 0}

    def probe(self, model, ids, batch, rng):
        return ids.astype(float)

    def train(self, model, ids, used, epochs, round, rng):
        assert (epochs == 1).all()
        return Updates(np.full(len(ids), 1.0 / round))

    def aggregate(self, model, choice, outcome, updates):
        return {"round": model["round"] + 1}

    def evaluate(self, model, round):
        if round % 2:
            return {}
        found = {"accuracy": model["round"] / 10}
        return found | ({"train_loss": 1.0} if round % 4 == 0 else {})


def test_curves_hold_what_each_round_gave():
    world = ideal_world(fp.Clients(np.ones(5)))
    curves = play_trained(fp.PowerOfChoice(2, candidates=5), world, Toy(), rounds=9, seed=3)
    assert curves.rounds.tolist() == [2, 4, 6, 8]
    assert curves.clock.tolist() == [0.0] * 4
    assert curves.metrics["accuracy"].tolist() == [0.2, 0.4, 0.6, 0.8]
    assert np.isnan(curves.metrics["train_loss"][[0, 2]]).all()
    at, values = curves.metric("train_loss")
    assert (at.tolist(), values.tolist()) == ([4, 8], [1.0, 1.0])
    assert curves.last("accuracy", over=2) == pytest.approx(0.7)
    assert curves.losses == pytest.approx(1.0 / np.arange(1, 10))
    assert curves.counts.tolist() == [0, 0, 0, 9, 9]  # the two highest losses, always
    assert (curves.parallel <= curves.t_comp).all()
    assert (curves.parallel > 0).all()
    in_a_row, parallel = curves.mean_t_comp()
    assert in_a_row == pytest.approx(curves.t_comp[1:].mean())
    assert parallel == pytest.approx(curves.parallel[1:].mean())


def test_computation_time_leaves_evaluation_out_and_shares_local_work(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(_trained.time, "perf_counter", lambda: now[0])

    class Slow(Toy):
        def probe(self, model, ids, batch, rng):
            now[0] += 5.0
            return super().probe(model, ids, batch, rng)

        def train(self, *rest):
            now[0] += 8.0
            return super().train(*rest)

        def aggregate(self, *rest):
            now[0] += 0.5
            return super().aggregate(*rest)

        def evaluate(self, *rest):
            now[0] += 100.0
            return super().evaluate(*rest)

    world = ideal_world(fp.Clients(np.ones(5)))
    curves = play_trained(fp.PowerOfChoice(2, candidates=5), world, Slow(), rounds=3, seed=0)
    assert curves.t_comp.tolist() == [13.5] * 3
    assert curves.parallel.tolist() == [1.0 + 4.0 + 0.5] * 3  # 5 were probed, 2 trained


def test_a_round_that_nobody_used_has_no_loss():
    class Ruined(Toy):
        def train(self, model, ids, used, epochs, round, rng):
            return Updates(np.full(len(ids), np.nan))

    world = ideal_world(fp.Clients(np.ones(5)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        curves = play_trained(fp.Uniform(2), world, Ruined(), rounds=2, seed=0)
    assert np.isnan(curves.losses).all()
    assert curves.metrics["accuracy"].tolist() == [0.0]


def test_halves_take_turns_in_the_ideal_world():
    world = ideal_world(fp.Clients(np.ones(20)), fp.worlds.Halves(0.1))
    curves = play_trained(fp.PowerOfChoice(9, candidates=20), world, Toy(), rounds=2, seed=0)
    assert curves.counts.sum() == 18
    assert curves.counts.max() == 1  # nobody is there twice in a row


def test_reached_is_the_first_time():
    assert reached([2, 4, 6], [0.1, 0.7, 0.6], 0.6) == 4.0
    assert reached([2, 4, 6], [3.0, 0.7, 0.9], 0.7, below=True) == 4.0
    assert np.isnan(reached([2, 4], [0.1, 0.2], 0.6))
    assert _fashion.for_good([2, 4, 6], [0.7, 0.5, 0.6], 0.6) == 6.0
    assert _fashion.for_good([2, 4, 6], [0.7, 0.8, 0.6], 0.6) == 2.0
    assert np.isnan(_fashion.for_good([2, 4, 6], [0.7, 0.8, 0.5], 0.6))


def test_a_learning_rate_must_be_above_zero():
    with pytest.raises(SettingError, match=r"Halved: start = 0.0, but must be > 0"):
        Halved(0.0, (3,))


# ---- claims

SEEDS = np.tile([-1.0, -0.6, -0.2, 0.2, 0.6, 1.0], 2)  # twelve, since some differences are alike


def verdicts(study, result):
    return [finding.verdict for finding in study.score(result)]


def fig4_result(rand, few, many, ada, ends=(0.3, 0.31, 0.4, 0.305)):
    names = ("rand", "d=2m", "d=10m", "ada")
    hits = dict(zip(names, (rand, few, many, ada), strict=True))
    one = {
        "reached": {name: None if hit is None else (hit + SEEDS).tolist() for name, hit in hits.items()},
        "end": {name: (end + 0.001 * SEEDS).tolist() for name, end in zip(names, ends, strict=True)},
    }
    one["reached"] = {name: [None] * 12 if hit is None else hit for name, hit in one["reached"].items()}
    one["least"] = {name: 2 * (hit or 400) + SEEDS for name, hit in hits.items()}
    return {
        "rounds": 800,
        "level": 0.7,
        "check": {},
        "optimum": {"even": [0.3] * 12},
        "problems": {"even": {"1": one, "3": copy.deepcopy(one)}},
    }


def test_fig4_claims():
    good, marked = fig4_result(300, 148, 95, 95), fig4_result(264, 148, 95, 70)
    assert verdicts(FIG4, good) == ["reproduced"] * 6 + ["contradicted"]  # the rounds of Fig. 4(c) are others
    assert verdicts(FIG4, marked)[-1] == "reproduced"
    assert FIG4.score(good)[-1].ours == "ada 95 ± 0; rand 300 ± 0"
    worse = fig4_result(100, 200, 300, 500, ends=(0.4, 0.3, 0.3, 0.9))
    assert verdicts(FIG4, worse) == ["contradicted"] * 7
    # Sooner, but not so much; and adapow-d keeps the floor that it should lose.
    some = fig4_result(300, 250, 200, 200, ends=(0.3, 0.31, 0.4, 0.4))
    sooner = ["direction only"] * 2
    assert verdicts(FIG4, some) == [*sooner, "reproduced", "contradicted", *sooner, "contradicted"]
    assert "m = 3: d=10m is faster than rand holds, but not by 3.00 times: ratio 1.50" in FIG4.score(some)[0].reason


def test_fig4_adapow_d_is_compared_with_d_10m_and_with_the_least_loss_of_rand():
    result = fig4_result(300, 148, 95, 150)  # twice as fast as rand, but not as d = 10m
    result |= {name: {"power-law sizes": result[name]["even"]} for name in ("problems", "optimum")}
    found = FIG4.score(result)
    assert [one.extension for one in found] == [False] * 5 + [True, False]
    found = found[:-1]
    assert [one.verdict for one in found[-3:]] == ["contradicted", "direction only", "direction only"]
    assert "m = 1: rounds of ada over d=10m's is contradicted: ratio 1.58" in found[-3].reason
    assert all(one.extension for one in FIG4.score(fig4_result(300, 148, 95, 150)))  # other readings of the sizes
    for one in result["problems"]["power-law sizes"].values():  # as results were
        del one["least"]
        one["curves"] = {key: {"at": [2, 4, 6], "mean": [0.5, 0.3, 0.2]} for key in ("rand", "ada")}
    least = FIG4.score(result)[-3]
    assert least.verdict == "not testable here"
    assert least.ours.endswith("m = 3: rand 4, adapow-d 4")


def test_fig4_counts_what_is_not_reached_as_all_the_rounds():
    found = FIG4.score(fig4_result(None, 148, 95, 95) | {"check": {"d=2m": "2.0 times"}})
    assert found[0].ours.startswith("m = 1: 8.4 (")  # 800 / 95
    table = FIG4.body(fig4_result(None, 148, 95, 95)).splitlines()
    assert "| even: pow-d, d=10m, times as fast as rand | 8.4 (3) | 8.4 (3) |" in table
    assert "| even: rand, rounds to the level | not in 800 | not in 800 |" in table
    assert "not at the level in 800 rounds, counted as 800: rand at m = 1 in 12 of 12" in found[0].note
    assert "an independent program: 2.0 times" in found[1].note


def table_result(accuracy, first, ms=(11.0, 4.0, 5.0, 3.9, 3.8, 4.1)):
    names = list(_fashion.SCHEMES)
    hits = {
        name: [None] * 12 if hit is None else (hit + SEEDS).tolist() for name, hit in zip(names, first, strict=True)
    }
    seconds = {name: (0.001 * t * (1 + 0.01 * SEEDS)).tolist() for name, t in zip(names, ms, strict=True)}
    one = {
        "accuracy": {name: (mean + 0.1 * SEEDS).tolist() for name, mean in zip(names, accuracy, strict=True)},
        "first": hits,
        "for_good": hits,
        "of_mean": {name: hit[0] for name, hit in hits.items()},
        "t_comp": seconds,
        "parallel": seconds,
    }
    shared = {
        "rounds": 400,
        "level": 0.6,
        "over": 5,
        "evaluate_every": 2,
        "tried": {"accuracy": ["tried: this"], "R60": ["tried: that"]},
    }
    return {**shared, "partitions": {"alpha = 0.3": {"0.0005": one}}}


PRINTED = ((71.21, 64.87, 76.47, 76.63, 76.56, 73.28), (172, 234, 89, 80, 98, 121))
PRINTED2 = ((63.50, 66.03, 73.81, 73.36, 72.52, 70.64), (135, 136, 82, 89, 99, 131))


@pytest.mark.parametrize(("study", "printed"), [(TABLE1, PRINTED), (TABLE2, PRINTED2)])
def test_table_claims_that_hold(study, printed):
    found = study.score(table_result(*printed))
    assert [one.verdict for one in found] == ["reproduced"] * 10
    assert all("tried" not in one.note for one in found)
    assert [one.extension for one in found] == [False] * 9 + [True]  # that pow-d takes longer is ours


def test_rounds_are_compared_in_one_direction_and_less_is_asked_where_the_table_has_less():
    accuracy, rounds = TABLE2.score(table_result(*PRINTED2))[6:8]
    assert accuracy.paper == "'at least approximately 10%' higher"
    assert accuracy.note == "less is asked for where the table itself has less: cpow-d 9.9, rpow-d 9.0 points"
    assert TABLE1.score(table_result(*PRINTED))[6].note == ""
    assert rounds.paper.startswith("rand's over theirs: pow-d 1.65 (in print 0.61 times rand's); cpow-d 1.52")
    assert rounds.ours.startswith("rand's over theirs: pow-d 1.65 (")
    late = TABLE2.score(table_result(PRINTED2[0], (135, 136, 270, 89, 99, 131)))[7]
    assert late.ours.startswith("rand's over theirs: pow-d 0.50 (")
    assert "R60 of rand, C=0.1 > pow-d's is contradicted: ratio 0.50" in late.reason


def test_thresholds_are_those_that_a_study_uses_in_its_figure_s_own_words():
    assert set(TABLE1.limits) == {"R60, the same", "as well"}
    assert set(TABLE2.limits) == {"R60, the same"}  # there the variants are said to be lower
    assert FIG5.limits == FIG12.limits == {}
    words = {study.id[16:]: study.limits["similar"].why.partition(" is read")[0] for study in (FIG9, FIG11, FIG14)}
    assert words == {
        "fig9": "points of accuracy: 'as good as', 'similarly'",
        "fig11": "points of accuracy: 'as well as', 'approximately equal'",
        "fig14": "points of accuracy: 'similarly'",
    }


def test_table_claims_that_fail():
    result = table_result((90.0, 89, 84, 80, 80, 85), (5, 4, 300, 301, 302, 200), (3.0, 5.0, 4.0, 5.0, 5.0, 5.0))
    found = TABLE1.score(result)
    assert [one.verdict for one in found] == ["contradicted"] * 10
    assert found[0].ours == "ours less the print: +3.4 to +24.1 points"
    assert "tried: this" in found[0].note
    assert "tried: that" in found[1].note
    assert "cpow-d is like pow-d (points) is contradicted: -4.0" in found[3].reason
    assert "cpow-d > afl (points) is contradicted: -5.0" in found[4].reason
    assert "rand, C=0.1 > cpow-d, one after another is contradicted" in found[8].reason
    turned = TABLE2.score(table_result((90.0, 89, 80, 84, 84, 85), PRINTED2[1]))
    assert "pow-d > cpow-d (points) is contradicted: -4.0" in turned[3].reason


def test_table_claims_that_fail_in_parts():
    accuracy, first = (71.21, 64.87, 76.47, 76.63, 60.0, 73.28), (172, 234, 89, 80, None, 20)
    found = TABLE1.score(table_result(accuracy, first, (11.0, 4.0, 3.0, 3.9, 3.8, 4.1)))
    assert [one.verdict for one in found] == ["contradicted"] * 8 + ["reproduced", "contradicted"]
    assert "rpow-d never" in found[1].note
    assert found[6].reason.startswith(
        "2 of 3 parts are reproduced. rpow-d > rand, C=0.1 (points) is contradicted: -11.2"
    )


def test_as_well_says_nothing_where_rand_does_as_well():
    accuracy = (71.21, 75.5, 76.47, 76.63, 76.56, 73.28)
    found = TABLE1.score(table_result(accuracy, PRINTED[1]))[3]
    assert (found.claim[-47:], found.verdict) == (
        "cpow-d and rpow-d are as accurate as pow-d (Fig. 6)"[-47:],
        "vacuous",
    )


def test_the_printed_table_stands_beside_ours():
    lines = TABLE1.body(table_result(*PRINTED)).splitlines()
    head = next(line for line in lines if line.startswith("| policy |"))
    assert head == "| policy | accuracy, %, rate 0.0005 | R60, rate 0.0005 | t_comp, s |"
    row = next(line for line in lines if line.startswith("| rand |"))
    assert row == "| rand | 64.87 ± 0.05 (64.87 ± 1.97) | 234 ± 0 (234) | 0.004 ± 0.000 (0.36) |"


def test_what_a_run_is_at_round_50_is_no_claim_of_the_paper():
    result = table_result(*PRINTED)
    (rates,) = result["partitions"].values()
    rates["0.0005"]["at_moments"] = {name: {"50": values} for name, values in rates["0.0005"]["accuracy"].items()}
    (early,) = [one for one in TABLE1.score(result) if "at round 50" in one.claim]
    assert (early.extension, early.verdict) == (True, "reproduced")
    assert early.ours.startswith("pow-d +11.6 ± 0.0 points; cpow-d")


def test_another_learning_rate_is_no_claim_of_the_paper():
    result = table_result(*PRINTED)
    (rates,) = result["partitions"].values()
    rates["0.005"] = rates["0.0005"]  # as printed: with it no printed number of rounds can be had
    assert [one.extension for one in TABLE1.score(result)] == [False] * 8 + [True] * 8 + [False, True]
    for study in (FIG5, FIG8, FIG9, FIG11, FIG12, FIG14):
        assert "0.005 as printed, which cannot have made" in study.about
        assert "Changed on 2026-11-19, after the runs" in study.about


def test_three_seeds_far_apart_and_one_alone_leave_a_table_undecided():
    for seeds in ([-12.0, 2.0, 10.0], [0.0]):
        result = table_result(*PRINTED)
        (rates,) = result["partitions"].values()
        one = {"accuracy": {}, "first": {}, "for_good": {}}
        for i, name in enumerate(_fashion.SCHEMES):
            spread = (-1) ** i * np.array(seeds)  # the policies' own, not shared
            one["accuracy"][name] = (PRINTED[0][i] + spread).tolist()
            one["first"][name] = one["for_good"][name] = (PRINTED[1][i] + 5 * spread).tolist()
        rates["0.0005"] |= one
        verdicts = [finding.verdict for finding in TABLE1.score(result)]
        few = "too few seeds" if len(seeds) == 1 else "undecided"
        assert verdicts[0] == verdicts[1] == verdicts[2] == few
        assert "reproduced" not in verdicts[:8]


def test_fig8_claims():
    def result(rand, powd, rpowd):
        means = {"rand": rand, "pow-d": powd, "rpow-d": rpowd}
        one = {"accuracy": {name: (mean + 0.1 * SEEDS).tolist() for name, mean in means.items()}}
        shared = {"rounds": 400, "over": 5, "silent": []}
        return {**shared, "partitions": {"alpha = 2": {"0.0005": one}, "alpha = 0.3": {"0.0005": one}}}

    assert verdicts(FIG8, result(60.0, 70.0, 70.0)) == ["reproduced"] * 2
    assert verdicts(FIG8, result(60.0, 70.0, 65.0)) == ["reproduced", "direction only"]
    assert verdicts(FIG8, result(60.0, 59.0, 58.0)) == ["contradicted"] * 2
    assert "rpow-d > rand (points) is contradicted: -2.0" in FIG8.score(result(60.0, 61.0, 58.0))[0].reason


def test_fig9_has_the_paper_s_clients_and_candidates():
    items = FIG9.items(FIG9.choose(seeds=1))
    assert len(items) == 7 * 2 * 2
    assert {(item["data"], item["clients"], item["cohort_size"]) for item in items} == {("mnist", 500, 15)}
    assert {item["policy"] for item in items} >= {"pow-d(candidates=75)", "rpow-d(candidates=250)"}
    assert FIG9.about.startswith("MNIST digits, of which there are 60,000, stand in for the digits of EMNIST")
    assert "divided among 500 clients" in FIG9.about
    assert FIG9.quick == FIG5.quick


def fig9_result(good):
    names = list(FIG9.settings["schemes"])
    ends = {"alpha = 2": (60, 70, 71, 72, 70, 65, 70), "alpha = 0.3": (60, 70, 71, 72, 70, 70, 66)}
    if not good:
        ends = {"alpha = 2": (80, 70, 71, 72, 60, 75, 60), "alpha = 0.3": (80, 70, 71, 72, 60, 60, 66)}
    partitions = {}
    for partition, means in ends.items():
        accuracy = {name: (mean + 0.1 * SEEDS).tolist() for name, mean in zip(names, means, strict=True)}
        early = {name: {"50": values} for name, values in accuracy.items()}
        early["afl"] = {"50": [x - (5 if good else -20) for x in accuracy["afl"]]}
        partitions[partition] = {"0.0005": {"accuracy": accuracy, "at_moments": early}}
    return {"rounds": 350, "over": 5, "partitions": partitions}


def test_fig9_claims():
    assert verdicts(FIG9, fig9_result(True)) == ["reproduced"] * 7
    assert verdicts(FIG9, fig9_result(False)) == ["contradicted"] * 7
    little = fig9_result(True)  # 'significantly higher' is read as a point at least
    of = little["partitions"]["alpha = 2"]["0.0005"]["accuracy"]
    of["rand"] = [x - 0.4 for x in of["d=30"]]
    assert verdicts(FIG9, little)[0] == "direction only"
    slower = fig9_result(True)
    one = slower["partitions"]["alpha = 2"]["0.0005"]
    one["at_moments"]["afl"] = {"50": [x + 5 for x in one["accuracy"]["afl"]]}
    assert "d=30 > afl at round 50 (points) is contradicted: -5.0" in FIG9.score(slower)[1].reason
    for moments in one["at_moments"].values():
        moments.clear()  # as in a run of a few rounds
    assert verdicts(FIG9, slower)[1] == "reproduced"


def test_alike_says_nothing_where_rand_is_alike_too():
    result = fig9_result(True)
    for partition in result["partitions"].values():
        partition["0.0005"]["accuracy"]["rand"] = partition["0.0005"]["accuracy"]["d=30"]
    found = FIG9.score(result)
    assert [f.verdict for f in found if "cpow-d is as good" in f.claim] == ["vacuous"] * 2
    assert "rand is within 2 points of them, too (0.0 at most)" in found[2].reason
    apart = fig9_result(True)["partitions"]["alpha = 2"]["0.0005"]["accuracy"]
    result["partitions"]["alpha = 2"]["0.0005"]["accuracy"]["rand"] = [x - 2.5 for x in apart["d=30"]]
    assert FIG9.score(result)[2].verdict == "reproduced"


def gains_result(study, noise=0.1, **means):
    """The same accuracies in both partitions; the noise is each policy's own."""
    spread = {name: np.roll(SEEDS, 2 * i) for i, name in enumerate(means)}
    accuracy = {name: (mean + noise * spread[name]).tolist() for name, mean in means.items()}
    partitions = {name: {"0.0005": {"accuracy": accuracy}} for name in study.settings["partitions"]}
    return {"rounds": 300, "over": 5, "partitions": partitions}


def test_larger_batches_must_be_better_than_rand_and_afl_by_any_size():
    better = {"rand": 80.0, "pow-d": 81.0, "afl": 80.5}
    assert verdicts(FIG12, gains_result(FIG12, **better)) == ["reproduced"] * 2
    assert verdicts(FIG12, gains_result(FIG12, rand=80.0, **{"pow-d": 81.0}, afl=82.0)) == ["contradicted"] * 2
    assert verdicts(FIG12, gains_result(FIG12, noise=5.0, **better)) == ["undecided"] * 2
    assert "This rule was changed on 2026-11-16, after the run" in FIG12.score(gains_result(FIG12, **better))[0].note


def test_more_local_steps_are_better_at_alpha_2_and_alike_at_0_3():
    def found(gain, noise=0.1):
        return verdicts(FIG14, gains_result(FIG14, noise, rand=80.0, **{"pow-d": 80.0 + gain}))

    assert found(1.0) == ["reproduced", "reproduced"]  # alike with rand itself is not vacuous
    assert found(3.0) == ["reproduced", "contradicted"]
    assert found(-1.0) == ["contradicted", "reproduced"]
    assert found(1.0, noise=5.0) == ["undecided", "undecided"]


def test_fig11_at_alpha_0_3():
    def found(*means, noise=0.1):
        names = ("rand", "pow-d", "cpow-d", "rpow-d", "afl")
        return verdicts(FIG11, gains_result(FIG11, noise, **dict(zip(names, means, strict=True))))[3:]

    assert found(70.0, 76.0, 76.1, 76.2, 75.0) == ["reproduced"] * 3
    assert found(75.5, 76.0, 76.1, 76.2, 75.0) == ["direction only", "vacuous", "reproduced"]
    assert found(70.0, 76.0, 80.0, 76.2, 77.0) == ["reproduced", "contradicted", "contradicted"]
    assert found(70.0, 76.0, 76.1, 76.2, 75.0, noise=9.0)[1:] == ["undecided"] * 2


def test_the_first_paragraph_has_the_cohort_and_the_halving():
    assert "3 (C = 0.03) or 10 (C = 0.1) of them train in a round" in TABLE1.about
    assert "anew for each seed; 10 (C = 0.1) of them train in a round" in FIG11.about
    assert "halved at rounds 150 and 300" in FIG12.about
    assert "Candidates: pow-d d = 6, cpow-d d = 6, rpow-d d = 50." in TABLE1.about
    assert "Candidates: pow-d d = 20, cpow-d d = 20, rpow-d d = 50." in FIG11.about
    assert "Candidates" not in FIG5.about  # its names say d
    assert "halved at round 300: 0.0005" in FIG9.about


def printed_marks(study, *rest):
    """The marks of a study's figure; what the paper prints is bound to its score."""
    return _fashion.printed_marks(study.score.args[0], *rest)


def test_figures_mark_what_is_printed():
    table = table_result(*PRINTED)
    (rates,) = table["partitions"].values()
    marks = printed_marks(TABLE1, table, "alpha = 0.3", rates["0.0005"])
    assert marks["pow-d"] == [(89, 60.0), (400, 76.47)]
    one = {"accuracy": {"rand": [60.0, 62.0], "pow-d": [70.0, 71.0]}}
    fig8_marks = printed_marks(FIG8, {"rounds": 400}, "alpha = 2", one)
    assert fig8_marks == {"pow-d": [(400, 71.0)], "rpow-d": [(400, 66.0)]}
    digits = fig9_result(True)  # no size is printed there
    assert printed_marks(FIG9, digits, "alpha = 2", digits["partitions"]["alpha = 2"]["0.0005"]) == {}
    one = {"accuracy": {"rand": [60.0, 62.0], "afl": [64.0, 66.0], "d=6": [70.0, 71.0]}}
    assert printed_marks(FIG5, {"rounds": 300}, "alpha = 2", one) == {"d=6": [(300, 71.0), (300, 70.0)]}
