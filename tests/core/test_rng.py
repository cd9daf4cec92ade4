"""Random streams: one for each seed, round and name, the same in every release, and independent of each other.

And numbers for single clients, which depend on no other client.
"""

import hashlib
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fedpick.core.errors import SettingError
from fedpick.core.rng import stream, uniforms


def test_streams_are_those_of_earlier_releases():
    """Runs and studies were made with these: another generator or key would change every one of them."""
    first = [int(stream(*key).integers(2**32)) for key in ((0, 0, "data"), (1, 1, "policy"), (7, 70, "world"))]
    assert first == [2181927811, 3117310048, 2770686146]


def test_no_two_of_seed_round_and_name_run_into_each_other():
    keys = [*itertools.product((1, 11, 111), (1, 2, 12, 112), ("", "1", "12", "policy", "policy1"))]
    firsts = {float(stream(*key).random()) for key in keys}
    assert len(firsts) == len(keys)


def test_streams_of_neighbouring_rounds_and_seeds_are_not_correlated():
    """The correlation of n independent pairs has a standard error of n^-1/2."""
    n = 4_000
    by_round = np.array([stream(3, t, "policy").random() for t in range(1, n + 2)])
    by_seed = np.array([stream(s, 3, "policy").random() for s in range(n + 1)])
    for drawn in (by_round, by_seed):
        assert abs(np.corrcoef(drawn[:-1], drawn[1:])[0, 1]) < 4.5 / np.sqrt(n)
        assert abs(drawn.mean() - 0.5) < 4.5 * np.sqrt(1 / 12 / n)


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ((-1, 1, "x"), "seed = -1, but must be an integer >= 0"),
        (
            (1, -1, "x"),
            "round = -1, but must be an integer >= 0; rounds start at 1; 0 is for draws before the first round",
        ),
    ],
)
def test_errors_give_the_value_and_the_bound(key, message):
    with pytest.raises(SettingError, match=f"^{message}$"):
        stream(*key)


# ---- numbers for clients


class SplitMix64:
    """The generator as published: java.util.SplittableRandom, and Vigna's splitmix64.c."""

    def __init__(self, seed):
        self.state = seed

    def next(self):
        self.state = (self.state + 0x9E3779B97F4A7C15) % 2**64
        z = self.state
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
        return z ^ (z >> 31)


def nth(seed, n):
    """Number n, from 0, of the generator with this seed."""
    made = SplitMix64(seed % 2**64)
    return [made.next() for _ in range(n + 1)][n]


def slow(seed, name, client, counter, column):
    """One number, by going through all before it."""
    keys = [
        int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")
        for text in (f"{seed}", f"{seed}\x1f{name}\x1f{column}")
    ]
    word = nth(nth(keys[0], counter) + keys[1], client)
    return (word - 2**64 if word >= 2**63 else word) * ((1 - 2.0**-52) * 2.0**-64) + 0.5


def test_the_generator_gives_the_known_numbers():
    made = SplitMix64(1234567)
    known = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821]
    assert [made.next() for _ in known] == known


SEEDS, NAMES = st.integers(0, 2**70), st.text(max_size=8)
IDS = st.lists(st.integers(0, 200), max_size=12).map(lambda ids: np.array(ids, dtype=np.int64))


@given(SEEDS, NAMES, IDS, st.integers(0, 60), st.integers(1, 4))
def test_numbers_are_those_of_the_plain_generator(seed, name, ids, counter, count):
    found = uniforms(seed, name, ids, counter, count)
    assert found.shape == (len(ids), count)
    assert found.tolist() == [[slow(seed, name, int(k), counter, c) for c in range(count)] for k in ids]
    assert np.array_equal(uniforms(seed, name, ids, counter), found[:, 0])


@given(SEEDS, NAMES, IDS, st.data())
def test_each_client_may_have_a_counter_of_its_own(seed, name, ids, data):
    each = [data.draw(st.integers(0, 2**40)) for _ in ids]
    counters = np.array(each, dtype=np.int64)
    for count in (None, 3):
        found = uniforms(seed, name, ids, counters, count)
        for row, k, n in zip(found, ids, each, strict=True):
            assert np.array_equal(row, uniforms(seed, name, np.array([k]), n, count)[0])


