"""Compare policies from Python: plan, make the missing runs, load the results.

>>> import tempfile
>>> results = compare(["uniform", "e3cs(quota=0.5)"], data=None, cohort_size=5, seeds=2, rounds=20,
...                   out=tempfile.mkdtemp(), executor="serial")
>>> len(results.frame())
4
"""

import os
import signal
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedpick._support import atomic
from fedpick.core.errors import ConfigError, FedpickError, MissingError
from fedpick.core.metrics import read_target
from fedpick.experiment import executors
from fedpick.experiment.identity import policy_text
from fedpick.experiment.measured import measuring
from fedpick.experiment.plan import Experiment
from fedpick.experiment.playing import Work, carry_out, work_of
from fedpick.experiment.shelf import Shelf
from fedpick.report.labels import read_labels, resolve
from fedpick.report.results import Results
from fedpick.report.runs import stored_labels

if TYPE_CHECKING:
    from rich.console import Console

__all__ = [
    "FIGURES",
    "KINDS",
    "OUT",
    "compare",
    "is_file",
    "keep_labels",
    "labels_of",
    "load_ahead",
    "progress",
    "results_of",
    "write",
    "write_file",
]

# The format of a file of results, by the end of its name.
KINDS = {
    ".html": "page",
    ".md": "markdown",
    ".tex": "latex",
    ".csv": "csv",
    ".json": "json",
    ".txt": "text",
    ".bib": "bibtex",
}
# Modules that results need and that load slowly; pandas is wanted by Arrow, if it is there.
_SLOW = ("pandas", "scipy.special", "jinja2", "matplotlib.figure", "matplotlib.backends.backend_agg",
         "matplotlib.backends.backend_svg")  # fmt: skip
FIGURES = (".pdf", ".pgf", ".png", ".svg")
OUT = Path("fedpick-runs") / "compare"  # default folder of comparisons, which share common runs


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
    target: Any = None,
    metric: str | None = None,
    label: Mapping[Any, str] | None = None,
    executor: str = "auto",
    workers: int | None = None,
    device: str = "auto",
    tell: Callable[[int, int], None] | None = None,
) -> Results:
    """Compare policies over seeds; existing runs are reused.

    On a terminal, stderr shows the progress. Ctrl-C ends it after the rounds being played: a `KeyboardInterrupt` is
    raised when they are written, and the same call continues.

    Args:
        policy: texts such as "e3cs(quota=0.5)" or "my_policy.py:EpsGreedy(eps=0.1)", policies, or classes of policies;
            the others are compared with the first.
        world: one or several names such as "volatile", texts such as "volatile(deadline=9)", or `fp.World`s.
        cohort_size: one or several numbers of clients per round.
        data: one or several names such as "digits", settings of [data], or `fp.data.Federated`; None: no training.
        train: settings of [train], such as {"model": "mlp(hidden=(64,))", "lr": 0.1}.
        seeds: a number of seeds, or a list of seeds.
        rounds: of every run; existing runs with fewer rounds are continued.
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
    from fedpick.report.progress import BUILDING, terminal  # rich loads slowly

    if not isinstance(out, str | os.PathLike | None):
        raise ConfigError(f"out = {out!r}, but must be the path of a folder, or None for {str(OUT)!r}")
    train, metric = measuring({} if train is None else train, metric) if metric else (train, None)
    target = read_target(target, metric)  # before the runs, which may take hours
    experiment = Experiment(
        policy=policy,
        world=world,
        cohort_size=cohort_size,
        data=data,
        train=train,
        seeds=seeds,
        rounds=rounds,
    )
    names = labels_of(experiment, label)
    shelf = Shelf(OUT if out is None else out)
    console = terminal() if tell is None else None
    try:
        with executors.staying():
            with nullcontext() if console is None else console.status(BUILDING):
                work = work_of(experiment, shelf, executor, device, workers)
            keep_labels(work, names)
            with nullcontext(tell) if console is None else progress(work, console) as tell:
                carry_out(work, executor=executor, workers=workers, device=device, tell=tell)
    except KeyboardInterrupt as stop:
        raise executors.Stopped(getattr(stop, "signal", signal.SIGINT), shelf.path) from None
    return results_of(work, target=target, metric=metric)


def labels_of(experiment: Experiment, given: Any) -> dict[str, str]:
    """The labels of a plan's policies that the user gave; raises for one that is not in the plan.

    Args:
        experiment: the plan.
        given: texts such as "my.py:X=Ours", or a mapping from policies, as text or as objects.
    """
    if isinstance(given, Mapping):
        given = {policy_text(policy): name for policy, name in given.items()}
    known = dict.fromkeys((config.labels["policy"] for config in experiment.configs()), "")
    return {policy: name for policy, name in resolve(read_labels(given), known).items() if name}


def keep_labels(work: Work, names: Mapping[str, str]) -> None:
    """Write labels beside the runs, where reports find them."""
    work.shelf.add(work.experiment)
    if names:
        work.shelf.label(names)


def progress(work: Work, console: "Console") -> AbstractContextManager[Callable[[int, int], None]]:
    """Show how far the missing runs of a plan are; call the result as `tell` of `carry_out`."""
    from fedpick.report.progress import progress_of

    names = [f"{config.labels['policy']} seed {config.seed}" for config in work.missing]
    begun = [work.shelf.reached(config) for config in work.missing]
    return progress_of(names, [config.rounds for config in work.missing], begun, console)


def load_ahead() -> None:
    """Import what `Results` and `write` need, in a thread: while other processes play runs, this one only waits."""

    def load() -> None:
        for name in _SLOW:
            with suppress(ImportError):
                import_module(name)

    threading.Thread(target=load, daemon=True).start()


def results_of(work: Work, *, target: Any = None, metric: str | None = None) -> Results:
    """The results of a plan whose runs exist, in the plan's order."""
    known = {config.labels["policy"] for config in work.configs}
    names = {policy: name for policy, name in stored_labels(work.shelf.path).items() if policy in known}
    return Results(work.folders, rounds=work.experiment.rounds, target=target, metric=metric, label=names)


