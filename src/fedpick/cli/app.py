"""The commands: demo, run, compare, resume, report, watch, track, runs, verify, data, policies, ..."""

import os
import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from fedpick import __version__
from fedpick import comparison as comparing
from fedpick._support import user_code
from fedpick.cli import console, listing, plugins, reporting, verifying, watching
from fedpick.cli import data as data_commands
from fedpick.cli.options import (
    Device,
    Executor,
    Label,
    Target,
    Workers,
    complete_data,
    complete_policy,
    complete_world,
)
from fedpick.core.errors import ChangedError, ConfigError, bare_name
from fedpick.core.metrics import MEASURED, read_target
from fedpick.core.metrics import Target as Goal
from fedpick.experiment import Config, Experiment, executors, files, playing
from fedpick.experiment.measured import measuring
from fedpick.experiment.shelf import Shelf
from fedpick.policies.text import installed_policies, policy_names
from fedpick.report.progress import BUILDING, progress_of
from fedpick.report.results import Results

__all__ = ["app"]

app = typer.Typer(
    help="Choose which clients train in each round of federated learning, and compare selection policies.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
app.add_typer(data_commands.app, name="data")
for commands in (reporting.app, listing.app, verifying.app, watching.app):
    app.add_typer(commands)
plugins.add_commands(app)

Version = Annotated[bool, typer.Option("--version", is_eager=True, help="Show the version.")]


# ---- runs and comparisons


@app.command()
def compare(
    file: Annotated[
        Path | None, typer.Argument(metavar="[STUDY.toml]", help="An experiment; options override its settings.")
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            "-p",
            help="For example 'e3cs(quota=0.5)', 'my.py:EpsGreedy(eps=0.1)'; needed, here or in the file; repeatable.",
            autocompletion=complete_policy,
        ),
    ] = None,
    world: Annotated[
        list[str] | None,
        typer.Option(
            "--world",
            "-w",
            help="A world of `fedpick worlds` (default: volatile); repeatable.",
            autocompletion=complete_world,
        ),
    ] = None,
    num_clients: Annotated[
        int | None,
        typer.Option(
            "--num-clients", "-k", "--clients", help="Number of clients (default: the world's).", min=1, metavar="N"
        ),
    ] = None,
    cohort_size: Annotated[
        list[int] | None,
        typer.Option(
            "--cohort-size", "-m", help="Clients chosen per round (default: 20); repeatable.", min=1, metavar="N"
        ),
    ] = None,
    rounds: Annotated[
        int | None, typer.Option("--rounds", "-t", help="Rounds per run (default: 500).", min=1, metavar="N")
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(
            "--seeds",
            "-s",
            help="Number of seeds (default: 5); with the same seed, all policies get the same world.",
            min=1,
            metavar="N",
        ),
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(
            "--data",
            "-d",
            help="Data set (default: 'synthetic(1, 1)', of a file none); 'none': no training; repeatable.",
            autocompletion=complete_data,
        ),
    ] = None,
    partition: Annotated[
        str | None,
        typer.Option(
            help="How to divide a data set among clients, for example 'dirichlet(alpha=0.3)' (default: the data set's)."
        ),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="For example 'mlp(hidden=(64, 30))' (default: depends on the data).")
    ] = None,
    lr: Annotated[
        float | None, typer.Option(help="Learning rate of the clients (default: depends on the data).")
    ] = None,
    batch: Annotated[
        int | None, typer.Option(help="Examples per local step (default: depends on the data).", min=1, metavar="N")
    ] = None,
    server: Annotated[
        str | None, typer.Option(help="The server's optimiser, for example 'fedadam(lr=0.01)' (default: the mean).")
    ] = None,
    precision: Annotated[str | None, typer.Option(help="float32 (default) or bfloat16.")] = None,
    trainer: Annotated[
        str | None, typer.Option(help="A trainer of your own instead of fedpick's: 'loop.py:Trainer(lr=0.1)'.")
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(
            help=f"The main metric: {', '.join(MEASURED)}, 'my.py:score', or one of your trainer's (default: accuracy)."
        ),
    ] = None,
    folder: Annotated[Path, typer.Option("--out", "-o", help="Folder to write to.")] = comparing.OUT,
    target: Target = None,
    label: Label = None,
    workers: Workers = None,
    executor: Executor = "auto",
    device: Device = "auto",
    watch: Annotated[bool, typer.Option("--watch", help="Show a page on this machine that follows the runs.")] = False,
) -> None:
    """Compare policies over several seeds; differences are paired by seed.

    Clients train a model on their data: `--data digits`, `fashion-mnist`, `cifar10` (see `fedpick data list`), a file
    `mine.npz`, or `none` to simulate only the selection. Runs are kept in `--out`: if you repeat the command with more
    seeds, policies, worlds or rounds, only the missing runs and rounds are computed.

    Example: `fedpick compare -p 'e3cs(quota=0.5)' -p uniform --world volatile --seeds 5 --data digits`
    """
    _refuse_folders(file, policy or [])
    given = {
        "policy": policy,
        "world": world,
        "cohort_size": cohort_size,
        "rounds": rounds,
        "seeds": seeds,
        "data": data,
    }
    training = {
        "model": model,
        "lr": lr,
        "batch": batch,
        "server": server,
        "precision": precision,
        "trainer": trainer,
    }
    experiment = files.experiment_from(
        file,
        {key: value for key, value in given.items() if value},
        num_clients=num_clients,
        partition=partition,
        train={key: value for key, value in training.items() if value is not None},
    )
    experiment, shown = _measuring(experiment, metric)
    goal = read_target(target, shown)  # before the runs, which may take hours
    names, shelf = comparing.labels_of(experiment, label), Shelf(folder)
    with watching.beside(shelf.path, goal, shown, watch):
        _carry_out(experiment, shelf, goal, executor, workers, device, metric=shown, names=names)


