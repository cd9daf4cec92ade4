"""An asynchronous `fp.Session` against the slow reference, and what clients and servers may do to it."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from served import QUARTER, Clock, Player

import fedpick as fp
from asynchronous import Script, play
from asynchronous_scripts import scripts

DONE, LATE, FAILED, SURPLUS = fp.Status


def agree(script: Script, commits: int) -> None:
    """Compare the session with the reference."""
    # The server looks in each quarter; so does the reference, in which asking happens if something changed.
    script.changes = [QUARTER * n for n in range(1, int(script.until / QUARTER) + 1)]
    expected = play(script, commits)
    with Clock() as clock:
        player = Player(script, clock)
        found = player.play(commits)
    assert len(found.commits) == len(expected.commits)
    for mine, theirs in zip(found.commits, expected.commits, strict=True):
        assert (mine.version, mine.time, mine.asked, mine.flying) == (
            theirs.version,
            theirs.time,
            theirs.asked,
            theirs.flying,
        )
        for one, other in zip(mine.ended, theirs.ended, strict=True):
            assert one.weight == pytest.approx(other.weight, rel=1e-12)
            assert vars(one) | {"weight": 0} == vars(other) | {"weight": 0}
        np.testing.assert_allclose(mine.model, theirs.model, rtol=1e-9, atol=1e-12)
    assert [(ask.time, ask.version, ask.wanted, ask.idle, ask.chosen) for ask in found.asks] == [
        (ask.time, ask.version, ask.wanted, ask.idle, ask.chosen) for ask in expected.asks
    ]
    end = expected.commits[-1].time if len(expected.commits) == commits else script.until  # then the reference stops
    assert [each for each in found.ignored if each[0] < end] == [each for each in expected.ignored if each[0] < end]
    counts = np.zeros(script.clients, dtype=int)
    for commit in expected.commits:
        for each in commit.ended:
            counts[each.client] += 1
    for client, count in zip(player.clients, player.session.roster.state.counts if player.clients else [], strict=True):
        assert count == counts[client]


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(scripts())
def test_sessions_agree_with_the_reference(script: Script) -> None:
    agree(script, 12)
