"""Traces of availability: spells of presence from a file, checked line by line."""

import csv
from os import PathLike
from pathlib import Path

import numpy as np

from fedpick.errors import ContractError, MissingError
from fedpick.types import Floats, Ints

COLUMNS = ("client", "start", "end")


def _read_csv(path: Path) -> list[tuple[str, str, str]]:
    with path.open(newline="") as file:
        rows = csv.DictReader(file)
        missing = [name for name in COLUMNS if name not in (rows.fieldnames or [])]
        if missing:
            raise ContractError(
                f"{path}: has no column {missing[0]!r} (its first line is {rows.fieldnames}); a trace has the columns "
                "client, start, end"
            )
        return [(row["client"], row["start"], row["end"]) for row in rows]


def _read_parquet(path: Path) -> list[tuple[str, str, str]]:
    try:
        import pyarrow.parquet as pq
    except ImportError:
        raise MissingError(f"{path}: reading Parquet needs pyarrow: pip install 'fedpick[cli]', or give CSV") from None
    table = pq.read_table(path)
    missing = [name for name in COLUMNS if name not in table.column_names]
    if missing:
        raise ContractError(f"{path}: has no column {missing[0]!r}; a trace has the columns client, start, end")
    return list(zip(*(table[name].to_pylist() for name in COLUMNS), strict=True))


def read_trace(path: str | PathLike[str], clients: int) -> tuple[Ints, Floats, Floats]:
    """Client, start and end of every spell, sorted; raises a ContractError that names the line that is wrong."""
    source = Path(path)
    if not source.is_file():
        raise ContractError(f"{source}: there is no such trace; give a CSV or Parquet file with client, start, end")
    rows = _read_parquet(source) if source.suffix == ".parquet" else _read_csv(source)
    client, start, end = np.empty(len(rows), dtype=np.int64), np.empty(len(rows)), np.empty(len(rows))
    for i, (who, since, until) in enumerate(rows):
        where = f"{source}, spell {i + 1}"
        try:
            client[i], start[i], end[i] = int(who), float(since), float(until)
        except (TypeError, ValueError):
            raise ContractError(
                f"{where}: cannot read {(who, since, until)}; write a client's number and two times"
            ) from None
        if not 0 <= client[i] < clients:
            raise ContractError(f"{where}: client {client[i]}, but clients are numbered 0 to {clients - 1}")
        if not start[i] < end[i]:  # NaN is not smaller either
            raise ContractError(f"{where}: starts at {since} and ends at {until}, but must end after it starts")
    order = np.lexsort((start, client))
    client, start, end = client[order], start[order], end[order]
    overlap = np.flatnonzero((client[1:] == client[:-1]) & (start[1:] < end[:-1]))
    if len(overlap):
        i = int(overlap[0])
        raise ContractError(
            f"{source}: client {client[i]} has overlapping spells [{start[i]:g}, {end[i]:g}) and "
            f"[{start[i + 1]:g}, {end[i + 1]:g}); join them into one"
        )
    return client, start, end
