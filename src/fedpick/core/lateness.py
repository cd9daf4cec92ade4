"""The weight of late updates beside those in time (REFL)."""

import numpy as np

from fedpick.core.types import Floats, Ints

__all__ = ["late_weights"]


def late_weights(rounds: Ints, distance: Floats, beta: float) -> Floats:
    """REFL's weight of late updates, beside 1 for those in time: (1 - beta)/(tau + 1) + beta (1 - exp(-L/L_max)).

    Abdelmoniem et al. (2023), section 4.2; L compares an update with the mean of those in time: an update unlike the
    others counts more.

    Args:
        rounds: tau, by how many each is late.
        distance: squared, of each to the mean of those in time; L is this times a factor that cancels in L/L_max.
        beta: how much the second part counts, in [0, 1].

    >>> late_weights(np.array([1, 3]), np.array([1.0, 2.0]), 0.0).tolist()
    [0.5, 0.25]
    """
    most = distance.max(initial=0.0)
    other: Floats = 1.0 - np.exp(-distance / most) if most > 0.0 else np.zeros(len(rounds))
    return (1.0 - beta) / (rounds + 1.0) + beta * other
