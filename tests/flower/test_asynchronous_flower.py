"""`Selected` with `fp.Buffered` on a grid in memory: who is asked when, what answers count as, what a restart finds."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_flower import Clock, FakeGrid, content, model, replies
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, RecordDict
from flwr.serverapp.strategy import (
    DifferentialPrivacyServerSideFixedClipping,
    FedAdam,
    FedAvg,
    FedAvgM,
    FedYogi,
    Strategy,
)
from optimisers import Optimiser

import fedpick as fp
import fedpick.flower
from fedpick.flower import NotEnoughClientsError, Selected
from fedpick.store import read_rounds, read_selections

DONE, LATE, FAILED, SURPLUS = fp.Status


def adds(amount: float, seconds: float = 1.0, examples: int = 10, **metrics: Any):
    """Trains by adding to the model that it was sent."""

    def behave(message: Message):
        if message.metadata.message_type.startswith("evaluate"):
            return 0.5, content(accuracy=0.5)
        sent = message.content.array_records["arrays"]["w"].numpy()
        return seconds, content(model(*(sent + amount)), num_examples=examples, **{"train_loss": 0.5} | metrics)

    return behave


def base(make: Any = FedAvg, **options: Any) -> Any:
    return make(fraction_evaluate=0.0, **options)


def selected(pace: fp.Buffered, inner: Any = None, policy: Any = None, **options: Any) -> Selected:
    return Selected(inner or base(), policy or fp.Uniform(pace.concurrency), pace=pace, **options)


def play(strategy: Selected, grid: FakeGrid, versions: int, **options: Any) -> list[fp.Record]:
    """The records of so many versions."""
    found: list[fp.Record] = []

    def note(number: int, arrays: ArrayRecord) -> None:
        if number:
            found.append(strategy.last)

    strategy.result = strategy.start(grid, options.pop("start", model()), versions, evaluate_fn=note, **options)
    return found


def final(strategy: Selected) -> list[float]:
    return strategy.result.arrays["w"].numpy().tolist()


def how(record: fp.Record) -> list[tuple[int, int, int]]:
    return [(each.task.id, int(each.status), each.staleness) for each in record.tasks]


def test_a_slow_answer_counts_for_less_and_is_divided_by_the_number_of_answers(clock: Clock) -> None:
    """Of a model that was sent before two moves, the change is added: it is not the model that counts."""
    grid = FakeGrid(clock, {1: adds(1.0, 10.0), 2: adds(100.0, 25.0)})
    strategy = selected(fp.Buffered(concurrency=2, size=1, timeout=600))
    records = play(strategy, grid, 3)
    assert [how(record) for record in records] == [[(0, DONE, 0)], [(2, DONE, 0)], [(1, DONE, 2)]]
    assert final(strategy) == pytest.approx([2.0 + 100.0 / np.sqrt(3.0)] * 2)
    assert [m.content["config"]["server-round"] for m in grid.sent] == [1, 1, 2, 3]
    assert sorted(strategy.result.train_metrics_clientapp) == [1, 2, 3]


def test_fedavg_weighs_by_the_examples_over_their_mean(clock: Clock) -> None:
    grid = FakeGrid(clock, {1: adds(1.0, examples=10), 2: adds(4.0, examples=30)})
    strategy = selected(fp.Buffered(concurrency=2, size=2, timeout=60))
    (record,) = play(strategy, grid, 1)
    # The first to answer is the only one of whom a size is known: it counts 1, the second 30 / 20.
    values = {name: 1.0 if name == "node:1" else 4.0 for name in strategy.roster.names}
    names = [strategy.roster.names[k] for k in record.ids]
    sizes = {"node:1": 10.0, "node:2": 30.0}
    weights = [1.0, sizes[names[1]] / 20.0]
    assert [each.weight for each in record.tasks] == pytest.approx(weights)
    assert final(strategy)[0] == pytest.approx(sum(w * values[n] for w, n in zip(weights, names, strict=True)) / 2)


@pytest.mark.parametrize("refill", [1, 6])
@pytest.mark.parametrize("make", [FedAdam, FedYogi, FedAvgM])
def test_server_optimisers_get_the_change_of_each_version(clock: Clock, make: Any, refill: int) -> None:
    """With refill = 6, three versions are made between two asks: the base must still know which model it moves."""
    amounts = {node: float(node) for node in range(1, 7)}
    grid = FakeGrid(clock, {node: adds(amount, 2.0 + node % 3) for node, amount in amounts.items()})
    rates = {"server_learning_rate": 0.7, "server_momentum": 0.5} if make is FedAvgM else {}
    strategy = selected(
        fp.Buffered(concurrency=6, size=2, timeout=60, refill=refill), base(make, **rates), limits=no_limit()
    )
    twin, number = Optimiser(make.__name__), {}
    for record in play(strategy, grid, 12):
        number |= dict(enumerate(strategy.roster.names))
        done = [each for each in record.tasks if each.status == DONE]
        twin.move(sum(each.weight * amounts[int(number[each.task.client][5:])] for each in done) / len(done))
    assert final(strategy) == pytest.approx([twin.x] * 2, rel=1e-9)


def no_limit() -> Any:
    return fp.server.Limits(size_factor=None)


def test_fedasync_moves_towards_the_model_of_the_client(clock: Clock) -> None:
    grid = FakeGrid(clock, {1: adds(1.0, 10.0), 2: adds(100.0, 25.0)})
    strategy = selected(fp.Buffered(concurrency=2, size=1, timeout=600, mixing="polynomial", alpha=0.6))
    play(strategy, grid, 3)
    x = 0.6 * 1.0
    x += 0.6 * 1.0  # its model is x + 1
    x += 0.6 / np.sqrt(3.0) * (100.0 - x)  # its model is 0 + 100
    assert final(strategy) == pytest.approx([x, x])


def test_a_client_that_vanishes_is_late_and_one_that_is_lost_has_failed(clock: Clock) -> None:
    lost = Error(5, "node lost")
    nodes = {1: adds(1.0, 10.0), 2: replies(None), 3: replies(lost, 4.0), 4: replies(Error(4, "gone"), 5.0)}
    grid = FakeGrid(clock, nodes)
    strategy = selected(fp.Buffered(concurrency=4, size=2, timeout=30.0))
    records = play(strategy, grid, 3)
    names = strategy.roster.names
    ended = [(names[each.task.client], each.status, each.at - each.task.sent_at) for r in records for each in r.tasks]
    assert {(name, status) for name, status, _ in ended} >= {("node:2", LATE), ("node:3", FAILED), ("node:4", FAILED)}
    assert all(seconds == pytest.approx(30.0, abs=1.1) for name, status, seconds in ended if status == LATE)
    assert {m.metadata.ttl for m in grid.sent} == {30.0}
    # Flower has said its last about the one that vanished, so its message is asked for no more.
    assert all(grid.waiting[name][2].metadata.dst_node_id != 2 for name in list(grid.waiting)[:-4])


def test_a_refused_message_frees_the_place(clock: Clock) -> None:
    grid = FakeGrid(clock, {1: adds(1.0), 2: adds(1.0)})
    grid.refuses = {2}
    strategy = selected(fp.Buffered(concurrency=1, size=2, timeout=60), policy=fp.Uniform(1))
    records = play(strategy, grid, 5)
    failed = [each for record in records for each in record.tasks if each.status == FAILED]
    assert failed
    assert {strategy.roster.names[each.task.client] for each in failed} == {"node:2"}
    assert sum(record.messages for record in records) == len(grid.sent) + 2 * 5


@pytest.mark.parametrize("fault", ["nan", "names", "shape", "loss", "weight", "two"])
def test_an_answer_that_cannot_be_used_changes_nothing(clock: Clock, fault: str) -> None:
    bad = {
        "nan": lambda: content(model(np.nan, 1.0)),
        "names": lambda: content(ArrayRecord({"v": Array(np.ones(2))})),
        "shape": lambda: content(model(1.0)),
        "loss": lambda: content(model(9.0, 9.0), train_loss=np.inf),
        "weight": lambda: content(model(9.0, 9.0), num_examples=-1),
        "two": lambda: RecordDict({**content(model(9.0, 9.0)), "more": model(9.0, 9.0)}),
    }

    def behave(message: Message):
        return 0.5, bad[fault]()

    grid = FakeGrid(clock, {1: adds(1.0, 3.0), 2: behave})
    strategy = selected(fp.Buffered(concurrency=2, size=1, timeout=60))
    records = play(strategy, grid, 2)
    assert final(strategy) == [2.0, 2.0]
    statuses = {(strategy.roster.names[e.task.client], int(e.status)) for r in records for e in r.tasks}
    assert statuses == {("node:1", DONE), ("node:2", FAILED)}


def test_metrics_that_not_all_of_a_commit_report_are_left_out(clock: Clock) -> None:
    """Flower's mean would raise; each answer is judged when it comes, so there is no majority to compare it with."""
    nodes = {1: adds(1.0, own=1.0, vector=[1.0, 2.0]), 2: adds(3.0, vector=[1.0, 2.0, 3.0], other=2)}
    strategy = selected(fp.Buffered(concurrency=2, size=2, timeout=60))
    play(strategy, FakeGrid(clock, nodes), 2)
    assert dict(strategy.result.train_metrics_clientapp[2]) == {"train_loss": 0.5}
    assert final(strategy) == pytest.approx([4.0, 4.0])


