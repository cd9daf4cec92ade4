"""Weights & Biases: offline runs in a folder; `wandb sync` sends them, nothing here does."""

from pathlib import Path
from typing import Any

from fedpick.report._extras import needed
from fedpick.report.trackers.source import Marks, Source

__all__ = ["WandB"]


class WandB:
    """Metrics by round. Rounds that are copied later are another part of the same run: `wandb sync --append`.

    Args:
        folder: that gets a folder wandb/.
        project: name of the project.
    """

    def __init__(self, folder: Path, project: str) -> None:
        self._wandb: Any = needed("wandb", "tracking in Weights & Biases", "trackers")
        self._folder, self._project, self._marks = folder, project, Marks(folder, "wandb")

    def copy(self, source: Source) -> int:
        """Copy the rounds that were not copied before; returns their number."""
        after = self._marks.get(source.key)
        if source.last <= after:
            return 0
        quiet = self._wandb.Settings(
            silent=True, console="off", disable_git=True, disable_code=True, x_disable_stats=True, x_disable_meta=True
        )
        run = self._wandb.init(
            mode="offline",
            dir=str(self._folder),
            project=self._project,
            name=source.name,
            id=source.key,
            config=dict(source.settings),
            reinit="create_new",
            settings=quiet,
        )
        new = 0
        for number, _, metrics in source.rounds(after):
            run.log(metrics, step=number)
            new += 1
        for tag, value in source.scores().items():
            run.summary[tag] = value
        run.finish()
        self._marks.set(source.key, source.last)
        return new

    def close(self) -> None:
        """Nothing is open."""
