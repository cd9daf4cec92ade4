"""Schedules: the values that the papers give, and the last one kept past the horizon."""

import pytest

from fedpick.core.errors import SettingError
from fedpick.core.schedules import Cosine, Halving, Linear, Step


def test_a_step_is_taken_after_its_round():
    inc = Step(0.0, 1.0, at=2500 / 4)  # E3CS-inc over 2500 rounds
    assert [inc(t) for t in (1, 625, 626, 2500, 10**6)] == [0.0, 0.0, 1.0, 1.0, 1.0]


@pytest.mark.parametrize("kind", [Linear, Cosine])
def test_a_ramp_begins_in_round_1_ends_at_its_horizon_and_stays(kind):
    ramp = kind(8.0, 2.0, horizon=7)
    values = [ramp(t) for t in range(1, 8)]
    assert (values[0], values[3], values[-1]) == pytest.approx((8.0, 5.0, 2.0))
    assert values == sorted(values, reverse=True)
    assert [ramp(t) for t in (8, 100, 10**9)] == pytest.approx([2.0] * 3)


def test_a_cosine_is_flat_at_both_ends_and_a_line_is_not():
    steps = {kind: [abs(kind(0.0, 1.0, horizon=101)(t + 1) - kind(0.0, 1.0, horizon=101)(t)) for t in (1, 51, 100)]
             for kind in (Linear, Cosine)}  # fmt: skip
    assert steps[Linear] == pytest.approx([0.01] * 3)
    assert steps[Cosine][0] == pytest.approx(steps[Cosine][2])
    assert steps[Cosine][0] < 0.001 < 0.015 < steps[Cosine][1]


def test_halving_goes_by_whole_periods():
    assert [Halving(32.0, every=10)(t) for t in (1, 10, 11, 20, 21, 51)] == [32.0, 32.0, 16.0, 16.0, 8.0, 1.0]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Linear(0.0, 1.0, horizon=1), "Linear: horizon = 1, but must be >= 2 rounds"),
        (lambda: Cosine(0.0, 1.0, horizon=0), "Cosine: horizon = 0, but must be >= 2 rounds"),
        (lambda: Halving(1.0, every=0), "Halving: every = 0, but must be >= 1 round"),
    ],
)
def test_errors_give_the_value_and_the_bound(make, message):
    with pytest.raises(SettingError, match=f"^{message}$"):
        make()