def test_clients_that_connect_are_asked_while_others_work(clock: Clock) -> None:
    grid = FakeGrid(clock, {1: adds(1.0, 50.0)})
    clock.events.append((clock.now + 10.0, lambda: grid.nodes.update({2: adds(1.0, 50.0)})))
    strategy = selected(fp.Buffered(concurrency=2, size=2, timeout=600))
    (record,) = play(strategy, grid, 1)
    assert [each.task.sent_at for each in record.tasks] == pytest.approx([0.0, 10.0], abs=2.1)


def test_only_the_idle_evaluate_and_answers_that_come_meanwhile_are_used(clock: Clock) -> None:
    asked: list[tuple[set[int], set[int]]] = []  # who evaluates, and who trains at that time

    class Watched(FakeGrid):
        def push_messages(self, messages: Any) -> Any:
            sent = list(messages)
            if sent and sent[0].metadata.message_type == "evaluate":
                train = {each[2].metadata.dst_node_id for each in self.waiting.values()}
                asked.append(({message.metadata.dst_node_id for message in sent}, train))
            return super().push_messages(sent)

    def behave(seconds: float):
        trains = adds(1.0, seconds)

        def slowly(message: Message):
            if message.metadata.message_type == "evaluate":
                return 20.0, content(accuracy=0.5)  # longer than the timeout of training
            return trains(message)

        return slowly

    grid = Watched(clock, {node: behave(3.0 * node) for node in range(1, 5)})
    inner = FedAvg(fraction_evaluate=1.0)
    strategy = selected(fp.Buffered(concurrency=3, size=1, timeout=11.0), inner)
    records = play(strategy, grid, 6)
    assert sorted(strategy.result.evaluate_metrics_clientapp) == [1, 2, 3, 4, 5, 6]
    assert len(asked) == 6
    assert all(evaluate and not evaluate & train for evaluate, train in asked)
    assert any(train for _, train in asked)
    assert all(record.metrics["accuracy"] == 0.5 for record in records)
    late = {strategy.roster.names[e.task.client] for r in records for e in r.tasks if e.status == LATE}
    assert late <= {"node:4"}  # 12 s; the others answer in time, and are heard while clients evaluate
    assert (inner.min_evaluate_nodes, inner.fraction_evaluate) == (2, 1.0)


