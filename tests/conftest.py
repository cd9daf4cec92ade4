"""What holds for all tests.

Hypothesis draws the same examples every time, and no machine is too slow for it; runs overwrite every state that was
given to `observe`, so that whoever goes on using one is found out.
"""

import os
import sys
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from fedpick import devices

settings.register_profile(
    "fedpick", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
settings.load_profile("fedpick")

os.environ.setdefault("FEDPICK_DEBUG", "1")
devices.reserve(2)  # whatever the machine, and whoever imports JAX first

# Processes that tests start find the code of the package compiled, where none would be written otherwise.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


@pytest.fixture(autouse=True, scope="session")
def quick_disk() -> Iterator[None]:
    """Nothing waits for the disk: only a loss of power could tell, and tests of that have disks of their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        yield


@pytest.fixture
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """A figure is made, but its file is empty."""
    from matplotlib.figure import Figure

    def savefig(self: Figure, fname: object, **how: object) -> None:
        with open(str(fname), "wb"):
            pass

    monkeypatch.setattr(Figure, "savefig", savefig)
