"""The one atomic writer: the old file or the new one, never a part, and nothing left behind."""

import os
import subprocess
import sys

import pytest

from fedpick._support import atomic


def test_a_block_that_raises_leaves_the_old_file_and_nothing_else(tmp_path):
    target = tmp_path / "notes.txt"
    atomic.write_text(target, "old")

    def write():
        with atomic.replacing(target) as temporary:
            temporary.write_text("half of the n")
            assert target.read_text() == "old"
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        write()
    assert target.read_text() == "old"
    assert os.listdir(tmp_path) == ["notes.txt"]


def test_what_a_killed_writer_leaves_is_known_by_its_name(tmp_path):
    code = f"""
import os
from fedpick._support import atomic
with atomic.replacing({str(tmp_path / "notes.txt")!r}) as temporary:
    temporary.write_text("half")
    os._exit(9)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 9
    (left,) = tmp_path.iterdir()
    assert left.match(atomic.LEFTOVERS)
    assert not (tmp_path / "notes.txt").match(atomic.LEFTOVERS)


@pytest.mark.skipif(os.name == "nt", reason="POSIX permissions")
def test_others_may_read_what_the_umask_allows(tmp_path):
    """A cache may be shared: a temporary file for one user's eyes must not take its place."""
    before = os.umask(0o022)
    try:
        atomic.write_text(tmp_path / "notes.txt", "hello")
    finally:
        os.umask(before)
    assert (tmp_path / "notes.txt").stat().st_mode & 0o777 == 0o644
