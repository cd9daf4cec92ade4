"""The secure scalar product: it is right, and what each party sees says nothing of the others' vectors."""

from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import chisquare

import fedpick.graph as graph
from fedpick.core.errors import ContractError, SettingError
from fedpick.graph import secure

UNIT = 2.0**-secure.FRACTION_BITS


def tolerance(a, b):
    """|a.b - round(a).round(b)| with each entry off by half a unit, and a little for the float dot product itself."""
    half = UNIT / 2
    return half * (np.abs(a).sum() + np.abs(b).sum()) + len(a) * half**2 + 1e-13


def pairs(largest=2.0):
    """Two vectors of at most 16 numbers of at most 2 in size: of length at most 8."""
    numbers = st.floats(-largest, largest, allow_nan=False)
    return st.integers(1, 16).flatmap(lambda d: st.tuples(*[arrays(np.float64, d, elements=numbers)] * 2))


def same_view(one, two):
    return all(np.array_equal(getattr(one, f.name), getattr(two, f.name)) for f in fields(one))


@given(vectors=pairs(), seed=st.integers(0, 2**32))
@settings(max_examples=200, deadline=None)
def test_equals_the_plain_dot_product(vectors, seed):
    a, b = vectors
    value, _ = graph.secure_dot(a, b, np.random.default_rng(seed))
    assert abs(value - a @ b) <= tolerance(a, b)


@pytest.mark.parametrize(("a", "b", "expected"), [([8.0], [8.0], 64.0), ([8.0], [-8.0], -64.0), ([0.0], [8.0], 0.0)])
def test_right_up_to_the_bound(a, b, expected):
    for seed in range(20):
        assert graph.secure_dot(a, b, np.random.default_rng(seed))[0] == expected


def test_the_shares_add_up_modulo_2_to_the_64():
    _, t = graph.secure_dot([0.3, 0.4], [0.5, -0.6], np.random.default_rng(0))
    d = t.commodity
    integers = [[int(x) for x in v] for v in (d.mask_a, d.mask_b)]
    product = sum(x * y for x, y in zip(*integers, strict=True))  # Python's integers do not wrap around
    assert (int(d.share_a[0]) + int(d.share_b[0]) - product) % 2**64 == 0


