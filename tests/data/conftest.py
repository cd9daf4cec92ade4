"""Small data sets in place of the real ones."""

import hashlib

import pytest
from official import OFFICIAL, TEST, TRAIN, change, small

from fedpick.data import sources
from fedpick.data.sources import download


@pytest.fixture
def alone(monkeypatch, tmp_path):
    """Small data sets at addresses that nobody serves; no tools, and a cache of one's own."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(download, "_SCHEMES", ("https", "http"))  # of servers on loopback
    monkeypatch.setenv("FEDPICK_DATA", str(tmp_path / "cache"))
    for name, build in OFFICIAL.items():
        files = tuple(
            sources.File(file, hashlib.md5(content, usedforsecurity=False).hexdigest())
            for file, content in build(small(name)).items()
        )
        if package := sources.SOURCES[name].package:
            change(monkeypatch, name, package=package._replace(sha512=None))
        change(
            monkeypatch, name, counts=TRAIN, test_counts=TEST, digest=None, files=files, addresses=("http://[::1]:1",)
        )
