"""Who is there: every mode against its formula, written out slowly from the FedGS spec."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedpick as fp
from fedpick.worlds import (
    Always,
    Bernoulli,
    Diurnal,
    Halves,
    LessDataFirst,
    LogNormal,
    MarkovOnOff,
    MoreDataFirst,
    SinLogNormal,
    Trace,
    YCycle,
    YMaxFirst,
)
from fedpick.worlds.availability import _someone

SIZES = [20.0, 35.0, 50.0, 90.0, 400.0, 21.0]
LABELS = np.array(
    [[3, 0, 0, 2, 0], [0, 0, 0, 0, 7], [0, 9, 1, 0, 0], [1, 1, 1, 1, 1], [0, 0, 4, 0, 2], [0, 0, 0, 5, 0]], dtype=float
)
CLIENTS = fp.Clients(SIZES, labels=LABELS)
MODES = [Always(), MoreDataFirst(), LessDataFirst(), YMaxFirst(), YCycle(), LogNormal(), SinLogNormal()]
DRAWS = 4_000


def start(part, clients=CLIENTS, seed=3):
    return part.init(clients, np.random.default_rng(seed))


def many(part, memory, clients=CLIENTS, round=1, draws=DRAWS, clock=0.0):
    """Share of draws in which each client was there."""
    rng, total = np.random.default_rng(11), np.zeros(len(clients))
    for _ in range(draws):
        total += part.mask(memory, part.draw(memory, clients, round, rng), clients, round, clock)
    return total / draws


def near(frequency, p, draws):
    return np.all(np.abs(frequency - p) <= 4.5 * np.sqrt(p * (1 - p) / draws) + 1e-12)


def on_turn(round, count):
    """The label y with y/L < r <= (y+1)/L, r = (1 + t mod T)/T, T = 10 L, in exact fractions."""
    length = 10 * count
    r = Fraction(1 + round % length, length)
    (y,) = [y for y in range(count) if Fraction(y, count) < r <= Fraction(y + 1, count)]
    return y


def slow_chance(part, clients, round, drawn=None):
    """P(there) of every client, one at a time, as fedgs.md writes it; `drawn`: the log-normal numbers."""
    beta, out = getattr(part, "beta", None), []
    for k in range(len(clients)):
        n = clients.sizes
        held = [y for y in range(clients.labels.shape[1]) if clients.labels[k, y] > 0]
        match part:
            case MoreDataFirst():
                p = n[k] ** beta / max(x**beta for x in n)
            case LessDataFirst():
                p = n[k] ** -beta / max(x**-beta for x in n)
            case YMaxFirst():
                p = beta * min(held) / (clients.labels.shape[1] - 1) + 1 - beta
            case YCycle():
                p = beta * (on_turn(round, clients.labels.shape[1]) in held) + 1 - beta
            case SinLogNormal():
                p = drawn[k] / max(drawn) * (0.4 * math.sin(2 * math.pi * (round % 24) / 23) + 0.5)
            case LogNormal():
                p = drawn[k] / max(drawn)
        out.append(p)
    return np.array(out)


@pytest.mark.parametrize("part", MODES[1:], ids=lambda p: type(p).__name__)
def test_probabilities_are_those_of_the_formula_in_every_round(part):
    memory = start(part)
    drawn = np.random.default_rng(3).lognormal(0.0, math.log(1 / (1 - part.beta)), len(CLIENTS))
    for round in range(1, 121):
        np.testing.assert_allclose(part.chance(memory, round), slow_chance(part, CLIENTS, round, drawn), rtol=1e-12)


@given(
    st.lists(st.floats(1, 1e6), min_size=1, max_size=20),
    st.floats(0, 0.99),
    st.integers(1, 1000),
    st.integers(1, 6),
    st.integers(0, 2**32),
)
@settings(deadline=None)
def test_chances_are_probabilities_for_any_fleet(sizes, beta, round, labels, seed):
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 3, (len(sizes), labels))
    counts[np.arange(len(sizes)), rng.integers(0, labels, len(sizes))] += 1
    clients = fp.Clients(sizes, labels=counts)
    for kind in (MoreDataFirst, LessDataFirst, YMaxFirst, YCycle, LogNormal, SinLogNormal):
        part = kind(beta)
        p = part.chance(part.init(clients, rng), round)
        assert p.shape == (len(sizes),)
        assert np.all((p > 0) & (p <= 1 + 1e-15))


def test_everyone_is_there_in_the_ideal_mode():
    memory = start(Always())
    assert Always().draw(memory, CLIENTS, 9, np.random.default_rng(0)).all()


@pytest.mark.parametrize("part", MODES[1:], ids=lambda p: type(p).__name__)
@pytest.mark.parametrize("round", [1, 17, 40])
def test_frequencies_match_the_formula_given_that_someone_is_there(part, round):
    memory = start(part)
    p = part.chance(memory, round)
    given_someone = p / (1 - np.prod(1 - p))  # drawn again until someone is there
    assert near(many(part, memory, round=round), given_someone, DRAWS)


@pytest.mark.parametrize("count", [1, 2, 3, 7, 10, 100])
def test_labels_take_turns_of_ten_rounds_over_the_whole_cycle(count):
    clients = fp.Clients(np.ones(count), labels=np.eye(count))  # client y holds label y alone
    part = YCycle(beta=0.5)
    memory = start(part, clients)
    seen = []
    for round in range(1, 2 * 10 * count + 1):
        holders = np.flatnonzero(part.chance(memory, round) > 0.75)
        assert holders.tolist() == [on_turn(round, count)]
        seen.append(int(holders[0]))
    assert np.bincount(seen, minlength=count).tolist() == [20] * count


def test_a_lone_unlikely_client_is_drawn_again_until_it_is_there():
    lone = fp.Clients([5.0], labels=[[1, 0]])
    part = YMaxFirst(0.9)  # its smallest label is 0: p = 0.1
    memory = start(part, lone)
    np.testing.assert_allclose(part.chance(memory, 1), 0.1)
    assert many(part, memory, lone, draws=300) == 1.0


def test_a_hopeless_fleet_has_its_most_likely_client_there():
    mask = _someone(np.array([1e-300, 3e-300, 2e-300]), np.random.default_rng(0))
    assert mask.tolist() == [False, True, False]


def test_the_log_normal_mode_draws_its_scale_from_beta():
    many_clients = fp.Clients(np.ones(200_000))
    p = start(LogNormal(0.5), many_clients)["p"]
    assert p.max() == 1.0
    spread, sigma = np.log(p).std(), math.log(2)
    assert abs(spread - sigma) <= 4.5 * sigma / math.sqrt(2 * len(p))  # of a normal's standard deviation
    np.testing.assert_array_equal(start(LogNormal(0.0), CLIENTS)["p"], 1.0)


def test_bernoulli_is_independent_and_may_leave_nobody():
    pair = fp.Clients([1.0, 1.0])
    part = Bernoulli((0.1, 0.3))
    memory, rng = start(part, pair), np.random.default_rng(5)
    masks = np.array([part.draw(memory, pair, 1, rng) for _ in range(DRAWS)])
    assert near(masks.mean(axis=0), np.array([0.1, 0.3]), DRAWS)
    assert near((~masks.any(axis=1)).mean(), 0.9 * 0.7, DRAWS)
    assert near(masks.all(axis=1).mean(), 0.03, DRAWS)


@pytest.mark.parametrize("p", [0.0, 1.0])
def test_bernoulli_keeps_its_ends(p):
    part = Bernoulli(p)
    assert np.all(part.draw(start(part), CLIENTS, 1, np.random.default_rng(0)) == (p == 1.0))


@given(st.integers(1, 60), st.sampled_from(["0", "0.1", "0.29", "0.5", "0.57", "1"]), st.integers(0, 99))
@settings(deadline=None)
def test_halves_take_turns_and_the_exact_share_is_away(count, away, seed):
    clients, part = fp.Clients(np.ones(count)), Halves(float(away))
    memory = start(part, clients, seed)
    first = memory["first"].copy()
    assert first.sum() == (count + 1) // 2
    for round in range(1, 5):
        mask = part.draw(memory, clients, round, np.random.default_rng([seed, round]))
        half = first if round % 2 == 1 else ~first
        assert not mask[~half].any()
        assert half.sum() - mask.sum() == math.floor(Fraction(away) * int(half.sum()))
        np.testing.assert_array_equal(memory["first"], first)  # membership is for good


def test_everyone_in_a_half_is_away_equally_often():
    clients, part = fp.Clients(np.ones(40)), Halves(0.1)
    memory = start(part, clients)
    frequency = many(part, memory, clients)[memory["first"]]
    assert near(frequency, 0.9, DRAWS)


def spells_that_start_in_round_2(part, value, rounds, count):
    """Lengths of the spells of `value` that begin in round 2, one for each client that has one."""
    clients = fp.Clients(np.ones(count))
    memory = start(part, clients)
    seen = np.array([part.draw(memory, clients, t, np.random.default_rng([8, t])) for t in range(1, rounds + 1)])
    seen = seen == value
    begins = ~seen[0] & seen[1]
    ended = ~seen[1:, begins]
    assert ended.any(axis=0).all()
    return ended.argmax(axis=0)


@pytest.mark.parametrize(("value", "mean"), [(True, 6.0), (False, 3.0)])
def test_markov_spells_last_as_long_as_asked_on_average(value, mean):
    lengths = spells_that_start_in_round_2(MarkovOnOff(on=6.0, off=3.0), value, rounds=150, count=20_000)
    deviation = mean * math.sqrt(1 - 1 / mean)  # of a geometric
    assert abs(lengths.mean() - mean) <= 4.5 * deviation / math.sqrt(len(lengths))
    assert near(np.mean(lengths == 1), 1 / mean, len(lengths))


def test_markov_is_in_its_steady_state_from_the_first_round_on():
    clients, part = fp.Clients(np.ones(50_000)), MarkovOnOff(on=20.0, off=5.0)
    memory = start(part, clients)
    for round in range(1, 31):
        here = part.draw(memory, clients, round, np.random.default_rng([4, round]))
        if round in (1, 2, 30):  # clients are independent at one time
            assert near(here.mean(), 0.8, len(clients))


def test_markov_draws_are_copies_that_later_rounds_leave_alone():
    clients, part = fp.Clients(np.ones(500)), MarkovOnOff(1.0, 1.0)  # flips in every round
    memory = start(part, clients)
    first = part.draw(memory, clients, 1, np.random.default_rng(0))
    kept = first.copy()
    second = part.draw(memory, clients, 2, np.random.default_rng(0))
    np.testing.assert_array_equal(first, kept)
    np.testing.assert_array_equal(second, ~first)


LEVELS = (np.arange(10_000) + 0.5) / 10_000  # as drawn numbers: the share under p is p


def diurnal_chance(hour, part):
    clients = fp.Clients(np.ones(len(LEVELS)))
    return part.mask(start(part, clients), LEVELS, clients, 1, hour * 3600.0).mean()


@pytest.mark.parametrize(("hour", "p"), [(3, 0.8), (15, 0.2), (9, 0.5), (21, 0.5), (27, 0.8), (24 * 300 + 15, 0.2)])
def test_phones_are_there_at_night_and_away_by_day(hour, p):
    assert diurnal_chance(hour, Diurnal(zones=0.0)) == pytest.approx(p, abs=1e-4)


@given(st.floats(0, 240))
@settings(max_examples=40, deadline=None)
def test_the_day_is_a_cosine_around_three_in_the_morning(hour):
    part = Diurnal(night=0.9, day=0.3, zones=0.0)
    expected = 0.6 + 0.3 * math.cos(2 * math.pi * (hour - 3) / 24)
    assert diurnal_chance(hour, part) == pytest.approx(expected, abs=2e-4)


def test_a_time_zone_is_so_many_hours_ahead_of_the_clock():
    clients, part = fp.Clients(np.ones(3)), Diurnal(night=1.0, day=0.0)
    memory = {"zone": np.array([0.0, 3.0, 8.0]) * 3600.0}
    for clock in np.arange(0, 24, 0.5):
        for k, zone in enumerate([0, 3, 8]):
            p = (1 + math.cos(2 * math.pi * (clock + zone - 3) / 24)) / 2
            for drawn, there in ((p - 1e-6, True), (p + 1e-6, False)):
                mask = part.mask(memory, np.full(3, drawn), clients, 1, clock * 3600.0)
                assert mask[k] == there


def test_time_zones_span_what_is_asked():
    zone = start(Diurnal(zones=8.0), fp.Clients(np.ones(100_000)))["zone"] / 3600
    assert zone.min() >= 0
    assert zone.max() <= 8
    assert abs(zone.mean() - 4) <= 4.5 * 8 / math.sqrt(12 * len(zone))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Bernoulli(1.2), r"Bernoulli: p = 1\.2, but must be one or more probabilities, in \[0, 1\]"),
        (lambda: Bernoulli(float("nan")), r"Bernoulli: p = nan, but must be .* in \[0, 1\]"),
        (lambda: Bernoulli("often"), r"Bernoulli: p = 'often', but must be numbers"),
        (lambda: MoreDataFirst(1.0), r"MoreDataFirst: beta = 1\.0, but must be in \[0, 1\); beta is the degree of abs"),
        (lambda: LessDataFirst(-0.1), r"LessDataFirst: beta = -0\.1, but must be in \[0, 1\)"),
        (lambda: YMaxFirst(2.0), r"YMaxFirst: beta = 2\.0, but must be in \[0, 1\)"),
        (lambda: YCycle(1.5), r"YCycle: beta = 1\.5, but must be in \[0, 1\)"),
        (lambda: LogNormal(1.0), r"LogNormal: beta = 1\.0, but must be in \[0, 1\)"),
        (lambda: SinLogNormal(1.0), r"SinLogNormal: beta = 1\.0, but must be in \[0, 1\)"),
        (lambda: Halves(1.1), r"Halves: away = 1\.1, but must be one or more probabilities"),
        (lambda: Halves((0.1, 0.2)), r"Halves: away = \(0\.1, 0\.2\), but must be one number; away is a share"),
        (lambda: MarkovOnOff(on=0.5), r"MarkovOnOff: on = 0\.5, but must be finite and >= 1 round"),
        (lambda: MarkovOnOff(off=math.inf), r"MarkovOnOff: off = inf, but must be finite and >= 1 round"),
        (lambda: Diurnal(night=-1), r"Diurnal: night = -1, but must be one or more probabilities"),
        (lambda: Diurnal(day=3), r"Diurnal: day = 3, but must be one or more probabilities"),
        (lambda: Diurnal(zones=25), r"Diurnal: zones = 25, but must be in \[0, 24\] hours"),
        (lambda: Trace("x.csv", unit="days"), r"Trace: unit = 'days', but must be 'seconds' or 'rounds'"),
        (lambda: Trace("x.csv", repeat=0), r"Trace: repeat = 0, but must be finite and > 0 seconds"),
    ],
)
def test_settings_outside_their_bounds_are_refused(make, message):
    with pytest.raises(fp.errors.SettingError, match=message):
        make()


def test_one_probability_each_must_fit_the_clients():
    with pytest.raises(fp.errors.ContractError, match=r"Bernoulli: p has shape \(2,\), but there are 6 clients: one"):
        start(Bernoulli((0.5, 0.6)))


@pytest.mark.parametrize("part", [YMaxFirst(), YCycle()])
def test_modes_by_label_say_that_labels_are_missing(part):
    message = rf"{type(part).__name__}: it depends on labels, but Clients.labels is None; give \(K, L\) label"
    with pytest.raises(fp.errors.MissingError, match=message):
        fp.World(fp.Clients([1.0, 2.0]), availability=part).init(0)
