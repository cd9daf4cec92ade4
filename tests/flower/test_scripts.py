"""Scripts of events played by Flower, on a grid and a clock that do what the script says, and by a session.

tests/engine/test_engine_parity.py plays the same scripts in simulated runs and in sessions. The time of Flower moves to
the next answer, or to the next multiple of 1/32 s, and answers of the same time come one by one in the script's order.
"""

import math
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from fake_flower import FakeGrid, content, trains
from flwr.app import Array, ArrayRecord, Error
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp.strategy import FedAvg
from flwr.supercore.task_identity import TaskIdentity

import fedpick as fp
from fedpick.adapters import arrivals, quorum
from fedpick.flower import Selected
from fedpick.server.view import NotEnoughClientsError
from scripts import (
    NUMBERS,
    ROUNDS,
    SCRIPTS,
    SHARE,
    Heard,
    Listening,
    Script,
    check_same,
    number_of,
    options,
    play_session,
    server_clock,
    worth_of,
)
from zoo import some_slow


class ScriptedGrid(FakeGrid):
    """Nodes that do what the script says."""

    def __init__(self, clock: Any, script: Script) -> None:
        super().__init__(clock, {})
        self.script, self.strategy, self.current = script, None, set()
        self.more = False  # whether another answer is there already

    @property
    def number(self) -> int:
        return min(self.strategy.round + 1, ROUNDS)

    @property
    def there(self) -> list[int]:
        return [int(k) + 1 for k in np.flatnonzero(self.script.there[self.number - 1])]

    def get_node_ids(self) -> list[int]:
        return self.there

    def get_nodes(self) -> list[NodeInfo]:
        self.current, self.more = set(), False
        return [NodeInfo(node_id=node) for node in self.there]

    def push_messages(self, messages: Any) -> Any:
        sent = list(messages)
        self.nodes = {message.metadata.dst_node_id: self.behave for message in sent}
        names = super().push_messages(sent)
        if any(message.metadata.message_type == "train" for message in sent):
            self.current = set(names)
            self.lots = dict(zip(names, (self.script.lots(self.number)[self.at(m)] for m in sent), strict=True))
        return names

    @staticmethod
    def at(message: Any) -> int:
        return message.metadata.dst_node_id - 1

    def behave(self, message: Any) -> tuple[float, Any]:
        t, k, script = self.number, self.at(message), self.script
        said = script.answer(t, k)
        if message.metadata.message_type == "evaluate.probe":
            return SHARE * said.seconds, content(loss=float(script.probes(t)[k]))
        if said.silent:
            return said.seconds, None if script.deadline is not None else Error(0, "silent")
        sent = message.content.array_records["arrays"]["w"].numpy()
        trained = sent + np.where(said.broken, np.nan, said.update)
        valued = script.about.valued
        reports = {name: values[t - 1, k].tolist() for name, values in script.reports.items() if name not in valued}
        more = {"num_examples": script.clients.sizes[k], "train_loss": said.loss, "seconds": said.seconds}
        return said.seconds, content(ArrayRecord({"w": Array(trained)}), **more, **reports)

    def pull_messages(self, message_ids: Any) -> Any:
        """Those of the present round one by one, others all together."""
        ids, self.more = set(message_ids), False
        if not ids <= self.current:
            return super().pull_messages(ids)
        due = [name for name in ids if name in self.waiting and self.waiting[name][0] <= self.clock.now]
        due = [name for name in due if self.waiting[name][3] is not None]
        due.sort(key=lambda name: (self.waiting[name][0], self.lots[name]))
        self.more = len(due) > 1
        return super().pull_messages(due[:1] or ids)

    def monotonic(self) -> float:
        """The time for who polls; the deadline is not over while answers of that time are there."""
        return self.clock.now - 2.0**-20 * self.more

    def sleep(self, seconds: float) -> None:
        now = self.clock.now
        events = [due for due, _, _, back in self.waiting.values() if back is not None and due > now]
        later = math.ceil((now + seconds) * 32) / 32
        self.clock.now = now if self.more else min([later, *events])


@contextmanager
def scripted_grid(script: Script):
    with server_clock(quorum) as clock, pytest.MonkeyPatch.context() as patch:
        grid = ScriptedGrid(clock, script)
        patch.setattr(arrivals, "monotonic", grid.monotonic)
        for module in (arrivals, quorum):
            patch.setattr(module, "sleep", grid.sleep)
        for name in ("run_id", "task_id", "node_id"):
            patch.setattr(TaskIdentity, f"_{name}", 1)
        yield grid


