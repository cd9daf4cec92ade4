"""A deployment's rounds in the store, and what `fedpick report` shows of them."""

import json
import re
import shutil
import urllib.request

import numpy as np
import pytest
from fake_flower import Clock, FakeGrid, model, replies, trains
from flwr.app import Error, MetricRecord
from flwr.serverapp.strategy import FedAvg
from rich.console import Console
from typer.testing import CliRunner

import fedpick as fp
from fedpick import store
from fedpick.cli import console
from fedpick.cli.app import app
from fedpick.experiment import executors
from fedpick.flower import Selected
from fedpick.policies.text import label
from fedpick.server import records
from fedpick.store import writer


def world(clock: Clock) -> FakeGrid:
    grid = FakeGrid(clock, {node: trains(train_loss=node / 10) for node in range(8)})
    grid.nodes[5] = replies(Error(2, "raised"))
    return grid


def accuracy(round, arrays):
    return MetricRecord({"accuracy": round / 10, "loss": 2.0 - round / 10, "seconds": 5.0, "many": [1.0, 2.0]})


def served(clock, folder, rounds, policy=None, **options):
    policy = policy or fp.E3CS(cohort_size=3, quota=0.5)
    strategy = Selected(FedAvg(fraction_evaluate=0.0), policy, **options, records=folder)
    seen = []

    def watch(round, arrays):
        if round:
            seen.append(strategy.last)
        return accuracy(round, arrays)

    strategy.start(world(clock), model(), num_rounds=rounds, evaluate_fn=watch)
    return strategy, seen


def test_the_store_holds_what_the_rounds_were(clock: Clock, tmp_path) -> None:
    strategy, seen = served(clock, tmp_path / "run", 6)
    rounds, selections = store.read_rounds(tmp_path / "run"), store.read_selections(tmp_path / "run")
    assert rounds["round"].to_pylist() == [1, 2, 3, 4, 5, 6]
    assert rounds["accuracy"].to_pylist() == [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]
    assert rounds["test_loss"][0].as_py() == 1.9
    assert rounds["metric_seconds"].to_pylist() == [5.0] * 6
    assert rounds["seconds"].to_pylist() == [record.seconds for record in seen]
    assert "many" not in rounds.column_names
    assert np.array(rounds["train_loss"]) == pytest.approx(np.array([np.nanmean(r.loss) for r in seen]))
    for record in seen:
        mine = selections.filter(np.array(selections["round"]) == record.round)
        assert mine["client"].to_pylist() == record.ids.tolist()
        assert mine["status"].to_pylist() == [fp.Status(s).name for s in record.status]
    assert store.read_clients(tmp_path / "run") == strategy.roster.names
    config = store.read_manifest(tmp_path / "run")["config"]
    assert config == {"engine": "flower", "policy": "E3CS(quota=0.5)", "base": "FedAvg", "cohort_size": 3, "seed": 0}


@pytest.mark.parametrize("merge", [2, *(pytest.param(merge, marks=pytest.mark.slow) for merge in (1, 100))])
def test_restarts_go_on_in_the_same_tables(clock: Clock, tmp_path, monkeypatch, merge) -> None:
    monkeypatch.setattr(records, "MERGE_EVERY", merge)
    monkeypatch.setattr(records, "WRITE_EVERY", 0.0)
    served(clock, tmp_path / "whole", 6)
    for _ in range(3):
        served(clock, tmp_path / "run", 2, state=tmp_path / "state", model=tmp_path / "model")
    for read in (store.read_rounds, store.read_selections):
        one, other = read(tmp_path / "run").to_pydict(), read(tmp_path / "whole").to_pydict()
        for name in set(one) - {"accuracy", "test_loss", "clock", "seconds", "duration"}:  # evaluations count from 1
            if name == "train_loss":  # Flower's mean over replies in the order of arrival
                np.testing.assert_allclose(one[name], other[name], rtol=1e-12)
            else:
                np.testing.assert_array_equal(one[name], other[name], err_msg=name)


