"""Weights as users hold them: arrays or tensors in dicts and lists."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpick.core.errors import SettingError

__all__ = ["array_of", "arrays_of", "leaves_of", "names_of"]

Array = NDArray[Any]


def array_of(leaf: Any) -> Array:
    """A tensor or numbers as an array."""
    if hasattr(leaf, "detach"):  # a tensor
        leaf = leaf.detach().cpu().numpy()
    return np.asarray(leaf)


def arrays_of(tree: Any, who: str) -> Any:
    """Weights as dicts and lists of arrays."""
    if isinstance(tree, dict):
        return {str(name): arrays_of(each, who) for name, each in tree.items()}
    if isinstance(tree, list | tuple):
        return [arrays_of(each, who) for each in tree]
    found = array_of(tree)
    if found.dtype.kind not in "biuf":
        raise SettingError(f"{who}: gives {type(tree).__name__} as weights, but must give arrays in dicts or lists")
    return found


def leaves_of(tree: Any, name: str = "weights") -> list[tuple[str, Array]]:
    """The arrays, each with its place in the user's weights."""
    if isinstance(tree, dict):
        return [leaf for key, each in tree.items() for leaf in leaves_of(each, f"{name}[{key!r}]")]
    if isinstance(tree, list):
        return [leaf for key, each in enumerate(tree) for leaf in leaves_of(each, f"{name}[{key}]")]
    return [(name, tree)]


def names_of(leaves: Sequence[tuple[str, Array]]) -> str:
    """The places of the first arrays, for errors."""
    return ", ".join(name for name, _ in leaves[:8]) + (", ..." if len(leaves) > 8 else "") or "nothing"
