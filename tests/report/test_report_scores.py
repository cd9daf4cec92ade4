"""Scores against loops over the rows."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedpick as fp
from fedpick.report import scores

ROUNDS = pa.table(
    {
        "round": [1, 2, 3],
        "clock": [10.0, 25.0, 30.0],
        "chosen": [3, 2, 0],
        "done": [2, 1, 0],
        "late": [1, 0, 0],
        "failed": [0, 0, 0],
        "surplus": [0, 1, 0],
        "messages": [6, 4, 0],
        "megabytes": [30.0, 20.0, 0.0],
    }
)
SELECTIONS = pa.table({"round": [1, 1, 1, 2, 2], "client": [0, 2, 3, 0, 4]})


def test_cep_counts_models_that_were_used():
    assert scores.cep(ROUNDS).tolist() == [2.0, 3.0, 3.0]


def test_success_ratio_counts_surplus_as_success():
    assert scores.success_ratio(ROUNDS) == 4 / 5
    assert scores.success_ratio(ROUNDS.slice(2)) == 0.0  # nobody was asked


def test_counts_and_staleness():
    assert scores.counts(SELECTIONS, 6).tolist() == [2, 0, 1, 1, 1, 0]
    assert scores.staleness(SELECTIONS, 6, last_round=3).tolist() == [1, 3, 2, 2, 1, 3]


@given(st.lists(st.integers(0, 50), min_size=1, max_size=20))
def test_jain_is_between_1_over_k_and_1_and_1_exactly_for_equals(values):
    index = scores.jain(values)
    assert 1 / len(values) - 1e-12 <= index <= 1 + 1e-12
    assert (index == pytest.approx(1.0)) == (len(set(values)) == 1 or sum(values) == 0)


def test_summary_holds_every_score():
    summary = scores.summary(ROUNDS, SELECTIONS, 6)
    assert summary["returned"] == 3
    assert summary["hours"] == 30 / 3600
    assert summary["messages"] == 10
    assert summary["gigabytes"] == 50 / 1000
    assert summary["variance"] == pytest.approx(np.var([2, 0, 1, 1, 1, 0]))
    assert summary["staleness"] == 2.0
    assert summary["never"] == 2 / 6


def test_gigabytes_are_1e9_bytes():
    sent = ROUNDS.set_column(8, "megabytes", pa.array([500.0, 250.0, 250.0]))  # units of 1e6 bytes
    assert scores.summary(sent, SELECTIONS, 6)["gigabytes"] == 1.0
    learned = sent.append_column("accuracy", pa.array([None, 0.5, 0.9]))
    took = {"rounds": 2.0, "hours": 25 / 3600, "gigabytes": 0.75, "messages": 10.0, "tasks": 5.0}
    assert scores.reach(learned, "accuracy", 0.5) == took
    assert scores.reach(learned, "accuracy", 0.95) is None


def test_clients_in_trouble_are_counted_as_a_loop_counts_them():
    random = np.random.default_rng(3)
    client, status = random.integers(0, 9, 300), random.choice([each.name for each in fp.Status], 300)
    seconds = np.where(random.random(300) < 0.2, np.inf, random.random(300))
    table = pa.table(
        {"round": np.arange(300), "client": client, "status": pa.array(status).dictionary_encode(), "duration": seconds}
    )
    found = {row["client"]: row for row in scores.trouble(table, most=20)}
    for k in range(9):
        mine = [(s, d) for c, s, d in zip(client, status, seconds, strict=True) if c == k]
        good = [d for s, d in mine if s in ("DONE", "SURPLUS") and np.isfinite(d)]
        assert found[k]["chosen"] == len(mine)
        assert found[k]["late"] == sum(s == "LATE" for s, _ in mine)
        assert found[k]["failed"] == sum(s == "FAILED" for s, _ in mine)
        assert found[k]["seconds"] == pytest.approx(np.mean(good))
    lost = [row["late"] + row["failed"] for row in scores.trouble(table, most=4)]
    assert lost == sorted(lost, reverse=True)
    assert len(lost) == 4


def test_unusable_answers_are_counted_in_the_rounds_and_in_files_of_before_by_their_duration():
    selections = pa.table({"status": ["FAILED", "FAILED", "LATE", "DONE"], "duration": [2.0, np.nan, 3.0, 1.0]})
    selections = selections.set_column(0, "status", selections["status"].dictionary_encode())
    assert scores.unusable(ROUNDS, selections) == 1
    assert scores.unusable(ROUNDS.append_column("unusable", pa.array([0, 2, 3])), selections) == 5