@given(SEEDS, NAMES, st.integers(1, 300), st.integers(0, 2**40), st.data())
def test_neither_the_others_nor_their_order_matter(seed, name, number, counter, data):
    everyone = np.arange(number)
    some = np.array(data.draw(st.lists(st.integers(0, number - 1), max_size=20)), dtype=np.int64)
    for count in (None, 2):
        everything = uniforms(seed, name, everyone, counter, count)
        assert np.array_equal(uniforms(seed, name, some, counter, count), everything[some])


@given(SEEDS, NAMES, NAMES, IDS, st.integers(0, 60), st.sampled_from([None, 1, 3]))
def test_a_number_of_another_name_can_come_along(seed, name, other, ids, counter, count):
    both = uniforms(seed, name, ids, counter, count, also=other)
    assert np.array_equal(both[:, :-1], uniforms(seed, name, ids, counter, count or 1))
    assert np.array_equal(both[:, -1], uniforms(seed, other, ids, counter))


def test_other_seeds_names_counters_clients_and_columns_give_other_numbers():
    keys = [*itertools.product((0, 1, 11, 2**65), ("", "a", "1", "ties", "latency"), range(20))]
    found = np.concatenate([uniforms(seed, name, np.arange(50), n, 3).ravel() for seed, name, n in keys])
    assert len(np.unique(found)) == len(found) == len(keys) * 150
    assert 0.0 < found.min() < found.max() < 1.0


def test_numbers_reach_neither_0_nor_1(monkeypatch):
    words = np.array([0, 1, 2**63 - 1, 2**63, 2**64 - 1], dtype=np.uint64)
    monkeypatch.setattr("fedpick.core.rng._mixed", lambda _: words)
    found = uniforms(0, "x", np.arange(5), 0)
    assert found.tolist() == [0.5, 0.5, 1.0 - 2.0**-53, 2.0**-53, 0.5]


def grid(seed=3, clients=400, counters=400):
    """Numbers of clients (columns) in rounds (rows)."""
    return np.array([uniforms(seed, "latency", np.arange(clients), n) for n in range(counters)])


def test_numbers_are_uniform_over_clients_over_rounds_and_over_both():
    table = grid()
    assert stats.kstest(table.ravel(), "uniform").pvalue > 1e-3
    for lines in (table, table.T):  # the p-values of independent uniform lines are uniform
        assert stats.kstest([stats.kstest(line, "uniform").pvalue for line in lines], "uniform").pvalue > 1e-3
    bits = np.ldexp(table, 40).astype(np.int64).ravel()
    for bit in range(40):  # each of the first 40 bits is 1 half of the time
        assert abs((bits >> bit & 1).mean() - 0.5) < 4.5 * 0.5 / np.sqrt(len(bits))


def test_neighbours_in_any_direction_are_not_correlated():
    """The correlation of n independent pairs has a standard error of n^-1/2."""
    table, n = grid(), 400 * 399
    pairs = {
        "clients": (table[:, 1:], table[:, :-1]),
        "rounds": (table[1:], table[:-1]),
        "seeds": (table, grid(seed=4)),
        "columns": tuple(np.moveaxis([uniforms(3, "time", np.arange(400), n, 2) for n in range(400)], 2, 0)),
        "names": tuple(np.moveaxis([uniforms(3, "time", np.arange(400), n, also="loss") for n in range(400)], 2, 0)),
    }
    for what, (a, b) in pairs.items():
        assert abs(np.corrcoef(a.ravel(), b.ravel())[0, 1]) < 4.5 / np.sqrt(n), what
        cells = np.histogram2d(a.ravel(), b.ravel(), bins=16, range=[[0, 1], [0, 1]])[0]
        assert stats.chisquare(cells.ravel()).pvalue > 1e-3, what
    # Rounds far apart, whose counters differ in one bit
    far = np.array([uniforms(3, "latency", np.arange(20_000), 2**k) for k in range(0, 40, 4)])
    assert np.abs(np.corrcoef(far) - np.eye(10)).max() < 4.5 / np.sqrt(20_000)


@pytest.mark.parametrize(
    ("seed", "counter", "message"),
    [
        (-1, 1, "seed = -1, but must be an integer >= 0"),
        (1, -1, "counter = -1, but must be an integer >= 0"),
        (1, np.array([3, -1]), r"counter = array\(\[ 3, -1\]\), but must be integers >= 0"),
    ],
)
def test_errors_of_numbers_give_the_value_and_the_bound(seed, counter, message):
    with pytest.raises(SettingError, match=f"^{message}$"):
        uniforms(seed, "x", np.arange(2), counter)
