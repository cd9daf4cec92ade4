"""For clients: their reports and descriptions under the names by which a server reads them, and masked features."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from fedpick.core.errors import ContractError, require
from fedpick.core.types import Floats
from fedpick.graph import sketch as sketched

__all__ = ["description", "masked", "reports"]


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
        update = np.concatenate([(np.asarray(new, np.float64) - np.asarray(old)).ravel() for old, new in pairs])
        found["update_norm"] = float(np.linalg.norm(update))
        if sketch is not None:
            found[f"sketch_{sketch}"] = sketched(update, sketch).tolist()
    return found


def description(given: float | tuple[float, Sequence[float]] | Mapping[str, Any]) -> dict[str, Any]:
    """A client's description of itself: from its number of examples, or (number of examples, vector of features).

    Or from a dict with "size", and "features", "labels" (its number of examples of each label) or both.

    >>> description((20, np.array([15, 5])))
    {'size': 20.0, 'features': [15.0, 5.0]}
    >>> description({"size": 20, "labels": [15, 5]})
    {'size': 20.0, 'labels': [15.0, 5.0]}
    """
    if isinstance(given, Mapping):
        vectors = {name: [float(each) for each in given[name]] for name in ("features", "labels") if name in given}
        return {"size": float(given["size"]), **vectors}
    if not isinstance(given, tuple):
        return {"size": float(given)}
    size, features = given
    return {"size": float(size), "features": [float(value) for value in features]}


def masked(features: ArrayLike, secret: str | bytes) -> Floats:
    """Features scaled to length 1 and multiplied by a rotation that only holders of the secret know.

    All clients use the same rotation, so the server can compare any two of them but learns only their dot products.
    If one client tells the server the secret, all clients' features are revealed.

    Args:
        features: a vector, such as the label histogram.
        secret: at least 16 characters that the clients share and the server does not know.

    >>> a, b = masked([3, 4, 0], "a secret of the clients"), masked([0, 1, 0], "a secret of the clients")
    >>> round(float(a @ b), 6)
    0.8
    """
    vector = np.asarray(features, dtype=np.float64)
    if vector.ndim != 1 or not np.isfinite(vector).all():
        raise ContractError(f"features has shape {vector.shape}, but must be one vector of finite numbers")
    key = secret.encode() if isinstance(secret, str) else secret
    require(len(key) >= 16, "masked: secret, in bytes", len(key), "at least 16", "a short one can be guessed")
    length = float(np.linalg.norm(vector))
    return _rotation(key, len(vector)) @ (vector / length if length > 0 else vector)


def _rotation(key: bytes, size: int) -> Floats:
    """A random orthogonal matrix (Haar distribution) from a pseudorandom stream seeded by the key."""
    stream = hashlib.shake_256(b"fedpick rotation %d " % size + key).digest(8 * size * size)
    uniform = (np.frombuffer(stream, dtype="<u8").astype(np.float64) + 0.5) / 2.0**64
    normal = ndtri(np.clip(uniform, 1e-16, 1.0 - 1e-16)).reshape(size, size)
    q, r = np.linalg.qr(normal)
    rotation: Floats = q * np.where(np.diagonal(r) < 0.0, -1.0, 1.0)  # without this choice of signs it is not uniform
    return rotation
