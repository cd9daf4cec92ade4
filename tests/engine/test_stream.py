"""Asynchronous runs agree with the slow reference: the same tasks, times, versions, staleness, weights and models."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from simulated import grid, run_of
from streamed import streamed

import fedpick as fp
from asynchronous import Script, play
from asynchronous_scripts import scripts
from fedpick.engine.stream import Stream


def agree(script: Script, commits: int) -> int:
    """Compare the run with the reference; returns the number of commits compared."""
    # The simulator looks again every so often; so does the reference, in which asking happens if something changed.
    script.changes = [grid(script) * n for n in range(1, int(script.until / grid(script)) + 1)]
    script.repeat, script.unknown = (lambda client, nth: None), ()
    expected = play(script, commits)
    run, asked = run_of(script)
    records, models = [], []
    for record in run.rounds(until=len(expected.commits)):
        records.append(record)
        models.append(run.state.model["x"])
    for record, commit, model in zip(records, expected.commits, models, strict=True):
        assert (record.round, record.clock, record.asked, record.flying) == (
            commit.version,
            commit.time,
            commit.asked,
            commit.flying,
        )
        assert [
            (each.task.id, *asked.tasks[each.task.id], each.task.version, each.task.sent_at, each.at, each.status)
            for each in record.tasks
        ] == [
            (each.id, each.client, each.nth, each.version, each.sent_at, each.time, each.status)
            for each in commit.ended
        ]
        for mine, theirs in zip(record.tasks, commit.ended, strict=True):
            assert mine.weight == pytest.approx(theirs.weight, rel=1e-12)
            assert mine.staleness == theirs.staleness
        np.testing.assert_allclose(model, commit.model, rtol=1e-9, atol=1e-12)
    counts = np.zeros(script.clients, dtype=int)
    for commit in expected.commits:
        for each in commit.ended:
            counts[each.client] += 1
    np.testing.assert_array_equal(run.state.policy.counts, counts)
    return len(expected.commits)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(scripts())
def test_runs_agree_with_the_reference(script: Script) -> None:
    agree(script, 12)


@pytest.mark.slow
@settings(max_examples=1000, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(scripts())
def test_a_thousand_scripts_agree_with_the_reference(script: Script) -> None:
    agree(script, 20)


def same(script: Script, commits: int) -> Counter:
    """Compare the engine alone with the reference, double and unknown answers included; returns what happened."""
    expected, found = play(script, commits), streamed(script, commits)
    for name in ("version", "time", "asked", "flying"):
        assert [getattr(each, name) for each in found.commits] == [getattr(each, name) for each in expected.commits]
    assert len(found.ended) == len(expected.ended)
    for mine, theirs in zip(found.ended, expected.ended, strict=True):
        assert mine.weight == pytest.approx(theirs.weight, rel=1e-12)
        assert replace(mine, weight=0.0) == replace(theirs, weight=0.0)
    for mine, theirs in zip(found.commits, expected.commits, strict=True):
        np.testing.assert_allclose(mine.model, theirs.model, rtol=1e-9, atol=1e-12)
    assert (found.asks, found.ignored) == (expected.asks, expected.ignored)
    return Counter({"ignored": len(found.ignored), **Counter(each.status.name for each in found.ended)})


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(scripts())
def test_the_engine_alone_agrees_with_the_reference(script: Script) -> None:
    same(script, 12)


@pytest.mark.slow
def test_the_engine_alone_agrees_with_the_reference_on_a_thousand_scripts() -> None:
    seen: Counter = Counter()

    @settings(max_examples=1000, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
    @given(scripts())
    def examples(script: Script) -> None:
        seen.update(same(script, 20))

    examples()
    assert min(seen[name] for name in ("ignored", "DONE", "LATE", "FAILED")) >= 500, seen


def test_a_second_answer_and_one_to_no_task_count_for_nothing_but_traffic() -> None:
    stream = Stream(fp.Buffered(2, size=2))
    one, _ = stream.send(fp.Choice([0, 1]), [0, 1], 0.0, np.ones(2))
    assert stream.arrive(one.id, 1.0) == fp.Status.DONE
    assert stream.arrive(one.id, 1.0) is None
    assert stream.arrive(99, 1.0) is None
    assert (stream.held, stream.back, len(stream.ended), stream.free) == (1, 3, 1, 1)


def test_tasks_that_have_ended_do_not_pile_up_and_those_that_vanish_time_out() -> None:
    stream = Stream(fp.Buffered(3, size=5, timeout=2000.0))
    stream.send(fp.Choice([2]), [2], 0.5, np.ones(1))  # vanishes
    most = 0
    for now in range(1, 1900):
        (task,) = stream.send(fp.Choice([now % 2]), [now % 2], float(now), np.ones(1))
        assert stream.next(now) == 2000.5
        stream.arrive(task.id, now + 0.5)
        if stream.full:
            stream.commit(now + 0.5)
        most = max(most, len(stream._timeouts))
    assert most <= 110
    (late,) = stream.expire(2000.5)
    assert (late.task.id, late.status, late.duration) == (0, fp.Status.LATE, 2000.0)
    assert not stream.flying
