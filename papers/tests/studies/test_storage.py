"""The archives of what a GPU measured: written, extended, read, and refused where they are damaged."""

import logging
import lzma
from pathlib import Path

import numpy as np
import pytest

from fedpick.core.errors import StoreError
from fedpick_papers import studies
from fedpick_papers.studies import _storage

STORED = Path(__file__).parents[3] / "docs" / "studies"


def measure(out, name, device="gpu", value=1.0):
    about = {"study": "toy/one", "item": name, "device": device}
    _storage.write(out / studies.JOBS / "toy" / "one" / name / "measured.npz", {"x": np.array([value])}, about)
    return about


def test_an_archive_is_extended_and_its_bytes_depend_on_its_files_alone(tmp_path):
    about = measure(tmp_path, "first")
    measure(tmp_path, "on-a-cpu", device="cpu")
    archive = tmp_path / "toy" / "measured.tar.xz"
    assert studies.pack(tmp_path) == [archive]
    assert studies.pack(tmp_path) == []  # nothing is new
    measure(tmp_path, "second")
    assert studies.pack(tmp_path) == [archive]
    packed = _storage.read_packed(archive)
    assert list(packed) == ["one/first", "one/second"]
    assert _storage.read(tmp_path / "gone.npz", about, packed["one/first"])["x"].tolist() == [1.0]
    for name in ("second", "first"):  # another order, another day
        measure(tmp_path / "again", name)
    studies.pack(tmp_path / "again")
    assert (tmp_path / "again" / "toy" / "measured.tar.xz").read_bytes() == archive.read_bytes()


def test_what_an_archive_has_is_not_replaced(tmp_path):
    measure(tmp_path, "first")
    (archive,) = studies.pack(tmp_path)
    before = archive.read_bytes()
    measure(tmp_path, "first", value=1.1)  # a GPU need not give the same twice
    assert studies.pack(tmp_path) == []
    assert archive.read_bytes() == before


def test_a_damaged_job_is_left_out_of_the_archive(tmp_path, caplog):
    measure(tmp_path, "first")
    measure(tmp_path, "second")
    file = tmp_path / studies.JOBS / "toy" / "one" / "second" / "measured.npz"
    file.write_bytes(file.read_bytes()[:-30])
    with caplog.at_level(logging.WARNING):
        (archive,) = studies.pack(tmp_path)
    assert "is damaged, or not whole; it is left out" in caplog.text
    assert list(_storage.read_packed(archive)) == ["one/first"]


def flip(archive):
    """Change one byte in the middle."""
    content = bytearray(archive.read_bytes())
    content[len(content) // 2] ^= 0xFF
    archive.write_bytes(content)


def truncate(archive):
    archive.write_bytes(archive.read_bytes()[:-100])


def forge(archive):
    """A whole .xz file of something else."""
    archive.write_bytes(lzma.compress(b"no archive"))


def empty(archive):
    archive.write_bytes(b"")


@pytest.mark.parametrize("damage", [flip, truncate, forge, empty])
def test_a_damaged_archive_is_refused_before_anything_runs(tmp_path, damage):
    measure(tmp_path, "first")
    (archive,) = studies.pack(tmp_path)
    damage(archive)
    with pytest.raises(StoreError, match=r"measured.tar.xz: is damaged \(.*\); restore it, as with `git checkout`"):
        _storage.read_packed(archive)
    paper = tmp_path / "e3cs"
    archive.parent.rename(paper)
    with pytest.raises(StoreError, match=r"e3cs.measured.tar.xz: is damaged"):
        studies.reproduce("e3cs/table3-iid", device="gpu", out=tmp_path)
    assert not (tmp_path / "e3cs" / "table3-iid").exists()


@pytest.mark.parametrize("archive", sorted(STORED.glob("*/measured.tar.xz")), ids=lambda path: path.parent.name)
def test_the_stored_archives_are_whole(archive):
    assert len(_storage.read_packed(archive)) > 40


def test_of_each_stored_study_there_are_a_page_a_result_and_a_manifest():
    for id in studies.STUDIES:
        assert {"findings.md", "manifest.json", "result.json"} <= {path.name for path in (STORED / id).iterdir()}
