"""A run to execute, and a run that is being executed in its folder."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fedpick._support import devices
from fedpick.experiment.config import Config
from fedpick.experiment.executors.signals import Stop
from fedpick.simulate.abilities import AccuracyTrainer, PlacedTrainer, ScoringTrainer
from fedpick.simulate.census import census
from fedpick.store import Folder, Record

__all__ = ["Job", "Listener", "OpenRun"]

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
    _called: float = 0.0

    def due(self) -> bool:
        """Whether it is time for the next progress call."""
        if time.monotonic() - self._called < OFTEN:
            return False
        self._called = time.monotonic()
        return True


class OpenRun:
    """A run that is being executed, with its folder open."""

    def __init__(self, number: int, job: Job, stop: Stop, listen: Listener) -> None:
        self.number, self.job, self.listen = number, job, listen
        with stop.at_once():  # building may take long
            self.simulation = job.config.build()
        self.store = Folder(job.folder, job.config.as_dict(), job.config.checkpoint_every)
        try:
            self.simulation.state = self.store.restore(self.simulation.state, self.simulation.world.clients)
        except BaseException:
            self.store.close()
            raise
        self._told = self.store.saved
        self._lacking: dict[str, str] = {}

    @property
    def round(self) -> int:
        """The last round."""
        return self.simulation.state.round

    def note(self, played: str) -> None:
        """Write to the manifest where and how the run is executed."""
        trainer = self.simulation.trainer
        if isinstance(trainer, PlacedTrainer):
            device = trainer.computes_on
        else:
            device = "cpu" if trainer is None else devices.describe()
        self.store.note(self.job.config.about(self.simulation) | self.job.about | {"device": device, "played": played})
        if not (self.store.path / "clients.parquet").is_file():
            self.store.describe_clients(census(self.simulation.world, self.simulation.seed))

    def keep(self, record: Record) -> None:
        """Store a round."""
        self.store.append(record, self.simulation.state)
        if not dict(record.lacking).items() <= self._lacking.items():
            self._lacking |= dict(record.lacking)
            self.store.note({"lacking": self._lacking})
        self.tell()

    def save(self) -> None:
        """Write a checkpoint now."""
        self.store.flush(self.simulation.state)
        self.tell()

    def end(self) -> None:
        """Write the final files; `listen.saved` is called before the parts are joined."""
        self.save()
        self.measure()
        self.finish()
        self.listen.tick(self.number, self.round)

    def measure(self) -> None:
        """Add each client's accuracy at the end to the table of clients, if the trainer computes it."""
        trainer, model, each = self.simulation.trainer, self.simulation.state.model, None
        if isinstance(trainer, AccuracyTrainer):
            each = trainer.accuracies(model, self.round)
        elif isinstance(trainer, ScoringTrainer):
            each = trainer.client_scores(model, self.round)
        if each is not None:
            clients = census(self.simulation.world, self.simulation.seed)
            self.store.describe_clients(clients | {"accuracy": np.asarray(each, dtype=np.float32)}, self.round)
            self.listen.saved(self.number, self.round)

    def finish(self) -> None:
        """Write the final files, and close the folder."""
        self.store.finish(self.simulation.state)
        self.store.close()

    def tell(self) -> None:
        """Call `listen.saved` if a checkpoint was written since the last call."""
        if self.store.saved != self._told:
            self._told = self.store.saved
            self.listen.saved(self.number, self._told)
