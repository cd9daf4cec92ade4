"""`fedpick verify`: whether files are still as they were written."""

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from fedpick.cli import console
from fedpick.server.journal import verify_journal
from fedpick.store.audit import Finding, verify

__all__ = ["app"]

app = typer.Typer()


@app.command(name="verify")
def verify_folder(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Of runs, comparisons, or a server's state.")],
) -> None:
    """Read every file of runs, comparisons or a server's state, and say which are undamaged.

    If there are several runs, only those with problems are listed. The exit code is 1 if a file is damaged or missing.
    Nothing is changed.
    """
    found = verify(folder, verify_journal)
    folders: dict[Path, list[Finding]] = {}
    for each in found:
        folders.setdefault(each.path if each.path.is_dir() else each.path.parent, []).append(each)
    if len(folders) == 1:
        _show(
            folder, ["file", "", "what it is"], [(_inside(each.path, folder), each.whole, each.text) for each in found]
        )
    bad = {where: [each for each in files if not each.whole] for where, files in folders.items()}
    bad = {where: files for where, files in bad.items() if files}
    if bad and len(folders) > 1:
        lines = [(_inside(where, folder), False, _problems(where, files)) for where, files in bad.items()]
        _show(folder, ["folder", "", "what is wrong"], lines)
    broken = sum(map(len, bad.values()))
    many = f", in {len(folders)} folders" if len(folders) > 1 else ""
    console.out.print(f"{len(found) - broken} of {len(found)} are whole{many}")
    if broken:
        raise typer.Exit(1)


def _inside(path: Path, folder: Path) -> str:
    return str(path.relative_to(folder)) if path != folder else "."


def _problems(where: Path, files: list[Finding]) -> str:
    """What is wrong in a folder: the first file, and how many others."""
    first = files[0].text if files[0].path == where else f"{files[0].path.name}: {files[0].text}"
    return first + (f"; and {len(files) - 1} more" if len(files) > 1 else "")


def _show(folder: Path, headings: list[str], lines: list[tuple[str, bool, str]]) -> None:
    table = Table(title=escape(console.plain(f"in {folder}")))
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for name, whole, status in lines:
        mark = Text("whole", "green") if whole else Text("NOT", "bold red")
        table.add_row(Text(console.plain(name)), mark, Text(console.plain(status)))
    console.out.print(table)
