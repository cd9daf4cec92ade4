"""One script of events through a simulated run, a stacked run and a session: the same statuses, weights and states.

What the scripts contain, and where drivers cannot be told the same, stands in `scripts`. Flower plays them in
tests/flower/test_scripts.py. All are compared with the twin (`rounds`), which is plain Python.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from played import play_simulated, play_stacked

import fedpick as fp
from scripts import ROUNDS, SCRIPTS, WAIT, Script, check_rules, check_same, play_session
from zoo import some_slow

pytestmark = pytest.mark.usefixtures("quick_start")

STACK = 10
GROUPS = some_slow(range(0, SCRIPTS, STACK), quick=5)


@contextmanager
def named(script: Script) -> Iterator[None]:
    """Errors say which script it was."""
    try:
        yield
    except Exception as error:
        error.add_note(f"script {script.seed}: {script.policy!r}, {script.pace!r}")
        raise


@pytest.mark.parametrize("first", GROUPS)
def test_simulator_stacked_runs_and_session_agree(first: int) -> None:
    scripts = [Script.draw(number) for number in range(first, first + STACK)]
    alone = []
    for script in scripts:
        with named(script):
            heard, policy = play_simulated(script)
            alone.append(heard)
            if "norms" in script.about.needs:  # rounds of two phases: only simulated
                with pytest.raises(fp.errors.MissingError):
                    fp.Session(script.policy)
                continue
            check_rules(script, heard, policy)
            served, told = play_session(script)
            rounds = len(served)
            assert rounds == ROUNDS or not script.there[rounds].any()
            check_same(heard[:rounds], served, "simulator and session")
            for one, other in zip(policy.outcomes[:rounds], told.outcomes, strict=True):
                check_reports(one, other)
    for script, one, other in zip(scripts, alone, play_stacked(scripts), strict=True):
        with named(script):
            check_same(one, other, "alone and stacked")


def check_reports(one: fp.Outcome, other: fp.Outcome) -> None:
    """The reports of a session are those of a simulated run, in rounds in which someone answered."""
    for name in other.reports:
        if (one.status == fp.Status.DONE).any():
            np.testing.assert_array_equal(one.reports[name], other.reports[name], name)


@pytest.mark.parametrize("number", some_slow(range(0, SCRIPTS, 4), quick=10))
def test_the_mean_of_updates_in_time_and_late(number: int) -> None:
    """The weights added up to 10.5 where a policy's stand as they are."""
    script = Script.draw(number)
    if script.about.needs & {"norms"}:
        return
    with named(script):
        heard, policy = play_simulated(script, aggregation="mean")
        for played in check_rules(script, heard, policy, mean=True):
            weights = list(played.weights.values())
            assert not any(weights) or sum(weights) == pytest.approx(1.0)  # with beta = 1, that of one alone is 0


def test_the_quick_scripts_hold_all_that_can_happen() -> None:
    """A test that meets none of a kind shows nothing about it."""
    seen: Counter[str] = Counter()
    for script in (Script.draw(n) for first in GROUPS if isinstance(first, int) for n in range(first, first + STACK)):
        if "norms" in script.about.needs:
            continue
        served, policy = play_session(script)
        seen["nobody there"] += len(served) < ROUNDS
        for t, played in enumerate(check_rules(script, served, policy)):
            view, choice, count = policy.views[t], policy.choices[t], Counter(played.status)
            seen.update({fp.Status(how).name: number for how, number in count.items()})
            seen["drawn twice"] += max(played.times, default=0) > 1
            seen["late and used"] += len(played.late)
            seen["two rounds late"] += any(tau == 2 for _, tau in played.weights)
            seen["late beside in time"] += len({tau > 0 for _, tau in played.weights}) == 2
            seen["late alone"] += bool(played.weights) and all(tau for _, tau in played.weights)
            seen["all busy"] += not view.available.any()
            seen["nobody wanted"] += bool(view.available.any()) and not played.ids
            seen["waited for an answer"] += not played.ids and 0 < played.seconds < WAIT
            seen["waited in vain"] += not played.ids and played.seconds == WAIT
            seen["probed"] += bool(policy.probed[t])
            seen["as they are, beside surplus"] += not choice.normalise and count[fp.Status.SURPLUS] > 0
            seen["impossible loss"] += any(abs(script.loss[t, k]) == 1e13 for k in played.ids)
            seen["loss is not a number"] += any(np.isnan(script.loss[t, k]) for k in played.ids)
            last = [d for d, how in zip(played.duration, played.status, strict=True) if how == fp.Status.DONE]
            ties = [k for k in played.ids if last and script.seconds[t, k] == max(last)]
            seen["tie at the close"] += bool(count[fp.Status.SURPLUS]) and len(ties) > 1
    assert len(seen) == 19
    assert min(seen.values()) >= 3, seen
