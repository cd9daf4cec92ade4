"""How a round ends: against a plain loop over the chosen clients."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedpick as fp
from fedpick.engine.cohort import Cohort
from fedpick.simulate.round import Answers, OpenRound, pace_of
from fedpick.simulate.round import close as close_round
from fedpick.store.checkpoint import RunState
from fedpick.worlds import Always, Bernoulli, PerClient, Reliable, Replayed, ReplayedFlags, World

DONE, LATE, FAILED, SURPLUS = fp.Status.DONE, fp.Status.LATE, fp.Status.FAILED, fp.Status.SURPLUS


def lots(count, seed=0, round=1):
    """What decides between clients with equal times."""
    return fp.rng.uniforms(seed, "ties", np.arange(count), round)


def slow_close(ids, times, works, deadline, keep):
    """Status and duration of each client asked, and the length of a round in which someone was there: event by event.

    A client drawn twice is asked once, and its answer counts twice.
    """
    asked = list(dict.fromkeys(ids))
    events = []
    for k in asked:
        if works[k] and (deadline is None or times[k] <= deadline):
            events.append((times[k], lots(len(times))[k], k, "answer"))  # ties in time: by lot
        elif deadline is None:
            events.append((times[k], lots(len(times))[k], k, "error"))
    status, duration, used, now = {}, {}, 0, 0.0
    for time, _, k, kind in sorted(events):
        if keep is not None and used >= keep:
            break
        now = time
        if kind == "answer":
            status[k], duration[k] = DONE, time
            used += ids.count(k)
        else:
            status[k], duration[k] = FAILED, math.nan
    full = keep is not None and used >= keep
    if not full and len(status) < len(asked):  # an answer is missing
        now = deadline
    for k in asked:
        if k not in status:
            status[k], duration[k] = (SURPLUS, math.nan) if full else (LATE, deadline)
    return [status[k] for k in asked], [duration[k] for k in asked], now


def make(times, works, deadline=None, **rest):
    clients = fp.Clients(np.ones(len(times)))
    return World(
        clients,
        availability=Always(),
        volatility=ReplayedFlags([works]),
        latency=Replayed([times]),
        deadline=deadline,
        epochs=(1,),
        **rest,
    )


def close(world, ids, keep=None, spent=0.0, state=None):
    state = RunState(None, world.init(0)) if state is None else state
    draw = world.draw(state.world, 0, 1)
    view = world.view(state.world, draw)
    cohort = Cohort(fp.Choice(np.array(ids, dtype=np.int64)), keep)
    answers = Answers.of(world, state.world, draw, cohort, world.deadline)
    needed = answers.needed()
    closed = close_round(
        state, OpenRound(1, view, answers, pace_of(world, None), state.world.clock, spent, 0, 0.0), None
    )
    np.testing.assert_array_equal(needed, cohort.used)  # only work that is used is done
    return closed, state


@st.composite
def rounds(draw):
    count, rng = draw(st.integers(1, 12)), np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    some = rng.choice([0.0, 5e-324, 1.0, 2.0, 3.0, 10.0], count)  # ties are common
    times = np.where(rng.random(count) < 0.6, some, rng.uniform(0, 10, count)).tolist()
    works = (rng.random(count) < 2 / 3).tolist()
    ids = rng.choice(count, rng.integers(0, count + 1), replace=draw(st.booleans())).tolist()
    deadline = draw(st.one_of(st.none(), st.sampled_from([1.0, 2.0]), st.floats(0.1, 12)))
    return times, works, ids, deadline, draw(st.one_of(st.none(), st.integers(1, 12)))


@given(rounds(), st.floats(0, 5), st.floats(0, 1e4))
@settings(max_examples=500, deadline=None)
def test_a_round_ends_as_the_loop_over_its_events_says(case, spent, clock):
    times, works, ids, deadline, keep = case
    world = make(times, works, deadline)
    state = RunState(None, world.init(0))
    state.world.clock = clock
    closed, _ = close(world, ids, keep, spent, state)
    status, duration, seconds = slow_close(ids, times, works, deadline, keep)
    assert closed.outcome.status.tolist() == status
    np.testing.assert_array_equal(closed.outcome.duration, duration)
    assert closed.seconds == seconds + spent
    assert state.world.clock == clock + (seconds + spent)
    assert np.flatnonzero(~state.world.idle).tolist() == sorted(set(ids))
    assert closed.outcome.status.dtype == np.int8
    assert closed.outcome.duration.dtype == np.float64


def ended(times, works, ids, deadline=None, **options):
    closed, _ = close(make(times, works, deadline), ids, **options)
    return [fp.Status(each).name for each in closed.outcome.status], closed.outcome.duration.tolist(), closed.seconds


def test_no_more_are_kept_than_needed_and_they_are_the_first():
    status, duration, seconds = ended([5.0, 1.0, 3.0, 2.0, 4.0], [1] * 5, [0, 1, 2, 3, 4], keep=3)
    assert status == ["SURPLUS", "DONE", "DONE", "DONE", "SURPLUS"]
    np.testing.assert_array_equal(duration, [math.nan, 1.0, 3.0, 2.0, math.nan])  # who still works has none
    assert seconds == 3.0


def test_of_equal_times_those_are_kept_that_the_lot_of_the_round_names():
    first, _, _ = ended([2.0] * 4, [1] * 4, [3, 1, 0, 2], keep=2)
    lot = lots(4)[[3, 1, 0, 2]]
    assert first == np.where(lot < np.sort(lot)[2], "DONE", "SURPLUS").tolist()
    again, _, _ = ended([2.0] * 4, [1] * 4, [0, 1, 2, 3], keep=2)  # whatever the order of the choice
    assert again == [first[at] for at in (2, 1, 3, 0)]


def test_with_equal_devices_over_selection_uses_everyone_alike():
    run = fp.Run(fp.OverSelect(fp.Uniform(10), 1.5), fp.worlds.named("ideal", 15), seed=0)
    used = np.zeros(15)
    for record in run.rounds(300):
        used[record.ids[record.status == DONE]] += 1
    assert used.sum() == 3000
    # 10 of 15 each round: 200 of 300 rounds each, with a standard deviation of 8.2.
    assert np.abs(used - 200).max() < 4 * 8.2


@pytest.mark.parametrize(
    ("times", "works", "ids", "options", "wanted"),
    [
        # An answer at the deadline is in time.
        ([2.0, 2.0 + 1e-12], [1, 1], [0, 1], {"deadline": 2.0}, (["DONE", "LATE"], [2.0, 2.0], 2.0)),
        # When everyone has answered, the deadline is not waited for.
        ([2.0, 5.0], [1, 1], [0, 1], {"deadline": 60.0}, (["DONE", "DONE"], [2.0, 5.0], 5.0)),
        # A server cannot tell a failure from a slow client: it waits, and the client is late.
        ([2.0, 1.0], [1, 0], [0, 1], {"deadline": 60.0}, (["DONE", "LATE"], [2.0, 60.0], 60.0)),
        # Without a deadline, a failure is noticed when the client should have answered.
        ([2.0, 7.0], [1, 0], [0, 1], {}, (["DONE", "FAILED"], [2.0, math.nan], 7.0)),
        # Failures cost nothing when enough others answer, and are not known then.
        (
            [2.0, 7.0, 3.0],
            [1, 0, 1],
            [0, 1, 2],
            {"deadline": 9.0, "keep": 2},
            (["DONE", "SURPLUS", "DONE"], None, 3.0),
        ),
        # Fewer there than needed are not waited for.
        ([2.0, 3.0, 1.0], [1] * 3, [0, 1], {"deadline": 60.0, "keep": 3}, (["DONE", "DONE"], [2.0, 3.0], 3.0)),
        # A policy that wants nobody takes no time.
        ([2.0], [1], [], {}, ([], [], 0.0)),
    ],
)
def test_how_a_round_ends(times, works, ids, options, wanted):
    status, duration, seconds = ended(times, works, ids, **options)
    assert (status, seconds) == (wanted[0], wanted[2])
    if wanted[1] is not None:
        np.testing.assert_array_equal(duration, wanted[1])


def test_a_round_without_anyone_there_lasts_the_wait():
    world = World(
        fp.Clients([1.0]),
        availability=Bernoulli(0.0),
        volatility=Reliable(),
        latency=PerClient(5.0),
        wait=45.0,
    )
    closed, state = close(world, [], spent=2.0)
    assert len(closed.outcome) == 0
    assert closed.seconds == state.world.clock == 47.0
    assert state.world.idle.all()


def test_the_clock_and_the_idle_flags_go_from_round_to_round():
    world = make([1.0, 2.0, 4.0], [1, 1, 1])
    state = RunState(None, world.init(0))
    assert state.world.idle.all()
    for ids, clock, busy in (([0, 1], 2.0, [0, 1]), ([2], 6.0, [2]), ([], 6.0, []), ([1], 8.0, [1])):
        close(world, ids, state=state)
        assert state.world.clock == clock
        assert np.flatnonzero(~state.world.idle).tolist() == busy


class Diverges:
    """A trainer whose clients 1 and 2 always send updates that cannot be used."""

    def __init__(self):
        self.trained = []

    def init(self, seed):
        return np.zeros(2)

    def train(self, model, ids, used, epochs, round, rng):
        self.trained.append(ids[used].tolist())
        return fp.Updates(np.where(np.isin(ids, [1, 2]), np.array([np.nan, 1e13])[ids % 2], 0.5))

    def aggregate(self, model, choice, outcome, updates):
        return model + 1.0

    def evaluate(self, model, round):
        return {}


def test_where_an_update_cannot_be_used_the_next_answer_takes_its_place_as_on_a_server():
    world, trainer = make([1.0, 2.0, 3.0, 4.0, 5.0], [1] * 5, 60.0), Diverges()
    record = next(fp.Run(fp.OverSelect(fp.Uniform(2), 2.5), world, 0, trainer).rounds(1))
    status = dict(zip(record.ids.tolist(), [fp.Status(each).name for each in record.status], strict=True))
    assert status == {0: "DONE", 1: "FAILED", 2: "FAILED", 3: "DONE", 4: "SURPLUS"}
    assert record.seconds == 4.0
    assert trainer.trained == [[0, 1], [0, 2], [0, 3]]
    assert record.messages == 5 + 4
