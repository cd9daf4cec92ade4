"""A partition with clients in the order of their labels: a world with classes in order then ties speed to data."""

from dataclasses import dataclass

import numpy as np

from fedpick.data.federated import Dataset, Federated
from fedpick.data.partitions import DirichletLabels

__all__ = ["Sorted"]


@dataclass(frozen=True)
class Sorted:
    """`dirichlet-labels`, with the clients in the order of their share of the lower half of the labels.

    Args:
        alpha: concentration of each client's label mix.
        size: examples per client.
    """

    alpha: float = 0.2
    size: int = 40

    def __call__(self, dataset: Dataset, num_clients: int, rng: np.random.Generator) -> Federated:
        """Split the data set."""
        split = DirichletLabels(self.alpha, size=self.size)(dataset, num_clients, rng)
        labels = split.labels
        assert labels is not None  # it divides by label
        lower = labels[:, : labels.shape[1] // 2].sum(axis=1) / labels.sum(axis=1)
        order = np.argsort(-lower, kind="stable")
        examples = np.concatenate([split.examples[split.starts[k] : split.starts[k + 1]] for k in order])
        return Federated(split.dataset, examples, np.concatenate([[0], np.cumsum(split.sizes[order])]))
