"""The consoles of the command line."""

import os
import shlex
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import typer
from rich.console import Console
from rich.markup import escape

from fedpick.core.errors import FedpickError, printable

__all__ = ["err", "line", "missed", "out", "plain", "run", "stoppable", "written"]

# No emoji: a name may contain ":Loop:".
out = Console(emoji=False)
err = Console(stderr=True, emoji=False)


def plain(text: object) -> str:
    """A text without control characters, in lines."""
    return printable(text, keep="\n")


def line(text: object, console: Console | None = None) -> None:
    """Print a text as it is, without control characters; a terminal breaks its lines."""
    (console or out).print(plain(text), markup=False, soft_wrap=True)


def missed(reasons: list[str]) -> None:
    """Print why files could not be made."""
    for why in reasons:
        line(why, err)


def written(folder: object, files: list[str], reasons: list[str]) -> None:
    """Print where results are, and why other files could not be made."""
    missed(reasons)
    line(f"written to {folder}: {', '.join(files)}")


@contextmanager
def stoppable(folder: object, references: Sequence[str] = ()) -> Iterator[None]:
    """When the user stops the work in this block, print the command that continues it, and exit.

    Args:
        folder: of the runs.
        references: the user's own code that they use, as "FILE.py:Name".
    """
    try:
        yield
    except KeyboardInterrupt as stop:
        command = shlex.join(["fedpick", "resume", str(folder), *(w for each in references for w in ("-p", each))])
        begun = os.path.isdir(str(folder))
        line(
            f"\nstopped; nothing is lost. Continue with: {command}" if begun else "\nstopped before the first run", err
        )
        raise typer.Exit(128 + getattr(stop, "signal", 2)) from None


def _warn(message: Warning | str, category: type[Warning], *where: object, **more: object) -> None:
    if issubclass(category, UserWarning):  # others are for programmers
        line(f"warning: {message}", err)


def run(app: Callable[[], None]) -> None:
    """Run the command line; a user's mistake is printed as one line, and so are warnings."""
    warnings.showwarning = _warn
    try:
        app()
    except FedpickError as error:
        err.print(f"[bold red]error:[/] {escape(plain(error))}", soft_wrap=True)
        sys.exit(2)
    except OSError as error:  # a name that is too long, a folder that may not be looked into
        line(f"error: {error.filename or 'a file'}: {error.strerror or error}; choose another", err)
        sys.exit(2)
