"""Small data sets in place of the real ones."""

import hashlib

import pytest
from official import OFFICIAL, TEST, TRAIN, change, small

from fedpick.data import sources


@pytest.fixture
def alone(monkeypatch, tmp_path):
    """Small data sets at addresses that nobody serves; no tools, and a cache of one's own."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setenv("FEDPICK_DATA", str(tmp_path / "cache"))
    for name, build in OFFICIAL.items():
        files = tuple(
            sources.File(file, hashlib.md5(content, usedforsecurity=False).hexdigest())
            for file, content in build(small(name)).items()
        )
        change(
            monkeypatch, name, counts=TRAIN, test_counts=TEST, digest=None, files=files, addresses=("http://[::1]:1",)
        )
