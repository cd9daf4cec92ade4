"""The lock of a folder, with filelock, which comes with an extra."""

import os
from pathlib import Path

from fedpick.core.errors import MissingError

try:
    from filelock import FileLock
except ImportError:
    raise MissingError(
        "locking a folder needs filelock: pip install 'fedpick[cli]', or for a server 'fedpick[server]'"
    ) from None

__all__ = ["FolderLock"]


class _OwnLock(FileLock):
    """A lock that a fork of its process cannot release, not even by ending: both have the same open file."""

    process = 0

    def release(self, force: bool = False) -> None:
        """Release it, if this is the process that acquired it."""
        if self.process == os.getpid():
            super().release(force)


class FolderLock:
    """The lock of a folder, in a file of it; made without being acquired.

    It belongs to the process that acquired it and to none of its forks, and to no thread: a server may be opened in one
    and closed in another.
    """

    def __init__(self, path: Path) -> None:
        # The file is made here, so that it gets the mode that the user's mask leaves, as all other files do.
        flags = os.O_CREAT | os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
        handle = os.open(path, flags, 0o666)
        self._path, self._mode = path, os.fstat(handle).st_mode & 0o777
        os.close(handle)
        self._lock: _OwnLock | None = None

    def acquire(self) -> None:
        """Lock the folder; a TimeoutError at once if it is locked already."""
        lock = _OwnLock(self._path, timeout=0, thread_local=False, mode=self._mode)
        lock.process = os.getpid()
        lock.acquire()
        self._lock = lock

    def release(self) -> None:
        """Unlock the folder, if this process has locked it."""
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()
