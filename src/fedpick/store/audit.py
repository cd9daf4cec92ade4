"""The audit of a folder: every file is read, its checksum compared, and its place checked (`fedpick verify`)."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fedpick._support.archive import read_archive
from fedpick.core.errors import FedpickError, StoreError
from fedpick.store import tables
from fedpick.store.manifest import MANIFEST, checked_json, read_manifest, run_of

__all__ = ["Finding", "verify"]

DEEPEST = 4  # levels below a folder at which runs are looked for


@dataclass(frozen=True)
class Finding:
    """The result of reading a file.

    Args:
        path: of the file, or of the folder if several of its files do not fit together.
        whole: whether it is undamaged and in its place.
        text: what it contains, or what is wrong with it.
    """

    path: Path
    whole: bool
    text: str


def _try(path: Path, look: Callable[[Path], str]) -> Finding:
    try:
        return Finding(path, True, look(path))
    except (FedpickError, OSError) as error:
        return Finding(path, False, str(error).removeprefix(f"{path}: "))


def verify(folder: Path, journal: Callable[[Path], str]) -> list[Finding]:
    """Read every file of the run, of the runs, or of the server's state in a folder.

    Args:
        folder: of a run, of comparisons (with their plans), or of a server's state.
        journal: describes a server's journal, and raises if it is damaged.
    """
    found = list(_below(folder, journal, DEEPEST))
    if not found:
        raise StoreError(f"{folder}: holds neither runs nor a server's state or models; give the folder of one")
    return found


def _below(folder: Path, journal: Callable[[Path], str], depth: int) -> Iterator[Finding]:
    if (folder / MANIFEST).is_file():
        study = _study_of(folder)
        yield from _run(folder) if study is None else [_try(folder / "result.json", partial(_result, study))]
    elif (folder / "state.npz").is_file():
        yield _try(folder / "state.npz", _state)
        if (folder / "journal").is_file():
            yield _try(folder / "journal", journal)
        yield from _models(folder)
    elif depth and folder.is_dir():
        for plan in sorted(folder.glob("plans/*.json")):
            yield _try(plan, _plan)
        yield from _models(folder)
        for each in sorted(path for path in folder.iterdir() if path.is_dir()):
            yield from _below(each, journal, depth - 1)


def _models(folder: Path) -> Iterator[Finding]:
    """The models that a server keeps beside its state."""
    for file in sorted(folder.glob("model-*.npz")):
        yield _try(file, _model)


def _model(path: Path) -> str:
    arrays, meta = read_archive(path)
    return f"the model after round {meta.get('round')}, {len(arrays)} arrays"


def _plan(path: Path) -> str:
    try:
        return f"a plan of {len(checked_json(path.read_bytes())['runs'])} runs"
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise StoreError(f"{error}; it is made again from the runs") from None


def _run(folder: Path) -> Iterator[Finding]:
    yield _try(folder / MANIFEST, _manifest)
    for name, look in (("checkpoint.npz", _checkpoint), ("clients.parquet", _clients)):
        if (folder / name).is_file():
            yield _try(folder / name, look)
    found = []
    for name in tables.TABLES:
        if (folder / f"{name}.parquet").is_file() or tables.parts_of(folder, name):
            found.append(_try(folder / f"{name}.parquet", _table))
    yield from found
    if found and all(each.whole for each in found):
        yield _try(folder, _together)


def _manifest(path: Path) -> str:
    config = read_manifest(path.parent)["config"]
    return f"{str(config.get('policy'))[:80]}, seed {config.get('seed')}"


def _checkpoint(path: Path) -> str:
    _, meta = read_archive(path)
    if meta.get("run") != run_of(read_manifest(path.parent)):
        raise StoreError("is of another run")
    return f"round {meta.get('round')}"


def _study_of(folder: Path) -> str | None:
    """The study whose result is in this folder; None if it is a run's."""
    try:
        content = json.loads((folder / MANIFEST).read_bytes())
        return None if "config" in content else str(content["study"])
    except (ValueError, KeyError, TypeError, OSError, RecursionError):
        return None


def _result(study: str, path: Path) -> str:
    """A study's result can be read; it has no checksum."""
    try:
        json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise StoreError(f"cannot be read ({type(error).__name__}: {error}); repeat the study") from None
    return f"the result of the study {study[:80]}"


def _clients(path: Path) -> str:
    names = tables.read_clients(path.parent)
    return f"{len(tables.read_census(path.parent)['size'])} clients" if names is None else f"{len(names)} names"


def _table(path: Path) -> str:
    """A joined table and its parts, without the parts of a pair that was not finished."""
    files = tables.table_files(path.parent, path.stem, tables.last_part(path.parent))
    rows = sum(file.table().num_rows for file in files)
    return f"{rows} rows in {len(files)} files"


def _together(folder: Path) -> str:
    """Raise unless rounds and selections agree."""
    rounds, selections = tables.read_rounds(folder), tables.read_selections(folder)
    numbers, chosen = rounds["round"].to_numpy(), rounds["chosen"].to_numpy()
    if len(np.unique(numbers)) != len(numbers):
        raise StoreError("its rounds.parquet holds a round twice")
    most = int(max(numbers.max(initial=0), selections["round"].to_numpy().max(initial=0)))
    counted = np.bincount(selections["round"].to_numpy(), minlength=most + 1)
    expected = np.zeros(most + 1, dtype=np.int64)
    expected[numbers] = chosen
    if not np.array_equal(counted, expected):
        wrong = int(np.flatnonzero(counted != expected)[0])
        raise StoreError(f"round {wrong} has {counted[wrong]} selections, but chose {expected[wrong]}")
    return f"{len(numbers)} rounds and their {len(selections)} selections"


def _state(path: Path) -> str:
    _, meta = read_archive(path)
    session: Any = meta.get("session") or {}
    return f"{str(meta.get('policy'))[:80]} after round {session.get('round')}"
