"""Copy records into an experiment tracker: TensorBoard, MLflow or Weights & Biases.

    fp.track("fedpick-runs/compare", to="tensorboard")
    fp.track("/var/fedpick/records", to="mlflow", where="sqlite:///mlflow.db")

It reads what simulations, sessions and servers write, so that all are tracked in the same way. A round is copied once.
"""

import hashlib
import json
import math
import os
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from fedpick._support import atomic
from fedpick._support.extras import needed
from fedpick.core.errors import StoreError, printable, unknown_name
from fedpick.report.results import Results
from fedpick.report.run_data import RunData, read_runs
from fedpick.report.runs import RunInfo, find_runs, planned_runs, readable_runs
from fedpick.report.states import run_states
from fedpick.store.manifest import read_manifest

__all__ = ["TRACKERS", "Marks", "Source", "source_of", "tags", "track"]

TRACKERS = ("tensorboard", "mlflow", "wandb")
EVERY = 2.0  # seconds between two looks at runs that go on
LONGEST_TAG, LONGEST_TEXT = 200, 450  # characters: of a metric's name, and of a setting; MLflow takes 250 and 500
MARKS = "fedpick-tracked.json"
BATCH = 900  # metrics in a request to MLflow, which takes 1,000
KEY, ROUNDS = "fedpick.key", "fedpick.rounds"  # tags of a run of MLflow

Round = tuple[int, float, dict[str, float]]  # number, clock and metrics


# ---- runs, under names that every tracker accepts


@dataclass(frozen=True, eq=False)
class Source:
    """A run: its key (which never changes), its name, its settings, and its rounds."""

    info: RunInfo
    key: str
    name: str
    settings: Mapping[str, str]

    @cached_property
    def _data(self) -> RunData:
        return read_runs([self.info], each=True)[0][0]

    @property
    def last(self) -> int:
        """The last round."""
        return self._data.reached

    def rounds(self, after: int) -> Iterator[Round]:
        """Number, clock and metrics of each round after this one; what is unknown or not finite is left out."""
        table = self._data.all_rounds
        names = tags([name for name in table.column_names if name != "round"])
        for row in table.filter(table["round"].to_numpy() > after).to_pylist():
            found = {names[key]: float(value) for key, value in row.items() if key in names and value is not None}
            yield int(row["round"]), float(row["clock"]), {k: v for k, v in found.items() if math.isfinite(v)}

    def scores(self) -> dict[str, float]:
        """The scores up to the last round."""
        found = self._data.scores
        names = tags(list(found))
        return {f"score/{names[key]}": float(value) for key, value in found.items() if math.isfinite(value)}


def tags(names: list[str]) -> dict[str, str]:
    """Names of metrics as every tracker accepts them, no two the same.

    >>> tags(["accuracy", "<b>", "[b]"])
    {'accuracy': 'accuracy', '<b>': '_b_', '[b]': '_b__2'}
    """
    found: dict[str, str] = {}
    taken: set[str] = set()
    for name in names:
        tag = stem = re.sub(r"[^A-Za-z0-9_.\-]", "_", name)[:LONGEST_TAG] or "_"
        number = 2
        while tag in taken:
            tag, number = f"{stem}_{number}", number + 1
        taken.add(tag)
        found[name] = tag
    return found


def source_of(info: RunInfo) -> Source:
    """A run as a tracker gets it."""
    manifest = read_manifest(info.folder)
    where = "" if info.simulated else str(info.folder.resolve())  # two servers may have the same settings
    identity = json.dumps([manifest["config"], where], sort_keys=True)
    identity = re.sub(r'"(rounds|checkpoint_every)": \d+(, )?', "", identity)  # a run may be continued
    known = {key: value for key, value in info.settings.items() if value not in (None, "")}
    settings = {key: str(value)[:LONGEST_TEXT] for key, value in known.items()}
    settings |= {"folder": str(info.folder)[-LONGEST_TEXT:], "fedpick": str(manifest.get("fedpick"))[:LONGEST_TEXT]}
    settings = {key: printable(value) for key, value in settings.items()}
    name = printable(f"{info.policy[:LONGEST_TAG]} seed {info.seed}")
    return Source(info, hashlib.blake2b(identity.encode(), digest_size=8).hexdigest(), name, settings)


