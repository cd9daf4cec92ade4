"""Faults at every change of the disk in turn, and power cuts after each: nothing lost, nothing wrong, no traceback."""

import errno
import os
import random
import shutil
import stat
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import fedpick as fp
from disks import Faults, PowerCut
from fedpick._support import atomic
from fedpick.core.errors import FedpickError, StoreError
from fedpick.core.state import pack
from fedpick.experiment.config import Config
from fedpick.experiment.executors import execute
from fedpick.server import records
from fedpick.store import read_rounds

WHAT = Config("uniform", 3, 3, 1, {"name": "volatile", "num_clients": 10}, 2)
ROUNDS = 4  # of a session
NAMES = [f"phone-{k}" for k in range(6)]


def tables(path: Path) -> tuple[bytes, bytes]:
    return (path / "rounds.parquet").read_bytes(), (path / "selections.parquet").read_bytes()


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda handle: None)


@pytest.fixture(autouse=True)
def every_round_is_written_and_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session's."""
    monkeypatch.setattr(records, "WRITE_EVERY", 0.0)
    monkeypatch.setattr(records, "MERGE_EVERY", 2)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, bytes]:
    return tables(execute(WHAT, tmp_path_factory.mktemp("whole") / "run"))


@pytest.fixture(scope="module")
def changes(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Every change of the disk in the life of a run."""
    with Faults().here() as counted:
        execute(WHAT, tmp_path_factory.mktemp("counted") / "run")
    return counted.seen


def test_every_kind_of_change_is_among_those_that_fail(changes: list[str]) -> None:
    assert {"write", "fsync", "replace", "unlink", "mkdir", "open"} <= set(changes)
    assert any(change.startswith("create rounds-000000002") for change in changes)


def fail_at(nth: int, times: int, path: Path, whole: tuple[bytes, bytes]) -> None:
    number = random.Random(nth).choice([errno.ENOSPC, errno.EIO, errno.EDQUOT])
    with suppress(StoreError), Faults(nth, times, number).here():  # another error would be a traceback
        execute(WHAT, path)
    assert tables(execute(WHAT, path)) == whole
    assert not list(path.rglob("*.tmp"))


def test_a_fault_at_some_changes_is_said_and_costs_nothing(
    changes: list[str], whole: tuple[bytes, bytes], tmp_path: Path
) -> None:
    for nth in range(3, len(changes) + 1, 47):  # all of them in the slow test
        fail_at(nth, 1 if nth % 2 else 10_000, tmp_path / str(nth), whole)


@pytest.mark.slow
@pytest.mark.parametrize("times", [1, 10_000])
def test_a_fault_at_every_change_is_said_and_costs_nothing(
    times: int, changes: list[str], whole: tuple[bytes, bytes], tmp_path: Path
) -> None:
    for nth in range(1, len(changes) + 1):
        fail_at(nth, times, tmp_path / str(nth), whole)


def cut_power(tmp_path: Path, whole: tuple[bytes, bytes], tries: int, step: int) -> int:
    """Play, cut the power after every change, and go on from whatever the disk kept; gives the number of cuts."""
    kept: list[Path] = []

    def moment(count: int) -> None:
        if count % step == 0:
            for attempt in range(tries):
                kept.append(tmp_path / f"cut-{count}-{attempt}")
                disk.survivor(kept[-1], random.Random(f"{count} {attempt}"))

    disk = PowerCut(tmp_path / "run", moment)
    with disk.here():
        execute(WHAT, tmp_path / "run")
    disk.survivor(tmp_path / "end", random.Random(0))
    for path in kept:
        assert tables(execute(WHAT, path)) == whole, path
        shutil.rmtree(path)
    assert read_rounds(tmp_path / "end").num_rows == 3  # what was said to be written is
    return len(kept)


def test_a_power_cut_at_some_moments_costs_nothing(tmp_path: Path, whole: tuple[bytes, bytes]) -> None:
    assert cut_power(tmp_path, whole, tries=1, step=9) >= 4


@pytest.mark.slow
def test_a_power_cut_at_every_moment_costs_nothing(tmp_path: Path, whole: tuple[bytes, bytes]) -> None:
    assert cut_power(tmp_path, whole, tries=8, step=1) > 200


@pytest.mark.slow
def test_without_waiting_for_folders_a_power_cut_loses_a_run(
    tmp_path: Path, whole: tuple[bytes, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The simulated power cut finds what it is for."""
    monkeypatch.setattr(atomic, "sync_folder", lambda folder: None)
    with pytest.raises((FedpickError, AssertionError, FileNotFoundError)):
        cut_power(tmp_path, whole, tries=4, step=1)


# --- a session


def play(session: fp.Session, number: int) -> None:
    with session.round(available=NAMES[: 3 + number % 4]) as r:
        for at, name in enumerate(r.chosen):
            _ = r.done(name, loss=at / 3, seconds=2.0) if at else r.failed(name)


def learned(session: fp.Session) -> dict[str, np.ndarray]:
    return {name: np.array(value, copy=True) for name, value in pack(session.roster.state).items()}


@pytest.fixture(scope="module")
def twin() -> dict[int, dict[str, np.ndarray]]:
    session, known = fp.Session(fp.E3CS(2, quota=0.3)), {}
    for number in range(1, ROUNDS + 1):
        play(session, number)
        known[number] = learned(session)
    return known


def open_session(folder: Path) -> fp.Session:
    options = {"state": folder / "state", "records": folder / "run", "limits": fp.server.Limits(checkpoint_every=2)}
    return fp.Session(fp.E3CS(2, quota=0.3), **options)


def end(folder: Path, least: int, known: dict[int, dict[str, np.ndarray]]) -> None:
    """Go on with a session after whatever happened, and look whether all is there."""
    session = open_session(folder)
    assert session.round_number >= least
    session.open()  # what the records lack is in the journal
    for number in range(session.round_number + 1, ROUNDS + 1):
        play(session, number)
    for name, value in known[session.round_number].items():
        np.testing.assert_array_equal(learned(session)[name], value)
    session.close()
    assert read_rounds(folder / "run")["round"].to_pylist() == list(range(1, ROUNDS + 1))


def serve_with_faults(tmp_path: Path, known: dict[int, dict[str, np.ndarray]], nth: int, times: int) -> int:
    folder, session = tmp_path / str(nth), None
    with Faults(nth, times).here() as faults:
        try:
            session = open_session(folder)
            for number in range(1, ROUNDS + 1):
                play(session, number)
        except FedpickError:  # it cannot begin: the folders are not to be had
            assert session is None or session.round_number == 0
        if session is not None:
            with suppress(FedpickError):
                session.close()
    said = session is None or session.memory.behind  # that the last rounds could not be kept
    end(folder, 0 if said else session.round_number, known)
    return len(faults.seen)


def test_a_fault_at_some_changes_costs_a_session_nothing(
    tmp_path: Path, twin: dict[int, dict[str, np.ndarray]]
) -> None:
    for nth in range(30, 130, 31):
        assert serve_with_faults(tmp_path, twin, nth, 3) > 100


@pytest.mark.slow
@pytest.mark.parametrize("times", [3])
def test_a_fault_at_every_change_costs_a_session_nothing(
    times: int, tmp_path: Path, twin: dict[int, dict[str, np.ndarray]]
) -> None:
    nth = 1
    while serve_with_faults(tmp_path, twin, nth, times) >= nth:
        nth += 1
    assert nth > 100


def cut_session(tmp_path: Path, known: dict[int, dict[str, np.ndarray]], tries: int, step: int) -> int:
    kept: list[tuple[Path, int]] = []
    ended = [0]

    def moment(count: int) -> None:
        if count % step == 0:
            for attempt in range(tries):
                kept.append((tmp_path / f"cut-{count}-{attempt}", ended[0]))
                disk.survivor(kept[-1][0], random.Random(f"{count} {attempt}"))

    (tmp_path / "served").mkdir()
    disk = PowerCut(tmp_path / "served", moment)
    with disk.here():
        session = open_session(tmp_path / "served")
        for number in range(1, ROUNDS + 1):
            play(session, number)
            ended[0] = number
        session.close()
    for path, least in kept:
        end(path, least, known)
    return len(kept)


def test_a_power_cut_costs_a_session_no_round_that_had_ended(
    tmp_path: Path, twin: dict[int, dict[str, np.ndarray]]
) -> None:
    assert cut_session(tmp_path, twin, tries=1, step=11) > 5


@pytest.mark.slow
def test_a_power_cut_at_every_moment_costs_a_session_no_round_that_had_ended(
    tmp_path: Path, twin: dict[int, dict[str, np.ndarray]]
) -> None:
    assert cut_session(tmp_path, twin, tries=4, step=1) > 200


# --- files


def test_all_files_of_a_run_have_the_mode_that_the_user_s_mask_leaves(tmp_path: Path) -> None:
    for mask, mode in ((0o077, 0o600), (0o027, 0o640), (0o022, 0o644)):
        before = os.umask(mask)
        try:
            path = execute(WHAT, tmp_path / oct(mask))
            session = open_session(tmp_path / oct(mask) / "served")
            play(session, 1)
            session.close()
        finally:
            os.umask(before)
        found = {stat.S_IMODE(file.stat().st_mode) for file in path.rglob("*") if file.is_file()}
        assert found == {mode}


def test_a_planted_link_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    run = tmp_path / "run"
    run.mkdir()
    for name in ("checkpoint.npz", "rounds.parquet", "selections.parquet"):
        (run / name).symlink_to(tmp_path / "nowhere")
    monkeypatch.setattr(atomic.secrets, "token_hex", lambda size: 2 * size * "a")  # as if it were guessed
    (run / "manifest.json.aaaaaaaa.tmp").symlink_to(victim)
    with pytest.raises(StoreError, match="cannot write the manifest"):
        execute(WHAT, run)
    monkeypatch.undo()
    execute(WHAT, run)
    assert victim.read_text() == "mine"
    assert not (run / "checkpoint.npz").is_symlink()
    session = fp.Session(fp.Uniform(2), state=tmp_path / "state")
    play(session, 1)
    session.close()
    (tmp_path / "state" / "journal").unlink()
    (tmp_path / "state" / "journal").symlink_to(victim)
    session = fp.Session(fp.Uniform(2), state=tmp_path / "state")
    play(session, 2)
    assert victim.read_text() == "mine"
    session.close()
