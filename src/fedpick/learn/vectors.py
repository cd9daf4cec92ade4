"""Models as vectors in this process's memory, {"kept": vector, "weights": vector}: what a backend does with them.

`weights` are trained. `kept` is sent with them, such as a module's frozen parameters and buffers: the server moves it
by a mean; it has no part in norms, reports and what a server's optimiser does.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedpick.core.types import Ints
from fedpick.learn.backend import Params

__all__ = ["Vectors", "each_of", "total"]


def each_of(params: Params, several: bool) -> list[Params]:
    """Single models of a stack."""
    if not several:
        return [params]
    return [{name: part[r] for name, part in params.items()} for r in range(len(params["weights"]))]


def total(rows: Any, weights: Any) -> Any:
    """The weighted sum of the rows, one after another; those of weight 0 may hold anything, NaN too."""
    found = np.zeros(rows.shape[1], rows.dtype)
    with np.errstate(invalid="ignore", over="ignore"):
        for r in np.flatnonzero(np.asarray(weights) > 0):
            found += rows.dtype.type(weights[r]) * rows[r]
    return found


class Vectors:
    """The part of a backend that adds, moves and compares."""

    compiles = False
    still: tuple[int, ...] = (0,)  # the kept numbers
    shapes: list[tuple[int, ...]]  # of what is trained

    def combine(self, server: Any, model: dict[str, Any], delta: Params, weights: Any) -> dict[str, Any]:
        """The next parameters and server's state; kept numbers move by a mean, so that variances stay positive."""
        params, share = model["params"], float(np.asarray(weights, np.float64).sum())
        step = total(delta["weights"], weights)
        kept = params["kept"] + total(delta["kept"], np.asarray(weights) / max(share, 1.0))
        if server is None:
            return {"params": {"kept": kept, "weights": params["weights"] + step}, "server": []}
        moved, state = server.move(params["weights"], model["server"], step)
        return {"params": {"kept": kept, "weights": moved}, "server": state}

    def everywhere(self, params: Params) -> Params:
        """There is one place."""
        return params

    def stack(self, models: Sequence[Params]) -> Params:
        """Several models, stacked along the first axis."""
        return {name: np.stack([model[name] for model in models]) for name in models[0]}

    def rows(self, delta: Params, slots: Ints) -> Params:
        """Some of the updates."""
        return {name: part[slots] for name, part in delta.items()}

    def add(self, models: Sequence[Params], delta: Params, weights: Any) -> Sequence[Params]:
        """Each model plus its weighted sum of the updates."""
        pairs = zip(models, np.asarray(weights), strict=True)
        return [self.combine(None, {"params": model}, delta, row)["params"] for model, row in pairs]

    def leaves(self, tree: Params) -> list[Any]:
        """The arrays."""
        return [tree["kept"], tree["weights"]]

    def restore(self, params: Params, leaves: Sequence[Any]) -> Params:
        """The arrays by name."""
        return dict(zip(("kept", "weights"), map(np.asarray, leaves), strict=True))

    def trained(self, model: Any, delta: Params) -> list[Any]:
        """The updates of each array that is trained."""
        rows, found, at = delta["weights"], [], 0
        for shape in self.shapes:
            size = int(np.prod(shape))
            found.append(rows[:, at : at + size].reshape(len(rows), *shape))
            at += size
        return found

    def distances(self, delta: Params, weights: Any) -> Any:
        """Squared distance of every update to the weighted mean."""
        rows = delta["weights"]
        mean = total(rows, weights)
        return np.array([np.square(row - mean).sum(dtype=np.float64) for row in rows])
