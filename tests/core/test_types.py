"""The contract's types refuse what does not fit, and say why."""

import numpy as np
import pytest

import fedpick as fp
from fedpick.core.protocol import check_outcome

CLIENTS = fp.Clients([1.0, 2.0, 3.0], labels=np.ones((3, 2)), features=np.eye(3))
ALL = np.ones(3, dtype=bool)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: fp.Clients([1, 0]), r"sizes\[1\] = 0\.0, but sizes must be finite and > 0"),
        (lambda: fp.Clients([1, np.nan]), r"sizes\[1\] = nan"),
        (lambda: fp.Clients([[1, 2]]), r"sizes has 2 axes \(shape \(1, 2\)\), but must have 1"),
        (lambda: fp.Clients(["a"]), "sizes must be numbers"),
        (lambda: fp.Clients([1, 2], features=np.ones((3, 4))), "features has length 3, but there are 2 clients"),
        (lambda: fp.Clients([1, 2], features=[1, 2]), "features has 1 axes"),
        (lambda: fp.Clients([1, 2], labels=[[1], [np.inf]]), "labels holds NaN or infinity"),
        (lambda: fp.View(0, ALL, CLIENTS), "View.round = 0, but rounds start at 1"),
        (lambda: fp.View(1, [0, 2], CLIENTS), "must be a boolean mask with one entry per client; from indices"),
        (lambda: fp.View(1, ALL[:2], CLIENTS), "available has length 2, but there are 3 clients"),
        (lambda: fp.View(1, ALL, CLIENTS, context=np.ones((2, 3))), "context has length 2, but there are 3"),
        (lambda: fp.View(1, ALL, CLIENTS, context=np.ones(3)), "context has 1 axes"),
        (lambda: fp.Choice([0.5]), r"must be a 1-d integer array; write ids.astype\(int\) if they are whole numbers"),
        (lambda: fp.Choice([0, 1], inclusion=[1.0]), "inclusion has length 1, but there are 2 chosen clients"),
        (lambda: fp.Choice([0], inclusion=[np.nan]), "use None if it is unknown"),
        (lambda: fp.Choice([0], weights=[-1.0]), "weights holds a negative number"),
        (
            lambda: fp.Outcome([9], [1.0], [1.0]),
            "status holds 9, but there are only DONE=0, LATE=1, FAILED=2, SURPLUS=3",
        ),
        (lambda: fp.Outcome([-1], [1.0], [1.0]), "status holds -1"),
        (lambda: fp.Outcome([0.5], [1.0], [1.0]), "must be a 1-d array of fp.Status"),
        (lambda: fp.Outcome([0, 0], [1.0], [1.0, 1.0]), "duration has length 1, but there are 2 statuses"),
        (lambda: fp.Outcome([0], [1.0], [1.0, 2.0]), "loss has length 2, but there are 1 statuses"),
        (lambda: fp.Outcome([0], [1.0], [1.0], {"e": [[1], [2]]}), r"reports\['e'\] has length 2"),
        (lambda: fp.Outcome([0], [1.0], [1.0], {"e": 3.0}), r"reports\['e'\] is a scalar"),
    ],
)
def test_what_does_not_fit_is_a_contract_error(make, says):
    with pytest.raises(fp.ContractError, match=says):
        make()


def test_clients_take_and_join_keep_what_is_known():
    known = fp.Clients([1.0, 2.0, 3.0], features=np.eye(3))
    joined = known.take([2, 0]).join(fp.Clients([9.0], features=[[1.0, 1.0, 1.0]]))
    assert joined.sizes.tolist() == [3.0, 1.0, 9.0]
    assert joined.labels is None
    np.testing.assert_array_equal(joined.features, [[0, 0, 1], [1, 0, 0], [1, 1, 1]])
    nobody = fp.Clients(np.empty(0))
    assert nobody.join(known) is known
    assert known.join(nobody) is known


@pytest.mark.parametrize("what", ["labels", "features"])
def test_clients_are_not_joined_where_what_some_know_would_be_lost(what):
    known, bare = fp.Clients([1.0], **{what: [[1.0, 2.0]]}), fp.Clients([2.0])
    with pytest.raises(fp.ContractError, match=f"these clients have {what} and the others have none"):
        known.join(bare)
    with pytest.raises(fp.ContractError, match=f"the others have {what} and these clients have none"):
        bare.join(known)
    with pytest.raises(fp.ContractError, match=f"have 2 columns of {what} and the others 1, but"):
        known.join(fp.Clients([2.0], **{what: [[1.0]]}))


