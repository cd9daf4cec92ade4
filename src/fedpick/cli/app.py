"""The commands: demo, run, compare, resume, report, watch, track, runs, verify, reproduce, data, policies, ..."""

import os
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from fedpick import __version__, own
from fedpick import comparison as comparing
from fedpick.cli import console, listing, reproducing, verifying, watching
from fedpick.cli import data as data_commands
from fedpick.cli.options import (
    Device,
    Executor,
    Target,
    Workers,
    complete_data,
    complete_policy,
    complete_world,
)
from fedpick.errors import ConfigError, bare_name
from fedpick.experiment import Config, Experiment, executors, files, playing
from fedpick.experiment.shelf import Shelf
from fedpick.policies.text import installed_policies, policy_names
from fedpick.report.formats import FORMATS
from fedpick.report.progress import BUILDING, progress_of
from fedpick.report.results import Results, load

__all__ = ["app"]

app = typer.Typer(
    help="Choose which clients train in each round of federated learning, and compare selection policies.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
app.add_typer(data_commands.app, name="data")
for commands in (listing.app, reproducing.app, verifying.app, watching.app):
    app.add_typer(commands)

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
    precision: Annotated[str | None, typer.Option(help="float32 (default) or bfloat16.")] = None,
    trainer: Annotated[
        str | None, typer.Option(help="A trainer of your own instead of fedpick's: 'loop.py:Trainer(lr=0.1)'.")
    ] = None,
    folder: Annotated[Path, typer.Option("--out", "-o", help="Folder to write to.")] = comparing.OUT,
    target: Target = None,
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
    training = {"model": model, "lr": lr, "precision": precision, "trainer": trainer}
    experiment = files.experiment_from(
        file,
        {key: value for key, value in given.items() if value},
        num_clients=num_clients,
        partition=partition,
        train={key: value for key, value in training.items() if value is not None},
    )
    shelf = Shelf(folder)
    with watching.beside(shelf.path, target, watch):
        _carry_out(experiment, shelf, target, executor, workers, device)


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
            results = _results_of(scene.experiment, shelf, scene.target, executor, workers, device)
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
    named = [reference for text in code or [] for reference in own.references(text)]
    if Shelf.is_one(folder):
        shelf = Shelf(folder)
        with executors.staying():
            for plan in shelf.plans():
                longer = plan if rounds is None else plan.only(rounds=rounds)
                _carry_out(longer.naming(named), shelf, target, executor, workers, device)
        return
    settings = playing.config_of(folder, named)
    _run(replace(settings, rounds=rounds or settings.rounds), folder, device)


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
    _show(Results([folder]))
    console.out.print(console.plain(f"written to {folder}"), markup=False, soft_wrap=True)


def _results_of(
    experiment: Experiment, shelf: Shelf, target: float | None, executor: str, workers: int | None, device: str
) -> Results:
    comparing.check_target(target)  # before the runs, which may take hours
    with executors.staying():
        with console.err.status(BUILDING):
            work = playing.work_of(experiment, shelf, executor, device, workers)
        kept = len(work.configs) - len(work.missing)
        if kept and work.missing:
            said = f"{kept} of {len(work.configs)} runs exist; {len(work.missing)} are to be made or continued"
            console.err.print(said)
        comparing.load_ahead()
        with _stoppable(shelf.path, experiment.references()), comparing.progress(work, console.err) as tell:
            playing.carry_out(work, executor=executor, workers=workers, device=device, tell=tell)
    return comparing.results_of(work, target=target)


def _carry_out(
    experiment: Experiment, shelf: Shelf, target: float | None, executor: str, workers: int | None, device: str
) -> None:
    results = _results_of(experiment, shelf, target, executor, workers, device)
    _show(results)
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


def _show(results: Results) -> None:
    console.out.print(results.table())


@app.command()
def report(
    folders: Annotated[
        list[Path], typer.Argument(metavar="FOLDER...", help="Folders of runs, comparisons or deployments.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="A file to write, by its end: .html (a page with charts), a table (.md, .tex, .csv, .json, .txt), a "
            "figure (.pdf, .pgf, .png, .svg), .bib; or a folder for all.",
        ),
    ] = None,
    format: Annotated[str, typer.Option("--format", "-f", help=f"table, {', '.join(FORMATS[1:])}.")] = "table",
    target: Target = None,
    reference: Annotated[
        str | None, typer.Option(help="Policy that others are compared with (default: the first).")
    ] = None,
    metric: Annotated[str | None, typer.Option(help="Of a figure: a column of the rounds, such as test_loss.")] = None,
    size: Annotated[str, typer.Option(help="Of a figure: screen, or for a paper: column, text.")] = "screen",
    over: Annotated[str, typer.Option(help="Of a figure for a paper: rounds, time, bytes.")] = "rounds",
) -> None:
    """Show results of simulated runs, comparisons, and deployments (`records=` of a session or of Flower's `Selected`).

    Of a run that is still going on, the rounds so far are shown.

    Example: `fedpick report fedpick-runs/flower`, `fedpick report fedpick-runs/compare -o page.html`; for a paper
    `-o fig.pdf --size column`, `-o table.tex`, `-f methods`, `-o refs.bib`
    """
    to_file = out is not None and comparing.is_file(out)  # refuses others before anything is read
    results = load(*folders, target=target, reference=reference)
    if out is not None and to_file:
        figure = {"metric": metric, "size": size, "over": over}
        comparing.write_file(results, out, None if format in ("table", "rich") else format, **figure)
        console.out.print(f"written to {out}", markup=False, soft_wrap=True)
        return
    if format in ("table", "rich"):  # "rich" is the name in Python
        _show(results)
        if len(results.runs) == 1:
            console.out.print(results.trouble() or "no client failed or was late")
    else:
        sys.stdout.write(results.table(format))
    if out is not None:
        made, missed = comparing.write(results, out, "report")
        console.written(out, made, missed)


@app.command()
def runs(
    folder: Annotated[Path, typer.Argument(help="Folder of comparisons.")] = comparing.OUT,
    prune: Annotated[bool, typer.Option("--prune", help="Delete the runs that no plan in FOLDER/plans uses.")] = False,
) -> None:
    """List the runs in a folder of comparisons: rounds, sizes, and how many plans (one per comparison) use each."""
    if not Shelf.is_one(folder):
        raise ConfigError(f"{folder}: holds no comparisons; start one with `fedpick compare --out {folder}`")
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
