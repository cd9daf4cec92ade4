"""Copy records into an experiment tracker: TensorBoard, MLflow or Weights & Biases.

    fp.track("fedpick-runs/compare", to="tensorboard")
    fp.track("/var/fedpick/records", to="mlflow", where="sqlite:///mlflow.db")

It reads what simulations, sessions and servers write, so that all are tracked in the same way; what was copied before
is not copied again.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path

from fedpick.core.errors import StoreError, unknown_name
from fedpick.report.results import Results
from fedpick.report.runs import find_runs, planned_runs
from fedpick.report.trackers.source import Source, Tracker, source_of
from fedpick.report.watching import find_leniently, states_of

__all__ = ["TRACKERS", "Source", "Tracker", "track"]

TRACKERS = ("tensorboard", "mlflow", "wandb")
EVERY = 2.0  # seconds, while runs go on


def _tracker(to: str, where: str | None, project: str) -> Tracker:
    if to == "tensorboard":
        from fedpick.report.trackers.tensorboard import TensorBoard

        return TensorBoard(Path(where or "fedpick-tracked/tensorboard"))
    if to == "mlflow":
        from fedpick.report.trackers.mlflow import MLflow

        return MLflow(where or "sqlite:///fedpick-tracked/mlflow.db", project)
    if to == "wandb":
        from fedpick.report.trackers.wandb import WandB

        return WandB(Path(where or "fedpick-tracked"), project)
    raise unknown_name("tracker", to, list(TRACKERS))


def track(
    runs: str | os.PathLike[str] | Results,
    to: str,
    where: str | os.PathLike[str] | None = None,
    *,
    project: str = "fedpick",
    follow: bool = False,
    tell: Callable[[str, int], None] | None = None,
) -> int:
    """Copy the rounds of runs into a tracker; returns the number of rounds that were new.

    Every column of a round is a metric with the round as its step; the scores up to the last round (fairness, ...)
    are metrics named score/...; the configuration goes along.

    Args:
        runs: the folder of a run, of comparisons or of a server's records, or results.
        to: "tensorboard", "mlflow" or "wandb" (offline; `wandb sync` sends it).
        where: a folder; of MLflow, a store such as "sqlite:///mlflow.db" or the address of a server. None: in
            fedpick-tracked/.
        project: name of MLflow's experiment, or of the project of Weights & Biases.
        follow: whether to go on while runs go on; until they have ended.
        tell: called with a run's name and the number of its new rounds.
    """
    tracker = _tracker(to, None if where is None else os.fspath(where), project)
    total = 0
    try:
        while True:
            if isinstance(runs, Results):
                infos = runs.runs
            else:
                infos = find_leniently(Path(runs))[0] if follow else find_runs(runs)
            states, _ = states_of(infos)
            for info in infos:
                if states[info.folder][1] == 0:
                    continue  # no rounds yet
                source = source_of(info)
                try:
                    new = tracker.copy(source)
                except StoreError:  # while runs go on, files may be joined in this moment
                    if not follow:
                        raise
                    new = 0
                total += new
                if tell is not None and new:
                    tell(source.name, new)
            waiting = 0 if isinstance(runs, Results) else len(planned_runs(Path(runs))) - len(infos)
            going = not infos or waiting > 0 or any(state in ("running", "silent") for state, _ in states.values())
            if not follow or not going:
                return total
            time.sleep(EVERY)
    finally:
        tracker.close()
