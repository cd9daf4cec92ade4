"""How long clients take: every law against its formula, one client at a time."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedpick as fp
from fedpick.worlds import Device, Gamma, Linear, LogNormalTime, PerClient, Replayed, World

COUNT = 40
CLIENTS = fp.Clients(np.linspace(50, 800, COUNT))
MANY = fp.Clients(np.full(100_000, 300.0))


def play(part, clients=CLIENTS, round=1, idle=None, ids=None, epochs=1.0, seed=6):
    """(memory, drawn, context, seconds) of one round."""
    memory = part.init(clients, np.random.default_rng(seed))
    drawn = part.draw(memory, clients, round, np.random.default_rng([seed, round]))
    idle = np.ones(len(clients), dtype=bool) if idle is None else idle
    ids = np.arange(len(clients)) if ids is None else ids
    took = part.seconds(memory, drawn, idle, ids, np.full(len(ids), epochs))
    return memory, drawn, part.context(memory, drawn, idle), took


def test_linear_coefficients_are_those_of_rbcs_f_table_1():
    theta = Linear().theta(CLIENTS)
    for k in range(COUNT):
        row = k // 10
        eta = math.log2(1 + [1000, 100, 10, 1][row])
        np.testing.assert_allclose(theta[k], [row + 1, 1.0, 1 / eta])


@given(st.integers(0, 2**32), st.lists(st.booleans(), min_size=COUNT, max_size=COUNT))
@settings(deadline=None)
def test_linear_time_is_the_context_times_theta_plus_noise_up_to_itself(seed, idle):
    idle = np.array(idle)
    ids = np.random.default_rng(seed).permutation(COUNT)[:17]
    memory, drawn, context, took = play(Linear(), idle=idle, ids=ids, seed=seed)
    assert context.dtype == np.float64
    np.testing.assert_array_equal(context[:, 1], idle)  # s: who did not take part in the last round
    for i, k in enumerate(ids):
        expected = sum(context[k, j] * memory["theta"][k, j] for j in range(3))
        noise = drawn["noise"][k] * expected
        assert -expected <= noise <= expected
        assert took[i] == pytest.approx(expected + noise, rel=1e-12)
        assert 0 < took[i] < 2 * expected


def uniform_on(values, low, high):
    """Range, mean and variance of a uniform law, within 4.5 standard errors."""
    x = (values - low) / (high - low)
    assert x.min() >= 0
    assert x.max() <= 1
    n = len(x)
    assert abs(x.mean() - 1 / 2) <= 4.5 * math.sqrt(1 / 12 / n)
    assert abs(((x - 0.5) ** 2).mean() - 1 / 12) <= 4.5 * math.sqrt(1 / 180 / n)  # Var (u - 1/2)^2 = 1/80 - 1/144


def test_linear_contexts_are_drawn_as_rbcs_f_section_6_1_says():
    _, drawn, context, took = play(Linear(), MANY)
    uniform_on(1 / context[:, 0], 0.5, 2.0)  # mu
    uniform_on(20.0 / context[:, 2], 2.0, 4.0)  # B, MHz
    mean = (context * Linear().theta(MANY)).sum(axis=1)
    uniform_on(took / mean, 0.0, 2.0)  # c'theta + uniform on (-c'theta, c'theta)
    pairs = np.corrcoef([context[:, 0], context[:, 2], drawn["noise"]])[np.triu_indices(3, 1)]
    assert np.all(np.abs(pairs) <= 4.5 / math.sqrt(len(MANY)))


def test_the_cold_start_is_paid_exactly_by_those_who_sat_out_the_last_round():
    world = fp.worlds.named("rbcs-f", len(CLIENTS))
    world = replace(world, clients=CLIENTS, availability=fp.worlds.Always())
    state = world.init(0)
    last: set[int] = set()
    for round, chosen in enumerate([[3, 8, 1], [8, 2], [], [5]], start=1):
        draw = world.draw(state, 0, round)
        cold = world.view(state, draw).context[:, 1]
        assert [k for k in range(COUNT) if cold[k] == 0] == sorted(last)
        assert set(cold) <= {0.0, 1.0}
        state.idle[:] = True
        state.idle[chosen] = False
        last = set(chosen)


def test_gamma_is_a_shift_plus_a_gamma_of_each_clients_own_mean():
    part = Gamma(shift=1.0, shape=4.0, low=0.2, high=8.0)
    memory, drawn, context, took = play(part, MANY)
    assert context is None
    uniform_on(memory["mean"], 0.2, 8.0)
    unit = (took - 1.0) / memory["mean"]
    np.testing.assert_allclose(unit, drawn["noise"])
    n = len(unit)
    assert abs(unit.mean() - 1) <= 4.5 * math.sqrt(1 / 4 / n)  # mean 1, variance 1/shape
    square = (unit - 1) ** 2
    assert abs(square.mean() - 1 / 4) <= 4.5 * square.std() / math.sqrt(n)
    assert took.min() > 1.0


def test_log_normal_times_have_the_median_of_the_class_and_the_given_spread():
    part = LogNormalTime((2.0, 16.0), sigma=0.4)
    _, _, context, took = play(part, MANY)
    assert context is None
    logs = np.log(took).reshape(2, -1)
    n = logs.shape[1]
    for row, median in zip(logs, (2.0, 16.0), strict=True):
        assert abs(row.mean() - math.log(median)) <= 4.5 * 0.4 / math.sqrt(n)
        assert abs(row.std() - 0.4) <= 4.5 * 0.4 / math.sqrt(2 * n)
        assert abs(np.mean(row < math.log(median)) - 0.5) <= 4.5 * 0.5 / math.sqrt(n)


@given(st.integers(0, 2**32), st.integers(1, 4), st.booleans())
@settings(deadline=None)
def test_a_device_takes_cold_start_download_computing_and_upload(seed, epochs, cold):
    part = Device(model_megabytes=7.0, cold_start=3.0)
    _, drawn, _, took = play(part, idle=np.full(COUNT, cold), epochs=epochs, seed=seed)
    rng = np.random.default_rng(seed)
    speed_noise, link_noise = rng.standard_normal(COUNT), rng.standard_normal(COUNT)
    for k in range(COUNT):
        speed = 200.0 * math.exp(0.7 * speed_noise[k])
        down = 20.0 * math.exp(0.7 * link_noise[k])
        up = down / 3
        compute = CLIENTS.sizes[k] / speed * epochs * drawn["compute"][k]
        transfer = (8 * 7.0 / down + 8 * 7.0 / up) * drawn["transfer"][k]
        assert took[k] == pytest.approx((3.0 if cold else 0.0) + compute + transfer, rel=1e-12)


def test_a_still_device_is_what_its_context_says():
    idle = np.arange(COUNT) % 2 == 0
    part = Device(waver=0.0)
    _, _, context, took = play(part, idle=idle, epochs=3.0)
    np.testing.assert_array_equal(context[:, 1], idle)
    np.testing.assert_allclose(took, context @ [3.0, part.cold_start, 1.0])  # the coefficients that its page names


def test_devices_scale_with_their_settings():
    still = {"waver": 0.0, "cold_start": 0.0}
    *_, base = play(Device(model_megabytes=0.0, **still))
    np.testing.assert_allclose(play(Device(examples_per_second=400.0, model_megabytes=0.0, **still))[3], base / 2)
    np.testing.assert_allclose(play(Device(model_megabytes=0.0, **still), epochs=4.0)[3], base * 4)
    none = Device(examples_per_second=1e12, **still)
    np.testing.assert_allclose(play(Device(1e12, 10.0, **still))[3], play(none)[3] * 2, rtol=1e-6)
    alike = play(Device(1e12, 20.0, 5.0, spread=0.0, **still))[3]
    np.testing.assert_allclose(alike, 8 * 5.0 / 20.0 * 4, rtol=1e-6)  # 2 s down, 6 s up


def test_devices_differ_and_waver_as_asked():
    memory, drawn, _, _ = play(Device(spread=0.7, waver=0.25), MANY)
    error = 4.5 / math.sqrt(2 * len(MANY))
    for name in ("compute", "transfer"):
        assert abs(np.log(memory[name]).std() - 0.7) <= 0.7 * error
        assert abs(np.log(drawn[name]).std() - 0.25) <= 0.25 * error
        assert abs(np.log(drawn[name]).mean()) <= 4.5 * 0.25 / math.sqrt(len(MANY))


def test_a_device_sends_the_worlds_model_unless_it_has_its_own():
    def transfer(world):
        return world.init(0).latency["transfer"]

    base = transfer(World(CLIENTS))
    np.testing.assert_allclose(transfer(World(CLIENTS, model_megabytes=50.0)), 10 * base)
    np.testing.assert_allclose(
        transfer(World(CLIENTS, latency=Device(model_megabytes=5.0), model_megabytes=50.0)), base
    )


@pytest.mark.parametrize(("times", "expected"), [(2.5, [2.5, 2.5, 2.5]), ([1.0, 2.0, 3.0], [1.0, 2.0, 3.0])])
def test_times_per_client_stay_the_same(times, expected):
    three = fp.Clients(np.ones(3))
    for round in (1, 2):
        _, _, context, took = play(PerClient(times), three, round, ids=np.array([2, 0]))
        assert context is None
        assert took.tolist() == [expected[2], expected[0]]


def test_replayed_times_start_again_after_the_last_row():
    rows = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    three = fp.Clients(np.ones(3))
    seen = [play(Replayed(rows), three, t, ids=np.array([2, 1]))[3].tolist() for t in range(1, 6)]
    assert seen == [[3.0, 2.0], [6.0, 5.0], [3.0, 2.0], [6.0, 5.0], [3.0, 2.0]]


def test_every_client_gets_one_of_the_epochs_for_good():
    state = World(MANY, epochs=(1, 2, 3, 4)).init(3)
    shares = np.bincount(state.epochs.astype(int), minlength=5)[1:] / len(MANY)
    assert np.all(np.abs(shares - 0.25) <= 4.5 * math.sqrt(0.25 * 0.75 / len(MANY)))
    np.testing.assert_array_equal(state.epochs, World(MANY, epochs=(1, 2, 3, 4)).init(3).epochs)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PerClient(-1.0), r"PerClient: times = -1\.0, but must be finite and >= 0 seconds"),
        (lambda: PerClient([1.0, math.nan]), r"PerClient: times = \[1\.0, nan\], but must be finite and >= 0 seconds"),
        (lambda: PerClient("slow"), r"PerClient: times = 'slow', but must be numbers"),
        (lambda: Gamma(shift=-1), r"Gamma: shift = -1, but must be finite and >= 0 seconds"),
        (lambda: Gamma(shape=0), r"Gamma: shape = 0, but must be finite and > 0"),
        (lambda: Gamma(low=0), r"Gamma: low, high = \(0, 8\.0\), but must be finite and > 0 seconds"),
        (lambda: Gamma(low=9), r"Gamma: low, high = \(9, 8\.0\), but must be low <= high"),
        (lambda: LogNormalTime((1.0, 0.0)), r"LogNormalTime: medians = \(1\.0, 0\.0\), but must be finite and > 0 sec"),
        (lambda: LogNormalTime(()), r"LogNormalTime: medians = \(\), but must be finite and > 0 seconds"),
        (lambda: LogNormalTime(sigma=-0.1), r"LogNormalTime: sigma = -0\.1, but must be finite and >= 0"),
        (lambda: Linear(compute=(1.0, -1.0)), r"Linear: compute = \(1\.0, -1\.0\), but must be finite and >= 0 sec"),
        (lambda: Linear(cold_start=-2), r"Linear: cold_start = -2, but must be finite and >= 0 seconds"),
        (lambda: Linear(snr=(0.0,)), r"Linear: snr = \(0\.0,\), but must be finite and > 0"),
        (lambda: Linear(megabits=math.inf), r"Linear: megabits = inf, but must be finite and >= 0"),
        (lambda: Device(examples_per_second=0), r"Device: examples_per_second = 0, but must be finite and > 0"),
        (lambda: Device(megabits_per_second=-1), r"Device: megabits_per_second = -1, but must be finite and > 0"),
        (lambda: Device(model_megabytes=-1), r"Device: model_megabytes = -1, but must be finite and >= 0"),
        (lambda: Device(spread=-1), r"Device: spread = -1, but must be finite and >= 0"),
        (lambda: Device(waver=-1), r"Device: waver = -1, but must be finite and >= 0"),
        (lambda: Device(cold_start=-1), r"Device: cold_start = -1, but must be finite and >= 0"),
    ],
)
def test_settings_outside_their_bounds_are_refused(make, message):
    with pytest.raises(fp.errors.SettingError, match=message):
        make()


@pytest.mark.parametrize(
    ("part", "message"),
    [
        (PerClient([1.0, 2.0]), r"PerClient: times has shape \(2,\), but there are 3 clients: one number each"),
        (Replayed(np.ones((2, 4))), r"Replayed: matrix has shape \(2, 4\), but must be \(T, 3\)"),
        (Replayed(np.ones((0, 3))), r"Replayed: matrix has shape \(0, 3\), but must be \(T, 3\)"),
        (
            Replayed([[1.0, 2.0, -1.0]]),
            r"holds a time that is negative, NaN or infinite; for clients that never answer",
        ),
        (Replayed([[1.0, 2.0, math.inf]]), r"holds a time that is negative, NaN or infinite"),
        (Replayed([[1.0, 2.0, math.nan]]), r"holds a time that is negative, NaN or infinite"),
        (Replayed([[1.0, 2.0, 3.0], [1.0]]), r"Replayed: matrix = .* but must be numbers, in rows of one length"),
    ],
)
def test_times_that_do_not_fit_the_clients_are_refused(part, message):
    with pytest.raises(fp.errors.FedpickError, match=message):
        part.init(fp.Clients(np.ones(3)), np.random.default_rng(0))
