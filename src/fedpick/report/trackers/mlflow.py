"""MLflow: a run per run, in a store such as "sqlite:///mlflow.db"."""

from pathlib import Path
from typing import Any

from fedpick.report._extras import needed
from fedpick.report.trackers.source import Source

__all__ = ["MLflow"]

BATCH = 900  # metrics in a request; MLflow takes 1,000
KEY, ROUNDS = "fedpick.key", "fedpick.rounds"  # tags of a run


class MLflow:
    """Metrics by round; what was copied is known from the runs' tags.

    Args:
        store: where MLflow keeps its runs.
        experiment: name of MLflow's experiment.
    """

    def __init__(self, store: str, experiment: str) -> None:
        self._mlflow = needed("mlflow.entities", "tracking in MLflow", "trackers")
        tracking = needed("mlflow.tracking", "tracking in MLflow", "trackers")
        needed("sqlalchemy", "tracking in MLflow", "trackers")
        if store.startswith("sqlite:///"):
            Path(store.removeprefix("sqlite:///")).parent.mkdir(parents=True, exist_ok=True)
        self._client: Any = tracking.MlflowClient(store)
        found = self._client.get_experiment_by_name(experiment)
        self._experiment = found.experiment_id if found else self._client.create_experiment(experiment)

    def copy(self, source: Source) -> int:
        """Copy the rounds that were not copied before; returns their number."""
        there = self._client.search_runs([self._experiment], f"tags.`{KEY}` = '{source.key}'", max_results=1)
        after = int(there[0].data.tags.get(ROUNDS, 0)) if there else 0
        if source.last <= after:
            return 0
        if there:
            run = there[0].info.run_id
        else:
            run = self._client.create_run(self._experiment, run_name=source.name, tags={KEY: source.key}).info.run_id
            params = [self._mlflow.Param(key, value) for key, value in source.settings.items()]
            self._client.log_batch(run, params=params)
        new, clock, waiting = 0, 0.0, []
        for number, clock, metrics in source.rounds(after):
            waiting += [self._mlflow.Metric(tag, value, int(1000 * clock), number) for tag, value in metrics.items()]
            new += 1
        scores = source.scores().items()
        waiting += [self._mlflow.Metric(tag, value, int(1000 * clock), source.last) for tag, value in scores]
        for at in range(0, len(waiting), BATCH):
            self._client.log_batch(run, metrics=waiting[at : at + BATCH])
        self._client.set_tag(run, ROUNDS, str(source.last))
        self._client.set_terminated(run)
        return new

    def close(self) -> None:
        """Nothing is open."""
