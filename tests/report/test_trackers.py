"""Trackers: the rounds of simulations and servers arrive in the real packages, once, under names that they accept."""

import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from unittest.mock import MagicMock, call

import pytest
from made_runs import make, record, study
from typer.testing import CliRunner

import fedpick as fp
from fedpick import store
from fedpick.cli.app import app
from fedpick.report.runs import read_info
from fedpick.report.trackers import Marks, source_of, tags

HOSTILE = "<script>alert(1)</script>'\"\u202e\n" + "x" * 10_000


def needs(package):
    if find_spec(package) is None:
        said = f"{package} is not tested: pip install 'fedpick[trackers]'"
        pytest.fail(said) if os.environ.get("CI") == "true" else pytest.skip(said)


def served(folder, rounds=3):
    """What a session writes, with a client, a policy and a metric that have odd names."""
    about = {"engine": "flower", "policy": HOSTILE}
    with fp.Session(fp.Uniform(cohort_size=2), records=folder, host=fp.server.Host(about=about or {})) as session:
        for played in range(rounds):
            with session.round(["ada", HOSTILE[:400]]) as r:
                for name in r.chosen:
                    r.done(name, loss=1.0, seconds=1.0)
            session.measure({"accuracy": played / 10, HOSTILE: 0.5, "bad": float("nan")})
    return folder


def longer(folder, rounds):
    """As if the run had gone on."""
    rng = fp.rng.stream(9, 1, "made")
    with store.Tables(folder) as tables:
        first = tables.reached + 1
        tables.write([record(t, rng, 12, 4) for t in range(first, rounds + 1)], [])
    return folder


# ---- what is told


def test_names_are_accepted_everywhere_and_stay_apart():
    names = tags([HOSTILE, HOSTILE + "y", "", "a b", "a_b", "accuracy"])
    assert len(set(names.values())) == 6
    assert all(re.fullmatch(r"[\w.\-]{1,210}", tag, flags=re.ASCII) for tag in names.values())
    assert names["accuracy"] == "accuracy"


def test_a_run_keeps_its_key_when_it_goes_on_and_no_two_share_one(tmp_path):
    one = source_of(read_info(make(tmp_path / "a", rounds=6)))
    assert one.key == source_of(read_info(make(tmp_path / "b", rounds=9))).key
    others = [make(tmp_path / "c", seed=1), make(tmp_path / "d", "e3cs")]
    others += [make(tmp_path / "e", engine="flower"), make(tmp_path / "f", engine="flower")]
    assert len({one.key, *(source_of(read_info(each)).key for each in others)}) == 5
    assert one.settings["policy"] == one.name.split()[0] == "uniform"


def test_rounds_and_scores_are_the_tables_numbers(tmp_path):
    source = source_of(read_info(served(tmp_path / "served")))
    rounds = list(source.rounds(1))
    assert [number for number, *_ in rounds] == [2, 3]
    assert rounds[0][2]["accuracy"] == 0.1
    assert "bad" not in rounds[0][2]  # not a number
    assert rounds[0][2]["chosen"] == 2
    assert source.scores()["score/jain"] == 1.0
    assert all(len(value) <= 450 for value in source.settings.values())
    assert "\n" not in source.name


def test_marks_survive_damage(tmp_path):
    marks = Marks(tmp_path / "new", "wandb")
    marks.set("a", 3)
    assert (marks.get("a"), marks.get("b")) == (3, 0)
    assert Marks(tmp_path / "new", "tensorboard").get("a") == 0
    (tmp_path / "new" / "fedpick-tracked.json").write_text("[")
    assert marks.get("a") == 0


def test_an_unknown_tracker_and_a_missing_package_are_explained(tmp_path, monkeypatch):
    make(tmp_path / "run")
    with pytest.raises(fp.UnknownNameError, match="tensorboard"):
        fp.track(tmp_path / "run", "tensorbord")
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(fp.MissingError, match=r"needs wandb: pip install 'fedpick\[trackers\]'"):
        fp.track(tmp_path / "run", "wandb", tmp_path / "out")


# ---- what the packages are told


