"""The tournament: what is counted within the budget, ranks, and the page that advises."""

import copy
import re

import numpy as np
import pytest

import fedpick as fp
from fedpick.policies.text import policy_names
from fedpick_papers import studies
from fedpick_papers.studies._study import Reproduction
from fedpick_papers.studies.tournament import _play, table
from fedpick_papers.studies.tournament import guide as guide_page

STUDY = studies.STUDIES["tournament/synthetic"]
SEEDS = np.linspace(-1.0, 1.0, 6)


def made_up(**better):
    """A result in which a policy's accuracy differs from uniform's by this many points, and nothing else does."""
    names = ["uniform", "pow-d", "oort", "fedcs"]
    cell = {
        name: {
            "hours": [0.1] * 6,
            "accuracy": (70.0 + better.get(name.replace("-", "_"), 0.0) + (1 + 0.1 * i) * SEEDS).tolist(),
            "worst": [10.0] * 6,
            "jain": [0.5] * 6,
            "wasted": [20.0] * 6,
            "by_rounds": [70.0] * 6,
            "messages": [30.0 if name == "pow-d" else 10.0] * 6,
            "rounds": [100] * 6,
            "hours_used": [1.0] * 6,
        }
        for i, name in enumerate(names)
    }
    world = {"level": [66.0] * 6, "policies": cell}
    shared = {"reference": "uniform", "seeds": 6, "cohort_size": 5, "budget": 1000}
    return {**shared, "policies": {n: _play.POLICIES[n] for n in names}, "worlds": {"ideal": world, "volatile": world}}


def test_every_policy_takes_part_or_is_named_as_left_out():
    texts = " ".join(_play.POLICIES.values())
    aliases = {"random", "power-of-choice"}
    missing = [name for name in policy_names() if name not in aliases and not re.search(rf"\b{name}\b", texts)]
    assert all(f" {name}," in f" {_play.ABOUT}" for name in missing)
    assert len(_play.WORLDS) == 9
    assert set(guide_page.ASKED) == set(_play.WORLDS)


@pytest.mark.slow
def test_a_run_is_cut_where_its_messages_are_spent(tmp_path):
    settings = STUDY.choose(rounds=3, seeds=1)
    items = {(item["world"], item["policy"].split("(")[0]): item for item in STUDY.items(settings)}
    for policy, rounds in (("uniform", 3), ("pow-d", 1)):  # 10 messages a round, or 10 and 20 more for the losses
        item = items["ideal", policy]
        assert item["budget"] == 30
        found = _play.played(item, tmp_path / policy)
        assert (found["rounds"], found["messages"]) == (rounds, 30.0 / rounds)
        records = list(_play.played.config(item).build().rounds(6))
        counts = np.bincount(np.concatenate([one.ids for one in records[:rounds]]), minlength=50)
        assert found["jain"] == pytest.approx(counts.sum() ** 2 / (50 * (counts**2).sum()))
        assert found["accuracy"][-1] == records[1].metrics["accuracy"]  # of the only evaluation within three rounds
        assert len(found["worst"]) == 0  # evaluated every tenth round


def test_ranks_are_means_over_worlds_and_oracles_have_none():
    ranks = table.ranks(made_up(pow_d=5.0, oort=-5.0), "accuracy")
    assert {name: one.mean for name, one in ranks.items()} == {"pow-d": 1.0, "uniform": 2.0, "oort": 3.0}
    assert {one.mean for one in table.ranks(made_up(), "jain").values()} == {2.0}  # ties share it
    slow = made_up()
    slow["worlds"]["ideal"]["policies"]["oort"]["hours"] = [None] * 6  # never at the level
    assert table.ranks(slow, "hours", ["ideal"])["oort"].mean == 3.0


def test_many_comparisons_need_wider_intervals():
    result = made_up(pow_d=1.0)
    assert table.chance(result) == pytest.approx(1 - 0.05 / 2)
    wide, usual = (
        table.gap(result, "ideal", "pow-d"),
        fp.report.intervals.paired(
            *(result["worlds"]["ideal"]["policies"][name]["accuracy"] for name in ("pow-d", "uniform"))
        ),
    )
    assert wide.mean == usual.mean
    assert wide.half > usual.half


