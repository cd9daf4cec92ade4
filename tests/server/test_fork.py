"""A session and forks of its process: only one of them plays rounds, and no round that had ended is lost."""

import gc
import os
import signal
from collections.abc import Callable

import pytest

import fedpick as fp
from fedpick import store
from fedpick.server.journal import Journal

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork"),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),  # these forks do little, and end at once
]

NAMES = [f"phone-{letter}" for letter in "abcdef"]
REFUSED = r"was opened by process \d+, and this is a fork of it, process \d+; each would lose the other's rounds"


def play(session) -> None:
    with session.round(NAMES) as r:
        for name in r.chosen:
            r.done(name, loss=ord(name[-1]) / 100, seconds=1.0)


def forked(act: Callable[[], object]) -> str:
    """What a fork of this process answers: the result, or the error."""
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        try:
            signal.alarm(60)
            said = str(act())
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        os.write(write, said.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as file:
        said = file.read().decode()
    os.waitpid(child, 0)
    return said


def test_a_fork_of_a_server_writes_nothing_and_no_round_is_lost(tmp_path) -> None:
    session = fp.Session(fp.E3CS(3), state=tmp_path / "s", records=tmp_path / "run")
    play(session)
    for number in range(5):
        before = (tmp_path / "s" / "journal").read_bytes()
        assert forked(lambda: play(session)).startswith("StateError: ")
        assert (tmp_path / "s" / "journal").read_bytes() == before
        play(session)
        assert session.round_number == number + 2
    session.memory.unlock()  # as at the end of the process, without `close`
    session.storage.writer.tables.close()
    assert not (tmp_path / "s" / "journal.torn").exists()
    again = fp.Session(fp.E3CS(3), state=tmp_path / "s", records=tmp_path / "run")
    assert again.round_number == 6
    again.open()
    again.close()
    assert store.read_rounds(tmp_path / "run")["round"].to_pylist() == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("kept", ["state", "records"])
def test_every_way_to_write_is_refused_in_a_fork(kept, tmp_path) -> None:
    session = fp.Session(fp.E3CS(3), **{kept: tmp_path})
    play(session)
    r = session.round(NAMES)

    def everything():
        said = []
        for act in (r.close, session.open, lambda: session.round(NAMES), lambda: session.retire(NAMES[:2])):
            with pytest.raises(fp.StateError, match=REFUSED):
                act()
            session._round = None  # so that the next one is not refused because a round is open
            said.append(session.round_number)
        session.close()
        with pytest.raises(fp.StateError, match=r"after the fork: with gunicorn in post_fork, or without --preload"):
            session.open()
        return said

    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert forked(everything) == "[1, 1, 1, 1]"
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    r.close()
    assert session.round_number == 2


def test_the_end_of_a_fork_does_not_unlock_the_folder(tmp_path) -> None:
    session = [fp.Session(fp.E3CS(3), state=tmp_path)]
    play(session[0])

    def another():
        play(fp.Session(fp.E3CS(3), state=tmp_path))

    def end():
        session[0].close()
        session[0].memory.unlock()
        session.clear()
        gc.collect()

    forked(end)
    assert "another server is working with this state" in forked(another)
    play(session[0])
    session[0].close()
    assert forked(another) == "None"


def test_a_session_that_was_not_opened_before_the_fork_may_be_opened_after_it(tmp_path) -> None:
    """As with `gunicorn --preload`, where each worker has the session that the master made; one of them can use it."""
    session = fp.Session(fp.E3CS(3), state=tmp_path)

    def played(rounds):
        for _ in range(rounds):
            play(session)
        return session.round_number

    assert forked(lambda: played(2)) == "2"
    assert forked(lambda: played(3)) == "5"  # which reads what the first one wrote
    assert played(1) == 6
    session.close()
    assert forked(lambda: played(1)) == "7"
    assert played(1) == 8


def test_a_session_without_folders_is_only_copied(tmp_path) -> None:
    session = fp.Session(fp.E3CS(3))
    play(session)
    assert forked(lambda: [play(session), session.round_number][-1]) == "2"
    assert session.round_number == 1


def journal_of_two_processes(folder):
    """A session whose journal was continued by another process without asking for the lock; and its bytes then."""
    session = fp.Session(fp.E3CS(3), state=folder, limits=fp.server.Limits(checkpoint_every=50))
    play(session)
    play(session)
    other = Journal(folder / "journal")
    other.append(other.read()[-1])
    return session, (folder / "journal").read_bytes()


def test_whole_entries_of_another_process_are_never_moved_aside(tmp_path) -> None:
    """Where locks do not work, as on some network drives."""
    session, data = journal_of_two_processes(tmp_path)
    state = (tmp_path / "state.npz").read_bytes()
    with pytest.raises(fp.StateError, match=r"has \d+ bytes, but this server wrote \d+: another process works with"):
        play(session)
    with pytest.raises(fp.StateError, match="end all servers but one, start that one again"):
        session.close()
    assert (tmp_path / "journal").read_bytes() == data
    assert (tmp_path / "state.npz").read_bytes() == state
    assert not (tmp_path / "journal.torn").exists()


def test_a_journal_that_another_process_removed_is_not_continued(tmp_path) -> None:
    session, _ = journal_of_two_processes(tmp_path)
    (tmp_path / "journal").unlink()
    with pytest.raises(fp.StateError, match="has 0 bytes, but this server wrote"):
        play(session)
    assert not (tmp_path / "journal").exists()


def test_an_entry_whose_flush_failed_and_that_could_not_be_removed_is_its_own(tmp_path, monkeypatch) -> None:
    """A disk that fails after the entry was written whole: the round is saved with the next one."""
    session = fp.Session(fp.E3CS(3), state=tmp_path, limits=fp.server.Limits(checkpoint_every=50))
    play(session)

    class Stuck:
        def __init__(self, file):
            self.file = file

        def __enter__(self):
            return self

        def __exit__(self, *exception):
            self.file.close()

        def truncate(self, size):
            raise OSError(5, "Input/output error")

        def __getattr__(self, name):
            return getattr(self.file, name)

    def fails(file):
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr("fedpick._support.atomic.opened", lambda path, mode: Stuck(path.open(mode)))
        patch.setattr(os, "fsync", fails)
        play(session)
    assert session.memory.behind
    for _ in range(2):
        play(session)
    session.memory.unlock()
    assert fp.Session(fp.E3CS(3), state=tmp_path).round_number == 4
