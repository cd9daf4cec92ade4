"""`fp.Session`: rounds, names, statuses, what survives, what clients cannot do."""

import errno
import gc
import logging
import math
import os
import shutil
import threading
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fedpick as fp
from fedpick import store
from fedpick.core.state import pack
from fedpick.server import journal
from fedpick.store import writer

DONE, LATE, FAILED, SURPLUS = fp.Status


def play(session, there, fails=(), silent=()):
    """One round in which these fail and those never answer."""
    with session.round(there) as r:
        for name in r.chosen:
            if name in fails:
                r.failed(name, "as the test says")
            elif name not in silent:
                r.done(name, loss=len(name) / 10 + ord(name[-1]) / 1000, seconds=1.0 + ord(name[-1]) % 5)
    return r


def by_name(session, r) -> dict[str, fp.Status]:
    return {session.roster.names[k]: fp.Status(s) for k, s in zip(r.choice.ids, r.record.status, strict=True)}


def same(one, other) -> None:
    assert one.round_number == other.round_number
    assert one.names == other.names
    assert one.roster.numbers == other.roster.numbers
    assert one.roster.last == other.roster.last
    for name, value in pack(other.roster.state).items():
        np.testing.assert_array_equal(pack(one.roster.state)[name], value, err_msg=name)


def kill(session) -> None:
    """What the end of a process leaves: the files, without the lock; nothing is closed."""
    if session.memory is not None:
        session.memory._lock.release()
    if session.storage.writer is not None:
        session.storage.writer.tables.close()


NAMES = [f"phone-{letter}" for letter in "abcdefgh"]


# -- a round ----------------------------------------------------------------------------------------------------------


def test_the_choice_is_the_policy_s_and_it_learns_how_each_did() -> None:
    policy, seed = fp.E3CS(cohort_size=4, quota=0.5), 7
    session = fp.Session(policy, seed=seed)
    clients = fp.Clients(np.ones(8))
    state = policy.init(clients)
    for number in range(1, 6):
        view = fp.View(number, np.ones(8, dtype=bool), clients)
        choice = policy.select(state, view, fp.rng.stream(seed, number, "policy"))
        r = play(session, NAMES, fails={"phone-b"}, silent={"phone-c"})
        assert r.chosen == tuple(NAMES[k] for k in choice.ids)
        status = [FAILED if k == 1 else LATE if k == 2 else DONE for k in choice.ids]
        assert r.record.status.tolist() == status
        state = policy.observe(state, view, choice, fp.Outcome(status, r.record.duration, r.record.loss))
        np.testing.assert_array_equal(session.roster.state.log_weights, state.log_weights)


def test_over_selection_keeps_the_first() -> None:
    session = fp.Session(fp.OverSelect(fp.Uniform(3), 2.0))
    with session.round(NAMES) as r:
        told = [r.done(name) for name in r.chosen[:5]]
        assert r.full
    assert told == [DONE] * 3 + [SURPLUS] * 2
    assert sorted(r.record.status.tolist()) == sorted([DONE] * 3 + [SURPLUS] * 3)
    assert np.isnan(r.record.duration).sum() == 1  # of the one that still worked nothing is known


def test_durations() -> None:
    session = fp.Session(fp.Uniform(4), deadline=60.0)
    with session.round(NAMES[:4]) as r:
        a, b, c, _ = r.chosen
        r.done(a, seconds=5.0)
        r.done(b, seconds=61.0, arrived=7.0)  # impossible: the round may last 60 s
        r.done(c, seconds=math.nan)
    assert r.record.duration[[0, 1, 3]].tolist() == [5.0, 7.0, 60.0]
    assert 0 < r.record.duration[2] < 30.0
    by_arrival = fp.Session(fp.Uniform(1), durations="arrival")
    with by_arrival.round(["a"]) as r:
        r.done("a", seconds=1e-6, arrived=4.0)
    assert r.record.duration.tolist() == [4.0]


def test_a_reported_duration_is_possible_above_0_and_up_to_the_deadline() -> None:
    session = fp.Session(fp.Uniform(5), deadline=60.0)
    with session.round(NAMES[:5]) as r:
        for name, seconds in zip(r.chosen, [60.0, 60.5, 0.0, -1.0, math.inf], strict=True):
            r.done(name, seconds=seconds, arrived=7.0)
    assert r.record.duration.tolist() == [60.0, 7.0, 7.0, 7.0, 7.0]
    endless = fp.Session(fp.Uniform(1))
    with endless.round(["a"]) as r:
        r.done("a", seconds=1e6, arrived=7.0)
    assert r.record.duration.tolist() == [1e6]


