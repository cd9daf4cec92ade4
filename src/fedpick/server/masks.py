"""Features masked by a secret rotation, so that the server learns their dot products and nothing else."""

import hashlib

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from fedpick.core.errors import ContractError, require
from fedpick.core.types import Floats

__all__ = ["masked"]


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
