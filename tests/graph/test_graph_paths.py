"""The 3DG and its shortest paths against plain Python: the paper's weights and three nested loops."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.sparse import coo_array, csr_array

import fedpick.graph as graph
from fedpick.core.errors import ContractError, SettingError, UnknownNameError
from fedpick.graph import paths

METHODS = ["floyd", "dijkstra"]


def slow_paths(weights):
    """Floyd-Warshall on a dict of edges' weights, then the rules for pairs without a path, not normalised."""
    count = 1 + max(max(pair) for pair in weights)
    h = [[0.0 if i == j else weights[i, j] for j in range(count)] for i in range(count)]
    for k in range(count):
        for i in range(count):
            for j in range(count):
                h[i][j] = min(h[i][j], h[i][k] + h[k][j])
    finite = [h[i][j] for i in range(count) for j in range(count) if i != j and h[i][j] < math.inf]
    far = 2 * max(finite) if finite else 1.0
    return np.array([[far if x == math.inf else x for x in row] for row in h])


def paper_weights(v, epsilon, sigma2):
    """R of the paper, between eq. (10) and (11)."""
    return {
        (i, j): math.exp(-v[i][j] / sigma2) if v[i][j] >= epsilon else math.inf
        for i in range(len(v))
        for j in range(len(v))
    }


def slow_neighbours(v, neighbours, epsilon):
    """Edges that either end keeps: its most similar others, the first of equals."""
    edges = set()
    for i, row in enumerate(v.tolist()):
        ranked = sorted((j for j in range(len(v)) if j != i), key=lambda j: (-row[j], j))
        edges |= {pair for j in ranked[:neighbours] if row[j] >= epsilon for pair in ((i, j), (j, i))}
    return edges


def edges_of(adjacency):
    return set(zip(*(index.tolist() for index in adjacency.nonzero()), strict=True))


def labels(low=2, high=9):
    shape = st.tuples(st.integers(low, high), st.integers(1, 4))
    return shape.flatmap(lambda s: arrays(np.float64, s, elements=st.integers(0, 6).map(float)))


# --- the graph


@given(rows=labels(), epsilon=st.sampled_from([0.0, 0.1, 0.5, 1.0]), sigma2=st.sampled_from([0.05, 0.3, 2.0]))
@settings(max_examples=60, deadline=None)
def test_weights_are_the_papers_times_one_constant(rows, epsilon, sigma2):
    v = graph.from_features(rows)
    adjacency = graph.three_dg(v, epsilon, sigma2)
    paper = paper_weights(v.tolist(), epsilon, sigma2)
    assert edges_of(adjacency) == {pair for pair, w in paper.items() if w < math.inf and pair[0] != pair[1]}
    for (i, j), weight in adjacency.todok().items():
        assert weight == pytest.approx(paper[i, j] * math.exp(epsilon / sigma2))


@pytest.mark.parametrize("sigma2", [0.01, 1e-5])  # raw weights down to 1e-43; and some that underflow to 0
@pytest.mark.parametrize("method", METHODS)
def test_a_tiny_sigma2_keeps_every_edge(sigma2, method):
    v = graph.from_features(np.random.default_rng(0).random((40, 3)))
    adjacency = graph.three_dg(v, 0.1, sigma2)
    assert adjacency.nnz == (v >= 0.1).sum() - 40
    assert adjacency.data.min() > 0
    h = graph.shortest_paths(adjacency, method)
    assert h[~np.eye(40, dtype=bool)].min() > 0
    assert h.max() == 1


def test_a_negative_cosine_counts_as_zero():
    v = [[1.0, -0.5], [-0.5, 1.0]]
    assert graph.three_dg(v, epsilon=0.0).toarray()[0, 1] == 1.0
    assert graph.three_dg(v, epsilon=0.01).nnz == 0