def test_the_seconds_of_a_round_run_until_it_is_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("fedpick.server.round.monotonic", lambda: now[0])
    r = fp.Session(fp.Uniform(2)).round(["a", "b"])
    now[0] = 105.0
    assert r.seconds == 5.0
    r.done("a")
    now[0] = 109.0
    r.settle()
    now[0] = 300.0
    assert r.seconds == 9.0
    r.close()
    assert r.seconds == 9.0
    assert r.record.duration[0] == 5.0


def test_an_exception_abandons_the_round_and_its_number_is_played_again(tmp_path, caplog) -> None:
    session = fp.Session(fp.BSFL(3), state=tmp_path)
    play(session, NAMES)
    before = session.roster.state.counts.copy()
    r = session.round([*NAMES, "new"])
    first = r.chosen
    with pytest.raises(ZeroDivisionError), r:
        raise ZeroDivisionError
    assert session.round_number == 1
    np.testing.assert_array_equal(session.roster.state.counts[:8], before)
    assert "round 2: abandoned; it will be played again" in caplog.text
    assert r.done(first[1]) is None
    with pytest.raises(fp.ContractError, match="round 2 was abandoned"):
        r.close()
    again = play(session, [*NAMES, "new"])
    assert (again.number, again.chosen) == (2, first)
    kill(session)
    same(fp.Session(fp.BSFL(3), state=tmp_path), session)


def test_skipped_clients_are_not_part_of_the_round() -> None:
    session = fp.Session(fp.E3CS(4))
    with session.round(NAMES) as r:
        gone = r.chosen[0]
        r.skip([gone, "nobody"])
        for name in r.chosen:
            r.done(name)
    assert gone not in by_name(session, r)
    assert len(r.record.ids) == len(r.record.inclusion) == 3


def test_answers_come_from_other_threads() -> None:
    session = fp.Session(fp.Uniform(8), deadline=30.0)
    with session.round(NAMES) as r:
        threads = [threading.Thread(target=r.done, args=(name,)) for name in r.chosen[1:]]
        threads += [threading.Thread(target=r.done, args=(name,)) for name in r.chosen[1:]]  # each twice
        last = threading.Timer(0.2, lambda: r.failed(r.chosen[0]))
        for thread in (*threads, last):
            thread.start()
        assert r.wait()
        assert r.seconds < 20.0
    assert sorted(r.record.status.tolist()) == [DONE] * 7 + [FAILED]
    second = session.round(NAMES)
    second.done(second.chosen[0], update="mine")
    assert not second.wait(0.05)
    assert second.done(second.chosen[1]) is None  # after wait() nobody is heard
    assert (second.updates, second.waiting) == ({second.chosen[0]: "mine"}, ())
    assert session.current is not None
    with pytest.raises(fp.ContractError, match=r"round 2 is still open; close\(\) or abandon"):
        session.round(NAMES)


def test_features_and_reports() -> None:
    session = fp.Session(fp.FedGS(2, graph="features"))
    with session.round({"a": {"size": 10, "features": [1, 0]}, "b": (20, [0.0, 1.0]), "c": 5}):
        pass
    assert session.roster.clients.sizes.tolist() == [10.0, 20.0, 5.0]
    assert session.roster.clients.features.tolist() == [[1, 0], [0, 1], [0, 0]]
    with pytest.raises(fp.MissingError, match="needs features, but none of 1 clients gave any"):
        fp.Session(fp.FedGS(2, graph="features")).round(["a"])

    session = fp.Session(fp.FedGS(3, graph="embedding"))
    with session.round(["a", "b", "c"]) as r:
        r.done("a", reports={"embedding": [1.0, 2.0], "other": 3})
        r.done("b", reports={"embedding": np.array([3.0, 4.0])})
        r.done("c", reports={"embedding": [1.0] * 99})
    assert session.roster.widths == {"embedding": 2}
    assert session.roster.state.vectors[:2].tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert np.isnan(session.roster.state.vectors[2]).all()


@dataclass
class GainState:
    gain: np.ndarray


