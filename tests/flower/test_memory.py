"""The folder in which a Flower server's state survives: torn, damaged, full, shared."""

import errno
import os
import shutil

import numpy as np
import pytest
from fake_flower import Clock, FakeGrid, model, replies, trains
from flwr.app import Error
from flwr.serverapp.strategy import FedAvg
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fedpick as fp
from fedpick.core.state import pack, read_archive
from fedpick.flower import Selected
from fedpick.server import journal, memory


def world(clock: Clock, nodes=range(8)) -> FakeGrid:
    grid = FakeGrid(clock, {node: trains(train_loss=node / 10) for node in nodes})
    grid.nodes[5] = replies(Error(2, "raised"))
    return grid


def server(folder, **options):
    policy = options.pop("policy", fp.E3CS(cohort_size=3, quota=0.3))
    return Selected(FedAvg(fraction_evaluate=0.0), policy, state=folder, wait=0.0, **options)


def weights(strategy):
    return pack(strategy.roster.state)["log_weights"]


@pytest.fixture
def past(clock: Clock, tmp_path):
    """Six rounds: a checkpoint from before the first, a journal of all; and the weights after each."""
    strategy = server(tmp_path / "past", limits=fp.server.Limits(checkpoint_every=50))
    after = {0: np.zeros(8)}
    for _ in range(6):
        strategy.start(world(clock), model(), num_rounds=1)
        after[strategy.round] = weights(strategy).copy()
    return tmp_path / "past", after


def ends(file):
    """Where each entry of a journal ends."""
    data, at, found = file.read_bytes(), 0, []
    while at < len(data):
        at += journal.HEAD.size + journal.HEAD.unpack(data[at : at + journal.HEAD.size])[1]
        found.append(at)
    assert at == len(data)
    return found


def test_a_large_state_is_not_rewritten_each_round(clock: Clock, tmp_path) -> None:
    strategy = server(tmp_path, limits=fp.server.Limits(checkpoint_every=4))
    written, journals = [], []
    for _ in range(10):
        strategy.start(world(clock), model(), num_rounds=1)
        written.append(read_archive(tmp_path / "state.npz")[1]["session"]["round"])
        journals.append((tmp_path / "journal").exists())
    assert written == [0, 0, 0, 4, 4, 4, 4, 8, 8, 8]
    assert [round for round, there in enumerate(journals, 1) if not there] == [4, 8]


