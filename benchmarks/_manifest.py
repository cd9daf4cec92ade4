"""The manifest of a benchmark's result: versions, commit and machine."""

import datetime
import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("fedpick", "numpy", "scipy", "numba", "jax", "torch")


def _git(*command: str) -> str:
    try:
        done = subprocess.run(["git", *command], cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    except OSError:  # no git here
        return ""
    return done.stdout.strip()


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    names = (
        [line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if "model name" in line]
        if info.exists()
        else []
    )
    return names[0] if names else platform.processor()


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _load() -> list[float] | None:
    """Processes that wanted a core in the last 1, 5 and 15 minutes: other work on the machine makes times longer."""
    return [round(value, 1) for value in os.getloadavg()] if hasattr(os, "getloadavg") else None


def manifest(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings, versions, commit and machine of a run."""
    return {
        "settings": settings,
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": _git("rev-parse", "--short", "HEAD") + ("+changes" if _git("status", "--porcelain") else ""),
        "versions": {
            name: _version(name) for name in ("fedpick", "numpy", "scipy", "numba", "jax", "torch") if _version(name)
        },
        "python": platform.python_version(),
        "machine": {"system": platform.system(), "processor": _processor(), "cores": os.cpu_count()},
        "load": _load(),
    }