def test_succeeded_is_done_or_surplus():
    outcome = fp.Outcome([0, 1, 2, 3], np.ones(4), np.ones(4))
    assert outcome.succeeded.tolist() == [True, False, False, True]


@pytest.mark.parametrize(
    ("choice", "says"),
    [
        ([0, 1], "outcome has 3 entries, but 2 clients were chosen: .*FAILED for those that never answered"),
        ([0, 1, 3], "holds client 3, but clients are numbered 0 to 2"),
        ([0, 1, -1], "holds client -1"),
        ([0, 1, 1], "client 1 reports twice"),
        ([0, 1, 2], "client 2 was chosen, but was not available"),
    ],
)
def test_an_outcome_that_cannot_belong_to_the_choice_is_refused(choice, says):
    view = fp.View(1, np.array([True, True, False]), CLIENTS)
    outcome = fp.Outcome([0, 0, 0], np.ones(3), np.ones(3))
    with pytest.raises(fp.ContractError, match=says):
        check_outcome(view, fp.Choice(choice), outcome)


def test_streams_differ_by_seed_round_and_name_and_repeat():
    def first(*key):
        return fp.rng.stream(*key).random(4).tolist()

    assert first(1, 2, "a") == first(1, 2, "a")
    keys = [(1, 2, "a"), (2, 2, "a"), (1, 3, "a"), (1, 2, "b"), (12, 2, "a"), (1, 22, "a")]
    assert len({tuple(first(*key)) for key in keys}) == len(keys)


@pytest.mark.parametrize(("seed", "round"), [(-1, 1), (0, -1)])
def test_streams_refuse_negative_numbers(seed, round):
    with pytest.raises(fp.SettingError, match="must be an integer >= 0"):
        fp.rng.stream(seed, round, "x")


@pytest.mark.parametrize(
    ("schedule", "points"),
    [
        (fp.schedules.Step(0, 1, at=2.5), {1: 0, 2: 0, 3: 1, 99: 1}),
        (fp.schedules.Linear(1, 0, horizon=5), {1: 1, 2: 0.75, 5: 0, 99: 0}),
        (fp.schedules.Cosine(0, 2, horizon=3), {1: 0, 2: 1, 3: 2, 99: 2}),
        (fp.schedules.Halving(8, every=2), {1: 8, 2: 8, 3: 4, 5: 2}),
    ],
)
def test_schedules_and_their_last_value(schedule, points):
    for round, value in points.items():
        assert schedule(round) == pytest.approx(value)


@pytest.mark.parametrize(
    "make",
    [lambda: fp.schedules.Linear(0, 1, 1), lambda: fp.schedules.Cosine(0, 1, 0), lambda: fp.schedules.Halving(4, 0)],
)
def test_schedules_refuse_empty_horizons(make):
    with pytest.raises(fp.SettingError, match="must be >="):
        make()


def test_shares_are_relative_or_as_they_are():
    returned = np.array([True, False, True])
    assert fp.Choice([0, 1, 2]).shares(returned) is None
    relative, exact = (fp.Choice([0, 1, 2], weights=[1, 2, 4], normalise=yes) for yes in (True, False))
    assert relative.shares(returned).tolist() == [0.2, 0.0, 0.8]
    assert exact.shares(returned).tolist() == [1.0, 0.0, 4.0]
    assert fp.Choice([0, 1], weights=[0, 1]).shares(np.array([True, False])).tolist() == [0.0, 0.0]


def test_a_part_of_a_choice_keeps_what_was_said_of_it():
    part = fp.Choice([5, 6, 7], [0.1, 0.2, 0.3], [1, 2, 3], normalise=False).take([2, 0])
    assert (part.ids.tolist(), part.inclusion.tolist(), part.weights.tolist()) == ([7, 5], [0.3, 0.1], [3.0, 1.0])
    assert not part.normalise
    with pytest.raises(fp.ContractError, match="there are no weights to use as they are"):
        fp.Choice([1], normalise=False)
