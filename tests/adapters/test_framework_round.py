"""Whole models that a framework averages: in time, late, unusable; the adapters' own tests play whole rounds."""

import numpy as np
import pytest

import fedpick as fp
from fedpick.adapters.round import FrameworkRound
from fedpick.adapters.updates import Update
from fedpick.engine.weights import late_weights

SENT = {"w": np.zeros(2)}


def trained(*values, size=1.0, why=""):
    return Update(why, size=size, moves={"w": np.array(values)})


def begin(session, *names):
    return FrameworkRound(session=session, round=session.round(names), sent=SENT, weight="size")


def test_late_updates_are_compared_with_the_mean_of_those_in_time():
    session = fp.Session(fp.Uniform(3), late=1)
    first = begin(session, "ada", "bob", "cyd")
    assert first.take("ada", trained(1.0, 0.0)) == fp.Status.DONE
    first.round.close()
    assert first.take("cyd", trained(4.0, 4.0, size=20.0)) == fp.Status.LATE
    assert first.take("cyd", trained(4.0, 4.0)) is None  # once
    second = begin(session, "ada", "bob")
    update = trained(1.0, 0.0, size=10.0)
    second.take("ada", update)
    assert not update.moves  # models are not kept longer than they are needed
    second.take("bob", trained(0.0, 2.0, size=30.0))
    factor = late_weights(np.array([1]), np.array([np.sum((np.array([4.0, 4.0]) - [0.25, 1.5]) ** 2)]), 0.35)[0]
    ((came, base),) = second.weigh_late()
    assert (came.name, came.update.moves["w"].tolist()) == ("cyd", [4.0, 4.0])
    assert base == pytest.approx(20.0 * factor)
    assert second.times == 1.0


@pytest.mark.parametrize(
    "update",
    [trained(1.0, 2.0, why="NaN"), Update(), Update(moves={"v": np.ones(2)}), Update(moves={**SENT, "v": SENT})],
)
def test_what_cannot_be_used_late_is_dropped_and_its_client_is_free(update):
    session = fp.Session(fp.Uniform(2), late=2)
    first = begin(session, "ada", "bob")
    first.take("ada", trained(1.0, 0.0))
    first.round.close()
    assert session.free(["ada", "bob"]) == ["ada"]
    assert first.take("bob", update) is None
    assert session.free(["ada", "bob"]) == ["ada", "bob"]
    assert begin(session, "ada", "bob").weigh_late() == []


def test_models_of_changing_size_are_no_part_of_the_mean():
    session = fp.Session(fp.Uniform(3), late=1)
    first = begin(session, "ada", "bob", "cyd")
    first.take("ada", trained(1.0, 1.0))
    first.take("bob", trained(1.0, 1.0))
    first.round.close()
    first.take("cyd", trained(1.0, 1.0, 1.0))
    second = begin(session, "ada", "bob")
    assert second.take("ada", trained(1.0, 1.0)) == fp.Status.DONE
    assert second.take("bob", trained(1.0, 1.0, 1.0)) == fp.Status.DONE
    assert second.weigh_late() == []  # not like the first one


class Weighs:
    """Chooses everybody, with these weights."""

    cohort_size = 3

    def __init__(self, *weights, normalise=True):
        self.weights, self.normalise = weights, normalise

    def init(self, clients):
        return fp.Uniform(3).init(clients)

    def select(self, state, view, rng):
        ids = np.flatnonzero(view.available)
        return fp.Choice(ids, weights=np.asarray(self.weights)[ids], normalise=self.normalise)

    def observe(self, state, view, choice, outcome):
        return fp.Uniform(3).observe(state, view, choice, outcome)


@pytest.mark.parametrize("weight", ["size", None])
def test_weights_are_used_only_if_the_framework_averages_by_a_number(weight):
    session = fp.Session(Weighs(0.5, 1.5, 0.0, normalise=False))
    asked = FrameworkRound(session=session, round=session.round(["ada", "bob", "cyd"]), sent=SENT, weight=weight)
    for name in asked.round.chosen:
        assert asked.take(name, update := trained(1.0, 0.0)) == update.status == fp.Status.DONE
    asked.close()
    assert asked.weighted == (weight is not None)
    assert [asked.counts(name) for name in ("ada", "bob", "cyd")] == [True, True, weight is None]
    assert asked.times == (1.0 if weight is None else 2.0)


def test_changes_are_computed_only_where_late_updates_are_used():
    for late, why, found in ((0, "", {}), (1, "", SENT), (1, "NaN", {})):
        update = Update(why)
        begin(fp.Session(fp.Uniform(1), late=late), "ada").note(update, lambda: SENT)
        assert update.moves == found


class Fetched(FrameworkRound):
    """A framework that must be asked for late updates; `refuses` is what it does with those of earlier rounds."""

    refuses = None

    def pull(self):
        self.take("cyd", trained(1.0, 1.0))
        return self.session.late.owes("bob", self.round.number)

    def use_late(self, came, base):
        if isinstance(self.refuses, Exception):
            raise self.refuses
        return self.refuses is None


@pytest.mark.parametrize("refuses", [None, "it", ValueError("odd")])
def test_late_updates_are_fetched_and_handed_over(refuses, caplog):
    session = fp.Session(fp.Uniform(3), late=1)
    first = Fetched(session=session, round=session.round(["ada", "bob", "cyd"]), sent=SENT, weight="size")
    first.take("ada", trained(1.0, 1.0))
    first.close()
    assert session.late.owes("cyd", 1)  # not asked at once
    assert session.free(["ada", "bob", "cyd"]) == ["ada", "cyd"]
    second = Fetched(session=session, round=session.round(["ada"]), sent=SENT, weight="size")
    second.refuses = refuses
    second.take("ada", trained(1.0, 1.0))
    second.close()
    assert [came.name for came, _ in second.late] == (["cyd"] if refuses is None else [])
    assert ("late update of cyd dropped: ValueError: odd" in caplog.text) == isinstance(refuses, Exception)


def test_the_mean_of_those_in_time_is_right_also_if_others_are_surplus():
    """The last update that was needed weighed more in it than those before."""

    class AsTheyAre(fp.Uniform):
        def select(self, state, view, rng):
            ids = np.flatnonzero(view.available)
            return fp.Choice(ids, weights=np.full(len(ids), 0.25), normalise=False)

    asked = begin(fp.Session(fp.OverSelect(AsTheyAre(2), 2.0), late=1), "ada", "bob", "cyd", "dan")
    for name, moved in (("ada", (1.0, 0.0)), ("bob", (0.0, 1.0))):
        assert asked.take(name, trained(*moved)) == fp.Status.DONE
    assert asked.round.full
    assert asked._mean.apart(np.array([0.5, 0.5])) == 0.0
