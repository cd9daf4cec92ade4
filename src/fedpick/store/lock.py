"""The lock of a folder, with filelock, which comes with an extra."""

import os
from pathlib import Path

from fedpick.core.errors import MissingError

try:
    from filelock import BaseFileLock, FileLock
except ImportError:
    raise MissingError(
        "locking a folder needs filelock: pip install 'fedpick[cli]', or for a server 'fedpick[server]'"
    ) from None

__all__ = ["lock_at"]


def lock_at(path: Path) -> BaseFileLock:
    """A lock in this file, not acquired yet; `acquire` raises a TimeoutError at once if another process holds it.

    It belongs to no thread: a server may be opened in one and closed in another.
    """
    # The file is made here, so that it gets the mode that the user's mask leaves, as all other files do.
    handle = os.open(path, os.O_CREAT | os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0), 0o666)
    mode = os.fstat(handle).st_mode & 0o777
    os.close(handle)
    return FileLock(path, timeout=0, thread_local=False, mode=mode)
