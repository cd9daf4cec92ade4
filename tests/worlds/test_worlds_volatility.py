"""Who would return a model: rates by class, crashes that last, shifts, replays."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedpick as fp
from fedpick.worlds import Bursts, Reliable, ReplayedFlags, Shift, SuccessRates, by_class

MANY = fp.Clients(np.ones(80_000))


def draws(part, rounds, clients=MANY, seed=2):
    """(rounds, K) flags."""
    memory = part.init(clients, np.random.default_rng(seed))
    return np.array([part.draw(memory, clients, t, np.random.default_rng([seed, t])) for t in range(1, rounds + 1)])


def near(frequency, p, count):
    return np.all(np.abs(frequency - p) <= 4.5 * np.sqrt(p * (1 - p) / count) + 1e-12)


def per_class(flags, classes):
    """Mean over the clients of each class, at each round."""
    return flags.reshape(len(flags), classes, -1).mean(axis=2)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=9), st.integers(1, 200))
@settings(deadline=None)
def test_classes_are_in_order_and_as_equal_as_can_be(values, count):
    classes = by_class(np.arange(len(values)), count).astype(int)
    np.testing.assert_array_equal(by_class(values, count), np.asarray(values)[classes])
    assert np.all(np.diff(classes) >= 0)
    if count >= len(values):
        sizes = np.bincount(classes, minlength=len(values))
        assert sizes.max() - sizes.min() <= 1


def test_e3cs_has_25_clients_in_each_of_four_classes():
    rates = SuccessRates().init(fp.Clients(np.ones(100)), np.random.default_rng(0))["rate"]
    assert rates.tolist() == [0.1] * 25 + [0.3] * 25 + [0.6] * 25 + [0.9] * 25


def test_one_rate_is_for_all():
    assert by_class(0.4, 3).tolist() == [0.4] * 3


def test_the_reliable_never_fail():
    assert draws(Reliable(), 3).all()


def test_each_class_succeeds_at_its_rate_independently_of_the_round_before():
    flags = draws(SuccessRates(), 2)
    rates = np.array([0.1, 0.3, 0.6, 0.9])
    assert near(per_class(flags, 4), rates, 20_000)
    assert near(per_class(flags[:1] & flags[1:], 4), rates**2, 20_000)


@pytest.mark.parametrize("spell", [1.0, 3.0, 10.0])
def test_bursts_keep_the_rate_of_each_class_in_every_round(spell):
    rates = np.array([0.05, 0.3, 0.6, 0.9])
    flags = draws(Bursts(tuple(rates), spell=spell), 25)
    for round in (0, 1, 24):  # clients are independent at one time
        assert near(per_class(flags[round : round + 1], 4), rates, 20_000)


@pytest.mark.parametrize(
    ("rate", "spell", "mean"), [(0.6, 4.0, 4.0), (0.9, 4.0, 4.0), (0.5, 1.0, 1.0), (0.1, 4.0, 9.0), (0.2, 4.0, 4.0)]
)
def test_crashes_last_as_long_as_asked_or_as_the_rate_needs(rate, spell, mean):
    flags = draws(Bursts((rate,), spell=spell), 200, fp.Clients(np.ones(15_000)))
    begins = flags[0] & ~flags[1]
    recovered = flags[1:, begins]
    assert recovered.any(axis=0).all()
    lengths = recovered.argmax(axis=0)
    deviation = mean * math.sqrt(1 - 1 / mean)
    assert abs(lengths.mean() - mean) <= 4.5 * deviation / math.sqrt(len(lengths)) + 1e-12


def test_one_that_hardly_succeeds_crashes_after_every_success():
    flags = draws(Bursts((0.1,), spell=4.0), 30, fp.Clients(np.ones(3_000)))
    assert flags.any()
    assert not (flags[:-1] & flags[1:]).any()


@pytest.mark.parametrize("spell", [1.0, 10.0])
def test_bursts_keep_the_ends(spell):
    flags = draws(Bursts((0.0, 1.0), spell=spell), 20)
    assert not flags[:, :40_000].any()
    assert flags[:, 40_000:].all()


def test_bursts_hand_out_copies():
    clients, part = fp.Clients(np.ones(500)), Bursts((0.5,), spell=1.0)  # every flag turns in every round
    memory = part.init(clients, np.random.default_rng(0))
    first = part.draw(memory, clients, 1, np.random.default_rng(1))
    kept = first.copy()
    second = part.draw(memory, clients, 2, np.random.default_rng(1))
    np.testing.assert_array_equal(first, kept)
    np.testing.assert_array_equal(second, ~first)


def test_a_shift_changes_the_rates_after_its_round():
    flags = draws(Shift((0.0, 1.0), (1.0, 0.0, 0.5), at=3), 5, fp.Clients(np.ones(60_000)))
    for round, row in enumerate(flags, start=1):
        if round <= 3:
            assert per_class(row[None], 2).tolist() == [[0.0, 1.0]]
        else:
            means = per_class(row[None], 3)[0]
            assert means[:2].tolist() == [1.0, 0.0]
            assert near(means[2], 0.5, 20_000)


def test_replayed_flags_start_again_after_the_last_row():
    rows = np.array([[1, 0, 0], [0, 1, 0]])
    flags = draws(ReplayedFlags(rows), 5, fp.Clients(np.ones(3)))
    np.testing.assert_array_equal(flags, rows[[0, 1, 0, 1, 0]] == 1)
    assert flags.dtype == bool


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SuccessRates((0.5, 1.5)), r"SuccessRates: rates = \(0\.5, 1\.5\), but must be one or more prob"),
        (lambda: SuccessRates(()), r"SuccessRates: rates = \(\), but must be one or more probabilities, in \[0, 1\]"),
        (lambda: Bursts((-0.1,)), r"Bursts: rates = \(-0\.1,\), but must be one or more probabilities"),
        (lambda: Bursts(spell=0.9), r"Bursts: spell = 0\.9, but must be finite and >= 1 round"),
        (lambda: Bursts(spell=math.nan), r"Bursts: spell = nan, but must be finite and >= 1 round"),
        (lambda: Shift(before=(2.0,)), r"Shift: before = \(2\.0,\), but must be one or more probabilities"),
        (lambda: Shift(after=(math.nan,)), r"Shift: after = \(nan,\), but must be one or more probabilities"),
        (lambda: Shift(at=-1), r"Shift: at = -1, but must be finite and >= 0"),
    ],
)
def test_settings_outside_their_bounds_are_refused(make, message):
    with pytest.raises(fp.errors.SettingError, match=message):
        make()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (np.ones((2, 4)), r"ReplayedFlags: flags has shape \(2, 4\), but must be \(T, 3\)"),
        (np.ones(3), r"ReplayedFlags: flags has shape \(3,\), but must be \(T, 3\)"),
        (np.ones((0, 3)), r"ReplayedFlags: flags has shape \(0, 3\), but must be \(T, 3\)"),
        ([[1, 0, np.nan]], r"flags holds values other than 0 and 1; give a matrix of flags"),
        ([[1, 0, 0.5]], r"flags holds values other than 0 and 1; give a matrix of flags"),
        ([[1, 0, 1], [1]], r"ReplayedFlags: flags = .* but must be numbers, in rows of one length"),
    ],
)
def test_flags_that_cannot_be_replayed_are_refused(flags, message):
    with pytest.raises(fp.errors.FedpickError, match=message):
        ReplayedFlags(flags).init(fp.Clients(np.ones(3)), np.random.default_rng(0))
