"""An asynchronous session that is killed at any write and between them: nothing is counted twice, nothing is lost."""

import random
from collections import Counter
from contextlib import contextmanager

import numpy as np
import pytest

import fedpick as fp
from disks import PowerCut
from fedpick import store
from fedpick.core.state import pack
from fedpick.server import journal, memory, models
from fedpick.server.records import RecordWriter
from zoo import some_slow

DONE, LATE, FAILED, SURPLUS = fp.Status
NAMES = [f"phone {k}" for k in range(9)]


class Killed(BaseException):
    """The end of the process."""


class Killer:
    """Ends the process at a write: before it, in the middle, after it; or between two."""

    def __init__(self, chance: random.Random, often: float) -> None:
        self.chance, self.often, self.kills = chance, often, 0

    def point(self) -> None:
        if self.chance.random() < self.often:
            self.kills += 1
            raise Killed

    @contextmanager
    def at_work(self):
        append, dump, flush = journal.Journal.append, memory.write_archive, RecordWriter.flush

        def torn(this, body):
            self.point()
            if self.chance.random() < self.often / 2:
                append(this, body)
                with this.path.open("r+b") as file:  # the last entry is not whole
                    file.truncate(this.path.stat().st_size - self.chance.randint(1, len(body) + 10))
                self.kills += 1
                raise Killed
            append(this, body)
            self.point()

        def around(call):
            def wrapped(*args):
                self.point()
                found = call(*args)
                self.point()
                return found

            return wrapped

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(journal.Journal, "append", torn)
            patch.setattr(memory, "write_archive", around(dump))
            patch.setattr(models, "write_archive", around(dump))
            patch.setattr(RecordWriter, "flush", around(flush))
            yield


def kill(session) -> None:
    """What the end of a process leaves: the files, without the locks; nothing is closed."""
    session.memory._lock.release()
    if session.storage.writer is not None:
        session.storage.writer.tables.close()


class Server:
    """Plays an asynchronous session, is killed, and starts again; clients remember what they were told."""

    def __init__(self, folder, seed: int, keeps: bool, often: float) -> None:
        self.folder, self.keeps = folder, keeps
        self.chance = random.Random(seed)
        self.killer = Killer(self.chance, often)
        self.saved: tuple[int, dict[int, float]] = (0, {})  # the user's own model: version, and weight by task
        self.sent: dict[int, tuple[str, int]] = {}  # tasks that clients have got
        self.accepted: set[int] = set()  # whose answer was DONE
        self.refused: set[int] = set()  # whose answer was not accepted
        self.unsure: set[int] = set()  # that was sent when the server was killed

    def new(self) -> fp.Session:
        session = fp.Session(
            fp.Guard(fp.E3CS(2)) if self.keeps else fp.Uniform(2),
            pace=fp.Buffered(concurrency=4, size=2, timeout=600, oldest=3),
            state=self.folder / "state",
            model=self.folder / "model" if self.keeps else None,
            records=self.folder / "records",
            limits=fp.server.Limits(checkpoint_every=4),
        )
        if not self.keeps:
            session.resume(self.saved[0])
        return session

    def run(self, commits: int) -> None:
        with self.killer.at_work():
            while True:
                session = self.new()
                try:
                    self.play(session, commits)
                except Killed:
                    kill(session)
                else:
                    return

    def model(self, session) -> dict[int, float]:
        """Which tasks are in the model, by what."""
        if not self.keeps:
            assert self.saved[0] == session.version
            return dict(self.saved[1])
        kept = session.model
        return {} if kept is None else dict(zip(kept["id"].tolist(), kept["weight"].tolist(), strict=True))

    def play(self, session, commits: int) -> None:
        session.open()
        model = self.model(session)
        known = {task.id for task in session.tasks}
        assert known.isdisjoint(model)
        for task in session.tasks:
            assert self.sent.setdefault(task.id, (task.name, task.version)) == (task.name, task.version)
        while session.version < commits:
            there = [name for name in NAMES if self.chance.random() < 0.9] or NAMES[:1]
            for task in session.ask(there):
                assert task.id not in self.sent  # ids are never used again
                assert task.version == session.version
                self.sent[task.id] = task.name, task.version
            for task in self.chance.sample(session.tasks, self.chance.randint(0, len(session.tasks))):
                self.answer(session, task)
            self.killer.point()
            if commit := session.commit():
                self.close(commit, model)
        session.close()

    def answer(self, session, task) -> None:
        if self.chance.random() < 0.15:
            session.failed(task.id, "as it happens")
            self.refused.add(task.id)
            return
        self.unsure.add(task.id)
        status = session.done(task.id, update=task.id, loss=0.5, seconds=1.0)
        assert task.id not in self.accepted or status == DONE  # again, after a kill before it was told
        assert status in (DONE, LATE)
        self.unsure.remove(task.id)
        (self.accepted if status == DONE else self.refused).add(task.id)

    def close(self, commit, model) -> None:
        parts = commit.parts()
        for task, update, weight in parts:
            assert update == task.id
            assert weight == pytest.approx((1 + commit.version - 1 - task.version) ** -0.5 / len(parts))
            assert task.id not in model
            model[task.id] = weight
        ids, weights = np.array(list(model)), np.array(list(model.values()))
        commit.model = {"id": ids, "weight": weights} if self.keeps else None
        self.killer.point()
        if not self.keeps:
            self.saved = commit.version, dict(model)
            self.killer.point()
        commit.close()


