"""Options that several commands have."""

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["Device", "Executor", "Out", "Target", "Workers"]

Workers = Annotated[int | None, typer.Option(help="Processes; one per core if not given.", min=1)]
Executor = Annotated[
    str, typer.Option(help="auto, serial, processes, stacked (many runs in one compiled call), or ray.")
]
Device = Annotated[str, typer.Option(help="auto, cpu or gpu.")]
Out = Annotated[Path | None, typer.Option("--out", "-o", help="Folder to write to.")]
Target = Annotated[
    float | None, typer.Option(help="Accuracy to count rounds and hours to; else a little less than the first reaches.")
]
