"""Options shared by several commands."""

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["Device", "Executor", "Out", "Target", "Workers"]

Workers = Annotated[int | None, typer.Option(help="Number of processes (default: one per core).", min=1)]
Executor = Annotated[
    str, typer.Option(help="auto, serial, processes, stacked (many runs in one compiled call), or ray.")
]
Device = Annotated[str, typer.Option(help="auto, cpu or gpu.")]
Out = Annotated[Path | None, typer.Option("--out", "-o", help="Folder to write to.")]
Target = Annotated[
    float | None,
    typer.Option(
        help="Test accuracy: the table shows rounds and hours until it is reached (default: 95% of the reference's)."
    ),
]