@dataclass(frozen=True)
class Gainer:
    """A policy of the user's own: learns from a report that it names, a vector of two numbers."""

    cohort_size: int
    needs = (fp.ReportSpec("gain", 2),)

    def init(self, clients):
        return GainState(np.zeros((len(clients), 2)))

    def select(self, state, view, rng):
        return fp.Choice(np.flatnonzero(view.available)[: self.cohort_size])

    def observe(self, state, view, choice, outcome):
        gain = state.gain.copy()
        gain[choice.ids] += np.nan_to_num(outcome.reports["gain"])
        return GainState(gain)


@pytest.mark.parametrize("policy", [Gainer(2), fp.OverSelect(Gainer(2), 1.5)])
def test_a_policy_of_ones_own_gets_the_reports_that_it_names(policy) -> None:
    session = fp.Session(policy)
    with session.round(["a", "b", "c"]) as r:
        r.done("a", reports={"gain": [1.0, 2.0]})
        r.done("b", reports={"gain": 5.0})
    play(session, ["a", "b", "c"])  # nobody reports any
    assert session.roster.state.gain.tolist() == [[1.0, 2.0], [0.0, 0.0], [0.0, 0.0]]


# -- hostile input ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf, "0.5", True, [0.5], 10**400, object()])
def test_a_loss_that_is_none_is_a_failure(loss) -> None:
    session = fp.Session(fp.PowerOfChoice(2, variant="rpow-d"))
    with session.round(["a", "b"]) as r:
        assert r.done("a", loss=loss) == FAILED
        assert r.done("a", loss=0.5) == FAILED  # the first counts
        assert r.done("b", loss=0.5) == DONE
        assert r.failed("b") == DONE
    assert by_name(session, r) == {"a": FAILED, "b": DONE}


def test_strangers_late_comers_and_nonsense_harm_nobody(caplog) -> None:
    caplog.set_level(logging.INFO)
    session = fp.Session(fp.Uniform(1))
    with session.round(["a", "b"]) as r:
        (chosen,) = r.chosen
        (other,) = {"a", "b"} - {chosen}
        for name in (other, "stranger", "", "\x1b[2J" + "x" * 9999, 7, None):
            assert r.done(name) is None
            assert r.failed(name) is None
        assert r.done(chosen, seconds="soon", reports=[1, 2]) == DONE
    assert r.done(chosen) is None
    assert session.round_number == 1
    told = [record.getMessage() for record in caplog.records]
    assert max(map(len, told)) < 500
    assert not any("\x1b" in text for text in told)


@pytest.mark.parametrize(
    "size", [math.nan, -1, 0, 1e300, "many", [1], {"size": None}, {"size": 5, "features": "x"}, (1,)]
)
def test_a_newcomer_that_says_nonsense_has_size_one(size) -> None:
    session = fp.Session(fp.SizeWeighted(2))
    play(session, {"a": 3, "b": size})
    assert session.roster.clients.sizes.tolist() in ([3.0, 1.0], [3.0, 5.0])


def test_any_text_is_a_name(tmp_path) -> None:
    odd = ["a/b", "../../etc", "\x00", "\ud800", "ü" * 100, "😀", " ", "'; drop table --", "a\nb", "=1+1"]
    session = fp.Session(fp.E3CS(4), state=tmp_path / "state", records=tmp_path / "run")
    for _ in range(3):
        play(session, odd)
    session.close()
    again = fp.Session(fp.E3CS(4), state=tmp_path / "state")
    same(again, session)
    assert again.names == odd
    assert len(store.read_clients(tmp_path / "run")) == len(odd)
    play(again, [*odd, "", "x" * 10_000])
    assert again.names == odd


def test_what_a_program_got_wrong_is_said() -> None:
    with pytest.raises(fp.SettingError, match="Session: deadline = 0"):
        fp.Session(fp.Uniform(2), deadline=0)
    with pytest.raises(fp.ContractError, match="returned 1 clients for 2 names"):
        fp.Session(fp.Uniform(2), describe=lambda names: fp.Clients([1.0])).round(["a", "b"])


# -- what survives ----------------------------------------------------------------------------------------------------

step = st.tuples(
    st.sets(st.sampled_from(NAMES), min_size=1),  # who is there
    st.sets(st.sampled_from(NAMES), max_size=3),  # who fails
    st.sets(st.sampled_from(NAMES), max_size=2),  # who never answers
    st.sets(st.sampled_from(NAMES), max_size=2),  # who is retired afterwards
    st.sampled_from(["on", "kill", "kill in mid-round", "close"]),
)