def test_the_configuration_that_a_message_holds_does_not_change_under_it(clock: Clock) -> None:
    """Flower's grid in memory holds messages by reference until a node takes them."""
    grid = FakeGrid(clock, {1: adds(1.0, 5.0), 2: adds(1.0, 40.0)})
    config = ConfigRecord({"rate": 0.5})
    strategy = selected(fp.Buffered(concurrency=2, size=1, timeout=600))
    play(strategy, grid, 4, train_config=config)
    assert [m.content["config"]["server-round"] for m in grid.sent] == [1, 1, 2, 3, 4]
    assert dict(config) == {"rate": 0.5}


def test_nobody_else_is_sent_anything(clock: Clock) -> None:
    grid = FakeGrid(clock, {node: adds(1.0, 2.0) for node in range(1, 7)})
    inner = FedAvg(fraction_evaluate=1.0)
    strategy = selected(fp.Buffered(3, size=2, timeout=60), inner, eligible=lambda name: int(name[5:]) <= 4)
    play(strategy, grid, 5)
    assert {message.metadata.dst_node_id for message in grid.sent} == {1, 2, 3, 4}


class TestAfterARestart:
    """A new ServerApp: Flower does not hand over the replies to messages of the run before."""

    pace = fp.Buffered(concurrency=3, size=2, timeout=600)

    def begin(self, clock: Clock, folder: Any, kept: bool = True, **options: Any) -> Selected:
        models = {"model": folder / "model"} if kept else {}
        return selected(self.pace, state=folder / "state", records=folder / "records", **models, **options)

    def nodes(self) -> dict[int, Any]:
        return {node: adds(1.0, 2.0 * node, train_loss=node / 10) for node in range(1, 6)}

    def test_model_version_policy_and_records_go_on_and_what_was_in_flight_is_late_and_untold(
        self, clock: Clock, tmp_path: Any, caplog: Any
    ) -> None:
        first = self.begin(clock, tmp_path)
        before = play(first, FakeGrid(clock, self.nodes()), 4)
        state = {name: np.array(value) for name, value in vars(first.roster.state).items()}
        flying = {task.id for task in first.session.tasks}
        assert flying
        second = self.begin(clock, tmp_path)
        assert second.round == 4
        for name, value in vars(second.roster.state).items():
            np.testing.assert_array_equal(value, state[name])
        caplog.set_level(logging.INFO, logger="flwr.fedpick")
        after = play(second, FakeGrid(clock, self.nodes()), 3, start=model(0.0, 0.0))
        assert f"{len(flying)} tasks were in flight when the last run ended" in caplog.text
        lost = [each for record in after for each in record.tasks if each.task.id in flying]
        assert {each.task.id for each in lost} == flying
        assert {each.status for each in lost} == {LATE}
        ids = [each.task.id for record in [*before, *after] for each in record.tasks]
        assert len(set(ids)) == len(ids)
        assert second.roster.state.counts.sum() == len(ids) - len(lost)
        assert [record.round for record in after] == [5, 6, 7]
        weights = sum(e.weight for r in [*before, *after] for e in r.tasks if e.status == DONE) / 2.0
        assert final(second) == pytest.approx([weights] * 2)
        rows = read_rounds(tmp_path / "records").to_pylist()
        assert [row["round"] for row in rows] == list(range(1, 8))
        written = read_selections(tmp_path / "records").to_pylist()
        assert [row["task"] for row in written] == ids

    @pytest.mark.parametrize("kept", [True, False])
    def test_a_server_killed_in_its_aggregation_makes_no_version_twice(
        self, clock: Clock, tmp_path: Any, kept: bool
    ) -> None:
        """Without `model=` the user has the model of the version before: `start` had not handed out the next one."""

        class Killed(BaseException):
            pass

        class Dies(FedAvg):
            in_round = 3

            def aggregate_train(self, server_round: int, replies: Any) -> Any:
                if server_round == self.in_round:
                    raise Killed
                return super().aggregate_train(server_round, replies)

        first = self.begin(clock, tmp_path, kept, inner=Dies(fraction_evaluate=0.0))
        models: list[ArrayRecord] = []
        with pytest.raises(Killed):
            first.start(FakeGrid(clock, self.nodes()), model(), 4, evaluate_fn=lambda _, arrays: models.append(arrays))
        Dies.in_round = 99
        second = self.begin(clock, tmp_path, kept, inner=Dies(fraction_evaluate=0.0))
        assert second.round == 2
        after = play(second, FakeGrid(clock, self.nodes()), 1, start=models[-1])
        assert [record.round for record in after] == [3]
        assert sum(each.status == DONE for each in after[0].tasks) == 2
        gained = sum(each.weight for each in after[0].tasks if each.status == DONE) / 2.0
        assert final(second) == pytest.approx(models[-1]["w"].numpy() + gained)

    def test_start_can_be_called_again(self, clock: Clock) -> None:
        strategy, grid = selected(self.pace), FakeGrid(clock, self.nodes())
        one = play(strategy, grid, 2)
        two = play(strategy, grid, 2, start=strategy.result.arrays)
        assert [record.round for record in [*one, *two]] == [1, 2, 3, 4]
        assert sorted(strategy.result.train_metrics_clientapp) == [1, 2]


