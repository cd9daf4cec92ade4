"""Studies of asynchronous training: the task, the tuning of rates, what is counted, and the claims."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

import fedpick as fp
from fedpick.core.errors import FedpickError
from fedpick.experiment import Config
from fedpick.policies import TABLE
from fedpick_papers import studies
from fedpick_papers.studies._study import Reproduction
from fedpick_papers.studies.asynchronous import (
    _play,
    _task,
    guide,
    guided,
    mixing,
    policies,
    scale,
    speed,
    tied,
    updates,
)
from fedpick_papers.studies.tournament._play import POLICIES, WORLDS

IDS = [id for id in studies.STUDIES if id.startswith(("asynchrony/", "fedbuff/", "papaya/", "fedasync/", "pisces/"))]
SMALL = {"task": _task.TASK | {"clients": 40, "level": 0.4}, "tuning": 1, "most": 60, "drawn": "each time"}


def one(kind, C=8, sigma=1.0, **more):
    return _play.item({**SMALL, "paces": _play.KINDS}, kind, C, sigma, seed=3, **more)


# ---- the task


def test_the_level_is_a_share_of_what_the_best_rule_gets():
    """Its accuracy, with the centres estimated from all data: a rule that knows them cannot be much better or worse."""
    found = _task.problem(_task.TASK, seed=1)
    data = found.data.dataset
    x, y = data.x.astype(np.float64), data.y
    means = np.stack([x[y == label].mean(axis=0) for label in range(10)])
    inverse = np.linalg.inv(np.cov((x - means[y]).T))
    scores = data.test_x @ inverse @ means.T - 0.5 * np.einsum("ij,jk,ik->i", means, inverse, means)
    assert found.level == pytest.approx(0.95 * (scores.argmax(axis=1) == data.test_y).mean(), abs=0.01)


def test_labels_follow_the_clients_own_shares():
    found = _task.problem(_task.TASK | {"clients": 30, "examples": 4000}, seed=0)
    np.testing.assert_allclose(found.data.labels / 4000, found.mix, atol=4.5 * 0.5 / np.sqrt(4000))


def test_each_seed_draws_other_data_and_the_same_again():
    a, b = (_task.problem(SMALL["task"], seed).data.dataset.x for seed in (0, 1))
    _task._problem.cache_clear()
    assert not np.array_equal(a, b)
    np.testing.assert_array_equal(a, _task.problem(SMALL["task"], 0).data.dataset.x)


@pytest.mark.parametrize("drawn", _task.DRAWN[1:])
def test_times_are_log_normal_and_go_with_the_labels_only_where_they_should(drawn):
    mix = _task.problem(_task.TASK, 0).mix
    took = np.log(_task.times(mix, 1.5, drawn, seed=0))
    assert np.median(took) == pytest.approx(0.0, abs=0.01)
    assert took.std() == pytest.approx(1.5, rel=0.02)
    by_mean, by_last = (np.corrcoef(np.argsort(np.argsort(x)), took)[0, 1] for x in (mix @ np.arange(10), mix[:, 9]))
    chance = 4.5 / np.sqrt(len(mix))
    assert by_mean > 0.9 if drawn == _task.DRAWN[2] else by_last > 0.9 if drawn == _task.DRAWN[3] else True
    assert drawn != _task.DRAWN[1] or max(abs(by_mean), abs(by_last)) < chance


def test_zipf_s_law_has_its_frequencies_up_to_the_longest():
    """P(s) = s^-1.2 / zeta(1.2), by a long sum; what is longer counts as the longest."""
    total = sum(k**-1.2 for k in range(1, 200_000)) + 200_000**-0.2 / 0.2  # the rest as an integral
    took = _task.times(_task.problem(_task.TASK, 0).mix, 1.2, _task.ZIPF[0], seed=0)
    for seconds in (1, 2, 3, 10):
        assert (took == seconds).mean() == pytest.approx(seconds**-1.2 / total, abs=1 / 500)
    longest = 1 - sum(k**-1.2 for k in range(1, 60)) / total
    assert took.max() == 60
    assert (took == 60).mean() == pytest.approx(longest, abs=1 / 500)
    mix = _task.problem(_task.TASK, 0).mix
    tied, free = (np.corrcoef(_task.times(mix, 1.2, drawn, 0), mix[:, -1])[0, 1] for drawn in _task.ZIPF[::-1])
    assert tied > 0.4
    assert abs(free) < 4.5 / np.sqrt(500)


# ---- runs


@pytest.mark.parametrize("C", [10, 30, 100, 300, 1000])
def test_all_paces_have_the_same_places(C):
    found = _task.problem(_task.TASK | {"clients": 1000, "examples": 2}, 0)
    for kind, pace in _play.KINDS.items():
        run = _play._run(one(kind, C), 0, pace["rates"][0], found)
        if "size" in pace:
            assert run.pace.concurrency == run.policy.cohort_size == C
        else:
            assert (run.policy.asks if pace["over"] > 1 else run.policy.cohort_size) == C
            assert pace["over"] == pytest.approx(C / run.policy.cohort_size, rel=0.04 if C > 10 else 0.05)


@pytest.mark.parametrize("kind", ["rounds", "over-selection", "FedBuff"])
def test_answers_messages_and_times_are_those_of_the_run(kind):
    item = one(kind, 10)
    item["task"] = item["task"] | {"level": 9.0}  # is never reached
    seen = _play.play(item, 3, {"server": 4.0})
    again = _play._run(item, 3, {"server": 4.0}, _task.problem(item["task"], 3))
    records = list(again.rounds(seen["moves"]))
    used = sum(int((record.status == fp.Status.DONE).sum()) for record in records)
    assert not seen["reached"]
    assert seen["answers"] == used >= item["most"] > used - 10
    assert seen["messages"] == sum(record.messages for record in records) >= 2 * used
    assert seen["seconds"] == records[-1].clock
    each = {"rounds": 10, "over-selection": 8, "FedBuff": 10}[kind]
    assert used == each * seen["moves"]
    assert (seen["staleness"] > 0) == (kind == "FedBuff")


def test_a_run_ends_at_the_level():
    seen = _play.play(one("rounds"), 3, {"server": 8.0})
    assert seen["reached"]
    assert seen["accuracy"] >= seen["level"]
    assert seen["answers"] < SMALL["most"]


def test_pisces_runs_with_its_policy_and_pace_and_is_looked_at_after_as_many_answers():
    found = _task.problem(SMALL["task"], 3)
    item = {**one("rounds"), "pace": guided.PACES["Pisces"], "drawn": _task.ZIPF[0]}
    run = _play._run(item, 3, {"server": 4.0}, found)
    assert type(run.policy) is fp.Pisces
    assert (run.pace.size, run.pace.bound, run.pace.concurrency) == (None, 20, 8)
    assert "squared_loss" in run.trainer.reports
    item["task"] = item["task"] | {"level": 9.0}  # is never reached
    seen, answers, looks = _play.play(item, 3, {"server": 4.0}), 0, [0.0]
    last = 0
    for record in _play._run(item, 3, {"server": 4.0}, _task.problem(item["task"], 3)).rounds(seen["moves"]):
        answers += int((record.status == fp.Status.DONE).sum())
        if answers - last >= 8:
            last, looks = answers, [*looks, record.metrics["accuracy"]]
    assert seen["accuracy"] == max(looks)
    assert len(looks) - 1 <= answers / 8
    oort = _play._run({**item, "pace": guided.PACES["Oort"]}, 3, {"server": 4.0}, found)
    assert type(oort.policy) is fp.Oort
    assert oort.policy.cohort_size == 8


# ---- tuning


def tuned_on(monkeypatch, took, rates, seeds=2):
    """The rate that is chosen if runs take these seconds, by rate and seed; negative: the level less the accuracy."""
    calls = []

    def play(item, seed, rate, longest=np.inf):
        seconds = took[rate["server"]][seed - _play.TUNING]
        calls.append((rate["server"], seed))
        good = 0 < seconds <= longest
        return {"reached": good, "seconds": abs(seconds), "accuracy": min(seconds, 0.0), "level": 0.0}

    monkeypatch.setattr(_play, "play", play)
    _play._tuned.cache_clear()
    item = one("rounds") | {"tuning": seeds, "pace": {"over": 1.0, "rates": [{"server": rate} for rate in rates]}}
    chosen = _play.tuned(item)["server"]
    _play._tuned.cache_clear()
    return chosen, calls


def test_the_rate_with_the_shortest_times_in_geometric_mean_is_chosen(monkeypatch):
    took = {1.0: (10.0, 10.0), 2.0: (6.0, 12.0), 4.0: (9.0, 9.0), 8.0: (1.0, 30.0)}
    chosen, calls = tuned_on(monkeypatch, took, [1.0, 2.0, 4.0, 8.0])
    assert chosen == 2.0  # sqrt(72) < 9 < 10; the last takes more than twice as long at one seed
    assert {seed for _, seed in calls} == {_play.TUNING, _play.TUNING + 1}


def test_a_rate_that_takes_twice_as_long_at_the_first_seed_is_not_played_on(monkeypatch):
    chosen, calls = tuned_on(monkeypatch, {1.0: (5.0, 5.0), 2.0: (11.0, 1.0)}, [1.0, 2.0])
    assert chosen == 1.0
    assert calls == [(1.0, 1000), (1.0, 1001), (2.0, 1000)]


def test_where_no_rate_reaches_the_level_the_nearest_is_chosen(monkeypatch):
    took = {1.0: (-0.3, -0.1), 2.0: (-0.1, -0.1), 4.0: (-0.2, -0.1)}
    assert tuned_on(monkeypatch, took, [1.0, 2.0, 4.0])[0] == 2.0
    assert tuned_on(monkeypatch, {**took, 8.0: (50.0, 60.0)}, [1.0, 2.0, 4.0, 8.0])[0] == 8.0


def test_rates_are_tuned_on_no_seed_that_is_shown():
    for id in IDS:
        settings = studies.STUDIES[id].settings
        assert settings["seeds"] < _play.TUNING
        assert 1 <= settings.get("tuning", 1) <= 3


# ---- policies


def test_every_policy_without_rounds_is_there():
    """But for wrappers, and fixed probabilities, which are uniform without a vector."""
    heads = {text.split("(")[0] for text in policies.POLICIES.values()}
    for listed in TABLE.values():
        name = listed.about.names[0]
        if listed.about.kind == "wrapper" or name in heads | {"fixed-probabilities", "size-weighted"}:
            continue
        assert not accepted(name), name


def accepted(text):
    config = Config(
        policy=text,
        cohort_size=10,
        world={"name": "ideal", "num_clients": 50, **WORLDS["all troubles"]},
        data={"name": "synthetic(1, 1)", "seed": 0},
        train={"spread_every": 0},
        pace="buffered(concurrency=10, size=5)",
    )
    try:
        config.build()
    except FedpickError:
        return False
    return True


def test_the_policies_are_those_of_the_tournament_that_are_not_refused():
    marks = {"{m}": "5", "{2m}": "10", "{5m}": "25", "{rounds}": "60"}
    for name, text in POLICIES.items():
        for mark, value in marks.items():
            text = text.replace(mark, value)
        name = name.replace("e3cs-inc", "e3cs-0.5")  # a quota that grows is the same policy
        assert accepted(text) == (name in policies.POLICIES and name != "size-weighted"), name
    assert all(accepted(text) for text in policies.POLICIES.values())
    assert {name: WORLDS[name] for name in policies.WORLDS} == policies.WORLDS


# ---- claims


def result_of(study, numbers):
    """A result in which `numbers` (measure, pace, C, sigma, drawn) gives the size of each measure."""
    noise = np.linspace(0.99, 1.01, study.settings["seeds"])

    def part(settings):
        names = {name: settings[name] for name in ("seeds", "C", "sigma")} | {"clients": 500, "cells": {}}
        for cell in _play.cells(settings):
            own = noise ** (1.0 + 0.1 * list(settings["paces"]).index(cell[0]))  # so that ratios vary, a little
            values = {m: (numbers(m, *cell, settings["drawn"]) * own).tolist() for m in _play.MEASURES}
            rate = settings["paces"][cell[0]]["rates"][0]
            names["cells"][_play.name_of(*cell)] = {**values, "reached": settings["seeds"], "rate": rate}
        return names

    settings = dict(study.settings)
    if "speeds" in settings:
        parts = {drawn: part({**settings, "drawn": drawn}) for drawn in settings["speeds"]}
        late = {d: {kind: (numbers("late", kind, 100, 1.5, d) * noise).tolist() for kind in tied.PACES} for d in parts}
        return {"parts": parts, "late": late, "long": 8000, "seeds": settings["seeds"]}
    return part(settings)


def as_claimed(measure, kind, C, sigma, drawn):
    """FedBuff is faster, the more so the larger C and sigma, sends less and is fair; where data are tied, corrected."""
    if measure == "late":
        return 90.0 if drawn == _task.DRAWN[3] and kind in ("FedBuff", "over-selection") else 95.0
    if measure == "slow":
        return 0.24 if kind.startswith("FedBuff") else 0.1
    if measure == "staleness":
        return 5.0
    gain = 1.0 if "constant" in kind else 2.0 if kind.startswith(("polynomial", "hinge")) else 1.0
    if kind.startswith("FedBuff"):
        gain = 10.0 * (C / 10) ** 0.5 * np.exp(sigma)
    elif kind == "rounds":
        gain = 1.0 / C**0.2
    if drawn in _task.DRAWN[2:]:
        gain *= 0.4 if kind == "FedBuff" else 0.5
        gain *= 3.0 if kind == "FedBuff, corrected" else 1.0
        gain *= 1.6 if kind == "FedBuff, corrected" else 1.0
    return 1000.0 / gain


@pytest.mark.parametrize("study", [speed.STUDY, updates.STUDY, scale.STUDY, mixing.STUDY], ids=lambda study: study.id)
def test_a_claim_that_holds_for_every_seed_is_reproduced_and_its_opposite_is_not(study):
    result = result_of(study, as_claimed)
    assert {finding.verdict for finding in study.score(result)} == {"reproduced"}

    def turned(measure, *cell):
        size = as_claimed(measure, *cell)
        return {"slow": 0.35 - size}.get(measure, 1e6 / size)

    assert {finding.verdict for finding in study.score(result_of(study, turned))} == {"contradicted"}
    assert all("nan" not in text for text in (study.body(result), *(f.ours for f in study.score(result))))


def test_what_hurts_is_said_where_it_hurts():
    def numbers(measure, kind, C, sigma, drawn):
        if measure in ("slow", "late"):
            return as_claimed(measure, kind, C, sigma, drawn)
        base = {"rounds": 900.0, "over-selection": 60.0, "FedBuff": 20.0, "FedBuff, corrected": 25.0}[kind]
        return base * ({"FedBuff": 4.0, "over-selection": 3.0}.get(kind, 1.5) if drawn in _task.DRAWN[2:] else 1.0)

    found = {f.claim: f.verdict for f in tied.STUDY.score(result_of(tied.STUDY, numbers))}
    apart = "FedBuff, corrected reaches the level sooner than FedBuff if they are apart"
    assert found.pop(apart) == "contradicted"
    assert list(found.values()) == ["reproduced"] * 10


def test_runs_that_missed_the_level_are_named():
    result = result_of(speed.STUDY, as_claimed)
    result["cells"][_play.name_of("FedBuff", 100, 1.0)]["reached"] = 7
    note = speed.STUDY.score(result)[0].note
    assert note.startswith("the level was reached by 7 of 10 seeds (FedBuff, C = 100, sigma = 1)")
    assert "(7 reached it)" in speed.STUDY.body(result)


def test_claims_of_pisces_are_judged_where_data_and_speed_are_apart_and_where_they_are_tied():
    study, sizes = guided.STUDY, {"Oort": 600.0, "FedBuff": 500.0, "Pisces": 250.0}

    def result(numbers):
        parts = {}
        for drawn in study.settings["speeds"]:
            names = {"seeds": 10, "C": [20], "sigma": [1.2], "cells": {}}
            for at, (kind, size) in enumerate(numbers.items()):
                values = {m: (size * np.linspace(0.9, 1.1, 10) ** (1 + 0.1 * at)).tolist() for m in _play.MEASURES}
                rate = {"server": {"Oort": 8.0, "FedBuff": 64.0, "Pisces": 1.0}[kind]}
                names["cells"][_play.name_of(kind, 20, 1.2)] = {**values, "reached": 10, "rate": rate}
            parts[drawn] = names
        return {"parts": parts, "seeds": 10}

    found = study.score(result(sizes))
    assert [one.verdict for one in found] == ["reproduced"] * 4
    assert [one.paper for one in found] == ["up to 2.0 times", "up to 1.9 times", "no paper's", "no paper's"]
    turned = study.score(result({"Oort": 100.0, "FedBuff": 500.0, "Pisces": 250.0}))
    assert [one.verdict for one in turned] == ["contradicted", "reproduced"] * 2
    text = study.body(result(sizes))
    assert text.count("the highest server rate of 1 to 64 was best for FedBuff, C = 20, sigma = 1.2") == 2
    assert text.count("the lowest server rate of 1 to 64 was best for Pisces, C = 20, sigma = 1.2") == 2


@pytest.mark.parametrize("study", [speed.STUDY, updates.STUDY, scale.STUDY, tied.STUDY], ids=lambda study: study.id)
def test_a_page_says_where_a_rate_is_at_the_edge_of_those_tried_and_is_silent_elsewhere(study):
    result = result_of(study, as_claimed)  # all have the first rate of their grid, which is in its middle
    parts = list(result["parts"].values()) if "parts" in result else [result]
    first, *others = [name for name in parts[-1]["cells"] if "FedAsync" not in name]
    for name, cell in parts[-1]["cells"].items():
        cell["rate"] = {"lr": 0.8, "alpha": 0.3} if "FedAsync" in name else {"server": 8.0}
    lines = study.body(result).splitlines()
    assert not [line for line in lines if "At the edge" in line and "server rate" in line]
    parts[-1]["cells"][first]["rate"] = {"server": 32.0}
    parts[-1]["cells"][others[0]]["rate"] = {"server": 2.0}
    (line,) = [line for line in study.body(result).splitlines() if "At the edge" in line]
    assert f"the highest server rate of 2 to 32 was best for {first}." in line
    assert f"the lowest server rate of 2 to 32 was best for {others[0]}." in line


def test_one_rate_is_no_grid_with_an_edge():
    result = result_of(mixing.STUDY, as_claimed)
    assert _play.at_edge(result, mixing.PACES) == []


# ---- the whole


@pytest.mark.slow
@pytest.mark.parametrize("id", IDS)
def test_a_study_runs_scores_plots_and_saves(id, tmp_path):
    study = studies.STUDIES[id]
    outcome = studies.reproduce(id, quick=True, workers=1, out=tmp_path)
    assert outcome.findings
    assert {path.name for path in (tmp_path / id).iterdir()} == {
        *("result.json", "findings.md", "figure.png", "figure.svg", "manifest.json")
    }
    assert study.score(json.loads((tmp_path / id / "result.json").read_text())) == outcome.findings
    assert studies.judge(id, tmp_path) is None  # of quick settings: its page would say what was not done


# ---- the page "Rounds or asynchronous?"


def played(study):
    return Reproduction(study, dict(study.settings), result_of(study, as_claimed), [])


def in_two_worlds(study):
    def cell(seconds, accuracy):
        return {"seconds": seconds, "accuracy": [accuracy] * 3, "used": [1.0] * 3, "tasks": [9] * 3}

    rows = {
        "uniform": {policies.ROUNDS: cell([8.0, 9.0, 9.5], 0.5), policies.STREAM: cell([4.0, 5.0, 4.5], 0.6)},
        "oort": {policies.ROUNDS: cell([8.0, 9.0, None], 0.7), policies.STREAM: cell([4.0, 5.0, 4.5], 0.6)},
        "hics": {policies.ROUNDS: cell([3.0, 3.5, 3.2], 0.7), policies.STREAM: cell([4.0, 5.0, 4.5], 0.8)},
    }
    result = {"seeds": 3, "policies": list(rows), "worlds": {"stragglers": rows}}
    return Reproduction(study, dict(study.settings), result, [])


def words(text):
    return sum(any(letter.isalnum() for letter in each) for each in text.split())  # not the bars of tables


def test_the_page_has_the_figures_and_is_short(tmp_path):
    outcomes = [*map(played, (speed.STUDY, tied.STUDY, updates.STUDY, scale.STUDY)), in_two_worlds(policies.STUDY)]
    assert {one.study.id for one in outcomes} == set(guide.NEEDED)
    assert studies.save_paces(outcomes[1:], tmp_path, tmp_path / "page.md") is None
    text = studies.save_paces(outcomes, tmp_path / "studies", tmp_path / "page.md").read_text()
    said = re.search(r"FedBuff reached a level ([\d.]+) \(([\d.]+) to ([\d.]+)\) times as fast as rounds", text)
    gain, low, high = map(float, said.groups())
    assert low <= gain <= high
    assert gain == pytest.approx(np.sqrt(10) * np.exp(1.0) * 10, rel=0.01)  # see `as_claimed`
    assert "](studies/asynchrony/tied/findings.md)" in text
    assert "1 of 2 and 2 of 3 in *stragglers*" in text
    assert "{" not in text
    assert words(text) <= 700


def test_what_is_not_beyond_chance_is_said_so():
    assert guide.than(np.log([0.5, 1.1, 2.1])).startswith("about as fast (")
    assert guide.than(np.log([2.0, 2.1, 2.2])) == "2.1 (1.9 to 2.4) times as fast"


def test_the_stored_page_is_what_the_command_writes(tmp_path):
    folder, page = Path(__file__).parents[3] / "docs" / "studies", tmp_path / "docs" / "rounds-or-asynchronous.md"
    for id in guide.NEEDED:
        (tmp_path / "docs" / "studies" / id).mkdir(parents=True)
        for name in ("result.json", "manifest.json"):
            (tmp_path / "docs" / "studies" / id / name).write_text((folder / id / name).read_text())
    outcomes = [studies.judge(id, tmp_path / "docs" / "studies") for id in guide.NEEDED]
    written = studies.save_paces(outcomes, tmp_path / "docs" / "studies", page)
    assert written.read_text() == (folder.parent / page.name).read_text()
    assert words(written.read_text()) <= 700
