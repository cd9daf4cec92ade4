"""Records of a server that runs for long: what a round costs does not depend on how many there were."""

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import fedpick as fp
from fedpick._support import atomic
from fedpick.core.errors import StoreError
from fedpick.server import records
from fedpick.server.roster import Roster
from fedpick.store import (
    parquet,
    read_census,
    read_clients,
    read_presence,
    read_rounds,
    read_selections,
    tables,
    writer,
)
from fedpick.store.audit import verify
from fedpick.store.records import Record

NAMES = [f"phone-{k}" for k in range(6)]


@pytest.fixture(autouse=True)
def every_round_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    monkeypatch.setattr(records, "WRITE_EVERY", 0.0)


def play(session: fp.Session, rounds: int) -> None:
    for _ in range(rounds):
        with session.round(available=NAMES) as r:
            for name in r.chosen:
                r.done(name, loss=0.5, seconds=1.0)
        session.open()
        with session.lock:
            session.storage.settle()  # what the next round would do first


def rounds_in(path: Path) -> list[int]:
    assert all(found.whole for found in verify(path, str)), [found for found in verify(path, str) if not found.whole]
    numbers: list[int] = read_rounds(path)["round"].to_pylist()
    assert read_selections(path)["round"].to_pylist() == [number for number in numbers for _ in range(2)]
    return numbers


@pytest.mark.slow
def test_a_round_reads_and_writes_as_much_after_many_rounds(tmp_path, monkeypatch) -> None:
    read, written = [0], [0]
    real_read, real_write = tables.read_sealed, writer.write_sealed

    def reading(path: Path):
        read[0] += path.stat().st_size
        return real_read(path)

    def noting(path: Path, *rest) -> None:
        real_write(path, *rest)
        written[0] += path.stat().st_size

    monkeypatch.setattr(tables, "read_sealed", reading)
    monkeypatch.setattr(writer, "write_sealed", noting)
    session = fp.Session(fp.Uniform(2), records=tmp_path / "run")
    spent, parts = [], []
    for _ in range(4):
        read[0] = written[0] = 0
        play(session, 40)
        spent.append(read[0] + written[0])
        parts.append(len(list((tmp_path / "run" / "parts").iterdir())))
    assert spent[-1] < 1.4 * spent[0]  # a join of all each time: 3 to 4 times as much
    assert max(parts) <= 40  # of 320
    assert not (tmp_path / "run" / "rounds.parquet").exists()
    assert rounds_in(tmp_path / "run") == list(range(1, 161))
    session.close()
    assert not list((tmp_path / "run" / "parts").iterdir())
    assert rounds_in(tmp_path / "run") == list(range(1, 161))


