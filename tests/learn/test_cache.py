"""Compiled code is kept between processes, unless somebody says otherwise."""

import os
import subprocess
import sys

import jax
import pytest

from fedpick.learn.jax import cache

SETTINGS = (
    "jax_compilation_cache_dir",
    "jax_compilation_cache_max_size",
    "jax_persistent_cache_min_compile_time_secs",
    "jax_persistent_cache_min_entry_size_bytes",
)
PROGRAM = """
import jax
hits = []
jax.monitoring.register_event_listener(lambda name, **_: hits.append(name.endswith("/cache_hits")))
from fedpick.learn import mlp  # a model of JAX: fedpick.learn alone does not import it
jax.jit(lambda x: x * 2 + 1)(1.0)
print(sum(hits))
"""


@pytest.fixture
def config(monkeypatch, tmp_path):
    """JAX as it is before anybody sets a cache; restored afterwards."""
    before = {name: getattr(jax.config, name) for name in SETTINGS}
    jax.config.update("jax_compilation_cache_dir", None)
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "kept"))
    yield monkeypatch
    for name, value in before.items():
        jax.config.update(name, value)


def test_the_folder_is_the_named_one_with_one_place_for_each_kind_of_processor(config, tmp_path):
    folder = cache.keep_compiled()
    assert folder is not None
    assert folder.parent == tmp_path / "kept"
    assert jax.config.jax_compilation_cache_dir == str(folder)
    assert jax.config.jax_compilation_cache_max_size == cache.LARGEST
    config.setattr(cache, "_machine", lambda: "another")
    jax.config.update("jax_compilation_cache_dir", None)
    assert cache.keep_compiled() == tmp_path / "kept" / "another"


def test_unless_named_it_is_in_the_users_cache_and_not_among_shared_data(config, tmp_path):
    config.delenv(cache.VARIABLE)
    config.setenv("FEDPICK_DATA", str(tmp_path / "shared"))
    config.setattr(cache, "user_folder", lambda: tmp_path / "mine")
    folder = cache.keep_compiled()
    assert folder is not None
    assert folder.parent == tmp_path / "mine" / "compiled"


@pytest.mark.parametrize("off", ["off", "0", " OFF "])
def test_it_can_be_turned_off(config, off):
    config.setenv(cache.VARIABLE, off)
    assert cache.keep_compiled() is None
    assert jax.config.jax_compilation_cache_dir is None


def test_a_cache_of_the_users_own_stays(config, tmp_path):
    jax.config.update("jax_compilation_cache_dir", str(tmp_path / "own"))
    assert cache.keep_compiled() is None
    assert jax.config.jax_compilation_cache_dir == str(tmp_path / "own")


def test_a_folder_that_cannot_be_made_is_no_error(config, tmp_path):
    (tmp_path / "kept").write_text("in the way")
    assert cache.keep_compiled() is None
    assert jax.config.jax_compilation_cache_dir is None


def test_half_written_entries_go_and_whole_ones_stay(config):
    folder = cache.keep_compiled()
    for name in ("whole-cache", "whole-atime", "half-cache"):
        (folder / name).write_bytes(b"12345678")
    jax.config.update("jax_compilation_cache_dir", None)
    cache.keep_compiled()
    assert sorted(path.name for path in folder.iterdir() if path.name[0] != ".") == ["whole-atime", "whole-cache"]


@pytest.mark.slow
def test_what_one_process_compiled_another_loads_and_two_may_write_at_once(tmp_path):
    settings = os.environ | {cache.VARIABLE: str(tmp_path), "JAX_PLATFORMS": "cpu"}
    settings.pop("JAX_COMPILATION_CACHE_DIR", None)

    def start():
        return subprocess.Popen([sys.executable, "-W", "error", "-c", PROGRAM], env=settings, stdout=subprocess.PIPE)

    for process in [start(), start()]:
        process.communicate()
        assert process.returncode == 0
    third = start()
    assert int(third.communicate()[0]) >= 1
    assert third.returncode == 0
