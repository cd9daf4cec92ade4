"""A journal that was damaged or cut: an entry that was whole is never taken for one that was being written."""

import itertools
import shutil

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import fedpick as fp
from fedpick.cli.app import app
from fedpick.server import journal
from fedpick.server.journal import Journal, verify_journal

NAMES = [f"phone-{letter}" for letter in "abcdefgh"]
SECTOR = 512


def play(session):
    with session.round(NAMES) as r:
        for name in r.chosen:
            r.done(name, loss=ord(name[-1]) / 100, seconds=1.0)


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A folder with a checkpoint of before the first round and a journal of five, and where each entry begins."""
    folder = tmp_path_factory.mktemp("kept")
    session = fp.Session(fp.E3CS(3), state=folder, limits=fp.server.Limits(checkpoint_every=50))
    for _ in range(5):
        play(session)
    session.memory.unlock()  # as at the end of the process
    data, starts = (folder / "journal").read_bytes(), [0]
    while starts[-1] < len(data):
        starts.append(starts[-1] + journal.HEAD.size + journal.HEAD.unpack_from(data, starts[-1])[1])
    return folder, data, starts


def read(file, data: bytes) -> tuple[list[bytes], bool]:
    """The bodies in a journal with this content, and whether its end is torn."""
    file.write_bytes(data)
    found = Journal(file)
    bodies = found.read()
    assert file.read_bytes() == data  # reading changes nothing
    return bodies, found.torn


def flipped(data: bytes, bit: int) -> bytes:
    return data[: bit // 8] + bytes([data[bit // 8] ^ 1 << bit % 8]) + data[bit // 8 + 1 :]


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_flipped_bit_is_never_a_lost_round(kept, tmp_path, data) -> None:
    """At the end of the last entry as well, whose round had ended like the others."""
    _, good, starts = kept
    first = data.draw(st.sampled_from([0, *starts[:-1], len(good) - 64]))
    bad = flipped(good, data.draw(st.integers(8 * first, 8 * len(good) - 1)))
    with pytest.raises(fp.StateError, match=r"damaged at byte .* the files are left as they are"):
        read(tmp_path / "journal", bad)


@pytest.mark.slow
def test_no_bit_of_the_last_entry_can_be_flipped_unnoticed(kept, tmp_path) -> None:
    _, good, starts = kept
    for bit in range(8 * starts[-2], 8 * len(good)):
        with pytest.raises(fp.StateError, match="damaged at byte"):
            read(tmp_path / "journal", flipped(good, bit))


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_cut_anywhere_costs_the_entry_that_it_is_in(kept, tmp_path, data) -> None:
    _, good, starts = kept
    cut = data.draw(st.integers(0, len(good)) | st.sampled_from(starts))
    whole = sum(start <= cut for start in starts[1:])
    bodies, torn = read(tmp_path / "journal", good[:cut])
    expected = [good[start + journal.HEAD.size : end] for start, end in itertools.pairwise(starts)]
    assert bodies == expected[:whole]
    assert torn == (cut not in starts)


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_sectors_that_were_not_written_are_a_torn_end(kept, tmp_path, data) -> None:
    """The file has grown, and of the entry that was being written only the first sectors are on the disk."""
    _, good, starts = kept
    entry = data.draw(st.integers(0, len(starts) - 2))
    begin, end = starts[entry], starts[entry + 1]
    sectors = range(begin // SECTOR + 1, (end - journal.TAIL) // SECTOR + 1)
    written = data.draw(st.sampled_from([begin, *(SECTOR * sector for sector in sectors)]))
    more = data.draw(st.sampled_from([0, 1, 4096]))  # of a file that grows by blocks
    bodies, torn = read(tmp_path / "journal", good[:written] + bytes(end - written + more))
    assert (len(bodies), torn) == (entry, True)


def test_zeros_before_the_end_are_damage(kept, tmp_path) -> None:
    _, good, starts = kept
    for begin, end in ((starts[-3], starts[-2]), (starts[-2] + 600, len(good) - 300), (starts[1], starts[1] + 24)):
        with pytest.raises(fp.StateError, match="damaged at byte"):
            read(tmp_path / "journal", good[:begin] + bytes(end - begin) + good[end:])


def test_two_faults_are_no_torn_end(kept, tmp_path) -> None:
    """A flipped bit, and after it an entry that was being written: the round before it had ended."""
    _, good, starts = kept
    for bit in (8 * starts[-3], 8 * (starts[-3] + 12), 8 * (starts[-2] - 40)):
        with pytest.raises(fp.StateError, match=f"damaged at byte {starts[-3]} of"):
            read(tmp_path / "journal", flipped(good, bit)[:-100])
        with pytest.raises(fp.StateError, match=f"damaged at byte {starts[-3]} of"):
            read(tmp_path / "journal", flipped(good, bit)[: starts[-2] + 600] + bytes(3000))


def test_a_server_refuses_a_rotten_last_entry_and_verify_says_so(kept, tmp_path) -> None:
    folder, good, starts = kept
    shutil.copytree(folder, tmp_path / "state")
    bad = flipped(good, 8 * len(good) - 2000)
    (tmp_path / "state" / "journal").write_bytes(bad)
    with pytest.raises(fp.StateError, match=rf"journal: damaged at byte {starts[-2]} of {len(good)}; the files are"):
        fp.Session(fp.E3CS(3), state=tmp_path / "state")
    done = CliRunner().invoke(app, ["verify", str(tmp_path / "state")])
    assert done.exit_code == 1
    assert "NOT" in done.output
    assert {path.name for path in (tmp_path / "state").iterdir()} == {"journal", "state.npz", "server.lock"}
    assert (tmp_path / "state" / "journal").read_bytes() == bad


def test_a_torn_end_is_said_and_played_again(kept, tmp_path) -> None:
    folder, good, starts = kept
    shutil.copytree(folder, tmp_path / "state")
    (tmp_path / "state" / "journal").write_bytes(good[:-100] + bytes(100))
    assert (
        verify_journal(tmp_path / "state" / "journal") == "4 rounds; its last entry is torn, that round is played again"
    )
    session = fp.Session(fp.E3CS(3), state=tmp_path / "state")
    assert session.round_number == 4
    play(session)
    session.close()
    assert (tmp_path / "state" / "journal.torn").read_bytes() == good[starts[-2] : -100] + bytes(100)
    assert fp.Session(fp.E3CS(3), state=tmp_path / "state").round_number == 5