def play_flower(script: Script) -> tuple[list[Heard], Listening]:
    """The script as Flower plays it, with FedAvg inside."""
    policy, valued = Listening(script.policy, script.seed), next(iter(script.about.valued), None)
    heard: list[Heard] = []

    def described(names: list[str]) -> fp.Clients:
        return script.clients.take([number_of(name) for name in names])

    with scripted_grid(script) as grid:
        strategy = Selected(
            FedAvg(fraction_evaluate=0.0),
            policy,
            wait=0.0,
            describe=described,
            value=lambda arrays: 0.0,
            durations="reported",
            **options(script),
        )
        grid.strategy, session = strategy, strategy.session
        session.reports._value = lambda updates: {name: worth_of(script, session, valued, name) for name in updates}
        before = np.zeros(NUMBERS)

        def note(round: int, arrays: ArrayRecord) -> None:
            nonlocal before
            after = arrays["w"].numpy()
            if round:
                heard.append(Heard.of(strategy.last, after - before, session.roster.state))
            before = after

        start = ArrayRecord({"w": Array(before)})
        if script.there.any(axis=1).all():
            strategy.start(grid, start, num_rounds=ROUNDS, evaluate_fn=note)
        else:
            with pytest.raises(NotEnoughClientsError):
                strategy.start(grid, start, num_rounds=ROUNDS, evaluate_fn=note)
    return heard, policy


def errors(script: Script, heard: list[Heard]) -> list[int]:
    """Messages of silent clients whose failure is noticed: Flower sends an error."""
    if script.deadline is not None:
        return [0] * len(heard)
    order = np.array(list(dict.fromkeys(int(k) for row in script.there for k in np.flatnonzero(row))))  # of enrolment
    return [
        int(np.count_nonzero(script.silent[t, order[each.ids]] & (each.status == fp.Status.FAILED)))
        for t, each in enumerate(heard)
    ]


@pytest.mark.parametrize("first", some_slow(range(0, SCRIPTS, 10), quick=10))
def test_flower_and_a_session_agree(first: int) -> None:
    for number in range(first, first + 10):
        script = Script.draw(number)
        if "norms" in script.about.needs:
            continue
        try:
            served, told = play_session(script)
            flower, heard = play_flower(script)
            check_same(served, flower, "session and Flower", errors(script, served))
            for one, other in zip(told.views, heard.views, strict=True):
                for name in ("available", "there", "busy", "held", "context"):
                    np.testing.assert_array_equal(getattr(one, name), getattr(other, name), name)
        except Exception as error:
            error.add_note(f"script {number}: {script.policy!r}, {script.pace!r}")
            raise


@pytest.mark.parametrize("first", some_slow(range(0, SCRIPTS // 10, 10), quick=10))
def test_newcomers_are_the_same_in_flower_and_in_a_session(first: int) -> None:
    """Half of the clients are seen for the first time in a later round; a simulated run has no newcomers."""
    grown = 0
    for number in range(first, first + 10):
        script = Script.draw(number, newcomers=True)
        if "norms" in script.about.needs:
            continue
        served, told = play_session(script)
        flower, _ = play_flower(script)
        check_same(served, flower, f"script {number}", errors(script, served))
        grown += len(told.views[-1].there) > len(told.views[0].there)
    assert grown >= 3


def test_a_reply_that_turns_out_to_be_unusable_does_not_end_the_wait_for_others(clock):
    """The round closed with too few updates: a loss of 1e13, or arrays unlike the others', counted as one of them."""

    def odd(message):
        return 2.0, content(ArrayRecord({"w": Array(np.ones(2)), "v": Array(np.ones(2))}), train_loss=0.5)

    for bad in (trains(2.0, train_loss=1e13), trains(2.0, train_loss=math.nan), odd):
        nodes = {1: trains(1.0), 2: bad, 3: trains(3.0), 4: trains(9.0)}
        strategy = Selected(FedAvg(fraction_evaluate=0.0), fp.OverSelect(fp.Uniform(2), 2.0), deadline=20.0)
        strategy.start(FakeGrid(clock, nodes), ArrayRecord({"w": Array(np.zeros(2))}), num_rounds=1)
        found = dict(zip(strategy.last.ids.tolist(), strategy.last.status.tolist(), strict=True))
        done, failed, surplus = fp.Status.DONE, fp.Status.FAILED, fp.Status.SURPLUS
        assert found == {0: done, 1: failed, 2: done, 3: surplus}
        assert strategy.last.seconds < 5.0


def test_what_comes_late_and_cannot_be_used_ends_the_wait_and_frees_its_client(clock):
    """Only an update that could be used did; Flower went on waiting for a minute."""

    def broken(message):
        return 15.0, content(ArrayRecord({"w": Array(np.full(2, np.nan))}), train_loss=0.5)

    strategy = Selected(FedAvg(fraction_evaluate=0.0), fp.Uniform(1), deadline=10.0, late=2)
    grid = FakeGrid(clock, {1: broken})
    strategy.start(grid, ArrayRecord({"w": Array(np.zeros(2))}), num_rounds=2)
    assert strategy.last.ids.tolist() == []
    assert 5.0 <= strategy.last.seconds <= 6.0
    assert strategy.last.messages == 1
    assert strategy.session.free(["node:1"]) == ["node:1"]
