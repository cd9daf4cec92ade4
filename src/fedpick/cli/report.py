"""`fedpick report` and `fedpick runs`."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from fedpick.cli import console
from fedpick.cli.options import Label, Target
from fedpick.core.errors import ConfigError
from fedpick.experiment.shelf import Shelf
from fedpick.report.comparison import OUT
from fedpick.report.files import is_file, write, write_file
from fedpick.report.formats import FORMATS
from fedpick.report.results import load
from fedpick.store.records import ROUND_COLUMNS

__all__ = ["app"]

app = typer.Typer()


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
            help="A file to write; its ending decides what: .html (a page with charts), a table (.md, .tex, .csv, "
            ".json, .txt), a figure (.pdf, .pgf, .png, .svg), .bib; or a folder for all.",
        ),
    ] = None,
    format: Annotated[str, typer.Option("--format", "-f", help=f"table, {', '.join(FORMATS[1:])}.")] = "table",
    target: Target = None,
    reference: Annotated[
        str | None, typer.Option(help="Policy that others are compared with (default: the first).")
    ] = None,
    metric: Annotated[
        str | None, typer.Option(help="The main metric, such as macro_f1; for a figure, any column of the rounds.")
    ] = None,
    label: Label = None,
    size: Annotated[str, typer.Option(help="Of a figure: screen, or for a paper: column, text.")] = "screen",
    over: Annotated[str, typer.Option(help="What a paper's figure is drawn over: rounds, time or bytes.")] = "rounds",
) -> None:
    """Show results of simulated runs, comparisons, and deployments (`records=` of a session or of Flower's `Selected`).

    Of a run that is still going on, the rounds so far are shown.

    Example: `fedpick report fedpick-runs/flower`, `fedpick report fedpick-runs/compare -o page.html`; for a paper
    `-o fig.pdf --size column`, `-o table.tex`, `-f methods`, `-o refs.bib`
    """
    to_file = out is not None and is_file(out)  # refuses others before anything is read
    main = None if metric in (*ROUND_COLUMNS, "cep") else metric
    results = load(*folders, target=target, reference=reference, metric=main, label=label)
    if out is not None and to_file:
        figure = {"metric": metric, "size": size, "over": over}
        write_file(results, out, None if format in ("table", "rich") else format, **figure)
        console.line(f"written to {out}")
        return
    if format in ("table", "rich"):  # "rich" is the name in Python
        console.out.print(results.table())
        if len(results.runs) == 1:
            console.out.print(results.trouble() or "no client failed or was late")
    else:
        sys.stdout.write(results.table(format))
    if out is not None:
        made, missed = write(results, out, "report")
        console.written(out, made, missed)


@app.command()
def runs(
    folder: Annotated[Path, typer.Argument(help="Folder of comparisons.")] = OUT,
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
