"""Similarity of the data of any two clients: the matrix V of FedGS (https://arxiv.org/abs/2211.13975), eq. (10)-(12).

All three similarities are max(cosine, 0) of one vector per client; they differ in the vector. In each of them

- the diagonal is 1, even for a client without a vector;
- a row of zeros, or a row with NaN or infinity in it (a client not seen yet, or with an invalid report), has
  similarity 0 with all others.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedpick.core.errors import ContractError, require
from fedpick.core.types import Floats
from fedpick.graph._arrays import cosine_rows, square, unit_rows

__all__ = ["from_embeddings", "from_features", "from_updates"]
__all__ += ["functional_embedding", "noise", "vectors_from_similarity"]


def _cosine(what: str, vectors: ArrayLike) -> Floats:
    units = unit_rows(what, vectors)
    similarity = cosine_rows(units, 0, len(units))
    np.fill_diagonal(similarity, 1.0)
    return similarity


def from_features(features: ArrayLike) -> Floats:
    """Similarity (K, K) of clients from features of their data, such as label counts: eq. (10).

    >>> from_features([[10, 0], [3, 3], [0, 7]]).round(2)
    array([[1.  , 0.71, 0.  ],
           [0.71, 1.  , 0.71],
           [0.  , 0.71, 1.  ]])
    """
    return _cosine("features", features)


def from_updates(updates: ArrayLike) -> Floats:
    """Similarity (K, K) of clients from their model updates, local model minus global model: eq. (11).

    >>> from_updates([[1.0, 0.0], [-1.0, 0.0], [np.nan, 1.0]])  # opposite vectors, and an invalid one
    array([[1., 0., 0.],
           [0., 1., 0.],
           [0., 0., 1.]])
    """
    return _cosine("updates", updates)


def from_embeddings(embeddings: ArrayLike) -> Floats:
    """Similarity (K, K) of clients from the `functional_embedding` of each local model: eq. (12).

    >>> float(from_embeddings([[0.9, 0.1], [0.9, 0.1]])[0, 1])
    1.0
    """
    return _cosine("embeddings", embeddings)


def noise(mean: ArrayLike, cov: ArrayLike, n: int, rng: np.random.Generator) -> Floats:
    """Draw n rows of Gaussian noise, the common input of all local models: the epsilon of eq. (12).

    Args:
        mean: (d,) mean of the server's small validation set.
        cov: (d, d) covariance of it; may be singular, as with fewer examples than pixels.
        n: number of rows, at least 1.
        rng: random generator.

    >>> noise([1.0, 5.0], [[4.0, 0.0], [0.0, 0.0]], 100, np.random.default_rng(0)).shape
    (100, 2)
    """
    require(n >= 1, "n", n, "at least 1", "the embedding is a mean over n noise inputs")
    factor = _factor("cov", cov)
    centre = np.asarray(mean, dtype=np.float64)
    if centre.shape != (len(factor),):
        raise ContractError(
            f"mean has shape {centre.shape}, but cov is for {len(factor)} inputs: mean must have shape ({len(factor)},)"
        )
    rows: Floats = centre + rng.standard_normal((n, factor.shape[1])) @ factor.T
    return rows


def functional_embedding(model: Callable[[Floats], Any], batch: Floats) -> Floats:
    """Mean output of a local model over a batch of `noise`: the e_i of eq. (12).

    Args:
        model: any function from a batch (n, d) to outputs (n, L).
        batch: the noise, the same for every client.

    >>> functional_embedding(lambda x: x @ np.eye(2), np.array([[1.0, 3.0], [3.0, 3.0]]))
    array([2., 3.])
    """
    outputs = np.asarray(model(batch), dtype=np.float64)
    if outputs.ndim != 2 or len(outputs) != len(batch):
        raise ContractError(
            f"the model's output has shape {outputs.shape} for {len(batch)} inputs, but must be ({len(batch)}, L): "
            "one row of outputs per input"
        )
    mean: Floats = outputs.mean(axis=0)
    return mean


def vectors_from_similarity(dots: ArrayLike) -> Floats:
    """Vectors (K, rank) whose dot products are `dots`: what a server learns from a full matrix of dot products.

    They are the clients' vectors up to a rotation (or reflection), and can be used as `Clients.features`: similarities,
    and so the graph, are the same.

    Args:
        dots: (K, K) dot products, symmetric and positive semi-definite up to rounding, as from `secure_similarity`.

    >>> vectors = vectors_from_similarity([[1.0, 0.6], [0.6, 1.0]])
    >>> (vectors @ vectors.T).round(6)
    array([[1. , 0.6],
           [0.6, 1. ]])
    """
    return _factor("dots", dots)


def _factor(what: str, values: ArrayLike) -> Floats:
    """Return F of shape (K, rank) with F F' = values, a positive semi-definite matrix."""
    gram = square(what, values)
    asymmetry = np.abs(gram - gram.T).max(initial=0.0)
    if asymmetry > 1e-8 * np.abs(gram).max(initial=0.0):
        raise ContractError(
            f"{what} differs from its transpose by {asymmetry:.3g}, but must be symmetric; "
            "average it with its transpose"
        )
    weights, directions = np.linalg.eigh((gram + gram.T) / 2)
    largest = np.abs(weights).max(initial=0.0)
    # Rounding (also in fixed point) gives eigenvalues a little below zero, a wrong matrix far below.
    if weights.min(initial=0.0) < -1e-6 * largest:
        raise ContractError(
            f"{what} has the eigenvalue {weights.min():.3g}, but a matrix of dot products has none below 0 (it is "
            "positive semi-definite); pass dot products or a covariance as computed, without clipping or thresholds"
        )
    kept = np.flatnonzero(weights > len(gram) * np.finfo(np.float64).eps * largest)[::-1]  # the largest first
    factor: Floats = directions[:, kept] * np.sqrt(weights[kept])
    return factor
