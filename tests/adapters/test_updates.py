"""What is read from an update: anything that a client may send makes it unusable at worst."""

import numpy as np
import pytest

from fedpick.adapters.updates import Update, agree


def test_an_update_that_cannot_be_read_says_why_on_one_line():
    update = Update()
    with update.reading():
        raise KeyError("w\n\x1b[2J")
    assert update.why.startswith("unreadable: KeyError: ")
    assert update.why.isprintable()
    update = Update(why="two records\ninstead of one")
    with update.reading():
        raise KeyError("w")
    assert update.why == "two records instead of one"  # the first reason


@pytest.mark.parametrize(
    ("metrics", "finite", "why"),
    [
        ({"loss": 0.5, "hits": [1.0, np.nan]}, True, "metric 'hits' is NaN or infinite"),
        ({"loss": 0.5, "hits": [1.0, -np.inf]}, True, "metric 'hits' is NaN or infinite"),
        ({"loss": 0.5, "hits": [1.0, np.nan]}, False, ""),
        ({"loss": np.inf}, False, "metric 'loss' is inf"),
        ({"n": 0.0}, True, ""),
    ],
)
def test_metrics_must_be_finite_where_their_mean_is_taken(metrics, finite, why):
    update = Update()
    update.read_metrics(metrics, ["hits"], finite=finite)
    assert update.why == why


@pytest.mark.parametrize(
    ("metrics", "weight", "size"), [({"n": 7}, "n", 7.0), ({"n": -1}, "n", 1.0), ({"n": 7}, None, 3.0)]
)
def test_the_size_is_the_metric_of_the_weight_if_there_is_one(metrics, weight, size):
    update = Update(size=3.0)
    update.read_metrics(metrics, (), weight)
    assert update.size == size


def checked(arrays, compare="all"):
    update = Update()
    update.check({"arrays": arrays}, {}, {"w": np.zeros(2)}, None, compare)
    return update


def test_arrays_that_are_not_numpys_are_not_checked_but_must_have_the_same_names():
    """As encrypted ones are: what they hold is for the framework to see."""
    encrypted = b"of another library"
    assert checked({"w": encrypted}).why == ""
    assert checked({"v": encrypted}).why == "arrays 'v' instead of the model's 'w'"
    assert checked({"w": np.zeros(3)}).why == "array 'w' of shape (3,) instead of (2,)"
    updates = [
        checked({"w": encrypted}),
        checked({"w": encrypted, "v": encrypted}, "shapes"),
        checked({"w": encrypted}),
    ]
    updates += [checked({"w": np.zeros(2)}), checked({"w": encrypted})]
    agree(updates)
    different = "its records have different names, shapes or types than those of most clients in this round"
    assert [each.why for each in updates] == ["", different, "", different, ""]
