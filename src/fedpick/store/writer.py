"""`Tables`: manifest and tables of one run, in parts that are merged and joined (see `fedpick.store.folder`)."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fedpick._support import atomic, user_code
from fedpick.core.errors import StoreError
from fedpick.store import manifest as manifests
from fedpick.store import tables
from fedpick.store.columns import rounds_table, selections_table
from fedpick.store.lock import FolderLock
from fedpick.store.manifest import MANIFEST, as_json, read_manifest
from fedpick.store.parquet import Label, covers, pa, write_sealed
from fedpick.store.records import Record
from fedpick.store.tables import NUMBER, TABLES, joined_pieces, last_round

__all__ = ["Tables"]

LARGEST = 8 * 2**20  # bytes of a part; the files that a server merges while it runs are in memory for a moment


class Tables:
    """Manifest and tables of one run in a folder, which is locked while open.

    Args:
        path: of the folder; created if it does not exist.
        config: of the run, written to the manifest. None opens an existing run.
    """

    fix = "Free space, or start the server with records= in a folder that it may write to"  # a full disk

    @contextmanager
    def _careful(self, what: str) -> Iterator[None]:
        """Turn a write error (full disk, no permission) into a StoreError that says what to do."""
        try:
            yield
        except OSError as error:
            raise StoreError(
                f"{self.path}: cannot write {what} ({error.strerror or error}); files written before are intact. "
                + self.fix.format(path=self.path)
            ) from None

    def __init__(self, path: str | os.PathLike[str], config: dict[str, Any] | None = None) -> None:
        self.path = Path(path)
        if config is None:
            read_manifest(self.path)  # raises before any file is created
        with self._careful("the folder"):
            atomic.make_folder(self.path / "parts")
            self._lock = FolderLock(self.path / "run.lock")
            try:
                self._lock.acquire()
            except TimeoutError:
                raise StoreError(
                    f"{self.path}: another process is working in this folder; wait for it, or choose another folder"
                ) from None
        try:
            self.config = self._settle(config)
        except BaseException:
            self._lock.release()
            raise

    def _settle(self, config: dict[str, Any] | None) -> dict[str, Any]:
        """Read the manifest, or write it; the folder of one run cannot be used for another."""
        wanted = None if config is None else as_json(config)
        if config is None or (self.path / MANIFEST).is_file():
            found: dict[str, Any] = self._manifest()["config"]
            if wanted is not None and not manifests.same_run(wanted, found):
                raise StoreError(
                    f"{self.path}: holds a run of another configuration ({found.get('policy')}, seed "
                    f"{found.get('seed')}{_changed(found, wanted)}); choose another folder, or remove this one"
                )
            return found if config is None else config
        files = ("checkpoint.npz", "rounds.parquet", "selections.parquet")
        there = [name for name in files if (self.path / name).exists()]
        if there:
            raise StoreError(
                f"{self.path}: has {there[0]}, but no manifest.json that describes the run; restore the manifest, or "
                "choose another folder"
            )
        self._write_manifest({"config": wanted, "run": manifests.identity(config), **manifests.machine()})
        return config

    def _manifest(self) -> dict[str, Any]:
        return read_manifest(self.path)

    @property
    def run(self) -> str:
        """Hash of the configuration, which is in every file of the run."""
        return manifests.run_of(self._manifest())

    def _write_manifest(self, content: dict[str, Any]) -> None:
        with self._careful("the manifest"):
            manifests.write_manifest(self.path, content)

    def note(self, about: Mapping[str, Any]) -> None:
        """Add entries to the manifest's "about": where and how the run was executed."""
        content = self._manifest()
        before = content.get("about", {})
        new = as_json(dict(about))
        found = before | {key: manifests.next_entry(before.get(key), value) for key, value in new.items()}
        if found != before:
            self._write_manifest({**content, "about": found})

    def write(self, records: list[Record], metrics: list[str], after: int | None = None) -> None:
        """Write rounds to a new part; a part that ends with the same round is replaced.

        Args:
            records: of the rounds.
            metrics: columns besides those that every table has.
            after: the last round that earlier parts cover; None: the one before these. It can be an earlier one in a
                deployment, where some rounds have no record.
        """
        last = records[-1].round
        first = records[0].round if after is None else after + 1
        with self._careful(f"rounds {records[0].round} to {last}"):
            made = {"rounds": rounds_table(records, metrics), "selections": selections_table(records)}
            for name, table in made.items():
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
        """Merge the last parts into one, with those before them that are not much larger; large ones stay as they are.

        So n rounds are in about log(n) parts and a few large ones, each round was written log(n) times, and no more
        than `LARGEST` and a few groups of rows are ever in memory. The last part takes the merged rows and covers the
        others from then on, so that a crash before they are removed does no harm.
        """
        until = tables.last_part(self.path)
        with self._careful("the merged parts"):
            for name in TABLES:
                joined = covers(self.path / f"{name}.parquet")  # a crash can leave parts that are in it
                parts = [part for part in tables.parts_of(self.path, name) if joined < last_round(part) <= until]
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
        files = tables.chain(group, name)
        if len(files) < 2:
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
        """Write clients.parquet of a deployment: name and size of each client; NaN where the size is not known."""
        numbers = np.arange(len(names))
        self.describe_clients({"client": numbers, "name": pa.array(names, pa.string()), "size": sizes})

    def describe_clients(self, columns: Mapping[str, Any], round: int = 0) -> None:
        """Write clients.parquet: "size" of each client and what else is known of it after this round."""
        with self._careful("the table of clients"):
            write_sealed(self.path / "clients.parquet", pa.table(dict(columns)), Label("clients", self.run, 0, round))

    @property
    def reached(self) -> int:
        """Number of the last round in the tables."""
        return tables.reached(self.path)

    def _parts(self) -> list[Path]:
        return sorted((self.path / "parts").glob(f"*-{NUMBER}.parquet"))

    def _join(self, name: str, reached: int) -> None:
        whole = self.path / f"{name}.parquet"
        files = tables.table_files(self.path, name)
        if files and [file.path for file in files] != [whole]:
            # The label covers all rounds up to `reached`: the last ones have no row if no client was available.
            write_sealed(whole, joined_pieces(files), Label(name, self.run, 1, reached))

    def close(self) -> None:
        """Unlock the folder."""
        self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """The sections and the lines of the user's code in which two configurations differ; "" if in none."""
    old, new = (each.get("code") or {} for each in (before, after))
    changes = [f"{name}: {what}" for name in old if name in new for what in user_code.differences(old[name], new[name])]
    pairs = [(name, before.get(name), after.get(name)) for name in ("cohort_size", "world", "data", "train")]
    changes += [f"{name} was {was!r:.60} and is {now!r:.60}" for name, was, now in pairs if was != now]
    return "".join(f"; {each}" for each in changes)
