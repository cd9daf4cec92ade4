"""Arrays and one JSON text in a .npz file: without pickle and compression, and the text lists all arrays.

Every member has its CRC-32: a file is read whole, or refused. Sizes are checked before memory is allocated, so that a
file made to harm is refused like a damaged one.
"""

import io
import json
import math
import os
import struct
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from fedpick._support import atomic
from fedpick._version import __version__
from fedpick.core.errors import StateError

__all__ = ["BROKEN", "FORMAT", "dump_archive", "is_newer", "read_archive", "read_arrays", "write_archive"]

FORMAT = 1  # increased when older files can no longer be read
META = "fedpick.json"
MEMBERS = "members"  # key of the text with the names of all arrays
LONGEST_META = 2**24  # bytes of the text
LARGEST, MOST_DENSE = 2**30, 200  # most bytes that a small file may unpack to; most times its size, for a large one
BROKEN = (  # what reading a damaged file can raise
    *(zipfile.BadZipFile, zlib.error, struct.error, KeyError, ValueError, EOFError, TypeError, AttributeError),
    *(OSError, RuntimeError, RecursionError, MemoryError, NotImplementedError, OverflowError, SyntaxError),
)


def dump_archive(file: IO[bytes], arrays: Mapping[str, Any], meta: Mapping[str, Any]) -> None:
    """Write arrays and one JSON text to an open file, as a .npz whose bytes do not depend on the clock."""
    text = json.dumps({**meta, MEMBERS: list(arrays)}, indent=1)
    with zipfile.ZipFile(file, "w") as archive:  # stored, not deflated: a large state is written often
        archive.writestr(zipfile.ZipInfo(META), text)
        for name, value in arrays.items():
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as out:
                np.lib.format.write_array(out, np.asarray(value), allow_pickle=False)


def write_archive(path: str | os.PathLike[str], arrays: dict[str, Any], meta: dict[str, Any]) -> None:
    """Write arrays and one JSON text to a .npz file, atomically: the old file stays whole until the new one is."""
    target = Path(path)
    atomic.make_folder(target.parent)
    with atomic.creating(target) as file:
        dump_archive(file, arrays, meta)


def read_npy(raw: bytes) -> NDArray[Any]:
    """An array from the bytes of a .npy file, which must hold as many numbers as its header says."""
    stream = io.BytesIO(raw)
    version = np.lib.format.read_magic(stream)
    if version not in ((1, 0), (2, 0)):  # what NumPy writes of numbers and texts
        raise ValueError(f"a .npy of version {version}")
    header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = header(stream)
    if dtype.hasobject or dtype.itemsize == 0 or dtype.names is not None:
        raise ValueError(f"an array of {str(dtype)[:40]}, which is not of numbers or texts")
    begin = stream.tell()
    if any(length < 0 for length in shape) or math.prod(shape) * dtype.itemsize != len(raw) - begin:
        raise ValueError(f"an array of shape {str(shape)[:60]} in {len(raw) - begin} bytes")
    flat = np.frombuffer(raw, dtype, offset=begin)
    return flat.reshape(shape, order="F" if fortran else "C").copy()


def read_arrays(path: Path, names: Sequence[str] = ()) -> dict[str, NDArray[Any]]:
    """The arrays of any .npz file, compressed or not; a zip bomb is refused before it is unpacked.

    Args:
        path: of the file.
        names: of the arrays to read; empty: all.
    """
    size = path.stat().st_size
    with zipfile.ZipFile(path) as archive:
        entries = archive.infolist()
        whole = sum(entry.file_size for entry in entries)
        if whole > max(LARGEST, MOST_DENSE * size):
            raise ValueError(f"it claims {whole} bytes in a file of {size}")
        found = {entry.filename.removesuffix(".npy"): entry for entry in entries}
        return {name: read_npy(archive.read(entry)) for name, entry in found.items() if not names or name in names}


def is_newer(version: object) -> bool:
    """Whether a file was written by a later minor version than this one.

    >>> is_newer("999.0.1"), is_newer("0.1"), is_newer(None)
    (True, False, False)
    """
    try:
        return tuple(map(int, str(version).split(".")[:2])) > tuple(map(int, __version__.split(".")[:2]))
    except ValueError:
        return False


def _member(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, size: int, longest: int | None = None) -> bytes:
    """The bytes of a member; one that claims an impossible size is refused before it is read."""
    if entry.compress_type != zipfile.ZIP_STORED or entry.flag_bits & 0x1:
        raise ValueError(f"{entry.filename[:80]!r} is compressed or encrypted, as no file of fedpick's is")
    if entry.file_size > size or entry.compress_size != entry.file_size or entry.file_size > (longest or size):
        raise ValueError(f"{entry.filename[:80]!r} of {entry.file_size} bytes in a file of {size}")
    return archive.read(entry)


def read_archive(
    path: str | os.PathLike[str], part: bytes | None = None
) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Read what `write_archive` wrote; a StateError describes the fault of a damaged file.

    Args:
        path: of the file.
        part: the bytes of one archive, if the file holds several.
    """
    source = Path(path)
    try:
        size = source.stat().st_size if part is None else len(part)
        with zipfile.ZipFile(source if part is None else io.BytesIO(part)) as archive:
            entries = {entry.filename: entry for entry in archive.infolist()}
            if len(entries) != len(archive.infolist()) or sum(entry.file_size for entry in entries.values()) > size:
                raise ValueError(f"{len(archive.infolist())} members that do not fit into {size} bytes")
            meta = json.loads(_member(archive, entries[META], size, LONGEST_META))
            if not isinstance(meta, dict) or "format" not in meta:
                raise KeyError("format")
            names = [name for name in entries if name != META]
            if [f"{name}.npy" for name in meta.pop(MEMBERS)] != names:
                raise ValueError("a member is missing, or there is one too many")
            arrays = {name.removesuffix(".npy"): read_npy(_member(archive, entries[name], size)) for name in names}
    except BROKEN as error:
        raise StateError(
            f"{source}: not a complete fedpick state ({type(error).__name__}: {str(error)[:200]}); it was truncated, "
            "damaged or written by another program. Restore a backup, or start anew with policy.init(clients)"
        ) from None
    other, this = str(meta.get("fedpick"))[:40], f"but this is fedpick {__version__}, which reads format {FORMAT}"
    if meta["format"] != FORMAT:
        raise StateError(f"{source}: state format {meta['format']}, {this}; read it with fedpick {other}")
    if is_newer(meta.get("fedpick")):
        raise StateError(f"{source}: was written by fedpick {other}, {this} of its own version and before; upgrade")
    return arrays, meta
