"""The code that runs on a node of a cluster: it gets a run's files, continues the run, and sends new files back.

New parts are sent with each checkpoint, so if a node dies, only the rounds after the last checkpoint are lost.
"""

import signal
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fedpick._support import atomic
from fedpick.experiment.executors.batch import Batch, play_batch
from fedpick.experiment.executors.job import Job, Listener
from fedpick.experiment.executors.processes import portable
from fedpick.experiment.executors.signals import Stop, Stopped

__all__ = ["CHECKPOINT", "Mailbox", "Parcel", "pack", "play_on_node", "unpack"]

CHECKPOINT = "checkpoint.npz"
_WHOLE = ("rounds.parquet", "selections.parquet")
CODE = "own"  # folder with the user's code, in the run's folder
ASK = 0.5  # seconds between two checks whether to stop


@dataclass(frozen=True)
class Parcel:
    """Files of a run's folder.

    Args:
        attempt: number of the attempt to execute the run.
        after: the round of the checkpoint that the files follow; 0: they are complete.
        round: of the checkpoint among the files.
        files: by name.
        code: files with the user's own code, by name.
    """

    attempt: int
    after: int
    round: int
    files: dict[str, bytes]
    code: dict[str, bytes] = field(default_factory=dict)


def pack(folder: Path, after: int = 0) -> dict[str, bytes]:
    """The files of a run's folder with the rounds after this one."""
    names = ["manifest.json", "clients.parquet", CHECKPOINT, *(_WHOLE if after == 0 else ())]
    parts = [part for part in (folder / "parts").glob("*.parquet") if int(part.stem.rsplit("-", 1)[1]) > after]
    paths = [*(folder / name for name in names), *parts]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths if path.is_file()}


def unpack(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files in the order of a run: the checkpoint after its parts."""
    (folder / "parts").mkdir(parents=True, exist_ok=True)
    for name in sorted(files, key=lambda name: name == CHECKPOINT):
        with atomic.replacing(folder / name) as temporary:
            temporary.write_bytes(files[name])


class Mailbox:
    """A Ray actor on the driver's node: collects the tasks' progress, and tells them whether to stop."""

    def __init__(self) -> None:
        self._stop = False
        self._begun: set[int] = set()
        self._rounds: dict[int, int] = {}
        self._parcels: list[tuple[int, Any]] = []

    def report(self, rounds: dict[int, int], parcels: list[tuple[int, Any]]) -> bool:
        """Take runs' last rounds and references to their parcels; returns whether to stop."""
        self._begun |= rounds.keys()
        self._rounds |= rounds
        self._parcels += parcels
        return self._stop

    def take(self) -> tuple[dict[int, int], list[tuple[int, Any]]]:
        """Rounds and parcels that arrived since the last call."""
        found = self._rounds, self._parcels
        self._rounds, self._parcels = {}, []
        return found

    def stop(self) -> set[int]:
        """Make `report` tell all tasks to stop; returns the runs that have begun."""
        self._stop = True
        return self._begun


class _Courier:
    """Sends a batch's progress and parcels to the mailbox."""

    def __init__(self, folders: dict[int, Path], sent: Mapping[int, Parcel], mailbox: Any, stop: Stop) -> None:
        self.folders, self.mailbox, self.stop = folders, mailbox, stop
        self.sent = {number: (parcel.attempt, parcel.round) for number, parcel in sent.items()}
        self.rounds = {number: parcel.round for number, parcel in sent.items()}
        self.asked = 0.0

    def tick(self, number: int, round: int) -> None:
        self.rounds[number] = round
        if time.monotonic() - self.asked > ASK:
            self.report([])

    def saved(self, number: int, round: int) -> None:
        import ray

        self.rounds[number] = round
        attempt, after = self.sent[number]
        self.sent[number] = attempt, round
        parcel = Parcel(attempt, after, round, pack(self.folders[number], after))
        self.report([(number, ray.put(parcel))])  # it stays on this node until it is fetched

    def report(self, parcels: list[tuple[int, Any]]) -> None:
        import ray

        self.asked = time.monotonic()
        if ray.get(self.mailbox.report.remote(self.rounds, parcels)):
            self.stop.tell(signal.SIGTERM)


def _moved(job: Job, folder: Path) -> Job:
    """A job with its folder and the user's own code on this node."""
    code = folder / CODE
    return replace(job, folder=folder, config=job.config.with_code_in(code) if code.is_dir() else job.config)


def play_on_node(batch: Batch, sent: Mapping[int, Parcel], mailbox: Any) -> dict[int, Exception]:
    """Continue a batch from the files sent; returns the errors by number."""
    stop = Stop()
    with tempfile.TemporaryDirectory(prefix="fedpick-") as place:
        folders = {number: Path(place) / str(number) for number in sent}
        courier = _Courier(folders, sent, mailbox, stop)
        courier.report([])
        for number, parcel in sent.items():
            unpack(folders[number], parcel.files)
            if parcel.code:
                unpack(folders[number] / CODE, parcel.code)
        jobs = tuple((number, _moved(job, folders[number])) for number, job in batch.jobs)
        try:
            stop.obey()
            errors = play_batch(Batch(jobs, batch.stacked), stop, Listener(courier.tick, courier.saved))
        except Stopped:
            return {}
        return {number: portable(error) for number, error in errors.items()}
