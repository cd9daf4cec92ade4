"""A run's folder: manifest, rounds, selections, checkpoints. Whatever happens, what is written is whole.

    manifest.json         config, seed, versions, git commit, machine
    rounds.parquet        a row per round                      } written when the run ends;
    selections.parquet    a row per chosen client and round    } until then in parts/, a pair per checkpoint
    clients.parquet       names of the clients, where they have some (a deployment)
    checkpoint.npz        everything needed to go on from the last checkpoint; what came after is replayed
    run.lock              held while a process works in the folder

Every file is written to a temporary name and renamed, parts before the checkpoint that covers them: a run killed at any
moment goes on from its last checkpoint, and its finished files hold what an uninterrupted run's hold.
"""

import json
import os
import platform
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from filelock import FileLock, Timeout

from fedpick._version import __version__
from fedpick.checkpoint import pack_run, unpack_run
from fedpick.errors import ContractError, StoreError, require
from fedpick.round import ROUND_COLUMNS, Record, RunState
from fedpick.state import FORMAT, read_archive, write_archive
from fedpick.types import Clients, Status

__all__ = [
    "ROUND_COLUMNS",
    "Folder",
    "Tables",
    "machine",
    "read_clients",
    "read_manifest",
    "read_rounds",
    "read_selections",
]

_REACHED = b"fedpick.reached"  # in the joined files: the last round they hold
_TABLES = ("rounds", "selections")
_NUMBER = 9 * "[0-9]"  # the last round of a part, in its name
_NAMES = [status.name for status in Status]


def machine() -> dict[str, Any]:
    """Versions, commit and machine: where a result came from."""

    def installed(name: str) -> str | None:
        try:
            return version(name)
        except PackageNotFoundError:
            return None

    describe = ["git", "describe", "--always", "--dirty", "--exclude", "*"]
    try:
        commit = subprocess.run(describe, capture_output=True, text=True, check=False, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):  # no git here
        commit = ""
    names = ("numpy", "scipy", "numba", "pyarrow", "jax", "flwr")
    return {
        "fedpick": __version__,
        "versions": {name: installed(name) for name in names if installed(name)},
        "python": platform.python_version(),
        "commit": commit or None,
        "machine": {"system": platform.system(), "processor": platform.machine(), "cores": os.cpu_count()},
    }


