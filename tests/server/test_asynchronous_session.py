"""An asynchronous `fp.Session` against the slow reference, and what clients and servers may do to it."""

import math
import queue
import threading
from collections import Counter

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from served import QUARTER, Clock, Player

import fedpick as fp
from asynchronous import Script, play
from asynchronous_scripts import LOOKED, scripts
from fedpick import store
from fedpick.engine.asking import check_stream
from zoo import zoo

DONE, LATE, FAILED, SURPLUS = fp.Status


def agree(script: Script, commits: int) -> None:
    """Compare the session with the reference."""
    # The server looks in each quarter; so does the reference, in which asking happens if something changed.
    script.changes = [QUARTER * n for n in range(1, int(script.until / QUARTER) + 1)]
    expected = play(script, commits)
    with Clock() as clock:
        player = Player(script, clock)
        found = player.play(commits)
    assert len(found.commits) == len(expected.commits)
    for mine, theirs in zip(found.commits, expected.commits, strict=True):
        assert (mine.version, mine.time, mine.asked, mine.flying) == (
            theirs.version,
            theirs.time,
            theirs.asked,
            theirs.flying,
        )
        for one, other in zip(mine.ended, theirs.ended, strict=True):
            assert one.weight == pytest.approx(other.weight, rel=1e-12)
            assert vars(one) | {"weight": 0} == vars(other) | {"weight": 0}
        np.testing.assert_allclose(mine.model, theirs.model, rtol=1e-9, atol=1e-12)
    assert [(ask.time, ask.version, ask.wanted, ask.idle, ask.chosen) for ask in found.asks] == [
        (ask.time, ask.version, ask.wanted, ask.idle, ask.chosen) for ask in expected.asks
    ]
    end = expected.commits[-1].time if len(expected.commits) == commits else script.until  # then the reference stops
    assert [each for each in found.ignored if each[0] < end] == [each for each in expected.ignored if each[0] < end]
    counts = np.zeros(script.clients, dtype=int)
    for commit in expected.commits:
        for each in commit.ended:
            counts[each.client] += 1
    for client, count in zip(player.clients, player.session.roster.state.counts if player.clients else [], strict=True):
        assert count == counts[client]


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(scripts(LOOKED))
def test_sessions_agree_with_the_reference(script: Script) -> None:
    agree(script, 12)


@pytest.mark.slow
@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(scripts(LOOKED))
def test_many_sessions_agree_with_the_reference(script: Script) -> None:
    agree(script, 20)


NAMES = [f"phone {k}" for k in range(12)]


def asynchronous(policy=None, concurrency=4, size=2, timeout=60.0, **settings) -> fp.Session:
    pace = {name: settings.pop(name) for name in ("oldest", "refill", "every", "mixing", "correct") if name in settings}
    pace = fp.Buffered(concurrency=concurrency, size=size, timeout=timeout, **pace)
    return fp.Session(policy or fp.Uniform(2), pace=pace, **settings)


def refusal(make, *args, **settings) -> str:
    """The error's message; "" if there is none."""
    try:
        make(*args, **settings)
    except fp.FedpickError as error:
        return str(error)
    return ""


def test_each_policy_plays_or_is_refused_as_in_the_simulator() -> None:
    played, refused = set(), set()
    features = np.random.default_rng(0).random((12, 5)).round(3)
    there = {name: (100.0 + k, features[k]) for k, name in enumerate(NAMES)}
    pace = fp.Buffered(concurrency=4, size=2, timeout=60.0)
    what = {"context": lambda round, names, idle: np.ones((len(names), 3)), "value": lambda updates: {}}
    for name, policy in zoo(3).items():
        if why := refusal(check_stream, policy, pace):
            refused.add(type(policy).__name__)
            assert refusal(fp.Session, policy, pace=pace, **what) == why
            continue
        rng, session = np.random.default_rng(1), fp.Session(policy, pace=pace, **what)
        while session.version < 50:
            session.ask(there)
            flying = session.tasks
            assert flying, name
            for task in rng.permutation(len(flying))[: rng.integers(1, 5)].tolist():
                said = {"embedding": rng.random(4), "update": rng.random(6), "gain": 0.1, "update_norm": 1.0}
                said |= {f"sketch_{width}": rng.random(width) for width in (5, 32, 64)}
                session.done(flying[task].id, loss=rng.random(), seconds=rng.random(), reports=said)
            while commit := session.commit():
                commit.close()
        played.add(type(policy).__name__)
    assert {"E3CS", "Uniform", "FedGS", "HiCS", "Oort", "REFL", "F3AST", "Guard", "MinSeparation"} <= played
    assert {"OverSelect", "TiFL", "BSFL", "RBCSF", "CSUCB", "FedCor", "GreedyFed", "OptimalSampling"} <= refused


