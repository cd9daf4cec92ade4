"""A run's folder: manifest, rounds, selections, checkpoint. No file is ever half written.

    manifest.json         config, seed, versions, git commit, machine
    rounds.parquet        a row per round                      } written when the run ends;
    selections.parquet    a row per chosen client and round    } until then in parts/, one pair per checkpoint
    clients.parquet       a row per client: name and size (a deployment), or data, class and final accuracy (simulated)
    checkpoint.npz        the state after the last checkpoint; later rounds are played again
    run.lock              held while a process works in the folder

Every file is written under a temporary name and renamed, parts before the checkpoint that follows them: a run killed at
any moment continues from its last checkpoint, and ends with the same files as an uninterrupted run. A server, which may
run for years, merges small parts on the way (`Tables.merge`) and joins all when it is closed.
"""

import os
import warnings
from time import monotonic
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpick._support.archive import FORMAT, read_archive, write_archive
from fedpick._version import NUMBERS, __version__
from fedpick.core.errors import StateError, StoreError, require
from fedpick.core.types import Clients
from fedpick.store.checkpoint import RunState, pack_run, unpack_run
from fedpick.store.manifest import as_json, next_entry, numbers_of
from fedpick.store.parquet import TableFile, pa
from fedpick.store.records import Record
from fedpick.store.tables import table_files
from fedpick.store.writer import Tables

__all__ = ["Folder"]

OFTEN = 10.0  # seconds between checkpoints at most: `fedpick watch` shows what is written


def _columns(files: list[TableFile], *names: str) -> dict[str, NDArray[np.int64]]:
    """Columns of whole numbers, joined over the files."""
    found: dict[str, NDArray[np.int64]] = {name: np.empty(0, dtype=np.int64) for name in names}
    for file in files:
        table = file.table(list(names))
        for name in names:
            if name not in table.column_names or not pa.types.is_integer(table[name].type) or table[name].null_count:
                raise StoreError(f"{file.path}: has no column {name!r} of whole numbers; restore it from a backup")
            found[name] = np.concatenate([found[name], table[name].to_numpy().astype(np.int64)])
    return found


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
        self.saved = 0  # the round of the last checkpoint
        self._flushed = monotonic()
        super().__init__(path, config)

    def restore(self, template: RunState, clients: Clients) -> RunState:
        """The state at the last checkpoint, or the template if there is none; later rounds are dropped."""
        checkpoint = self.path / "checkpoint.npz"
        state = template
        if checkpoint.is_file():
            try:
                arrays, meta = read_archive(checkpoint)
                if meta["run"] != self.run or meta["round"] != arrays["round"]:
                    raise StateError(f"{checkpoint}: is of another run; a run's settings cannot be changed later")
                state = unpack_run(template, arrays, len(clients), str(checkpoint))
                self._metrics = [str(name) for name in meta["metrics"]]
            except Exception as error:  # a damaged file can raise anything
                raise StoreError(
                    f"{self.path}: its checkpoint cannot be used; no file was changed. Restore the checkpoint from a "
                    f"backup, or remove the folder to start anew ({type(error).__name__}: {error})"
                ) from None
        self._check(state.round)
        self.drop_after(state.round)
        manifest = self._manifest()
        wanted = {**manifest, "config": as_json(self.config)}  # perhaps more rounds than at first
        if 0 < state.round < self.config.get("rounds", np.inf):
            wanted["numbers"] = next_entry(numbers_of(manifest), NUMBERS)
            if wanted["numbers"] != numbers_of(manifest):
                warnings.warn(
                    f"{self.path}: was begun by a version of fedpick in which seeds give other durations and failures, "
                    f"so that rounds from {state.round + 1} on are not those that it would have played; for results of "
                    "one kind, play the run again in another folder",
                    stacklevel=2,
                )
        if manifest != wanted:
            self._write_manifest(wanted)
        self._next, self.saved = state.round + 1, state.round
        return state

    def _check(self, reached: int) -> None:
        """Raise unless the tables hold each of rounds 1 to `reached` once, and no fewer rounds are asked for."""
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
        if self.saved == state.round > 0:
            return
        meta = {"format": FORMAT, "fedpick": __version__, "round": state.round, "metrics": self._metrics}
        with self._careful("the checkpoint"):
            write_archive(self.path / "checkpoint.npz", pack_run(state), meta | {"run": self.run})
        self._records, self.saved, self._flushed = [], state.round, monotonic()

    def finish(self, state: RunState) -> None:
        """Write the waiting records, and join the parts into rounds.parquet and selections.parquet."""
        self.flush(state)
        self.join(state.round)
