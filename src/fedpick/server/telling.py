"""What a client may tell of itself and of its training, by the names under which the server reads it."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedpick.graph import sketch as sketched

__all__ = ["description", "reports"]


def reports(
    *,
    losses: ArrayLike | None = None,
    correct: ArrayLike | None = None,
    before: Sequence[NDArray[np.floating]] | None = None,
    after: Sequence[NDArray[np.floating]] | None = None,
    sketch: int | None = None,
) -> dict[str, float | list[float]]:
    """Metrics to put into a training reply: in Flower into its MetricRecord, in NVFlare into FLModel's `metrics`.

    Args:
        losses: of each example that the client holds: `squared_loss` (Oort).
        correct: for each example, whether the model that was sent is right: `accuracy` (TiFL).
        before: arrays of the model that was sent.
        after: arrays of the trained model; with `before`: `update_norm`.
        sketch: width; with both models: `sketch_WIDTH` (DivFL, Clustered), a few numbers in place of the update.

    >>> reports(losses=[1.0, 3.0], before=[np.zeros(2)], after=[np.array([3.0, 4.0])])
    {'squared_loss': 5.0, 'update_norm': 5.0}
    """
    found: dict[str, float | list[float]] = {}
    if losses is not None:
        found["squared_loss"] = float(np.mean(np.square(np.asarray(losses, dtype=np.float64))))
    if correct is not None:
        found["accuracy"] = float(np.mean(np.asarray(correct, dtype=np.float64)))
    if before is not None and after is not None:
        pairs = zip(before, after, strict=True)
        update = np.concatenate([(np.asarray(b, np.float64) - np.asarray(a)).ravel() for a, b in pairs])
        found["update_norm"] = float(np.linalg.norm(update))
        if sketch is not None:
            found[f"sketch_{sketch}"] = sketched(update, sketch).tolist()
    return found


def description(said: float | tuple[float, Sequence[float]]) -> dict[str, Any]:
    """A client's description of itself: its number of examples, or (number of examples, vector of features).

    >>> description((20, np.array([15, 5])))
    {'size': 20.0, 'features': [15.0, 5.0]}
    """
    size, features = said if isinstance(said, tuple) else (said, None)
    told = {} if features is None else {"features": [float(value) for value in features]}
    return {"size": float(size), **told}