def test_parts_do_not_become_larger_than_what_may_be_in_memory(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(writer, "LARGEST", 30_000)
    monkeypatch.setattr(records, "MERGE_EVERY", 2)
    session = fp.Session(fp.Uniform(2), records=tmp_path / "run")
    play(session, 30)
    sizes = [part.stat().st_size for part in (tmp_path / "run" / "parts").iterdir()]
    assert max(sizes) < 30_000
    assert len(sizes) < 40  # of 60
    assert rounds_in(tmp_path / "run") == list(range(1, 31))
    session.close()


def test_the_memory_of_a_merge_and_of_the_join_does_not_grow_with_the_rounds(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(parquet, "GROUP", 64)
    rng, peaks, pool = np.random.default_rng(1), [], pa.default_memory_pool()

    def play(number: int) -> Record:
        numbers = {"clock": 1.0 * number, "seconds": 1.0, "available": 90, "messages": 20, "megabytes": 1.0}
        told = {name: rng.random(3) for name in ("inclusion", "duration", "loss")}
        ids, status = rng.permutation(90)[:3], np.zeros(3, dtype=np.int8)
        return Record(round=number, ids=ids, status=status, there=rng.bytes(100), joined=100, **numbers, **told)

    def peak(act: Callable[..., None], *args: int) -> float:
        """Arrow's bytes."""
        counted = pa.proxy_memory_pool(pool)
        pa.set_memory_pool(counted)
        try:
            act(*args)
        finally:
            pa.set_memory_pool(pool)
        return counted.max_memory()

    for rounds in (400, 1600):
        with writer.Tables(tmp_path / str(rounds), {"seed": rounds}) as opened:
            for at in range(0, rounds, rounds // 5):
                opened.write([play(at + k + 1) for k in range(rounds // 5)], [])
            merged = peak(opened.merge)
            assert len(list(tables.parts_of(opened.path, "rounds"))) == 1
            opened.write([play(rounds + 1)], [])
            peaks.append((merged, peak(opened.join, rounds + 1)))
        assert read_rounds(tmp_path / str(rounds))["round"].to_pylist() == list(range(1, rounds + 2))
        assert len(read_selections(tmp_path / str(rounds))) == 3 * (rounds + 1)
    assert max(np.divide(peaks[1], peaks[0])) < 1.5  # 4 where all rows are in memory


class Killed(BaseException):
    """The end of the process."""


@pytest.mark.slow
def test_a_process_that_ends_at_any_change_of_a_merge_loses_nothing(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(records, "MERGE_EVERY", 100)
    options = {"state": tmp_path / "state", "records": tmp_path / "run"}
    session = fp.Session(fp.Uniform(2), **options)
    play(session, 3)
    session.close()  # whole tables, then parts
    session = fp.Session(fp.Uniform(2), **options)
    play(session, 5)
    session.storage.writer.tables.close()
    session.memory.unlock()
    moments = 0
    while True:
        copy = tmp_path / f"copy-{moments}"
        for name in ("run", "state"):
            shutil.copytree(tmp_path / name, copy / name)
        left, real = [moments], {"replace": os.replace, "remove": atomic.remove}

        def stop(act, *args, left=left):
            left[0] -= 1
            if left[0] < 0:
                raise Killed
            act(*args)

        opened = writer.Tables(copy / "run")
        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", lambda *args, real=real: stop(real["replace"], *args))
            patch.setattr(atomic, "remove", lambda *args, real=real: stop(real["remove"], *args))
            try:
                opened.merge()
                ended = True
            except Killed:
                ended = False
        opened.close()
        assert rounds_in(copy / "run") == list(range(1, 9))
        monkeypatch.setattr(records, "MERGE_EVERY", 2)
        after = fp.Session(fp.Uniform(2), state=copy / "state", records=copy / "run")
        play(after, 3)
        assert rounds_in(copy / "run") == list(range(1, 12))
        after.close()
        assert rounds_in(copy / "run") == list(range(1, 12))
        assert not list((copy / "run" / "parts").iterdir())
        if ended:
            break
        moments += 1
    assert moments >= 10  # two merged files, and four parts of each table that they cover


def test_parts_that_the_joined_file_holds_are_not_merged(tmp_path, monkeypatch) -> None:
    """Killed after the join and before its parts were removed."""
    monkeypatch.setattr(records, "MERGE_EVERY", 100)
    options = {"state": tmp_path / "state", "records": tmp_path / "run"}
    session = fp.Session(fp.Uniform(2), **options)
    play(session, 4)
    shutil.copytree(tmp_path / "run" / "parts", tmp_path / "parts")
    session.close()
    shutil.copytree(tmp_path / "parts", tmp_path / "run" / "parts", dirs_exist_ok=True)
    monkeypatch.setattr(records, "MERGE_EVERY", 1)
    session = fp.Session(fp.Uniform(2), **options)
    play(session, 4)
    assert rounds_in(tmp_path / "run") == list(range(1, 9))
    session.close()
    assert rounds_in(tmp_path / "run") == list(range(1, 9))


def test_a_reader_meets_a_server_that_merges(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(records, "MERGE_EVERY", 100)
    session = fp.Session(fp.Uniform(2), records=tmp_path / "run")
    play(session, 5)
    real, merged = tables.read_sealed, [False]

    def reading(path: Path):
        found = real(path)
        if not merged[0]:  # the last part is read, those before are about to be
            merged[0] = True
            session.storage.writer.tables.merge()
        return found

    monkeypatch.setattr(tables, "read_sealed", reading)
    assert read_rounds(tmp_path / "run")["round"].to_pylist() == [1, 2, 3, 4, 5]
    (tmp_path / "run" / "parts" / "rounds-000000005.parquet").write_bytes(b"damage")
    with pytest.raises(StoreError, match="cannot be read"):
        read_rounds(tmp_path / "run")
    session.close()


def test_records_from_before_there_were_sizes_and_presence_are_continued(tmp_path, monkeypatch) -> None:
    options = {"state": tmp_path / "state", "records": tmp_path / "run"}
    with monkeypatch.context() as patch:  # as they were written then
        patch.setattr(Roster, "there", lambda self, available: None)
        real = writer.Tables.write

        def without(self, records, *rest):
            real(self, [replace(each, joined=None) for each in records], *rest)

        patch.setattr(writer.Tables, "write", without)
        session = fp.Session(fp.Uniform(2), **options)
        play(session, 3)
        session.close()
    with writer.Tables(tmp_path / "run") as opened:
        label = parquet.Label("clients", opened.run, 0, 0)
        writer.write_sealed(tmp_path / "run" / "clients.parquet", pa.table({"client": range(6), "name": NAMES}), label)
    assert (read_clients(tmp_path / "run"), read_census(tmp_path / "run")) == (NAMES, {})
    session = fp.Session(fp.Uniform(2), **options)
    with session.round(available=[*NAMES[:5], "tab"]) as r:
        for name in r.chosen:
            r.done(name, loss=0.5, seconds=1.0)
    session.close()
    assert rounds_in(tmp_path / "run") == [1, 2, 3, 4]
    assert read_rounds(tmp_path / "run")["joined"].to_pylist() == [None, None, None, 7]
    assert read_presence(tmp_path / "run")["there"].to_pylist() == [None, None, None, b"\xff" * 5 + b"\x00\xff"]
    assert read_clients(tmp_path / "run") == [*NAMES, "tab"]
    assert read_census(tmp_path / "run")["size"].tolist() == [1.0] * 7
    assert "Who was away when" in fp.load(tmp_path / "run").page()


def test_numbers_that_an_abandoned_round_gave_are_given_again(tmp_path) -> None:
    """Its newcomers were in the table of clients, but not in the state; the next start failed."""

    def server():
        return fp.Session(fp.Uniform(2), state=tmp_path / "state", records=tmp_path / "run")

    with server() as session:
        with session.round(["ada", "bob"]):
            pass
        session.round(["ada", "bob", "cyd", "dan"]).abandon()
    with server() as session, session.round(["ada", "eve"]):
        pass
    assert read_clients(tmp_path / "run") == ["ada", "bob", "eve"]


def test_names_are_bounded_and_the_table_of_clients_is_written_seldom(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(records, "MOST_NAMES", 100)
    monkeypatch.setattr(records, "WRITE_EVERY", 0.0)
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    written: list[int] = []
    real = fp.store.Tables.name_clients
    monkeypatch.setattr(
        fp.store.Tables,
        "name_clients",
        lambda self, names, sizes: written.append(len(names)) or real(self, names, sizes),
    )
    limits = fp.server.Limits(forget_after=20)
    with fp.Session(fp.Uniform(2), records=tmp_path / "run", metrics=":0", limits=limits) as session:
        for number in range(300):  # "stays" is always there, and each round somebody new
            with session.round(["stays", f"phone {number}", f"phone {number - 1}"]) as r:
                for name in r.chosen:
                    r.done(name, loss=1.0)
        enrolled, held = set(session.names), session.storage.writer._names
        assert len(enrolled) < 50
        assert len([name for name in held if name]) <= 102
        assert len(session.metrics._times) == len(enrolled)
        assert sum(session.metrics._times) <= 300 * 2
    assert len(written) < 100  # and not 300 times
    found = fp.store.read_clients(tmp_path / "run")
    assert len(found) == 302
    position = {name: k for k, name in enumerate(found) if name}
    assert enrolled <= set(position)
    assert found[0] == "stays"
    assert found[1] == ""
    assert position["phone 299"] - position["phone 280"] == 19


def test_a_client_that_joins_and_leaves_between_two_writes_keeps_its_name_after_a_kill(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(records, "WRITE_EVERY", 0.0)
    session = fp.Session(fp.Uniform(2), state=tmp_path / "state", records=tmp_path / "run")
    names = [f"phone {k}" for k in range(100)]

    def play(there) -> None:
        with session.round(there) as r:
            for name in r.chosen:
                r.done(name, loss=1.0)

    play(names)
    play([*names, "guest"])
    play(names)
    session.retire(["guest"])
    play(names)
    play(names)
    assert "guest" in fp.store.read_clients(tmp_path / "run")  # it is on the disk before the session is closed
    session.close()


def test_the_seconds_that_clients_report_are_their_work(tmp_path: Path) -> None:
    session = fp.Session(fp.Uniform(2), records=tmp_path / "run")
    play(session, 1)  # two clients, one second each
    with session.round(available=NAMES) as r:  # one does not say how long it took
        one, other = r.chosen
        r.done(one, loss=0.5, seconds=3.0)
        r.done(other, loss=0.5)
    with session.round(available=NAMES) as r:  # one never answers: nothing is known of it
        r.done(r.chosen[0], loss=0.5, seconds=3.0)
        r.failed(r.chosen[1])
    session.close()
    assert read_rounds(tmp_path / "run")["client_seconds"].to_pylist() == [2.0, None, 3.0]
