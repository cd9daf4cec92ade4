"""The commit of the working directory: what git says, whatever else is in the folder is neither read nor waited for."""

import os
import shutil
import signal
import subprocess
from contextlib import contextmanager

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from fedpick._support import git as module
from fedpick._support.git import commit
from fedpick.store import machine

ID, LONGER = 40 * "a", 64 * "b"
SECRET = "0123456789abcdef0123456789abcdef01234567"  # as a token may look: 40 hexadecimal digits


@contextmanager
def at_once():
    """An error if it takes seconds."""

    def late(*_):
        raise AssertionError("still waiting")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(5)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A checkout without git, on the branch main; and a secret beside it."""
    here = tmp_path / "checkout"
    (here / ".git" / "refs" / "heads").mkdir(parents=True)
    (here / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (here / ".git" / "refs" / "heads" / "main").write_text(ID + "\n")
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "creds").write_text(SECRET + "\n")
    monkeypatch.chdir(here)
    return here


def test_it_is_where_the_head_points(folder) -> None:
    assert commit() == ID
    (folder / "below").mkdir()
    os.chdir(folder / "below")
    assert commit() == ID
    for id in (SECRET, LONGER):
        (folder / ".git" / "HEAD").write_text(id + "\n")
        assert commit() == id
    assert machine()["commit"] == LONGER


@pytest.mark.skipif(shutil.which("git") is None, reason="there is no git")
def test_it_is_what_git_says_in_worktrees_and_with_packed_refs(tmp_path, monkeypatch) -> None:
    environment = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    for role in ("AUTHOR", "COMMITTER"):
        environment |= {f"GIT_{role}_NAME": "a", f"GIT_{role}_EMAIL": "a@example.org"}

    def git(folder, *args):
        done = subprocess.run(
            ["git", *args], cwd=folder, env=os.environ | environment, check=True, timeout=30, capture_output=True
        )
        return done.stdout.decode().strip()

    (tmp_path / "one").mkdir()
    git(tmp_path / "one", "init", "-q")
    for what in "xy":
        git(tmp_path / "one", "commit", "-q", "--allow-empty", "-m", what)
    git(tmp_path / "one", "worktree", "add", "-q", "-b", "side/näme", "../two", "HEAD~1")
    git(tmp_path / "one", "worktree", "add", "-q", "--detach", "../three", "HEAD~1")
    for packed in (False, True):
        if packed:
            git(tmp_path / "one", "pack-refs", "--all")
        found = []
        for name in ("one", "two", "three"):
            monkeypatch.chdir(tmp_path / name)
            found.append(commit())
            assert found[-1] == git(tmp_path / name, "rev-parse", "HEAD")
        assert found[0] != found[1] == found[2]


OUTSIDE = [
    "ref: ../../secret/creds",
    "ref: refs/../../../secret/creds",
    "ref: refs/heads/../../../../secret/creds",
    "ref: {secret}",
    "ref: refs/{secret}",
    "ref: refs//heads/main",
    "ref: refs/.hidden",
    "ref: refs/heads/main/",
    "ref: HEAD",
    "ref: config",
    "ref: refs/a\0b",
    "ref:",
    "",
    SECRET[:39],
    SECRET + "0",
    SECRET.upper(),
    f"{SECRET} {SECRET}",
    "not an id, but forty characters as well.",
]


@pytest.mark.parametrize("head", OUTSIDE)
def test_a_head_leads_nowhere_outside(folder, head) -> None:
    (folder / ".git" / "config").write_text(SECRET)
    (folder / ".git" / "refs" / ".hidden").write_text(SECRET)
    (folder / ".git" / "HEAD").write_text(head.replace("{secret}", str(folder.parent / "secret" / "creds")))
    assert commit() is None


def test_nor_does_a_link(folder) -> None:
    git, secret = folder / ".git", folder.parent / "secret"
    (git / "refs" / "heads" / "main").unlink()
    (git / "refs" / "heads" / "main").symlink_to(secret / "creds")
    assert commit() is None
    shutil.rmtree(git / "refs" / "heads")
    (git / "refs" / "heads").symlink_to(secret)
    (git / "HEAD").write_text("ref: refs/heads/creds")
    assert commit() is None
    (git / "HEAD").unlink()
    (git / "HEAD").symlink_to(secret / "creds")
    assert commit() is None
    (git / "HEAD").unlink()
    (git / "HEAD").symlink_to("HEAD")  # in a circle
    assert commit() is None


def test_a_link_inside_is_followed(folder) -> None:
    (folder / ".git" / "HEAD").unlink()
    (folder / ".git" / "HEAD").symlink_to("refs/heads/main")  # as git once wrote it
    assert commit() == ID


@pytest.mark.parametrize("name", ["HEAD", "refs/heads/main", "commondir", "packed-refs"])
@pytest.mark.parametrize("kind", ["fifo", "zero", "huge", "folder"])
def test_only_files_of_a_sensible_size_are_read(folder, monkeypatch, name, kind) -> None:
    path = folder / ".git" / name
    (folder / ".git" / "refs" / "heads" / "main").unlink()
    path.unlink(missing_ok=True)
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "zero":
        path.symlink_to("/dev/zero")
    elif kind == "folder":
        path.mkdir()
    else:
        with path.open("wb") as file:
            file.truncate(2**40)  # without a byte on the disk
    with at_once():
        assert commit() is None


@pytest.mark.parametrize("said", ["gitdir: ../elsewhere", "gitdir: /dev", "gitdir: \0", "\xff" * 3, "g" * 10_000])
def test_a_git_file_that_leads_nowhere_is_no_error(folder, said) -> None:
    shutil.rmtree(folder / ".git")
    (folder / ".git").write_text(said, encoding="latin-1")
    with at_once():
        assert commit() is None


def test_a_git_file_that_is_a_fifo_is_not_waited_for(folder) -> None:
    shutil.rmtree(folder / ".git")
    os.mkfifo(folder / ".git")
    with at_once():
        assert commit() is None


def test_packed_refs_may_be_long_but_not_without_end(folder, monkeypatch) -> None:
    (folder / ".git" / "refs" / "heads" / "main").unlink()
    others = "".join(f"{LONGER[:40]} refs/tags/v{k}\n" for k in range(3000))
    (folder / ".git" / "packed-refs").write_text(f"# pack-refs with: peeled\n{others}{ID} refs/heads/main\n^{SECRET}\n")
    assert commit() == ID
    monkeypatch.setattr(module, "LONG", 100_000)
    assert commit() is None


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    ref=st.lists(st.sampled_from(["..", ".", "/", "refs", "heads", "main", "secret", "creds", "\\", "\n", " ", "~"]))
)
@example(["refs", "/", "heads", "/", "main"])
def test_whatever_the_ref_the_secret_is_never_told(folder, ref) -> None:
    (folder / ".git" / "HEAD").write_text("ref: " + "".join(ref))
    said = "".join(ref).strip()
    assert commit() == (ID if said == "refs/heads/main" else None)