@pytest.mark.parametrize("chunk", [4, 512])
@pytest.mark.parametrize("neighbours", [1, 3, 8, 14, 15, 99])
@pytest.mark.parametrize("epsilon", [0.0, 0.6])
def test_neighbours_equal_the_loop(monkeypatch, chunk, neighbours, epsilon):
    monkeypatch.setattr(paths, "CHUNK", chunk)
    v = graph.from_features(np.random.default_rng(1).integers(0, 3, (15, 3)))  # with many equals
    adjacency = graph.three_dg(v, epsilon, neighbours=neighbours)
    assert edges_of(adjacency) == slow_neighbours(v, neighbours, epsilon)
    full = graph.three_dg(v, epsilon).toarray()
    dense = adjacency.toarray()
    np.testing.assert_array_equal(dense[dense > 0], full[dense > 0])


@pytest.mark.parametrize("chunk", [7, 512])
@pytest.mark.parametrize("rows", ["all different", "one label each"])
def test_graph_from_vectors_equals_graph_from_the_matrix(monkeypatch, chunk, rows):
    monkeypatch.setattr(paths, "CHUNK", chunk)
    rng = np.random.default_rng(2)
    vectors = rng.dirichlet(np.full(5, 0.3), 60) if rows == "all different" else np.eye(5)[rng.integers(0, 5, 60)]
    expected = graph.three_dg(graph.from_features(vectors), 0.2, 0.5, neighbours=4)
    found = graph.three_dg_from_vectors(vectors, 4, epsilon=0.2, sigma2=0.5)
    assert edges_of(found) == edges_of(expected)
    np.testing.assert_allclose(found.toarray(), expected.toarray(), rtol=1e-10)


def test_equal_clients_share_neighbours():
    """40 clients with the same data are two steps apart, not a chain of them."""
    h = graph.shortest_paths(graph.three_dg_from_vectors(np.ones((40, 2)), neighbours=3), normalise=False)
    step = math.exp(-0.9 / 0.3)
    assert h.max() == pytest.approx(2 * step)


def test_the_graph_does_not_write_its_input():
    v = graph.from_features(np.eye(3) + 1)
    before = v.copy()
    graph.three_dg(v, neighbours=1)
    np.testing.assert_array_equal(v, before)


def test_the_graph_refuses_settings():
    v = np.eye(2)
    with pytest.raises(
        SettingError, match=r"epsilon = -0.1, but must be between 0 and 1; it is the smallest similarity"
    ):
        graph.three_dg(v, epsilon=-0.1)
    with pytest.raises(SettingError, match=r"epsilon = nan"):
        graph.three_dg(v, epsilon=math.nan)
    with pytest.raises(SettingError, match=r"sigma2 = 0, but must be > 0 and finite; 0.3 is a good start"):
        graph.three_dg(v, sigma2=0)
    with pytest.raises(SettingError, match=r"neighbours = 0, but must be at least 1; None keeps every edge"):
        graph.three_dg(v, neighbours=0)
    with pytest.raises(SettingError, match=r"neighbours = 0, but must be at least 1"):
        graph.three_dg_from_vectors(v, 0)


def test_the_graph_refuses_arrays():
    with pytest.raises(ContractError, match=r"similarity has shape \(2, 3\), but must be square"):
        graph.three_dg(np.ones((2, 3)))
    with pytest.raises(ContractError, match=r"similarity holds NaN or infinity, but must be finite; use 0 for"):
        graph.three_dg([[1.0, math.nan], [math.nan, 1.0]])
    with pytest.raises(ContractError, match=r"similarity differs from its transpose by 0.3, but must be symmetric; av"):
        graph.three_dg([[1.0, 0.5], [0.2, 1.0]])
    with pytest.raises(ContractError, match=r"similarity holds 37, but must be between -1 and 1; make it with from_fe"):
        graph.three_dg([[25.0, 37.0], [37.0, 30.0]])
    with pytest.raises(ContractError, match=r"similarity holds -1.5, but must be between -1 and 1"):
        graph.three_dg([[1.0, -1.5], [-1.5, 1.0]])
    with pytest.raises(ContractError, match=r"vectors has shape \(2,\), but must be a matrix with one row per client"):
        graph.three_dg_from_vectors([1.0, 2.0], 1)


