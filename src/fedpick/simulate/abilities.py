"""What a trainer may offer beyond the methods of `fedpick.core.protocol.Trainer`: a protocol for each ability.

A run takes what its trainer offers, asked with `isinstance`; what a policy or a world needs is checked when the run is
made (`fedpick.simulate.run.check_fit`). `fedpick.learn.Trainer` has all but `ScoringTrainer`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from fedpick.core.types import Choice, Floats, Ints, Outcome, Updates
from fedpick.engine.stream import Job

__all__ = [
    *("AccuracyTrainer", "DataTrainer", "DirectedTrainer", "LateTrainer", "PlacedTrainer", "ProbedTrainer"),
    *("ReportingTrainer", "RoundsTrainer", "ScoringTrainer", "SizedTrainer", "StreamTrainer", "TwoPhaseTrainer"),
]


@runtime_checkable
class DirectedTrainer(Protocol):
    """It declares which way is better, of metrics whose names do not tell: {"quality": "larger"}."""

    directions: Mapping[str, str] | None


@runtime_checkable
class SizedTrainer(Protocol):
    """It knows the size of a message with its model, in units of 1e6 bytes."""

    megabytes: float


@runtime_checkable
class ProbedTrainer(Protocol):
    """It knows what a probe carries of a message to train: 1/2 where as many numbers travel with the model."""

    probe_load: float


@runtime_checkable
class RoundsTrainer(Protocol):
    """It says why it can use neither late updates nor do without rounds; "": it can."""

    rounds_only: str


@runtime_checkable
class ReportingTrainer(Protocol):
    """It names the reports that it gives; a policy that needs another is refused before the first round."""

    reports: Sequence[str]


@runtime_checkable
class PlacedTrainer(Protocol):
    """It knows what it computes on, for the manifest: "cpu", or "gpu: NVIDIA H200"."""

    computes_on: str


@runtime_checkable
class DataTrainer(Protocol):
    """It holds the clients' data; if these have `clients`, they must be the world's."""

    data: Any


@runtime_checkable
class ScoringTrainer(Protocol):
    """It scores single clients, from which a run takes the columns worst_decile and spread."""

    def client_scores(self, model: Any, round: int) -> Floats | None:
        """A score for each client, larger is better, NaN for one without; None: there are none."""
        ...


@runtime_checkable
class AccuracyTrainer(Protocol):
    """It computes the clients' accuracies at the end of a run; its `evaluate` gives worst_decile and spread."""

    def accuracies(self, model: Any, round: int) -> Floats | None:
        """The accuracy of each client, NaN for one without examples; None: there are none."""
        ...


@runtime_checkable
class TwoPhaseTrainer(Protocol):
    """It plays rounds in two phases, for policies that need `view.norms`: all who are asked train, some send."""

    def part(self, updates: Updates, positions: Ints) -> Updates:
        """The updates of some of the clients that `train` was called with, in this order."""
        ...


@runtime_checkable
class LateTrainer(Protocol):
    """It keeps late updates, for worlds with `late` > 0, and aggregates them in a later round."""

    aggregation: str  # how updates are weighed; "fedavg" and "mean" have a place for late ones

    def keep(self, choice: Choice, updates: Updates) -> tuple[Ints, dict[str, Any]]:
        """(positions of usable updates, arrays to keep of them, a row each)."""
        ...

    def aggregate(self, model: Any, choice: Choice, outcome: Outcome, updates: Updates, delayed: Any = None) -> Any:
        """As `Trainer.aggregate`, with what `keep` gave in earlier rounds and has come in this one."""
        ...


@runtime_checkable
class StreamTrainer(Protocol):
    """It trains single tasks, and moves the model by any of their updates: for asynchronous runs (`fp.Buffered`)."""

    aggregation: str  # "fedavg": by the clients' sizes, or "mean"

    def train_tasks(
        self,
        models: Mapping[int, Any],
        tasks: Sequence[Job],
        epochs: Floats,
        rngs: Sequence[np.random.Generator],
        most: int,
    ) -> tuple[Updates, Mapping[str, Any]]:
        """The updates of these tasks, and arrays with a row of each one's update, for `move`.

        Args:
            models: by version.
            tasks: each with its client and the version that it starts from.
            epochs: of each client.
            rngs: a stream of random numbers for each task.
            most: tasks that may be trained in one call at most.
        """
        ...

    def move(self, model: Any, rows: Mapping[str, Any], weights: Floats, sent: Any = None) -> Any:
        """The model plus the sum of weight times update; with `sent`, update + sent - model in place of the update."""
        ...