@given(vectors=pairs(), other=st.data(), seed=st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_bob_could_have_seen_the_same_with_any_other_alice(vectors, other, seed):
    """For every run with A and every A2 there is commodity randomness, equally likely, with the same view for Bob."""
    a, b = vectors
    a2 = other.draw(arrays(np.float64, a.shape, elements=st.floats(-2, 2)))
    _, run = graph.secure_dot(a, b, np.random.default_rng(seed))
    a, a2, b = secure.encode(a), secure.encode(a2), secure.encode(b)

    mask_a2 = run.commodity.mask_a + a - a2  # a shift of Ra: one to one, so as likely as Ra
    share_a2 = secure.dot(mask_a2, run.commodity.mask_b) - run.commodity.share_b
    dealt = secure.Deal(mask_a2, share_a2, run.commodity.mask_b, run.commodity.share_b)
    run2 = secure.exchange(a2, b, dealt, run.bob.pad)

    assert same_view(run.bob, run2.bob)
    assert secure.open_result(run2.server) == secure.decode(secure.dot(a2, b))  # and it is a run that works


@given(vectors=pairs(), other=st.data(), seed=st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_alice_could_have_seen_the_same_with_any_other_bob(vectors, other, seed):
    a, b = vectors
    b2 = other.draw(arrays(np.float64, b.shape, elements=st.floats(-2, 2)))
    _, run = graph.secure_dot(a, b, np.random.default_rng(seed))
    a, b, b2 = secure.encode(a), secure.encode(b), secure.encode(b2)

    mask_b2 = run.commodity.mask_b + b - b2
    share_b2 = secure.dot(run.commodity.mask_a, mask_b2) - run.commodity.share_a
    pad2 = secure.dot(a + run.commodity.mask_a, b2) + share_b2 - run.alice.reply  # Bob's own v2
    dealt = secure.Deal(run.commodity.mask_a, run.commodity.share_a, mask_b2, share_b2)
    run2 = secure.exchange(a, b2, dealt, pad2)

    assert same_view(run.alice, run2.alice)
    assert secure.open_result(run2.server) == secure.decode(secure.dot(a, b2))


@given(vectors=pairs(), seed=st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_the_server_sees_the_product_and_a_random_number(vectors, seed):
    """v1 is the product minus v2, so the server's two numbers depend on the vectors through the product alone."""
    a, b = vectors
    _, run = graph.secure_dot(a, b, np.random.default_rng(seed))
    assert run.server.from_alice == secure.dot(secure.encode(a), secure.encode(b)) - run.server.from_bob
    assert run.server.from_bob == run.bob.pad


def test_the_commodity_server_hears_nothing():
    """What it deals does not depend on the vectors."""
    _, one = graph.secure_dot([1.0, 2.0], [3.0, 4.0], np.random.default_rng(5))
    _, two = graph.secure_dot([-5.0, 0.1], [0.0, 0.0], np.random.default_rng(5))
    assert same_view(one.commodity, two.commodity)


def top_bits_look_uniform(numbers):
    bins = np.bincount((numbers.ravel() >> np.uint64(60)).astype(np.int64), minlength=16)
    return chisquare(bins).pvalue > 1e-4


@pytest.mark.parametrize("a", [0.0, 1.0, -1.0, 4.0])
@pytest.mark.parametrize("b", [0.0, 2.5])
def test_every_message_looks_uniform_whatever_the_vectors(a, b):
    runs, rng = 20_000, np.random.default_rng(11)
    codes = secure.encode(np.full((runs, 2), a)), secure.encode(np.full((runs, 2), b))
    run = secure.exchange(*codes, secure.deal((runs, 2), rng), secure.draw((runs, 1), rng))
    for message in (run.bob.masked_alice, run.alice.masked_bob, run.alice.reply, run.server.from_alice):
        assert top_bits_look_uniform(message)
    assert not top_bits_look_uniform(codes[0])  # the test sees what is not masked


def test_similarity_is_the_cosine_of_every_pair():
    vectors = np.random.default_rng(0).normal(size=(12, 5))
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    dots = graph.secure_similarity(vectors, np.random.default_rng(1))
    worst = max(tolerance(a, b) for a in units for b in units)
    np.testing.assert_allclose(dots, units @ units.T, atol=worst, rtol=0)
    assert (np.diag(dots) == 1.0).all()
    assert (dots == dots.T).all()
    assert dots.min() < 0  # cosines, not clamped


def test_similarity_uses_fresh_masks_for_every_pair(monkeypatch):
    """The same mask twice would show the difference of two vectors."""
    runs, exchange = [], secure.exchange

    def spy(a, b, dealt, pad):
        runs.append(exchange(a, b, dealt, pad))
        return runs[-1]

    monkeypatch.setattr(secure, "exchange", spy)
    graph.secure_similarity(np.eye(6), np.random.default_rng(2))
    for what in (
        [run.commodity.mask_a for run in runs],
        [run.commodity.mask_b for run in runs],
        [run.bob.pad for run in runs],
    ):
        rows = np.concatenate(what)
        assert len(rows) == 15  # one per pair
        assert len(np.unique(rows)) == rows.size


def test_similarity_of_clients_without_a_direction_is_zero():
    dots = graph.secure_similarity([[1.0, 2.0], [np.nan, 1.0], [0.0, 0.0]], np.random.default_rng(0))
    np.testing.assert_array_equal(dots, np.eye(3))


@pytest.mark.parametrize("count", [0, 1])
def test_similarity_of_nobody_and_of_one(count):
    np.testing.assert_array_equal(graph.secure_similarity(np.ones((count, 3)), np.random.default_rng(0)), np.eye(count))


def test_secure_products_give_the_graph_that_the_features_give():
    """Straight into three_dg, and as features through vectors_from_similarity."""
    labels = np.random.default_rng(3).integers(0, 50, (25, 4))
    dots = graph.secure_similarity(labels, np.random.default_rng(4))
    expected = graph.three_dg(graph.from_features(labels)).toarray()
    np.testing.assert_allclose(graph.three_dg(dots).toarray(), expected, atol=1e-6)
    features = graph.vectors_from_similarity(dots)
    np.testing.assert_allclose(graph.three_dg(graph.from_features(features)).toarray(), expected, atol=1e-6)


@pytest.mark.parametrize(("who", "vectors"), [("alice", ([9.0], [1.0])), ("bob", ([1.0], [9.0]))])
def test_too_long_a_vector(who, vectors):
    with pytest.raises(SettingError, match=rf"length of {who}'s vector = 9.0, but must be at most 8; beyond it .* div"):
        graph.secure_dot(*vectors, np.random.default_rng(0))


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e200])
def test_a_vector_without_a_length(bad):
    with pytest.raises(SettingError, match=r"alice's vector = (nan|inf|1e\+200), but must be at most 8"):
        graph.secure_dot([bad, 0.0], [1.0, 1.0], np.random.default_rng(0))


def test_wrong_shapes():
    rng = np.random.default_rng(0)
    with pytest.raises(ContractError, match=r"alice has 2 numbers and bob 3, but they must have the same number"):
        graph.secure_dot([1.0, 2.0], [1.0, 2.0, 3.0], rng)
    with pytest.raises(ContractError, match=r"bob has shape \(1, 2\), but must be one vector, of shape \(d,\)"):
        graph.secure_dot([1.0, 2.0], [[1.0, 2.0]], rng)
    with pytest.raises(ContractError, match=r"vectors has shape \(2,\), but must be a matrix"):
        graph.secure_similarity([1.0, 2.0], rng)
