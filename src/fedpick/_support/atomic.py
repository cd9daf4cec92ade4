"""The one way in which fedpick changes a disk: a file is replaced whole or not at all, and a power cut undoes nothing.

A new file is written under a random name, which nobody can have guessed, synced to the disk, and renamed; then the
folder is synced, because a rename is permanent only when the folder is on the disk too.
"""

import filecmp
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

__all__ = [
    *("LEFTOVERS", "creating", "make_folder", "opened", "remove", "replacing", "sync_folder", "tidy"),
    *("write_bytes", "write_text"),
]

LEFTOVERS = "*." + 8 * "[0-9a-f]" + ".tmp"  # temporary files, which a killed process leaves behind
LONGEST_NAME = 200  # bytes of a file's name that its temporary name repeats; most systems allow 255 in all
_NEW = os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)


def opened(path: Path, mode: str) -> IO[bytes]:
    """Open a file to change it; fedpick writes every file through this function."""
    return path.open(mode)


def sync_folder(folder: Path) -> None:
    """Wait until what was renamed, made or removed in a folder is on the disk."""
    if os.name == "nt":  # Windows cannot sync folders
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a temporary path in the same folder, which replaces `path` when the block ends without an error.

    The old file stays whole until the new one is on the disk; if the block raises, it stays for good. A file that would
    be the same is not replaced.

    >>> import tempfile
    >>> target = Path(tempfile.mkdtemp()) / "notes.txt"
    >>> with replacing(target) as temporary:
    ...     _ = temporary.write_text("hello")
    >>> target.read_text()
    'hello'
    """
    target = Path(path)
    name = target.name.encode(errors="surrogateescape")[:LONGEST_NAME].decode(errors="ignore")
    temporary = target.with_name(f"{name}.{secrets.token_hex(4)}.tmp")
    os.close(os.open(temporary, _NEW, 0o666))  # a new file: a link planted here is not followed
    try:
        yield temporary
        if not target.is_symlink() and target.is_file() and filecmp.cmp(temporary, target, shallow=False):
            temporary.unlink()
            return
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, target)
        sync_folder(target.parent)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


@contextmanager
def creating(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """An open file that replaces `path` when the block ends without an error, as with `replacing`."""
    with replacing(path) as temporary, opened(temporary, "wb") as file:
        yield file


def write_bytes(path: str | os.PathLike[str], content: bytes) -> None:
    """Replace a file."""
    with creating(path) as file:
        file.write(content)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Replace a text file."""
    write_bytes(path, text.encode("utf-8"))


def make_folder(path: Path) -> None:
    """Make a folder and those above it, unless they exist."""
    if path.is_dir():
        return
    if not path.parent.exists():
        make_folder(path.parent)
    path.mkdir(exist_ok=True)
    sync_folder(path.parent)


def remove(path: Path) -> None:
    """Remove a file, if it exists; it may come back after a power cut."""
    path.unlink(missing_ok=True)


def tidy(folder: Path, older: float = 0.0) -> None:
    """Remove the temporary files of killed processes.

    Args:
        folder: to look in; not below.
        older: only files untouched for this many seconds; use more than 0 unless a lock excludes other writers.
    """
    for leftover in folder.glob(LEFTOVERS):
        with suppress(FileNotFoundError):
            if time.time() - leftover.lstat().st_mtime >= older:
                leftover.unlink()