def write(results: Results, folder: Path, name: str) -> tuple[list[str], list[str]]:
    """Write name.json, name.csv, the page name.html and the plots.

    Returns the files' names, and the reasons why others are missing.
    A missing optional package is no error here, because all files can be made later from the runs.
    """
    made, missed = [], []

    def attempt(file: str, make: Callable[[Path], None]) -> None:
        try:
            _put(folder / file, make)
            made.append(file)
        except MissingError as error:
            missed.append(str(error))

    attempt(f"{name}.json", lambda path: _text(path, results.table("json")))
    attempt(f"{name}.csv", lambda path: _text(path, results.table("csv")))
    attempt(f"{name}.html", lambda path: _text(path, results.page()))
    try:
        figure = results.plot()
    except FedpickError as error:
        missed.append(str(error))
        return made, missed
    for kind in ("png", "svg"):
        attempt(f"{name}.{kind}", lambda path, kind=kind: figure.savefig(path, format=kind))  # type: ignore[misc]
        figure.set_layout_engine("none")  # the second file keeps the first one's layout, which takes long to find
    return made, missed


def is_file(path: Path) -> bool:
    """Whether the path names a file of results by its end, such as .html; otherwise it is a folder's.

    An end such as .xlsx is refused, unless a folder of this name exists; one such as .5 is a folder's.
    """
    end = path.suffix.lower()
    if path.is_dir() or not end[1:2].isalpha():
        return False
    if end not in (*KINDS, *FIGURES):
        raise ConfigError(
            f"{path}: fedpick writes no {end} files, but {', '.join((*KINDS, *FIGURES))}; make a folder of this name "
            "first if it should be one"
        )
    return True


def write_file(results: Results, path: Path, format: str | None = None, **figure: Any) -> None:
    """Write one file of results.

    Args:
        results: to be written.
        path: of the file.
        format: of the table, see `Results.table`; None: by the end of the file's name, .html being the page.
        figure: arguments of `Results.plot`, for a figure.
    """
    end = path.suffix.lower()
    if format is None and end in FIGURES:
        drawn = results.plot(**figure)
        _put(path, lambda temporary: drawn.savefig(temporary, format=end[1:]))
        return
    kind = format or KINDS[path.suffix.lower()]
    text = results.page() if kind == "page" else results.table(kind)
    _put(path, lambda temporary: _text(temporary, text))


def _put(path: Path, make: Callable[[Path], None]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic.replacing(path) as temporary:
            make(temporary)
    except OSError as error:
        raise ConfigError(
            f"{path.parent}: cannot write {path.name} ({error.strerror}); the runs are intact. Free space or choose "
            "another folder with --out"
        ) from None


def _text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