class Marks:
    """The last round that was copied of each run into a tracker, in a file in the folder of the copies."""

    def __init__(self, folder: Path, tracker: str) -> None:
        self._file, self._tracker = folder / MARKS, tracker
        atomic.make_folder(folder)

    def _all(self) -> dict[str, Any]:
        try:
            found = json.loads(self._file.read_text(encoding="utf-8"))
            return found if isinstance(found, dict) else {}
        except (OSError, ValueError):
            return {}

    def get(self, key: str) -> int:
        """The last round of this run that was copied; 0 if none was."""
        found = self._all().get(self._tracker, {}).get(key, 0)
        return found if isinstance(found, int) else 0

    def set(self, key: str, last: int) -> None:
        """Remember the last round that was copied."""
        found = self._all()
        found.setdefault(self._tracker, {})[key] = last
        atomic.write_text(self._file, json.dumps(found, indent=1) + "\n")


# ---- the trackers


class _Tracker(ABC):
    """A program that shows metrics of runs, into which rounds are copied."""

    def copy(self, source: Source) -> int:
        """Copy the rounds that were not copied before; returns their number."""
        after = self._last_copied(source.key)
        rounds = list(source.rounds(after))
        if rounds:
            self._add(source, rounds, begun=after > 0)
        return len(rounds)

    @abstractmethod
    def _last_copied(self, key: str) -> int:
        """The last round of a run that was copied; 0 if none was."""

    @abstractmethod
    def _add(self, source: Source, rounds: Sequence[Round], begun: bool) -> None:
        """Add rounds and the scores up to the last; `begun` says whether some rounds were copied before."""


class TensorBoard(_Tracker):
    """An event file per run and call in TensorBoard's --logdir, readable without TensorFlow.

    A step's time is the run's clock, so that TensorBoard's "relative" time is that of the run.
    """

    def __init__(self, folder: Path) -> None:
        self._events = needed("tensorboard.compat.proto.event_pb2", "tracking in TensorBoard", "trackers")
        self._summaries = needed("tensorboard.compat.proto.summary_pb2", "tracking in TensorBoard", "trackers")
        self._text = needed("tensorboard.plugins.text.summary_v2", "tracking in TensorBoard", "trackers")
        self._writers = needed("tensorboard.summary.writer.event_file_writer", "tracking in TensorBoard", "trackers")
        self._folder, self._marks = folder, Marks(folder, "tensorboard")

    def _last_copied(self, key: str) -> int:
        return self._marks.get(key)

    def _add(self, source: Source, rounds: Sequence[Round], begun: bool) -> None:
        stem = "".join(char if char.isalnum() or char in "-_.=" else "-" for char in source.name)[:80]
        writer = self._writers.EventFileWriter(str(self._folder / f"{stem}_{source.key[:8]}"))
        if not begun:
            lines = json.dumps(source.settings, indent=1).splitlines()
            text = self._text.text_pb("settings", "\n".join("    " + line for line in lines))  # Markdown: code
            writer.add_event(self._events.Event(step=0, wall_time=0.0, summary=text))
        summary = self._summaries.Summary
        for step, clock, metrics in [*rounds, (source.last, rounds[-1][1], source.scores())]:
            values = [summary.Value(tag=tag, simple_value=value) for tag, value in metrics.items()]
            writer.add_event(self._events.Event(step=step, wall_time=clock, summary=summary(value=values)))
        writer.close()
        self._marks.set(source.key, source.last)


