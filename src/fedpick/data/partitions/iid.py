"""The same distribution for everyone."""

from dataclasses import dataclass

import numpy as np

from fedpick.data.federated import Dataset, Federated
from fedpick.data.partitions.dealing import check_clients, deal
from fedpick.data.partitions.sizes import Size, check_size, draw_sizes

__all__ = ["IID"]


@dataclass(frozen=True)
class IID:
    """Every client's examples are drawn from the same distribution.

    Args:
        size: examples per client: a number, a law of sizes, or None for all the data in equal parts (N // K each).
        overlap: clients draw independently and may share examples (E3CS); otherwise no example is given twice.

    >>> data = Dataset("toy", np.zeros((7, 2), np.float32), np.array([0, 1, 0, 1, 0, 1, 0], np.int32), classes=2)
    >>> IID()(data, 3, np.random.default_rng(0)).sizes
    array([2, 2, 2])
    """

    size: Size = None
    overlap: bool = False

    def __post_init__(self) -> None:
        check_size(self, self.size)

    def __call__(self, dataset: Dataset, num_clients: int, rng: np.random.Generator) -> Federated:
        """Split the data set."""
        check_clients(self, dataset, num_clients)
        sizes = draw_sizes(self, self.size, dataset, num_clients, rng, self.overlap)
        return deal(self, dataset, np.zeros(len(dataset), np.int64), sizes[:, None], rng, self.overlap)
