"""Rounds and selections as Parquet tables: made from records, and read back as one file or in parts."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fedpick.errors import ContractError, StoreError
from fedpick.store.records import ROUND_COLUMNS, Record
from fedpick.types import Status

__all__ = [
    "covers",
    "is_over",
    "joined_tables",
    "last_part",
    "last_round",
    "reached",
    "read_clients",
    "read_rounds",
    "read_selections",
    "read_table",
    "rounds_table",
    "selections_table",
    "table_files",
]

REACHED = b"fedpick.reached"  # key in the metadata of joined files: their last round
TABLES = ("rounds", "selections")
NUMBER = 9 * "[0-9]"  # pattern of the last round in a part's file name
_NAMES = [status.name for status in Status]


def rounds_table(records: list[Record], metrics: list[str]) -> pa.Table:
    """A row per record, with a column for each of these metrics."""
    counts = np.array([np.bincount(r.status, minlength=len(_NAMES)) for r in records]).reshape(-1, len(_NAMES))
    columns: dict[str, Any] = {
        "round": pa.array([r.round for r in records], pa.int64()),
        "clock": pa.array([r.clock for r in records], pa.float64()),
        "seconds": pa.array([r.seconds for r in records], pa.float64()),
        "available": pa.array([r.available for r in records], pa.int64()),
        "chosen": pa.array([len(r.ids) for r in records], pa.int64()),
    }
    for i, name in enumerate(_NAMES):
        columns[name.lower()] = pa.array(counts[:, i], pa.int64())
    columns["messages"] = pa.array([r.messages for r in records], pa.int64())
    columns["megabytes"] = pa.array([r.megabytes for r in records], pa.float64())
    for name in metrics:
        if name in ROUND_COLUMNS:
            raise ContractError(f"the metric {name!r} has the name of a column of rounds.parquet; rename the metric")
        values = [r.metrics.get(name) for r in records]
        columns[name] = pa.array([None if value is None else float(value) for value in values], pa.float64())
    return pa.table(columns)


def selections_table(records: list[Record]) -> pa.Table:
    """A row per chosen client of each record."""

    def joined(name: str, dtype: Any) -> Any:
        parts = [getattr(r, name) for r in records]
        return np.concatenate(parts).astype(dtype) if parts else np.empty(0, dtype)

    rounds = np.repeat([r.round for r in records], [len(r.ids) for r in records]).astype(np.int64)
    status = pa.DictionaryArray.from_arrays(pa.array(joined("status", np.int8)), pa.array(_NAMES))
    return pa.table(
        {
            "round": rounds,
            "client": joined("ids", np.int64),
            "inclusion": joined("inclusion", np.float64),
            "status": status,
            "duration": joined("duration", np.float64),
            "loss": joined("loss", np.float64),
        }
    )


def last_round(part: Path) -> int:
    """The last round of a part, from its file name."""
    return int(part.stem.rsplit("-", 1)[1])


def _open(path: Path) -> Any:
    try:
        return pq.ParquetFile(path)
    except (OSError, pa.ArrowException) as error:
        raise StoreError(
            f"{path}: cannot be read ({error}); restore it from a backup, or remove the run's folder"
        ) from None


def read_table(path: Path, columns: list[str] | None = None) -> pa.Table:
    """One Parquet file; if columns are given, those of them that exist."""
    with _open(path) as file:
        try:
            return file.read(columns)
        except (OSError, pa.ArrowException) as error:
            raise StoreError(
                f"{path}: cannot be read ({error}); restore it from a backup, or remove the run's folder"
            ) from None


def covers(whole: Path) -> int:
    """The last round of a joined file, from its metadata."""
    with _open(whole) as file:
        return int((file.schema_arrow.metadata or {}).get(REACHED, 0))


def table_files(folder: Path, name: str, until: int | None = None) -> list[Path]:
    """The joined file, then the parts that it does not contain (a crash can leave parts that it does contain)."""
    whole = folder / f"{name}.parquet"
    parts = sorted((folder / "parts").glob(f"{name}-{NUMBER}.parquet"))
    reached = covers(whole) if parts and whole.is_file() else 0  # only needed if there are parts
    parts = [part for part in parts if last_round(part) > reached and (until is None or last_round(part) <= until)]
    return [whole, *parts] if whole.is_file() else parts


def is_over(folder: Path, rounds: int) -> bool:
    """Whether a run has this many rounds in both joined files (a kill between the two leaves work to do)."""
    whole = [folder / f"{name}.parquet" for name in TABLES]
    joined = min(covers(path) if path.is_file() else 0 for path in whole)
    return joined >= rounds or reached(folder) > rounds


def reached(folder: Path) -> int:
    """The last round of a run in the tables; 0 if there is none."""
    whole = folder / "rounds.parquet"
    return max(last_part(folder), covers(whole) if whole.is_file() else 0)


def joined_tables(files: list[Path], columns: list[str] | None = None) -> pa.Table:
    """Concatenate tables; a column missing in some of them is null there, one missing in all is left out."""
    return pa.concat_tables([read_table(path, columns) for path in files], promote_options="default")


def last_part(folder: Path) -> int:
    """The last round with a part of both tables: a killed process can leave one without the other."""
    parts = folder / "parts"
    return min(max(map(last_round, parts.glob(f"{each}-{NUMBER}.parquet")), default=0) for each in TABLES)


def _read(path: str | os.PathLike[str], name: str, columns: list[str] | None) -> pa.Table:
    folder = Path(path)
    files = table_files(folder, name, last_part(folder))
    if not files:
        raise StoreError(f"{folder}: has no rounds yet; give the folder of a run that has begun")
    table = joined_tables(files, columns)
    lacking = {"round", "chosen" if name == "rounds" else "client"} - set(table.column_names)
    if lacking and columns is None:
        raise StoreError(
            f"{files[0]}: has no column {lacking.pop()!r}, so it is not a table of {name}; restore it from a backup"
        )
    return table


def read_rounds(path: str | os.PathLike[str], columns: list[str] | None = None) -> pa.Table:
    """A table with a row per round of a run, finished or not.

    Args:
        path: of the run's folder.
        columns: to read; those that do not exist are left out. None reads all.
    """
    return _read(path, "rounds", columns)


def read_selections(path: str | os.PathLike[str], columns: list[str] | None = None) -> pa.Table:
    """A table with a row per chosen client and round of a run, finished or not; arguments as for `read_rounds`."""
    return _read(path, "selections", columns)


def read_clients(path: str | os.PathLike[str]) -> list[str] | None:
    """The names of a run's clients, in the order of their numbers; None if they have no names."""
    file = Path(path) / "clients.parquet"
    return [str(name) for name in read_table(file)["name"].to_pylist()] if file.is_file() else None
