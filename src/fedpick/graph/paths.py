"""The 3DG and its distances: FedGS (https://arxiv.org/abs/2211.13975), after eq. (10), and Algorithm 1, lines 2, 3."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from fedpick.core.errors import ContractError, require, unknown_name
from fedpick.core.types import Bools, Floats
from fedpick.graph._arrays import CHUNK, cosine_rows, square, unit_rows

if TYPE_CHECKING:  # SciPy's graphs take half a second to import, so functions import them when called
    from scipy.sparse import csr_array

__all__ = ["shortest_paths", "three_dg", "three_dg_from_vectors"]

TINY = np.finfo(np.float64).tiny  # the smallest normal number: shorter than any edge, and not 0


def three_dg(
    similarity: ArrayLike, epsilon: float = 0.1, sigma2: float = 0.3, neighbours: int | None = None
) -> "csr_array":
    """The sparse adjacency matrix of the graph: an edge joins similar clients; it is short if they are very similar.

    The weight is exp(-(V - epsilon) / sigma2), the paper's times exp(epsilon / sigma2): this constant changes no
    shortest path, and avoids weights of 1e-44 at sigma2 = 0.01.

    Args:
        similarity: (K, K) similarities, symmetric, at most 1; a negative cosine counts as 0.
        epsilon: the smallest similarity that makes an edge, in [0, 1].
        sigma2: > 0; small values make long edges much longer than short ones.
        neighbours: keep an edge only if one end is among the other's this many most similar clients; None keeps all.
            Of equally similar clients the first are kept, so that equal clients share neighbours.

    >>> three_dg([[1.0, 0.7, 0.0], [0.7, 1.0, 0.2], [0.0, 0.2, 1.0]]).toarray().round(3)
    array([[0.   , 0.135, 0.   ],
           [0.135, 0.   , 0.717],
           [0.   , 0.717, 0.   ]])
    """
    full = square("similarity", similarity)
    return _graph(_checked_blocks(full), len(full), epsilon, sigma2, neighbours)


def three_dg_from_vectors(
    vectors: ArrayLike, neighbours: int | None, epsilon: float = 0.1, sigma2: float = 0.3
) -> "csr_array":
    """The graph of each client's nearest neighbours, directly from the clients' vectors, for thousands of clients.

    Equal to `three_dg(from_features(vectors), epsilon, sigma2, neighbours)`, without the (K, K) matrix, which is
    800 MB for 10,000 clients.

    >>> three_dg_from_vectors([[9, 1], [8, 1], [1, 9], [1, 8]], neighbours=1).nnz  # two pairs, in both directions
    4
    """
    units = unit_rows("vectors", vectors)
    blocks = ((first, cosine_rows(units, first, first + CHUNK)) for first in range(0, len(units), CHUNK))
    return _graph(blocks, len(units), epsilon, sigma2, neighbours)


def shortest_paths(
    adjacency: "csr_array",
    method: Literal["auto", "floyd", "dijkstra"] = "auto",
    normalise: bool = True,
    dtype: DTypeLike = np.float64,
) -> NDArray[Any]:
    """Distances (K, K) between any two clients on the graph: the matrix H of FedGS.

    Pairs without a path get twice the largest finite distance. (The largest itself, the authors' choice, would make H
    constant if every client has one label.) Without any edge all distances are 1.

    Args:
        adjacency: the sparse, symmetric matrix of edge weights, as returned by `three_dg`.
        method: "floyd" or "dijkstra"; "auto" takes the faster.
        normalise: divide by the largest distance, so that H is in [0, 1] and alpha has the same meaning for any sigma2.
        dtype: float32 halves the memory for large K; use it with `normalise`, otherwise tiny distances become 0.

    >>> shortest_paths(three_dg([[1.0, 0.7, 0.0], [0.7, 1.0, 0.2], [0.0, 0.2, 1.0]])).round(3)
    array([[0.   , 0.159, 1.   ],
           [0.159, 0.   , 0.841],
           [1.   , 0.841, 0.   ]])
    """
    from scipy.sparse.csgraph import dijkstra, floyd_warshall

    graph, scale = _checked_graph(adjacency)
    count = graph.shape[0]
    if method not in ("auto", "floyd", "dijkstra"):
        raise unknown_name("method", method, ["auto", "floyd", "dijkstra"])
    if graph.nnz == 0:
        distance = np.ones((count, count), dtype=dtype)
        np.fill_diagonal(distance, 0.0)
        return distance

    if method == "auto":
        method = _faster(count, graph.nnz)
    # The graph is symmetric; with "directed" SciPy need not look at the transposed one.
    if method == "floyd":
        distance = floyd_warshall(graph, directed=True).astype(dtype, copy=False)
    else:
        distance = np.empty((count, count), dtype=dtype)
        for first in range(0, count, CHUNK):
            last = min(first + CHUNK, count)
            distance[first:last] = dijkstra(graph, directed=True, indices=np.arange(first, last))
        _make_symmetric(distance)  # from i to j and from j to i, the same edges are summed in a different order
    np.fill_diagonal(distance, 0.0)

    unreachable = np.isinf(distance)
    distance[unreachable] = 2 * distance.max(where=~unreachable, initial=0.0)
    if normalise:
        distance /= distance.max()
    else:
        distance *= scale
    return distance


def _checked_blocks(similarity: Floats) -> Iterator[tuple[int, Floats]]:
    """Rows of a given similarity matrix, CHUNK at a time, as (first row, rows)."""
    for first in range(0, len(similarity), CHUNK):
        block = similarity[first : first + CHUNK]
        asymmetry = np.abs(block - similarity[:, first : first + CHUNK].T).max()
        if asymmetry > 1e-6:
            raise ContractError(
                f"similarity differs from its transpose by {asymmetry:.3g}, but must be symmetric; "
                "average it with its transpose"
            )
        for value in (block.max(), block.min()):
            if abs(value) > 1 + 1e-6:
                raise ContractError(
                    f"similarity holds {value:.6g}, but must be between -1 and 1; "
                    "make it with from_features, which normalises"
                )
        yield first, np.clip(block, 0.0, 1.0)


def _graph(
    blocks: Iterable[tuple[int, Floats]], count: int, epsilon: float, sigma2: float, neighbours: int | None
) -> "csr_array":
    from scipy.sparse import csr_array

    require(
        0 <= epsilon <= 1, "epsilon", epsilon, "between 0 and 1", "it is the smallest similarity that makes an edge"
    )
    require(0 < sigma2 < np.inf, "sigma2", sigma2, "> 0 and finite", "0.3 is a good start; the paper's is 0.01")
    if neighbours is not None:
        require(neighbours >= 1, "neighbours", neighbours, "at least 1", "None keeps every edge")

    rows, columns, weights = [np.empty(0, np.int64)], [np.empty(0, np.int64)], [np.empty(0)]
    for first, block in blocks:
        row = np.arange(len(block))
        block[row, first + row] = -1.0  # no edge from a client to itself
        edges: Bools = block >= epsilon
        if neighbours is not None and neighbours < count:
            edges &= _most_similar(block, neighbours)
        row, column = np.nonzero(edges)
        rows.append(row + first)
        columns.append(column)
        # Some of SciPy's routines take an explicit 0 for "no edge", so weights are at least TINY.
        weights.append(np.maximum(np.exp((epsilon - block[row, column]) / sigma2), TINY))
    entries = (np.concatenate(weights), (np.concatenate(rows), np.concatenate(columns)))
    graph = csr_array(entries, shape=(count, count))
    return graph.maximum(graph.T).tocsr()  # an edge is kept if either end keeps it


def _most_similar(block: Floats, neighbours: int) -> Bools:
    """Mask of the `neighbours` largest entries of each row; of equal ones the first."""
    least = -np.partition(-block, neighbours - 1, axis=1)[:, [neighbours - 1]]
    above, equal = block > least, block == least
    room = neighbours - above.sum(axis=1, keepdims=True)
    mask: Bools = above | (equal & (equal.cumsum(axis=1) <= room))
    return mask


def _checked_graph(adjacency: "csr_array") -> "tuple[csr_array, float]":
    """The graph with its longest edge scaled to 1 (so that float32 suffices for any sigma2), and the scale."""
    from scipy.sparse import coo_array, csr_array, issparse

    if not issparse(adjacency):
        # SciPy's csgraph would drop weights under 1e-8 from a dense array.
        raise ContractError(
            f"adjacency is a {type(adjacency).__name__}, but must be sparse, as returned by three_dg; "
            "wrap weights with 0 for 'no edge' in scipy.sparse.csr_array"
        )
    entries = coo_array(adjacency, dtype=np.float64)
    off = entries.row != entries.col  # the distance of a client to itself is 0 whatever the diagonal has
    graph = csr_array((entries.data[off], (entries.row[off], entries.col[off])), shape=entries.shape)
    if graph.shape[0] != graph.shape[1]:
        raise ContractError(f"adjacency has shape {graph.shape}, but must be square: a row and a column per client")
    if graph.nnz == 0:
        return graph, 1.0
    bad = graph.data[~(np.isfinite(graph.data) & (graph.data > 0))]
    if len(bad):
        raise ContractError(
            f"adjacency holds the weight {bad[0]:g}, but weights must be finite and > 0; leave pairs without edge out"
        )
    scale = float(graph.data.max())
    asymmetry = abs(graph - graph.T).max()
    if asymmetry > 1e-9 * scale:
        raise ContractError(
            f"adjacency differs from its transpose by {asymmetry:.3g}, but must be symmetric; "
            "take graph.maximum(graph.T)"
        )
    graph = graph.maximum(graph.T).tocsr()  # make rounding errors symmetric, too
    graph.data = np.maximum(graph.data / scale, TINY)
    return graph, scale


def _faster(count: int, edges: int) -> Literal["floyd", "dijkstra"]:
    # Seconds for Floyd-Warshall / Dijkstra on one busy core, by the share of pairs that are edges:
    #     K      10 neighbours   10%           20%           30%           all
    #     200    .009 / .009     .010 / .010   .010 / .017   .011 / .024   .010 / .055
    #     500    .14  / .06      .16  / .11    .16  / .18    .17  / .25    .18  / .59
    #     2000   7.5  / 1.1      8.6  / 2.0    7.9  / 7.7    8.8  / 8.9    9.7  / 22
    # 10,000 clients with 10 neighbours: Dijkstra, 16 s on a quiet core. A binary heap in Numba took 14 s.
    return "dijkstra" if count >= 300 and edges < count * count / 5 else "floyd"


def _make_symmetric(distance: NDArray[Any]) -> None:
    """Take the smaller of (i, j) and (j, i), in place and in blocks, without a second (K, K) matrix."""
    for first in range(0, len(distance), CHUNK):
        rows = distance[first : first + CHUNK, first:]
        columns = distance[first:, first : first + CHUNK]
        rows[:] = np.minimum(rows, columns.T)
        columns[:] = rows.T
