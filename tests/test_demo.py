"""The demo: its scenes can be played, and its sentences say what the numbers say."""

from dataclasses import replace

import pytest

from fedpick import cli, demo


def score(mean, gap=None, half=0.01, clear=True):
    difference = None if gap is None else {"to": "uniform", "mean": gap, "half": half, "clear": clear}
    return {"mean": mean, "half": 0.01} | ({} if difference is None else {"difference": difference})


def results(policies, gap, clear):
    names = ("accuracy", "rounds_to", "hours_to", "worst_decile")
    rows = [{"policy": "uniform", "scores": {name: score(0.5) for name in names}}]
    rows += [{"policy": p, "scores": {name: score(0.5 + gap, gap, clear=clear) for name in names}} for p in policies]
    return {"reference": "uniform", "target": 0.8, "rows": rows}


@pytest.mark.parametrize("scene", demo.SCENES, ids=lambda scene: scene.name)
def test_a_sentence_says_what_the_numbers_say(scene):
    policies = [config.policy for config in scene.experiment.configs() if config.policy != "uniform"]
    better = scene.answer(results(policies, 0.25, True))
    assert "0.750 against 0.500 (+0.250 ±0.010)" in better
    assert "80%" in better
    assert "no difference" not in better
    assert "(+0.250 ±0.010: these seeds show no difference)" in scene.answer(results(policies, 0.25, False))
    assert "-0.250" in scene.answer(results(policies, -0.25, True))


def test_a_target_that_nobody_reached_is_not_known():
    data = results(["fedgs", "e3cs(quota=0.5)"], 0.25, True)
    data["rows"][1]["scores"]["rounds_to"]["mean"] = None
    assert "80% takes not known" in demo.SCENES[0].answer(data)


@pytest.mark.slow
def test_the_command_plays_both_scenes(monkeypatch, tmp_path, capsys):
    short = [replace(scene, experiment=scene.experiment.only(rounds=10, seeds=[0, 1])) for scene in demo.SCENES]
    monkeypatch.setattr(demo, "SCENES", short)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["fedpick", "demo", "--workers", "1"])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code in (0, None)
    said = " ".join(capsys.readouterr().out.split())
    for scene in demo.SCENES:
        assert scene.question in said
        assert (tmp_path / "fedpick-runs" / "demo" / scene.name / "results.json").exists()
    assert "With rbcs-f instead of uniform" in said
    assert "Next: " in said
