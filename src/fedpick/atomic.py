"""The one way in which fedpick replaces a file: whole, or not at all."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["LEFTOVERS", "replacing", "write_text"]

LEFTOVERS = "*." + 8 * "[0-9a-f]" + ".tmp"  # names that a process killed while it wrote leaves behind


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Hand out a temporary path beside `path`, which takes its place when the block ends well.

    The old file stays whole until the new one is on the disk; if the block raises, it stays for good.

    >>> import tempfile
    >>> target = Path(tempfile.mkdtemp()) / "notes.txt"
    >>> with replacing(target) as temporary:
    ...     _ = temporary.write_text("hello")
    >>> target.read_text()
    'hello'
    """
    target = Path(path)
    temporary = target.with_name(f"{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Replace a text file."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
