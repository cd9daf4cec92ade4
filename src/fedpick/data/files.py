"""Data from the user's file: arrays in a .npz, or a table in a Parquet file.

    mine.npz        x (N, ...), y (N); optional: client (N), test_x, test_y
    mine.parquet    a column y or label, the inputs in the other columns (or one column x of lists); optional: client,
                    and test (true: held out for everyone)

Integer labels make a classification, floating-point targets a regression.
"""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpick._support.archive import LARGEST, MOST_DENSE, read_arrays
from fedpick._support.extras import needed
from fedpick.core.errors import DamagedError, DataError, FedpickError
from fedpick.data.federated import Dataset, Federated

__all__ = ["ENDINGS", "from_clients", "load_file"]

ENDINGS = (".npz", ".parquet")
MOST_CLASSES = 100_000


def load_file(path: str | Path) -> Dataset | Federated:
    """Read a file: a Federated if it names the client of each example, otherwise a Dataset.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "mine.npz"
    >>> np.savez(file, x=np.zeros((4, 2), np.float32), y=np.array([0, 1, 0, 1]), client=np.array([7, 7, 9, 9]))
    >>> load_file(file)
    Federated('mine', 2 clients, 2 to 2 examples each)
    """
    source = Path(path)
    if not source.is_file():
        raise DataError(f"{source}: there is no such file")
    try:
        arrays = read_arrays(source) if source.suffix == ".npz" else _parquet(source)
    except FedpickError:
        raise
    except Exception as error:  # a damaged file can raise anything
        raise DamagedError(f"{source}: cannot be read ({type(error).__name__}: {str(error)[:200]})") from None
    for name in ("x", "y"):
        if name not in arrays:
            there = ", ".join(sorted(arrays)) or "nothing"
            raise DataError(f"{source}: has no {name!r}, but {there}; see the docstring of fedpick.data.files")
    parts: dict[str, Any] = {name: _inputs(source, arrays[name]) for name in ("x", "test_x") if name in arrays}
    parts |= {name: _labels(source, arrays[name]) for name in ("y", "test_y") if name in arrays}
    if ("test_x" in parts) != ("test_y" in parts):
        raise DataError(f"{source}: has one of test_x and test_y; give both, or none")
    shape, test_shape = parts["x"].shape[1:], parts.get("test_x", parts["x"]).shape[1:]
    if test_shape != shape:
        raise DataError(f"{source}: test_x has inputs of shape {test_shape}, but x of shape {shape}")
    labels = [int(parts[name].max()) for name in ("y", "test_y") if name in parts and len(parts[name])]
    classes = max(labels, default=-1) + 1 if parts["y"].dtype.kind == "i" else 0
    dataset = Dataset(source.stem, classes=classes, **parts)
    return dataset if "client" not in arrays else from_clients(dataset, arrays["client"])


def from_clients(dataset: Dataset, client: NDArray[Any]) -> Federated:
    """Give each example to the client named for it; clients are numbered in the order of their names."""
    if len(client) != len(dataset):
        raise DataError(f"{dataset.name}: {len(dataset)} examples, but client has {len(client)}: one each")
    if client.ndim != 1 or client.dtype.kind not in "biufSU":
        raise DataError(f"{dataset.name}: client is {client.dtype} of shape {client.shape}, but must be one name each")
    _, owner = np.unique(client, return_inverse=True)
    starts = np.concatenate([[0], np.cumsum(np.bincount(owner))])
    return Federated(dataset, np.argsort(owner, kind="stable"), starts)


def _check_size(source: Path, taken: int, what: str) -> None:
    """Raise if a table is so much larger than its file that it can only be damaged or made to harm."""
    size = source.stat().st_size
    if taken > max(LARGEST, MOST_DENSE * size):
        raise DamagedError(f"{source}: {what} {taken} bytes in {size} bytes of file; it is damaged or made to harm")


def _claimed(file: Any) -> int:
    """Bytes that a Parquet file needs in memory by its footer: its values, with an offset for each list around them."""
    found = file.metadata.num_rows * 8
    for group in range(file.metadata.num_row_groups):
        for at in range(file.metadata.num_columns):
            chunk = file.metadata.row_group(group).column(at)
            lists = file.schema.column(at).max_repetition_level
            found += max(chunk.num_values * 8 * (1 + lists), chunk.total_uncompressed_size)
    return int(found)


