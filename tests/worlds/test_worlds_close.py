"""How a round ends: against a plain loop over the chosen clients."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedpick as fp
from fedpick.worlds import Always, Bernoulli, PerClient, Reliable, Replayed, ReplayedFlags, World

DONE, LATE, FAILED, SURPLUS = fp.Status.DONE, fp.Status.LATE, fp.Status.FAILED, fp.Status.SURPLUS


def lots(count, seed=0, round=1):
    """What decides between clients with equal times."""
    return fp.rng.uniforms(seed, "ties", np.arange(count), round)


def slow_close(ids, times, works, deadline, keep):
    """Status and duration of each chosen client, and the length of a round in which someone was there."""
    status, duration, answers = [], [], []
    for place, k in enumerate(ids):
        if not works[k]:
            status.append(FAILED)
            duration.append(math.nan)
        elif deadline is not None and times[k] > deadline:
            status.append(LATE)
            duration.append(deadline)
        else:
            status.append(DONE)
            duration.append(times[k])
            answers.append((times[k], lots(len(times))[k], place))  # ties in time: by lot
    answers.sort()
    if keep is not None and len(answers) >= keep:
        for *_, place in answers[keep:]:
            status[place] = SURPLUS
        return status, duration, answers[keep - 1][0]  # the last reply that is needed
    if not ids:
        return status, duration, 0.0
    if len(answers) < len(ids) and deadline is not None:
        return status, duration, deadline  # an answer is missing
    return status, duration, max(times[k] for k in ids)


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
    state = world.init(0) if state is None else state
    return world.close(state, world.draw(state, 0, 1), fp.Choice(np.array(ids, dtype=np.int64)), keep, spent), state


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
def test_a_round_ends_as_the_loop_over_its_clients_says(case, spent, clock):
    times, works, ids, deadline, keep = case
    world = make(times, works, deadline)
    state = world.init(0)
    state.clock = clock
    timing, _ = close(world, ids, keep, spent, state)
    status, duration, seconds = slow_close(ids, times, works, deadline, keep)
    assert timing.status.tolist() == status
    np.testing.assert_array_equal(timing.duration, duration)
    assert timing.used.tolist() == [s == DONE for s in status]
    assert timing.seconds == seconds + spent
    assert state.clock == clock + (seconds + spent)
    assert np.flatnonzero(~state.idle).tolist() == sorted(set(ids))
    assert timing.status.dtype == np.int8
    assert timing.duration.dtype == np.float64


def test_no_more_are_kept_than_needed_and_they_are_the_first():
    timing, _ = close(make([5.0, 1.0, 3.0, 2.0, 4.0], [1] * 5), [0, 1, 2, 3, 4], keep=3)
    assert timing.status.tolist() == [SURPLUS, DONE, DONE, DONE, SURPLUS]
    assert timing.duration.tolist() == [5.0, 1.0, 3.0, 2.0, 4.0]  # what came too late to be used is known, too
    assert timing.seconds == 3.0


def test_of_equal_times_those_are_kept_that_the_lot_of_the_round_names():
    world = make([2.0] * 4, [1] * 4)
    timing, _ = close(world, [3, 1, 0, 2], keep=2)
    lot = lots(4)[[3, 1, 0, 2]]
    assert timing.status.tolist() == np.where(lot < np.sort(lot)[2], DONE, SURPLUS).tolist()
    again, _ = close(world, [0, 1, 2, 3], keep=2)  # whatever the order of the choice
    assert again.status.tolist() == timing.status[[2, 1, 3, 0]].tolist()


def test_with_equal_devices_over_selection_uses_everyone_alike():
    run = fp.Run(fp.OverSelect(fp.Uniform(10), 1.5), fp.worlds.named("ideal", 15), seed=0)
    used = np.zeros(15)
    for record in run.rounds(300):
        used[record.ids[record.status == DONE]] += 1
    assert used.sum() == 3000
    # 10 of 15 each round: 200 of 300 rounds each, with a standard deviation of 8.2.
    assert np.abs(used - 200).max() < 4 * 8.2


def test_lots_are_drawn_only_where_times_are_equal(monkeypatch):
    def refuse(*_):
        raise AssertionError("no lot is needed")

    world = make([5.0, 1.0, 3.0], [1] * 3)
    state = world.init(0)
    draw = world.draw(state, 0, 1)
    for name in ("stream", "uniforms"):
        monkeypatch.setattr(fp.rng, name, refuse)
    timing = world.close(state, draw, fp.Choice(np.arange(3)), keep=2)
    assert timing.status.tolist() == [SURPLUS, DONE, DONE]


def test_an_answer_at_the_deadline_is_in_time():
    timing, _ = close(make([2.0, 2.0 + 1e-12], [1, 1], deadline=2.0), [0, 1])
    assert timing.status.tolist() == [DONE, LATE]
    assert timing.duration.tolist() == [2.0, 2.0]


def test_a_round_ends_before_its_deadline_when_everyone_has_answered():
    timing, _ = close(make([2.0, 5.0], [1, 1], deadline=60.0), [0, 1])
    assert timing.seconds == 5.0


def test_the_server_cannot_tell_a_failure_and_waits_for_the_deadline():
    timing, _ = close(make([2.0, 1.0], [1, 0], deadline=60.0), [0, 1])
    assert timing.status.tolist() == [DONE, FAILED]
    assert timing.seconds == 60.0


def test_without_a_deadline_a_failure_costs_what_it_would_have_taken():
    timing, _ = close(make([2.0, 7.0], [1, 0]), [0, 1])
    assert timing.seconds == 7.0


def test_failures_cost_nothing_when_enough_others_answer():
    timing, _ = close(make([2.0, 7.0, 3.0], [1, 0, 1], deadline=60.0), [0, 1, 2], keep=2)
    assert timing.status.tolist() == [DONE, FAILED, DONE]
    assert timing.seconds == 3.0


def test_fewer_there_than_needed_are_not_waited_for():
    timing, _ = close(make([2.0, 3.0, 1.0], [1] * 3, deadline=60.0), [0, 1], keep=3)
    assert timing.seconds == 3.0


def test_a_round_without_anyone_there_lasts_the_wait():
    world = World(
        fp.Clients([1.0]),
        availability=Bernoulli(0.0),
        volatility=Reliable(),
        latency=PerClient(5.0),
        wait=45.0,
    )
    timing, state = close(world, [], spent=2.0)
    assert len(timing.status) == len(timing.duration) == 0
    assert timing.seconds == state.clock == 47.0
    assert state.idle.all()


def test_a_policy_that_wants_nobody_takes_no_time():
    timing, state = close(make([2.0], [1]), [])
    assert timing.seconds == state.clock == 0.0


def test_the_clock_and_the_idle_flags_go_from_round_to_round():
    world = make([1.0, 2.0, 4.0], [1, 1, 1])
    state = world.init(0)
    assert state.idle.all()
    for ids, clock, busy in (([0, 1], 2.0, [0, 1]), ([2], 6.0, [2]), ([], 6.0, []), ([1], 8.0, [1])):
        close(world, ids, state=state)
        assert state.clock == clock
        assert np.flatnonzero(~state.idle).tolist() == busy


@pytest.mark.parametrize("wrong", [-1, 3])
def test_a_client_that_is_not_enrolled_is_refused(wrong):
    message = f"the choice holds client {wrong}, but clients are numbered 0 to 2"
    with pytest.raises(fp.errors.ContractError, match=message):
        close(make([1.0] * 3, [1] * 3), [0, wrong])


def test_over_selection_keeps_the_first_of_those_asked():
    times = np.arange(1.0, 21.0)
    world = make(times, [True] * 20)
    (record,) = fp.Run(fp.OverSelect(fp.Uniform(10), 1.5), world).rounds(1)
    assert len(record.ids) == 15
    done = record.status == DONE
    assert done.sum() == 10
    assert np.all(record.status[~done] == SURPLUS)
    assert record.duration[done].max() < record.duration[~done].min()
    assert record.seconds == record.duration[done].max()


def test_a_loss_that_ran_away_turns_done_into_failed_and_nothing_else():
    world = make([1.0, 2.0, 3.0, 9.0, 4.0, 5.0], [1, 1, 1, 1, 0, 1], deadline=8.0)
    timing, _ = close(world, range(6), keep=3)
    assert timing.status.tolist() == [DONE, DONE, DONE, LATE, FAILED, SURPLUS]
    outcome = timing.report(np.array([0.5, math.nan, math.inf, math.nan, math.nan, math.nan]), {"norm": np.ones(6)})
    assert outcome.status.tolist() == [DONE, FAILED, FAILED, LATE, FAILED, SURPLUS]
    np.testing.assert_array_equal(outcome.duration, timing.duration)
    assert outcome.reports["norm"].tolist() == [1.0] * 6
    assert timing.status.tolist() == [DONE, DONE, DONE, LATE, FAILED, SURPLUS]  # the timing itself is not changed


def test_without_training_losses_are_unknown_and_statuses_stay():
    timing, _ = close(make([1.0, 2.0], [1, 0]), [0, 1])
    outcome = timing.report()
    assert outcome.status.tolist() == [DONE, FAILED]
    assert np.isnan(outcome.loss).all()


def test_losses_that_are_not_aligned_are_refused():
    timing, _ = close(make([1.0, 2.0], [1, 1]), [0, 1])
    with pytest.raises(fp.errors.ContractError, match=r"Outcome\.loss has length 3, but there are 2 statuses"):
        timing.report(np.ones(3))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"deadline": 0}, r"World: deadline = 0, but must be > 0 seconds and finite; None waits for the slowest"),
        ({"deadline": -1.0}, r"World: deadline = -1\.0, but must be > 0 seconds and finite; None waits"),
        ({"deadline": math.inf}, r"World: deadline = inf, but must be > 0 seconds and finite; None waits"),
        ({"deadline": math.nan}, r"World: deadline = nan, but must be > 0 seconds and finite"),
        (
            {"epochs": ()},
            r"World: epochs = \(\), but must be one or more numbers >= 1; such as \(1, 2, 3, 4\), or \(1,\)",
        ),
        ({"epochs": (1, 0)}, r"World: epochs = \(1, 0\), but must be one or more numbers >= 1"),
        ({"epochs": (1, math.nan)}, r"World: epochs = \(1, nan\), but must be one or more numbers >= 1"),
        (
            {"epochs": 3},
            r"World: epochs = 3, but must be one or more numbers >= 1; such as \(1, 2, 3, 4\), or \(1,\) for",
        ),
        ({"epochs": ("many",)}, r"World: epochs = \('many',\), but must be numbers"),
        ({"probe_share": 1.1}, r"World: probe_share = 1\.1, but must be in \[0, 1\]"),
        ({"probe_share": -0.1}, r"World: probe_share = -0\.1, but must be in \[0, 1\]"),
        ({"model_megabytes": -1}, r"World: model_megabytes = -1, but must be finite and >= 0"),
        ({"wait": 0.0}, r"World: wait = 0\.0, but must be finite and > 0 seconds"),
    ],
)
def test_settings_outside_their_bounds_are_refused(given, message):
    with pytest.raises(fp.errors.SettingError, match=message):
        World(**given)
