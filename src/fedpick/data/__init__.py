"""Federated data: real and synthetic data sets, partitions among clients, and the one form in memory.

>>> from fedpick.core import rng
>>> federated = Dirichlet(alpha=0.5)(load("digits"), 20, rng.stream(0, 0, "partition"))
>>> len(federated), int(federated.sizes.sum())
(20, 1617)
"""

from fedpick.data.federated import Dataset, Federated, hold_out
from fedpick.data.generators import GENERATORS, FedGSSynthetic, LinearRegression, Quadratic, Synthetic, generate
from fedpick.data.objects import read
from fedpick.data.partitions import (
    IID,
    PARTITIONS,
    Dirichlet,
    DirichletLabels,
    LabelsPerClient,
    LogNormalSizes,
    PowerLawSizes,
    PrimaryLabel,
    partition,
)
from fedpick.data.sources import SOURCES, load

__all__ = ["SOURCES", "Dataset", "Federated", "hold_out", "load", "read"]
__all__ += ["GENERATORS", "FedGSSynthetic", "LinearRegression", "Quadratic", "Synthetic", "generate"]
__all__ += ["IID", "PARTITIONS", "Dirichlet", "DirichletLabels", "LabelsPerClient", "PrimaryLabel", "partition"]
__all__ += ["LogNormalSizes", "PowerLawSizes"]