def test_rounds_that_only_the_journal_knows_are_added(clock: Clock, tmp_path) -> None:
    """Killed after the outcome was kept and before the record was written, at every such moment."""
    served(clock, tmp_path / "run", 1, state=tmp_path / "state", limits=fp.server.Limits(checkpoint_every=50))
    shutil.copytree(tmp_path / "run", tmp_path / "old")
    served(clock, tmp_path / "run", 3, state=tmp_path / "state", limits=fp.server.Limits(checkpoint_every=50))
    whole = store.read_selections(tmp_path / "run")
    served(clock, tmp_path / "old", 1, state=tmp_path / "state")
    again = store.read_selections(tmp_path / "old")
    assert repr(again.slice(0, len(whole)).to_pylist()) == repr(whole.to_pylist())  # NaN is NaN here
    assert store.read_rounds(tmp_path / "old")["round"].to_pylist() == [1, 2, 3, 4, 5]
    assert store.read_rounds(tmp_path / "old")["accuracy"].to_pylist() == [0.1, None, None, None, 0.1]


def test_a_folder_of_another_server_is_refused_before_anything_is_trained(clock: Clock, tmp_path) -> None:
    served(clock, tmp_path / "run", 2)
    with pytest.raises(fp.StoreError, match="holds rounds up to 2, but this server has played 0; give records="):
        served(clock, tmp_path / "run", 2)
    with pytest.raises(fp.StoreError, match="holds a run of another configuration"):
        served(clock, tmp_path / "run", 2, policy=fp.Uniform(3))
    assert len(store.read_rounds(tmp_path / "run")) == 2


def test_a_full_disk_does_not_end_the_training(clock: Clock, tmp_path, monkeypatch, caplog) -> None:
    whole = writer.write_sealed
    failing = [True]

    def write(*args, **options):
        if failing[0]:
            raise OSError(28, "No space left on device")
        return whole(*args, **options)

    monkeypatch.setattr(writer, "write_sealed", write)
    strategy = Selected(FedAvg(fraction_evaluate=0.0), fp.Uniform(3), records=tmp_path / "run")

    def watch(round, arrays):
        failing[0] = round < 3

    strategy.start(world(clock), model(), num_rounds=5, evaluate_fn=watch)
    assert "No space left on device" in caplog.text
    assert store.read_rounds(tmp_path / "run")["round"].to_pylist() == [1, 2, 3, 4, 5]


def test_killed_while_the_records_disk_is_full_no_round_is_lost(clock: Clock, tmp_path, monkeypatch, caplog) -> None:
    """The journal stays until the records hold its rounds, and the advice is one that can be followed."""
    whole, full = writer.write_sealed, [True]

    def write(*args, **options):
        if full[0]:
            raise OSError(28, "No space left on device")
        return whole(*args, **options)

    monkeypatch.setattr(writer, "write_sealed", write)
    options = {"state": tmp_path / "state", "limits": fp.server.Limits(checkpoint_every=3), "policy": fp.Uniform(3)}
    for _ in range(2):
        served(clock, tmp_path / "run", 10, **options)  # what waits to be written goes with the process
    assert "No space left on device" in caplog.text
    assert "fedpick resume" not in caplog.text
    full[0] = False
    served(clock, tmp_path / "run", 3, **options)
    assert store.read_rounds(tmp_path / "run")["round"].to_pylist() == list(range(1, 24))


def test_two_servers_do_not_share_a_folder(clock: Clock, tmp_path) -> None:
    strategy = Selected(FedAvg(fraction_evaluate=0.0), fp.Uniform(3), records=tmp_path / "run")

    def second(round, arrays):
        if round == 1:
            with pytest.raises(fp.StoreError, match="another process is working in this folder"):
                served(clock, tmp_path / "run", 1, policy=fp.Uniform(3))

    strategy.start(world(clock), model(), num_rounds=1, evaluate_fn=second)


def test_killed_in_the_first_evaluation_the_first_round_is_there(clock: Clock, tmp_path) -> None:
    strategy = Selected(FedAvg(fraction_evaluate=0.0), fp.Uniform(3), state=tmp_path / "state")

    def die(round, arrays):
        if round == 1:
            raise SystemExit

    with pytest.raises(SystemExit):
        strategy.start(world(clock), model(), num_rounds=2, evaluate_fn=die)
    served(clock, tmp_path / "run", 2, policy=fp.Uniform(3), state=tmp_path / "state")
    assert store.read_rounds(tmp_path / "run")["round"].to_pylist() == [1, 2, 3]


def test_no_gap_is_told_where_there_is_none(clock: Clock, tmp_path, caplog) -> None:
    for _ in range(2):
        Selected(FedAvg(fraction_evaluate=0.0), fp.Uniform(3), state=tmp_path / "state").start(
            world(clock), model(), num_rounds=2
        )
    served(clock, tmp_path / "run", 1, policy=fp.Uniform(3), state=tmp_path / "state")
    assert store.read_rounds(tmp_path / "run")["round"].to_pylist() == [1, 2, 3, 4, 5]
    assert "has no rounds between" not in caplog.text


