"""Data from the user's file: arrays in a .npz, or a table in a Parquet file.

    mine.npz        x (N, ...), y (N); optional: client (N), test_x, test_y
    mine.parquet    a column y or label, the inputs in the other columns (or one column x of lists); optional: client,
                    and test (true: held out for everyone)

Integer or text labels make a classification, floating-point targets a regression. Columns of other names are named by
the settings `client`, `label` and `inputs`.
"""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpick._support.archive import LARGEST, MOST_DENSE, read_arrays
from fedpick._support.extras import needed
from fedpick.core.errors import DamagedError, DataError, FedpickError
from fedpick.data.federated import Dataset, Federated
from fedpick.data.tables import Columns, from_arrays, joined, pick

__all__ = ["ENDINGS", "load_file"]

ENDINGS = (".npz", ".parquet")


def load_file(path: str | Path, columns: Columns | None = None) -> Dataset | Federated:
    """Read a file: a Federated if it names the client of each example, otherwise a Dataset.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "mine.npz"
    >>> np.savez(file, x=np.zeros((4, 2), np.float32), y=np.array([0, 1, 0, 1]), client=np.array([7, 7, 9, 9]))
    >>> load_file(file)
    Federated('mine', 2 clients, 2 to 2 examples each)
    """
    source, chosen = Path(path), columns or Columns()
    if not source.is_file():
        raise DataError(f"{source}: there is no such file")
    try:
        arrays: dict[str, Any] = _named(source, chosen) if source.suffix == ".npz" else _parquet(source, chosen)
    except FedpickError:
        raise
    except Exception as error:  # a damaged file can raise anything
        raise DamagedError(f"{source}: cannot be read ({type(error).__name__}: {str(error)[:200]})") from None
    return from_arrays(str(source), source.stem, **arrays)


def _named(source: Path, columns: Columns) -> dict[str, NDArray[Any]]:
    """The arrays of a .npz by what they are; an array of another name is a mistake in a name."""
    arrays = read_arrays(source)
    if not isinstance(columns.inputs, str | None):
        raise DataError(f"{source}: inputs = {columns.inputs!r}, but of a .npz one array holds all inputs: name that")
    x, y, client = columns.inputs or "x", columns.label or "y", columns.client or "client"
    names = {x: "x", y: "y", client: "client", f"test_{x}": "test_x", f"test_{y}": "test_y"}
    there = ", ".join(sorted(arrays)) or "nothing"
    lacking = [name for name in (x, y, *([client] if columns.client else [])) if name not in arrays]
    if lacking:
        raise DataError(
            f"{source}: has no {lacking[0]!r}, but {there}; save it with np.savez(file, x=..., y=...), or name the "
            "arrays: data = {'name': 'mine.npz', 'inputs': 'NAME', 'label': 'NAME'}"
        )
    odd = [name for name in arrays if name not in names]
    if odd:
        raise DataError(
            f"{source}: holds {there}, but {odd[0]!r} is none of {', '.join(names)}; rename it, or save the file "
            "without it"
        )
    return {names[name]: array for name, array in arrays.items()}


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


def _parquet(source: Path, columns: Columns) -> dict[str, NDArray[Any]]:
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
    picked = pick(str(source), names, columns)
    x = joined(str(source), {name: _numbers(table[name]) for name in picked.inputs}).astype(np.float32)
    test = _numbers(table[picked.test]).astype(bool) if picked.test else np.zeros(len(x), dtype=bool)
    y = _numbers(table[picked.label])
    found = {"x": x[~test], "y": y[~test]} | ({"test_x": x[test], "test_y": y[test]} if test.any() else {})
    if picked.client:
        found["client"] = _numbers(table[picked.client])[~test]
        if found["client"].dtype.kind == "O":  # texts
            longest = max(map(len, map(str, set(found["client"].tolist()))), default=0)
            _check_size(source, 4 * longest * len(found["client"]), "holds names of clients of")
            found["client"] = found["client"].astype(str)
    return found
