"""Store a job's measurement in a file: arrays and plain data by name, written atomically."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from fedpick._support.archive import read_archive, write_archive
from fedpick.core.errors import StateError, StoreError
from fedpick.studies._study import Measurement

__all__ = ["read", "write"]

FORMAT = 1  # increased when older files can no longer be read
_ARRAY = "an array of this file"


def write(path: Path, measurement: Measurement, about: dict[str, Any]) -> None:
    """Write a measurement, and what it depends on."""
    arrays: dict[str, Any] = {}

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {str(name): plain(part) for name, part in value.items()}
        if isinstance(value, list | tuple):
            return [plain(part) for part in value]
        if isinstance(value, np.ndarray):
            name = f"array{len(arrays)}"
            arrays[name] = value
            return {_ARRAY: name}
        return value.item() if isinstance(value, np.generic) else value

    tree = plain(measurement)
    try:
        write_archive(path, arrays, {"format": FORMAT, "about": about, "measured": tree})
    except OSError as error:
        raise StoreError(
            f"{path}: cannot write ({error.strerror or error}); what was written before is whole. Free space or choose "
            "a folder you may write to, then repeat the same command"
        ) from None


def read(path: Path, about: dict[str, Any]) -> Measurement:
    """Read what `write` wrote; raises a StateError if the file is damaged or of another job."""
    try:
        arrays, meta = read_archive(path)
    except StateError:
        raise StateError(f"{path}: is damaged, or not whole") from None

    def whole(value: Any) -> Any:
        if isinstance(value, dict):
            return arrays[value[_ARRAY]] if list(value) == [_ARRAY] else {k: whole(part) for k, part in value.items()}
        return [whole(part) for part in value] if isinstance(value, list) else value

    try:
        if meta["format"] != FORMAT or meta["about"] != json.loads(json.dumps(about)):
            raise StateError(f"{path}: is of another job")
        found: Measurement = whole(meta["measured"])
    except (KeyError, TypeError, AttributeError) as error:
        raise StateError(f"{path}: is no measurement ({type(error).__name__}: {error})") from None
    return found