@contextmanager
def _careful(path: Path, what: str) -> Iterator[None]:
    """Turn a full disk or a forbidden folder into a StoreError that says what is safe."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise StoreError(
            f"{path}: cannot write {what} ({reason}); what was written before is whole. Free space or choose a folder "
            "you may write to, then go on with: fedpick resume " + str(path)
        ) from None


def _replace(path: Path, write: Callable[[Path], None]) -> None:
    """Write to a temporary name beside the path, then rename."""
    temporary = path.with_name(path.name + ".tmp")
    try:
        write(temporary)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _write(path: Path, text: str) -> None:
    path.write_text(text)


def _plain(value: Any) -> Any:
    """As JSON gives it back: a configuration is compared with the one in the manifest."""
    return json.loads(json.dumps(value, default=lambda x: x.tolist() if hasattr(x, "tolist") else str(x)))


def _same_run(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """More rounds are the same run, continued; how often it is written changes no record."""
    free = {"rounds": 0, "checkpoint_every": 0}
    return {**one, **free} == {**other, **free}


def _rounds_table(records: list[Record], metrics: list[str]) -> pa.Table:
    counts = np.array([np.bincount(r.status, minlength=len(_NAMES)) for r in records]).reshape(-1, len(_NAMES))
    columns: dict[str, Any] = {
        "round": pa.array([r.round for r in records], pa.int64()),
        "clock": pa.array([r.clock for r in records], pa.float64()),
        "seconds": pa.array([r.seconds for r in records], pa.float64()),
        "available": pa.array([r.available for r in records], pa.int64()),
        "chosen": pa.array([len(r.clients) for r in records], pa.int64()),
    }
    for i, name in enumerate(_NAMES):
        columns[name.lower()] = pa.array(counts[:, i], pa.int64())
    columns["messages"] = pa.array([r.messages for r in records], pa.int64())
    columns["megabytes"] = pa.array([r.megabytes for r in records], pa.float64())
    for name in metrics:
        if name in ROUND_COLUMNS:
            raise ContractError(f"the metric {name!r} has the name of a column of rounds.parquet; call it otherwise")
        values = [r.metrics.get(name) for r in records]
        columns[name] = pa.array([None if value is None else float(value) for value in values], pa.float64())
    return pa.table(columns)


def _selections_table(records: list[Record]) -> pa.Table:
    def joined(name: str, dtype: Any) -> Any:
        parts = [getattr(r, name) for r in records]
        return np.concatenate(parts).astype(dtype) if parts else np.empty(0, dtype)

    rounds = np.repeat([r.round for r in records], [len(r.clients) for r in records]).astype(np.int64)
    status = pa.DictionaryArray.from_arrays(pa.array(joined("status", np.int8)), pa.array(_NAMES))
    return pa.table(
        {
            "round": rounds,
            "client": joined("clients", np.int64),
            "inclusion": joined("inclusion", np.float64),
            "status": status,
            "duration": joined("duration", np.float64),
            "loss": joined("loss", np.float64),
        }
    )


class Tables:
    """Manifest and tables of one run in a folder, locked while it is open.

    Args:
        path: of the folder; made if it is not there.
        config: what the run is; kept in the manifest. None opens a folder that has one.
    """

    def __init__(self, path: str | os.PathLike[str], config: dict[str, Any] | None = None) -> None:
        self.path = Path(path)
        if config is None:
            read_manifest(self.path)  # before anything is made
        with _careful(self.path, "the folder"):
            (self.path / "parts").mkdir(parents=True, exist_ok=True)
            self._lock = FileLock(self.path / "run.lock", timeout=0)
            try:
                self._lock.acquire()
            except Timeout:
                raise StoreError(
                    f"{self.path}: another process is working in this folder; wait for it, or choose another folder"
                ) from None
        try:
            self.config = self._settle(config)
        except BaseException:
            self._lock.release()
            raise

    @property
    def manifest_path(self) -> Path:
        """Where the manifest is."""
        return self.path / "manifest.json"

    def _settle(self, config: dict[str, Any] | None) -> dict[str, Any]:
        """Read the manifest, or write it; a folder keeps the run it was made for."""
        wanted = None if config is None else _plain(config)
        if self.manifest_path.is_file():
            found = self._manifest()["config"]
            if wanted is not None and not _same_run(wanted, found):
                raise StoreError(
                    f"{self.path}: holds a run of another configuration ({found.get('policy')}, seed "
                    f"{found.get('seed')}); choose another folder, or remove this one"
                )
            return found if config is None else config
        files = ("checkpoint.npz", "rounds.parquet", "selections.parquet")
        there = [name for name in files if (self.path / name).exists()]
        if there or wanted is None:
            raise StoreError(
                f"{self.path}: has {there[0] if there else 'no run'}, but no manifest.json that says of which run; put "
                "the manifest back, or choose another folder"
            )
        self._write_manifest({"config": wanted, **machine()})
        assert config is not None
        return config

    def _manifest(self) -> dict[str, Any]:
        return read_manifest(self.path)

    def _write_manifest(self, content: dict[str, Any]) -> None:
        with _careful(self.path, "the manifest"):
            _replace(self.manifest_path, lambda path: _write(path, json.dumps(content, indent=1) + "\n"))

    def write(self, records: list[Record], metrics: list[str]) -> None:
        """Write rounds to a part of their own; one that ends with the same round is replaced."""
        last = records[-1].round
        with _careful(self.path, f"rounds {records[0].round} to {last}"):
            rounds, selections = _rounds_table(records, metrics), _selections_table(records)
            parts = self.path / "parts"
            _replace(parts / f"rounds-{last:09d}.parquet", lambda path: pq.write_table(rounds, path))
            _replace(parts / f"selections-{last:09d}.parquet", lambda path: pq.write_table(selections, path))

    def join(self, reached: int) -> None:
        """Join the parts to rounds.parquet and selections.parquet, which hold all rounds up to `reached`."""
        with _careful(self.path, "the joined files"):
            for name in _TABLES:
                self._join(name, reached)
            for part in self._parts():
                part.unlink()

    def drop_after(self, round: int) -> None:
        """Remove parts that hold later rounds, and what a killed process left half written."""
        with _careful(self.path, "the folder"):
            for part in self._parts():
                if _last(part) > round:
                    part.unlink()
            for pattern in ("*.parquet.tmp", "checkpoint.npz*.tmp", "manifest.json.tmp", "parts/*.parquet.tmp"):
                for leftover in self.path.glob(pattern):
                    leftover.unlink()

    def name_clients(self, names: Sequence[str]) -> None:
        """Write clients.parquet: who is behind each number, where a run's clients have names."""
        table = pa.table({"client": np.arange(len(names)), "name": pa.array(names, pa.string())})
        with _careful(self.path, "the clients' names"):
            _replace(self.path / "clients.parquet", lambda path: pq.write_table(table, path))

    @property
    def reached(self) -> int:
        """The last round that is written."""
        lasts = [
            max(map(_last, (self.path / "parts").glob(f"{each}-{_NUMBER}.parquet")), default=0) for each in _TABLES
        ]
        whole = self.path / "rounds.parquet"
        return max(min(lasts), _covers(whole) if whole.is_file() else 0)

    def _parts(self) -> list[Path]:
        return sorted((self.path / "parts").glob(f"*-{_NUMBER}.parquet"))

    def _join(self, name: str, reached: int) -> None:
        whole = self.path / f"{name}.parquet"
        files = _files(self.path, name)
        if files and files != [whole]:
            # Said in the file: the last rounds may have no row, when nobody was there.
            table = _concat(files).combine_chunks().replace_schema_metadata({_REACHED: str(reached)})
            _replace(whole, lambda path: pq.write_table(table, path))

    def close(self) -> None:
        """Let another process work in the folder."""
        self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class Folder(Tables):
    """The folder of one run of the simulator: its tables, and checkpoints from which it goes on.

    Args:
        path: of the folder; made if it is not there.
        config: what the run is; kept in the manifest. None opens a folder that has one.
        every: rounds between checkpoints.
    """

    def __init__(self, path: str | os.PathLike[str], config: dict[str, Any] | None = None, every: int = 100) -> None:
        require(every >= 1, "Folder: every", every, "a number of rounds >= 1")
        self.every = every
        self._records: list[Record] = []
        self._metrics: list[str] = []
        self._next = 1  # the round that comes next
        self._saved = 0  # the round of the checkpoint
        super().__init__(path, config)

    def restore(self, template: RunState, clients: Clients) -> RunState:
        """The state at the last checkpoint, or the template if there is none; drops what came after it."""
        checkpoint = self.path / "checkpoint.npz"
        state = template
        if checkpoint.is_file():
            try:
                arrays, meta = read_archive(checkpoint)
                state = unpack_run(template, arrays, len(clients), str(checkpoint))
                self._metrics = [str(name) for name in meta["metrics"]]
            except Exception as error:  # a damaged file can raise anything
                raise StoreError(
                    f"{self.path}: its checkpoint cannot be used, and nothing was changed; put a whole one back, or "
                    f"remove the folder to start anew ({type(error).__name__}: {error})"
                ) from None
        self._check(state.round)
        self.drop_after(state.round)
        wanted = _plain(self.config)
        if self._manifest()["config"] != wanted:  # continued past its first horizon: `fedpick resume` reads it here
            self._write_manifest({**self._manifest(), "config": wanted})
        self._next, self._saved = state.round + 1, state.round
        return state

    def _check(self, reached: int) -> None:
        """Raise unless the tables hold all of rounds 1 to `reached`, and no more is asked than to go on."""
        rows = chosen = selected = 0
        for path in _files(self.path, "rounds", reached):
            table = _read_table(path, ["round", "chosen"])
            rows, chosen = rows + table.num_rows, chosen + int(table["chosen"].to_numpy().sum())
        for path in _files(self.path, "selections", reached):
            selected += _read_table(path, ["round"]).num_rows
        if (rows, selected) != (reached, chosen):
            raise StoreError(
                f"{self.path}: its checkpoint is of round {reached}, but its tables hold {rows} rounds and {selected} "
                f"of {chosen} selections; files were removed or changed. Put them back, or remove the folder to start "
                "anew"
            )
        rounds = self.config.get("rounds")
        if rounds is not None and reached > rounds:
            raise StoreError(
                f"{self.path}: holds {reached} rounds already, but rounds = {rounds}; ask for {reached} or more, or "
                "choose another folder"
            )

    def append(self, record: Record, state: RunState) -> None:
        """Keep a record; every so many rounds, write a part and a checkpoint."""
        if record.round != self._next or (self._next == 1 and (self.path / "checkpoint.npz").exists()):
            raise StoreError(
                f"{self.path}: was given round {record.round}, which is not the next; call restore first, and go on "
                "from the state it gives"
            )
        self._next += 1
        self._records.append(record)
        self._metrics += [name for name in record.metrics if name not in self._metrics]
        if record.round % self.every == 0:
            self.flush(state)

    def flush(self, state: RunState) -> None:
        """Write what is held, then the checkpoint that covers it."""
        if self._records:
            self.write(self._records, self._metrics)
        if self._saved == state.round > 0:
            return
        with _careful(self.path, "the checkpoint"):
            meta = {"format": FORMAT, "fedpick": __version__, "round": state.round, "metrics": self._metrics}
            write_archive(self.path / "checkpoint.npz", pack_run(state), meta)
        self._records, self._saved = [], state.round

    def finish(self, state: RunState) -> None:
        """Write what is held, and join the parts to rounds.parquet and selections.parquet."""
        self.flush(state)
        self.join(state.round)