def test_the_end_of_all_training_is_an_error(clock: Clock) -> None:
    grid = FakeGrid(clock, {1: replies(Error(2, "raised")), 2: replies(content(model(np.nan, 0.0)))})
    strategy = selected(fp.Buffered(concurrency=2, size=2, timeout=60))
    with pytest.raises(
        fp.FedpickError, match=r"none of the last 20\d tasks can be used: {'FAILED': 20\d}; see the log"
    ):
        play(strategy, grid, 1)
    none = FakeGrid(clock, {})
    with pytest.raises(NotEnoughClientsError, match="no client was connected for 60 s, so nobody can train"):
        play(selected(fp.Buffered(2, size=2, timeout=60)), none, 1)
    barred = FakeGrid(clock, {1: adds(1.0)})
    approved: set[str] = set()
    clock.events.append((clock.now + 200.0, lambda: approved.add("node:1")))
    strategy = selected(fp.Buffered(2, size=2, timeout=60), eligible=approved.__contains__)
    assert len(play(strategy, barred, 1)) == 1


def test_a_base_that_cannot_aggregate_changes_nothing_and_if_it_never_can_its_error_is_raised(clock: Clock) -> None:
    class Fails(FedAvg):
        def aggregate_train(self, server_round: int, replies: Any) -> Any:
            if server_round != 2:
                return super().aggregate_train(server_round, replies)
            raise ValueError("odd")

    class Never(FedAvg):
        def aggregate_train(self, server_round: int, replies: Any) -> Any:
            raise ValueError("odd")

    strategy = selected(fp.Buffered(1, size=1, timeout=60), Fails(fraction_evaluate=0.0))
    assert len(play(strategy, FakeGrid(clock, {1: adds(1.0)}), 3)) == 3
    assert final(strategy) == [2.0, 2.0]
    with pytest.raises(ValueError, match="odd"):
        play(
            selected(fp.Buffered(1, size=1, timeout=60), Never(fraction_evaluate=0.0)),
            FakeGrid(clock, {1: adds(1.0)}),
            2,
        )