def advice(result):
    outcome = Reproduction(STUDY, {}, result, [])
    return guide_page.guide([outcome], {STUDY.id: "there.md"})


def test_the_advice_follows_the_figures():
    page = advice(made_up(pow_d=5.0, oort=-5.0))
    assert "**pow-d** ends 5.0" in page
    assert "above uniform (75.0 and 70.0%)" in page
    assert "It costs 3.0 times the messages a round" in page
    assert "Below uniform: oort (-5.0)." in page
    assert "| pow-d | asks clients for their loss before it chooses | 3.0 |" in page
    assert "**fedcs**" not in advice(made_up(fedcs=9.0))  # no server knows what it knows
    same = advice(made_up())
    assert "No policy ends above uniform beyond chance: take uniform." in same
    assert "Below uniform" not in same
    free = advice(made_up(oort=5.0))
    assert "It costs as many messages a round as uniform (Jain's index: 0.50 instead of 0.50)." in free
    assert "It reads the clients' report `squared_loss`." in free


def test_the_guide_names_who_spends_messages_before_choosing():
    result = made_up()
    assert "Policies that ask many clients for their loss before they choose (pow-d) have far fewer" in advice(result)
    result["policies"]["optimal"] = _play.POLICIES["optimal"]
    for world in result["worlds"].values():
        world["policies"]["optimal"] = world["policies"]["pow-d"]
    told = "Policies that ask many clients for their loss before they choose (pow-d) or let all clients train (optimal)"
    assert told in advice(result)


def test_the_guide_says_who_computes_what_a_policy_reads():
    result = made_up()
    for name in ("greedyfed", "tifl"):
        result["policies"][name] = _play.POLICIES[name]
        for world in result["worlds"].values():
            world["policies"][name] = world["policies"]["uniform"]
    page = advice(result)
    assert "| greedyfed | needs `shapley`, which the server computes from the updates | 1.0 |" in page
    assert "| tifl | reads the clients' report `accuracy` | 1.0 |" in page


def test_no_policy_is_named_twice_in_a_line_of_ranks():
    few, many = made_up(pow_d=5.0, oort=-5.0), made_up(pow_d=5.0, oort=-5.0)
    (line,) = (line for line in guide_page._overall(few, "A") if "final test accuracy" in line)
    assert line.count("uniform") == 1
    assert "last" not in line  # three are all best
    for i, name in enumerate(("cpow-d", "rpow-d", "tifl", "refl")):  # two more above uniform, two below
        many["policies"][name] = _play.POLICIES[name]
        for world in many["worlds"].values():
            cell = copy.deepcopy(world["policies"]["uniform"])
            world["policies"][name] = cell | {"accuracy": [x + (3, 2, -6, -7)[i] for x in cell["accuracy"]]}
    (line,) = (line for line in guide_page._overall(many, "A") if "final test accuracy" in line)
    assert (
        "best pow-d (1.0 ± 0.0), cpow-d (2.0 ± 0.0), rpow-d (3.0 ± 0.0); uniform 4.0 ± 0.0; last tifl (6.0), " in line
    )


def test_pages_hold_every_world_and_policy(tmp_path):
    result = made_up(pow_d=5.0)
    outcome = Reproduction(STUDY, {"rounds": 100, "seeds": 6}, result, [])
    studies.save(outcome, tmp_path)
    text = (tmp_path / "findings.md").read_text()
    assert "### volatile" in text
    assert "fedcs (not ranked)" in text
    assert "Not ranked: fedcs, which is told how reliable" in text
    assert "with 95% intervals over 6 seeds" in text
    assert "| ideal | pow-d +5.0 | none |" in text
    again = copy.deepcopy(result)
    again["worlds"]["ideal"]["policies"]["oort"]["hours"] = [None] * 6
    assert "| oort | never |" in table.body(again)