def _last(part: Path) -> int:
    """The last round that a part holds, as its name says."""
    return int(part.stem.rsplit("-", 1)[1])


def _open(path: Path) -> Any:
    try:
        return pq.ParquetFile(path)
    except (OSError, pa.ArrowException) as error:
        raise StoreError(
            f"{path}: cannot be read ({error}); put a whole one back, or remove the run's folder"
        ) from None


def _read_table(path: Path, columns: list[str] | None = None) -> pa.Table:
    with _open(path) as file:
        try:
            return file.read(columns)
        except (OSError, pa.ArrowException) as error:
            raise StoreError(
                f"{path}: cannot be read ({error}); put a whole one back, or remove the run's folder"
            ) from None


def _covers(whole: Path) -> int:
    """The last round that a joined file holds, as it says."""
    with _open(whole) as file:
        return int((file.schema_arrow.metadata or {}).get(_REACHED, 0))


def _files(folder: Path, name: str, until: int | None = None) -> list[Path]:
    """The joined file, then the parts it does not hold yet (a crash can leave parts that it does)."""
    whole = folder / f"{name}.parquet"
    reached = _covers(whole) if whole.is_file() else 0
    parts = sorted((folder / "parts").glob(f"{name}-{_NUMBER}.parquet"))
    parts = [part for part in parts if _last(part) > reached and (until is None or _last(part) <= until)]
    return [whole, *parts] if whole.is_file() else parts


