"""How well a graph's edges match those of the oracle graph, which is built from the true features.

FedGS (https://arxiv.org/abs/2211.13975), Table 3.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fedpick.core.errors import ContractError, require
from fedpick.core.types import Bools
from fedpick.graph._arrays import square

__all__ = ["EdgeScores", "edge_scores"]


class EdgeScores(NamedTuple):
    """How well edges were found.

    Without any correct edge all three are 0; if neither graph has an edge, they agree and all three are 1.
    """

    precision: float  # share of the edges found that are correct
    recall: float  # share of the oracle's edges that were found
    f1: float  # harmonic mean of the two


def edge_scores(similarity: ArrayLike, oracle: ArrayLike, epsilon: float, oracle_epsilon: float = 0.1) -> EdgeScores:
    """Precision, recall and F1 of the edges, the pairs of clients with similarity above epsilon.

    Args:
        similarity: (K, K) similarities to be judged.
        oracle: (K, K) similarities from the true features.
        epsilon: the threshold for the first.
        oracle_epsilon: the threshold for the oracle; the paper's is 0.1.

    >>> truth = [[1, 0.5, 0.5], [0.5, 1, 0], [0.5, 0, 1]]
    >>> found = [[1, 0.9, 0], [0.9, 1, 0], [0, 0, 1]]
    >>> edge_scores(found, truth, epsilon=0.5)
    EdgeScores(precision=1.0, recall=0.5, f1=0.666...)
    """
    mine, true = _edges("similarity", similarity, epsilon), _edges("oracle", oracle, oracle_epsilon)
    if mine.shape != true.shape:
        raise ContractError(
            f"similarity has shape {mine.shape} and oracle {true.shape}, but they must be of the same clients"
        )
    found, there, right = (int(np.count_nonzero(pairs)) for pairs in (mine, true, mine & true))
    if right == 0:
        same = float(found == there == 0)
        return EdgeScores(same, same, same)
    return EdgeScores(right / found, right / there, 2 * right / (found + there))


def _edges(what: str, similarity: ArrayLike, epsilon: float) -> Bools:
    """Mask of the pairs i < j that are edges: strictly above epsilon, else at epsilon = 0 every pair would be one."""
    require(0 <= epsilon <= 1, f"the epsilon of {what}", epsilon, "between 0 and 1")
    mask: Bools = np.triu(square(what, similarity) > epsilon, k=1)
    return mask
