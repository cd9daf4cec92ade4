"""What a tracker is told about a run, under names that every tracker accepts."""

import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from fedpick._support import atomic
from fedpick.report.played import read_runs
from fedpick.report.runs import RunInfo
from fedpick.report.tables import printable
from fedpick.store.manifest import read_manifest

__all__ = ["Marks", "Source", "Tracker", "source_of"]

LONGEST_TAG, LONGEST_TEXT = 200, 450  # characters: of a metric's name, and of a setting; MLflow takes 250 and 500
MARKS = "fedpick-tracked.json"
ABOUT = ("policy", "world", "cohort_size", "data", "train", "seed", "engine")
FREE = ("rounds", "checkpoint_every")  # a run may be continued


class Tracker(Protocol):
    """A tracker: copies what is new of a run."""

    def copy(self, source: "Source") -> int:
        """Copy the rounds that were not copied before; returns their number."""
        ...

    def close(self) -> None:
        """Write everything."""
        ...


@dataclass(frozen=True, eq=False)
class Source:
    """A run: its key (which never changes), its name, its settings, and its rounds."""

    info: RunInfo
    key: str
    name: str
    settings: Mapping[str, str]

    @cached_property
    def _played(self) -> Any:
        return read_runs([self.info], each=True)[0][0]

    @property
    def last(self) -> int:
        """The last round."""
        return int(self._played.all_rounds["round"].to_numpy().max())

    def rounds(self, after: int) -> Iterator[tuple[int, float, dict[str, float]]]:
        """Number, clock and metrics of each round after this one; what is unknown or not finite is left out."""
        table = self._played.all_rounds
        names = tags([name for name in table.column_names if name != "round"])
        for row in table.filter(table["round"].to_numpy() > after).to_pylist():
            found = {names[key]: float(value) for key, value in row.items() if key in names and value is not None}
            yield int(row["round"]), float(row["clock"]), {k: v for k, v in found.items() if math.isfinite(v)}

    def scores(self) -> dict[str, float]:
        """The scores up to the last round."""
        found = self._played.scores
        names = tags(list(found))
        return {f"score/{names[key]}": float(value) for key, value in found.items() if math.isfinite(value)}


def tags(names: list[str]) -> dict[str, str]:
    """Names of metrics as every tracker accepts them, no two the same.

    >>> tags(["accuracy", "<b>", "[b]"])
    {'accuracy': 'accuracy', '<b>': '_b_', '[b]': '_b__2'}
    """
    found: dict[str, str] = {}
    taken: set[str] = set()
    for name in names:
        tag = stem = re.sub(r"[^A-Za-z0-9_.\-]", "_", name)[:LONGEST_TAG] or "_"
        number = 2
        while tag in taken:
            tag, number = f"{stem}_{number}", number + 1
        taken.add(tag)
        found[name] = tag
    return found


def source_of(info: RunInfo) -> Source:
    """What is told about a run."""
    manifest = read_manifest(info.folder)
    where = "" if info.simulated else str(info.folder.resolve())  # two servers may have the same settings
    said = json.dumps([manifest["config"], where], sort_keys=True)
    said = re.sub(r'"(rounds|checkpoint_every)": \d+(, )?', "", said)  # a run may be continued
    about = {
        name: getattr(info, name) for name in ("policy", "world", "cohort_size", "data", "train", "seed", "engine")
    }
    settings = {key: printable(str(value))[:LONGEST_TEXT] for key, value in about.items() if value not in (None, "")}
    settings |= {"folder": printable(str(info.folder))[-LONGEST_TEXT:], "fedpick": str(manifest.get("fedpick"))}
    name = printable(f"{info.policy[:LONGEST_TAG]} seed {info.seed}")
    return Source(info, hashlib.blake2b(said.encode(), digest_size=8).hexdigest(), name, settings)


class Marks:
    """The last round that was copied of each run, in a file beside the copies.

    Args:
        folder: of the copies.
        to: name of the tracker.
    """

    def __init__(self, folder: Path, to: str) -> None:
        self._file, self._to = folder / MARKS, to
        atomic.make_folder(folder)

    def _all(self) -> dict[str, Any]:
        try:
            found = json.loads(self._file.read_text(encoding="utf-8"))
            return found if isinstance(found, dict) else {}
        except (OSError, ValueError):
            return {}

    def get(self, key: str) -> int:
        """The last round of this run that was copied; 0 if none was."""
        found = self._all().get(self._to, {}).get(key, 0)
        return found if isinstance(found, int) else 0

    def set(self, key: str, last: int) -> None:
        """Remember the last round that was copied."""
        found = self._all()
        found.setdefault(self._to, {})[key] = last
        atomic.write_text(self._file, json.dumps(found, indent=1) + "\n")
