"""A policy that must remember: a session forgets none of these clients, and refuses newcomers instead."""

import itertools

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fedpick as fp
from fedpick import store
from fedpick.server import Lateness, Limits
from fedpick.store import Certificate


def play(session, there):
    with session.round(there) as r:
        for name in r.chosen:
            r.done(name, loss=0.5, seconds=1.0)
    return r.chosen


def closest(log) -> int | None:
    """The smallest distance between two rounds of one name in pairs (name, round)."""
    by_name = {}
    for name, round in log:
        by_name.setdefault(name, []).append(round)
    return min((b - a for rounds in by_name.values() for a, b in itertools.pairwise(sorted(rounds))), default=None)


def test_a_crowd_that_fills_the_server_makes_nobody_take_part_too_soon(tmp_path, caplog) -> None:
    """Newcomers in every round, more than may be enrolled: the oldest were forgotten, and chosen again at once."""
    session = fp.Session(fp.MinSeparation(fp.Uniform(2), 20), records=tmp_path / "run", limits=Limits(most_clients=10))
    log = []
    for t in range(1, 31):
        there = ["ada", "bob"] if t % 3 == 1 else [f"n{t}-{k}" for k in range(6)]
        log += [(name, t) for name in play(session, there)]
    session.close()
    assert [t for name, t in log if name == "ada"] == [1, 22]
    assert closest(log) >= 20
    assert len(session.names) == 10
    assert "refused 4 newcomers: the policy must remember the 10 clients that are enrolled; raise most" in caplog.text


def test_nobody_is_forgotten_before_the_distance_has_passed() -> None:
    """By default a client that was away for 1,000 rounds is forgotten, too soon for a distance of 2,500."""
    session = fp.Session(fp.MinSeparation(fp.Uniform(1), 100), limits=Limits(forget_after=40))
    log = []
    for t in range(1, 230):
        there = ["ada", "bob"] if t in (1, 44, 88, 106, 220) else ["bob"]
        log += [(name, t) for name in play(session, there)]
    assert {t for name, t in log if name == "ada"} <= {1, 106, 220}
    assert closest(log) >= 100


def test_when_the_distance_has_passed_there_is_room_again() -> None:
    session = fp.Session(fp.MinSeparation(fp.Uniform(2), 5), limits=Limits(most_clients=4))
    play(session, ["a", "b", "c", "d"])
    for t in range(2, 12):
        play(session, ["a", f"new-{t}"])
    assert len(session.names) <= 4
    assert any(name.startswith("new") for name in session.names)


def test_with_a_bound_on_how_often_nobody_is_ever_forgotten() -> None:
    limits = Limits(forget_after=1, most_clients=6)
    session = fp.Session(fp.MinSeparation(fp.Uniform(3), 1, at_most=2), limits=limits)
    log = []
    for t in range(1, 41):
        log += play(session, [f"c{(t + k) % 9}" for k in range(5)])
    assert max(log.count(name) for name in set(log)) == 2
    assert len(log) == 2 * 6
    assert len(session.names) == 6


def test_policies_that_need_not_remember_are_served_as_before() -> None:
    session = fp.Session(fp.MinSeparation(fp.Uniform(3), 1), limits=Limits(most_clients=4))
    for t in range(1, 6):
        assert len(play(session, [f"n{t}-{k}" for k in range(6)])) == 3


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 2**20),
    rounds=st.integers(1, 8),
    at_most=st.sampled_from([None, 1, 3]),
    after=st.sampled_from([None, 1, 3]),
    most=st.integers(1, 14),
    late=st.integers(0, 4),
)
def test_uses_by_name_keep_the_bounds_whoever_comes_and_goes(
    tmp_path_factory, seed, rounds, at_most, after, most, late
) -> None:
    """Clients come, go and come back, answer late or never; kills in between; what is used is counted by name."""
    folder, rng = tmp_path_factory.mktemp("served"), np.random.default_rng(seed)

    def server():
        return fp.Session(
            fp.OverSelect(fp.MinSeparation(fp.Uniform(2), rounds, at_most), 1.5),
            state=folder / "state",
            records=folder / "run",
            limits=Limits(after, most, checkpoint_every=3),
            late=Lateness(late, beta=0.0),
        )

    session, used, owed = server(), [], []
    for t in range(1, 26):
        if late:
            for name, round in [each for each in owed if rng.random() < 0.4]:
                session.keep(name, [1.0], round=round)
        with session.round([f"c{k}" for k in rng.integers(0, 12, 6)]) as r:
            for name in r.chosen:
                if rng.random() < 0.6:
                    r.done(name, loss=0.5, update=[1.0])
                else:
                    owed.append((name, t))
            used += [(part.name, t) for part in r.parts()]
        if rng.random() < 0.1:
            session.memory.unlock()  # as at the end of the process; updates on their way are lost
            session.storage.writer.tables.close()
            session = server()
    session.close()
    assert (closest(used) or rounds) >= rounds
    if at_most is not None:
        assert max(sum(name == each for each, _ in used) for name, _ in used or [("", 0)]) <= at_most
    names = store.read_clients(folder / "run")
    if len(set(names)) < len(names):  # somebody was forgotten, when enough rounds had passed, and came back
        assert at_most is None
        return
    made = Certificate.of(folder / "run")
    assert made.separation == closest(used)
    assert made.holds(rounds, at_most)


