"""A run's folder: manifest, rounds, selections, checkpoint. No file is ever half written.

    manifest.json         config, seed, versions, git commit, machine
    rounds.parquet        a row per round                      } written when the run ends;
    selections.parquet    a row per chosen client and round    } until then in parts/, one pair per checkpoint
    clients.parquet       a row per client: its name (a deployment), or its data, class and final accuracy (simulated)
    checkpoint.npz        the state after the last checkpoint; later rounds are played again
    run.lock              held while a process works in the folder

Every file is written under a temporary name and renamed, parts before the checkpoint that follows them: a run killed at
any moment continues from its last checkpoint, and ends with the same files as an uninterrupted run. A server, which may
run for years, merges small parts on the way (`Tables.merge`) and joins all when it is closed.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from time import monotonic
from typing import Any, Self

import numpy as np
import pyarrow as pa
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from fedpick import atomic
from fedpick._version import __version__
from fedpick.archive import FORMAT, read_archive, write_archive
from fedpick.errors import StateError, StoreError, require
from fedpick.store.checkpoint import RunState, pack_run, unpack_run
from fedpick.store.manifest import (
    MANIFEST,
    as_json,
    identity,
    machine,
    read_manifest,
    said_after,
    same_run,
    write_manifest,
)
from fedpick.store.records import Record
from fedpick.store.sealed import Label, Sealed, write_sealed
from fedpick.store.tables import (
    NUMBER,
    TABLES,
    chain,
    covers,
    joined_tables,
    last_part,
    last_round,
    parts_of,
    reached,
    rounds_table,
    selections_table,
    table_files,
)
from fedpick.types import Clients

__all__ = ["Folder", "Tables"]

LARGEST = 8 * 2**20  # bytes of a part; what a server merges while it runs is in memory for a moment
OFTEN = 10.0  # seconds between checkpoints at most: `fedpick watch` shows what is written


@contextmanager
def _careful(path: Path, what: str, fix: str) -> Iterator[None]:
    """Turn a write error (full disk, no permission) into a StoreError that says what to do."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise StoreError(f"{path}: cannot write {what} ({reason}); files written before are intact. {fix}") from None


def _columns(files: list[Sealed], *names: str) -> dict[str, NDArray[np.int64]]:
    """Columns of whole numbers, of all these files."""
    found: dict[str, NDArray[np.int64]] = {name: np.empty(0, dtype=np.int64) for name in names}
    for file in files:
        table = file.table(list(names))
        for name in names:
            if name not in table.column_names or not pa.types.is_integer(table[name].type) or table[name].null_count:
                raise StoreError(f"{file.path}: has no column {name!r} of whole numbers; restore it from a backup")
            found[name] = np.concatenate([found[name], table[name].to_numpy().astype(np.int64)])
    return found


