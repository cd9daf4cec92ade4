"""Scores against loops over the rows, and intervals against SciPy."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

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


def test_counts_never_chosen_and_staleness():
    assert scores.counts(SELECTIONS, 6).tolist() == [2, 0, 1, 1, 1, 0]
    assert scores.never_chosen(SELECTIONS, 6) == 2 / 6
    assert scores.staleness(SELECTIONS, 6, last_round=3).tolist() == [1, 3, 2, 2, 1, 3]


@given(st.lists(st.integers(0, 50), min_size=1, max_size=20))
def test_jain_is_between_1_over_k_and_1_and_1_exactly_for_equals(values):
    index = scores.jain(values)
    assert 1 / len(values) - 1e-12 <= index <= 1 + 1e-12
    assert (index == pytest.approx(1.0)) == (len(set(values)) == 1 or sum(values) == 0)


def test_queue_lengths_follow_the_recursion():
    beta, queue, expected = 0.4, [0.0] * 6, []
    chosen = {1: [0, 2, 3], 2: [0, 4], 3: []}
    for round in (1, 2, 3):
        queue = [max(z + beta - (n in chosen[round]), 0.0) for n, z in enumerate(queue)]
        expected.append(queue)
    np.testing.assert_allclose(scores.queue_lengths(SELECTIONS, 6, 3, beta), expected)


def test_rounds_and_time_to_a_target():
    series = scores.cep(ROUNDS)
    assert scores.rounds_to(series, 3) == 2
    assert scores.time_to(ROUNDS, series, 3) == 25.0
    assert scores.rounds_to(series, 4) is None
    assert scores.time_to(ROUNDS, series, 4) is None


def test_summary_holds_every_score():
    summary = scores.summary(ROUNDS, SELECTIONS, 6)
    assert summary["returned"] == 3
    assert summary["hours"] == 30 / 3600
    assert summary["messages"] == 10
    assert summary["gigabytes"] == 50 / 1000
    assert summary["variance"] == pytest.approx(np.var([2, 0, 1, 1, 1, 0]))
    assert summary["staleness"] == 2.0


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=12))
def test_the_interval_is_the_t_interval(values):
    mine = scores.interval(values)
    mean, error = np.mean(values), stats.sem(values)
    low, high = (mean, mean) if error == 0 else stats.t.interval(0.95, len(values) - 1, mean, error)
    assert mine.mean - mine.half == pytest.approx(low, rel=1e-9, abs=1e-6)
    assert mine.mean + mine.half == pytest.approx(high, rel=1e-9, abs=1e-6)


def test_one_seed_has_no_interval_and_is_never_clear():
    alone = scores.interval([3.0])
    assert alone.mean == 3.0
    assert np.isnan(alone.half)
    assert not alone.clear


def test_paired_differences_are_seed_by_seed():
    gap = scores.paired([11.0, 22.0, 33.0], [10.0, 21.0, 32.0])
    assert (gap.mean, gap.half) == (1.0, 0.0)
    assert gap.clear


def test_no_values_are_refused():
    with pytest.raises(fp.ContractError, match="one number per seed"):
        scores.interval([])
