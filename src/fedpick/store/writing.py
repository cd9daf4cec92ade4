"""`Tables`: manifest and tables of one run, in parts that are merged and joined (see `fedpick.store.folder`)."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fedpick._support import atomic, user_code
from fedpick.core.errors import StoreError
from fedpick.store.arrow import pa
from fedpick.store.locks import FileLock, Timeout
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
from fedpick.store.sealed import Label, write_sealed
from fedpick.store.tables import (
    NUMBER,
    TABLES,
    chain,
    covers,
    joined_pieces,
    last_part,
    last_round,
    parts_of,
    reached,
    rounds_table,
    selections_table,
    table_files,
)

__all__ = ["Tables"]

LARGEST = 8 * 2**20  # bytes of a part; the files that a server merges while it runs are in memory for a moment


@contextmanager
def _careful(path: Path, what: str, fix: str) -> Iterator[None]:
    """Turn a write error (full disk, no permission) into a StoreError that says what to do."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise StoreError(f"{path}: cannot write {what} ({reason}); files written before are intact. {fix}") from None


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
                    f"{found.get('seed')}{_changed(found, wanted)}); choose another folder, or remove this one"
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
        than `LARGEST` and a few groups of rows are ever in memory. The last part takes the merged rows, which covers
        the others from then on: a crash before they are removed costs nothing.
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
        write_sealed(group[-1], joined_pieces(files), label)
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

    def name_clients(self, names: Sequence[str], sizes: NDArray[Any]) -> None:
        """Write clients.parquet of a deployment: name and size of each client number; NaN where it is not known."""
        table = pa.table({"client": np.arange(len(names)), "name": pa.array(names, pa.string()), "size": sizes})
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
            write_sealed(whole, joined_pieces(files), Label(name, self.run, 1, reached))

    def close(self) -> None:
        """Unlock the folder."""
        self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """What of the user's own code changed between two configurations; "" if they do not differ in it."""
    old, new = (each.get("code") or {} for each in (before, after))
    said = [f"{name}: {what}" for name in old if name in new for what in user_code.differences(old[name], new[name])]
    return "".join(f"; {each}" for each in said)
