"""Trained models as changes of the model that their clients were sent, for frameworks that exchange whole models."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Arrays", "moves", "onto"]

Arrays = dict[str, NDArray[Any]]


def moves(trained: Arrays | Mapping[str, Any], sent: Mapping[str, Any], whole: bool = True) -> Arrays:
    """What training added to each array; what are not two NumPy arrays of one shape is left out.

    Args:
        trained: arrays that clients sent.
        sent: the model that they were sent.
        whole: whether `trained` are models; else they are such changes already.
    """
    if not whole:
        return dict(trained)
    found: Arrays = {}
    for name, new in trained.items():
        old = sent.get(name)
        if isinstance(new, np.ndarray) and isinstance(old, np.ndarray) and new.shape == old.shape:
            # Truth values cannot be subtracted, and unsigned numbers have no negative changes.
            found[name] = np.subtract(new, old, dtype=np.result_type(new, old, np.int8))
    return found


def onto(model: Mapping[str, Any], moved: Arrays, times: float = 1.0, whole: bool = True) -> Arrays:
    """The model's arrays after so many times these changes; floats keep the model's type.

    Args:
        model: to change.
        moved: the changes.
        times: factor.
        whole: whether the changed model is wanted; else the changes, times the factor.

    >>> onto({"w": np.array([1.0, 2.0])}, {"w": np.array([0.5, -1.0])}, 2.0)["w"].tolist()
    [2.0, 0.0]
    """
    if not whole:
        return {name: times * move for name, move in moved.items()}
    found: Arrays = {}
    for name, move in moved.items():
        old = np.asarray(model[name])
        new = old + (move if times == 1.0 else times * move)
        found[name] = new.astype(old.dtype) if old.dtype.kind == "f" else new
    return found
