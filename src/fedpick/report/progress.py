"""Progress of runs on a terminal."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TaskID, TextColumn
from rich.table import Column
from rich.text import Text

from fedpick.core.errors import printable

__all__ = ["progress_of", "terminal"]


def terminal() -> Console | None:
    """A console on stderr if that is a terminal; None for files, pipes and notebooks."""
    return Console(stderr=True, emoji=False) if sys.stderr is not None and sys.stderr.isatty() else None


class _Speed(ProgressColumn):
    """Rounds a second."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if not speed else f"{speed:,.0f}/s" if speed >= 10 else f"{speed:.2g}/s", no_wrap=True)


class _TimeLeft(ProgressColumn):
    """The time left, or until it is known the time so far."""

    max_refresh = 0.5

    def render(self, task: Task) -> Text:
        left = task.time_remaining
        seconds = int(task.elapsed or 0) if left is None else int(left)
        clock = f"{seconds // 60}:{seconds % 60:02}" if seconds < 3600 else f"{seconds / 3600:.1f} h"
        return Text(clock if left is None else f"{clock} left", no_wrap=True)


@contextmanager
def progress_of(
    names: Sequence[str], rounds: Sequence[int], begun: Sequence[int], console: Console
) -> Iterator[Callable[[int, int], None]]:
    """Show one bar for all rounds of all runs, and one for each run in progress; `begun` are the rounds they have."""
    name = TextColumn(
        "{task.description}", markup=False, table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis")
    )
    columns = (name, BarColumn(bar_width=12), MofNCompleteColumn(), _Speed(), _TimeLeft())
    bars = Progress(*columns, console=console, transient=True, expand=console.width < 100)
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
            shown[index] = bars.add_task(printable(names[index]), total=rounds[index])
        compiling = ": compiling" if round == begun[index] else ""  # before its first round
        bars.update(shown[index], completed=round, description=printable(names[index]) + compiling)

    with bars:
        yield tell