# --- the distances


@pytest.mark.parametrize("method", METHODS)
@given(rows=labels(), epsilon=st.sampled_from([0.1, 0.7]), sigma2=st.sampled_from([0.05, 0.3]))
@settings(max_examples=60, deadline=None)
def test_distances_equal_three_loops_over_the_papers_weights(method, rows, epsilon, sigma2):
    v = graph.from_features(rows)
    expected = slow_paths(paper_weights(v.tolist(), epsilon, sigma2))
    h = graph.shortest_paths(graph.three_dg(v, epsilon, sigma2), method)
    np.testing.assert_allclose(h, expected / expected.max(), rtol=1e-9)


@pytest.mark.parametrize("method", METHODS)
@given(rows=labels(low=1), sigma2=st.sampled_from([0.01, 0.3]), neighbours=st.sampled_from([None, 1, 2]))
@settings(max_examples=60, deadline=None)
def test_distances_are_a_metric_in_0_1(method, rows, sigma2, neighbours):
    h = graph.shortest_paths(graph.three_dg(graph.from_features(rows), 0.3, sigma2, neighbours), method)
    assert (h == h.T).all()
    assert (np.diag(h) == 0).all()
    assert h.min() >= 0
    assert h.max() == (1 if len(rows) > 1 else 0)
    for k in range(len(h)):  # through k is never shorter; it holds for pairs without a path too
        assert (h <= h[:, [k]] + h[[k], :] + 1e-12).all()


