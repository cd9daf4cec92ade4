"""A run's folder: manifest, rounds, selections, checkpoints. Whatever happens, what is written is whole.

    manifest.json         config, seed, versions, git commit, machine
    rounds.parquet        a row per round                      } written when the run ends;
    selections.parquet    a row per chosen client and round    } until then in parts/, a pair per checkpoint
    checkpoint.npz        everything needed to go on from the last checkpoint; what came after is replayed
    run.lock              held while a process works in the folder

Every file is written to a temporary name and renamed, parts before the checkpoint that covers them: a run killed at any
moment goes on from its last checkpoint, and its finished files hold what an uninterrupted run's hold.
"""

import json
import os
import platform
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from filelock import FileLock, Timeout

from fedpick._version import __version__
from fedpick.errors import StateError, StoreError
from fedpick.round import Record, RunState
from fedpick.state import FORMAT, pack, read_archive, unpack, write_archive
from fedpick.types import Clients, Status

__all__ = ["Folder", "machine", "read_rounds", "read_selections"]

_REACHED = b"fedpick.reached"  # in the joined files: the last round they hold
_NAMES = [status.name for status in Status]


def machine() -> dict[str, Any]:
    """Versions, commit and machine: where a result came from."""

    def installed(name: str) -> str | None:
        try:
            return version(name)
        except PackageNotFoundError:
            return None

    found = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    names = ("numpy", "scipy", "numba", "pyarrow", "jax", "flwr")
    return {
        "fedpick": __version__,
        "versions": {name: installed(name) for name in names if installed(name)},
        "python": platform.python_version(),
        "commit": found.stdout.strip() or None,
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
        columns[name] = pa.array([r.metrics.get(name) for r in records], pa.float64())
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


class Folder:
    """The folder of one run, locked while it is open.

    Args:
        path: of the folder; made if it is not there.
        config: what the run is; kept in the manifest. None opens a folder that has one.
        every: rounds between checkpoints.
    """

    def __init__(self, path: str | os.PathLike[str], config: dict[str, Any] | None = None, every: int = 100) -> None:
        self.path = Path(path)
        self.every = every
        self._records: list[Record] = []
        self._metrics: list[str] = []
        if config is None and not self.manifest_path.is_file():
            raise StoreError(f"{self.path}: is not a run's folder, it has no manifest.json; start one with fedpick run")
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
        if self.manifest_path.is_file():
            try:
                found: dict[str, Any] = json.loads(self.manifest_path.read_text())["config"]
            except (ValueError, KeyError, OSError) as error:
                raise StoreError(f"{self.manifest_path}: cannot be read ({error}); choose another folder") from None
            if config is not None:
                if {**config, "rounds": 0} != {**found, "rounds": 0}:  # more rounds are the same run, continued
                    raise StoreError(
                        f"{self.path}: holds a run of another configuration ({found.get('policy')}, seed "
                        f"{found.get('seed')}); choose another folder, or remove this one"
                    )
                found = config
            return found
        assert config is not None
        text = json.dumps({"config": config, **machine()}, indent=1) + "\n"
        with _careful(self.path, "the manifest"):
            _replace(self.manifest_path, lambda path: _write(path, text))
        return config

    def restore(self, template: RunState, clients: Clients) -> RunState:
        """The state at the last checkpoint, or the template if there is none; drops parts that came after it."""
        checkpoint = self.path / "checkpoint.npz"
        state = template
        if checkpoint.is_file():
            try:
                arrays, meta = read_archive(checkpoint)
                state = _unpack_run(template, arrays, len(clients), str(checkpoint))
            except StateError as error:
                raise StoreError(str(error)) from None
            self._metrics = list(meta.get("metrics", []))
        for part in self._parts():
            if int(part.stem.split("-")[1]) > state.round:
                part.unlink()
        return state

    def append(self, record: Record, state: RunState) -> None:
        """Keep a record; every so many rounds, write a part and a checkpoint."""
        self._records.append(record)
        self._metrics += [name for name in record.metrics if name not in self._metrics]
        if record.round % self.every == 0:
            self.flush(state)

    def flush(self, state: RunState) -> None:
        """Write what is held, then the checkpoint that covers it."""
        if self._records:
            records, last = self._records, self._records[-1].round
            with _careful(self.path, f"rounds {records[0].round} to {last}"):
                rounds, selections = _rounds_table(records, self._metrics), _selections_table(records)
                parts = self.path / "parts"
                _replace(parts / f"rounds-{last:09d}.parquet", lambda path: pq.write_table(rounds, path))
                _replace(parts / f"selections-{last:09d}.parquet", lambda path: pq.write_table(selections, path))
        with _careful(self.path, "the checkpoint"):
            meta = {"format": FORMAT, "fedpick": __version__, "round": state.round, "metrics": self._metrics}
            write_archive(self.path / "checkpoint.npz", _pack_run(state), meta)
        self._records = []

    def finish(self, state: RunState) -> None:
        """Write what is held, and join the parts to rounds.parquet and selections.parquet."""
        self.flush(state)
        with _careful(self.path, "the joined files"):
            for name in ("rounds", "selections"):
                self._join(name, state.round)
            for part in self._parts():
                part.unlink()

    def _parts(self) -> list[Path]:
        return sorted((self.path / "parts").glob("*-*.parquet"))

    def _join(self, name: str, reached: int) -> None:
        tables = _tables(self.path, name)
        if tables:
            # Said in the file: the last rounds may have no row, when nobody was there.
            table = pa.concat_tables(tables, promote_options="default").replace_schema_metadata(
                {_REACHED: str(reached)}
            )
            _replace(self.path / f"{name}.parquet", lambda path: pq.write_table(table, path))

    def close(self) -> None:
        """Let another process work in the folder."""
        self._lock.release()

    def __enter__(self) -> "Folder":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _tables(folder: Path, name: str) -> list[pa.Table]:
    """The joined file, then the parts it does not hold yet (a crash can leave parts that it does)."""
    whole = folder / f"{name}.parquet"
    tables = [pq.read_table(whole)] if whole.is_file() else []
    reached = int((tables[0].schema.metadata or {}).get(_REACHED, 0)) if tables else 0
    for part in sorted((folder / "parts").glob(f"{name}-*.parquet")):
        if int(part.stem.split("-")[1]) > reached:
            tables.append(pq.read_table(part))
    return tables


def _pack_run(state: RunState) -> dict[str, Any]:
    arrays = {f"policy/{name}": value for name, value in pack(state.policy).items()}
    for part in ("availability", "volatility", "latency"):
        arrays |= {f"world/{part}/{name}": value for name, value in getattr(state.world, part).items()}
    arrays |= {"world/epochs": state.world.epochs, "world/idle": state.world.idle, "world/clock": state.world.clock}
    if isinstance(state.model, dict):
        arrays |= {f"model/{name}": value for name, value in state.model.items()}
    return arrays | {"round": state.round}


def _unpack_run(template: RunState, arrays: dict[str, Any], clients: int, owner: str) -> RunState:
    def under(prefix: str) -> dict[str, Any]:
        return {name.removeprefix(prefix): value for name, value in arrays.items() if name.startswith(prefix)}

    world = template.world
    for part in ("availability", "volatility", "latency"):
        getattr(world, part).update(under(f"world/{part}/"))
    try:
        world.epochs, world.idle = arrays["world/epochs"], arrays["world/idle"]
        world.clock = float(arrays["world/clock"])
        round = int(arrays["round"])
    except KeyError as error:
        raise StateError(f"{owner}: not a run's checkpoint, it has no {error}") from None
    policy = unpack(template.policy, under("policy/"), clients, f"{owner}:")
    model = under("model/") or template.model
    return RunState(policy, world, model, round)


def _read(path: str | os.PathLike[str], name: str) -> pa.Table:
    tables = _tables(Path(path), name)
    if not tables:
        raise StoreError(f"{path}: has no rounds yet; is it a run's folder?")
    return pa.concat_tables(tables, promote_options="default")


def read_rounds(path: str | os.PathLike[str]) -> pa.Table:
    """A row per round of a run, finished or not."""
    return _read(path, "rounds")


def read_selections(path: str | os.PathLike[str]) -> pa.Table:
    """A row per chosen client and round of a run, finished or not."""
    return _read(path, "selections")
