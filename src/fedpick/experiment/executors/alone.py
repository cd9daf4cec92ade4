"""Execute runs one after another in this process, each in its folder, continuing what exists."""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fedpick._support import devices
from fedpick.experiment.config import Config
from fedpick.experiment.executors.stopping import Stop, patient
from fedpick.simulate.abilities import AccuracyTrainer, ScoringTrainer
from fedpick.simulate.census import census
from fedpick.store import Folder, Record

__all__ = ["Job", "Listener", "Seat", "execute", "play_alone"]

OFTEN = 0.2  # seconds between two progress calls


@dataclass(frozen=True)
class Job:
    """A run to execute.

    Args:
        config: of the run.
        folder: of the run; may contain its first rounds already.
        about: further entries for the manifest's "about".
    """

    config: Config
    folder: Path
    about: dict[str, Any] = field(default_factory=dict)


@dataclass
class Listener:
    """Callbacks for the progress of runs.

    Args:
        tick: called with a job's number and its last round: a few times a second at most, and at its end.
        saved: called with a job's number and the round when a checkpoint of it was written.
    """

    tick: Callable[[int, int], None] = lambda number, round: None
    saved: Callable[[int, int], None] = lambda number, round: None
    _told: float = 0.0

    def due(self) -> bool:
        """Whether it is time for the next progress call."""
        if time.monotonic() - self._told < OFTEN:
            return False
        self._told = time.monotonic()
        return True


class Seat:
    """A run that is being executed, with its folder open."""

    def __init__(self, number: int, job: Job, stop: Stop, listen: Listener) -> None:
        self.number, self.job, self.listen = number, job, listen
        with stop.at_once():  # building may take long
            self.run = job.config.build()
        self.store = Folder(job.folder, job.config.as_dict(), job.config.checkpoint_every)
        try:
            self.run.state = self.store.restore(self.run.state, self.run.world.clients)
        except BaseException:
            self.store.close()
            raise
        self._sent = self.store.saved
        self._lacking: dict[str, str] = {}

    @property
    def round(self) -> int:
        """The last round."""
        return self.run.state.round

    def note(self, played: str) -> None:
        """Write to the manifest where and how the run is executed."""
        device = "cpu" if self.run.trainer is None else devices.describe()
        self.store.note(self.job.config.about(self.run) | self.job.about | {"device": device, "played": played})
        if not (self.store.path / "clients.parquet").is_file():
            self.store.describe_clients(census(self.run.world, self.run.seed))

    def keep(self, record: Record) -> None:
        """Store a round."""
        self.store.append(record, self.run.state)
        if not dict(record.lacking).items() <= self._lacking.items():
            self._lacking |= dict(record.lacking)
            self.store.note({"lacking": self._lacking})
        self.tell()

    def save(self) -> None:
        """Write a checkpoint now."""
        self.store.flush(self.run.state)
        self.tell()

    def end(self) -> None:
        """Write the final files; `listen.saved` is called for the last part before the parts are joined."""
        self.save()
        self.measure()
        self.finish()
        self.listen.tick(self.number, self.round)

    def measure(self) -> None:
        """Add each client's accuracy at the end to the table of clients, if the trainer computes it."""
        trainer, model, each = self.run.trainer, self.run.state.model, None
        if isinstance(trainer, AccuracyTrainer):
            each = trainer.accuracies(model, self.round)
        elif isinstance(trainer, ScoringTrainer):
            each = trainer.client_scores(model, self.round)
        if each is not None:
            found = census(self.run.world, self.run.seed) | {"accuracy": np.asarray(each, dtype=np.float32)}
            self.store.describe_clients(found, self.round)
            self.listen.saved(self.number, self.round)

    def finish(self) -> None:
        """Write the final files, and close the folder."""
        self.store.finish(self.run.state)
        self.store.close()

    def tell(self) -> None:
        """Call `listen.saved` if a checkpoint was written since the last call."""
        if self.store.saved != self._sent:
            self._sent = self.store.saved
            self.listen.saved(self.number, self._sent)


def execute(
    config: Config,
    folder: str | os.PathLike[str],
    tick: Callable[[int], None] | None = None,
    about: dict[str, Any] | None = None,
) -> Path:
    """Execute one run in its folder until it is complete, continuing what exists; calls `tick` with the last round.

    After a signal to stop (Ctrl-C, or SIGTERM), it finishes the round, writes a checkpoint and raises Stopped. A second
    signal after two seconds stops it at once; rounds after the last checkpoint are then played again on resume.
    """
    listen = Listener() if tick is None else Listener(lambda _, round: tick(round))
    with patient() as stop:
        _play(0, Job(config, Path(folder), about or {}), stop, listen)
    return Path(folder)


def play_alone(jobs: Sequence[tuple[int, Job]], stop: Stop, listen: Listener) -> dict[int, Exception]:
    """Execute numbered jobs one after another; returns the errors by number."""
    errors: dict[int, Exception] = {}
    for number, job in jobs:
        try:
            _play(number, job, stop, listen)
        except Exception as error:
            errors[number] = error
    return errors


def _play(number: int, job: Job, stop: Stop, listen: Listener) -> None:
    seat = Seat(number, job, stop, listen)
    with seat.store:
        if seat.round < job.config.rounds:
            seat.note("alone")
            listen.tick(number, seat.round)  # the first round compiles, which may take seconds
        for record in seat.run.rounds(job.config.rounds):
            seat.keep(record)
            if stop.came is not None:
                seat.save()
                break
            if listen.due():
                listen.tick(number, seat.round)
        if seat.round >= job.config.rounds:
            seat.end()
    stop.obey()
