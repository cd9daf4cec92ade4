"""Clients that do not come back: forgotten after a while, the same after a kill, and every row in its place."""

import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fedpick as fp
from fedpick import store
from fedpick.core.state import pack

FAILED = fp.Status.FAILED


def play(session, there) -> None:
    with session.round(there) as r:
        for name in r.chosen:
            r.done(name, loss=0.5, seconds=1.0)


def same(one, other) -> None:
    assert (one.round_number, one.names) == (other.round_number, other.names)
    assert (one.roster.numbers, one.roster.last) == (other.roster.numbers, other.roster.last)
    for name, value in pack(other.roster.state).items():
        np.testing.assert_array_equal(pack(one.roster.state)[name], value, err_msg=name)


def kill(session) -> None:
    """What the end of a process leaves: the files, without the lock; nothing is closed."""
    session.memory._lock.release()


def churn(session, rounds, rng, fresh=3, there=9):
    """Rounds in each of which some of those there are replaced by newcomers, now and then by one that was there."""
    crowd, ever = [f"first-{k}" for k in range(there)], [f"first-{k}" for k in range(there)]
    for number in range(rounds):
        made = [f"n{session.round_number}-{number}-{k}" for k in range(fresh)]
        ever += made
        back = [str(rng.choice(ever))]
        crowd = list(dict.fromkeys([*crowd[fresh + 1 :], *made, *back]))[-there:]
        features = {name: (1 + sum(map(ord, name)), [len(name), ord(name[-1]), ord(name[1])]) for name in crowd}
        play_all(session, features)


def play_all(session, there):
    with session.round(there, probe=lambda names, batch: [sum(map(ord, name)) % 7 for name in names]) as r:
        for name in r.chosen:
            if sum(map(ord, name)) % 5 == 0:
                r.failed(name)
            else:
                r.done(name, loss=sum(map(ord, name)) % 11 / 10, seconds=1.0 + sum(map(ord, name)) % 4)


def contexts(round, names, idle):
    return np.column_stack([np.ones(len(names)), idle, [sum(map(ord, name)) % 3 for name in names]])


FORGETTING = [
    fp.Uniform(3),
    fp.SizeWeighted(3),
    fp.PowerOfChoice(3, 6),
    fp.PowerOfChoice(3, 6, variant="rpow-d"),
    fp.ActiveFL(3),
    fp.E3CS(3, quota=0.3),
    fp.CSUCB(3, variant="cs-ucb-q"),
    fp.BSFL(3),
    fp.RBCSF(3),
    fp.FedGS(3),
    fp.OverSelect(fp.E3CS(3), 1.5),
    fp.Guard(fp.BSFL(3), window=2),
]


@pytest.mark.parametrize("policy", FORGETTING, ids=lambda policy: type(policy).__name__)
def test_who_was_forgotten_stays_forgotten_after_a_kill(policy, tmp_path) -> None:
    """Killed and restarted every other round, a server goes on exactly as one that never ended."""
    context = contexts if "context" in fp.traits(policy).needs else None
    options = {"limits": fp.server.Limits(2, 14, checkpoint_every=5), "context": context}
    whole = fp.Session(policy, **options)
    churn(whole, 13, np.random.default_rng(1))
    assert whole.roster.issued > 2 * len(whole.names)
    rng, killed = np.random.default_rng(1), None

    class Restarted:  # what `churn` plays with: killed after each round
        round_number = 0

        def round(self, *args, **kwargs):
            nonlocal killed
            if killed is None or killed.round_number % 2:
                if killed is not None:
                    kill(killed)
                killed = fp.Session(policy, state=tmp_path, **options)
            return killed.round(*args, **kwargs)

    numbers = Restarted()
    type(numbers).round_number = property(lambda self: 0 if killed is None else killed.round_number)
    churn(numbers, 13, rng)
    same(killed, whole)
    np.testing.assert_array_equal(killed.roster.seen, whole.roster.seen)
    kill(killed)


