"""The demo: its scenes can be played, and its sentences say what the numbers say."""

import html
import io
import re
from dataclasses import replace

import pytest
from rich.console import Console

from fedpick import cli
from fedpick.cli import console, demo


def score(mean, gap=None, half=0.01, clear=True):
    difference = None if gap is None else {"to": "uniform", "mean": gap, "half": half, "clear": clear}
    return {"mean": mean, "half": 0.01} | ({} if difference is None else {"difference": difference})


def results(policies, gap, clear):
    names = ("accuracy", "rounds_to", "hours_to", "worst_decile")
    about = {"oracle": False, "seeds": [0, 1, 2]}
    rows = [{"policy": "uniform", **about, "scores": {name: score(0.5) for name in names}}]
    rows += [
        {"policy": p, **about, "scores": {name: score(0.5 + gap, gap, clear=clear) for name in names}} for p in policies
    ]
    return {"reference": "uniform", "target": 0.8, "rows": rows}


@pytest.mark.parametrize("scene", demo.SCENES, ids=lambda scene: scene.name)
def test_a_sentence_says_what_the_numbers_say(scene):
    policies = [config.policy for config in scene.experiment.configs() if config.policy != "uniform"]
    better = scene.answer(results(policies, 0.25, True))
    assert "0.750 against 0.500 (+0.250 ±0.010)" in better
    assert "80%" in better
    assert "over 3 seeds" in better
    assert better.count(".\n") + better.rstrip(".").count(". ") == 0  # one sentence
    assert "no clear difference" not in better
    assert "(+0.250 ±0.010: no clear difference)" in scene.answer(results(policies, 0.25, False))
    assert "-0.250" in scene.answer(results(policies, -0.25, True))


def test_a_target_that_nobody_reached_is_not_known():
    data = results(["fedgs", "e3cs(quota=0.5)"], 0.25, True)
    data["rows"][1]["scores"]["rounds_to"]["mean"] = None
    assert "fedgs takes not known to 80%" in demo.SCENES[0].answer(data)
    shown = str(demo.SCENES[0].table(data)).splitlines()
    assert next(line for line in shown if line.startswith("fedgs")).split()[1] == "–"


@pytest.mark.parametrize("scene", demo.SCENES, ids=lambda scene: scene.name)
def test_the_table_has_the_three_scores_of_the_sentence_and_stars_where_they_differ(scene):
    assert len(scene.columns) == 3
    policies = [config.policy for config in scene.experiment.configs() if config.policy != "uniform"]
    for clear in (True, False):
        lines = str(scene.table(results(policies, 0.25, clear))).splitlines()
        heads, names = " ".join(" ".join(lines[:3]).split()), ["uniform", *dict.fromkeys(policies)]
        assert all(word in heads for heading, *_ in scene.columns for word in heading.split())
        for name in names:
            numbers = next(line for line in lines if line.startswith(name))[len(name) :]
            assert numbers.count("±") == 3
            assert numbers.count("*") == (3 if clear and name != "uniform" else 0)


def test_titles_are_in_words():
    for scene in demo.SCENES:
        assert not set("()[]{}=_'") & set(scene.title)
        assert len(scene.title) <= 70


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """What the command prints in 80 columns, and its folder; with few rounds and seeds."""
    folder = tmp_path_factory.mktemp("demo")
    short = [replace(scene, experiment=scene.experiment.only(rounds=10, seeds=[0, 1])) for scene in demo.SCENES]
    out = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "SCENES", short)
        patch.setattr(console, "out", Console(file=out, width=80, emoji=False))
        patch.chdir(folder)
        patch.setattr("sys.argv", ["fedpick", "demo", "--workers", "1"])
        with pytest.raises(SystemExit) as end:
            cli.main()
    assert end.value.code in (0, None)
    return out.getvalue(), folder / "fedpick-runs" / "demo"


@pytest.mark.slow
def test_the_command_says_each_scene_in_a_sentence_then_a_table_in_80_columns(played):
    said, folder = played
    assert max(map(len, said.splitlines())) <= 80
    for scene in demo.SCENES:
        assert (folder / scene.name / "results.json").exists()
        title, sentence, table = (
            said.index(text, said.index(scene.title))
            for text in (scene.title, "Compared with uniform over 2 seeds", "\npolicy ")
        )
        assert title < sentence < table
    assert said.count("\npolicy ") == len(demo.SCENES)  # one table each, in one part


@pytest.mark.slow
def test_both_pages_are_named_and_have_titles_in_words(played):
    said, folder = played
    for scene in demo.SCENES:
        assert f"\n  fedpick-runs/demo/{scene.name}/results.html\n" in said
        page = (folder / scene.name / "results.html").read_text(encoding="utf-8")
        for title in (
            re.search(pattern, page)[1] for pattern in (r"<title>(.*?)</title>", r'<h1><bdi id="title">(.*?)<')
        ):
            assert scene.title in title
            assert "partition=" not in title
        assert html.escape(scene.about, quote=True).replace("&#x27;", "&#39;") in page
