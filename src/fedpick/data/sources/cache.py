"""The user's cache folder, and the files of arrays in it.

Files are replaced in one step once they are complete, so a process that is killed, or two that fetch at the same time,
never leave a partial file under a data set's name.
"""

import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError

import numpy as np
from numpy.typing import NDArray

from fedpick._support import archive
from fedpick._support.atomic import replacing
from fedpick.core.errors import DamagedError, DataError

__all__ = ["Arrays", "cache_folder", "read_arrays", "reason", "set_aside", "user_folder", "writable", "write_arrays"]

Arrays = dict[str, NDArray[Any]]


def cache_folder(folder: str | os.PathLike[str] | None = None) -> Path:
    """Where data sets are kept: `folder`, else $FEDPICK_DATA, else fedpick's folder in the user's cache.

    >>> cache_folder("here").name
    'here'
    """
    chosen = folder if folder is not None else os.environ.get("FEDPICK_DATA") or None
    return user_folder() if chosen is None else Path(chosen).expanduser().absolute()


def user_folder() -> Path:
    """fedpick's folder in the user's cache."""
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "fedpick" / "Cache"
    usual = Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache")
    return Path(os.environ.get("XDG_CACHE_HOME") or usual) / "fedpick"


def writable(folder: Path) -> Path:
    """Make the folder if it does not exist, and check that it is writable before anything large is fetched."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError as error:
        raise DataError(
            f"cannot write to {folder} ({reason(error)}); set FEDPICK_DATA to a folder that you can write to"
        ) from None


def write_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write arrays to one .npz file, replaced in one step: a reader sees the old file or the new one, never a part."""
    writable(path.parent)
    try:
        with replacing(path) as temporary, temporary.open("wb") as file:  # savez adds .npz to a path, not to a file
            np.savez(file, **arrays)
    except OSError as error:
        raise DataError(f"cannot write {path} ({reason(error)}); is the disk full?") from None


def read_arrays(path: Path, *names: str) -> Arrays:
    """Read all arrays of an .npz file, or those with these names; a DamagedError unless the file is complete.

    Checksums are compared before the bytes are parsed, and nothing is unpickled.
    """
    try:
        path.open("rb").close()
    except OSError as error:
        raise DataError(f"cannot read {path} ({reason(error)})") from None
    try:
        return archive.read_arrays(path, names)
    except archive.BROKEN as error:
        raise DamagedError(f"{path}: truncated or damaged ({reason(error)})") from None


def set_aside(path: Path) -> Path | None:
    """Rename a damaged file so that it is not read again; returns the new path, None where renaming is not allowed."""
    aside = path.with_name(path.name + ".damaged")
    try:
        os.replace(path, aside)
    except OSError:
        return None
    return aside


def reason(error: BaseException) -> str:
    """The cause of an error, without the number and path that Python adds."""
    if isinstance(error, HTTPError):
        return f"the server answered {error.code} {error.reason}"
    if isinstance(error, URLError) and isinstance(error.reason, BaseException):
        return reason(error.reason)
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
