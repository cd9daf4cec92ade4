"""The examples of one client, as objects of other libraries hold them, copied into arrays."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpick._support import user_code
from fedpick.core.errors import DataError
from fedpick.data.tables import Columns, joined, pick

__all__ = ["OF_ONE", "Stack", "column_of", "filled", "kind_of", "length_of", "names_of", "type_of", "wanted"]

Array = NDArray[Any]
_LIBRARIES = {  # the first package of a class's module, and its name: what it is here
    ("torch", "IterableDataset"): "stream",
    ("torch", "DataLoader"): "loader",
    ("torch", "Dataset"): "rows",
    ("datasets", "IterableDataset"): "stream",
    ("datasets", "Dataset"): "columns",
    ("datasets", "DatasetDict"): "splits",
    ("flwr_datasets", "FederatedDataset"): "federated",
    ("flwr_datasets", "Partitioner"): "partitions",
    ("pandas", "DataFrame"): "frame",
}
OF_ONE = ("rows", "columns", "frame", "stream", "loader")  # what a client may have
_FIX = "give a torch.utils.data.Dataset with __len__ and __getitem__, such as a TensorDataset or a Subset"
IMAGE = 3  # axes


def kind_of(thing: Any) -> str:
    """What an object is, by the names of its classes; "" for none of these."""
    for each in type(thing).__mro__:
        found = _LIBRARIES.get((each.__module__.partition(".")[0], each.__name__))
        if found:
            return found
    top = type(thing).__module__.partition(".")[0]
    plain = top in ("builtins", "numpy", "fedpick", "collections") or isinstance(thing, type)
    return "rows" if not plain and hasattr(thing, "__getitem__") and hasattr(thing, "__len__") else ""


def type_of(thing: Any) -> str:
    """The name of an object's type, for errors."""
    found = f"{type(thing).__module__}.{type(thing).__name__}".removeprefix("builtins.")
    if isinstance(thing, list | tuple | Mapping):
        each = list(thing.values()) if isinstance(thing, Mapping) else thing
        odd = next((one for one in each if kind_of(one) not in OF_ONE), None)
        return (
            f"a {found} of {len(thing)} objects, one of which is {type_of(odd)}" if len(thing) else f"an empty {found}"
        )
    return found


def wanted(thing: Any) -> str:
    """What data must be, given what was found."""
    kind = kind_of(thing)
    if kind in ("stream", "loader"):
        return f"indexed: {_FIX}" + ("; a DataLoader has it in its attribute dataset" if kind == "loader" else "")
    return (
        "a list or dict of data sets (one for each client), a datasets.Dataset, a partitioner of flwr-datasets, a "
        "pandas.DataFrame, or fp.data.Federated; arrays: fp.data.Dataset('mine', x, y, classes=10)"
    )


@dataclass(frozen=True)
class _Block:
    """Examples: inputs, labels, and whether inputs that are whole numbers are tokens."""

    x: Array
    y: Array
    whole: bool = False


def filled(who: str, data: Any, columns: Columns) -> "Stack":
    """The examples of one client."""
    stack = Stack(length_of(who, data))
    stack.take(who, data, columns)
    return stack


def length_of(who: str, data: Any) -> int:
    """The number of examples; raises for what can only be read from its beginning to its end."""
    if kind_of(data) in ("stream", "loader"):
        raise DataError(f"{who}: is {type_of(data)}, but must be {wanted(data)}")
    try:
        return len(data)
    except Exception as error:  # it is the user's code
        raise DataError(f"{who}: has no length ({type(error).__name__}: {error}); {_FIX}") from None


class Stack:
    """Arrays that are filled block by block; the first one decides the shapes and the kinds."""

    def __init__(self, rows: int) -> None:
        self.rows, self.used, self.whole = rows, 0, False
        self.x: Array = np.empty((0, 1), np.float32)
        self.y: Array = np.empty(0, np.float32)

    def take(self, who: str, data: Any, columns: Columns) -> None:
        """Append the examples of a client."""
        before = self.used
        for block in _blocks(who, data, columns):
            self._put(who, block, self.used - before)

    def _put(self, who: str, block: _Block, first: int) -> None:
        """Append examples, the first of which has this number among those of `who`."""
        if not self.used:
            self.whole = block.whole
            self.x = np.empty((self.rows, *block.x.shape[1:]), block.x.dtype)
            self.y = np.empty((self.rows, *block.y.shape[1:]), block.y.dtype)
        for what, mine, theirs in (("inputs", self.x, block.x), ("labels", self.y, block.y)):
            if theirs.shape[1:] != mine.shape[1:]:
                raise DataError(
                    f"{who}, example {first}: {what} of shape {theirs.shape[1:]}, but those before have "
                    f"{mine.shape[1:]}: all must be equal; pad or cut them in the data set"
                )
            if theirs.dtype.kind != mine.dtype.kind or (theirs.dtype == np.uint8) != (mine.dtype == np.uint8):
                raise DataError(
                    f"{who}, example {first}: {what} are {theirs.dtype}, but those before are {mine.dtype}; make them "
                    "of one kind in the data set"
                )
        part = slice(self.used, self.used + len(block.x))
        if block.y.dtype.itemsize > self.y.dtype.itemsize:  # longer texts
            self.y = self.y.astype(block.y.dtype)
        self.x[part], self.y[part] = block.x, block.y
        self.used += len(block.x)


