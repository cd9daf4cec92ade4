"""The commands: run, compare, resume, report, runs, verify, reproduce, data, policies, worlds, check."""

import shlex
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from fedpick import __version__, own
from fedpick import comparison as comparing
from fedpick.cli import console, listing, reproducing, verifying
from fedpick.cli import data as data_commands
from fedpick.cli.options import Device, Executor, Out, Target, Workers
from fedpick.errors import ConfigError, FedpickError
from fedpick.experiment import Config, Experiment, executors, files, playing
from fedpick.experiment.shelf import Shelf
from fedpick.report.formats import FORMATS
from fedpick.report.results import Results, load

__all__ = ["app", "run"]

app = typer.Typer(
    help="Choose which clients train in each round of federated learning, and see what it does.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
app.add_typer(data_commands.app, name="data")
for commands in (listing.app, reproducing.app, verifying.app):
    app.add_typer(commands)

Version = Annotated[bool, typer.Option("--version", is_eager=True, help="Show the version.")]


# ---- runs and comparisons


@app.command()
def compare(
    file: Annotated[
        Path | None, typer.Argument(metavar="[STUDY.toml]", help="A plan; options take the place of what it says.")
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option("--policy", "-p", help="Such as 'e3cs(quota=0.5)' or 'my.py:EpsGreedy(eps=0.1)'; once for each."),
    ] = None,
    world: Annotated[
        list[str] | None, typer.Option("--world", "-w", help="Of `fedpick worlds`; several are compared in each.")
    ] = None,
    num_clients: Annotated[
        int | None,
        typer.Option("--num-clients", "-k", "--clients", help="Number of clients; else the world's own.", min=1),
    ] = None,
    cohort_size: Annotated[
        list[int] | None, typer.Option("--cohort-size", "-m", help="Clients chosen a round; 20, or several.", min=1)
    ] = None,
    rounds: Annotated[int | None, typer.Option("--rounds", "-t", help="Rounds of each run; 500.", min=1)] = None,
    seeds: Annotated[
        int | None, typer.Option("--seeds", "-s", help="5; every policy meets the same world at one seed.", min=1)
    ] = None,
    data: Annotated[
        list[str] | None, typer.Option("--data", "-d", help="What clients train on; 'none': nothing is trained.")
    ] = None,
    partition: Annotated[
        str | None, typer.Option(help="Who holds what of a data set, such as 'dirichlet(alpha=0.3)'.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Such as 'mlp(hidden=(64, 30))'; else the usual for the data.")
    ] = None,
    lr: Annotated[float | None, typer.Option(help="Learning rate of the clients; else the usual for the data.")] = None,
    precision: Annotated[str | None, typer.Option(help="float32 or bfloat16.")] = None,
    trainer: Annotated[
        str | None, typer.Option(help="A trainer of your own in place of fedpick's: 'loop.py:Trainer(lr=0.1)'.")
    ] = None,
    folder: Out = None,
    target: Target = None,
    workers: Workers = None,
    executor: Executor = "auto",
    device: Device = "auto",
) -> None:
    """Compare policies over several seeds; differences are paired, seed by seed.

    Clients train a model on their data: `--data digits`, `fashion-mnist`, `cifar10` (see `fedpick data list`), a file
    `mine.npz`, or `none` for a numerical experiment. Runs are kept in `--out` and played once: ask again for more
    seeds, policies, worlds or rounds, and only what is missing is played.

    Example: `fedpick compare -p 'e3cs(quota=0.5)' -p uniform --world volatile --seeds 5 --data digits`
    """
    given = {
        "policy": policy,
        "world": world,
        "cohort_size": cohort_size,
        "rounds": rounds,
        "seeds": seeds,
        "data": data,
    }
    training = {"model": model, "lr": lr, "precision": precision, "trainer": trainer}
    experiment = files.experiment_from(
        file,
        {key: value for key, value in given.items() if value},
        num_clients=num_clients,
        partition=partition,
        train={key: value for key, value in training.items() if value is not None},
    )
    _carry_out(experiment, Shelf(folder or comparing.OUT), target, executor, workers, device)


@app.command()
def resume(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Of a run, or of comparisons.")],
    rounds: Annotated[int | None, typer.Option(help="Go on to this round, past the first horizon.", min=1)] = None,
    code: Annotated[
        list[str] | None,
        typer.Option("--policy", "-p", "--own", help="What the runs use of your own code, as 'FILE.py:Name'; each."),
    ] = None,
    target: Target = None,
    workers: Workers = None,
    executor: Executor = "auto",
    device: Device = "auto",
) -> None:
    """Go on with a run or with comparisons that were interrupted, or past their horizon with `--rounds`."""
    named = [reference for text in code or [] for reference in own.references(text)]
    if Shelf.is_one(folder):
        shelf = Shelf(folder)
        for plan in shelf.plans():
            longer = plan if rounds is None else plan.only(rounds=rounds)
            _carry_out(longer.naming(named), shelf, target, executor, workers, device)
        return
    settings = playing.config_of(folder, named)
    _run(replace(settings, rounds=rounds or settings.rounds), folder, device)


@app.command(name="run")
def run_one(
    file: Annotated[Path, typer.Argument(help="Configuration file (TOML), see docs/worlds.md.")],
    folder: Out = None,
    device: Device = "auto",
) -> None:
    """Run one configuration: `fedpick run CONFIG.toml`. Goes on where it was if it was interrupted."""
    _run(files.load(file), folder or playing.folder_of(file), device)


def _run(settings: Config, folder: Path, device: str) -> None:
    bars = console.progress_of([settings.policy], [settings.rounds], [0])
    with _stoppable(folder, settings.references()), bars as tell:
        executors.play([executors.Job(settings, folder)], executor="serial", device=device, tell=tell)
    _show(Results([folder]))
    console.out.print(console.plain(f"written to {folder}"), markup=False, soft_wrap=True)


def _carry_out(
    experiment: Experiment, shelf: Shelf, target: float | None, executor: str, workers: int | None, device: str
) -> None:
    with console.err.status("looking at what is there, and building what is not"):
        work = playing.work_of(experiment, shelf, executor, device)
    kept = len(work.configs) - len(work.missing)
    if kept and work.missing:
        console.err.print(
            f"{kept} of {len(work.configs)} runs are there; {len(work.missing)} to play, or to go on with"
        )
    names = [f"{config.labels['policy']} seed {config.seed}" for config in work.missing]
    begun = [shelf.reached(config) for config in work.missing]
    with (
        _stoppable(shelf.path, experiment.references()),
        console.progress_of(names, [config.rounds for config in work.missing], begun) as tell,
    ):
        playing.carry_out(work, executor=executor, workers=workers, device=device, tell=tell)
    results = comparing.results_of(work, target=target)
    _show(results)
    made, missed = comparing.write(results, shelf.path, "results")
    console.written(shelf.path, [*made, "runs/"], missed)


class _stoppable:
    """Says how to go on when the user stops the work."""

    def __init__(self, folder: Path, references: list[str]) -> None:
        self.command = shlex.join(["fedpick", "resume", str(folder), *(w for each in references for w in ("-p", each))])

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if isinstance(error, KeyboardInterrupt):
            said = console.plain(f"\nstopped; nothing is lost. Go on with: {self.command}")
            console.err.print(said, markup=False, soft_wrap=True)
            raise typer.Exit(128 + getattr(error, "signal", 2)) from None


def _show(results: Results) -> None:
    console.out.print(results.table())


@app.command()
def report(
    folders: Annotated[list[Path], typer.Argument(metavar="FOLDER...", help="Of runs, comparisons, deployments.")],
    folder: Annotated[Path | None, typer.Option("--out", "-o", help="Folder for the files; else none.")] = None,
    format: Annotated[str, typer.Option("--format", "-f", help=f"table, {', '.join(FORMATS[1:])}.")] = "table",
    target: Target = None,
    reference: Annotated[str | None, typer.Option(help="Policy that others are compared with; the first.")] = None,
) -> None:
    """Show runs side by side: simulated ones, comparisons, and deployments (Flower's `Selected(records=...)`).

    A run that is still going on shows the rounds that it has played.

    Example: `fedpick report fedpick-runs/flower`, `fedpick report fedpick-runs/compare --format latex`
    """
    results = load(*folders, target=target, reference=reference)
    if format == "table":
        _show(results)
        if len(results.runs) == 1:
            console.out.print(results.trouble() or "nobody failed or was late")
    else:
        sys.stdout.write(results.table(format))
    if folder is not None:
        made, missed = comparing.write(results, folder, "report")
        console.written(folder, made, missed)


@app.command()
def runs(
    folder: Annotated[Path, typer.Argument(help="Of comparisons.")] = comparing.OUT,
    prune: Annotated[bool, typer.Option("--prune", help="Remove the runs that no plan names.")] = False,
) -> None:
    """List what a folder of comparisons holds: runs, their rounds and sizes, and how many plans name each."""
    if not Shelf.is_one(folder):
        raise ConfigError(f"{folder}: holds no comparisons; `fedpick compare --out {folder}` begins one")
    shelf = Shelf(folder)
    entries = shelf.prune() if prune else shelf.entries()
    table = Table(title=escape(console.plain(f"{'removed from' if prune else 'in'} {folder}")))
    for heading in ("run", "seed", "rounds", "kB", "plans"):
        table.add_column(heading, justify="left" if heading == "run" else "right", overflow="fold")
    for entry in entries:
        rounds = f"{entry.reached:,}" + (f" of {entry.rounds:,}" if entry.reached < entry.rounds else "")
        table.add_row(
            escape(console.plain(entry.folder.name)),
            str(entry.seed),
            rounds,
            f"{entry.size / 1e3:,.0f}",
            str(len(entry.plans)),
        )
    console.out.print(table)
    total = sum(entry.size for entry in entries)
    console.out.print(f"{len(entries)} runs, {total / 1e6:,.1f} MB")


@app.callback(invoke_without_command=True)
def _options(version: Version = False) -> None:
    if version:
        console.out.print(__version__)
        raise typer.Exit


def _warn(message: Warning | str, category: type[Warning], *where: object, **more: object) -> None:
    if issubclass(category, UserWarning):  # others are for programmers
        console.err.print(console.plain(f"warning: {message}"), markup=False, soft_wrap=True)


def run() -> None:
    """Parse and do; errors of the user's are one line, and so are warnings."""
    warnings.showwarning = _warn
    try:
        app()
    except FedpickError as error:
        console.err.print(f"[bold red]error:[/] {escape(console.plain(error))}", soft_wrap=True)
        sys.exit(2)
    except OSError as error:  # a name that is too long, a folder that may not be looked into
        said = console.plain(f"error: {error.filename or 'a file'}: {error.strerror or error}; choose another")
        console.err.print(said, markup=False, soft_wrap=True)
        sys.exit(2)
