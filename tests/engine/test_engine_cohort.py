"""A cohort against the rules in plain Python (`rounds`), and what single answers count as."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedpick as fp
import rounds as twin
from fedpick.engine.cohort import Cohort, possible

DONE, LATE, FAILED, SURPLUS = fp.Status.DONE, fp.Status.LATE, fp.Status.FAILED, fp.Status.SURPLUS
LOSSES = [None, 0.5, -3.0, 0.0, 1e12, -1e12, np.nextafter(1e12, 2e12), 1e13, -1e13, math.inf, -math.inf, math.nan]


@pytest.mark.parametrize("loss", LOSSES)
def test_one_bound_says_which_losses_are_possible(loss):
    """A loss of 1e13 was DONE in simulated runs and FAILED in sessions."""
    wanted = twin.possible(loss)
    found = Cohort(fp.Choice([3])).arrive(0, 1.0, loss)
    assert found == (DONE if wanted else FAILED)
    if loss is not None:
        assert possible(loss) == wanted
        assert possible(np.array([loss])).tolist() == [wanted]


@st.composite
def cases(draw):
    number = draw(st.integers(1, 6))
    ids = draw(st.lists(st.integers(0, number - 1), max_size=8))
    answer = st.builds(
        twin.Answer,
        seconds=st.sampled_from([0.5, 1.0, 2.0, 3.0, 5.0]),
        loss=st.sampled_from(LOSSES),
        broken=st.integers(0, 5).map(lambda n: n == 0),
        silent=st.integers(0, 5).map(lambda n: n == 0),
        update=st.just((1.0,)),
    )
    answers = {k: draw(answer) for k in range(number)}
    numbers = st.lists(st.integers(1, 8).map(float), min_size=len(ids), max_size=len(ids))
    chances = draw(st.lists(st.integers(1, 8).map(lambda n: n / 8), min_size=number, max_size=number))
    weights = draw(st.one_of(st.none(), numbers))
    choice = {
        "inclusion": draw(st.sampled_from([None, [chances[k] for k in ids]])),
        "weights": weights,
        "normalise": weights is None or draw(st.booleans()),
    }
    return ids, answers, choice, draw(st.one_of(st.none(), st.integers(1, 8))), draw(st.sampled_from([None, 2.0, 3.0]))


@given(cases(), st.data())
@settings(max_examples=200)
def test_a_cohort_is_what_the_loop_over_events_says(case, data):
    ids, answers, choice, keep, deadline = case
    wanted = twin.Rounds(deadline).play(
        1, ids, answers=answers, sizes=dict.fromkeys(answers, 1.0), free=True, keep=keep, **choice
    )
    cohort = Cohort(fp.Choice(np.array(ids, dtype=np.int64), **choice), keep, first=7)
    assert cohort.choice.ids.tolist() == wanted.ids
    assert cohort.choice.times.tolist() == wanted.times
    where = {k: at for at, k in enumerate(wanted.ids)}
    for k in sorted(wanted.ids, key=lambda k: (answers[k].seconds, where[k])):
        said, at = answers[k], where[k]
        if cohort.complete or (deadline is not None and (said.silent or said.seconds > deadline)):
            continue
        before = cohort.back
        first = cohort.arrive(at, said.seconds, said.loss, not (said.broken or said.silent), not said.silent)
        if data.draw(st.booleans()):  # a repetition changes nothing, whatever it says
            assert cohort.arrive(at, 9.0, data.draw(st.sampled_from(LOSSES)), data.draw(st.booleans())) == first
        assert cohort.back == before + (not said.silent)
        assert cohort.status(at) == first
    cohort.close(math.nan if deadline is None else deadline)
    outcome, settled = cohort.outcome(), cohort.settled()
    assert outcome.status.tolist() == wanted.status
    np.testing.assert_array_equal(outcome.duration, wanted.duration)
    np.testing.assert_array_equal(outcome.loss, wanted.loss)
    assert len(ids) == 0 or len(cohort) + cohort.back == wanted.messages
    used = cohort.used
    assert used.tolist() == [how == DONE for how in wanted.status]
    assert cohort.late.tolist() == [at for at, how in enumerate(wanted.status) if how == LATE]
    assert (settled.inclusion is None) == (wanted.inclusion is None)
    if wanted.inclusion is not None:
        np.testing.assert_allclose(settled.inclusion, wanted.inclusion)
    if choice["weights"] is not None:
        found = {k: w for k, w, is_used in zip(wanted.ids, settled.shares(used), used, strict=True) if is_used}
        assert found == pytest.approx({k: w for (k, _), w in wanted.weights.items()})


@given(st.data())
@settings(max_examples=300)
def test_many_answers_at_once_are_the_same_as_one_by_one(data):
    ids = data.draw(st.lists(st.integers(0, 5), max_size=8))
    keep, choice = data.draw(st.one_of(st.none(), st.integers(0, 8))), fp.Choice(np.array(ids, dtype=np.int64))
    many, single = Cohort(choice, keep), Cohort(choice, keep)
    count = len(many)

    def each(strategy, kind):
        return np.array(data.draw(st.lists(strategy, min_size=count, max_size=count)), dtype=kind)

    order = np.array(data.draw(st.permutations(range(count)))[: data.draw(st.integers(0, count))], dtype=np.int64)
    duration, usable, answered = each(st.floats(0, 9), float), each(st.booleans(), bool), each(st.booleans(), bool)
    loss = data.draw(st.one_of(st.none(), st.just(each(st.sampled_from(LOSSES[1:]), float))))
    came = []
    for at in order.tolist():
        if single.complete:
            break
        said = None if loss is None else float(loss[at])
        single.arrive(at, float(duration[at]), said, bool(usable[at]), bool(answered[at]))
        came.append(at)
    assert many.arrive_in_turn(order, duration, loss, usable, answered).tolist() == came
    for name in ("flying", "drawn", "failed", "back", "unusable", "full", "complete"):
        assert getattr(many, name) == getattr(single, name), name
    for cohort in (many, single):
        cohort.close(9.0)
    for name in ("status", "duration", "loss"):
        np.testing.assert_array_equal(getattr(many.outcome(), name), getattr(single.outcome(), name))


def test_answers_beyond_those_needed_are_surplus_and_keep_what_they_told():
    cohort = Cohort(fp.Choice([4, 5, 6, 7]), keep=2)
    assert [cohort.arrive(at, at + 1.0, 0.5) for at in (0, 1, 2)] == [DONE, DONE, SURPLUS]
    assert cohort.arrive(3, 5.0, math.nan) == FAILED
    cohort.close(9.0)
    np.testing.assert_array_equal(cohort.outcome().duration, [1.0, 2.0, 3.0, math.nan])


def test_a_client_drawn_twice_is_asked_once_and_counts_twice():
    """It cost 8 messages in simulated runs, and 4 in sessions."""
    cohort = Cohort(fp.Choice([2, 1, 2], weights=[1, 5, 2]), keep=2)
    assert (len(cohort), cohort.flying) == (2, 2)
    assert cohort.choice.weights.tolist() == [3.0, 5.0]
    assert cohort.arrive(0, 1.0) == DONE
    assert cohort.full
    assert (cohort.drawn, cohort.back) == (2, 1)


def test_clients_that_were_not_asked_after_all_are_taken_out():
    cohort = Cohort(fp.Choice([4, 5, 5, 6], inclusion=[0.1, 0.2, 0.2, 0.3]))
    cohort.arrive(2, 1.0, 0.5)
    cohort.skip(np.array([True, False, False]))
    assert cohort.choice.ids.tolist() == [5, 6]
    assert cohort.choice.times.tolist() == [2, 1]
    assert cohort.choice.inclusion.tolist() == [0.2, 0.3]
    assert (cohort.flying, cohort.status(0), cohort.status(1)) == (1, None, DONE)


def test_of_thirteen_asked_the_ten_used_stand_for_all():
    """Inclusion was that of being chosen, so that the weights of 10 of 13 added up to .77."""
    chances = np.full(13, 13 / 100)
    cohort = Cohort(fp.Choice(np.arange(13), chances, (1 / 100) / chances, normalise=False), keep=10)
    for at in range(10):
        cohort.arrive(at, 1.0, 0.5)
    cohort.close(1.0)
    found = cohort.settled()
    np.testing.assert_allclose(found.inclusion, 10 / 100)
    assert found.shares(cohort.used).sum() == pytest.approx(1.0)
