"""Whether what a folder holds is whole: every file is read, its sum compared, and its place checked."""

import json
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedpick._support.archive import read_archive
from fedpick.core.errors import FedpickError, StoreError
from fedpick.store.manifest import MANIFEST, checked_json, identity, read_manifest
from fedpick.store.tables import (
    NUMBER,
    TABLES,
    last_part,
    read_census,
    read_clients,
    read_rounds,
    read_selections,
    table_files,
)

__all__ = ["Found", "verify"]

DEEPEST = 4  # levels below a folder at which runs are looked for


@dataclass(frozen=True)
class Found:
    """A file, and what there is to say of it.

    Args:
        path: of the file, or of the folder where several do not fit together.
        whole: whether it is.
        said: what it holds, or what is wrong with it.
    """

    path: Path
    whole: bool
    said: str


def _try(path: Path, look: Callable[[], str]) -> Found:
    try:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            said = look()
        return Found(path, True, said + ("; from before there were sums" if told else ""))
    except (FedpickError, OSError) as error:
        return Found(path, False, str(error).removeprefix(f"{path}: "))


def verify(folder: Path, journal: Callable[[Path], str]) -> list[Found]:
    """Read every file of the run, of the runs, or of the server's state in a folder.

    Args:
        folder: of a run, of comparisons (with their plans), or of a server's state.
        journal: says what a server's journal holds, and raises if it is not whole.
    """
    found = list(_below(folder, journal, DEEPEST))
    if not found:
        raise StoreError(f"{folder}: holds neither runs nor a server's state or models; give the folder of one")
    return found


def _below(folder: Path, journal: Callable[[Path], str], depth: int) -> Iterator[Found]:
    if (folder / MANIFEST).is_file():
        study = _study_of(folder)
        yield from _run(folder) if study is None else [_try(folder / "result.json", lambda: _result(folder, study))]
    elif (folder / "state.npz").is_file():
        yield _try(folder / "state.npz", lambda: _state(folder / "state.npz"))
        if (folder / "journal").is_file():
            yield _try(folder / "journal", lambda: journal(folder / "journal"))
        yield from _models(folder)
    elif depth and folder.is_dir():
        for plan in sorted(folder.glob("plans/*.json")):
            yield _try(plan, lambda plan=plan: _plan(plan))  # type: ignore[misc]
        yield from _models(folder)
        for each in sorted(path for path in folder.iterdir() if path.is_dir()):
            yield from _below(each, journal, depth - 1)


def _models(folder: Path) -> Iterator[Found]:
    """The models that a server keeps beside its state."""

    def model(file: Path) -> str:
        arrays, meta = read_archive(file)
        return f"the model after round {meta.get('round')}, {len(arrays)} arrays"

    for file in sorted(folder.glob("model-*.npz")):
        yield _try(file, lambda file=file: model(file))  # type: ignore[misc]


def _plan(path: Path) -> str:
    try:
        return f"a plan of {len(checked_json(path.read_bytes())['runs'])} runs"
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise StoreError(f"{error}; it is made again from the runs") from None


def _run(folder: Path) -> Iterator[Found]:
    def manifest() -> str:
        content = read_manifest(folder)
        return f"{str(content['config'].get('policy'))[:80]}, seed {content['config'].get('seed')}"

    def checkpoint() -> str:
        _, meta = read_archive(folder / "checkpoint.npz")
        content = read_manifest(folder)
        if "run" in meta and meta["run"] != (content.get("run") or identity(content["config"])):
            raise StoreError("is of another run")
        return f"round {meta.get('round')}"

    yield _try(folder / MANIFEST, manifest)
    if (folder / "checkpoint.npz").is_file():
        yield _try(folder / "checkpoint.npz", checkpoint)
    if (folder / "clients.parquet").is_file():
        yield _try(folder / "clients.parquet", lambda: _clients(folder))
    tables = []
    for name in TABLES:
        if (folder / f"{name}.parquet").is_file() or list(folder.glob(f"parts/{name}-{NUMBER}.parquet")):
            tables.append(_try(folder / f"{name}.parquet", lambda name=name: _table(folder, name)))  # type: ignore[misc]
    yield from tables
    if tables and all(each.whole for each in tables):
        yield _try(folder, lambda: _together(folder))


def _study_of(folder: Path) -> str | None:
    """The study whose result is in this folder; None if it is a run's."""
    try:
        content = json.loads((folder / MANIFEST).read_bytes())
        return None if "config" in content else str(content["study"])
    except (ValueError, KeyError, TypeError, OSError, RecursionError):
        return None


def _result(folder: Path, study: str) -> str:
    """The result of a study can be read; it has no sum to compare."""
    try:
        json.loads((folder / "result.json").read_bytes())
    except (ValueError, RecursionError) as error:
        raise StoreError(f"cannot be read ({type(error).__name__}: {error}); repeat the study") from None
    return f"the result of the study {study[:80]}"


def _clients(folder: Path) -> str:
    names = read_clients(folder)
    return f"{len(read_census(folder)['size'])} clients" if names is None else f"{len(names)} names"


def _table(folder: Path, name: str) -> str:
    """A table whole and in parts; the parts of a pair that was not finished are not among them."""
    files = table_files(folder, name, last_part(folder))
    rows = sum(file.table().num_rows for file in files)
    return f"{rows} rows in {len(files)} files"


def _together(folder: Path) -> str:
    """Whether rounds and selections tell of the same."""
    rounds, selections = read_rounds(folder), read_selections(folder)
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
