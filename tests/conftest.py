"""What holds for all tests.

Hypothesis draws the same examples every time, and no machine is too slow for it; runs overwrite every state that was
given to `observe`, so that whoever goes on using one is found out.

Two things save processor time: modules without examples are not imported for doctests that they do not have, and the
garbage collector neither runs while tests are collected nor goes through what was loaded then.
"""

import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from fedpick import devices

settings.register_profile(
    "fedpick", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
settings.load_profile("fedpick")

gc.disable()  # until all tests are collected
os.environ.setdefault("FEDPICK_DEBUG", "1")
devices.reserve(2)  # whatever the machine, and whoever imports JAX first

# Processes that tests start find the code of the package compiled, where none would be written otherwise.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


class Examples:
    """For all folders of tests, also those beside this one."""

    @staticmethod
    def pytest_ignore_collect(collection_path: Path) -> bool | None:
        """Leave out modules that are neither tests nor have examples."""
        if collection_path.suffix != ".py" or collection_path.name.startswith(("test_", "conftest")):
            return None
        return ">>>" not in collection_path.read_text(encoding="utf-8") or None


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Examples())


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()
    gc.set_threshold(20_000, 20, 50)


@pytest.fixture(autouse=True, scope="session")
def quick_disk() -> Iterator[None]:
    """Nothing waits for the disk: only a loss of power could tell, and tests of that have disks of their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        yield


@pytest.fixture
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """A figure is made, but nothing is drawn into it and its file is empty."""
    from matplotlib.figure import Figure

    from fedpick.report import plots

    def savefig(self: Figure, fname: object, **how: object) -> None:
        with open(str(fname), "wb"):
            pass

    monkeypatch.setattr(Figure, "savefig", savefig)
    monkeypatch.setattr(plots, "draw", lambda panels, title, metric=None: plots._figure(1.0, 1.0))
