"""Locks of folders, from a package that comes with an extra: whoever lacks it is told which."""

from fedpick.core.errors import MissingError

try:
    from filelock import FileLock, Timeout
except ImportError:
    raise MissingError(
        "locking a folder needs filelock: pip install 'fedpick[cli]', or for a server 'fedpick[server]'"
    ) from None

__all__ = ["FileLock", "Timeout"]