def _measuring(experiment: Experiment, metric: str | None) -> tuple[Experiment, str | None]:
    """The plan with this metric measured in all its runs, and the metric's name in results."""
    if metric is None:
        return experiment, None
    made = [measuring(each, metric) for each in experiment.train]
    return experiment.only(train=[train for train, _ in made]), made[0][1]


def _refuse_folders(file: Path | None, policies: list[str]) -> None:
    """Raise where the folder of a comparison, or a policy's name, is given in place of a file or a policy."""
    known = [bare_name(name) for name in (*policy_names(), *installed_policies())]
    for each in [] if file is None else [str(file)], [text for text in policies if bare_name(text) not in known]:
        for text in filter(os.path.isdir, each):
            raise ConfigError(
                f"{text}: is a folder, but a policy or a file is needed here; fedpick report {text} shows its runs, "
                f"fedpick resume {text} continues them, and --out {text} adds to them"
            )
    if file is not None and bare_name(str(file)) in known and not file.exists():
        raise ConfigError(f"{file}: there is no such file; policies are given with -p: fedpick compare -p {file}")


@app.command()
def demo(
    folder: Annotated[Path, typer.Option("--out", "-o", help="Folder to write to.")] = Path("fedpick-runs/demo"),
    workers: Workers = None,
    executor: Executor = "auto",
    device: Device = "auto",
) -> None:
    """Show in two short comparisons what selection can gain, and what it costs."""
    from fedpick.demo import SCENES  # builds experiments

    with executors.staying():
        pages = []
        for number, scene in enumerate(SCENES, start=1):
            console.out.print(f"\n[bold]{number}. {escape(scene.title)}[/]\n")
            shelf = Shelf(folder / scene.name)
            goal = read_target(scene.target)
            results = _results_of(scene.experiment, shelf, goal, executor, workers, device)
            results.titled(scene.title, scene.about)
            console.out.print(escape(scene.answer(results.data())), "", highlight=False, sep="\n")
            console.out.print(scene.table(results.data()))
            made, missed = comparing.write(results, shelf.path, "results")
            console.missed(missed)
            pages += [shelf.path / file for file in made if file.endswith(".html")]
    said = ["", "Charts and all scores are on these pages:", *(f"  {page}" for page in pages)] if pages else []
    said += ["", "Next, compare a policy of your own:"]
    said += ["  fedpick compare -p uniform -p examples/my_policy.py:RoundRobin --data digits"]
    console.out.print(console.plain("\n".join(said)), markup=False, highlight=False, soft_wrap=True)