def test_weights_and_biases_is_told_the_run_and_its_rounds_and_nothing_is_sent(tmp_path, monkeypatch):
    wandb = MagicMock()
    wandb.init.return_value.summary = summary = {}
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    source = source_of(read_info(make(tmp_path / "run", rounds=6)))
    assert fp.track(tmp_path / "run", "wandb", tmp_path / "out", project="mine") == 6
    quiet = {"silent": True, "console": "off", "disable_git": True, "disable_code": True}
    wandb.Settings.assert_called_once_with(**quiet, x_disable_stats=True, x_disable_meta=True)
    wandb.init.assert_called_once_with(
        mode="offline",
        dir=str(tmp_path / "out"),
        project="mine",
        name=source.name,
        id=source.key,
        config=dict(source.settings),
        reinit="create_new",
        settings=wandb.Settings.return_value,
    )
    logged = [(each.args[0], each.kwargs["step"]) for each in wandb.init.return_value.log.call_args_list]
    assert logged == [(metrics, number) for number, _, metrics in source.rounds(0)]
    assert summary == source.scores()
    wandb.init.return_value.finish.assert_called_once_with()
    assert fp.track(tmp_path / "run", "wandb", tmp_path / "out", project="mine") == 0


@pytest.mark.parametrize("copied", [None, "4"])
def test_mlflow_is_told_the_run_and_its_rounds(tmp_path, monkeypatch, copied):
    entities, tracking = MagicMock(), MagicMock()
    entities.Metric.side_effect = lambda *parts: parts
    entities.Param.side_effect = lambda *parts: parts
    client = tracking.MlflowClient.return_value
    run = client.create_run.return_value
    run.data.tags = {} if copied is None else {"fedpick.rounds": copied}
    client.search_runs.return_value = [] if copied is None else [run]
    known = client.get_experiment_by_name.return_value = None if copied is None else MagicMock()
    for name, module in (("mlflow.entities", entities), ("mlflow.tracking", tracking), ("sqlalchemy", MagicMock())):
        monkeypatch.setitem(sys.modules, name, module)
    source = source_of(read_info(make(tmp_path / "run", rounds=6)))
    where = f"sqlite:///{tmp_path / 'new' / 'mlflow.db'}"
    assert fp.track(tmp_path / "run", "mlflow", where, project="mine") == 6 - int(copied or 0)
    assert (tmp_path / "new").is_dir()
    tracking.MlflowClient.assert_called_once_with(where)
    client.get_experiment_by_name.assert_called_once_with("mine")
    experiment = client.create_experiment.return_value if known is None else known.experiment_id
    client.search_runs.assert_called_with([experiment], f"tags.`fedpick.key` = '{source.key}'", max_results=1)
    batches = client.log_batch.call_args_list
    if copied is None:
        client.create_run.assert_called_once_with(experiment, run_name=source.name, tags={"fedpick.key": source.key})
        assert batches.pop(0) == call(run.info.run_id, params=list(source.settings.items()))
    else:
        client.create_run.assert_not_called()
    expected = [
        (tag, value, int(1000 * clock), number)
        for number, clock, metrics in source.rounds(int(copied or 0))
        for tag, value in metrics.items()
    ]
    clock = expected[-1][2]
    expected += [(tag, value, clock, 6) for tag, value in source.scores().items()]
    assert all(each.args == (run.info.run_id,) and len(each.kwargs["metrics"]) <= 1000 for each in batches)
    assert [metric for each in batches for metric in each.kwargs["metrics"]] == expected
    client.set_tag.assert_called_once_with(run.info.run_id, "fedpick.rounds", "6")
    client.set_terminated.assert_called_once_with(run.info.run_id)


# ---- the real packages


def scalars(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder)).Reload()
    return {tag: [(each.step, each.value) for each in found.Scalars(tag)] for tag in found.Tags()["scalars"]}


def test_tensorboard_shows_simulations_and_servers(tmp_path):
    needs("tensorboard")
    root, out = study(tmp_path / "cmp", policies=("uniform", "e3cs"), seeds=2), tmp_path / "out"
    assert fp.track(root, "tensorboard", out) == 4 * 6
    assert fp.track(fp.load(root), "tensorboard", out) == 0  # all is there
    assert fp.track(served(tmp_path / "served"), "tensorboard", out) == 3
    folders = sorted(path for path in out.iterdir() if path.is_dir())
    assert len(folders) == 5
    uniform = next(path for path in folders if path.name.startswith("uniform-seed-0"))
    table = store.read_rounds(root / "runs" / "uniform-0")
    assert scalars(uniform)["done"] == list(enumerate(table["done"].to_pylist(), start=1))
    assert "score/jain" in scalars(uniform)
    assert scalars(next(path for path in folders if "script" in path.name))["accuracy"][-1][0] == 3
    lengthened = longer(root / "runs" / "uniform-0", 9)
    assert fp.track(lengthened, "tensorboard", out) == 3
    assert [step for step, _ in scalars(uniform)["done"]] == list(range(1, 10))