class Tables:
    """Manifest and tables of one run in a folder, which is locked while open.

    Args:
        path: of the folder; created if it does not exist.
        config: of the run, written to the manifest. None opens an existing run.
    """

    fix = "Free space, or start the server with records= in a folder that it may write to"  # a full disk

    def _careful(self, what: str) -> AbstractContextManager[None]:
        return _careful(self.path, what, self.fix.format(path=self.path))

    def __init__(self, path: str | os.PathLike[str], config: dict[str, Any] | None = None) -> None:
        self.path = Path(path)
        if config is None:
            read_manifest(self.path)  # raises before any file is created
        with self._careful("the folder"):
            atomic.make_folder(self.path / "parts")
            lock = self.path / "run.lock"
            self._lock = FileLock(lock, timeout=0, mode=atomic.plain_mode(lock))
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
        """Path of the manifest."""
        return self.path / MANIFEST

    def _settle(self, config: dict[str, Any] | None) -> dict[str, Any]:
        """Read the manifest, or write it; the folder of one run cannot be used for another."""
        wanted = None if config is None else as_json(config)
        if self.manifest_path.is_file():
            found = self._manifest()["config"]
            if wanted is not None and not same_run(wanted, found):
                raise StoreError(
                    f"{self.path}: holds a run of another configuration ({found.get('policy')}, seed "
                    f"{found.get('seed')}); choose another folder, or remove this one"
                )
            return found if config is None else config
        files = ("checkpoint.npz", "rounds.parquet", "selections.parquet")
        there = [name for name in files if (self.path / name).exists()]
        if there or wanted is None:
            raise StoreError(
                f"{self.path}: has {there[0] if there else 'no run'}, but no manifest.json that describes the run; "
                "restore the manifest, or choose another folder"
            )
        self._write_manifest({"config": wanted, "run": identity(wanted), **machine()})
        assert config is not None
        return config

    def _manifest(self) -> dict[str, Any]:
        return read_manifest(self.path)

    @property
    def run(self) -> str:
        """Hash of the configuration, which every file of the run holds."""
        content = self._manifest()
        return str(content.get("run") or identity(content["config"]))

    def _write_manifest(self, content: dict[str, Any]) -> None:
        with self._careful("the manifest"):
            write_manifest(self.path, content)

    def note(self, about: Mapping[str, Any]) -> None:
        """Add entries to the manifest's "about": where and how the run was executed."""
        content = self._manifest()
        before = content.get("about", {})
        found = before | {key: said_after(before.get(key), value) for key, value in as_json(dict(about)).items()}
        if found != before:
            self._write_manifest({**content, "about": found})

    def write(self, records: list[Record], metrics: list[str], after: int | None = None) -> None:
        """Write rounds to a part of their own; one that ends with the same round is replaced.

        Args:
            records: of the rounds.
            metrics: columns besides those that every table has.
            after: the last round that is covered by earlier parts; None: the one before these. A server's may differ,
                some of whose rounds have no record.
        """
        last = records[-1].round
        first = records[0].round if after is None else after + 1
        with self._careful(f"rounds {records[0].round} to {last}"):
            tables = {"rounds": rounds_table(records, metrics), "selections": selections_table(records)}
            for name, table in tables.items():
                label = Label(name, self.run, first, last)
                write_sealed(self.path / "parts" / f"{name}-{last:09d}.parquet", table, label)

    def join(self, reached: int) -> None:
        """Join the parts into rounds.parquet and selections.parquet, which then hold all rounds up to `reached`."""
        with self._careful("the joined files"):
            for name in TABLES:
                self._join(name, reached)
            for part in self._parts():
                atomic.remove(part)

    def merge(self) -> None:
        """Merge the last parts into one, and those before them that are not much larger; large ones stay as they are.

        So n rounds are in about log(n) parts and a few large ones, each of which was written log(n) times, and no more
        than `LARGEST` is ever in memory. The last part takes the merged rows, which covers the others from then on:
        a crash before they are removed costs nothing.
        """
        until = last_part(self.path)
        with self._careful("the merged parts"):
            for name in TABLES:
                joined = covers(self.path / f"{name}.parquet")  # a crash can leave parts that are in it
                parts = [part for part in parts_of(self.path, name) if joined < last_round(part) <= until]
                self._merge(name, parts)

    def _merge(self, name: str, parts: list[Path]) -> None:
        group: list[Path] = []
        weight = 0
        for part in reversed(parts):
            size = part.stat().st_size
            if group and (size > 2 * weight or weight + size > LARGEST):
                break
            group.insert(0, part)
            weight += size
        files = chain(group, name)
        if len(files) < 2 or files[0].label is None:  # a part from before there were labels waits for the join
            return
        label = Label(name, self.run, files[0].label.first, last_round(group[-1]))
        write_sealed(group[-1], joined_tables(files).combine_chunks(), label)
        for part in parts:
            if label.first <= last_round(part) < label.last:
                atomic.remove(part)

    def drop_after(self, round: int) -> None:
        """Remove parts with later rounds, and temporary files of a killed process."""
        with self._careful("the folder"):
            for part in self._parts():
                if last_round(part) > round:
                    atomic.remove(part)
            for place in (self.path, self.path / "parts"):
                atomic.tidy(place)

    def name_clients(self, names: Sequence[str]) -> None:
        """Write clients.parquet: the name of each client number."""
        table = pa.table({"client": np.arange(len(names)), "name": pa.array(names, pa.string())})
        with self._careful("the clients' names"):
            write_sealed(self.path / "clients.parquet", table, Label("clients", self.run, 0, 0))

    def describe_clients(self, columns: Mapping[str, NDArray[Any]], round: int = 0) -> None:
        """Write clients.parquet of a simulated run: "size" of each client and what else is known, after this round."""
        with self._careful("the table of clients"):
            write_sealed(self.path / "clients.parquet", pa.table(dict(columns)), Label("clients", self.run, 0, round))

    @property
    def reached(self) -> int:
        """Number of the last round in the tables."""
        return reached(self.path)

    def _parts(self) -> list[Path]:
        return sorted((self.path / "parts").glob(f"*-{NUMBER}.parquet"))

    def _join(self, name: str, reached: int) -> None:
        whole = self.path / f"{name}.parquet"
        files = table_files(self.path, name)
        if files and [file.path for file in files] != [whole]:
            # The label says how far it goes: the last rounds may have no row, when nobody was there.
            write_sealed(whole, joined_tables(files).combine_chunks(), Label(name, self.run, 1, reached))

    def close(self) -> None:
        """Unlock the folder."""
        self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class Folder(Tables):
    """The folder of one simulated run: its tables, and checkpoints to continue from.

    Args:
        path: of the folder; created if it does not exist.
        config: of the run, written to the manifest. None opens an existing run.
        every: rounds between checkpoints.
    """

    fix = "Free space or choose a folder you may write to, then continue with: fedpick resume {path}"

    def __init__(self, path: str | os.PathLike[str], config: dict[str, Any] | None = None, every: int = 100) -> None:
        require(every >= 1, "Folder: every", every, "a number of rounds >= 1")
        self.every = every
        self._records: list[Record] = []
        self._metrics: list[str] = []
        self._next = 1  # the next round
        self._saved = 0  # the round of the checkpoint
        self._flushed = monotonic()
        super().__init__(path, config)

    @property
    def saved(self) -> int:
        """The round of the last checkpoint."""
        return self._saved

    def restore(self, template: RunState, clients: Clients) -> RunState:
        """The state at the last checkpoint, or the template if there is none; later rounds are dropped."""
        checkpoint = self.path / "checkpoint.npz"
        state = template
        if checkpoint.is_file():
            try:
                arrays, meta = read_archive(checkpoint)
                if meta.get("run", self.run) != self.run or meta.get("round", arrays["round"]) != arrays["round"]:
                    raise StateError(f"{checkpoint}: is of another run; a run's settings cannot change on the way")
                state = unpack_run(template, arrays, len(clients), str(checkpoint))
                self._metrics = [str(name) for name in meta["metrics"]]
            except Exception as error:  # a damaged file can raise anything
                raise StoreError(
                    f"{self.path}: its checkpoint cannot be used; no file was changed. Restore the checkpoint from a "
                    f"backup, or remove the folder to start anew ({type(error).__name__}: {error})"
                ) from None
        self._check(state.round)
        self.drop_after(state.round)
        wanted = as_json(self.config)
        if self._manifest()["config"] != wanted:  # more rounds than at first: `fedpick resume` reads the number here
            self._write_manifest({**self._manifest(), "config": wanted})
        self._next, self._saved = state.round + 1, state.round
        return state

    def _check(self, reached: int) -> None:
        """Raise unless the tables hold each of rounds 1 to `reached` once, and no more is asked than to go on."""
        rounds = _columns(table_files(self.path, "rounds", reached), "round", "chosen")
        selected = _columns(table_files(self.path, "selections", reached), "round")["round"]
        counted = np.bincount(selected[(selected > 0) & (selected <= reached)], minlength=reached + 1)[1:]
        whole = np.array_equal(rounds["round"], np.arange(1, reached + 1)) and len(selected) == counted.sum()
        if not whole or not np.array_equal(rounds["chosen"], counted):
            raise StoreError(
                f"{self.path}: its checkpoint is of round {reached}, but its tables hold {len(rounds['round'])} rounds "
                f"and {len(selected)} of {int(rounds['chosen'].sum())} selections, or others than those; files were "
                "removed or changed. Restore them, or remove the folder to start anew"
            )
        asked = self.config.get("rounds")
        if asked is not None and reached > asked:
            raise StoreError(
                f"{self.path}: holds {reached} rounds already, but rounds = {asked}; ask for {reached} or more, or "
                "choose another folder"
            )

    def append(self, record: Record, state: RunState) -> None:
        """Add a record; after every `every` rounds, or ten seconds, write a part and a checkpoint."""
        self.add(record)
        if self.due:
            self.flush(state)

    def add(self, record: Record) -> None:
        """Add a record, which `flush` will write."""
        if record.round != self._next or (self._next == 1 and (self.path / "checkpoint.npz").exists()):
            raise StoreError(
                f"{self.path}: got round {record.round}, which is not the next; call restore first, and continue from "
                "the state it returns"
            )
        self._next += 1
        self._records.append(record)
        self._metrics += [name for name in record.metrics if name not in self._metrics]

    @property
    def due(self) -> bool:
        """Whether it is time to write a part and a checkpoint."""
        return (self._next - 1) % self.every == 0 or monotonic() - self._flushed >= OFTEN

    def flush(self, state: RunState) -> None:
        """Write the waiting records, then the checkpoint."""
        if self._records:
            self.write(self._records, self._metrics)
        if self._saved == state.round > 0:
            return
        with self._careful("the checkpoint"):
            meta = {"format": FORMAT, "fedpick": __version__, "round": state.round, "metrics": self._metrics}
            meta["run"] = self.run
            write_archive(self.path / "checkpoint.npz", pack_run(state), meta)
        self._records, self._saved, self._flushed = [], state.round, monotonic()

    def finish(self, state: RunState) -> None:
        """Write the waiting records, and join the parts into rounds.parquet and selections.parquet."""
        self.flush(state)
        self.join(state.round)
