"""Compiled code is kept in the user's cache folder: processes side by side share it, and later runs begin at once.

JAX's own persistent cache, with a bound on its size, in `~/.cache/fedpick/compiled` (the folder of the user's cache in
which data sets are kept, too). $FEDPICK_COMPILED names another folder, or is "off". A cache that the user has given
JAX ($JAX_COMPILATION_CACHE_DIR) is left as it is.

The folder holds code that will be run: like any cache of this kind it must not be writable by others.
"""

import hashlib
import os
import platform
from contextlib import suppress
from pathlib import Path

import jax

from fedpick.data.sources.cache import user_folder

__all__ = ["keep_compiled"]

VARIABLE = "FEDPICK_COMPILED"
LARGEST = 512_000_000  # bytes; what was not used for the longest time goes first
OFF = ("off", "0", "no", "none")


def keep_compiled() -> Path | None:
    """Let JAX keep what it compiles in this process; gives the folder, None if it keeps nothing."""
    setting = os.environ.get(VARIABLE, "").strip()
    if setting.lower() in OFF or jax.config.jax_compilation_cache_dir:  # type: ignore[attr-defined]
        return None
    folder = (Path(setting).expanduser().absolute() if setting else user_folder() / "compiled") / _machine()
    try:
        import filelock  # with which JAX lets several processes write

        folder.mkdir(parents=True, exist_ok=True)
        lock = filelock.FileLock(folder / ".lockfile", timeout=1.0)  # JAX's own
        with suppress(filelock.Timeout), lock:
            _sweep(folder)
    except (ImportError, OSError):  # nothing can be kept, which is no reason not to compute
        return None
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_compilation_cache_max_size", LARGEST)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)  # a tiny model is many tiny functions
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    return folder


def _machine() -> str:
    """A name for processors of this kind: code for another could end in an illegal instruction."""
    about = platform.machine() + platform.processor()
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        about += "".join(sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))}))
    return hashlib.sha256(about.encode()).hexdigest()[:12]


def _sweep(folder: Path) -> None:
    """Remove what a killed process left half written: JAX writes an entry's time of use after the entry."""
    for entry in folder.glob("*-cache"):
        if not entry.with_name(entry.name.removesuffix("-cache") + "-atime").exists():
            entry.unlink(missing_ok=True)
