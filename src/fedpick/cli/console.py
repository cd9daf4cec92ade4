"""The consoles of the command line."""

import sys
import warnings
from collections.abc import Callable

from rich.console import Console
from rich.markup import escape

from fedpick.core.errors import FedpickError

__all__ = ["err", "missed", "out", "plain", "run", "written"]

# No emoji: a name may contain ":Loop:".
out = Console(emoji=False)
err = Console(stderr=True, emoji=False)


def plain(text: object) -> str:
    """A text without control characters: names of files and clients may hold codes that move a terminal's cursor.

    >>> plain("run\\x1b[2J, and\\na second line")
    'run?[2J, and\\na second line'
    """
    return "".join(char if char.isprintable() or char == "\n" else "?" for char in str(text))


def missed(reasons: list[str]) -> None:
    """Print why files could not be made."""
    for why in reasons:
        err.print(plain(why), markup=False, soft_wrap=True)


def written(folder: object, files: list[str], reasons: list[str]) -> None:
    """Print where results are, and why other files could not be made."""
    missed(reasons)
    out.print(plain(f"written to {folder}: {', '.join(files)}"), markup=False, soft_wrap=True)


def _warn(message: Warning | str, category: type[Warning], *where: object, **more: object) -> None:
    if issubclass(category, UserWarning):  # others are for programmers
        err.print(plain(f"warning: {message}"), markup=False, soft_wrap=True)


def run(app: Callable[[], None]) -> None:
    """Run the command line; a user's mistake is printed as one line, and so are warnings."""
    warnings.showwarning = _warn
    try:
        app()
    except FedpickError as error:
        err.print(f"[bold red]error:[/] {escape(plain(error))}", soft_wrap=True)
        sys.exit(2)
    except OSError as error:  # a name that is too long, a folder that may not be looked into
        said = plain(f"error: {error.filename or 'a file'}: {error.strerror or error}; choose another")
        err.print(said, markup=False, soft_wrap=True)
        sys.exit(2)
