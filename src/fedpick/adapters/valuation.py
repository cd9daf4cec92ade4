"""The value of a round's updates to the server, for policies that choose by it (GreedyFed, SFedAvg)."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpick.core import rng as rngs
from fedpick.core.types import Bools, Floats
from fedpick.solvers import shapley

__all__ = ["worth"]

Arrays = Mapping[str, NDArray[Any]]


def worth(
    models: Mapping[str, Arrays],
    sizes: Mapping[str, float],
    sent: Arrays,
    value: Callable[[Arrays], float],
    seed: int,
    round: int,
) -> dict[str, float]:
    """Shapley value of each client's model: what it adds to the value of the mean, weighted by size.

    Args:
        models: trained, by the clients' names.
        sizes: weights in the mean.
        sent: the model at the start of the round, whose value is that of no update.
        value: model -> number, such as minus its loss on the server's validation data.
        seed, round: of the random numbers.
    """
    names = list(models)
    held = np.array([sizes[name] for name in names], dtype=np.float64)
    arrays = [models[name] for name in names]

    def mean(row: Bools) -> Arrays:
        if not row.any():
            return sent
        shares = held * row / (held * row).sum()
        used = [(share, arrays[i]) for i, share in enumerate(shares) if row[i]]
        return {
            key: np.asarray(sum(share * each[key] for share, each in used)).astype(first.dtype)
            for key, first in arrays[0].items()
        }

    def values(rows: Bools) -> Floats:
        found = np.array([float(value(mean(row))) for row in rows])
        if not np.isfinite(found[~rows.any(axis=1)]).all():  # no client has a part in this model
            raise ValueError("the value of the model that was sent is no number, so that no update can be valued")
        return np.where(np.abs(found) <= 1e6, found, -1e6)  # a model of no use

    found = shapley(values, len(names), rngs.stream(seed, round, "shapley"))
    return dict(zip(names, found.tolist(), strict=True))
