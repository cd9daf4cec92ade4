"""Pixels as numbers: divided by 255, centred and scaled, in NumPy."""

from typing import Any

import numpy as np

from fedpick.core.types import Floats
from fedpick.data.federated import Dataset

__all__ = ["affine", "inputs_of"]


def affine(dataset: Dataset) -> tuple[Any, Any]:
    """Scale and shift of pixels, along the last axis."""
    mean, std = np.asarray(dataset.mean, np.float64), np.asarray(dataset.std, np.float64)
    return (1.0 / (255.0 * std)).astype(np.float32), (-mean / std).astype(np.float32)


def inputs_of(dataset: Dataset, x: Any) -> Floats:
    """Stored examples as float32, pixels centred and scaled, in the shape of the data; tokens as they are."""
    if x.dtype != np.uint8:
        return np.asarray(x)
    scale, shift = affine(dataset)
    found: Floats = x.astype(np.float32) * scale + shift
    return found