def _concat(files: list[Path]) -> pa.Table:
    return pa.concat_tables([_read_table(path) for path in files], promote_options="default")


def _read(path: str | os.PathLike[str], name: str) -> pa.Table:
    folder = Path(path)
    # A killed process can leave a part of one table without that of the other: neither counts.
    lasts = [max(map(_last, (folder / "parts").glob(f"{each}-{_NUMBER}.parquet")), default=0) for each in _TABLES]
    files = _files(folder, name, min(lasts))
    if not files:
        raise StoreError(f"{folder}: has no rounds yet; is it a run's folder?")
    table = _concat(files)
    lacking = {"round", "chosen" if name == "rounds" else "client"} - set(table.column_names)
    if lacking:
        raise StoreError(f"{files[0]}: has no column {lacking.pop()!r}, so that it is no table of {name}; put it back")
    return table


def read_rounds(path: str | os.PathLike[str]) -> pa.Table:
    """A row per round of a run, finished or not."""
    return _read(path, "rounds")


def read_selections(path: str | os.PathLike[str]) -> pa.Table:
    """A row per chosen client and round of a run, finished or not."""
    return _read(path, "selections")


def read_manifest(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What a run's manifest says; `config` is a table in it."""
    manifest = Path(path) / "manifest.json"
    if not manifest.is_file():
        raise StoreError(f"{path}: is not a run's folder, it has no manifest.json; start one with fedpick run")
    try:
        content = json.loads(manifest.read_text())
        if not isinstance(content["config"], dict):
            raise TypeError("its config is not a table")
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise StoreError(
            f"{manifest}: cannot be read ({type(error).__name__}: {error}); put a whole one back, or choose another "
            "folder"
        ) from None
    return dict(content)


def read_clients(path: str | os.PathLike[str]) -> list[str] | None:
    """The names of a run's clients by their numbers; None where they have none."""
    file = Path(path) / "clients.parquet"
    return [str(name) for name in _read_table(file)["name"].to_pylist()] if file.is_file() else None
