"""`fedpick run` and `fedpick resume`."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from fedpick._support import user_code
from fedpick.cli import console
from fedpick.cli.compare import make_and_show
from fedpick.cli.options import Device, Executor, Target, Workers, count
from fedpick.core.errors import ChangedError
from fedpick.experiment import Config, Experiment, executors, files
from fedpick.experiment.shelf import Shelf
from fedpick.report.comparison import make_run

__all__ = ["app"]

app = typer.Typer()


@app.command()
def resume(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder of a run or of comparisons.")],
    rounds: Annotated[int | None, count(help="Continue to this round (default: as planned).")] = None,
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
    if not Shelf.is_one(folder):
        config = files.config_of(folder, named)
        _make_and_show(replace(config, rounds=rounds or config.rounds), folder, device)
        return
    with executors.staying():
        for plan in _current(Shelf(folder).plans(), named):
            longer = plan if rounds is None else plan.only(rounds=rounds)
            make_and_show(longer, folder, target=target, executor=executor, workers=workers, device=device)


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
        console.line(f"a plan is not continued: {each}", console.err)
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
    100, the world volatile (as for `fedpick compare`), and without [data] no training.
    """
    _make_and_show(files.load(file), folder or Path("fedpick-runs") / file.stem, device)


def _make_and_show(config: Config, folder: Path, device: str) -> None:
    with console.stoppable(folder, config.references()):
        results = make_run(config, folder, device=device, console=console.err)
    console.out.print(results.table())
    console.line(f"written to {folder}")
