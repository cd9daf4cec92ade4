"""Comparisons: the one function that makes the missing runs of a plan and loads the results, and `fp.compare`.

>>> import tempfile
>>> results = compare(["uniform", "e3cs(quota=0.5)"], data=None, cohort_size=5, seeds=2, rounds=20,
...                   out=tempfile.mkdtemp(), executor="serial")
>>> len(results.frame())
4
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedpick.core.errors import ConfigError
from fedpick.core.metrics import read_target
from fedpick.experiment import executors
from fedpick.experiment.config import Config
from fedpick.experiment.files import DEFAULT_DATA
from fedpick.experiment.identity import policy_text
from fedpick.experiment.plan import Experiment
from fedpick.experiment.shelf import Shelf
from fedpick.experiment.work import work_of
from fedpick.experiment.worlds import DEFAULT_WORLD
from fedpick.report.labels import read_labels, resolve
from fedpick.report.results import Results
from fedpick.report.runs import stored_labels

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["OUT", "compare", "make_results", "make_run"]

OUT = Path("fedpick-runs") / "compare"  # default folder of comparisons, which share common runs
# Modules that results need and that load slowly; Arrow uses pandas if it is there.
_SLOW = ("pandas", "scipy.special", "jinja2", "matplotlib.figure", "matplotlib.backends.backend_agg",
         "matplotlib.backends.backend_svg")  # fmt: skip
Tell = Callable[[int, int], None]


def compare(
    policy: Any,
    *,
    world: Any = DEFAULT_WORLD,
    cohort_size: Any = 20,
    data: Any = DEFAULT_DATA,
    model: Any = None,
    train: Mapping[str, Any] | None = None,
    seeds: Any = 5,
    rounds: int = 500,
    pace: Any = None,
    out: str | os.PathLike[str] | None = None,
    target: Any = None,
    metric: str | None = None,
    label: Mapping[Any, str] | None = None,
    executor: str = "auto",
    workers: int | None = None,
    device: str = "auto",
    tell: Tell | None = None,
) -> Results:
    """Compare policies over seeds; existing runs are reused.

    On a terminal, stderr shows the progress. Ctrl-C ends it after the rounds being played: a `KeyboardInterrupt` is
    raised when they are written, and the same call continues.

    Args:
        policy: texts such as "e3cs(quota=0.5)" or "my_policy.py:EpsGreedy(eps=0.1)", policies, or classes of policies;
            the others are compared with the first.
        world: one or several names such as "volatile", texts such as "volatile(deadline=9)", or `fp.World`s.
        cohort_size: one or several numbers of clients per round.
        data: one or several names such as "digits" or "mine.parquet(client='site')", settings of [data], or
            `fp.data.Federated`; or what `fp.data.read` takes: a list or dict of PyTorch's data sets (one for each
            client), a data set of Hugging Face, a partitioner of flwr-datasets, a pandas.DataFrame. With settings:
            {"name": frame, "client": "site", "test": other, "hold_out": 0.1}. None: no training.
        model: what is trained: "mlp(hidden=(64,))", "net.py:Net", a `torch.nn.Module` class, a function that makes
            such a module, or a `fedpick.learn.Model`; None: what `train` says, or the data's usual one.
        train: settings of [train], such as {"lr": 0.1, "batch": 32}.
        seeds: a number of seeds, or a list of seeds.
        rounds: of every run; existing runs with fewer rounds are continued. Under `fp.Buffered`, moves of the model.
        pace: one or several: `fp.Buffered(concurrency=30, size=10)`, `fp.Rounds(deadline=30)`, or texts such as
            "buffered(concurrency=30, size=10)"; None: rounds with the world's settings.
        out: folder of runs and plans; None: "fedpick-runs/compare".
        target: for the columns rounds_to and hours_to: 0.85, "macro_f1=0.8" or {"perplexity": 20}; see `Results`.
        metric: the main one, which is first in tables and figures, such as "macro_f1"; fedpick's trainer measures it
            besides what `train` says. It may be a function of yours: "my.py:score". None: see `Results`.
        label: names of policies in tables and legends, such as {"my.py:X": "Ours"}; kept with the runs.
        executor: "auto", "serial", "processes", "stacked" or "ray".
        workers: number of processes; None: one per core.
        device: "auto", "cpu" or "gpu".
        tell: called with the index of a missing run and its last round, instead of showing the progress.
    """
    from fedpick.report.progress import terminal  # rich loads slowly

    if model is not None:
        train = {**(train or {}), "model": model}
    if not isinstance(out, str | os.PathLike | None):
        raise ConfigError(f"out = {out!r}, but must be the path of a folder, or None for {str(OUT)!r}")
    return make_results(
        Experiment(policy, world, cohort_size, data, train, seeds, rounds, pace=pace),
        OUT if out is None else out,
        target=target,
        metric=metric,
        label=label,
        executor=executor,
        workers=workers,
        device=device,
        console=terminal() if tell is None else None,
        tell=tell,
    )


def make_results(
    experiment: Experiment,
    folder: str | os.PathLike[str],
    *,
    target: Any = None,
    metric: str | None = None,
    label: Any = None,
    executor: str = "auto",
    workers: int | None = None,
    device: str = "auto",
    console: "Console | None" = None,
    tell: Tell | None = None,
) -> Results:
    """Make the missing runs of a plan, and load the results of all; after a signal to stop, `Stopped` is raised.

    Args:
        experiment: the plan.
        folder: of runs and plans.
        label: names of policies: texts such as "my.py:X=Ours", or a mapping from policies, as text or as objects.
        console: shows the progress; None shows nothing.
        target, metric, executor, workers, device, tell: as for `compare`.
    """
    experiment, metric = experiment.measuring(metric)
    goal = read_target(target, metric)  # before the runs, which may take hours
    names, shelf = _labels(experiment, label), Shelf(folder)
    try:
        with executors.staying():
            with (
                nullcontext() if console is None else console.status("finding existing runs, and building missing ones")
            ):
                work = work_of(experiment, shelf, executor, device, workers)
            if names:
                shelf.label(names)
            found = len(work.configs) - len(work.jobs)
            if console is not None and found and work.jobs:
                console.print(
                    f"{found} of {len(work.configs)} runs exist; {len(work.jobs)} are to be made or continued"
                )
            with _shown(work.jobs, console, tell) as tell:
                if work.jobs:
                    executors.play(work.jobs, executor=work.executor, workers=workers, device=device, tell=tell)
    except KeyboardInterrupt as stop:
        raise executors.Stopped(getattr(stop, "signal", signal.SIGINT), shelf.path) from None
    known = {config.labels["policy"] for config in work.configs}
    stored = {policy: name for policy, name in stored_labels(shelf.path).items() if policy in known}
    return Results(work.folders, rounds=experiment.rounds, target=goal, metric=metric, label=stored)


def make_run(config: Config, folder: Path, *, device: str = "auto", console: "Console | None" = None) -> Results:
    """Make or continue one run in its folder, and load its result.

    Args:
        config: of the run.
        folder: of the run.
        device: "auto", "cpu" or "gpu".
        console: shows the progress; None shows nothing.
    """
    jobs = [executors.Job(config, folder)]
    with _shown(jobs, console) as tell:
        executors.play(jobs, executor="serial", device=device, tell=tell)
    return Results([folder])


@contextmanager
def _shown(jobs: Sequence[executors.Job], console: "Console | None", tell: Tell | None = None) -> Iterator[Tell | None]:
    """Show how far runs are; gives what is to be called with the index of a job and its last round."""
    if console is None:
        yield tell
        return
    from fedpick.report.progress import progress_of  # rich loads slowly
    from fedpick.store.tables import reached  # Parquet is an extra

    threading.Thread(target=_load_ahead, daemon=True).start()
    names = [f"{job.config.labels['policy']} seed {job.config.seed}" for job in jobs]
    begun = [reached(job.folder) for job in jobs]
    with progress_of(names, [job.config.rounds for job in jobs], begun, console) as show:
        yield show


def _load_ahead() -> None:
    """Import what tables and figures need: while other processes play runs, this one only waits."""
    for name in _SLOW:
        with suppress(ImportError):
            import_module(name)


def _labels(experiment: Experiment, given: Any) -> dict[str, str]:
    """The labels of a plan's policies that the user gave; raises for one that is not in the plan."""
    if isinstance(given, Mapping):
        given = {policy_text(policy): name for policy, name in given.items()}
    known = dict.fromkeys((config.labels["policy"] for config in experiment.configs()), "")
    return {policy: name for policy, name in resolve(read_labels(given), known).items() if name}
