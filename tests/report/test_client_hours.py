"""Hours that clients compute, as a column of tables: of new runs; older ones report as before."""

from dataclasses import replace

import pyarrow as pa
import pytest
from made_runs import make, record

import fedpick as fp
from fedpick.report import scores
from fedpick.report.results import Results
from fedpick.store.columns import rounds_table


def runs(seconds):
    rng = fp.rng.stream(0, 0, "made")
    return [replace(record(t + 1, rng, 12, 4), client_seconds=each) for t, each in enumerate(seconds)]


def test_the_sum_is_known_where_every_round_is():
    assert scores.client_hours(rounds_table(runs([1800.0, 3600.0, 5400.0]), [])) == {"client_hours": 3.0}
    assert scores.client_hours(rounds_table(runs([1800.0, 3600.0, 5400.0]), []), 2) == {"client_hours": 1.5}
    assert scores.client_hours(rounds_table(runs([1800.0, None]), [])) == {}
    old = rounds_table(runs([None, None]), [])
    assert "client_seconds" not in old.column_names
    assert scores.client_hours(old) == {}
    joined = pa.concat_tables([old, rounds_table(runs([1.0]), [])], promote_options="default")  # continued
    assert scores.client_hours(joined) == {}


def test_older_runs_report_without_the_column(tmp_path):
    curve = [0.2, 0.4, 0.5, 0.7, 0.8, 0.8]
    for policy in ("uniform", "e3cs(quota=0.5)"):
        make(tmp_path / policy, policy, accuracy=curve, data={"name": "digits"}, train={})
    results = Results([tmp_path / policy for policy in ("uniform", "e3cs(quota=0.5)")])
    text = results.table("markdown")
    assert "client" not in text.split("\n\n")[1].splitlines()[0].replace("clients", "")
    assert not any(name.startswith("client_hours") for name in results.frame().columns)
    assert "GB sent to 76%" in text or "MB sent to 76%" in text
    assert "messages" not in text


def test_new_runs_have_it(tmp_path):
    for policy in ("uniform", "fedcs"):
        folder = tmp_path / policy
        config = {"policy": policy, "seed": 0, "rounds": 3, "cohort_size": 5, "world": {"name": "phones"}}
        with fp.store.Folder(folder, config) as kept:
            run = fp.Run(fp.Uniform(5), fp.worlds.named("phones"))
            for each in run.rounds(3):
                kept.append(each, run.state)
            kept.finish(run.state)
    results = Results([tmp_path / "uniform", tmp_path / "fedcs"])
    assert "client " in results.table("markdown")
    frame = results.frame()
    wanted = sum(each.client_seconds for each in fp.Run(fp.Uniform(5), fp.worlds.named("phones")).rounds(3)) / 3600.0
    assert frame["client_hours"].tolist() == pytest.approx([wanted] * 2)
    assert {"messages", "gigabytes", "hours"} <= set(frame.columns)