@pytest.mark.slow
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(step, min_size=1, max_size=9), every=st.integers(1, 4))
def test_kills_change_nothing_whoever_comes_and_goes(tmp_path, steps, every) -> None:
    """The twin is never interrupted and keeps nothing; records of the one that is are those of the twin."""
    shutil.rmtree(tmp_path / "state", ignore_errors=True)
    shutil.rmtree(tmp_path / "run", ignore_errors=True)

    def server():
        return fp.Session(
            fp.E3CS(3, quota=0.3),
            state=tmp_path / "state",
            records=tmp_path / "run",
            limits=fp.server.Limits(checkpoint_every=every),
        )

    twin, session, rows = fp.Session(fp.E3CS(3, quota=0.3)), server(), []
    for there, fails, silent, gone, then in steps:
        if then == "kill in mid-round":
            r = session.round(sorted(there))
            r.done(r.chosen[0])
            kill(session)
            session = server()
        played = [play(each, sorted(there), fails, silent) for each in (twin, session)]
        assert played[0].chosen == played[1].chosen
        record = played[0].record
        rows += list(zip([record.round] * len(record.ids), record.ids.tolist(), record.status.tolist(), strict=True))
        for each in (twin, session):
            each.retire(gone)
        if then == "kill":
            kill(session)
            session = server()
        elif then == "close":
            session.close()
        same(session, twin)
    with session:  # which adds to the records what only the journal holds
        pass
    told = store.read_selections(tmp_path / "run")
    found = [told["round"].to_pylist(), told["client"].to_pylist(), [fp.Status[s] for s in told["status"].to_pylist()]]
    assert list(zip(*found, strict=True)) == rows
    assert store.read_rounds(tmp_path / "run")["round"].to_pylist() == list(range(1, twin.round_number + 1))


def test_a_retired_client_comes_back_as_a_newcomer_and_keeps_its_old_rows(tmp_path) -> None:
    session = fp.Session(fp.E3CS(2), state=tmp_path / "state", records=tmp_path / "run")
    play(session, ["a", "b"], fails={"a"})
    session.retire(["a", "stranger"])
    session.retire([])
    assert session.names == ["b"]
    play(session, ["a", "b"])
    assert (session.names, session.roster.numbers) == (["b", "a"], [1, 2])
    with session.round(["b"]), pytest.raises(fp.ContractError, match="retire clients between two rounds"):
        session.retire(["b"])
    session.close()
    names, told = store.read_clients(tmp_path / "run"), store.read_selections(tmp_path / "run")
    assert names == ["a", "b", "a"]
    rows = {
        (r, names[c], c): s
        for r, c, s in zip(*(told[k].to_pylist() for k in ("round", "client", "status")), strict=True)
    }
    assert rows == {
        (1, "a", 0): "FAILED",
        (1, "b", 1): "DONE",
        (2, "b", 1): "DONE",
        (2, "a", 2): "DONE",
        (3, "b", 1): "LATE",
    }


@pytest.mark.parametrize(
    "policy", [fp.E3CS(2), fp.BSFL(2), fp.FedGS(2, graph="features"), fp.OverSelect(fp.ActiveFL(2), 1.5)], ids=repr
)
def test_everybody_is_retired_and_comes_back(tmp_path, policy) -> None:
    there = {name: (1, [1.0, 2.0]) for name in "abc"}
    for numbers in ([0, 1, 2], [3, 4, 5]):
        with fp.Session(policy, state=tmp_path) as session:
            play(session, there)
            assert session.roster.numbers == numbers
            session.retire("abc")
        assert fp.Session(policy, state=tmp_path).names == []