@pytest.mark.parametrize("keeps", [True, False], ids=["model kept", "own model"])
@pytest.mark.parametrize("seed", some_slow(range(12), 6))
def test_killed_at_any_write(seed: int, keeps: bool, tmp_path) -> None:
    server = Server(tmp_path, seed, keeps, often=0.02)
    server.run(40)
    assert server.killer.kills > 3
    check(server)


def check(server: Server) -> None:
    session = server.new()
    model, flying = server.model(session), {task.id for task in session.tasks}
    rounds = store.read_rounds(server.folder / "records").to_pandas()
    rows = store.read_selections(server.folder / "records").to_pandas()
    assert rounds["round"].tolist() == list(range(1, session.version + 1))  # no commit is lost, none is there twice
    assert max(Counter(rows["task"]).values()) == 1
    done = rows[rows["status"] == "DONE"]
    assert set(done["task"]) == set(model)
    assert (done["weight"] / 2.0).tolist() == pytest.approx([model[id] for id in done["task"]])
    assert (done["staleness"] == done["round"] - 1 - done["sent"]).all()
    late = set(rows[rows["status"] == "LATE"]["task"])
    assert server.accepted <= set(model) | late | waiting(session)  # each is used once, or LATE once
    assert set(server.sent) >= set(rows["task"])
    assert set(server.sent) <= set(rows["task"]) | flying | waiting(session) | server.refused
    if not server.keeps:  # the policy counts of what it was told: of all but the lost answers
        told = rows[~((rows["status"] == "LATE") & rows["task"].isin(server.accepted))]
        sure = told[~((told["status"] == "LATE") & told["task"].isin(server.unsure))]
        for number, count in zip(session.roster.numbers, session.roster.state.counts, strict=True):
            assert (sure["client"] == number).sum() <= count <= (told["client"] == number).sum()
    session.close()


def waiting(session) -> set[int]:
    """Tasks that have ended since the last commit."""
    return {each.task.id for each in session.stream.stream.ended}


def test_the_state_after_a_kill_is_that_of_before(tmp_path) -> None:
    server = Server(tmp_path, 0, True, often=0.0)
    server.run(9)
    session = server.new()
    for _ in range(3):
        for task in session.ask(NAMES):
            session.done(task.id, update=task.id, loss=0.5)
        while commit := session.commit():
            commit.close()
    flying = session.ask(NAMES)
    kill(session)
    again = server.new()
    assert again.version == session.version
    for name, values in pack(session.roster.state).items():
        np.testing.assert_array_equal(pack(again.roster.state)[name], values, err_msg=name)
    assert again.tasks == session.tasks
    assert [task.id for task in flying] == [task.id for task in again.tasks]
    one, two = session.stream.stream, again.stream.stream
    assert (one.flying, one.issued, one.asked, one.moved_at) == (two.flying, two.issued, two.asked, two.moved_at)
    assert session.stream.asks == again.stream.asks


def own(folder, **pace) -> fp.Session:
    pace = fp.Buffered(**{"concurrency": 4, "size": 2, "timeout": 600, **pace})
    return fp.Session(fp.Uniform(2), pace=pace, state=folder / "state", records=folder / "records")


def handed_out(folder) -> fp.Session:
    """A session that was killed when its second commit was handed out and not closed."""
    session = own(folder)
    for version in (1, 2):
        for task in session.ask(NAMES)[:2]:
            session.done(task.id, update=1.0)
        commit = session.commit()
        if version == 1:
            commit.close()
    kill(session)
    return session


def test_without_the_version_of_the_model_a_commit_that_was_handed_out_is_neither_lost_nor_used(tmp_path) -> None:
    handed_out(tmp_path)
    session = own(tmp_path)
    calls = [lambda: session.ask(NAMES), lambda: session.done(0), session.commit, lambda: session.retire(NAMES)]
    for call in calls:
        with pytest.raises(fp.ContractError, match=r"session.resume\(version\) which version your model has: 1 or 2"):
            call()
    with pytest.raises(fp.StateError, match="the model has version 3, but the state continues after version 1 or 2"):
        session.resume(3)
    session.resume(2)
    assert (session.version, session.roster.state.counts.sum()) == (2, 4)
    session.ask(NAMES)
    with pytest.raises(fp.StateError, match="version 1, but the state continues after version 2"):
        session.resume(1)
    session.close()
    assert own(tmp_path).version == 2
    assert store.read_selections(tmp_path / "records").to_pandas()["status"].tolist() == ["DONE"] * 4


