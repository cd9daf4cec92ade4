"""Commands of other packages: each entry point of the group `fedpick.commands` is a Typer app."""

from collections.abc import Callable
from importlib.metadata import entry_points

import typer

from fedpick.cli import console
from fedpick.core.errors import MissingError

__all__ = ["GROUP", "add_commands"]

GROUP = "fedpick.commands"
# Commands of fedpick-papers, listed even where it is not installed: the documentation speaks of them.
PAPERS = {
    "reproduce": "Rerun the papers' experiments and compare our results with the printed ones.",
    "judge": "Judge the stored results of `fedpick reproduce` anew and write the index of all papers.",
}
INSTALL = "in a clone of the repository, pip install ./papers"


def add_commands(app: typer.Typer) -> None:
    """Add the commands of installed packages, and in place of those that are missing one that says what to install."""
    found: set[str | None] = set()
    for entry in entry_points(group=GROUP):
        try:
            commands: typer.Typer = entry.load()
        except Exception as error:  # whatever another package raises: the other commands work without it
            console.err.print(f"warning: {entry.value} gives no commands ({error})", markup=False, soft_wrap=True)
            continue
        app.add_typer(commands)
        found |= {each.name or each.callback.__name__ for each in commands.registered_commands if each.callback}
    anything = {"allow_extra_args": True, "ignore_unknown_options": True}
    absent = typer.Typer()  # an app of their own, so that they are listed last
    for name, summary in PAPERS.items():
        if name not in found:
            help = f"{summary} Needs the package fedpick-papers: {INSTALL}."
            absent.command(name, help=help, context_settings=anything)(_absent(name))
    app.add_typer(absent)


def _absent(name: str) -> Callable[[], None]:
    def absent() -> None:
        raise MissingError(f"`fedpick {name}` is a command of the package fedpick-papers: {INSTALL}")

    return absent