def test_follow_ends_with_the_runs(tmp_path, monkeypatch):
    needs("tensorboard")
    run = make(tmp_path / "runs" / "a", rounds=6)
    steps = []

    def pause(seconds):
        steps.append(seconds)
        make(tmp_path / "runs" / "b", "e3cs", rounds=4)

    (tmp_path / "plans").mkdir()
    (tmp_path / "plans" / "p.json").write_text(json.dumps({"runs": ["a", "b"]}))
    monkeypatch.setattr("fedpick.report.trackers.time.sleep", pause)
    assert fp.track(tmp_path, "tensorboard", tmp_path / "out", follow=True) == 10
    assert steps == [2.0]
    assert run.is_dir()


def test_the_command(tmp_path):
    needs("tensorboard")
    root = study(tmp_path / "cmp", policies=("uniform",), seeds=1)
    words = ["track", str(root), "--to", "tensorboard", "--where", str(tmp_path / "out")]
    for said in ("uniform seed 0: 6 rounds\n6 new rounds are in tensorboard", "0 new rounds are in tensorboard"):
        result = CliRunner().invoke(app, words)
        assert (result.exit_code, result.output.strip()) == (0, said)


def fedpick(*words, cwd):
    done = subprocess.run([sys.executable, "-m", "fedpick", *words], cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_mlflow_shows_simulations_and_servers(tmp_path):
    needs("mlflow")
    study(tmp_path / "cmp", policies=("uniform", "e3cs"), seeds=1)
    served(tmp_path / "served")
    where = f"sqlite:///{tmp_path / 'new' / 'mlflow.db'}"
    assert "15 new rounds" in fedpick("track", ".", "--to", "mlflow", "--where", where, cwd=tmp_path)
    longer(tmp_path / "cmp" / "runs" / "uniform-0", 9)
    assert "3 new rounds" in fedpick("track", ".", "--to", "mlflow", "--where", where, cwd=tmp_path)
    # In a process of its own: warnings of its packages are not ours.
    script = f"""
import json
from mlflow.tracking import MlflowClient
client = MlflowClient({where!r})
runs = client.search_runs([client.get_experiment_by_name("fedpick").experiment_id])
print(json.dumps([[run.info.run_name, run.info.status, run.data.params, run.data.metrics,
    [each.step for each in client.get_metric_history(run.info.run_id, "done")]] for run in runs]))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path)
    found = {run[0].split()[0][:8]: run for run in json.loads(done.stdout.splitlines()[-1])}
    assert sorted(found) == ["<script>", "e3cs", "uniform"]
    assert found["uniform"][4] == list(range(1, 10))
    assert found["e3cs"][4] == list(range(1, 7))
    assert found["uniform"][2]["policy"] == "uniform"
    assert found["uniform"][3]["score/jain"] > 0
    assert found["<script>"][3]["accuracy"] == 0.2
    assert not (tmp_path / "mlruns").exists()


@pytest.mark.slow
def test_weights_and_biases_has_the_rounds_offline(tmp_path):
    needs("wandb")
    study(tmp_path / "cmp", policies=("uniform",), seeds=1)
    served(tmp_path / "served")
    for new in (9, 0):
        assert f"{new} new rounds are in wandb" in fedpick(
            "track", ".", "--to", "wandb", "--where", "out", cwd=tmp_path
        )
    script = """
import json, sys
from wandb.proto.wandb_internal_pb2 import Record
data, at, part, steps, name = open(sys.argv[1], "rb").read(), 7, b"", [], ""
while at + 7 <= len(data):  # the chunks of a LevelDB log, in blocks of 32 kB, after a header of 7 bytes
    if at % 32768 > 32768 - 7:
        at += 32768 - at % 32768
        continue
    size, kind = int.from_bytes(data[at + 4:at + 6], "little"), data[at + 6]
    part, at = part + data[at + 7:at + 7 + size], at + 7 + size
    if kind in (2, 3):
        continue
    record, part = Record.FromString(part), b""
    name = record.run.display_name or name
    items = {each.key or "/".join(each.nested_key): json.loads(each.value_json) for each in record.history.item}
    if items:
        steps.append([record.history.step.num, items["done"]])
print(json.dumps([name, steps]))
"""
    found = {}
    files = sorted((tmp_path / "out" / "wandb").glob("offline-run-*/*.wandb"))
    for file in files:
        done = subprocess.run([sys.executable, "-c", script, str(file)], capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        name, steps = json.loads(done.stdout)
        found[name[:8]] = steps
    table = store.read_rounds(tmp_path / "cmp" / "runs" / "uniform-0")
    assert found["uniform "] == [[i, float(v)] for i, v in enumerate(table["done"].to_pylist(), start=1)]
    assert [step for step, _ in found["<script>"]] == [1, 2, 3]