def test_interrupted_while_clients_are_retired(tmp_path, monkeypatch) -> None:
    """Ctrl-C in a notebook: the process lives on, and what it plays afterwards must not rest on the old state."""
    session = fp.Session(fp.E3CS(3), state=tmp_path)
    play(session, NAMES)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda file: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            session.retire(["phone-a", "phone-b"])
    play(session, NAMES[2:])
    play(session, NAMES)
    kill(session)
    same(fp.Session(fp.E3CS(3), state=tmp_path), session)


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("call", [pytest.param("fsync", marks=pytest.mark.slow), "replace", "unlink"])
def test_killed_at_every_write_nothing_learned_is_lost(tmp_path, monkeypatch, call) -> None:
    """The nth flush to the disk, renaming or removal of a file never happens, nor what comes after it; for every n."""
    there = [NAMES[: 4 + number] for number in range(5)]
    twin = fp.Session(fp.E3CS(3, quota=0.3))
    for names in there:
        play(twin, names, fails={"phone-a"})
    owner = Path if call == "unlink" else os
    real, left = getattr(owner, call), [0]

    def dies(*args, **options):
        left[0] -= 1
        if left[0] == 0:
            raise Killed
        return real(*args, **options)

    monkeypatch.setattr(owner, call, dies)
    for nth in range(1, 100):
        folder = tmp_path / str(nth)
        options = {"state": folder / "state", "records": folder / "run", "limits": fp.server.Limits(checkpoint_every=2)}
        left[0], counted, session = nth, 0, None
        try:
            session = fp.Session(fp.E3CS(3, quota=0.3), **options)
            for names in there:
                play(session, names, fails={"phone-a"})
                counted = session.round_number
            session.close()
        except Killed:
            if session is not None:
                kill(session)
        survived, left[0] = left[0] > 0, 0
        session = fp.Session(fp.E3CS(3, quota=0.3), **options)
        assert session.round_number >= counted
        for names in there[session.round_number :]:
            play(session, names, fails={"phone-a"})
        with session:
            pass
        same(session, twin)
        assert store.read_rounds(folder / "run")["round"].to_pylist() == list(range(1, 6))
        shutil.rmtree(folder)
        if survived:  # there was no nth
            break
    assert nth > 2


def test_two_sessions_do_not_share_a_folder(tmp_path) -> None:
    first = fp.Session(fp.Uniform(2), state=tmp_path)
    play(first, NAMES)
    second = fp.Session(fp.Uniform(2), state=tmp_path)  # to look is allowed
    assert second.round_number == 1
    with pytest.raises(fp.StateError, match="another server is working with this state; wait until it ends"):
        second.round(NAMES)
    play(first, NAMES)
    first.close()
    assert play(second, NAMES).number == 3  # what the first wrote meanwhile is read


def test_opened_in_one_thread_and_closed_in_another(tmp_path) -> None:
    session = fp.Session(fp.Uniform(2), state=tmp_path)
    thread = threading.Thread(target=play, args=(session, NAMES))
    thread.start()
    thread.join()
    session.close()
    assert play(fp.Session(fp.Uniform(2), state=tmp_path), NAMES).number == 2


