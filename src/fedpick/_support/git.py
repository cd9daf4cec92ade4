"""The git commit of the working directory, from git's files: git itself would run hooks that a folder configures.

A folder can come from anybody. Only regular files inside its git directory are read, up to a limit, and nothing but an
object's id is returned.
"""

import os
import re
import stat
from pathlib import Path

__all__ = ["commit"]

SHORT, LONG = 2**12, 2**25  # bytes that are read of a file: of one line, and of packed-refs
_ID = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_REF = re.compile(r"refs(/(?!\.)[^\x00-\x20\x7f~^:?*\[\\/]+)+")


def _read(folder: Path, name: str, most: int = SHORT) -> str:
    """The text of a regular file in this folder, not behind a link out of it; anything else is an OSError."""
    path = (folder / name).resolve(strict=True)
    if not path.is_relative_to(folder.resolve()):
        raise OSError(f"{path} is outside {folder}")
    if not stat.S_ISREG(path.stat().st_mode):  # to open a device can do something
        raise OSError(f"{path} is not a regular file")
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0))
    with open(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(f"{path} is not a regular file")
        text = file.read(most + 1)
    if len(text) > most:
        raise OSError(f"{path} has more than {most} bytes")
    return os.fsdecode(text)


def _look(folder: Path, name: str, most: int = SHORT) -> str:
    """As `_read`; "" if there is no such file."""
    try:
        return _read(folder, name, most)
    except FileNotFoundError:
        return ""


def _ref_of(git: Path, ref: str) -> str:
    """What a ref of this git directory points to; "" if it has no such ref."""
    common = git
    if other := _look(git, "commondir").strip():  # a worktree has the refs of its repository
        common = git / other
    for place in (git, common):
        if found := _look(place, ref).strip():
            return found
    for line in _look(common, "packed-refs", LONG).splitlines():
        if line.endswith(f" {ref}"):
            return line.split()[0]
    return ""


def commit() -> str | None:
    """The id of the commit that is checked out in the working directory; None if there is none that can be read."""
    try:
        here = Path.cwd()
        checkout = next((folder for folder in (here, *here.parents) if (folder / ".git").exists()), None)
        if checkout is None:
            return None
        git = checkout / ".git"
        if git.is_file():  # of a worktree or a submodule: it says where the git directory is
            git = checkout / _read(checkout, ".git").removeprefix("gitdir:").strip()
        found = _read(git, "HEAD").strip()
        if found.startswith("ref:"):
            ref = found.removeprefix("ref:").strip()
            found = _ref_of(git, ref) if _REF.fullmatch(ref) and ".." not in ref else ""
        return found if _ID.fullmatch(found) else None
    except (OSError, ValueError, RuntimeError):  # a path with a null, links in a circle
        return None
