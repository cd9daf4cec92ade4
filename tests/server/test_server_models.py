"""The kept model: whenever a server is killed, the state that it finds has its model."""

import logging
import os
import random
import shutil
from pathlib import Path

import numpy as np
import pytest

import fedpick as fp
from disks import Faults, PowerCut
from fedpick._support.archive import read_archive, write_archive
from fedpick.server import journal as journals
from fedpick.server.journal import verify_journal
from fedpick.store.audit import verify

NAMES = ["ada", "bob", "cyd"]


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda handle: None)


def opened(root: Path, **options) -> fp.Session:
    return fp.Session(fp.E3CS(cohort_size=2), state=root / "state", model=root / "model", **options)


def model_of(round: int) -> dict[str, np.ndarray]:
    return {"w": np.full((2, 3), round, dtype=np.float32), "layers/0.bias": np.array(round), "steps": np.arange(round)}


def play(session: fp.Session, changes: bool = True) -> None:
    with session.round(NAMES) as r:
        for name in r.chosen:
            r.done(name, loss=0.5)
        if changes:
            r.model = model_of(r.number)


def same(found, expected) -> None:
    assert list(found) == list(expected)
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values)
        assert found[name].dtype == values.dtype


def files(root: Path) -> list[int]:
    return sorted(int(path.name.split("-")[1]) for path in (root / "model").glob("*.npz"))


def test_the_model_of_the_last_round_is_there_after_a_restart(tmp_path: Path, caplog) -> None:
    with opened(tmp_path) as session:
        assert session.model is None
        for _ in range(5):
            play(session)
        same(session.model, model_of(5))
    again = opened(tmp_path)
    same(again.model, model_of(5))
    assert files(tmp_path) == [3, 4, 5]  # the last three
    with again:
        play(again)
    same(opened(tmp_path).model, model_of(6))
    assert "begins again" not in caplog.text


def test_a_round_without_a_new_model_leaves_that_of_before(tmp_path: Path) -> None:
    with opened(tmp_path) as session:
        play(session)
        for _ in range(5):
            play(session, changes=False)
    again = opened(tmp_path)
    assert again.round_number == 6
    same(again.model, model_of(1))


@pytest.mark.parametrize("every", [1, 2, 50])
@pytest.mark.parametrize("cut", ["kill", "power"])
def test_after_a_kill_at_any_moment_the_state_has_its_model(tmp_path: Path, every: int, cut: str, caplog) -> None:
    """Killed after every change of the disk; the third round changes no model, the fifth is played by a new process."""
    root, ended, kept = tmp_path / "served", [0], []

    def moment(count: int) -> None:
        path = tmp_path / f"cut-{count}"
        if cut == "kill":
            shutil.copytree(root, path)
        else:
            disk.survivor(path, random.Random(count))
        kept.append((path, ended[0]))

    root.mkdir()
    disk = PowerCut(root, moment)
    with disk.here():
        for rounds in ((1, 2, 3, 4), (5, 6)):
            session = opened(root, limits=fp.server.Limits(checkpoint_every=every))
            assert (session.model is None) == (rounds[0] == 1)
            for number in rounds:
                play(session, changes=number != 3)
                ended[0] = number
            session.close()
    assert len(kept) > 25
    reached = set()
    for path, least in kept:
        with opened(path, limits=fp.server.Limits(checkpoint_every=every)) as again:
            number = again.round_number
            assert number >= least
            reached.add(number)
            expected = {0: None, 3: model_of(2)}.get(number, model_of(number))
            assert (again.model is None) == (expected is None)
            if expected is not None:
                same(again.model, expected)
            play(again, changes=False)  # what a killed round had written is not taken for this one's
            if expected is not None:
                same(again.model, expected)
            play(again)
            same(again.model, model_of(number + 2))
        assert not list(path.rglob("*.tmp"))
        assert max(files(path)) == number + 2
        shutil.rmtree(path)
    assert reached == set(range(7))
    assert "begins again" not in caplog.text


def test_a_kill_between_model_and_journal_is_among_those_moments(tmp_path: Path, monkeypatch) -> None:
    session = opened(tmp_path)
    play(session)

    def killed(*_) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(journals.Journal, "append", killed)
    with pytest.raises(KeyboardInterrupt):
        play(session)
    assert files(tmp_path) == [1, 2]
    session.memory.unlock()
    monkeypatch.undo()
    again = opened(tmp_path)
    assert again.round_number == 1
    same(again.model, model_of(1))


def test_a_disk_that_is_full_for_the_model_saves_no_state_without_it(tmp_path: Path, caplog) -> None:
    session = opened(tmp_path)
    play(session)
    with Faults(nth=1, times=10_000).here():
        play(session)
        play(session, changes=False)
    assert f"{(tmp_path / 'model').resolve()}: round 2 could not be saved (No space left" in caplog.text
    same(session.model, model_of(2))  # in memory
    copy = shutil.copytree(tmp_path, tmp_path.with_name(tmp_path.name + "-killed"))
    killed = opened(copy)
    assert killed.round_number == 1
    same(killed.model, model_of(1))
    play(session, changes=False)  # there is room again: everything is saved
    session.close()
    again = opened(tmp_path)
    assert again.round_number == 4
    same(again.model, model_of(2))