def _blocks(who: str, data: Any, columns: Columns) -> Iterator[_Block]:
    """Examples of one client: of a table all at once, of others one by one."""
    kind = kind_of(data)
    if kind == "columns" and data.format["type"] not in (None, "numpy", "python", "arrow", "pandas"):
        kind = "rows"  # the user's transform, or tensors
    if kind == "rows":
        yield from _rows(who, data, columns)
        return
    picked = pick(who, list(map(str, names_of(data))), columns, owned=False)
    parts = {name: column_of(data, name) for name in picked.inputs}
    x, tokens = joined(who, parts), False
    if kind == "columns":
        tokens = len(parts) == 1 and all(each.ndim > 1 for each in parts.values())
    else:
        x = x.astype(np.float32)
    yield _Block(x, column_of(data, picked.label), whole=tokens)


def names_of(data: Any) -> list[Any]:
    """The columns of a table."""
    return list(data.column_names if kind_of(data) == "columns" else data.columns)


def column_of(data: Any, name: str) -> Array:
    """A column as an array; entries that are arrays must be of one shape."""
    image = False
    try:
        if kind_of(data) == "columns":
            column = data.with_format("numpy", columns=[name])[:][name]
            image = type(data.features[name]).__name__ == "Image"
        else:
            column = data[name].to_numpy()
    except Exception as error:  # such as an image that cannot be decoded
        raise DataError(f"the column {name!r} cannot be read: {type(error).__name__}: {str(error)[:200]}") from None
    found = np.asarray(column)
    if found.dtype.kind == "O" and len(found) and not isinstance(found[0], str):
        shapes = {np.shape(each) for each in found}
        if len(shapes) > 1:
            raise DataError(
                f"the column {name!r} has entries of shapes {' and '.join(map(str, sorted(shapes)[:2]))}: all must be "
                "equal; pad or cut them first"
            )
        found = np.array(found.tolist())
    return found[..., None] if image and found.ndim == IMAGE else found


def _rows(who: str, data: Any, columns: Columns) -> Iterator[_Block]:
    """The examples of a data set that is indexed: pairs, or dicts with named entries."""
    for i in range(len(data)):
        try:
            row = data[i]
            pair = _pair(who, i, row, columns)
            x, y = _array(pair[0], IMAGE), _array(pair[1])
        except DataError:
            raise
        except Exception as error:  # it is the user's code
            raise DataError(
                f"{who}, example {i}: {type(error).__name__}: {str(error)[:200]}{user_code.place(error)}; mend it, or "
                "leave the example out: nothing was trained yet"
            ) from None
        for what, value in (("inputs", x), ("labels", y)):
            if value.dtype.kind not in "biuf" and not (what == "labels" and value.dtype.kind == "U"):
                raise DataError(
                    f"{who}, example {i}: {what} are {type_of(pair[what == 'labels'])}, but must be numbers"
                )
            if value.dtype.kind == "f" and not np.isfinite(value).all():
                raise DataError(f"{who}, example {i}: the {what} hold NaN or infinity; mend it, or leave it out")
        yield _Block((x if x.ndim else x[None])[None], y[None], whole=x.dtype.kind in "iu" and x.dtype != np.uint8)


def _pair(who: str, i: int, row: Any, columns: Columns) -> tuple[Any, Any]:
    if isinstance(row, Mapping):
        picked = pick(f"{who}, example {i}", list(map(str, row)), columns, owned=False)
        if len(picked.inputs) == 1:
            return row[picked.inputs[0]], row[picked.label]
        return np.stack([_array(row[each]).astype(np.float32) for each in picked.inputs], axis=-1), row[picked.label]
    if not isinstance(row, list | tuple) or len(row) != 2:
        found = f"{len(row)} things" if isinstance(row, list | tuple) else type_of(row)
        raise DataError(
            f"{who}, example {i}: is {found}, but must be a pair (inputs, label), or a dict of named entries"
        )
    return row[0], row[1]


def _array(value: Any, image: int = -1) -> Array:
    """What a data set gave, as an array; of inputs with as many axes as an image the channels come last."""
    if hasattr(value, "detach"):  # a tensor
        value = value.detach().cpu().numpy()
    elif type(value).__module__.partition(".")[0] == "PIL":
        pixels = np.asarray(value)
        return pixels[..., None] if pixels.ndim < IMAGE else pixels
    found = np.asarray(value)
    if found.dtype == np.float64:
        found = found.astype(np.float32)
    return np.moveaxis(found, 0, -1) if found.ndim == image else found
