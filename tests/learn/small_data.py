"""Small populations for the tests of training: ragged clients, some with one example, some smaller than a batch."""

from functools import lru_cache

import jax
import numpy as np

from fedpick import learn
from fedpick.data import Dataset, Federated

SIZES = np.array([20, 3, 1, 8, 13, 1, 9])
BATCH = 8
KINDS = ("floats", "images", "regression")


def split(dataset: Dataset, sizes: np.ndarray, seed: int = 0, held: int = 0) -> Federated:
    """Clients of these sizes, each with as many examples held out; an example may have two holders."""
    rng = np.random.default_rng(seed)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    examples = rng.permutation(np.arange(starts[-1]) % len(dataset))
    return Federated(
        dataset, examples, starts, rng.integers(0, len(dataset), held * len(sizes)), held * np.arange(len(sizes) + 1)
    )


@lru_cache
def data_of(kind: str, held: int = 0) -> Federated:
    rng = np.random.default_rng(7)
    if kind == "images":
        x = rng.integers(0, 256, (50, 10, 9, 2), dtype=np.uint8)
        test = rng.integers(0, 256, (11, 10, 9, 2), dtype=np.uint8)
        mean, std = (0.4, 0.5), (0.3, 0.2)
    else:
        x, test = rng.normal(size=(50, 6)).astype(np.float32), rng.normal(size=(11, 6)).astype(np.float32)
        mean, std = (0.0,), (1.0,)
    if kind == "regression":
        y, test_y, classes = rng.normal(size=50).astype(np.float32), rng.normal(size=11).astype(np.float32), 0
    else:
        y, test_y, classes = rng.integers(0, 4, 50, dtype=np.int32), rng.integers(0, 4, 11, dtype=np.int32), 4
    return split(Dataset(kind, x, y, test, test_y, classes, mean, std), SIZES, held=held)


def model_of(kind: str, dropout: float = 0.0) -> learn.Model:
    return learn.mlp(data_of(kind).dataset.inputs, 1 if kind == "regression" else 4, hidden=(7, 5), dropout=dropout)


def same_bits(one: object, other: object) -> bool:
    """Whether two models hold the same numbers, to the last bit."""
    a, b = jax.tree.leaves(one), jax.tree.leaves(other)
    return len(a) == len(b) and all(
        np.asarray(x).tobytes() == np.asarray(y).tobytes() for x, y in zip(a, b, strict=True)
    )