def _texts(file: Any) -> list[str]:
    """Columns of texts: they are read as numbers of different texts, because one of 1 MB may stand in every row."""
    columns = (file.schema.column(at) for at in range(file.metadata.num_columns))
    return [column.path for column in columns if column.physical_type == "BYTE_ARRAY"]


def _numbers(column: Any) -> NDArray[Any]:
    """A column as an array: its numbers, or of lists a row for each, which must be as long as the others."""
    array, shape = column.combine_chunks(), [len(column)]
    if array.type.num_fields == 0 and hasattr(array, "dictionary"):
        found: NDArray[Any] = array.dictionary.to_numpy(zero_copy_only=False)[array.indices.to_numpy()]
        return found
    while hasattr(array, "value_lengths"):  # lists, and lists of lists
        lengths = np.unique(array.value_lengths().to_numpy(zero_copy_only=False))
        if array.null_count or len(lengths) != 1:
            raise ValueError("lists of different lengths, or nulls")
        shape.append(int(lengths[0]))
        array = array.flatten()
    return array.to_numpy(zero_copy_only=False).reshape(shape)  # type: ignore[no-any-return]


def _parquet(source: Path) -> dict[str, NDArray[Any]]:
    pq = needed("pyarrow.parquet", f"{source}: reading Parquet", "cli")
    with pq.ParquetFile(source) as file:
        _check_size(source, _claimed(file), "claims")
        texts = _texts(file)
    groups, taken = [], 0
    with pq.ParquetFile(source, read_dictionary=texts) as file:
        for at in range(file.metadata.num_row_groups):  # one after another, because the footer may not be true
            groups.append(file.read_row_group(at, use_threads=False))
            taken += groups[-1].nbytes
            _check_size(source, taken, "holds")
        table = needed("pyarrow", f"{source}: reading Parquet", "cli").concat_tables(groups or [file.read()])
    names = table.column_names
    label = next((name for name in ("y", "label", "target") if name in names), None)
    if label is None:
        raise DataError(f"{source}: has no column y, label or target, but {', '.join(names)}")
    if "x" in names:
        x = _numbers(table["x"]).astype(np.float32)
    else:
        rest = [name for name in names if name not in (label, "client", "test")]
        if not rest:
            raise DataError(f"{source}: has no columns of inputs, but {', '.join(names)}")
        x = np.stack([_numbers(table[name]).astype(np.float32) for name in rest], axis=1)
    test = _numbers(table["test"]).astype(bool) if "test" in names else np.zeros(len(x), dtype=bool)
    y = _numbers(table[label])
    found = {"x": x[~test], "y": y[~test], "test_x": x[test], "test_y": y[test]}
    if "client" in names:
        found["client"] = _numbers(table["client"])[~test]
        if found["client"].dtype.kind == "O":  # texts
            longest = max(map(len, map(str, set(found["client"].tolist()))), default=0)
            _check_size(source, 4 * longest * len(found["client"]), "holds names of clients of")
            found["client"] = found["client"].astype(str)
    return found


def _inputs(source: Path, x: NDArray[Any]) -> NDArray[Any]:
    if x.ndim < 2:
        raise DataError(f"{source}: the inputs have shape {x.shape}, but must have a row for each example")
    if x.dtype.kind not in "biuf":
        raise DataError(f"{source}: the inputs are {x.dtype}, but must be numbers")
    found = x if x.dtype == np.uint8 else x.astype(np.float32)
    if found.dtype == np.float32 and not np.isfinite(found).all():
        raise DataError(f"{source}: the inputs hold NaN or infinity")
    return found


def _labels(source: Path, y: NDArray[Any]) -> NDArray[Any]:
    if y.ndim != 1 or y.dtype.kind not in "biuf":
        raise DataError(f"{source}: the labels are {y.dtype} of shape {y.shape}, but must be one number each")
    if len(y) and y.dtype.kind in "iu" and not 0 <= int(y.min()) <= int(y.max()) < MOST_CLASSES:
        raise DataError(
            f"{source}: the labels go from {y.min()} to {y.max()}, but must be from 0 to {MOST_CLASSES - 1}: number "
            "the classes"
        )
    if y.dtype.kind == "f" and not np.isfinite(y).all():
        raise DataError(f"{source}: the labels hold NaN or infinity")
    return y.astype(np.int32 if y.dtype.kind in "biu" else np.float32)
