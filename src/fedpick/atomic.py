"""Replace files atomically; all of fedpick's files are written this way."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["LEFTOVERS", "replacing", "write_text"]

LEFTOVERS = "*." + 8 * "[0-9a-f]" + ".tmp"  # temporary files left by a process that was killed while writing


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a temporary path in the same folder, which replaces `path` when the block ends without an error.

    The old file is intact until the new one is on disk; if the block raises, it is kept.

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
