"""Policies compared, from Python: plan, play what is missing, read the results.

>>> import tempfile
>>> results = compare(["uniform", "e3cs(quota=0.5)"], data=None, cohort_size=5, seeds=2, rounds=20,
...                   out=tempfile.mkdtemp(), executor="serial")
>>> len(results.frame())
4
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fedpick import atomic
from fedpick.errors import ConfigError, FedpickError, MissingError
from fedpick.experiment.plan import Experiment
from fedpick.experiment.playing import Work, carry_out, work_of
from fedpick.experiment.shelf import Shelf
from fedpick.report.results import Results

__all__ = ["OUT", "compare", "results_of", "write"]

OUT = Path("fedpick-runs") / "compare"  # where comparisons are kept unless said: they share what they have in common


def compare(
    policy: Any,
    *,
    world: Any = "volatile",
    cohort_size: Any = 20,
    data: Any = "synthetic(1, 1)",
    train: Mapping[str, Any] | None = None,
    seeds: Any = 5,
    rounds: int = 500,
    out: str | os.PathLike[str] | None = None,
    target: float | None = None,
    executor: str = "auto",
    workers: int | None = None,
    device: str = "auto",
    tell: Callable[[int, int], None] | None = None,
) -> Results:
    """Compare policies over seeds; runs that are there already are not played again.

    Args:
        policy: texts such as "e3cs(quota=0.5)" or "my_policy.py:EpsGreedy(eps=0.1)", policies, or classes of policies;
            the first is the one that the others are compared with.
        world: one or several names such as "volatile", texts such as "volatile(deadline=9)", or `fp.World`s.
        cohort_size: one or several.
        data: one or several names such as "digits", settings of [data], or `fp.data.Federated`; None trains nothing.
        train: settings of [train], such as {"model": "mlp(hidden=(64,))", "lr": 0.1}.
        seeds: how many, or which.
        rounds: of every run; more than before goes on where the runs ended.
        out: folder of runs and plans; "fedpick-runs/compare" unless said.
        target: accuracy to count rounds and hours to; see `Results`.
        executor: "auto", "serial", "processes", "stacked" or "ray".
        workers: processes; None is one per core.
        device: "auto", "cpu" or "gpu".
        tell: called with the index of a run that is played and the round that it has reached.
    """
    experiment = Experiment(
        policy=policy,
        world=world,
        cohort_size=cohort_size,
        data=data,
        train=dict(train or {}),
        seeds=seeds,
        rounds=rounds,
    )
    work = work_of(experiment, Shelf(OUT if out is None else out), executor, device)
    carry_out(work, executor=executor, workers=workers, device=device, tell=tell)
    return results_of(work, target=target)


def results_of(work: Work, *, target: float | None = None) -> Results:
    """The results of a plan whose runs are there, in the plan's order."""
    return Results(work.folders, rounds=work.experiment.rounds, target=target)


def write(results: Results, folder: Path, name: str) -> tuple[list[str], list[str]]:
    """Write name.json, name.csv and the plot; returns the files' names, and what could not be made and why.

    All of them can be made again from the runs, so that nothing is lost for want of a plot.
    """
    made, missed = [], []

    def attempt(file: str, make: Callable[[Path], None]) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with atomic.replacing(folder / file) as temporary:
                make(temporary)
            made.append(file)
        except MissingError as error:
            missed.append(str(error))
        except OSError as error:
            raise ConfigError(
                f"{folder}: cannot write {file} ({error.strerror}); the runs are whole. Free space or choose another "
                "folder with --out"
            ) from None

    attempt(f"{name}.json", lambda path: _text(path, results.table("json")))
    attempt(f"{name}.csv", lambda path: _text(path, results.table("csv")))
    try:
        figure = results.plot()
    except FedpickError as error:
        missed.append(str(error))
        return made, missed
    for kind in ("png", "svg"):
        attempt(f"{name}.{kind}", lambda path, kind=kind: figure.savefig(path, format=kind))  # type: ignore[misc]
    return made, missed


def _text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