def test_a_base_may_ask_fewer_clients_but_no_others(clock: Clock) -> None:
    class Fewer(FedAvg):
        def configure_train(self, *args: Any) -> Any:
            return list(super().configure_train(*args))[:1]

    class Others(FedAvg):
        def configure_train(self, server_round: int, arrays: Any, config: Any, grid: Any) -> Any:
            found = list(super().configure_train(server_round, arrays, config, grid))
            return [*found, Message(found[0].content, 99, "train")] if found else found

    grid = FakeGrid(clock, {node: adds(1.0, 5.0) for node in (1, 2, 3)})
    strategy = selected(fp.Buffered(3, size=2, timeout=60), Fewer(fraction_evaluate=0.0))
    records = play(strategy, grid, 3)
    assert sum(record.asked for record in records) <= len(grid.sent)
    assert {each.status for record in records for each in record.tasks} == {DONE}
    with pytest.raises(fp.ContractError, match="made 4 messages to 4 nodes, 1 of which were not chosen"):
        play(selected(fp.Buffered(3, size=2, timeout=60), Others(fraction_evaluate=0.0)), grid, 1)


class Loops(FedAvg):
    def start(self, *args: Any, **options: Any) -> Any:
        return super().start(*args, **options)


class Bare(Strategy):
    configure_train = aggregate_train = configure_evaluate = aggregate_evaluate = summary = None


