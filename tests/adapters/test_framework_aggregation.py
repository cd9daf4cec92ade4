"""A framework's aggregation that fails, in some rounds or in all, or takes no weights."""

import logging

import numpy as np
import pytest

import fedpick as fp
from fedpick.adapters.aggregation import Aggregation
from fedpick.adapters.round import FrameworkRound
from fedpick.adapters.updates import Update

log = logging.getLogger("test")


def begin(policy=None, weight="size"):
    session = fp.Session(policy or fp.Uniform(2))
    return FrameworkRound(session=session, round=session.round(["ada", "bob"]), sent={"w": np.zeros(2)}, weight=weight)


def play(aggregation, faults):
    """A run of rounds; in those with a fault the aggregation raises it."""
    with aggregation.run():
        for fault in faults:
            with aggregation.attempt(begin(), "ada, bob"):
                if fault is not None:
                    raise fault


def test_a_failure_is_logged_and_the_training_goes_on(caplog):
    play(Aggregation("Mean", log), [ValueError("odd"), None])
    assert "round 1: Mean could not aggregate the updates of ada, bob; the model does not change" in caplog.text
    assert "ValueError: odd" in caplog.text


def test_if_every_round_failed_the_last_failure_is_raised_at_the_end():
    aggregation = Aggregation("Mean", log)
    with pytest.raises(ValueError, match="second"):
        play(aggregation, [ValueError("first"), ValueError("second")])
    play(aggregation, [None])
    with pytest.raises(ValueError, match="third"):  # that an earlier run succeeded does not matter
        play(aggregation, [ValueError("third")])
    play(aggregation, [])


def test_an_interruption_is_not_a_failure():
    with pytest.raises(KeyboardInterrupt):
        play(Aggregation("Mean", log), [KeyboardInterrupt()])


@pytest.mark.parametrize(
    ("policy", "weight"), [(fp.SizeWeighted(2), None), (fp.SizeWeighted(2), "n"), (fp.Uniform(2), None)]
)
def test_weights_that_are_not_used_are_told_once(policy, weight, caplog):
    aggregation = Aggregation("Median", log)
    for _ in range(2):
        with aggregation.attempt(begin(policy, weight), "ada, bob"):
            pass
    told = "Median averages by no metric: the weights that SizeWeighted asks for are not used"
    assert caplog.text.count(told) == (isinstance(policy, fp.SizeWeighted) and weight is None)


def test_the_last_round_decides_a_tie_by_kind():
    aggregation = Aggregation("Mean", log)
    aggregation.agree("train", [Update(shape="a"), Update(shape="a"), Update(shape="b")])
    aggregation.agree("evaluate", [Update(shape="b")])
    for kind, wrong in (("train", "b"), ("evaluate", "a")):
        two = {shape: Update(shape=shape) for shape in ("b", "a")}
        aggregation.agree(kind, two.values())
        assert [shape for shape, update in two.items() if update.why] == [wrong]
