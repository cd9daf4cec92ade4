"""Data sets that the tests of partitions split, and the partitions that they try."""

import numpy as np

from fedpick.data.federated import Dataset


def rng(seed=0):
    return np.random.default_rng(seed)


def labelled(*counts, name="toy"):
    """A data set with this many examples of each label, in no order."""
    y = rng(99).permutation(np.repeat(np.arange(len(counts), dtype=np.int32), counts))
    return Dataset(name, np.zeros((len(y), 1), np.float32), y, classes=len(counts))


REGRESSION = Dataset("line", np.zeros((50, 1), np.float32), np.zeros(50, np.float32))


EVEN = labelled(*[60] * 10)


UNEVEN = labelled(400, 10, 90, 0, 250, name="uneven")


DISJOINT = [
    "iid",
    "iid(size=7)",
    "iid(size=power-law(at_least=2))",
    "iid(size=log-normal(sigma=1, at_least=1, mean=9))",
    "primary-label(0.8, size=5, overlap=False)",
    "dirichlet-labels(100, size=10, overlap=False)",
    "dirichlet(1, at_least=2)",
    "dirichlet(50)",
    "labels-per-client(1)",
    "labels-per-client(2)",
    "labels-per-client(3, size=6)",
    "labels-per-client(2, size=log-normal(sigma=1, at_least=4))",
]


SHARED = [
    "iid(size=100, overlap=True)",
    "primary-label(0.5, size=20)",
    "primary-label(0.7, size=power-law(mean=20))",
    "dirichlet-labels(1, size=10)",
    "dirichlet-labels(0.1, size=log-normal(sigma=0.5, mean=12, at_least=3))",
]


def sets(split):
    return [set(split.examples_of(k).tolist()) for k in range(len(split))]
