"""Shared by the figures and tables of FedGS."""

from typing import Any

import numpy as np

from fedpick import graph
from fedpick.data import FedGSSynthetic
from fedpick.types import Floats

__all__ = ["PAPER", "true_models"]

PAPER = "Wang et al. (2023), FedGS: Federated Graph-Based Sampling with Arbitrary Client Availability, AAAI"


def true_models(policy: Any, clients: int) -> Floats:
    """Distances on the authors' oracle graph, which compares the models that their data was drawn from."""
    similarity = graph.from_features(FedGSSynthetic().models(clients))
    edges = graph.three_dg(similarity, epsilon=policy.epsilon, sigma2=policy.sigma2)
    return np.asarray(graph.shortest_paths(edges), dtype=np.float64)
