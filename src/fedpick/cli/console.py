"""The consoles of the command line, and its progress bars."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

__all__ = ["err", "out", "plain", "progress_of", "written"]

# No emoji: a name may contain ":Loop:".
out = Console(emoji=False)
err = Console(stderr=True, emoji=False)


def plain(text: object) -> str:
    """A text without control characters: names of files and clients may hold codes that move a terminal's cursor.

    >>> plain("run\\x1b[2J, and\\na second line")
    'run?[2J, and\\na second line'
    """
    return "".join(char if char.isprintable() or char == "\n" else "?" for char in str(text))


@contextmanager
def progress_of(names: list[str], rounds: list[int], begun: list[int]) -> Iterator[Callable[[int, int], None]]:
    """Show one bar for all rounds of all runs, and one for each run in progress.

    Args:
        names: of the runs.
        rounds: number of rounds of each run.
        begun: rounds that each run already has.
    """
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    bars = Progress(*columns, TimeRemainingColumn(), console=err, transient=True)
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
        bars.update(shown[index], completed=round)

    with bars:
        yield tell


def written(folder: object, files: list[str], missed: list[str]) -> None:
    """Print where results are, and which files could not be made."""
    for why in missed:
        err.print(plain(why), markup=False, soft_wrap=True)
    out.print(plain(f"written to {folder}: {', '.join(files)}"), markup=False, soft_wrap=True)
