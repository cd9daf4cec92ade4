"""Rounds of a deployment in the same store as the simulator's, so that `fedpick report` shows them."""

import logging
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from time import monotonic
from typing import Any

from fedpick.errors import StoreError
from fedpick.flower.roster import Roster
from fedpick.round import Record
from fedpick.store import ROUND_COLUMNS, Tables

__all__ = ["ENGINE", "Recording", "label", "metrics"]

log = logging.getLogger("flwr.fedpick")

ENGINE = "flower"  # what the manifest says of where the rounds were played
WRITE_EVERY = 2.0  # seconds
JOIN_EVERY = 100  # rounds
# What Flower's own templates call what a report calls otherwise.
TRAINED = {"loss": "train_loss", "train-loss": "train_loss"}
EVALUATED = {"eval_acc": "accuracy", "acc": "accuracy", "eval_loss": "test_loss", "loss": "test_loss"}


def label(policy: Any) -> str:
    """A policy as people write it: its class and the plain settings that are not the defaults."""
    if not is_dataclass(policy):
        return type(policy).__name__
    said = []
    for entry in fields(policy):
        value = getattr(policy, entry.name)
        if is_dataclass(value):
            said.append(label(value))
        elif isinstance(value, str | int | float) and entry.name != "cohort_size" and value != entry.default:
            said.append(f"{entry.name}={value!r}")
    return type(policy).__name__ + (f"({', '.join(said)})" if said else "")


def metrics(measured: Mapping[str, Any], trained: bool = False) -> dict[str, float]:
    """The numbers of a MetricRecord under the names of a report."""
    found, aliases = {}, TRAINED if trained else EVALUATED
    for name, value in measured.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue  # lists have no column
        name = aliases.get(name, name)
        found[f"metric_{name}" if name in ROUND_COLUMNS else name] = float(value)
    return found


class Recording:
    """A run's folder, open while start() runs.

    Args:
        path: of the folder.
        config: what the manifest says of the run.
        roster: whose rounds they are.
        replayed: the last rounds that the state folder remembers; those that are not in the store yet are added.
    """

    def __init__(self, path: Path, config: dict[str, Any], roster: Roster, replayed: list[Record]) -> None:
        self.roster = roster
        self.tables = Tables(path, config)
        self._waiting: list[Record] = []
        self._written = 0.0  # when
        try:
            reached = self.tables.reached
            if reached > roster.round:
                raise StoreError(
                    f"{path}: holds rounds up to {reached}, but this server has played {roster.round}; give records= "
                    "another folder, or state= the folder that goes with this one"
                )
        except BaseException:
            self.tables.close()
            raise
        self._joined = reached
        for record in replayed:
            if record.round > reached:
                self.add(record)
        if reached + len(self._waiting) < roster.round:
            log.warning("%s has no rounds between %d and %d", path, reached, roster.round + 1)

    def add(self, record: Record) -> None:
        """Take a round; those of some seconds are written together."""
        self._waiting.append(record)
        if monotonic() - self._written >= WRITE_EVERY:
            self.flush()

    def flush(self) -> None:
        """Write what waits; what cannot be written now is tried again with the next."""
        if not self._waiting:
            return
        names = dict.fromkeys(name for record in self._waiting for name in record.metrics)
        try:
            self.tables.write(self._waiting, list(names))
            self._waiting, self._written = [], monotonic()
            if self.roster.round - self._joined >= JOIN_EVERY:
                self._join()
        except StoreError as error:
            log.error("%s", error)

    def _join(self) -> None:
        self.tables.name_clients(self.roster.names)
        if self.roster.round:
            self.tables.join(self.tables.reached)
            self._joined = self.tables.reached

    def close(self) -> None:
        """Write and join everything, and let others in."""
        try:
            self.flush()
            self._join()
        except StoreError as error:
            log.error("%s", error)
        finally:
            self.tables.close()
