"""Data of one's own from a file: arrays in a .npz, or a table in a Parquet file.

    mine.npz        x (N, ...), y (N); if wanted: client (N), test_x, test_y
    mine.parquet    a column y or label, the inputs in the other columns (or one column x of lists); if wanted: client,
                    and test (true: held out for everyone)

Integer labels make a classification, floating-point targets a regression.
"""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpick.data.federated import Dataset, Federated
from fedpick.errors import DamagedError, DataError, FedpickError, MissingError

__all__ = ["ENDINGS", "from_clients", "load_file"]

ENDINGS = (".npz", ".parquet")


def load_file(path: str | Path) -> Dataset | Federated:
    """Read a file; where it says whose each example is, the clients are the file's own.

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
        arrays = _npz(source) if source.suffix == ".npz" else _parquet(source)
    except FedpickError:
        raise
    except Exception as error:  # a damaged file can raise anything
        raise DamagedError(f"{source}: cannot be read ({type(error).__name__}: {error})") from None
    for name in ("x", "y"):
        if name not in arrays:
            there = ", ".join(sorted(arrays)) or "nothing"
            raise DataError(f"{source}: has no {name!r}, but {there}; see the docstring of fedpick.data.files")
    x, y = _inputs(source, arrays["x"]), _labels(arrays["y"])
    test_x = _inputs(source, arrays["test_x"]) if "test_x" in arrays else None
    test_y = _labels(arrays["test_y"]) if "test_y" in arrays else None
    labels = [part for part in (y, test_y) if part is not None and len(part)]
    classes = int(max(part.max() for part in labels)) + 1 if labels and y.dtype.kind == "i" else 0
    dataset = Dataset(source.stem, x, y, test_x, test_y, classes)  # type: ignore[arg-type]
    return dataset if "client" not in arrays else from_clients(dataset, arrays["client"])


def from_clients(dataset: Dataset, client: NDArray[Any]) -> Federated:
    """Give each example to the client that is named beside it; clients are numbered in the order of their names."""
    if len(client) != len(dataset):
        raise DataError(f"{dataset.name}: {len(dataset)} examples, but client has {len(client)}: one each")
    _, owner = np.unique(client, return_inverse=True)
    starts = np.concatenate([[0], np.cumsum(np.bincount(owner))])
    return Federated(dataset, np.argsort(owner, kind="stable"), starts)


def _npz(source: Path) -> dict[str, NDArray[Any]]:
    with np.load(source, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def _parquet(source: Path) -> dict[str, NDArray[Any]]:
    try:
        import pyarrow.parquet as pq
    except ImportError:
        raise MissingError(f"{source}: reading Parquet needs pyarrow: pip install 'fedpick[cli]'") from None
    table = pq.read_table(source)
    names = table.column_names
    label = next((name for name in ("y", "label", "target") if name in names), None)
    if label is None:
        raise DataError(f"{source}: has no column y, label or target, but {', '.join(names)}")
    if "x" in names:
        x = np.stack([np.asarray(row, dtype=np.float32) for row in table["x"].to_pylist()])
    else:
        rest = [name for name in names if name not in (label, "client", "test")]
        x = np.stack([table[name].to_numpy().astype(np.float32) for name in rest], axis=1)
    test = np.asarray(table["test"].to_pylist(), dtype=bool) if "test" in names else np.zeros(len(x), dtype=bool)
    y = table[label].to_numpy()
    found = {"x": x[~test], "y": y[~test], "test_x": x[test], "test_y": y[test]}
    if "client" in names:
        found["client"] = np.asarray(table["client"].to_pylist())[~test]
    return found


def _inputs(source: Path, x: NDArray[Any]) -> NDArray[Any]:
    if x.dtype.kind not in "biuf":
        raise DataError(f"{source}: the inputs are {x.dtype}, but must be numbers")
    found = x if x.dtype == np.uint8 else x.astype(np.float32)
    if found.dtype == np.float32 and not np.isfinite(found).all():
        raise DataError(f"{source}: the inputs hold NaN or infinity")
    return found


def _labels(y: NDArray[Any]) -> NDArray[Any]:
    return y.astype(np.int32 if y.dtype.kind in "biu" else np.float32)