class MLflow(_Tracker):
    """A run of MLflow for each run, in a store and an experiment; its tags say what was copied."""

    def __init__(self, store: str, experiment: str) -> None:
        self._mlflow = needed("mlflow.entities", "tracking in MLflow", "trackers")
        tracking = needed("mlflow.tracking", "tracking in MLflow", "trackers")
        needed("sqlalchemy", "tracking in MLflow", "trackers")
        if store.startswith("sqlite:///"):
            Path(store.removeprefix("sqlite:///")).parent.mkdir(parents=True, exist_ok=True)
        self._client: Any = tracking.MlflowClient(store)
        found = self._client.get_experiment_by_name(experiment)
        self._experiment = found.experiment_id if found else self._client.create_experiment(experiment)

    def _find(self, key: str) -> Any:
        found = self._client.search_runs([self._experiment], f"tags.`{KEY}` = '{key}'", max_results=1)
        return found[0] if found else None

    def _last_copied(self, key: str) -> int:
        run = self._find(key)
        return 0 if run is None else int(run.data.tags.get(ROUNDS, 0))

    def _add(self, source: Source, rounds: Sequence[Round], begun: bool) -> None:
        run = self._find(source.key)
        if run is None:
            run = self._client.create_run(self._experiment, run_name=source.name, tags={KEY: source.key})
            params = [self._mlflow.Param(key, value) for key, value in source.settings.items()]
            self._client.log_batch(run.info.run_id, params=params)
        id = run.info.run_id
        found = [
            self._mlflow.Metric(tag, value, int(1000 * clock), number)
            for number, clock, metrics in [*rounds, (source.last, rounds[-1][1], source.scores())]
            for tag, value in metrics.items()
        ]
        for at in range(0, len(found), BATCH):
            self._client.log_batch(id, metrics=found[at : at + BATCH])
        self._client.set_tag(id, ROUNDS, str(source.last))
        self._client.set_terminated(id)


class WandB(_Tracker):
    """Offline runs of Weights & Biases, in wandb/ in a folder; `wandb sync` sends them, nothing here does.

    Rounds that are copied later are a second part of the same run: `wandb sync --append`.
    """

    def __init__(self, folder: Path, project: str) -> None:
        self._wandb: Any = needed("wandb", "tracking in Weights & Biases", "trackers")
        self._folder, self._project, self._marks = folder, project, Marks(folder, "wandb")

    def _last_copied(self, key: str) -> int:
        return self._marks.get(key)

    def _add(self, source: Source, rounds: Sequence[Round], begun: bool) -> None:
        quiet = self._wandb.Settings(
            silent=True, console="off", disable_git=True, disable_code=True, x_disable_stats=True, x_disable_meta=True
        )
        run = self._wandb.init(
            mode="offline",
            dir=str(self._folder),
            project=self._project,
            name=source.name,
            id=source.key,
            config=dict(source.settings),
            reinit="create_new",
            settings=quiet,
        )
        for number, _, metrics in rounds:
            run.log(metrics, step=number)
        for tag, value in source.scores().items():
            run.summary[tag] = value
        run.finish()
        self._marks.set(source.key, source.last)


def _tracker(to: str, where: str | None, project: str) -> _Tracker:
    if to == "tensorboard":
        return TensorBoard(Path(where or "fedpick-tracked/tensorboard"))
    if to == "mlflow":
        return MLflow(where or "sqlite:///fedpick-tracked/mlflow.db", project)
    if to == "wandb":
        return WandB(Path(where or "fedpick-tracked"), project)
    raise unknown_name("tracker", to, list(TRACKERS))


def _infos(runs: str | os.PathLike[str] | Results, follow: bool) -> list[RunInfo]:
    if isinstance(runs, Results):
        return runs.runs
    return readable_runs(Path(runs))[0] if follow else find_runs(runs)


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
    are metrics named score/...; the configuration is copied, too.

    Args:
        runs: the folder of a run, of comparisons or of a server's records, or results.
        to: "tensorboard", "mlflow" or "wandb" (offline; `wandb sync` sends it).
        where: a folder; of MLflow, a store such as "sqlite:///mlflow.db" or the address of a server. None: in
            fedpick-tracked/.
        project: name of MLflow's experiment, or of the project of Weights & Biases.
        follow: whether to go on until the runs have ended.
        tell: called with a run's name and the number of its new rounds.
    """
    tracker = _tracker(to, None if where is None else os.fspath(where), project)
    total = 0
    while True:
        infos = _infos(runs, follow)
        states = run_states(infos)
        for info in infos:
            if states[info.folder].reached == 0:
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
        going = not infos or waiting > 0 or any(state.name in ("running", "silent") for state in states.values())
        if not follow or not going:
            return total
        time.sleep(EVERY)
