"""From columns or arrays to data: which of them is what, and whether its numbers can be trained on."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpick.core.errors import DataError
from fedpick.data.federated import Dataset, Federated

__all__ = ["COLUMNS", "Columns", "Picked", "from_arrays", "from_clients", "joined", "known_column", "pick"]

COLUMNS = ("client", "label", "inputs")  # settings that name columns
LABELS = ("y", "label", "target")
MOST_CLASSES = 100_000
Array = NDArray[Any]


@dataclass(frozen=True)
class Columns:
    """What the user said about columns.

    Args:
        client: names the client of each example; None: "client", if there is such a column.
        label: is to be predicted; None: "y", "label" or "target".
        inputs: one or several; None: "x", or all other columns.
    """

    client: str | None = None
    label: str | None = None
    inputs: str | Sequence[str] | None = None

    def __post_init__(self) -> None:
        for name in ("client", "label"):
            value = getattr(self, name)
            if not isinstance(value, str | None):
                raise DataError(f"[data] {name} = {value!r:.80}, but must be the name of a column")
        several = () if self.inputs is None or isinstance(self.inputs, str) else self.inputs
        if not isinstance(several, list | tuple) or not all(isinstance(each, str) for each in several):
            raise DataError(
                f"[data] inputs = {self.inputs!r:.80}, but must be the name of a column, or a list of names"
            )


@dataclass(frozen=True)
class Picked:
    """The columns that are used; "" for one that is not there."""

    label: str
    inputs: tuple[str, ...]
    client: str = ""
    test: str = ""


def known_column(source: str, name: str, names: Sequence[str], setting: str) -> str:
    """A column that the user named, which must be there."""
    if name in names:
        return name
    near = get_close_matches(name, names, 1)
    meant = f"; did you mean {near[0]!r}?" if near else f"; name one of these: {setting}={names[0]!r}" if names else ""
    raise DataError(f"{source}: {setting} = {name!r}, but the columns are {_listed(names)}{meant}")


def _listed(names: Iterable[str]) -> str:
    found = [str(each) for each in names]
    return ", ".join(found[:20]) + (f" and {len(found) - 20} more" if len(found) > 20 else "") or "none"


def pick(source: str, names: Sequence[str], columns: Columns, owned: bool = True) -> Picked:
    """Which of these columns are inputs, label, client and test.

    Args:
        source: that has them, for errors.
        names: of the columns.
        columns: what the user said.
        owned: whether the column of clients must be there, if it was named; examples for testing have none.

    >>> pick("mine", ["age", "bmi", "client", "label"], Columns())
    Picked(label='label', inputs=('age', 'bmi'), client='client', test='')
    """
    found = next((name for name in LABELS if name in names), None)
    if columns.label is not None:
        found = known_column(source, columns.label, names, "label")
    if found is None:
        raise DataError(
            f"{source}: has no column y, label or target, but {_listed(names)}; rename the one to predict, or name it: "
            "data={'name': ..., 'label': 'NAME'}"
        )
    client = "client" if "client" in names else ""
    if columns.client is not None and (owned or columns.client in names):
        client = known_column(source, columns.client, names, "client")
    test = "test" if "test" in names else ""
    if columns.inputs is not None:
        several = (columns.inputs,) if isinstance(columns.inputs, str) else tuple(columns.inputs)
        inputs = tuple(known_column(source, each, names, "inputs") for each in several)
    else:
        inputs = ("x",) if "x" in names else tuple(each for each in names if each not in (found, client, test))
    if not inputs:
        raise DataError(f"{source}: has no columns of inputs, but {_listed(names)}")
    return Picked(found, inputs, client, test)


def joined(source: str, parts: dict[str, Array]) -> Array:
    """The inputs of several columns of numbers, or of one column, whose entries may be arrays."""
    for name, each in parts.items():
        if each.dtype.kind not in "biuf":
            raise DataError(
                f"{source}: the column {name!r} holds {_held(each)}, but inputs must be numbers; make numbers of it, "
                "or name the columns to use: data={'name': ..., 'inputs': ['NAME', 'NAME']}"
            )
        if len(parts) > 1 and each.ndim > 1:
            raise DataError(
                f"{source}: the column {name!r} has an array in each row, so it must be the only input, but there are "
                f"{_listed(parts)}; name one: data={{'name': ..., 'inputs': {name!r}}}"
            )
    if len(parts) == 1:
        (only,) = parts.values()
        return only if only.ndim > 1 else only[:, None]
    return np.stack([each.astype(np.float32) for each in parts.values()], axis=1)


def _held(column: Array) -> str:
    if column.dtype.kind == "O" and len(column):
        return f"{type(column[0]).__name__} ({column[0]!r:.40})"
    return f"texts ({column[0]!r:.40})" if column.dtype.kind in "US" and len(column) else str(column.dtype)


def from_arrays(
    source: str,
    name: str,
    x: Array,
    y: Array,
    client: Array | None = None,
    test_x: Array | None = None,
    test_y: Array | None = None,
    whole: bool = False,
) -> Dataset | Federated:
    """A Federated if the client of each example is known, otherwise a Dataset.

    Args:
        source: where the arrays are from, for errors.
        name: of the data set.
        x: inputs.
        y: labels (whole numbers or texts), or targets; of each example one, or an array.
        client: name of each example's client.
        test_x: inputs for testing.
        test_y: their labels.
        whole: whether inputs that are whole numbers stay so: they are tokens, not quantities.
    """
    if (test_x is None) != (test_y is None):
        raise DataError(f"{source}: has one of test_x and test_y; give both, or none")
    parts = {"x": _inputs(source, x, whole)} | ({} if test_x is None else {"test_x": _inputs(source, test_x, whole)})
    shape, test_shape = parts["x"].shape[1:], parts.get("test_x", parts["x"]).shape[1:]
    if test_shape != shape:
        raise DataError(f"{source}: test_x has inputs of shape {test_shape}, but x of shape {shape}")
    y, test_y = _numbered(y, test_y)
    targets = {"y": _labels(source, y)} | ({} if test_y is None else {"test_y": _labels(source, test_y)})
    if test_y is not None and targets["test_y"].shape[1:] != targets["y"].shape[1:]:
        raise DataError(
            f"{source}: test_y has labels of shape {targets['test_y'].shape[1:]}, but y of shape "
            f"{targets['y'].shape[1:]} for each example"
        )
    for inputs, labels in (("x", "y"), ("test_x", "test_y")):
        if inputs in parts and len(parts[inputs]) != len(targets[labels]):
            raise DataError(
                f"{source}: {len(parts[inputs])} inputs, but {labels} has {len(targets[labels])}: one label each"
            )
    highest = [int(each.max()) for each in targets.values() if len(each)]
    classes = max(highest, default=-1) + 1 if targets["y"].dtype.kind == "i" else 0
    arrays: dict[str, Any] = {**parts, **targets}
    dataset = Dataset(name, classes=classes, **arrays)
    return dataset if client is None else from_clients(dataset, client)


def from_clients(dataset: Dataset, client: Array) -> Federated:
    """Give each example to the client named for it; clients are numbered in the order of their names."""
    if len(client) != len(dataset):
        raise DataError(f"{dataset.name}: {len(dataset)} examples, but client has {len(client)}: one each")
    if client.ndim != 1 or client.dtype.kind not in "biufSU":
        raise DataError(f"{dataset.name}: client is {client.dtype} of shape {client.shape}, but must be one name each")
    _, owner = np.unique(client, return_inverse=True)
    starts = np.concatenate([[0], np.cumsum(np.bincount(owner))])
    return Federated(dataset, np.argsort(owner, kind="stable"), starts)


def _inputs(source: str, x: Array, whole: bool) -> Array:
    if x.ndim < 2:
        raise DataError(f"{source}: the inputs have shape {x.shape}, but must have a row for each example")
    if x.dtype.kind not in "biuf":
        raise DataError(f"{source}: the inputs are {x.dtype}, but must be numbers")
    if x.dtype == np.uint8:
        return x
    if whole and x.dtype.kind in "iu":
        if len(x) and max(abs(int(x.min())), abs(int(x.max()))) >= 2**31:
            raise DataError(f"{source}: the inputs go from {x.min()} to {x.max()}, but must be within 2**31")
        return x.astype(np.int32)
    return _finite(source, x.astype(np.float32, copy=False), "inputs")


def _finite(source: str, numbers: Array, what: str) -> Array:
    if not np.isfinite(numbers).all():
        rows = np.asarray(~np.isfinite(numbers.reshape(len(numbers), -1)).all(axis=1))
        first, many = int(np.argmax(rows)), int(np.count_nonzero(rows))
        raise DataError(
            f"{source}: the {what} hold NaN or infinity, in {many} of {len(rows)} examples, first in example {first}; "
            "fill these numbers in, or leave the examples out"
        )
    return numbers


def _numbered(y: Array, test_y: Array | None) -> tuple[Array, Array | None]:
    """Labels that are texts as numbers, in the order of the texts."""
    every = [y] if test_y is None else [y, test_y]
    if not all(each.ndim == 1 and (each.dtype.kind == "U" or _texts(each)) for each in every):
        return y, test_y
    _, numbers = np.unique(np.concatenate(every), return_inverse=True)
    return numbers[: len(y)], None if test_y is None else numbers[len(y) :]


def _texts(column: Array) -> bool:
    return column.dtype.kind == "O" and len(column) > 0 and all(isinstance(each, str) for each in column)


def _labels(source: str, y: Array) -> Array:
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim < 1 or y.dtype.kind not in "biuf":
        raise DataError(
            f"{source}: the labels are {y.dtype} of shape {y.shape}, but must be numbers, or one text for each example"
        )
    if len(y) and y.dtype.kind in "iu" and not 0 <= int(y.min()) <= int(y.max()) < MOST_CLASSES:
        raise DataError(
            f"{source}: the labels go from {y.min()} to {y.max()}, but must be from 0 to {MOST_CLASSES - 1}: number "
            "the classes"
        )
    return y.astype(np.int32) if y.dtype.kind in "biu" else _finite(source, y.astype(np.float32), "labels")
