"""The states of runs as their folders show them, while they may be written: running, finished, stopped, ..."""

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from fedpick.core.errors import FedpickError
from fedpick.report.runs import RunInfo

__all__ = ["RECENT", "RunState", "run_states"]

LOCKS = Path("/proc/locks")  # where Linux lists the files that are locked
RECENT, SILENT = 10.0, 120.0  # seconds since the last write of a run that surely, or perhaps, goes on

Stamp = tuple[str, int, int]  # of a file: name, size, and time of the last write in nanoseconds


class RunState(NamedTuple):
    """What a run is doing."""

    name: str  # "running", "finished", "stopped", "ended" (a server) or "silent"
    reached: int  # its last round
    files: tuple[Stamp, ...]

    @property
    def written(self) -> float:
        """When it was last written, in seconds since 1970; 0 if never."""
        return max((at for *_, at in self.files), default=0) / 1e9


def _locked_files() -> set[int] | None:
    """The files (inode numbers) that a process of this machine has locked; None if the system does not list them."""
    try:
        lines = LOCKS.read_text().splitlines()
        return {int(line.split()[-3].rsplit(":", 1)[-1]) for line in lines if "FLOCK" in line}
    except (OSError, ValueError, IndexError):
        return None


def _stamps(folder: Path) -> Iterator[Stamp]:
    """The stamps of a run's tables and JSON files."""
    for place in (folder, folder / "parts"):
        try:
            with os.scandir(place) as files:
                for file in files:
                    if file.name.endswith((".parquet", ".json")) and not file.name.startswith("."):
                        found = file.stat()
                        yield file.name, found.st_size, found.st_mtime_ns
        except OSError:  # not there yet, or gone in this moment
            continue


def _state(info: RunInfo, reached: int, quiet: float, locked: set[int] | None) -> str:
    """The state of a run whose last round is `reached`, `quiet` seconds after its last write."""
    if info.rounds is not None and info.simulated and reached >= info.rounds:
        return "finished"
    try:
        inside = locked is not None and (info.folder / "run.lock").stat().st_ino in locked
    except OSError:
        inside = False
    if inside or quiet < RECENT:
        return "running"
    if locked is None:
        return "running" if quiet < SILENT else "silent"
    closed = not info.simulated and reached > 0 and not any((info.folder / "parts").glob("*.parquet"))
    return "ended" if closed else "stopped"  # a server that was closed has joined its parts


def run_states(infos: Sequence[RunInfo]) -> dict[Path, RunState]:
    """The state of each run, by folder."""
    locked, now, found = _locked_files(), time.time(), {}
    for info in infos:
        files, reached = tuple(sorted(_stamps(info.folder))), _reached(info.folder)
        quiet = now - RunState("", reached, files).written
        found[info.folder] = RunState(_state(info, reached, quiet, locked), reached, files)
    return found


def _reached(folder: Path) -> int:
    from fedpick.store.tables import reached  # Parquet is an extra

    try:
        return reached(folder)
    except (FedpickError, OSError, ValueError):
        return 0
