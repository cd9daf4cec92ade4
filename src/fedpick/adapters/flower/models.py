"""Flower's models as NumPy arrays, to be kept by the session and given back after a restart."""

from inspect import BoundArguments, Parameter
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord

from fedpick.core.errors import ContractError
from fedpick.server.models import Arrays

__all__ = ["INITIAL", "arrays_of", "check_kept", "check_like", "check_moves", "given", "record_of"]

NUMPY = "numpy.ndarray"  # Flower's name for NumPy's format
INITIAL = "initial_arrays"  # start()'s argument


def arrays_of(record: ArrayRecord) -> Arrays:
    """The arrays of a record; those in a user's format as bytes."""
    return {
        name: array.numpy() if array.stype == NUMPY else np.frombuffer(array.data, dtype=np.uint8)
        for name, array in record.items()
    }


def record_of(arrays: Arrays) -> ArrayRecord:
    """Arrays that were kept, as a record."""
    return ArrayRecord({name: Array(values) for name, values in arrays.items()})


def _forms(record: ArrayRecord) -> dict[str, tuple[int, ...]]:
    return {name: tuple(array.shape) for name, array in record.items()}


def check_like(kept: ArrayRecord, initial: Any, round: int) -> None:
    """Raise if the kept model has other arrays than the one that the server starts with."""
    if isinstance(initial, ArrayRecord) and _forms(kept) != _forms(initial):
        raise ContractError(
            f"Selected: the model kept after round {round} has arrays {str(_forms(kept))[:200]}, but initial_arrays "
            f"has {str(_forms(initial))[:200]}; start with a model like it, or give state= and model= new folders"
        )


def given(bound: BoundArguments, name: str) -> dict[str, Any] | None:
    """Where an argument of start() is, among the bound ones or in its **options; None if it was not given."""
    places: list[Any] = [bound.arguments]
    for at, parameter in bound.signature.parameters.items():
        if parameter.kind is Parameter.VAR_KEYWORD:
            places.append(bound.arguments.get(at, {}))
    return next((place for place in places if isinstance(place, dict) and name in place), None)


def check_moves(model: ArrayRecord) -> None:
    """Raise if changes cannot be added to this model."""
    for name, array in model.items():
        if array.stype != NUMPY:
            raise ContractError(
                f"Selected: initial_arrays[{name!r:.80}] is {array.dtype} as {array.stype}, but fp.Buffered adds the "
                "changes of models of several versions, which needs NumPy arrays; use these, or rounds"
            )


def check_kept(bound: BoundArguments) -> None:
    """Raise if the model that the server starts with is none that can be kept and given back."""
    place = given(bound, INITIAL)
    if place is None:
        raise ContractError("Selected: model=, but start() has no initial_arrays to replace; pass it by this name")
    for name, array in place[INITIAL].items():
        if array.stype != NUMPY or np.dtype(array.numpy().dtype).kind not in "biufc":
            raise ContractError(
                f"Selected: model=, but initial_arrays[{name!r:.80}] is {array.dtype} as {array.stype}, and only NumPy "
                "arrays of numbers are kept; keep this model yourself, without model="
            )