def test_the_distance_begins_when_an_update_can_no_longer_be_used() -> None:
    session = fp.Session(fp.MinSeparation(fp.Uniform(1), 4), late=Lateness(5, beta=0.0))
    there, used = ["ada"], []
    for t in range(1, 16):
        if t == 5:
            session.keep("ada", [1.0], round=1)
        with session.round(there) as r:
            if t > 1:
                for name in r.chosen:
                    r.done(name, loss=0.5, update=[1.0])
            used += [(part.name, t) for part in r.parts()]
    assert used == [("ada", 5), ("ada", 9), ("ada", 13)]


def test_a_client_that_must_be_remembered_is_not_retired() -> None:
    session = fp.Session(fp.MinSeparation(fp.Uniform(2), 3))
    play(session, ["ada", "bob"])
    play(session, ["bob"])
    says = (
        "Session: the policy must remember 'ada' for 2 rounds after it was there; leave it out of `available` instead"
    )
    with pytest.raises(fp.ContractError, match=says):
        session.retire(["ada"])
    assert session.names == ["ada", "bob"]
    play(session, ["bob"])
    with pytest.raises(fp.ContractError, match="must remember 'bob'"):
        session.retire(["ada", "bob"])
    session.retire(["ada"])
    assert session.names == ["bob"]


def test_the_late_update_of_a_client_that_left_is_not_used() -> None:
    """The records could not say whose it is."""
    session = fp.Session(fp.Uniform(2), late=Lateness(5, beta=0.0))
    with session.round(["ada", "bob"]) as r:
        r.done("bob", loss=0.5, update=[1.0])
    assert session.keep("ada", [1.0], round=1) == fp.Status.LATE
    session.retire(["ada"])
    with session.round(["bob"]) as r:
        assert r.parts() == []
    with session.round(["ada", "bob"]):
        pass
    session.retire(["ada"])
    assert session.keep("ada", [1.0], round=3) is None


def test_a_state_that_was_lost_shows_in_the_records(tmp_path) -> None:
    """Played without records until the rounds fit together again: the numbers of rounds have no gap."""
    policy, names = fp.MinSeparation(fp.Uniform(2), 3), [f"c{k}" for k in range(8)]
    with fp.Session(policy, state=tmp_path / "one", records=tmp_path / "run") as session:
        for _ in range(4):
            play(session, names)
    with fp.Session(policy, state=tmp_path / "one", records=tmp_path / "run") as session:  # opened and closed
        play(session, names)
    assert Certificate.of(tmp_path / "run").holds(3)
    with fp.Session(policy, state=tmp_path / "other") as session:
        for _ in range(5):
            play(session, names)
        with pytest.raises(fp.StoreError, match="holds rounds up to 5, but this server has played 0"):
            fp.Session(policy, state=tmp_path / "third", records=tmp_path / "run").open()
    with fp.Session(policy, state=tmp_path / "other", records=tmp_path / "run") as session:
        play(session, names)
    with pytest.raises(fp.CheckError, match="no guarantee: the server's state was lost or replaced"):
        Certificate.of(tmp_path / "run")


def test_a_server_that_ended_before_its_first_round_may_begin_anew(tmp_path) -> None:
    for _ in range(2):
        with fp.Session(fp.Uniform(2), state=tmp_path / "state", records=tmp_path / "run"):
            pass
    with fp.Session(fp.Uniform(2), state=tmp_path / "state", records=tmp_path / "run") as session:
        play(session, ["a", "b"])
    assert Certificate.of(tmp_path / "run").most == 1
