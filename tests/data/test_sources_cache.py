"""The cache folder, and archives that are complete or refused."""

import os
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from fedpick.core.errors import DamagedError, DataError
from fedpick.data.sources import cache


def test_cache_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("FEDPICK_DATA", str(tmp_path / "mine"))
    assert cache.cache_folder() == tmp_path / "mine"
    assert cache.cache_folder(tmp_path) == tmp_path
    monkeypatch.setenv("FEDPICK_DATA", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setattr(sys, "platform", "linux")
    assert cache.cache_folder() == tmp_path / "xdg" / "fedpick"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache.cache_folder() == Path.home() / ".cache" / "fedpick"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert cache.cache_folder() == Path.home() / "Library" / "Caches" / "fedpick"
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path))
    assert cache.cache_folder() == tmp_path / "fedpick" / "Cache"
    monkeypatch.setenv("FEDPICK_DATA", "~/data")
    assert cache.cache_folder() == Path.home() / "data"


def test_a_folder_that_cannot_be_written_to(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match=r"cannot write to .*file.inner \(.*\); set FEDPICK_DATA to a folder that you"):
        cache.writable(tmp_path / "file" / "inner")


ARRAYS = {"x": np.arange(60, dtype=np.uint8).reshape(3, 20), "y": np.arange(3, dtype=np.int32), "origin": "here"}


def same(a, b):
    return a.keys() == b.keys() and all(np.array_equal(a[k], b[k]) for k in a)


def test_arrays_come_back(tmp_path):
    path = tmp_path / "new" / "a.npz"
    cache.write_arrays(path, ARRAYS)
    assert same(cache.read_arrays(path), ARRAYS)
    assert same(cache.read_arrays(path, "y"), {"y": ARRAYS["y"]})
    assert os.listdir(path.parent) == ["a.npz"]


def test_any_damage_is_noticed(tmp_path):
    """Cut anywhere, or with any one byte changed: the arrays that were written, or an error; never other arrays."""
    path = tmp_path / "a.npz"
    cache.write_arrays(path, ARRAYS)
    whole = path.read_bytes()
    for cut in range(0, len(whole), 7):
        path.write_bytes(whole[:cut])
        with pytest.raises(DamagedError, match=r"a.npz: truncated or damaged \("):
            cache.read_arrays(path)
    noticed = 0
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ (1 << at % 8)]) + whole[at + 1 :])
        try:
            found = cache.read_arrays(path)  # an array may be lost with its entry in the list: sources.py asks for all
            assert same(found, {name: ARRAYS[name] for name in found})
            noticed += len(found) < len(ARRAYS)
        except DamagedError:
            noticed += 1
    assert noticed > len(whole) / 2  # the rest: dates, flags and sizes that nobody reads


def test_nothing_is_unpickled(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.array([{"a": 1}], object))
    with pytest.raises(DamagedError, match="an array of object, which is not of numbers or texts"):
        cache.read_arrays(tmp_path / "a.npz")


def test_files_that_cannot_be_read_are_not_called_damaged(tmp_path):
    with pytest.raises(DataError, match=r"cannot read .*none.npz \(No such file") as caught:
        cache.read_arrays(tmp_path / "none.npz")
    assert not isinstance(caught.value, DamagedError)


def test_writers_at_once(tmp_path):
    """Readers meet one writer's arrays or the other's, whole."""
    path = tmp_path / "a.npz"
    sets = [{"x": np.full(50_000, i, np.uint8), "y": np.full(7, i)} for i in range(2)]
    cache.write_arrays(path, sets[0])
    writers = [
        threading.Thread(target=lambda arrays=arrays: [cache.write_arrays(path, arrays) for _ in range(30)])
        for arrays in sets
    ]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        found = cache.read_arrays(path)
        assert any(same(found, arrays) for arrays in sets)
    assert os.listdir(tmp_path) == ["a.npz"]


def test_a_full_disk(tmp_path, monkeypatch):
    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(DataError, match=r"cannot write .*a.npz \(No space left on device\); is the disk full\?"):
        cache.write_arrays(tmp_path / "a.npz", ARRAYS)
    assert os.listdir(tmp_path) == []


def test_set_aside(tmp_path):
    (tmp_path / "a.npz").write_text("x")
    assert cache.set_aside(tmp_path / "a.npz") == tmp_path / "a.npz.damaged"
    assert os.listdir(tmp_path) == ["a.npz.damaged"]
    assert cache.set_aside(tmp_path / "a.npz") is None