def test_a_tournament_of_fewer_worlds_is_told_apart():
    small = made_up(pow_d=5.0)
    small["worlds"] = {"ideal": small["worlds"]["ideal"]}
    whole, part = (
        Reproduction(studies.STUDIES[id], {}, result, [])
        for id, result in (("tournament/synthetic", made_up()), ("tournament/cifar10", small))
    )
    page = guide_page.guide([whole, part], {one.study.id: "there.md" for one in (whole, part)})
    assert "every policy in nine worlds, and on CIFAR-10 4 policies in 1 of these worlds, with the same" in page
    assert "of the 3 worlds and data sets here, about 0.2 would" in page
    assert "*CIFAR-10.* **pow-d** ends 5.0" in page
    assert page.count("*CIFAR-10.*") == 1  # the other world was not played there
    assert "On CIFAR-10, among 3 policies in ideal:" in page


def first_seeds(result, seeds):
    """The result with only these many seeds."""

    def cut(x):
        return {key: cut(one) for key, one in x.items()} if isinstance(x, dict) else x[:seeds] if type(x) is list else x

    return {**cut(result), "seeds": seeds}


def test_one_seed_has_no_intervals_and_names_nobody():
    text = table.body(first_seeds(made_up(pow_d=5.0), 1))
    assert "of one seed, so without intervals" in text
    assert "One seed tells nothing apart from chance" in text
    assert "beyond chance |" not in text
    assert "±" not in text
    label = table.plot(first_seeds(made_up(pow_d=5.0), 1)).axes[-1].get_ylabel()
    assert "one seed" in label


def test_three_seeds_say_that_they_tell_only_large_differences():
    three = first_seeds(made_up(pow_d=5.0), 3)
    assert "3 seeds tell only large differences from chance" in table.body(three)
    assert "| ideal | pow-d +4.9 | none |" in table.body(three)
    assert "**pow-d** ends 4.9" in advice(three)
    same = advice(first_seeds(made_up(), 3))
    assert "No policy ends above uniform beyond chance, but 3 seeds tell only large gains." in same
    assert "take uniform" not in same


def test_what_is_sooner_is_told_with_its_cost():
    result = made_up()
    for world in result["worlds"].values():
        world["policies"]["pow-d"] |= {"hours": [0.05 + 0.001 * i for i in range(6)], "wasted": [40.0] * 6}
    page = advice(result)
    assert (
        "At the level sooner than uniform, but not above it in the end: pow-d 1.9 times (3.0 times the messages a "
        "round, Jain's index 0.50 instead of 0.50, work not used 40% instead of 20%)." in page
    )


def test_the_labels_of_the_figure_are_inside_it():
    figure = table.plot({**made_up(), "worlds": {"ideal": made_up()["worlds"]["ideal"]}})
    figure.draw_without_rendering()
    box, whole = figure.axes[-1].yaxis.label.get_window_extent(), figure.bbox
    assert whole.y0 <= box.y0 < box.y1 <= whole.y1
    assert box.x1 <= whole.x1


def test_one_seed_gives_no_advice(tmp_path):
    one = Reproduction(STUDY, {}, {**made_up(), "seeds": 1}, [])
    assert studies.save_guide([one], tmp_path, tmp_path / "which-policy.md") is None
    more = Reproduction(STUDY, {}, made_up(), [])
    assert studies.save_guide([more], tmp_path, tmp_path / "which-policy.md") is not None


def test_cifar10_has_six_policies_in_three_worlds():
    study = studies.STUDIES["tournament/cifar10"]
    settings = study.choose(data={"name": "digits", "partition": "dirichlet(alpha=0.3, at_least=2)"})
    items = study.items(settings)
    assert len(items) == study.jobs(settings) == 6 * 3 * 3
    assert {item["budget"] for item in items} == {2 * 10 * 250}
    run = study.job.config({**items[-1], "train": {"model": "logistic"}}).build()
    assert len(run.world.clients) == 100
    assert run.world.deadline == 8.0  # all troubles
