"""All commands: demo, run, compare, resume, report, watch, track, runs, verify, data, policies, ..."""

from typing import Annotated

import typer

from fedpick import __version__
from fedpick.cli import catalogue, compare, console, data, demo, plugins, report, run, verify, watch

__all__ = ["app"]

app = typer.Typer(
    help="Choose which clients train in each round of federated learning, and compare selection policies.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
for commands in (compare, demo, run, report, catalogue, verify, watch):
    app.add_typer(commands.app)
app.add_typer(data.app, name="data")
plugins.add_commands(app)


@app.callback(invoke_without_command=True)
def _options(
    version: Annotated[bool, typer.Option("--version", is_eager=True, help="Show the version.")] = False,
) -> None:
    if version:
        console.out.print(__version__)
        raise typer.Exit
