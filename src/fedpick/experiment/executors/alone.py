"""One run after another in this process, each in its folder, from wherever it is."""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedpick import devices
from fedpick.experiment.config import Config
from fedpick.experiment.executors.stopping import Stop, patient
from fedpick.store import Folder, Record

__all__ = ["Job", "Listener", "Seat", "execute", "play_alone"]

OFTEN = 0.2  # seconds between two words about how far a run is


@dataclass(frozen=True)
class Job:
    """A run to play: what it is and where it is kept.

    Args:
        config: what it is.
        folder: where it is kept; may hold its first rounds already.
        about: more for the manifest's "about", beside the device and how it was played.
    """

    config: Config
    folder: Path
    about: dict[str, Any] = field(default_factory=dict)


@dataclass
class Listener:
    """Who hears how far runs are.

    Args:
        tick: called with a job's number and the rounds reached: a few times a second at most, and at its end.
        saved: called with a job's number and the round when a checkpoint of it was written.
    """

    tick: Callable[[int, int], None] = lambda number, round: None
    saved: Callable[[int, int], None] = lambda number, round: None
    _told: float = 0.0

    def due(self) -> bool:
        """Whether it is time for another word."""
        if time.monotonic() - self._told < OFTEN:
            return False
        self._told = time.monotonic()
        return True


class Seat:
    """A run with its folder open: what is needed to play it on."""

    def __init__(self, number: int, job: Job, stop: Stop, listen: Listener) -> None:
        self.number, self.job, self.listen = number, job, listen
        with stop.at_once():  # it may load much
            self.run = job.config.build()
        self.store = Folder(job.folder, job.config.as_dict(), job.config.checkpoint_every)
        try:
            self.run.state = self.store.restore(self.run.state, self.run.world.clients)
        except BaseException:
            self.store.close()
            raise
        self._sent = self.store.saved

    @property
    def round(self) -> int:
        """The rounds it has reached."""
        return self.run.state.round

    def note(self, played: str) -> None:
        """Say in the manifest where and how it is played."""
        device = "cpu" if self.run.trainer is None else devices.describe()
        self.store.note(self.job.config.about(self.run) | self.job.about | {"device": device, "played": played})

    def keep(self, record: Record) -> None:
        """Take in a round."""
        self.store.append(record, self.run.state)
        self._tell()

    def save(self) -> None:
        """Write a checkpoint now."""
        self.store.flush(self.run.state)
        self._tell()

    def end(self) -> None:
        """Write the finished files; whoever fetches parts hears of the last one before they are joined."""
        self.save()
        self.store.finish(self.run.state)
        self.store.close()
        self.listen.tick(self.number, self.round)

    def _tell(self) -> None:
        if self.store.saved != self._sent:
            self._sent = self.store.saved
            self.listen.saved(self.number, self._sent)


def execute(
    config: Config,
    folder: str | os.PathLike[str],
    tick: Callable[[int], None] | None = None,
    about: dict[str, Any] | None = None,
) -> Path:
    """Run one configuration to its end in its folder, from wherever it is; calls `tick` with rounds reached.

    Told to stop (Ctrl-C, or SIGTERM), it ends the round, writes a checkpoint and raises Stopped; told again after two
    seconds, it stops at once, and what came after the last checkpoint is replayed when it goes on.
    """
    listen = Listener() if tick is None else Listener(lambda _, round: tick(round))
    with patient() as stop:
        _play(0, Job(config, Path(folder), about or {}), stop, listen)
    return Path(folder)


def play_alone(jobs: Sequence[tuple[int, Job]], stop: Stop, listen: Listener) -> dict[int, Exception]:
    """Play numbered jobs one after another; gives the errors of those that have one."""
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
