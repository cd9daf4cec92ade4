"""The commands `fedpick data fetch`, `list` and `show`."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeVar

import typer
from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn
from rich.table import Table

from fedpick.cli import console
from fedpick.core.errors import SettingError
from fedpick.core.rng import stream
from fedpick.data import Federated, sources
from fedpick.data.sources.cache import cache_folder

__all__ = ["app"]

T = TypeVar("T")

app = typer.Typer(
    help="Data sets: fetch them, list them, show how they are divided among clients.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


@app.command()
def fetch(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Names from `fedpick data list`.")],
) -> None:
    """Put data sets into the cache, by download or by a package manager of this machine."""
    for name in [sources.find(name) for name in names]:  # a wrong name raises before anything is fetched
        found = _with_bar(name, sources.fetch)
        if found.path is None:
            console.out.print(f"{name} is part of {found.origin}: there is nothing to fetch")
        else:
            console.out.print(f"{name} is in {escape(str(found.path))}, from: {escape(found.origin)}", soft_wrap=True)


def _with_bar(name: str, get: Callable[..., T]) -> T:
    """Call sources.load or sources.fetch; shows attempts, progress and warnings on the terminal."""
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        console=console.err,
        transient=True,
    )
    task = bar.add_task(name, total=None)

    def step(text: str) -> None:
        bar.start()  # not earlier: there is nothing to show if all is in the cache
        bar.console.print(f"trying {escape(text)}", soft_wrap=True, highlight=False)
        bar.reset(task, total=None)

    def done(got: int, total: int | None) -> None:
        bar.update(task, completed=got, total=total)

    try:
        with warnings.catch_warnings(record=True) as noted:
            warnings.simplefilter("always")
            result = get(name, on_progress=done, on_step=step)
    finally:
        if bar.live.is_started:
            bar.stop()
    for note in noted:
        console.err.print(f"[yellow]note:[/] {escape(str(note.message))}", soft_wrap=True)
    return result


@app.command("list")
def list_() -> None:
    """List the data sets, and which of them are in the cache."""
    table = Table(title=f"cache: {escape(str(cache_folder()))}; fill it with fedpick data fetch NAME")
    for heading in ("name", "examples", "test examples", "classes", "shape", "cached", "source"):
        table.add_column(heading, overflow="fold", no_wrap=heading == "name")
    for name, source in sources.SOURCES.items():
        found = sources.cached(name)
        ways = ["download", *([source.package.tool] if source.package else [])]
        table.add_row(
            name,
            f"{sum(source.counts):,}",
            f"{sum(source.test_counts):,}",
            str(source.classes),
            "x".join(map(str, source.shape)),
            "-" if not source.files else "yes" if found else "no",
            escape(found.origin if found else " or ".join(ways)),
        )
    console.out.print(table)


@app.command()
def show(
    text: Annotated[list[str], typer.Argument(metavar="TEXT...", help="A data set, or for example 'synthetic(1, 1)'.")],
    partition: Annotated[
        str | None,
        typer.Option(
            "--partition", "-p", help="How to divide a data set, for example 'dirichlet(alpha=0.3)' (default: iid)."
        ),
    ] = None,
    num_clients: Annotated[int, typer.Option("--num-clients", "-k", help="Number of clients.", min=1)] = 100,
    seed: Annotated[int, typer.Option(help="Seed of the partition.", min=0)] = 0,
    target: Annotated[Path, typer.Option("--out", help="Picture to write: .png, .svg or .pdf.")] = Path(
        "partition.png"
    ),
) -> None:
    """Draw which data each client has: of a data set divided among clients, or of generated data.

    Example: `fedpick data show fashion-mnist --partition 'dirichlet(alpha=0.3)' --num-clients 100 --out picture.png`
    """
    from fedpick.data import picture

    target = target if target.suffix else target.with_suffix(".png")
    title, federated = _federated(" ".join(text), partition, num_clients, seed)
    console.out.print(escape(picture.describe(federated)), highlight=False, soft_wrap=True)
    figure = picture.draw(federated, title)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(target, dpi=130)
    except ValueError as error:  # matplotlib does not support this file format
        raise SettingError(f"--out {target}: {error}") from None
    except OSError as error:
        raise SettingError(f"--out {target}: cannot be written ({error.strerror}); choose another file") from None
    console.out.print(f"drawn to {escape(str(target))}", soft_wrap=True)


def _federated(text: str, partition: str | None, num_clients: int, seed: int) -> tuple[str, Federated]:
    """The data set that the text names, divided among clients, and a title for it."""
    from fedpick.data import generators, partitions

    name = sources.find(text.split("(")[0].strip(), also=generators.GENERATORS)
    if name not in sources.SOURCES:
        if partition is not None:
            raise SettingError(f"{name} generates its own clients; leave --partition {partition!r} out")
        return f"{text}, {num_clients} clients", generators.generate(text, num_clients, stream(seed, 0, "data"))
    if "(" in text:
        raise SettingError(f"{name} has no settings, but {text!r} was given; use --partition to divide it")
    how = partition or "iid"
    dataset = _with_bar(name, sources.load)
    return f"{name}, {how}, {num_clients} clients", partitions.partition(
        how, dataset, num_clients, stream(seed, 0, "partition")
    )
