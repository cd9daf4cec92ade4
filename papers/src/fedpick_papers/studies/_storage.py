"""Measurements on the disk: a file for each job and, of what a GPU measured, an archive for each paper.

    OUT/.jobs/PAPER/FIGURE/NAME-KEY/measured.npz     a job's measurement: arrays and plain data by name
    OUT/PAPER/measured.tar.xz                        the same files as FIGURE/NAME-KEY.npz, with a SHA-256 of them all

The archives are for repositories: a study without a GPU reads from them what was measured on one. `pack` writes them.
"""

import io
import json
import logging
import lzma
import os
import tarfile
from pathlib import Path
from typing import Any

import numpy as np

from fedpick import store
from fedpick.core.errors import StateError, StoreError
from fedpick_papers.studies._study import Measurement

__all__ = ["ARCHIVE", "FILE", "JOBS", "pack", "read", "read_packed", "write"]

log = logging.getLogger(__name__)

JOBS = ".jobs"
FILE = "measured.npz"
ARCHIVE = "measured.tar.xz"
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
        store.write_archive(path, arrays, {"format": FORMAT, "about": about, "measured": tree})
    except OSError as error:
        raise StoreError(
            f"{path}: cannot write ({error.strerror or error}); what was written before is whole. Free space or choose "
            "a folder you may write to, then repeat the same command"
        ) from None


def read(path: Path, about: dict[str, Any], packed: bytes | None = None) -> Measurement:
    """Read what `write` wrote; raises a StateError if the file is damaged or of another job.

    Args:
        path: of the file.
        about: what the measurement depends on.
        packed: the file's content from an archive, to be read in place of the file.
    """
    try:
        arrays, meta = store.read_archive(path, packed)
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


def read_packed(archive: Path) -> dict[str, bytes]:
    """The files of an archive, by FIGURE/NAME-KEY; none if there is no archive, a StoreError if it is not whole."""
    if not archive.is_file():
        return {}
    try:
        whole = lzma.decompress(archive.read_bytes(), lzma.FORMAT_XZ)  # checks the sum
        with tarfile.open(fileobj=io.BytesIO(whole), mode="r:") as opened:
            members = ((each.name, opened.extractfile(each)) for each in opened)
            return {name.removesuffix(".npz"): content.read() for name, content in members if content is not None}
    except (lzma.LZMAError, tarfile.TarError, EOFError, OSError) as error:
        raise StoreError(
            f"{archive}: is damaged ({error}); restore it, as with `git checkout`, or remove it to repeat its jobs"
        ) from None


def pack(out: str | os.PathLike[str]) -> list[Path]:
    """Add what a GPU measured under OUT/.jobs to the archives of the papers; returns those that have changed.

    What an archive has already stays as it is: a GPU need not give the same numbers twice.
    """
    place = Path(out)
    found: dict[str, dict[str, bytes]] = {}
    for file in sorted((place / JOBS).glob(f"*/*/*/{FILE}")):
        paper, figure, name = file.relative_to(place / JOBS).parts[:3]
        try:
            device = store.read_archive(file)[1].get("about", {}).get("device")
        except StateError:
            log.warning("%s: is damaged, or not whole; it is left out", file)
            continue
        if device == "gpu":
            found.setdefault(paper, {})[f"{figure}/{name}"] = file.read_bytes()
    changed = []
    for paper, files in found.items():
        archive = place / paper / ARCHIVE
        before = read_packed(archive)
        if files.keys() - before:
            _write_packed(archive, files | before)
            changed.append(archive)
    return changed


def _write_packed(archive: Path, files: dict[str, bytes]) -> None:
    """Write an archive whose bytes depend on nothing but the files."""
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w", format=tarfile.GNU_FORMAT) as opened:
        for name in sorted(files):
            info = tarfile.TarInfo(f"{name}.npz")  # its date is 1970, and it has no owner
            info.size = len(files[name])
            opened.addfile(info, io.BytesIO(files[name]))
    content = lzma.compress(whole.getvalue(), lzma.FORMAT_XZ, lzma.CHECK_SHA256, preset=9 | lzma.PRESET_EXTREME)
    try:
        archive.parent.mkdir(parents=True, exist_ok=True)
        with store.replacing(archive) as temporary:
            temporary.write_bytes(content)
    except OSError as error:
        raise StoreError(f"{archive}: cannot write ({error.strerror or error}); choose another folder") from None
