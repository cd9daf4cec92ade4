"""The lowest global training loss that logistic regression can have on a draw of the data."""

from functools import lru_cache

import numpy as np
from scipy.optimize import minimize

from fedpick.core import rng as rngs
from fedpick.core.types import Floats
from fedpick_papers.studies._trained import split

__all__ = ["logistic_optimum", "lowest_loss"]


def lowest_loss(x: Floats, y: Floats, classes: int) -> float:
    """The minimum over weights and biases of the mean cross-entropy, by L-BFGS.

    >>> round(lowest_loss(np.array([[0.0], [0.0]]), np.array([0, 1]), 2), 4)  # nothing to learn from: ln 2
    0.6931
    """
    # In float32, to about 1e-3: a level that lies a tenth of the way to the start needs no more.
    inputs = np.column_stack([np.asarray(x, dtype=np.float32).reshape(len(x), -1), np.ones(len(x), np.float32)])
    wanted = np.eye(classes, dtype=np.float32)[np.asarray(y, dtype=np.int64)]

    def value(flat: Floats) -> tuple[float, Floats]:
        logits = inputs @ flat.reshape(inputs.shape[1], classes).astype(np.float32)
        logits -= logits.max(axis=1, keepdims=True)
        odds = np.exp(logits)
        total = odds.sum(axis=1, keepdims=True)
        loss = float((np.log(total[:, 0]) - (wanted * logits).sum(axis=1)).mean())
        return loss, (inputs.T @ (odds / total - wanted) / len(inputs)).ravel().astype(np.float64)

    start = np.zeros(inputs.shape[1] * classes)
    found = minimize(value, start, jac=True, method="L-BFGS-B", options={"maxiter": 150, "ftol": 1e-7})
    return float(found.fun)


@lru_cache(maxsize=64)
def logistic_optimum(data: str, clients: int, seed: int) -> float:
    """The lowest global training loss of this draw, on at most 8,000 of its examples."""
    generated = split(data, "", clients, seed)
    held = rngs.stream(seed, 0, "optimum").permutation(np.asarray(generated.examples))[:8000]
    return lowest_loss(generated.dataset.x[held], generated.dataset.y[held], generated.dataset.classes or 1)
