"""The tables of rounds and selections, in a joined file and in parts: found, checked, and read whole or by columns.

A table is read only if its checksums are right, it is of the run whose folder it is in, and it covers each round once.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpick.core.errors import StoreError
from fedpick.core.types import Status
from fedpick.store.manifest import MANIFEST, read_manifest, run_of
from fedpick.store.parquet import TableFile, covers, pa, read_sealed
from fedpick.store.records import UNSHOWN, unpacked, unpacked_chances

__all__ = [
    *("chain", "has_begun", "is_over", "joined_pieces", "last_part", "last_round", "parts_of", "reached"),
    *("read_census", "read_clients", "read_presence", "read_rounds", "read_selections"),
    *("read_uses", "table_files"),
]

TABLES = ("rounds", "selections")
NUMBER = 9 * "[0-9]"  # pattern of the last round in a part's file name


def last_round(part: Path) -> int:
    """The last round of a part, from its file name."""
    return int(part.stem.rsplit("-", 1)[1])


def _checked(path: Path, name: str) -> TableFile:
    """A file that belongs where it is: it holds this table, is of this folder's run, and ends with the right round."""
    part = path.name != f"{name}.parquet"  # by the file's name: the run's own folder may be called "parts"
    folder = path.parent.parent if part else path.parent
    run = run_of(read_manifest(folder)) if (folder / MANIFEST).is_file() else None
    found = read_sealed(path)
    label, fix = found.label, "restore the right file from a backup, or remove the run's folder"
    if label.table != name or run not in (None, label.run):
        raise StoreError(f"{path}: is a table of {str(label.table)[:40]} of another run, or of another place; {fix}")
    if part and label.last != last_round(path):
        raise StoreError(f"{path}: holds rounds {label.first} to {label.last}, which is not what its name says; {fix}")
    return found


def _gap(folder: Path, name: str, first: int, last: int) -> StoreError:
    return StoreError(
        f"{folder}: its {name} of rounds {first} to {last} are not there; files were removed or changed. "
        "Restore them, or remove the folder to start anew"
    )


def table_files(folder: Path, name: str, until: int | None = None) -> list[TableFile]:
    """The joined file, then the parts that it does not hold yet (a crash can leave parts that it does), in order.

    Args:
        folder: of the run.
        name: of the table.
        until: the last round wanted; parts that go beyond it are left out.
    """
    whole = folder / f"{name}.parquet"
    joined = [_checked(whole, name)] if whole.is_file() else []
    begun = joined[0].label.last if joined else 0
    parts = [part for part in parts_of(folder, name) if last_round(part) > begun]
    found = chain([part for part in parts if until is None or last_round(part) <= until], name)
    if found and found[0].label.first != begun + 1:
        raise _gap(folder, name, begun + 1, found[0].label.first - 1)
    return joined + found


def chain(parts: list[Path], name: str) -> list[TableFile]:
    """Those of the parts that cover the rounds up to the last, each once and without a gap, in order.

    Parts that a longer one covers are left out: they were written again, or merged into it.
    """
    found: list[TableFile] = []
    wanted = last_round(parts[-1]) if parts else 0  # the round with which the part before must end
    for part in reversed(parts):
        last = last_round(part)
        if last > wanted:
            continue
        if last < wanted:
            raise _gap(part.parent.parent, name, last + 1, wanted)
        found.append(_checked(part, name))
        wanted = found[-1].label.first - 1
    return found[::-1]


def parts_of(folder: Path, name: str) -> list[Path]:
    """The parts of a table, by their last rounds."""
    return sorted((folder / "parts").glob(f"{name}-{NUMBER}.parquet"))


def _ends(folder: Path) -> dict[str, int]:
    """The last round of each table, by the names and labels of its files."""
    return {
        name: max([covers(folder / f"{name}.parquet"), *map(last_round, parts_of(folder, name))]) for name in TABLES
    }


def is_over(folder: Path, rounds: int) -> bool:
    """Whether this many rounds of a run are in both joined files (a kill can come between the two), or even more."""
    return min(covers(folder / f"{name}.parquet") for name in TABLES) >= rounds or reached(folder) > rounds


def reached(folder: Path) -> int:
    """The last round of a run that is on the disk; 0 if there is none."""
    return max(last_part(folder), covers(folder / "rounds.parquet"))


def _joined_tables(files: list[TableFile], columns: list[str] | None) -> pa.Table:
    """Files of one table as one; a column that some lack is null there, one that all lack is left out."""
    try:
        return pa.concat_tables([file.table(columns) for file in files], promote_options="default")
    except pa.ArrowException as error:
        raise _unlike(files, error) from None


def joined_pieces(files: list[TableFile]) -> Iterator[pa.Table]:
    """The rows of files of one table, a few at a time, so that years of a server's rounds do not fill the memory."""
    try:
        schema = pa.unify_schemas([file.file.schema_arrow.remove_metadata() for file in files])
        yield (empty := schema.empty_table())
        for file in files:
            for piece in file.pieces():
                yield pa.concat_tables([empty, piece], promote_options="default")
    except pa.ArrowException as error:
        raise _unlike(files, error) from None


def _unlike(files: list[TableFile], error: pa.ArrowException) -> StoreError:
    return StoreError(
        f"{files[0].path}: has other columns than {files[-1].path.name} ({str(error)[:200]}); restore it from a backup"
    )


def has_begun(folder: Path) -> bool:
    """Whether a run must have rounds: a checkpoint is written after those that it covers."""
    names = ("rounds.parquet", "selections.parquet", "checkpoint.npz")
    return last_part(folder) > 0 or any((folder / name).is_file() for name in names)


