"""Which client holds which example: the splits of the papers.

Each partition is a frozen dataclass of its settings. Called with a data set, a number of clients and a random generator
it returns a `Federated`. All but `IID` first decide how many examples of each label a client gets, a (K, L) table;
then the examples are given out. The same state of the generator gives the same split.

The papers: E3CS (https://arxiv.org/abs/2011.08756), Power-of-Choice (https://arxiv.org/abs/2010.01243), RBCS-F
(https://doi.org/10.1109/TPDS.2020.3040887), FedGS (https://arxiv.org/abs/2211.13975), FedProx
(https://arxiv.org/abs/1812.06127), Hsu et al. (https://arxiv.org/abs/1909.06335).
"""

from typing import Any

import numpy as np

from fedpick._support.text import Makers, make
from fedpick.core.errors import ConfigError
from fedpick.data.federated import Dataset, Federated
from fedpick.data.partitions.sizes import SIZES, LogNormalSizes, PowerLawSizes
from fedpick.data.partitions.splits import IID, Dirichlet, DirichletLabels, LabelsPerClient, PrimaryLabel

__all__ = ["IID", "Dirichlet", "DirichletLabels", "LabelsPerClient", "PrimaryLabel"]
__all__ += ["PARTITIONS", "SIZES", "LogNormalSizes", "PowerLawSizes", "partition"]

PARTITIONS: Makers = {
    "iid": IID,
    "primary-label": PrimaryLabel,
    "dirichlet-labels": DirichletLabels,
    "dirichlet": Dirichlet,
    "labels-per-client": LabelsPerClient,
}


def partition(text: str, dataset: Dataset, num_clients: int, rng: np.random.Generator) -> Federated:
    """Split a data set by a partition given as a text.

    Args:
        text: "iid", "primary-label(0.8, size=500)", "dirichlet(alpha=0.3)", "labels-per-client(2, size=power-law)"; or
            "FILE.py:Name", a class like these or a function of (dataset, num_clients, rng) in your file.
        dataset: what is split.
        num_clients: among how many.
        rng: such as fedpick.core.rng.stream(seed, 0, "partition").

    >>> data = Dataset("toy", np.zeros((60, 2), np.float32), np.arange(60, dtype=np.int32) % 3, classes=3)
    >>> partition("iid(size=log-normal(sigma=1, at_least=5))", data, 4, np.random.default_rng(0)).sizes
    array([14, 12, 20, 14])
    """
    # A function in the user's file takes the data at once; a partition with settings is made first, then called.
    given: dict[str, Any] = {"dataset": dataset, "num_clients": num_clients, "rng": rng}
    how = make(text, "partition", PARTITIONS, values=SIZES, example="dirichlet(alpha=0.3) or iid", **given)
    split = how if isinstance(how, Federated) else how(dataset, num_clients, rng)
    if not isinstance(split, Federated):
        raise ConfigError(f"{text}: gives {type(split).__name__}, but must give fp.data.Federated")
    return split
