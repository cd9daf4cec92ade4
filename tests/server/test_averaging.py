"""Whole models that a framework averages: in time, late, unusable; the adapters' own tests play whole rounds."""

import numpy as np
import pytest

import fedpick as fp
from fedpick.lateness import late_weights
from fedpick.server.averaging import Averaging
from fedpick.server.updates import Update

SENT = {"w": np.zeros(2)}


def trained(*values, size=1.0, why=""):
    return Update(why, size=size, moves={"w": np.array(values)})


def begin(session, *names):
    return Averaging(session=session, round=session.round(names), sent=SENT)


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
    first.round.close()
    first.take("cyd", trained(1.0, 1.0, 1.0))
    second = begin(session, "ada", "bob")
    assert second.take("ada", trained(1.0, 1.0)) == fp.Status.DONE
    assert second.take("bob", trained(1.0, 1.0, 1.0)) == fp.Status.DONE
    assert second.weigh_late() == []  # not like the first one
