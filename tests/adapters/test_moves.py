"""Trained models as changes: added to another model, scaled, in the model's types."""

import numpy as np

from fedpick.adapters.updates import moves, onto


def test_changes_are_of_arrays_that_are_in_both_and_of_one_shape():
    sent = {"w": np.array([1.0, 2.0]), "b": np.zeros(2), "c": "of another kind", "e": np.zeros(2)}
    trained = {"w": np.array([3.0, 1.0]), "b": np.zeros(3), "c": np.ones(1), "d": np.ones(1), "e": b"encrypted"}
    found = moves(trained, sent)
    assert {name: move.tolist() for name, move in found.items()} == {"w": [2.0, -1.0]}


def test_floats_keep_the_models_type_and_integers_are_not_rounded():
    model = {"w": np.ones(2, np.float32), "n": np.array([4])}
    once = onto(model, {"w": np.array([0.5, 0.25]), "n": np.array([3])})
    assert (once["w"].dtype, once["w"].tolist()) == (np.float32, [1.5, 1.25])
    assert (once["n"].dtype.kind, once["n"].tolist()) == ("i", [7])
    assert onto(model, {"n": np.array([3])}, 0.5)["n"].tolist() == [5.5]


def test_changes_that_were_sent_as_such_stay_changes():
    sent, changes = {"w": np.array([1.0, 2.0])}, {"w": np.array([0.5, -1.0])}
    assert moves(changes, sent, whole=False)["w"].tolist() == [0.5, -1.0]
    assert onto(sent, changes, 2.0, whole=False)["w"].tolist() == [1.0, -2.0]


def test_truth_values_and_unsigned_numbers_have_negative_changes():
    sent = {"mask": np.array([True, False]), "levels": np.array([200, 3], np.uint8), "w": np.ones(2, np.float32)}
    trained = {"mask": np.array([False, True]), "levels": np.array([190, 5], np.uint8), "w": np.zeros(2, np.float32)}
    found = moves(trained, sent)
    assert {name: move.tolist() for name, move in found.items()} == {"mask": [-1, 1], "levels": [-10, 2], "w": [-1, -1]}
    assert found["w"].dtype == np.float32
    back = onto(sent, found)
    assert all(np.array_equal(back[name], trained[name]) for name in sent)
    assert onto(sent, found, 0.5)["levels"].tolist() == [195.0, 4.0]
