"""Asynchronous training through a scripted grid of Flower agrees with the slow reference."""

from dataclasses import replace

import numpy as np
import pytest
from asynchronous_flower import QUARTER, play_flower
from hypothesis import HealthCheck, given, settings

from asynchronous import Log, Script, _Play, usable
from asynchronous_scripts import LOOKED, scripts


class Heard(_Play):
    """The reference, in which a size that comes with an answer counts, over the mean of those heard of each client."""

    def __init__(self, script: Script) -> None:
        super().__init__(script)
        self.heard: dict[int, float] = {}

    def answer(self, number: int) -> bool:
        script, task = self.script, self.flying.get(number)
        if task is not None and (script.weigh is None or script.correct):
            loss, update = script.loss(task.client, task.nth), script.update(task.client, task.nth, task.model)
            if usable(loss, update, self.model):
                self.heard[task.client] = script.sizes[task.client]
                mean = sum(self.heard.values()) / len(self.heard)
                self.flying[number] = replace(task, b=script.sizes[task.client] / mean)
        return super().answer(number)


def play(script: Script, commits: int) -> Log:
    """As the reference plays it."""
    return Heard(script).run(commits)


def agree(script: Script, commits: int) -> int:
    """Compare Flower with the reference; returns the number of commits compared."""
    # The server looks again every quarter, and all clients are there at first, as newcomers change the mean size.
    script.changes = [QUARTER * n for n in range(1, int(script.until / QUARTER) + 1)]
    there = script.there
    script.there = lambda client, time: time == 0.0 or there(client, time)
    expected = play(script, commits)
    if not expected.commits:
        return 0
    versions, grid, policy = play_flower(script, len(expected.commits))
    for version, commit in zip(versions, expected.commits, strict=True):
        record = version.record
        assert (record.round, record.clock, record.asked, record.flying) == (
            commit.version,
            commit.time,
            commit.asked,
            commit.flying,
        )
        assert [
            (each.task.id, *grid.tasks[each.task.id], each.task.version, each.task.sent_at, each.at, each.status)
            for each in record.tasks
        ] == [
            (each.id, each.client, each.nth, each.version, each.sent_at, each.time, each.status)
            for each in commit.ended
        ]
        for mine, theirs in zip(record.tasks, commit.ended, strict=True):
            assert mine.weight == pytest.approx(theirs.weight, rel=1e-12)
            assert mine.staleness == theirs.staleness
        np.testing.assert_allclose(version.model, commit.model, rtol=1e-9, atol=1e-12)
    counts: dict[int, int] = {}
    for commit in expected.commits:
        for each in commit.ended:
            counts[each.client] = counts.get(each.client, 0) + 1
    names = policy.strategy.roster.names
    told = policy.strategy.roster.state.counts.tolist()
    assert {int(n.removeprefix("node:")) - 1: c for n, c in zip(names, told, strict=True) if c} == counts
    return len(expected.commits)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(scripts(LOOKED))
def test_flower_agrees_with_the_reference(script: Script) -> None:
    agree(script, 10)


@pytest.mark.slow
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(scripts(LOOKED))
def test_a_hundred_scripts_agree_with_the_reference(script: Script) -> None:
    agree(script, 15)