def test_models_survive_a_state_that_cannot_be_written_for_many_rounds(tmp_path: Path, monkeypatch, caplog) -> None:
    session = opened(tmp_path)
    play(session)

    def full(*_) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(session.memory, "_checkpoint", full)
    monkeypatch.setattr(session.memory.journal, "append", full)
    for _ in range(6):
        play(session)
    session.memory.unlock()
    again = opened(tmp_path)
    assert again.round_number == 1
    same(again.model, model_of(1))
    with again:
        play(again)
    assert files(tmp_path) == [1, 2]  # those of rounds that are played again are gone


def test_files_of_other_states_are_left_alone(tmp_path: Path) -> None:
    for state in ("one", "two"):
        with fp.Session(fp.E3CS(2), state=tmp_path / state, model=tmp_path / "model") as session:
            for _ in range(4):
                play(session)
    assert files(tmp_path) == [2, 2, 3, 3, 4, 4]
    for state in ("one", "two"):
        same(fp.Session(fp.E3CS(2), state=tmp_path / state, model=tmp_path / "model").model, model_of(4))


def test_a_state_of_before_models_were_kept_goes_on(tmp_path: Path, caplog) -> None:
    with fp.Session(fp.E3CS(cohort_size=2), state=tmp_path / "state") as session:
        play(session)
    arrays, meta = read_archive(tmp_path / "state" / "state.npz")
    del meta["session"]["letters"], meta["session"]["model"]
    write_archive(tmp_path / "state" / "state.npz", arrays, meta)
    session = opened(tmp_path)
    assert session.model is None
    assert "continues after round 1, but not with the model of that round: none is kept for it" in caplog.text
    play(session)
    assert session.memory.journal.path.read_bytes() != b""
    session.memory.unlock()  # killed: the letters were written before the first model
    same(opened(tmp_path).model, model_of(2))


def test_a_damaged_or_wrong_model_is_refused_and_left_alone(tmp_path: Path) -> None:
    with opened(tmp_path) as session:
        for _ in range(2):
            play(session)
    first, last = sorted((tmp_path / "model").iterdir())
    shutil.copy(first, last)
    with pytest.raises(fp.StateError, match="is not the model that the state's round 2 ended with; restore the models"):
        _ = opened(tmp_path).model
    last.write_bytes(b"nonsense")
    with pytest.raises(fp.StateError, match="not a complete fedpick state"):
        _ = opened(tmp_path).model
    assert [found.whole for found in verify(tmp_path / "model", verify_journal)] == [True, False]
    last.unlink()
    with pytest.raises(fp.StateError, match="has models of rounds 1, but the state needs that of 2; restore"):
        _ = opened(tmp_path).model
    first.unlink()
    assert opened(tmp_path).model is None


def test_verify_reads_the_models(tmp_path: Path) -> None:
    with fp.Session(fp.E3CS(2), state=tmp_path, model=tmp_path) as session:
        play(session)
    found = verify(tmp_path, verify_journal)
    assert [each.text for each in found][-1] == "the model after round 1, 3 arrays"
    assert all(each.whole for each in found)


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ([np.ones(2)], "the model is a list, but must be arrays by name, in a dict"),
        ({"w": np.array(["a"])}, "the model's 'w' is <U1, but only arrays of numbers under texts are kept"),
        ({1: np.ones(2)}, "the model's 1 is float64, but only arrays of numbers under texts are kept"),
    ],
)
def test_what_cannot_be_kept_is_an_error_before_the_policy_learns(tmp_path: Path, model, said) -> None:
    session = opened(tmp_path)
    with pytest.raises(fp.ContractError, match=said), session.round(NAMES) as r:
        r.model = model
    assert session.round_number == 0
    play(session)
    assert session.round_number == 1


def test_a_model_needs_a_state_and_a_folder_that_can_be_made(tmp_path: Path) -> None:
    with pytest.raises(fp.SettingError, match=r"Session: model = 'm', but must be None without state="):
        fp.Session(fp.Uniform(2), model="m")
    (tmp_path / "file").touch()
    with pytest.raises(fp.StateError, match="cannot be used as the folder of the models"):
        fp.Session(fp.Uniform(2), state=tmp_path / "s", model=tmp_path / "file" / "m")


def test_a_kept_model_that_nobody_asks_for_is_noticed(tmp_path: Path, caplog) -> None:
    with opened(tmp_path) as session:
        play(session)
    with opened(tmp_path) as again, caplog.at_level(logging.WARNING):
        play(again)
        play(again)
        assert again.last.metrics == {}
    assert caplog.text.count("but not with the model of that round: one may be kept, but it was not asked for") == 1


@pytest.mark.parametrize(
    "notes", [{"letters": "../../etc"}, {"letters": 5}, {"model": [0, 1]}, {"model": "soon"}, {"model": [1]}]
)
def test_a_state_made_to_harm_names_no_file_elsewhere(tmp_path: Path, notes) -> None:
    with opened(tmp_path) as session:
        play(session)
    arrays, meta = read_archive(tmp_path / "state" / "state.npz")
    meta["session"] |= notes
    write_archive(tmp_path / "state" / "state.npz", arrays, meta)
    with pytest.raises(fp.StateError, match="not the state of a server"):
        opened(tmp_path)