def test_with_the_model_of_before_it_has_not_taken_place(tmp_path) -> None:
    handed_out(tmp_path)
    session = own(tmp_path)
    session.open()
    session.resume(1)
    assert (session.version, session.roster.state.counts.sum(), len(session.tasks)) == (1, 2, 2)
    for task in session.tasks:
        assert session.done(task.id, update=1.0) == DONE
    commit = session.commit()
    for task, _, weight in commit.parts():
        assert weight == pytest.approx((1 + 1 - task.version) ** -0.5 / 2)
    record = commit.close()
    assert sorted(record.status.tolist()) == [DONE, DONE, LATE, LATE]
    assert session.roster.state.counts.sum() == 4  # it was not told of the two that were lost


def test_what_clients_have_counted_for_survives_without_the_lost_answers(tmp_path) -> None:
    session = own(tmp_path, correct=True)
    for _ in range(3):
        for task in session.ask(NAMES):
            session.done(task.id, update=1.0)
        while commit := session.commit():
            commit.close()
    rates = session.stream.stream.rates
    expected = dict(rates.sums), dict(rates.counts), dict(rates.shares), rates.answers
    session.done(session.ask(NAMES)[0].id, update=1.0)  # it is lost
    kill(session)
    found = own(tmp_path, correct=True).stream.stream.rates
    assert (found.sums, found.counts, found.shares, found.answers) == expected


def test_a_full_disk_ends_no_training(tmp_path, monkeypatch, caplog) -> None:
    session, full = own(tmp_path), [False]
    append, dump = journal.Journal.append, memory.write_archive

    def limited(call):
        def wrapped(*args):
            if full[0]:
                raise OSError(28, "No space left on device")
            return call(*args)

        return wrapped

    monkeypatch.setattr(journal.Journal, "append", limited(append))
    monkeypatch.setattr(memory, "write_archive", limited(dump))

    def play() -> None:
        for task in session.ask(NAMES)[:2]:
            session.done(task.id, update=1.0)
        session.commit().close()

    play()
    full[0] = True
    play()
    assert (session.version, session.rounds_saved) == (2, 1)
    assert "could not be saved (No space left on device)" in caplog.text
    full[0] = False
    session.ask(NAMES)
    flying = session.tasks
    assert session.rounds_saved == 2
    kill(session)
    again = own(tmp_path)
    again.resume(2)
    assert (again.version, again.tasks) == (2, flying)


def kept_session(folder) -> fp.Session:
    return fp.Session(
        fp.Guard(fp.E3CS(2)),
        pace=fp.Buffered(concurrency=4, size=2, timeout=600),
        state=folder / "state",
        model=folder / "model",
        records=folder / "records",
        limits=fp.server.Limits(checkpoint_every=3),
    )


def go_on(session, commits: int, models: dict[int, list[int]]) -> None:
    """Play up to so many commits, whose models are the tasks that they are made of."""
    kept = session.model
    model = [] if kept is None else kept["tasks"].tolist()
    while session.version < commits:
        session.ask(NAMES)
        for task in session.tasks[:2]:
            session.done(task.id, update=task.id, loss=0.5)
        if commit := session.commit():
            model = model + [task.id for task, _, _ in commit.parts()]
            commit.model = {"tasks": np.array(model)}
            commit.close()
            models[session.version] = model


def cut_power(tmp_path, tries: int, step: int) -> int:
    moments: list[tuple] = []
    closed: dict[int, list[int]] = {}

    def moment(count: int) -> None:
        if count % step == 0:
            for attempt in range(tries):
                moments.append((tmp_path / f"cut-{count}-{attempt}", max(closed, default=0)))
                disk.survivor(moments[-1][0], random.Random(f"{count} {attempt}"))

    (tmp_path / "served").mkdir()
    disk = PowerCut(tmp_path / "served", moment)
    with disk.here():
        session = kept_session(tmp_path / "served")
        go_on(session, 8, closed)
        session.close()
    for path, least in moments:
        session = kept_session(path)
        assert session.version >= least
        if session.version:
            assert session.model["tasks"].tolist() == closed[session.version]
        session.open()
        go_on(session, 10, {})
        model = session.model["tasks"].tolist()
        session.close()
        rows = store.read_selections(path / "records").to_pandas()
        assert rows[rows["status"] == "DONE"]["task"].tolist() == model
        assert not rows["task"].duplicated().any()
        assert store.read_rounds(path / "records").to_pandas()["round"].tolist() == list(range(1, 11))
    return len(moments)


def test_a_power_cut_costs_no_commit_that_was_closed(tmp_path) -> None:
    assert cut_power(tmp_path, tries=1, step=23) > 5


@pytest.mark.slow
def test_a_power_cut_at_every_moment_costs_no_commit_that_was_closed(tmp_path) -> None:
    assert cut_power(tmp_path, tries=1, step=1) > 100