@app.command()
def resume(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder of a run or of comparisons.")],
    rounds: Annotated[
        int | None, typer.Option(help="Continue to this round (default: as planned).", min=1, metavar="N")
    ] = None,
    code: Annotated[
        list[str] | None,
        typer.Option("--policy", "-p", "--own", help="Your own code that the runs use, as 'FILE.py:Name'; repeatable."),
    ] = None,
    target: Target = None,
    workers: Workers = None,
    executor: Executor = "auto",
    device: Device = "auto",
) -> None:
    """Continue an interrupted run or comparison, or extend it to more rounds with `--rounds`."""
    named = [reference for text in code or [] for reference in user_code.references(text)]
    if Shelf.is_one(folder):
        shelf = Shelf(folder)
        with executors.staying():
            for plan in _current(shelf.plans(), named):
                longer = plan if rounds is None else plan.only(rounds=rounds)
                _carry_out(longer, shelf, read_target(target), executor, workers, device)
        return
    settings = playing.config_of(folder, named)
    _run(replace(settings, rounds=rounds or settings.rounds), folder, device)


def _current(plans: list[Experiment], named: list[str]) -> list[Experiment]:
    """The plans that can be continued, with the paths of the user's own code; the last reason raises if none can."""
    found: list[Experiment] = []
    changed: list[ChangedError] = []
    for plan in plans:
        try:
            found.append(plan.naming(named))
        except ChangedError as error:
            changed.append(error)
    if changed and not found:
        raise changed[-1]
    for each in changed:
        console.err.print(f"a plan is not continued: {each}", markup=False, soft_wrap=True)
    return found


@app.command(name="run")
def run_one(
    file: Annotated[Path, typer.Argument(help="Configuration file (TOML), see docs/worlds.md.")],
    folder: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Folder to write to (default: fedpick-runs/ and the file's name)."),
    ] = None,
    device: Device = "auto",
) -> None:
    """Run one configuration: `fedpick run CONFIG.toml`. An interrupted run is continued.

    The file must name a policy. Its other settings have defaults: cohort_size 20, rounds 500, seed 0, checkpoint_every
    100, the world phones (of `fedpick compare` it is volatile), and without [data] no training.
    """
    _run(files.load(file), folder or playing.folder_of(file), device)


def _run(settings: Config, folder: Path, device: str) -> None:
    bars = progress_of([settings.policy], [settings.rounds], [0], console.err)
    with _stoppable(folder, settings.references()), bars as tell:
        executors.play([executors.Job(settings, folder)], executor="serial", device=device, tell=tell)
    console.out.print(Results([folder]).table())
    console.out.print(console.plain(f"written to {folder}"), markup=False, soft_wrap=True)


def _results_of(
    experiment: Experiment,
    shelf: Shelf,
    target: Goal | None,
    executor: str,
    workers: int | None,
    device: str,
    *,
    metric: str | None = None,
    names: Mapping[str, str] | None = None,
) -> Results:
    with executors.staying():
        with console.err.status(BUILDING):
            work = playing.work_of(experiment, shelf, executor, device, workers)
        kept = len(work.configs) - len(work.missing)
        if kept and work.missing:
            said = f"{kept} of {len(work.configs)} runs exist; {len(work.missing)} are to be made or continued"
            console.err.print(said)
        comparing.keep_labels(work, names or {})
        comparing.load_ahead()
        with _stoppable(shelf.path, experiment.references()), comparing.progress(work, console.err) as tell:
            playing.carry_out(work, executor=executor, workers=workers, device=device, tell=tell)
    return comparing.results_of(work, target=target, metric=metric)


def _carry_out(experiment: Experiment, shelf: Shelf, *how: Any, **shown: Any) -> None:
    """Make the missing runs, print the table and write the files; the arguments are those of `_results_of`."""
    results = _results_of(experiment, shelf, *how, **shown)
    console.out.print(results.table())
    made, missed = comparing.write(results, shelf.path, "results")
    console.written(shelf.path, [*made, "runs/"], missed)


class _stoppable:
    """When the user stops the work, print the command that continues it."""

    def __init__(self, folder: Path, references: list[str]) -> None:
        self.command = shlex.join(["fedpick", "resume", str(folder), *(w for each in references for w in ("-p", each))])

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if isinstance(error, KeyboardInterrupt):
            said = console.plain(f"\nstopped; nothing is lost. Continue with: {self.command}")
            console.err.print(said, markup=False, soft_wrap=True)
            raise typer.Exit(128 + getattr(error, "signal", 2)) from None


@app.callback(invoke_without_command=True)
def _options(version: Version = False) -> None:
    if version:
        console.out.print(__version__)
        raise typer.Exit