@pytest.mark.parametrize("every", [1, 100], ids=["checkpoint", "journal"])
def test_a_bound_moves_the_model_by_how_long_clients_took_also_after_a_restart(tmp_path, every: int) -> None:
    def new() -> fp.Session:
        pace = fp.Buffered(concurrency=2, size=None, bound=1, timeout=600.0)
        return fp.Session(fp.Uniform(2), pace=pace, state=tmp_path, limits=fp.server.Limits(checkpoint_every=every))

    with Clock() as clock:
        begun, session = clock.now, new()
        fast, slow = session.ask(["ada", "bob"])
        clock.now = begun + 4.0
        session.done(fast.id, update=[1.0])
        session.commit().close()  # whoever has not answered counts as the slowest so far: 4 s, over 1 + 1
        session.ask(["ada", "bob"])
        session.close()
        session = new()
        session.resume(1)
        session.ask([])
        clock.now = begun + 5.0
        assert session.done(slow.id, update=[1.0]) == DONE
        assert session.commit() is None  # ada works, and took 4 s
        clock.now = begun + 6.5
        record = session.commit().close()
        assert (record.clock, record.tasks[0].staleness) == (6.0, 1)
        session.close()


def test_only_the_first_answer_counts_and_nonsense_changes_nothing() -> None:
    session = asynchronous(size=3)
    one, two, three, four = session.ask(NAMES)
    assert session.done(one.id, update=[1.0], loss=0.5) == DONE
    assert session.done(one.id, update=[9.0], loss=0.5) is None
    assert session.failed(one.id) is None
    for id in (-1, 4, 10**30, True, 1.0, "0", None, [], float("nan")):
        assert session.done(id, update=[9.0]) is None
    assert session.done(two.id, update=[math.nan], loss=0.5) == FAILED
    assert session.done(three.id, update=[1.0], loss=math.inf) == FAILED
    assert session.failed(four.id, "broke\nthe line") == FAILED
    assert session.commit() is None
    assert session.tasks == []
    five, six = session.ask(NAMES)[:2]
    session.done(five.id, update=[2.0], loss="no number")
    session.done(six.id, update=[3.0], loss=None, seconds="x", reports=3, size="y")
    commit = session.commit()
    assert commit is None  # "no number" is an impossible loss
    session.done(session.tasks[0].id, update=[3.0])
    commit = session.commit()
    assert commit.parts() == [(one, [1.0], 1 / 3), (six, [3.0], 1 / 3), (commit.parts()[2].task, [3.0], 1 / 3)]
    assert commit.apply([1.0]) == pytest.approx([1.0 + 7 / 3])
    record = commit.close()
    assert Counter(record.status.tolist()) == {DONE: 3, FAILED: 4}
    assert (record.asked, record.flying, record.messages) == (8, 1, 8 + 7 + 11)
    assert commit.close() is record
    assert session.commit() is None


def test_who_does_not_answer_in_time_is_late_and_its_place_is_free() -> None:
    with Clock() as clock:
        session = asynchronous(timeout=60.0, size=1)
        tasks = session.ask(NAMES)
        clock.now += 60.0
        assert session.done(tasks[0].id, update=1.0) == DONE  # at the very end
        assert len(session.ask(NAMES)) == 0  # the model moves first
        session.commit().close()
        assert session.done(tasks[1].id, update=1.0) is None
        assert len(session.ask(NAMES)) == 4
        clock.now += 5.0
        session.done(session.tasks[0].id, update=1.0)
        record = session.commit().close()
    assert record.status.tolist() == [LATE, LATE, LATE, DONE]
    assert record.duration.tolist() == [60.0, 60.0, 60.0, 5.0]
    assert (record.clock, record.seconds) == (65.0, 5.0)


def test_a_deadline_is_the_timeout_where_there_is_none() -> None:
    assert fp.Session(fp.Uniform(1), pace=fp.Buffered(2), deadline=7.0).stream.pace.timeout == 7.0
    assert fp.Session(fp.Uniform(1), pace=fp.Buffered(2, timeout=3.0), deadline=7.0).stream.pace.timeout == 3.0


def test_answers_of_other_shapes_fail_once_the_model_is_known_and_change_nothing_before(caplog) -> None:
    session, model = asynchronous(size=2), {"w": np.zeros(3, np.float32), "n": np.int64(3)}
    one, two, three, four = session.ask(NAMES)
    session.done(one.id, update={"w": np.ones(3), "n": 1})
    session.done(two.id, update={"w": np.ones(4), "n": 1})
    commit = session.commit()
    moved = commit.apply(model, learning_rate=2.0)
    np.testing.assert_array_equal(moved["w"], np.ones(3, np.float32))
    assert moved["w"].dtype == np.float32
    assert moved["n"] == 4.0  # 3 + 2 * 1/2, not cut off
    assert f"the update of {two.name} has not the shapes of the others" in caplog.text
    commit.close()
    assert session.done(three.id, update={"w": np.ones(4), "n": 1}) == FAILED
    assert session.done(four.id, update="no array") == FAILED