@pytest.mark.parametrize("method", [*METHODS, "auto"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_chunks_do_not_show(monkeypatch, method, dtype):
    adjacency = graph.three_dg_from_vectors(np.random.default_rng(3).dirichlet(np.full(4, 0.2), 50), 2)
    expected = graph.shortest_paths(adjacency, "floyd")
    monkeypatch.setattr(paths, "CHUNK", 8)
    h = graph.shortest_paths(adjacency, method, dtype=dtype)
    assert h.dtype == dtype
    assert (h == h.T).all()
    np.testing.assert_allclose(h, expected, rtol=1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_not_normalised_distances_are_sums_of_weights(method):
    v = [[1.0, 0.7, 0.0, 0.0], [0.7, 1.0, 0.2, 0.0], [0.0, 0.2, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0]]
    near, far = math.exp(-0.6 / 0.3), math.exp(-0.1 / 0.3)
    h = graph.shortest_paths(graph.three_dg(v), method, normalise=False)
    assert h[0] == pytest.approx([0.0, near, near + far, 2 * (near + far)])


@pytest.mark.parametrize("method", METHODS)
def test_pairs_without_a_path_are_twice_as_far_as_the_farthest(method):
    v = graph.from_features([[1, 0, 0], [1, 1, 0], [0, 1, 0], [0, 0, 1]])
    h = graph.shortest_paths(graph.three_dg(v), method)
    assert h[3].tolist() == [1.0, 1.0, 1.0, 0.0]
    assert h[0, 2] == 0.5  # the farthest pair with a path


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("sigma2", [0.3, 0.005])  # e^-180 is 0 in float32, unless scaled first
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_one_label_per_client_is_not_constant(method, sigma2, dtype):
    held = np.array([0, 1, 2, 0, 1, 2])
    h = graph.shortest_paths(graph.three_dg(graph.from_features(np.eye(3)[held]), sigma2=sigma2), method, dtype=dtype)
    same = held[:, None] == held[None, :]
    assert (h[same & ~np.eye(6, dtype=bool)] == 0.5).all()
    assert (h[~same] == 1.0).all()


@pytest.mark.parametrize("normalise", [True, False])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_without_edges_all_are_at_distance_one(normalise, dtype):
    h = graph.shortest_paths(graph.three_dg(np.eye(4)), normalise=normalise, dtype=dtype)
    assert h.dtype == dtype
    np.testing.assert_array_equal(h, 1 - np.eye(4))


@pytest.mark.parametrize("count", [0, 1])
def test_nobody_and_one_client(count):
    h = graph.shortest_paths(graph.three_dg(graph.from_features(np.ones((count, 2))), neighbours=2))
    np.testing.assert_array_equal(h, np.zeros((count, count)))


def test_auto_takes_floyd_for_few_clients_or_dense_graphs():
    assert paths._faster(100, 1_000) == "floyd"
    assert paths._faster(2_000, 3_900_000) == "floyd"
    assert paths._faster(2_000, 30_000) == "dijkstra"


def test_distances_do_not_write_the_graph():
    adjacency = graph.three_dg(graph.from_features([[1, 0], [1, 1], [0, 1]]), sigma2=0.05)
    before = adjacency.toarray()
    graph.shortest_paths(adjacency)
    np.testing.assert_array_equal(adjacency.toarray(), before)


def test_any_sparse_format_will_do():
    dense = np.array([[0.0, 2.0, 0.0], [2.0, 0.0, 1e-12], [0.0, 1e-12, 0.0]])  # 1e-12: kept, where csgraph drops it
    for sparse in (coo_array(dense), csr_array(dense)):
        h = graph.shortest_paths(sparse, normalise=False)
        np.testing.assert_allclose(h, [[0, 2, 2 + 1e-12], [2, 0, 1e-12], [2 + 1e-12, 1e-12, 0]], rtol=1e-9)


@pytest.mark.parametrize("method", METHODS)
def test_the_diagonal_does_not_count(method):
    with_edge = graph.shortest_paths(csr_array([[5.0, 2.0], [2.0, 0.0]]), method, normalise=False)
    assert with_edge.tolist() == [[0.0, 2.0], [2.0, 0.0]]
    without = graph.shortest_paths(csr_array(5.0 * np.eye(2)), method, normalise=False)
    assert without.tolist() == [[0.0, 1.0], [1.0, 0.0]]


@pytest.mark.parametrize("method", METHODS)
def test_rounding_in_the_graph_leaves_no_asymmetry(method):
    h = graph.shortest_paths(csr_array([[0.0, 1.0, 0.0], [1 + 1e-12, 0.0, 3.0], [0.0, 3.0, 0.0]]), method)
    assert (h == h.T).all()
    np.testing.assert_allclose(h[0], [0.0, 0.25, 1.0])


def test_distances_refuse():
    with pytest.raises(
        ContractError, match=r"adjacency is a ndarray, but must be sparse, as returned by three_dg; wrap"
    ):
        graph.shortest_paths(np.ones((2, 2)))
    with pytest.raises(ContractError, match=r"adjacency has shape \(2, 3\), but must be square"):
        graph.shortest_paths(csr_array(np.ones((2, 3))))
    with pytest.raises(ContractError, match=r"adjacency differs from its transpose by 1, but must be symmetric; take"):
        graph.shortest_paths(csr_array([[0.0, 1.0], [2.0, 0.0]]))
    for bad in (-1.0, math.inf, math.nan):
        with pytest.raises(
            ContractError, match=r"adjacency holds the weight (-1|inf|nan), but .* finite and > 0; leave"
        ):
            graph.shortest_paths(csr_array([[0.0, bad], [bad, 0.0]]))
    with pytest.raises(ContractError, match=r"adjacency holds the weight 0, but weights must be finite and > 0"):
        graph.shortest_paths(csr_array(([0.0, 0.0], ([0, 1], [1, 0])), shape=(2, 2)))
    with pytest.raises(UnknownNameError, match=r"unknown method 'floid'; did you mean 'floyd'\?"):
        graph.shortest_paths(csr_array((2, 2)), "floid")