def test_half_of_a_part_is_dropped(clock: Clock, tmp_path) -> None:
    """Killed between the two files of a part."""
    served(clock, tmp_path / "run", 2, state=tmp_path / "state")
    parts = tmp_path / "run" / "parts"
    shutil.copy(tmp_path / "run" / "rounds.parquet", parts / "rounds-000000004.parquet")
    served(clock, tmp_path / "run", 3, state=tmp_path / "state")
    assert store.read_rounds(tmp_path / "run")["round"].to_pylist() == [1, 2, 3, 4, 5]


def test_records_do_not_run_ahead_of_the_state(clock: Clock, tmp_path, monkeypatch) -> None:
    """The state's disk is full for the last rounds; after the restart they are played again, and recorded once."""
    strategy = Selected(
        FedAvg(fraction_evaluate=0.0), fp.Uniform(3), state=tmp_path / "state", records=tmp_path / "run"
    )
    with monkeypatch.context() as patch:

        def full(round, arrays):
            if round == 2:
                patch.setattr(strategy.session.memory.journal, "append", broken)
                patch.setattr(strategy.session.memory, "_checkpoint", broken)

        def broken(*args):
            raise OSError(28, "No space left on device")

        strategy.start(world(clock), model(), num_rounds=4, evaluate_fn=full)
    served(clock, tmp_path / "run", 2, policy=fp.Uniform(3), state=tmp_path / "state")
    assert store.read_rounds(tmp_path / "run")["round"].to_pylist() == [1, 2, 3, 4]


def test_clients_do_not_make_columns_without_end(clock: Clock, tmp_path) -> None:
    turn = [0]

    def behave(message):
        turn[0] += 1
        return trains(**{f"x{turn[0]}_{k}": 1.0 for k in range(900)})(message)

    strategy = Selected(FedAvg(fraction_evaluate=0.0), fp.Uniform(1), records=tmp_path / "run")
    strategy.start(FakeGrid(clock, {0: behave}), model(), num_rounds=10)
    assert len(store.read_rounds(tmp_path / "run").column_names) < 250


def test_training_accuracy_is_not_test_accuracy(clock: Clock, tmp_path) -> None:
    strategy = Selected(FedAvg(fraction_evaluate=0.0), fp.Uniform(1), records=tmp_path / "run")
    strategy.start(FakeGrid(clock, {0: trains(accuracy=0.5)}), model(), num_rounds=1)
    columns = store.read_rounds(tmp_path / "run").column_names
    assert "train_accuracy" in columns
    assert "accuracy" not in columns


def test_names_are_there_while_it_runs(clock: Clock, tmp_path) -> None:
    seen = []
    strategy = Selected(FedAvg(fraction_evaluate=0.0), fp.Uniform(3), records=tmp_path / "run")
    strategy.start(
        world(clock), model(), num_rounds=3, evaluate_fn=lambda r, a: seen.append(store.read_clients(tmp_path / "run"))
    )
    assert seen[-1] == strategy.roster.names


def test_the_label_is_the_policy_as_people_write_it() -> None:
    assert label(fp.Uniform(3)) == "Uniform"
    assert label(fp.OverSelect(fp.E3CS(3, quota=0.2), 1.5)) == "OverSelect(E3CS(quota=0.2), factor=1.5)"
    assert label(fp.FedCS(3, success=np.ones(5))) == "FedCS"
    assert label(object()) == "object"


def report(*arguments) -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(console, "out", Console(width=200))
        result = CliRunner().invoke(app, ["report", *map(str, arguments)])
    assert result.exit_code == 0, (result.output, result.exception)
    return result.output


def test_report_shows_a_deployment(clock: Clock, tmp_path) -> None:
    served(clock, tmp_path / "run", 8)
    told = report(tmp_path / "run", "--out", tmp_path / "out")
    assert "real clients (flower): 8 rounds, 3 of 8 clients a round\n" in told  # no seed: they do not depend on it
    assert "E3CS(quota=0.5)" in told
    assert "test accuracy" in told
    assert "node:5" in told  # the one that always fails
    rows = json.loads((tmp_path / "out" / "report.json").read_text())["rows"]
    assert (rows[0]["policy"], rows[0]["scores"]["accuracy"]["mean"]) == ("E3CS(quota=0.5)", 0.8)
    assert (tmp_path / "out" / "report.png").stat().st_size > 10_000


