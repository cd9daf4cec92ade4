"""`fedpick verify`: whether what was written is still what is there."""

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from fedpick.cli import console
from fedpick.server.journal import verify_journal
from fedpick.store.verify import verify

__all__ = ["app"]

app = typer.Typer()


@app.command(name="verify")
def verify_folder(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Of runs, comparisons, or a server's state.")],
) -> None:
    """Read every file of runs, comparisons or a server's state, and say what is whole.

    Ends with exit code 1 if something is not. Nothing is changed.
    """
    found = verify(folder, verify_journal)
    table = Table(title=escape(console.plain(f"in {folder}")))
    for heading in ("file", "", "what it is"):
        table.add_column(heading, overflow="fold")
    for each in found:
        inside = each.path.relative_to(folder) if each.path != folder else Path(".")
        mark = Text("whole", "green") if each.whole else Text("NOT", "bold red")
        table.add_row(Text(console.plain(str(inside))), mark, Text(console.plain(each.said)))
    console.out.print(table)
    broken = sum(not each.whole for each in found)
    console.out.print(f"{len(found) - broken} of {len(found)} are whole")
    if broken:
        raise typer.Exit(1)