def test_momentum_is_a_line_of_the_user_s_with_the_change() -> None:
    """Against the sums in plain Python, with answers of any staleness; the model can be a mapping of arrays."""
    session, rng = asynchronous(size=2, concurrency=3), np.random.default_rng(0)
    model, velocity = {"w": np.zeros(2)}, {"w": np.zeros(2)}
    twin, speed = [0.0, 0.0], [0.0, 0.0]
    stale = set()
    while session.version < 6:
        session.ask(NAMES)
        task = session.tasks[int(rng.integers(len(session.tasks)))]
        session.done(task.id, update={"w": rng.normal(size=2)}, loss=0.5)
        if commit := session.commit():
            parts = commit.parts()
            stale |= {session.version - task.version for task, _, _ in parts}
            for k in range(2):
                change = sum(weight * update["w"][k] for _, update, weight in parts)
                speed[k] = 0.9 * speed[k] + 0.5 * change
                twin[k] += speed[k]
            change = commit.change(model)
            velocity = {name: 0.9 * old + 0.5 * change[name] for name, old in velocity.items()}
            model = {name: old + velocity[name] for name, old in model.items()}
            commit.close()
            np.testing.assert_allclose(model["w"], twin, rtol=1e-12)
    assert len(stale) > 1


def test_fedasync_mixes_models() -> None:
    session = asynchronous(size=1, mixing="polynomial")
    one, two = session.ask(NAMES)[:2]
    session.done(one.id, update=[1.0, 3.0])
    commit = session.commit()
    model = commit.apply([0.0, 1.0])
    np.testing.assert_allclose(model, [0.6, 1 + 0.6 * 2.0])
    commit.close()
    session.done(two.id, update=[1.0, 3.0])
    commit = session.commit()
    np.testing.assert_allclose(
        commit.apply(model), np.array(model) + 0.6 / math.sqrt(2) * ([1.0, 3.0] - np.array(model))
    )
    with pytest.raises(fp.SettingError, match="alpha"):
        commit.apply(model, learning_rate=0.5)
    with pytest.raises(fp.ContractError, match="depends on the model"):
        commit.change()


def test_sizes_with_answers_count_beside_those_of_others() -> None:
    session = asynchronous(size=4, concurrency=4)
    tasks = session.ask(NAMES)
    for task, size in zip(tasks, (10, 30, 20, 1e15), strict=True):
        session.done(task.id, update=[1.0], size=size)
    weights = [4 * weight for _, _, weight in session.commit().parts()]
    # Each beside the mean of those so far: 10/10, 30/20, 20/20; the last one counts as 30 times the
    # (lower) median of all.
    assert weights == pytest.approx([1.0, 1.5, 1.0, 600 / ((10 + 30 + 20 + 600) / 4)])


def test_clients_that_leave_are_told_of_no_more_and_newcomers_join() -> None:
    session = asynchronous(size=2)
    one, two, three, _ = session.ask(NAMES[:4])
    session.done(one.id, update=[1.0])
    session.retire([one.name, two.name])
    assert session.done(two.id, update=[1.0]) is None
    assert [task.name for task in session.ask([*NAMES[4:6], one.name])]  # it comes back as a newcomer
    session.done(three.id, update=[1.0])
    commit = session.commit()
    assert [task.name for task, _, _ in commit.parts()] == [one.name, three.name]
    with pytest.raises(fp.ContractError, match=r"open; close\(\) it before you retire"):
        session.retire([three.name])
    with pytest.raises(fp.ContractError, match=r"open; close\(\) it before you ask"):
        session.ask(NAMES)
    commit.close()
    counts = dict(zip(session.names, session.roster.state.counts.tolist(), strict=True))
    assert counts[three.name] == 1
    assert sum(counts.values()) == 1


def test_min_separation_holds_while_answers_wait() -> None:
    with Clock() as clock:
        session = asynchronous(fp.MinSeparation(fp.Uniform(2), 3), size=3, concurrency=3)
        used: dict[str, int] = {}
        while session.version < 12:
            session.ask(NAMES)
            session.done(session.tasks[0].id, update=1.0)
            clock.now += 1.0
            if commit := session.commit():
                for task, _, _ in commit.parts():
                    assert commit.version - used.get(task.name, -9) >= 3
                    used[task.name] = commit.version
                commit.close()


