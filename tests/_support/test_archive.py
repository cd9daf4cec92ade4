"""Arrays in a file: the same bytes at any time, and nothing believed that is not checked."""

import io
import time
import zipfile

import numpy as np
import pytest

from fedpick._support.archive import read_archive, write_archive
from fedpick.core.errors import StateError

META = {"format": 1}


def test_the_bytes_do_not_depend_on_the_clock(tmp_path, monkeypatch):
    found = []
    for when in (0.0, -3e8, 1e9, 2e9):  # a clock before 1980 is a clock
        monkeypatch.setattr(time, "time", lambda when=when: when)
        monkeypatch.setattr(time, "localtime", lambda *_, when=when: time.gmtime(when))
        write_archive(tmp_path / f"{when}.npz", {"a": np.arange(3)}, META)
        found.append((tmp_path / f"{when}.npz").read_bytes())
    assert len(set(found)) == 1


def test_a_member_that_is_missing_is_noticed(tmp_path):
    path = tmp_path / "a.npz"
    write_archive(path, {"a": np.arange(3), "b": np.arange(2)}, META)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    for change in ({"b.npy": None}, {"c.npy": members["a.npy"]}, {"b.npx": members["b.npy"], "b.npy": None}):
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in (members | change).items():
                if content is not None:
                    archive.writestr(name, content)
        with pytest.raises(StateError, match="a member is missing, or there is one too many"):
            read_archive(path)


def test_a_file_that_does_not_list_its_members_is_refused(tmp_path):
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("fedpick.json", '{"format": 1}')
    with pytest.raises(StateError, match="members"):
        read_archive(path)


def test_compressed_and_encrypted_members_are_refused_before_they_are_unpacked(tmp_path):
    path = tmp_path / "a.npz"
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("fedpick.json", '{"format": 1}')
        archive.writestr("a.npy", bytes(10**7))
    path.write_bytes(file.getvalue())
    with pytest.raises(StateError, match=r"members that do not fit into|is compressed or encrypted"):
        read_archive(path)


def test_arrays_of_every_kind_come_back(tmp_path):
    arrays = {
        "empty": np.zeros((0, 3)),
        "scalar": np.float32(2.5),
        "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "texts": np.array(["a", "bc"]),
        "flags": np.array([True, False]),
    }
    write_archive(tmp_path / "a.npz", arrays, META)
    found, _ = read_archive(tmp_path / "a.npz")
    for name, value in arrays.items():
        np.testing.assert_array_equal(found[name], value)
        assert found[name].dtype == np.asarray(value).dtype