@pytest.mark.slow
def test_report_sets_deployments_beside_simulated_runs(clock: Clock, tmp_path) -> None:
    served(clock, tmp_path / "one", 4)
    served(clock, tmp_path / "two", 4, policy=fp.Uniform(3))
    config = fp.experiment.Config(policy="e3cs(quota=0.5)", cohort_size=5, rounds=6, world={"name": "volatile"})
    executors.execute(config, tmp_path / "simulated")
    told = report(tmp_path / "one", tmp_path / "two", tmp_path / "simulated", "--out", tmp_path / "out")
    assert "4 to 6 rounds" in told
    assert "e3cs(quota=0.5)" in told
    assert "simulated" not in told
    assert (tmp_path / "out" / "report.svg").is_file()
    assert report(tmp_path / "one", tmp_path / "one") == report(tmp_path / "one")  # the same run is shown once
    served(clock, tmp_path / "three", 4)
    assert "E3CS(quota=0.5) in" in report(tmp_path / "one", tmp_path / "three")


def refused(folder) -> str:
    result = CliRunner().invoke(app, ["report", str(folder)])
    assert isinstance(result.exception, fp.FedpickError), result.exception
    return str(result.exception)


def test_report_says_what_is_wrong_with_a_folder(clock: Clock, tmp_path) -> None:
    assert "there is no such folder" in refused(tmp_path / "nothing")
    served(clock, tmp_path / "run", 2)
    manifest = tmp_path / "run" / "manifest.json"
    manifest.write_text(json.dumps({"config": {"engine": "flower"}}))
    assert "its manifest.json is not a run's (KeyError: 'policy')" in refused(tmp_path / "run")
    manifest.write_text(json.dumps({"config": {"colour": "red"}}))
    assert "its manifest.json is not a run's (KeyError: 'policy')" in refused(tmp_path / "run")
    served(clock, tmp_path / "other", 2)
    shutil.copy(tmp_path / "other" / "rounds.parquet", tmp_path / "other" / "selections.parquet")
    assert "is a table of rounds of another run, or of another place" in refused(tmp_path / "other")
    for text in ("{", "{}", '{"policies": [], "seeds": 1, "base": {}}'):
        (tmp_path / "compared").mkdir(exist_ok=True)
        (tmp_path / "compared" / "compare.json").write_text(text)
        assert "has no runs" in refused(tmp_path / "compared")


def test_report_of_a_comparison_that_is_going_on(tmp_path) -> None:
    plan = {"policies": ["uniform", "e3cs"], "seeds": 2, "base": {}}
    (tmp_path / "compare.json").write_text(json.dumps(plan))
    for seed, rounds in ((0, 6), (1, 4)):
        config = fp.experiment.Config(
            policy="uniform", cohort_size=5, rounds=rounds, seed=seed, world={"name": "volatile"}
        )
        executors.execute(config, tmp_path / "uniform" / f"seed-{seed}")
    told = report(tmp_path)
    assert "4 to 6 rounds" in told
    assert "uniform" in told


def test_report_of_a_folder_with_an_odd_name_and_odd_clients(clock: Clock, tmp_path) -> None:
    grid = FakeGrid(clock, {0: replies(Error(2, "x")), 1: trains(train_loss=0.5)})
    folder = tmp_path / "[/red] $x_$"
    strategy = Selected(
        FedAvg(fraction_evaluate=0.0), fp.Uniform(2), records=folder, identity=lambda node: f"\x1b[2J[b]{node.node_id}"
    )
    strategy.start(grid, model(), num_rounds=2, evaluate_fn=lambda r, a: MetricRecord({"accuracy": float("nan")}))
    told = report(folder, "--out", folder)
    assert "\x1b[2J" not in told
    assert "[b]0" in told
    json.loads((folder / "report.json").read_text(), parse_constant=lambda name: pytest.fail(name))


def test_prometheus_can_read_the_numbers_while_it_runs(clock: Clock, tmp_path) -> None:
    strategy = Selected(FedAvg(fraction_evaluate=0.0), fp.Uniform(cohort_size=3), metrics=":0")
    seen = []

    def ask(round, arrays):
        with urllib.request.urlopen(strategy.session.metrics.url, timeout=10) as reply:
            seen.append(re.search(r"^fedpick_clients_chosen_total (\d+)$", reply.read().decode(), flags=re.M).group(1))

    strategy.start(world(clock), model(), num_rounds=2, evaluate_fn=ask)
    assert seen == ["0", "3", "6"]
    assert strategy.session.metrics.url is None