def test_nobody_is_asked_who_is_away_or_not_eligible() -> None:
    session = asynchronous()
    assert session.ask([]) == []
    assert session.ask(NAMES, eligible=lambda name: False) == []
    assert [task.name for task in session.ask(NAMES[:3], eligible=lambda name: name == NAMES[1])] == [NAMES[1]]
    assert session.ask(NAMES[1:2]) == []  # it works
    session.skip(task.id for task in session.tasks)
    assert session.tasks == []
    [task] = session.ask(NAMES[1:2])
    assert session.give_up([task.id, 99]) == [task]
    assert session.done(task.id, update=1.0) is None
    [again] = session.ask(NAMES[1:2])
    assert again.id == 2
    session.done(again.id, update=1.0)
    [more] = session.ask(NAMES[1:2])
    session.done(more.id, update=1.0)
    record = session.commit().close()
    assert record.status.tolist() == [LATE, DONE, DONE]
    assert record.asked == 3
    assert session.roster.state.counts.tolist() == [2]  # it was not told that one was given up


def test_rounds_and_asynchronous_training_are_told_apart(tmp_path) -> None:
    session = asynchronous(state=tmp_path / "a")
    for call in (lambda: session.round(NAMES), lambda: session.keep("a", 1, round=1), lambda: session.free(NAMES)):
        with pytest.raises(fp.ContractError, match=r"for rounds.*ask\(\), done\(\) and commit\(\)"):
            call()
    session.ask(NAMES)
    session.close()
    rounds = fp.Session(fp.Uniform(2), state=tmp_path / "b")
    for call in (lambda: rounds.ask(NAMES), lambda: rounds.done(1), rounds.commit, lambda: rounds.resume(0)):
        with pytest.raises(fp.ContractError, match=r"asynchronous training.*call round\(\)"):
            call()
    with rounds.round(NAMES):
        pass
    rounds.close()
    with pytest.raises(fp.StateError, match=r"asynchronous training \(fp.Buffered\), and this one has rounds"):
        fp.Session(fp.Uniform(2), state=tmp_path / "a")
    with pytest.raises(
        fp.StateError, match=r"holds a session with rounds \(fp.Rounds\), and this one has asynchronous"
    ):
        asynchronous(state=tmp_path / "b")
    with pytest.raises(
        fp.SettingError, match=r"late = 2, but must be 0 beside fp.Buffered\(...\): set its oldest= instead"
    ):
        asynchronous(late=2)
    with pytest.raises(
        fp.SettingError, match=r"pace = 'buffered', but must be .* or fp.Buffered\(concurrency=30, size=10\)"
    ):
        fp.Session(fp.Uniform(2), pace="buffered")


def test_many_threads_answer_while_one_asks_and_commits(tmp_path) -> None:
    session = asynchronous(concurrency=20, size=5, state=tmp_path / "s", records=tmp_path / "r", metrics=0)
    names = [f"phone {k}" for k in range(60)]
    sent: queue.Queue = queue.Queue()
    accepted: list[int] = []
    over = threading.Event()

    def answer() -> None:
        while not over.is_set():
            try:
                task = sent.get(timeout=0.01)
            except queue.Empty:
                continue
            for _ in range(2):  # twice
                if session.done(task.id, update=np.ones(2), loss=0.5) == DONE:
                    accepted.append(task.id)

    threads = [threading.Thread(target=answer) for _ in range(6)]
    for thread in threads:
        thread.start()
    model, used = np.zeros(2), []
    while session.version < 30:
        for task in session.ask(names):
            sent.put(task)
        if commit := session.commit():
            used += [task.id for task, _, _ in commit.parts()]
            model = commit.apply(model)
            commit.close()
    text = session.metrics.text()
    over.set()
    for thread in threads:
        thread.join()
    session.measure({"accuracy": 0.5})
    session.close()
    assert "fedpick_version 30" in text
    assert "fedpick_tasks_in_flight " in text
    assert len(set(used)) == len(used) == 150
    assert len(set(accepted)) == len(accepted)
    assert set(used) <= set(accepted)
    rows = store.read_selections(tmp_path / "r").to_pandas()
    assert rows["task"].tolist() == used
    assert store.read_rounds(tmp_path / "r").to_pandas()["accuracy"].tolist()[-1] == 0.5


def test_reports_of_a_width_that_is_not_known_need_two_clients_also_if_each_answer_moves_the_model() -> None:
    session = asynchronous(fp.FedGS(2, graph="embedding"), size=1)
    tasks = session.ask(NAMES)
    told = []
    for task in tasks[:3]:
        session.done(task.id, update=1.0, reports={"embedding": [1.0, 2.0, 3.0]})
        commit = session.commit()
        told.append({name: values.tolist() for name, values in commit.move.reports.items()})
        commit.close()
    assert told == [{}, {"embedding": [[1.0, 2.0, 3.0]]}, {"embedding": [[1.0, 2.0, 3.0]]}]
