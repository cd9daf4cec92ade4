"""The consoles of the command line, and its progress bars."""

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TaskID, TextColumn
from rich.table import Column
from rich.text import Text

from fedpick.errors import FedpickError

__all__ = ["err", "out", "plain", "progress_of", "run", "written"]

# No emoji: a name may contain ":Loop:".
out = Console(emoji=False)
err = Console(stderr=True, emoji=False)


def plain(text: object) -> str:
    """A text without control characters: names of files and clients may hold codes that move a terminal's cursor.

    >>> plain("run\\x1b[2J, and\\na second line")
    'run?[2J, and\\na second line'
    """
    return "".join(char if char.isprintable() or char == "\n" else "?" for char in str(text))


class _Speed(ProgressColumn):
    """Rounds a second."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if not speed else f"{speed:,.0f}/s" if speed >= 10 else f"{speed:.2g}/s", no_wrap=True)


class _Left(ProgressColumn):
    """The time left, or until it is known the time so far."""

    max_refresh = 0.5

    def render(self, task: Task) -> Text:
        left = task.time_remaining
        seconds = int(task.elapsed or 0) if left is None else int(left)
        clock = f"{seconds // 60}:{seconds % 60:02}" if seconds < 3600 else f"{seconds / 3600:.1f} h"
        return Text(clock if left is None else f"{clock} left", no_wrap=True)


@contextmanager
def progress_of(names: list[str], rounds: list[int], begun: list[int]) -> Iterator[Callable[[int, int], None]]:
    """Show one bar for all rounds of all runs, and one for each run in progress.

    Args:
        names: of the runs.
        rounds: number of rounds of each run.
        begun: rounds that each run already has.
    """
    name = TextColumn(
        "{task.description}", markup=False, table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis")
    )
    columns = (name, BarColumn(bar_width=12), MofNCompleteColumn(), _Speed(), _Left())
    bars = Progress(*columns, console=err, transient=True, expand=err.width < 100)
    whole = bars.add_task(f"{len(names)} runs, rounds", total=sum(rounds), completed=sum(begun))
    reached = list(begun)
    shown: dict[int, TaskID] = {}

    def tell(index: int, round: int) -> None:
        reached[index] = round
        bars.update(whole, completed=sum(reached))
        if round >= rounds[index]:
            if index in shown:
                bars.remove_task(shown.pop(index))
            return
        if index not in shown:
            shown[index] = bars.add_task(plain(names[index]), total=rounds[index])
        compiling = ": compiling" if round == begun[index] else ""  # before its first round
        bars.update(shown[index], completed=round, description=plain(names[index]) + compiling)

    with bars:
        yield tell


def written(folder: object, files: list[str], missed: list[str]) -> None:
    """Print where results are, and which files could not be made."""
    for why in missed:
        err.print(plain(why), markup=False, soft_wrap=True)
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
