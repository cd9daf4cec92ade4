"""Data and who holds it: real data sets, synthetic ones, partitions, and the one form they have in memory.

>>> from fedpick.core import rng
>>> people = Dirichlet(alpha=0.5)(load("digits"), 20, rng.stream(0, 0, "partition"))
>>> len(people), int(people.sizes.sum())
(20, 1617)
"""

from fedpick.data.federated import Dataset, Federated
from fedpick.data.generators import GENERATORS, FedGSSynthetic, LinearRegression, Quadratic, Synthetic, generate
from fedpick.data.partitions import (
    IID,
    PARTITIONS,
    Dirichlet,
    DirichletLabels,
    LabelsPerClient,
    LogNormalSizes,
    PowerLawSizes,
    PrimaryLabel,
    hold_out,
    partition,
)
from fedpick.data.sources import SOURCES, load

__all__ = [
    "GENERATORS",
    "IID",
    "PARTITIONS",
    "SOURCES",
    "Dataset",
    "Dirichlet",
    "DirichletLabels",
    "FedGSSynthetic",
    "Federated",
    "LabelsPerClient",
    "LinearRegression",
    "LogNormalSizes",
    "PowerLawSizes",
    "PrimaryLabel",
    "Quadratic",
    "Synthetic",
    "generate",
    "hold_out",
    "load",
    "partition",
]