def test_a_full_disk_for_the_records_costs_no_round(tmp_path, monkeypatch, caplog) -> None:
    """Killed while the records' disk is full: they are made up from the journal, which is kept for as long."""
    write, full = writer.write_sealed, [False]

    def failing(*args, **options):
        if full[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(*args, **options)

    monkeypatch.setattr(writer, "write_sealed", failing)
    options = {"state": tmp_path / "state", "records": tmp_path / "run", "limits": fp.server.Limits(checkpoint_every=4)}
    twin, session = fp.Session(fp.E3CS(3)), fp.Session(fp.E3CS(3), **options)
    for number in range(1, 31):
        full[0] = number > 5
        play(session, NAMES, fails={"phone-a"})
        play(twin, NAMES, fails={"phone-a"})
        if number == 20:
            for each in (session, twin):
                each.retire(["phone-b"])
        if number in (13, 26):
            kill(session)
            session = fp.Session(fp.E3CS(3), **options)
    assert "No space left on device); files written before are intact" in caplog.text
    assert "Free space, or start the server with records= in a folder" in caplog.text
    assert "fedpick resume" not in caplog.text
    full[0] = False
    same(session, twin)
    for _ in range(6):
        play(session, NAMES)
    session.close()
    assert store.read_rounds(tmp_path / "run")["round"].to_pylist() == list(range(1, 37))
    assert not (tmp_path / "state" / "journal").exists() or (tmp_path / "state" / "journal").stat().st_size < 20_000


def test_a_session_that_is_closed_while_the_records_disk_is_full_adds_them_when_it_is_opened_again(
    tmp_path, monkeypatch
) -> None:
    write, full = writer.write_sealed, [True]

    def failing(*args, **options):
        if full[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(*args, **options)

    monkeypatch.setattr(writer, "write_sealed", failing)
    session = fp.Session(
        fp.E3CS(3), state=tmp_path / "state", records=tmp_path / "run", limits=fp.server.Limits(checkpoint_every=2)
    )
    for _ in range(2):
        play(session, NAMES)
        play(session, NAMES)
        session.close()
        full[0] = False
    assert store.read_rounds(tmp_path / "run")["round"].to_pylist() == [1, 2, 3, 4]


def test_a_full_disk_for_the_state_is_told_and_made_up_for(tmp_path, monkeypatch, caplog) -> None:
    real, full = os.fsync, [False]

    def fsync(file):
        if full[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(file)

    monkeypatch.setattr(os, "fsync", fsync)
    twin, session = fp.Session(fp.E3CS(3)), fp.Session(fp.E3CS(3), state=tmp_path / "s", records=tmp_path / "run")
    for number in range(1, 9):
        full[0] = 3 <= number <= 6
        for each in (twin, session):
            play(each, NAMES)
    assert "round 3 could not be saved (No space left on device); training continues" in caplog.text
    kill(session)
    again = fp.Session(fp.E3CS(3), state=tmp_path / "s", records=tmp_path / "run")
    same(again, twin)


@pytest.fixture
def past(tmp_path):
    """Five rounds, all in the journal, and the weights after each."""
    session = fp.Session(fp.E3CS(3), state=tmp_path / "past", limits=fp.server.Limits(checkpoint_every=50))
    after = {0: np.zeros(8)}
    for number in range(1, 6):
        play(session, NAMES, fails={"phone-a"})
        after[number] = session.roster.state.log_weights.copy()
    kill(session)
    return tmp_path / "past", after


def entries(data: bytes) -> list[int]:
    ends, at = [0], 0
    while at < len(data):
        at += journal.HEAD.size + journal.HEAD.unpack_from(data, at)[1]
        ends.append(at)
    return ends


def test_a_journal_cut_at_any_byte_of_a_header_is_torn_and_not_damaged(past) -> None:
    """Today's fault: 8 bytes of an entry, the mark alone, read as an entry without content."""
    folder, after = past
    file, data = folder / "journal", (folder / "journal").read_bytes()
    for at, begin in enumerate(entries(data)[:-1]):
        for extra in range(journal.HEAD.size + 1):
            file.write_bytes(data[: begin + extra])
            session = fp.Session(fp.E3CS(3), state=folder)
            assert session.round_number == at
            np.testing.assert_array_equal(session.roster.state.log_weights, after[at])


def test_numbers_inside_an_entry_are_never_taken_for_another(tmp_path) -> None:
    """A client reports, as a vector, the bytes of a whole entry; then the file is torn in the entry that holds it."""
    session = fp.Session(fp.FedGS(2, graph="embedding"), state=tmp_path)
    play(session, ["a", "b"])
    play(session, ["a", "b"])
    whole = (tmp_path / "journal").read_bytes()
    whole += b"\0" * (-len(whole) % 8)
    numbers = np.frombuffer(whole, dtype="<f8").tolist()
    with session.round(["a", "b"]) as r:
        for name in r.chosen:
            r.done(name, reports={"embedding": numbers})
    kill(session)
    data = (tmp_path / "journal").read_bytes()
    begin = entries(data)[-2]
    assert journal.MARK in data[begin + 8 :]
    (tmp_path / "journal").write_bytes(data[:-1])
    assert fp.Session(fp.FedGS(2, graph="embedding"), state=tmp_path).round_number == 2


def test_damage_before_the_end_is_refused_and_left(past) -> None:
    folder, _ = past
    data = (folder / "journal").read_bytes()
    for at in range(0, entries(data)[-2], 97):
        bad = data[:at] + bytes([data[at] ^ 0x41]) + data[at + 1 :]
        (folder / "journal").write_bytes(bad)
        with pytest.raises(fp.StateError, match=r"damaged at byte .* the files are left as they are"):
            fp.Session(fp.E3CS(3), state=folder)
        assert (folder / "journal").read_bytes() == bad


def test_what_a_killed_server_left_half_written_is_removed(tmp_path) -> None:
    session = fp.Session(fp.Uniform(2), state=tmp_path)
    (tmp_path / "state.npz.0123abcd.tmp").write_bytes(b"half")
    play(session, NAMES)
    assert not list(tmp_path.glob("*.tmp"))


def test_metrics_reach_the_records_until_the_next_round(tmp_path) -> None:
    with fp.Session(fp.Uniform(2), records=tmp_path / "run") as session:
        session.measure({"accuracy": 0.1})  # of no round
        for number in range(3):
            play(session, NAMES)
            session.measure({"accuracy": number / 10, "seconds": 5.0, "many": [1.0], "loss": np.float32(2.0)})
            session.measure({"loss": 0.5}, training=True)
    rounds = store.read_rounds(tmp_path / "run")
    assert rounds["accuracy"].to_pylist() == [0.0, 0.1, 0.2]
    assert rounds["metric_seconds"].to_pylist() == [5.0] * 3
    assert rounds["test_loss"].to_pylist() == [2.0] * 3
    assert rounds["train_loss"].to_pylist() == [0.5] * 3
    assert "many" not in rounds.column_names
    assert store.read_manifest(tmp_path / "run")["config"] == {
        "engine": "session",
        "policy": "Uniform",
        "cohort_size": 2,
        "seed": 0,
    }


def test_the_manifest_says_how_many_answers_are_used_not_how_many_clients_are_asked(tmp_path) -> None:
    @dataclass(frozen=True)
    class Asking:
        """Has no cohort_size, and says how many it asks."""

        asks: int

        def init(self, clients):
            return None

        def select(self, state, view, rng):
            return fp.Choice(np.flatnonzero(view.available)[: self.asks])

        def observe(self, state, view, choice, outcome):
            return None

    for policy, size in ((fp.OverSelect(fp.Uniform(2), 1.5), 2), (Asking(3), 3)):
        folder = tmp_path / type(policy).__name__
        with fp.Session(policy, records=folder) as session:
            play(session, NAMES)
        assert store.read_manifest(folder)["config"]["cohort_size"] == size


def test_metrics_of_any_name_and_number_reach_the_records(tmp_path) -> None:
    given = {"\ud800": 0.1, "\x1b[2J": 0.2, "": 0.3, 7: 0.4, "x" * 9999: 0.5, "f\n1": 0.6, "\x00": 0.7, "forgotten": 9}
    numbers = {"large": 10**400, "nan": math.nan, "complex": np.complex128(1j), "text": "1", "flag": True}
    with fp.Session(fp.Uniform(2), records=tmp_path / "run") as session:
        for _ in range(3):
            play(session, NAMES)
            session.measure({**given, **numbers})
            session.measure({"fresh_model": 1.0})
    rounds = store.read_rounds(tmp_path / "run")
    assert rounds["round"].to_pylist() == [1, 2, 3]
    new = [name for name in rounds.column_names if name not in store.ROUND_COLUMNS]
    assert set(new) == {
        "metric",
        "[2J",
        "7",
        "x" * 200,
        "f 1",
        "metric_forgotten",
        "metric_fresh_model",
        *list(numbers)[:3],
    }
    assert all(name.isprintable() for name in new)
    assert rounds["large"].to_pylist() == [math.inf] * 3
    assert rounds["metric"].to_pylist() == [0.7] * 3  # of several that have no name left, the last


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (lambda view: fp.Choice([1]), "Answers, round 2: it chose client 1, which was not available"),
        (lambda view: fp.Choice([0, 0]), "Answers, round 2: it chose a client twice, client 0"),
        (lambda view: [0], "Answers, round 2: select returned list, but must return fp.Choice"),
        (lambda view: view.probe([0, 1]), "view.probe was given client 1, which was not available"),
    ],
    ids=["away", "twice", "a list", "probe"],
)
def test_a_choice_against_the_rules_is_refused(answer, says) -> None:
    class Answers(fp.Uniform):
        def select(self, state, view, rng):
            return answer(view) if view.round == 2 else super().select(state, view, rng)

    session = fp.Session(Answers(2))
    play(session, ["a", "b"])
    with pytest.raises(fp.ContractError, match=says):
        session.round(["a"], probe=lambda names, batch: [1.0 for _ in names])


def test_a_session_that_keeps_nothing_needs_no_extra() -> None:
    import subprocess
    import sys

    code = """
import sys
for name in ("filelock", "pyarrow", "flwr", "nvflare"):
    sys.modules[name] = None
import fedpick as fp
session = fp.Session(fp.Uniform(1))
with session.round(["a"]) as r:
    r.done("a")
assert session.round_number == 1
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_dropping_a_session_leaves_no_lock(tmp_path) -> None:
    session = fp.Session(fp.Uniform(2), state=tmp_path)
    play(session, NAMES)
    del session
    gc.collect()
    assert play(fp.Session(fp.Uniform(2), state=tmp_path), NAMES).number == 2


def test_a_rounds_weights_are_the_policys_and_survive_a_restart(tmp_path: Path) -> None:
    names = [f"c{k}" for k in range(5)]
    states = []
    for stop in (6, 3):  # six rounds in one go, or three and three
        folder = tmp_path / str(stop)
        for _ in range(6 // stop):
            with fp.Session(
                fp.F3AST(2, beta=0.2), state=folder, limits=fp.server.Limits(checkpoint_every=100)
            ) as session:
                for _ in range(stop):
                    with session.round(names) as r:
                        assert r.weights == {}
                        r.done(r.chosen[0], loss=0.5)
                        r.failed(r.chosen[1], "test")
                        weights = dict(zip([names[k] for k in r.choice.ids], r.choice.weights, strict=True))
                        assert r.weights == {r.chosen[0]: weights[r.chosen[0]]}  # not divided by their sum
                session.memory.checkpoint = lambda: None  # as if the server was killed: the journal is all there is
        states.append(fp.Session(fp.F3AST(2, beta=0.2), state=folder).roster.state.rate)
    np.testing.assert_array_equal(*states)
    with fp.Session(fp.PowerOfChoice(2, variant="rpow-d")).round(names) as r:
        for name in r.chosen:
            r.done(name, loss=0.5)
        assert r.weights == dict.fromkeys(r.chosen, 0.5)
    with fp.Session(fp.Uniform(2)).round(names) as r:
        assert r.weights is None


def test_the_server_s_values_reach_the_policy_and_clients_cannot_fake_them(caplog) -> None:
    def value(updates):
        return {name: float(update) for name, update in updates.items()} | {"stranger": 9.0}

    session = fp.Session(fp.GreedyFed(2), value=value)
    with session.round(["ada", "bob"]) as r:
        for name in r.chosen:
            r.done(name, loss=1.0, update={"ada": 0.25, "bob": 0.75}[name], reports={"shapley": 1e6})
    assert session.roster.state.worth.tolist() == [0.25, 0.75]
    with session.round(["ada", "bob"]) as r:
        r.done("ada", loss=1.0, update="no number", reports={"shapley": 1e6})
    assert session.roster.state.worth.tolist() == [0.25, 0.75]  # bob is late, and stands no higher than he did
    assert "value() failed on 1 updates: ValueError" in caplog.text


def test_a_policy_that_needs_values_is_refused_without_a_function_for_them() -> None:
    with pytest.raises(fp.MissingError, match="Session: SFedAvg needs shapley, which the server computes from the upd"):
        fp.Session(fp.SFedAvg(2))


def test_settings_that_belong_together_are_objects_with_defaults() -> None:
    session = fp.Session(fp.Uniform(2))
    assert session.limits == fp.server.Limits(forget_after=1000, most_clients=None, checkpoint_every=20)
    assert (session.owner, session.log.name) == ("Session", "fedpick.session")
    for late in (3, fp.server.Lateness(3)):
        kept = fp.Session(fp.Uniform(2), late=late).late
        assert (kept.rounds, kept.beta) == (3, 0.35)


def test_limits_that_are_no_limits_are_refused():
    with pytest.raises(
        fp.SettingError, match=r"Session: limits = 3, but must be a fedpick.server.Limits, such as Limits"
    ):
        fp.Session(fp.Uniform(2), limits=3)


def test_what_came_before_the_choice_is_in_no_duration_and_uses_up_no_deadline(monkeypatch):
    """Seconds of probing were in every duration, and taken from the deadline; not so in simulated runs."""
    now = [100.0]
    for module in ("round", "session"):
        monkeypatch.setattr(f"fedpick.server.{module}.monotonic", lambda: now[0])

    def probe(names, batch):
        now[0] += 8.0
        return np.ones(len(names))

    session = fp.Session(fp.PowerOfChoice(3, 3), deadline=10.0)
    for _ in range(2):
        with session.round(["ada", "bob", "cyd"], probe=probe) as r:
            now[0] += 3.0
            r.done("ada", loss=1.0)
            now[0] += 7.0
            r.done("bob", loss=1.0, seconds=9.5)
            assert not r.wait()
    found = dict(zip(r.chosen, session.last.duration.tolist(), strict=True))
    assert found == {"ada": 3.0, "bob": 10.0, "cyd": 10.0}
    assert session.last.seconds == 18.0
    assert (session.last.clock, session.last.sent_at) == (36.0, 26.0)
