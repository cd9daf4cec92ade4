"""What holds for all tests.

Hypothesis draws the same examples every time, and no machine is too slow for it; runs overwrite every state that was
given to `observe`, so that whoever goes on using one is found out.

Three things save processor time: modules without examples are not imported for doctests that they do not have, the
garbage collector neither runs while tests are collected nor goes through what was loaded then, and in quick tests XLA
optimises little.
"""

import gc
import os
import signal
import sys
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from fedpick._support import devices

settings.register_profile(
    "fedpick", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
settings.load_profile("fedpick")

gc.disable()  # until all tests are collected
os.environ.setdefault("FEDPICK_DEBUG", "1")
devices.reserve(2)  # whatever the machine, and whoever imports JAX first

# A shell starts background jobs with Ctrl-C ignored; tests of Ctrl-C, and the processes that they start, need it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Processes that tests start find the code of the package compiled, where none would be written otherwise.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


# Slow tests that start clusters, which could find each other, or servers that wait for answers: one after the other.
SERVERS = ("tests/adapters/", "tests/flower/", "tests/experiment/test_ray.py", "tests/server/")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--as-users", action="store_true", help="let XLA optimise in quick tests as it does for users")


def is_plain(item: pytest.Item) -> bool:
    """Whether XLA may optimise little: it then compiles in two thirds of the time.

    Slow tests are compiled as for users; `make test-slow` repeats so what is quick and about the numbers of training.
    """
    return not item.config.getoption("as_users", default=False) and item.get_closest_marker("slow") is None


def optimise(little: bool) -> None:
    """Let JAX optimise little or as usual from now on; what was compiled the other way is forgotten."""
    os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = str(int(little))  # for processes that tests start, and later imports
    if "jax" not in sys.modules:
        return
    import jax

    # Before it keeps a program, JAX reads a file for each one kept, in case that they are too large together.
    if (kept := sys.modules.get("jax._src.lru_cache")) is not None and hasattr(kept.LRUCache, "_evict_if_needed"):
        kept.LRUCache._evict_if_needed = lambda self, **size: None
    jax.config.update("jax_disable_most_optimizations", little)
    jax.clear_caches()
    if "fedpick.learn.jax.cohort" in sys.modules:
        from fedpick.learn.jax import cohort

        cohort._stage.cache_clear()
        cohort._compiled_stages.cache_clear()


class Examples:
    """For all folders of tests, also those beside this one."""

    little: bool | None = None

    @staticmethod
    def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
        """Put plain tests first, so that a process changes at most once."""
        items.sort(key=lambda item: not is_plain(item))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        if self.little != is_plain(item):
            self.little = is_plain(item)
            optimise(self.little)

    @staticmethod
    def pytest_ignore_collect(collection_path: Path) -> bool | None:
        """Leave out modules that are neither tests nor have examples."""
        if collection_path.suffix != ".py" or collection_path.name.startswith(("test_", "conftest")):
            return None
        return ">>>" not in collection_path.read_text(encoding="utf-8") or None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With `--dist loadfile`, all files of SERVERS count as one."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Files(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return "servers" if nodeid.startswith(SERVERS) else super()._split_scope(nodeid)

    return Files(config, log)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Examples())


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()
    gc.set_threshold(50_000, 20, 100)


@pytest.fixture(autouse=True, scope="session")
def quick_disk() -> Iterator[None]:
    """Nothing waits for the disk: only a loss of power could tell, and tests of that have disks of their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        yield


@lru_cache
def quick_initial(model: Any) -> Any:
    import jax

    return jax.jit(model.init, compiler_options={"xla_backend_optimization_level": 0})


@pytest.fixture(scope="module")
def quick_start() -> Iterator[None]:
    """First weights come from a program that XLA hardly optimises: else it takes longest of all to compile.

    They may differ in the last bit from what other processes start with. All that is trained is compiled as usual.
    """
    from fedpick.learn.jax import forms

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(forms, "_initial", quick_initial)
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
