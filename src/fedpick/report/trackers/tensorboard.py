"""TensorBoard: an event file per run and call, readable without TensorFlow."""

import json
from pathlib import Path

from fedpick.report._extras import needed
from fedpick.report.trackers.source import Marks, Source

__all__ = ["TensorBoard"]


class TensorBoard:
    """Scalars by round; a step's time is the run's clock, so that TensorBoard's "relative" is the run's own time.

    Args:
        folder: TensorBoard's --logdir.
    """

    def __init__(self, folder: Path) -> None:
        self._events = needed("tensorboard.compat.proto.event_pb2", "tracking in TensorBoard", "trackers")
        self._summaries = needed("tensorboard.compat.proto.summary_pb2", "tracking in TensorBoard", "trackers")
        self._text = needed("tensorboard.plugins.text.summary_v2", "tracking in TensorBoard", "trackers")
        self._writers = needed("tensorboard.summary.writer.event_file_writer", "tracking in TensorBoard", "trackers")
        self._folder, self._marks = folder, Marks(folder, "tensorboard")

    def copy(self, source: Source) -> int:
        """Copy the rounds that were not copied before; returns their number."""
        after = self._marks.get(source.key)
        if source.last <= after:
            return 0
        stem = "".join(char if char.isalnum() or char in "-_.=" else "-" for char in source.name)[:80]
        writer = self._writers.EventFileWriter(str(self._folder / f"{stem}_{source.key[:8]}"))
        if not after:
            said = "\n".join("    " + line for line in json.dumps(source.settings, indent=1).splitlines())  # as code
            text = self._text.text_pb("settings", said)
            writer.add_event(self._events.Event(step=0, wall_time=0.0, summary=text))
        new, clock = 0, 0.0
        for number, clock, metrics in source.rounds(after):
            self._add(writer, number, clock, metrics)
            new += 1
        self._add(writer, source.last, clock, source.scores())
        writer.close()
        self._marks.set(source.key, source.last)
        return new

    def _add(self, writer: object, step: int, clock: float, metrics: dict[str, float]) -> None:
        summary = self._summaries.Summary
        values = [summary.Value(tag=tag, simple_value=value) for tag, value in metrics.items()]
        event = self._events.Event(step=step, wall_time=clock, summary=summary(value=values))
        writer.add_event(event)  # type: ignore[attr-defined]

    def close(self) -> None:
        """Nothing is open."""
