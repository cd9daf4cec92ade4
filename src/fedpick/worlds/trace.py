"""Read traces of availability from a file, checked line by line."""

import csv
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from fedpick.core.errors import ContractError, MissingError
from fedpick.core.types import Floats, Ints

__all__ = ["COLUMNS", "read_trace"]

COLUMNS = ("client", "start", "end")


def _check_columns(path: Path, names: list[str]) -> None:
    missing = [name for name in COLUMNS if name not in names]
    if missing:
        raise ContractError(
            f"{path}: has no column {missing[0]!r}, its columns are {names}; a trace has the columns client, start, end"
        )


def _read_csv(path: Path) -> list[tuple[Any, ...]]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:  # spreadsheets write a byte order mark
            rows = csv.DictReader(file, skipinitialspace=True)
            _check_columns(path, list(rows.fieldnames or []))
            return [tuple(row[name] for name in COLUMNS) for row in rows]
    except (UnicodeDecodeError, csv.Error) as error:
        raise ContractError(f"{path}: is not CSV ({error}); a Parquet file's name must end in .parquet") from None


def _read_parquet(path: Path) -> list[tuple[Any, ...]]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise MissingError(f"{path}: reading Parquet needs pyarrow: pip install 'fedpick[cli]', or give CSV") from None
    try:
        table = pq.read_table(path)
    except (pa.ArrowException, OSError) as error:
        raise ContractError(f"{path}: is not a Parquet file ({str(error).splitlines()[0]}); write it again") from None
    _check_columns(path, table.column_names)
    return list(zip(*(table[name].to_pylist() for name in COLUMNS), strict=True))


def _number(value: Any) -> int:
    """A client's number; 1.0 is read as 1, 1.5 is rejected."""
    number = int(value)
    if not isinstance(value, str) and number != value:
        raise ValueError(value)
    return number


def read_trace(path: str | PathLike[str], clients: int) -> tuple[Ints, Floats, Floats]:
    """Client, start and end of every interval, sorted; an error names the wrong one."""
    source = Path(path)
    if not source.is_file():
        raise ContractError(f"{source}: there is no such trace; give a CSV or Parquet file with client, start, end")
    rows = _read_parquet(source) if source.suffix.lower() in (".parquet", ".pq") else _read_csv(source)
    if not rows:
        raise ContractError(f"{source}: has no intervals, so no client would ever be available; write one per line")
    client, start, end = np.empty(len(rows), dtype=np.int64), np.empty(len(rows)), np.empty(len(rows))
    for i, (who, since, until) in enumerate(rows):
        where = f"{source}, interval {i + 1}"
        try:
            number, start[i], end[i] = _number(who), float(since), float(until)
        except (TypeError, ValueError, OverflowError):
            raise ContractError(
                f"{where}: cannot read {(who, since, until)}; write a client's number and two times"
            ) from None
        if not 0 <= number < clients:
            raise ContractError(f"{where}: client {number}, but clients are numbered 0 to {clients - 1}")
        if not start[i] < end[i]:  # NaN is not smaller either
            raise ContractError(f"{where}: starts at {since} and ends at {until}, but must end after it starts")
        client[i] = number
    order = np.lexsort((start, client))
    client, start, end = client[order], start[order], end[order]
    overlap = np.flatnonzero((client[1:] == client[:-1]) & (start[1:] < end[:-1]))
    if len(overlap):
        i = int(overlap[0])
        raise ContractError(
            f"{source}: client {client[i]} has overlapping intervals [{start[i]:.15g}, {end[i]:.15g}) and "
            f"[{start[i + 1]:.15g}, {end[i + 1]:.15g}); join them into one"
        )
    return client, start, end