PACE = fp.Buffered(concurrency=4, size=2)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: selected(PACE, DifferentialPrivacyServerSideFixedClipping(base(), 0.1, 1.0, 4)),
            "DifferentialPrivacyServerSideFixedClipping needs rounds: its noise is that of a round",
        ),
        (lambda: selected(PACE, Bare()), "Bare needs rounds: it averages by no metric"),
        (lambda: selected(PACE, Loops()), r"Loops needs rounds: its start\(\) is a loop over rounds"),
        (lambda: selected(PACE, policy=fp.OverSelect(fp.Uniform(4))), "OverSelect needs rounds"),
        (lambda: selected(PACE, policy=fp.PowerOfChoice(4, 8)), "PowerOfChoice needs rounds"),
        (lambda: selected(PACE, late=2), "Selected: late"),
        (lambda: selected(PACE, too_few="error"), "Selected: too_few"),
        (lambda: selected(PACE).configure_train(1, model(), ConfigRecord(), None), "configure_train is for rounds"),
    ],
)
def test_what_needs_rounds_is_refused(make: Any, message: str) -> None:
    with pytest.raises(fp.FedpickError, match=message):
        make()


def test_the_example_of_the_page_runs(clock: Clock, tmp_path: Any, monkeypatch: Any) -> None:
    page = (Path(__file__).parents[2] / "docs" / "flower.md").read_text()
    example = page.split("## Without rounds")[1].split("```python\n")[1].split("```")[0]
    monkeypatch.chdir(tmp_path)
    grid = FakeGrid(clock, {node: adds(1.0, 1.0 + node % 5) for node in range(1, 41)})
    names = {"fp": fp, "fedpick": fedpick, "FedAvg": FedAvg, "grid": grid, "arrays": model()}
    exec(example.replace("num_rounds=200", "num_rounds=8"), names)
    assert names["strategy"].round == 8
    assert names["result"].arrays["w"].numpy()[0] > 4.0


def test_a_version_that_the_clock_makes_while_clients_are_asked_is_followed_by_asking(clock: Clock) -> None:
    """`ask` gives nothing while a commit waits: the places stayed empty until an answer, or for `wait` seconds."""
    grid = FakeGrid(clock, {node: adds(1.0, 100.0) for node in range(1, 4)})
    grid.nodes[1] = adds(1.0, 4.0)
    strategy = selected(fp.Buffered(concurrency=3, size=None, every=5.0, timeout=600, refill=1), policy=fp.Uniform(3))
    session, ask = strategy.session, strategy.session.ask

    def late(available: Any) -> Any:
        """The clock ticks between the look for a commit and the asking."""
        if session.stream.stream.held:
            clock.now += max(0.0, 1005.0 - clock.now)
        return ask(available)

    session.ask = late
    play(strategy, grid, 3)
    sent = [message.metadata.dst_node_id for message in grid.sent]
    assert len(sent) >= 5
    assert clock.now < 1030.0


def test_a_model_to_which_no_changes_can_be_added_is_refused(clock: Clock) -> None:
    trees = ArrayRecord({"trees": Array(dtype="json", shape=(3,), stype="mine", data=b"abc")})
    with pytest.raises(fp.ContractError, match=r"initial_arrays\['trees'\] is json as mine, but fp.Buffered adds"):
        play(selected(PACE), FakeGrid(clock, {1: adds(1.0)}), 1, start=trees)