class Tags:
    """Chooses at random, and keeps the size that each client was enrolled with, which must stay with its client."""

    @dataclass
    class State:
        tag: np.ndarray
        counts: np.ndarray

    cohort_size = 3

    def init(self, clients):
        return self.State(clients.sizes.copy(), np.zeros(len(clients), dtype=np.int64))

    def select(self, state, view, rng):
        return fp.Choice(np.sort(rng.choice(np.flatnonzero(view.available), 3, replace=False)))

    def observe(self, state, view, choice, outcome):
        state.counts[choice.ids] += 1
        return self.State(state.tag, state.counts)


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32 - 1), after=st.integers(1, 6), most=st.integers(1, 30))
def test_rows_stay_with_their_clients_and_nobody_that_is_there_is_forgotten(seed, after, most) -> None:
    session, rng, chosen, sizes = (
        fp.Session(Tags(), limits=fp.server.Limits(after, most)),
        np.random.default_rng(seed),
        {},
        {},
    )
    for number in range(1, 25):
        there = {f"c{k}": float(k + 1) for k in rng.integers(0, 40, 12)}
        sizes |= there
        before = set(session.names)
        with session.round(there) as r:
            pass
        forgotten = before - set(session.names)
        for name in forgotten:
            chosen.pop(name, None)
        for name in r.chosen:
            chosen[name] = chosen.get(name, 0) + 1
        assert set(there) <= set(session.names)
        assert len(session.names) <= max(most, len(there))
        state = session.roster.state
        for name, at in session.roster.index.items():
            assert state.tag[at] == session.roster.clients.sizes[at] == sizes[name]
            assert state.counts[at] == chosen.get(name, 0)
            assert name in there or session.roster.seen[at] < number


def test_it_says_whom_it_forgets_and_by_default_forgets_only_after_long(tmp_path, caplog) -> None:
    session = fp.Session(fp.Uniform(1), records=tmp_path / "run")
    play(session, ["a", "b", "c"])
    for _ in range(8):
        play(session, ["a", "b"])
    assert session.names == ["a", "b", "c"]
    session.enrolment.limits = fp.server.Limits(forget_after=5)
    play(session, ["a", "b"])
    assert session.names == ["a", "b"]
    assert "forgot 1 clients that were away for 9 rounds or more, 2 are left" in caplog.text
    assert session.last.metrics == {"forgotten": 1.0}
    play(session, ["a", "b", "c"])
    assert session.roster.numbers == [0, 1, 3]  # a newcomer
    session.close()
    assert store.read_clients(tmp_path / "run") == ["a", "b", "c", "c"]


@pytest.mark.parametrize(("forget_after", "left"), [(None, ["a", "b", "c"]), (1000, ["a", "b"])])
def test_without_a_number_of_rounds_nobody_is_forgotten(forget_after, left) -> None:
    session = fp.Session(fp.Uniform(1), limits=fp.server.Limits(forget_after=forget_after))
    play(session, ["a", "b", "c"])
    session.roster.seen -= 1_000_000  # as after so many rounds
    for _ in range(2):
        play(session, ["a", "b"])
    assert session.names == left
    assert "forgotten" not in session.last.metrics


def test_a_policy_that_keeps_pairs_has_room_for_fewer(monkeypatch) -> None:
    monkeypatch.setattr("fedpick.server.roster.MOST_PAIRED", 40)
    rng = np.random.default_rng(0)
    for policy, enrolled in ((fp.FedGS(2), 50 - 10 - 2), (fp.FedGS(2, alpha=0.0), 50)):
        session = fp.Session(policy)
        for name in "cd":
            play(session, {f"{name}{k}": (1, rng.random(3)) for k in range(25)})
        assert len(session.names) == enrolled


@pytest.mark.parametrize("setting", ["forget_after", "most_clients"])
def test_numbers_of_clients_to_keep_are_checked(setting) -> None:
    with pytest.raises(fp.SettingError, match=rf"Session: limits\.{setting} = 0, but must be a whole number >= 1"):
        fp.Session(fp.Uniform(1), limits=fp.server.Limits(**{setting: 0}))


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf, 1e300, 10**400])
def test_a_loss_that_cannot_be_one_is_a_failure(loss) -> None:
    session = fp.Session(fp.Uniform(1))
    with session.round(["a"]) as r:
        assert r.done("a", loss=loss) == FAILED
    assert r.record.status.tolist() == [FAILED]