def test_a_journal_that_has_outgrown_the_state_is_folded(clock: Clock, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(memory, "LARGE", 0)
    strategy = server(tmp_path, limits=fp.server.Limits(checkpoint_every=1000))
    strategy.start(world(clock), model(), num_rounds=30)
    state, journal = tmp_path / "state.npz", tmp_path / "journal"
    assert not journal.exists() or journal.stat().st_size <= state.stat().st_size
    assert server(tmp_path).round == 30


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_torn_end_costs_the_round_that_was_being_written(past, clock: Clock, tmp_path, data) -> None:
    folder, after = past
    stops = ends(folder / "journal")
    cut = data.draw(st.integers(0, stops[-1]))
    lacking = min(stop - cut for stop in stops if stop >= cut)  # of the entry that is cut
    junk = b"" if 0 < lacking < journal.TAIL else data.draw(st.sampled_from([b"", bytes(100), b"abc"]))
    target = tmp_path / "torn"
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(folder, target)
    (target / "journal").write_bytes((folder / "journal").read_bytes()[:cut] + junk)
    whole = sum(stop <= cut for stop in stops)
    strategy = server(target)
    assert strategy.round == whole
    np.testing.assert_array_equal(weights(strategy), after[whole])
    assert (target / "journal").stat().st_size == cut + len(junk)  # nothing changes before the next round
    strategy.start(world(clock), model(), num_rounds=1)
    assert server(target).round == whole + 1
    torn = cut + len(junk) - ([0, *stops][whole])
    assert (target / "journal.torn").exists() == (torn > 0)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damage_before_the_end_is_refused_and_nothing_is_changed(past, tmp_path, data) -> None:
    folder, _ = past
    good = (folder / "journal").read_bytes()
    at = data.draw(st.integers(0, ends(folder / "journal")[-2] - 1))
    target = tmp_path / "damaged"
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(folder, target)
    bad = good[:at] + bytes([good[at] ^ data.draw(st.integers(1, 255))]) + good[at + 1 :]
    (target / "journal").write_bytes(bad)
    with pytest.raises(fp.StateError, match=r"damaged at byte .* the files are left as they are"):
        server(target)
    assert (target / "journal").read_bytes() == bad


def test_killed_between_the_checkpoint_and_the_end_of_the_journal(past, clock: Clock) -> None:
    folder, _ = past
    journal = (folder / "journal").read_bytes()
    strategy = server(folder, limits=fp.server.Limits(checkpoint_every=2))
    strategy.start(world(clock), model(), num_rounds=1)
    assert not (folder / "journal").exists()
    then = weights(strategy).copy()
    (folder / "journal").write_bytes(journal)  # rounds 1 to 6, which the checkpoint of round 7 has
    again = server(folder)
    assert again.round == 7
    np.testing.assert_array_equal(weights(again), then)


def test_a_journal_that_does_not_go_on_from_the_state_is_refused(past, tmp_path) -> None:
    folder, _ = past
    stops = ends(folder / "journal")
    whole = (folder / "journal").read_bytes()
    (folder / "journal").write_bytes(whole[stops[1] :])
    with pytest.raises(
        fp.StateError, match=r"the journal continues with round 3 after round 0\); the files are left as they are"
    ):
        server(folder)
    (folder / "state.npz").rename(folder / "moved")
    with pytest.raises(fp.StateError, match=r"the state.npz that this journal continues is missing"):
        server(folder)
    assert (folder / "journal").read_bytes() == whole[stops[1] :]


def test_two_servers_do_not_share_a_state(clock: Clock, tmp_path) -> None:
    first = server(tmp_path)

    def meanwhile(round, arrays):
        if round:
            second = server(tmp_path)  # to look is allowed
            assert second.round == round
            with pytest.raises(fp.StateError, match="another server is working with this state; wait until it ends"):
                second.start(world(clock), model(), num_rounds=1)

    first.start(world(clock), model(), num_rounds=2, evaluate_fn=meanwhile)
    late = server(tmp_path)
    first.start(world(clock), model(), num_rounds=3)
    late.start(world(clock), model(), num_rounds=1)  # made before the other went on
    assert late.round == 6


def test_a_full_disk_is_told_and_does_not_end_the_training(clock: Clock, tmp_path, monkeypatch, caplog) -> None:
    whole = server(tmp_path / "whole")
    whole.start(world(clock), model(), num_rounds=6)
    strategy, full, real = server(tmp_path / "kept"), [False], os.fsync

    def fsync(file):
        if full[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(file)

    monkeypatch.setattr(os, "fsync", fsync)

    def disk(round, arrays):
        full[0] = round >= 2  # from round 3 on

    strategy.start(world(clock), model(), num_rounds=4, evaluate_fn=disk)
    assert "round 3 could not be saved (No space left on device); training continues" in caplog.text
    assert server(tmp_path / "kept").round == 2
    full[0] = False
    strategy.start(world(clock), model(), num_rounds=1)
    assert server(tmp_path / "kept").round == 5
    strategy.start(world(clock), model(), num_rounds=1)
    np.testing.assert_array_equal(weights(server(tmp_path / "kept")), weights(whole))


def test_another_policy_cannot_replay_the_journal(past) -> None:
    folder, _ = past
    before = (folder / "journal").read_bytes()
    with pytest.raises(fp.StateError, match="holds the state of E3CS, but the policy is Uniform"):
        server(folder, policy=fp.Uniform(3))
    with pytest.raises(fp.StateError, match=r"was learned with E3CS\(.*but the policy is E3CS\(.*'quality'.*Start"):
        server(folder, policy=fp.E3CS(3, reward="quality"))
    assert (folder / "journal").read_bytes() == before


@pytest.mark.slow
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rounds=st.lists(st.tuples(st.sets(st.integers(0, 11), min_size=1), st.booleans()), min_size=1, max_size=8),
    every=st.integers(1, 5),
)
def test_restarts_change_nothing_whoever_comes_and_goes(tmp_path, clock: Clock, rounds, every) -> None:
    """The twin: a server that is never restarted and keeps nothing."""
    folder = tmp_path / "kept"
    shutil.rmtree(folder, ignore_errors=True)
    whole, strategy = server(None), server(folder, limits=fp.server.Limits(checkpoint_every=every))
    for there, restart in rounds:
        if restart:
            strategy = server(folder, limits=fp.server.Limits(checkpoint_every=every))
        for each in (whole, strategy):
            each.start(world(clock, there), model(), num_rounds=1)
        assert strategy.roster.names == whole.roster.names
        np.testing.assert_array_equal(weights(strategy), weights(whole))
        assert strategy.last.ids.tolist() == whole.last.ids.tolist()


@pytest.mark.parametrize("where", ["fsync", "keep", "learn"])
def test_interrupted_at_the_end_of_a_round_and_started_again(clock: Clock, tmp_path, monkeypatch, where) -> None:
    """Ctrl-C in a notebook: the process lives on, and so must the folder."""
    strategy = server(tmp_path)
    strategy.start(world(clock), model(), num_rounds=2)
    with monkeypatch.context() as patch:

        def stop(*args):
            raise KeyboardInterrupt

        if where == "fsync":
            patch.setattr(os, "fsync", stop)
        elif where == "keep":
            patch.setattr(strategy.session.memory, "keep", stop)
        else:
            patch.setattr(strategy.policy.__class__, "observe", stop)
        with pytest.raises(KeyboardInterrupt):
            strategy.start(world(clock), model(), num_rounds=1)
    strategy.start(world(clock), model(), num_rounds=2)
    again = server(tmp_path)
    assert again.round == strategy.round
    np.testing.assert_array_equal(weights(again), weights(strategy))


def test_numbers_that_look_like_the_mark_of_an_entry_do_no_harm(tmp_path) -> None:
    """Whatever a body holds, even a whole entry: a cut anywhere in the last one is a torn end, not damage."""
    book = journal.Journal(tmp_path / "journal")
    book.append(b"first")
    entry = (tmp_path / "journal").read_bytes()
    book.append(journal.MARK + b"second" + journal.MARK + entry + b"end")
    whole = (tmp_path / "journal").read_bytes()
    for cut in (1, 3, len(whole) - len(entry) - journal.HEAD.size, len(whole) - len(entry) - 8):
        (tmp_path / "journal").write_bytes(whole[:-cut])
        assert book.read() == [b"first"]
        assert book.torn


def test_a_file_in_place_of_the_folder_is_said(tmp_path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(
        fp.StateError, match=r"file: cannot be used as the folder of the state \(File exists\); choose another"
    ):
        server(tmp_path / "file")


def test_newcomers_of_another_width_change_nothing(clock: Clock) -> None:
    width = [2]

    def describe(names):
        return fp.Clients(np.ones(len(names)), features=np.ones((len(names), width[0])))

    strategy = server(None, policy=fp.FedGS(2, graph="features"), describe=describe)
    strategy.start(world(clock, range(3)), model(), num_rounds=1)
    width[0] = 3
    with pytest.raises(fp.ContractError, match="these clients have 2 columns of features and the others 3"):
        strategy.start(world(clock, range(4)), model(), num_rounds=1)
    assert len(strategy.roster.names) == len(strategy.roster.clients) == len(strategy.roster.state.counts)


def test_a_state_that_cannot_be_loaded_leaves_no_lock(clock: Clock, tmp_path) -> None:
    strategy = server(tmp_path)
    whole = server(tmp_path)
    whole.start(world(clock), model(), num_rounds=1)
    good = (tmp_path / "state.npz").read_bytes()
    (tmp_path / "state.npz").write_bytes(b"nonsense")
    with pytest.raises(fp.StateError, match="the files are left as they are"):
        strategy.start(world(clock), model(), num_rounds=1)
    (tmp_path / "state.npz").write_bytes(good)
    server(tmp_path).start(world(clock), model(), num_rounds=1)
    assert server(tmp_path).round == 2