def last_part(folder: Path) -> int:
    """The last round with a part of both tables: a killed process can leave one without the other."""
    return min(max(map(last_round, parts_of(folder, each)), default=0) for each in TABLES)


def _read(path: str | os.PathLike[str], name: str, columns: list[str] | None) -> pa.Table:
    folder = Path(path)
    while True:
        before = parts_of(folder, name)
        try:
            return _read_once(folder, name, columns)
        except StoreError:
            if parts_of(folder, name) == before:
                raise
            # a running server has just merged some of these parts: read again


def _read_once(folder: Path, name: str, columns: list[str] | None) -> pa.Table:
    files = table_files(folder, name, last_part(folder))
    if not files and has_begun(folder):
        raise _gap(folder, name, 1, max(1, *_ends(folder).values()))
    if not files:
        raise StoreError(f"{folder}: has no rounds yet; give the folder of a run that has begun")
    ends = _ends(folder)
    if len(files) == 1 and files[0].path.parent == folder and 0 < min(ends.values()) < files[0].label.last:
        short = min(ends, key=lambda each: ends[each])
        raise _gap(folder, short, ends[short] + 1, files[0].label.last)
    table = _joined_tables(files, columns)
    lacking = {"round", "chosen" if name == "rounds" else "client"} - set(table.column_names)
    if lacking and (columns is None or lacking & set(columns)):
        raise StoreError(
            f"{files[0].path}: has no column {lacking.pop()!r}, so it is not a table of {name}; restore it from a "
            "backup"
        )
    return table


def read_rounds(path: str | os.PathLike[str], columns: list[str] | None = None) -> pa.Table:
    """A table with a row per round of a run, finished or not.

    Args:
        path: of the run's folder.
        columns: to read; those that do not exist are left out. None reads all but those that `read_presence`,
            `read_chances` and `read_uses` read.
    """
    table = _read(path, "rounds", columns)
    hidden = [name for name in UNSHOWN if columns is None and name in table.column_names]
    return table.drop_columns(hidden) if hidden else table


def read_presence(path: str | os.PathLike[str]) -> pa.Table | None:
    """Who was there: columns "round" and "there" (`store.records.presence`) of a run; None if it was not recorded."""
    table = _read(path, "rounds", ["round", "there"])
    return table if "there" in table.column_names else None


def read_chances(path: str | os.PathLike[str], clients: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """(rounds, who was there, with which probability each would have been chosen): the last two with a row per round.

    Only rounds whose records say who exactly was there; probabilities that the policy does not know are NaN.

    Args:
        path: of the run's folder.
        clients: how many there are, or have joined so far.
    """
    table = _read(path, "rounds", ["round", "mask", "chances", "joined"])
    rows = [row for row in table.to_pylist() if row.get("mask") is not None]
    there = np.zeros((len(rows), clients), dtype=np.bool_)
    chances = np.full((len(rows), clients), np.nan)
    for at, row in enumerate(rows):
        known = min(row.get("joined") or clients, clients)
        there[at, :known] = unpacked(row["mask"], known)
        if row["chances"] is not None:
            chances[at] = unpacked_chances(row["chances"], there[at])
    return np.array([row["round"] for row in rows], dtype=np.int64), there, chances


def read_uses(path: str | os.PathLike[str]) -> pa.Table:
    """A row per update that was used: columns "round" (in which it was used), "client" and "sent" (its own round).

    Without rounds, they are moves of the model: an answer to version v could have been used in move v + 1.
    """
    chosen = _read(path, "selections", ["round", "client", "status", "sent"])
    chosen = chosen.filter(np.array(chosen["status"].to_pylist(), dtype=object) == Status.DONE.name)
    round, client = (chosen[name].to_pylist() for name in ("round", "client"))
    versions = chosen["sent"].to_pylist() if "sent" in chosen.column_names else [None] * len(round)
    sent = [own if version is None else version + 1 for own, version in zip(round, versions, strict=True)]
    for row in _read(path, "rounds", ["round", "late_clients", "late_sent"]).to_pylist():
        late = row.get("late_clients") or []
        round += [row["round"]] * len(late)
        client += late
        sent += row.get("late_sent") or []
    table = pa.table({"round": pa.array(round, pa.int64()), "client": pa.array(client, pa.int64())})
    table = table.append_column("sent", pa.array(sent, pa.int64()))
    return table.sort_by([("round", "ascending"), ("client", "ascending")])


def read_selections(path: str | os.PathLike[str], columns: list[str] | None = None) -> pa.Table:
    """A table with a row per chosen client and round of a run, finished or not; arguments as for `read_rounds`."""
    return _read(path, "selections", columns)


def read_clients(path: str | os.PathLike[str]) -> list[str] | None:
    """The names of a run's clients, in the order of their numbers; None if they have no names."""
    file = Path(path) / "clients.parquet"
    if not file.is_file():
        return None
    table = _checked(file, "clients").table()
    if "name" not in table.column_names:
        if "size" in table.column_names:  # of a simulated run, see `read_census`
            return None
        raise StoreError(f"{file}: has no column 'name', so it is not a table of clients; restore it from a backup")
    return [str(name) for name in table["name"].to_pylist()]


def read_census(path: str | os.PathLike[str]) -> dict[str, NDArray[Any]]:
    """What is recorded of each client, arrays by name: `simulate.census` and final accuracy; size in a deployment."""
    file = Path(path) / "clients.parquet"
    if not file.is_file():
        return {}
    sealed = _checked(file, "clients")
    table, known = sealed.table(), ["size", "label", "success", "seconds"]
    if sealed.label.last >= reached(Path(path)):  # otherwise the run went on
        known.append("accuracy")
    return {name: table[name].to_numpy() for name in known if name in table.column_names}
