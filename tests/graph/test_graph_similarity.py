"""Similarities of clients: eq. (10)-(12) of FedGS against a loop in plain Python."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import fedpick.graph as graph
from fedpick.core.errors import ContractError, SettingError

ALL_THREE = [graph.from_features, graph.from_updates, graph.from_embeddings]


def slow_similarity(rows):
    """max(cosine, 0) pair by pair; a client is like itself, and one without a direction is like nobody else."""
    result = [[0.0] * len(rows) for _ in rows]
    for i, a in enumerate(rows):
        for j, b in enumerate(rows):
            lengths = math.hypot(*a) * math.hypot(*b)
            if i == j:
                result[i][j] = 1.0
            elif lengths > 0:
                result[i][j] = max(sum(x * y for x, y in zip(a, b, strict=True)) / lengths, 0.0)
    return np.array(result)


def rows_of(low, high):
    shape = st.tuples(st.integers(1, 7), st.integers(1, 5))
    return shape.flatmap(lambda s: arrays(np.float64, s, elements=st.integers(low, high).map(float)))


def test_public_names_are_documented():
    for name in graph.__all__:
        assert getattr(graph, name).__doc__, name


@pytest.mark.parametrize("similarity", ALL_THREE)
@given(rows=rows_of(-4, 9))
@settings(max_examples=40, deadline=None)
def test_equals_the_loop(similarity, rows):
    v = similarity(rows)
    np.testing.assert_allclose(v, slow_similarity(rows.tolist()), atol=2e-12)
    assert (v == v.T).all()
    assert ((v >= 0) & (v <= 1)).all()


@pytest.mark.parametrize("similarity", ALL_THREE)
@pytest.mark.parametrize("bad", [0.0, np.nan, np.inf, -np.inf])
def test_a_row_without_direction_is_like_nobody_else(similarity, bad):
    v = similarity([[bad, 0.0], [1.0, 2.0], [2.0, 1.0]])
    assert v[0].tolist() == [1.0, 0.0, 0.0]
    assert v[:, 0].tolist() == [1.0, 0.0, 0.0]
    assert v[1, 2] == pytest.approx(0.8)


def test_length_does_not_matter_however_extreme():
    v = graph.from_updates([[3e200, 4e200], [3e-200, 4e-200], [3.0, 4.0], [1e308, 1e308]])
    np.testing.assert_allclose(v[:3, :3], 1.0)
    np.testing.assert_allclose(v[3, :3], 7 / (5 * math.sqrt(2)))


def test_equal_clients_are_exactly_equal():
    rows = np.tile(np.random.default_rng(0).random(17), (600, 1))
    assert (graph.from_features(rows) == 1.0).all()


def test_the_input_is_not_written():
    rows = np.array([[3.0, np.nan], [1.0, 2.0]])
    before = rows.copy()
    graph.from_features(rows)
    np.testing.assert_array_equal(rows, before)


def test_no_clients_give_an_empty_matrix():
    assert graph.from_features(np.empty((0, 3))).shape == (0, 0)


@pytest.mark.parametrize("similarity", ALL_THREE)
def test_wrong_shapes(similarity):
    what = similarity.__name__.removeprefix("from_")
    with pytest.raises(ContractError, match=rf"{what} has shape \(2,\), but must be a matrix with one row per client"):
        similarity([1.0, 2.0])
    with pytest.raises(ContractError, match=f"{what} must be numbers"):
        similarity([["a", "b"]])


def test_noise_has_the_mean_and_covariance_asked_for():
    mean, cov = np.array([1.0, -2.0, 5.0]), np.array([[2.0, 0.6, 0.0], [0.6, 1.0, -0.3], [0.0, -0.3, 0.5]])
    batch = graph.noise(mean, cov, 40_000, np.random.default_rng(1))
    assert batch.shape == (40_000, 3)
    np.testing.assert_allclose(batch.mean(axis=0), mean, atol=0.04)  # 5 standard errors of the largest variance
    np.testing.assert_allclose(np.cov(batch.T), cov, atol=0.08)
    np.testing.assert_array_equal(batch, graph.noise(mean, cov, 40_000, np.random.default_rng(1)))


def test_noise_with_a_singular_covariance_stays_in_its_plane():
    few = np.random.default_rng(2).random((4, 10))  # 4 examples of 10 inputs: the covariance has rank 3
    batch = graph.noise(few.mean(axis=0), np.cov(few.T), 50, np.random.default_rng(3))
    centred = few - few.mean(axis=0)
    inside = np.linalg.lstsq(centred.T, (batch - few.mean(axis=0)).T, rcond=None)[0]
    np.testing.assert_allclose((centred.T @ inside).T + few.mean(axis=0), batch, atol=1e-6)
    assert np.ptp(batch, axis=0).min() > 0.01  # it is noise, not its mean


def test_noise_without_spread_is_the_mean():
    batch = graph.noise([1.0, 2.0], np.zeros((2, 2)), 3, np.random.default_rng(0))
    assert batch.tolist() == [[1.0, 2.0]] * 3


def test_noise_refuses():
    rng = np.random.default_rng(0)
    with pytest.raises(SettingError, match=r"n = 0, but must be at least 1; the embedding is a mean"):
        graph.noise([0.0], [[1.0]], 0, rng)
    with pytest.raises(ContractError, match=r"mean has shape \(3,\), but cov is for 2 inputs"):
        graph.noise([0.0, 0.0, 0.0], np.eye(2), 5, rng)
    with pytest.raises(ContractError, match=r"cov has the eigenvalue -1, but .* none below 0"):
        graph.noise([0.0, 0.0], [[1.0, 2.0], [2.0, 1.0]], 5, rng)


def test_functional_embedding_is_the_mean_output():
    batch = np.random.default_rng(4).random((20, 3))
    weights = np.random.default_rng(5).random((3, 2))
    by_loop = sum(np.tanh(row @ weights) for row in batch) / 20
    np.testing.assert_allclose(graph.functional_embedding(lambda x: np.tanh(x @ weights), batch), by_loop)


def test_models_of_like_clients_have_like_embeddings():
    rng = np.random.default_rng(6)
    batch = graph.noise(np.ones(4), np.eye(4), 200, rng)

    def model(label):  # a local model that has only seen one label
        weights = rng.normal(0, 0.1, (4, 3))
        weights[:, label] += 1.0
        return lambda x: np.maximum(x @ weights, 0)

    v = graph.from_embeddings([graph.functional_embedding(model(label), batch) for label in (0, 0, 1)])
    assert v[0, 1] > 0.9 > 0.5 > v[0, 2]


@pytest.mark.parametrize("shape", [(5,), (4, 2), (5, 2, 2)])
def test_functional_embedding_refuses_other_shapes(shape):
    with pytest.raises(ContractError, match=r"for 5 inputs, but must be \(5, L\): one row of outputs per input"):
        graph.functional_embedding(lambda x: np.zeros(shape), np.zeros((5, 3)))


@given(rows=rows_of(-4, 9))
@settings(max_examples=40, deadline=None)
def test_vectors_have_the_dot_products_they_were_made_from(rows):
    vectors = graph.vectors_from_similarity(rows @ rows.T)
    np.testing.assert_allclose(vectors @ vectors.T, rows @ rows.T, atol=1e-9 * max(1.0, np.abs(rows).max() ** 2))
    assert vectors.shape == (len(rows), np.linalg.matrix_rank(rows))


def test_dot_products_reveal_the_vectors_up_to_a_rotation():
    """What the docs say a curious server can do: knowing three clients, it reads all the others."""
    secret = np.random.default_rng(7).random((30, 3))
    learnt = graph.vectors_from_similarity(secret @ secret.T)
    rotation = np.linalg.solve(learnt[:3], secret[:3])
    np.testing.assert_allclose(rotation @ rotation.T, np.eye(3), atol=1e-9)
    np.testing.assert_allclose(learnt @ rotation, secret, atol=1e-9)


def test_vectors_come_largest_direction_first():
    vectors = graph.vectors_from_similarity(np.diag([1.0, 9.0, 4.0]))
    np.testing.assert_allclose(np.square(vectors).sum(axis=0), [9.0, 4.0, 1.0])


def test_vectors_from_similarity_refuses():
    with pytest.raises(ContractError, match=r"dots has shape \(1, 2\), but must be square"):
        graph.vectors_from_similarity([[1.0, 0.0]])
    with pytest.raises(ContractError, match=r"dots holds NaN or infinity, but must be finite; use 0 for"):
        graph.vectors_from_similarity([[1.0, np.nan], [np.nan, 1.0]])
    with pytest.raises(ContractError, match=r"dots differs from its transpose by 0.5, but must be symmetric; average"):
        graph.vectors_from_similarity([[1.0, 0.5], [0.0, 1.0]])
    with pytest.raises(ContractError, match=r"dots has the eigenvalue -2, but a matrix of dot products has none below"):
        graph.vectors_from_similarity([[1.0, 3.0], [3.0, 1.0]])
