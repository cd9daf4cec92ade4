"""Clients that send what no honest one would: the others train on, and the model stays a model."""

import logging
import math

import numpy as np
import pytest
from fake_flower import FakeGrid, content, model, replies, trains
from flwr.app import Array, ArrayRecord, Error, MetricRecord, RecordDict
from flwr.serverapp.strategy import (
    Bulyan,
    FedAdam,
    FedAvg,
    FedMedian,
    FedTrimmedAvg,
    Krum,
    Strategy,
)

import fedpick as fp
from fedpick.flower import Selected

DONE, LATE, FAILED, SURPLUS = fp.Status
SENT = {"w": np.zeros((2, 3), np.float32), "n": np.array(5), "counts": np.arange(3)}


def arrays(**other) -> ArrayRecord:
    return ArrayRecord({name: Array(np.asarray(values)) for name, values in (SENT | other).items()})


def sends(update: ArrayRecord, seconds: float = 1.0):
    """Answers with a copy each time: some strategies take the arrays out of a reply."""
    return lambda message: (seconds, content(ArrayRecord(dict(update.items())), train_loss=0.5))


def honest():
    return sends(arrays(w=np.ones((2, 3), np.float32)))


def status(strategy: Selected) -> dict[str, fp.Status]:
    last = strategy.last
    return {strategy.roster.names[k]: fp.Status(s) for k, s in zip(last.ids, last.status, strict=True)}


BASES = [FedAvg, FedAdam, FedMedian, FedTrimmedAvg, Krum, Bulyan]
HOSTILE = {
    "a longer array of integers": arrays(counts=np.arange(1000)),
    "an array in place of a number": arrays(n=np.arange(1000)),
    "integers in place of floats": arrays(w=np.ones((2, 3), np.int64)),
    "floats in place of integers": arrays(n=np.array(5.0)),
    "complex numbers": arrays(w=np.ones((2, 3), np.complex128)),
    "half precision": arrays(w=np.full((2, 3), 60000, np.float16)),
    "another shape": arrays(w=np.ones((3, 2), np.float32)),
    "another order": ArrayRecord(dict(reversed(list(arrays().items())))),
    "another name": ArrayRecord({"evil": Array(np.ones(3))}),
    "one more": ArrayRecord(dict(arrays().items()) | {"more": Array(np.ones(3))}),
    "nothing": ArrayRecord({}),
}


TYPES = ("integers in place of floats", "floats in place of integers", "half precision")  # only others can tell


@pytest.mark.parametrize("hostile", HOSTILE)
@pytest.mark.parametrize(
    ("make", "first"),
    [
        pytest.param(
            base,
            first,
            id=f"{base.__name__}-{'first' if first else 'last'}",
            marks=[pytest.mark.slow] * (not first and base not in (FedAvg, Krum)),
        )
        for base in BASES
        for first in (True, False)
    ],
)
def test_an_update_that_is_not_the_models_is_that_clients_failure(clock, make, hostile: str, first: bool) -> None:
    grid = FakeGrid(clock, {node: honest() for node in range(7)})
    grid.nodes[9] = sends(HOSTILE[hostile], 0.5 if first else 2.0)
    strategy = Selected(make(fraction_evaluate=0.0), fp.Uniform(8))
    result = strategy.start(grid, arrays(), num_rounds=2)
    assert status(strategy) == {f"node:{node}": DONE for node in range(7)} | {"node:9": FAILED}
    assert list(result.arrays) == list(SENT)
    for name, values in SENT.items():
        found = result.arrays[name].numpy()
        assert found.shape == np.shape(values)
        assert np.isfinite(found).all()


@pytest.mark.parametrize("hostile", [name for name in HOSTILE if name not in TYPES])
def test_alone_it_does_not_replace_the_model_either(clock, hostile: str) -> None:
    grid = FakeGrid(clock, {9: sends(HOSTILE[hostile])})
    strategy = Selected(FedAvg(fraction_evaluate=0.0), fp.Uniform(1))
    strategy.start(grid, arrays(), num_rounds=2)
    assert status(strategy) == {"node:9": FAILED}
    sent = grid.sent[-1].content["arrays"]
    assert {name: array.shape for name, array in sent.items()} == {n: a.shape for n, a in arrays().items()}


def test_wider_floats_are_fine(clock) -> None:
    grid = FakeGrid(clock, {node: sends(arrays(w=np.ones((2, 3)))) for node in range(3)})
    strategy = Selected(FedAvg(fraction_evaluate=0.0), fp.Uniform(3))
    strategy.start(grid, arrays(), num_rounds=1)
    assert set(status(strategy).values()) == {DONE}


def test_a_base_that_does_not_average_may_have_records_of_its_own(clock) -> None:
    class Scaffold(Strategy):
        got = 0

        def configure_train(self, server_round, arrays, config, grid):
            from flwr.app import Message

            return [Message(RecordDict({"arrays": arrays}), node, "train") for node in grid.get_node_ids()]

        def aggregate_train(self, server_round, replies):
            self.got += sum(not reply.has_error() for reply in replies)
            return None, None

        def configure_evaluate(self, *args):
            return []

        def aggregate_evaluate(self, *args):
            return None

        def summary(self):
            pass

    both = RecordDict({"arrays": model(1, 1), "control": model(2, 2), "metrics": MetricRecord({"loss": 0.5})})
    ruined = RecordDict({"arrays": model(1, 1), "control": model(math.nan, 2), "metrics": MetricRecord({"loss": 0.5})})
    nodes = {node: replies(both) for node in range(3)} | {5: replies(ruined), 6: replies(content(model(1, 1)))}
    base = Scaffold()
    strategy = Selected(base, fp.Uniform(5))
    strategy.start(FakeGrid(clock, nodes), model(), num_rounds=1)
    assert base.got == 3
    assert status(strategy) == dict.fromkeys(("node:0", "node:1", "node:2"), DONE) | dict.fromkeys(
        ("node:5", "node:6"), FAILED
    )


class Breaks(FedAvg):
    """Cannot aggregate in these rounds."""

    rounds: tuple[int, ...] = ()

    def aggregate_train(self, server_round, replies):
        if server_round in self.rounds:
            raise ZeroDivisionError("an update without length")
        return super().aggregate_train(server_round, replies)


def test_a_base_that_breaks_once_does_not_end_the_training(clock, caplog) -> None:
    base = Breaks(fraction_evaluate=0.0)
    base.rounds = (2,)
    strategy = Selected(base, fp.Uniform(2))
    strategy.start(FakeGrid(clock, {0: trains(), 1: trains()}), model(), num_rounds=3)
    assert strategy.round == 3
    assert "round 2: Breaks could not aggregate the updates of nodes" in caplog.text
    assert "an update without length" in caplog.text


def test_a_base_that_never_works_is_an_error(clock) -> None:
    base = Breaks(fraction_evaluate=0.0)
    base.rounds = (1, 2)
    with pytest.raises(ZeroDivisionError):
        Selected(base, fp.Uniform(2)).start(FakeGrid(clock, {0: trains(), 1: trains()}), model(), num_rounds=2)


def test_logs_stay_short_and_in_one_line(clock, caplog) -> None:
    caplog.set_level(logging.INFO)
    nodes = {
        0: trains(),
        1: trains(num_examples=[0.125] * 100_000),
        2: replies(content(ArrayRecord({"x" * 1_000_000: Array(np.array([np.nan]))}))),
        3: replies(Error(2, "first line\nINFO: all is well\x1b[2J" + "z" * 10_000)),
    }
    strategy = Selected(FedAvg(fraction_evaluate=0.0), fp.Uniform(4))
    strategy.start(FakeGrid(clock, nodes), model(), num_rounds=1)
    told = [record.getMessage() for record in caplog.records if record.name == "flwr.fedpick"]
    assert max(map(len, told)) < 1000
    assert not any("\x1b" in text or "\n" in text for text in told)


def test_evaluations_that_are_not_finite_are_left_out(clock) -> None:
    def evaluates(accuracy):
        def behave(message):
            if message.metadata.message_type.startswith("evaluate"):
                return 0.1, content(accuracy=accuracy)
            return trains()(message)

        return behave

    nodes = {node: evaluates(0.5) for node in range(3)} | {9: evaluates(math.nan)}
    strategy = Selected(FedAvg(), fp.Uniform(4))
    result = strategy.start(FakeGrid(clock, nodes), model(), num_rounds=1)
    assert result.evaluate_metrics_clientapp[1]["accuracy"] == 0.5
    assert strategy.last.metrics["accuracy"] == 0.5


def test_a_mute_evaluator_is_not_waited_for_beyond_the_deadline(clock) -> None:
    def mute(message):
        return (0.1, None) if message.metadata.message_type.startswith("evaluate") else trains()(message)

    begun = clock.now
    strategy = Selected(FedAvg(), fp.Uniform(3), deadline=10.0)
    strategy.start(FakeGrid(clock, {0: trains(), 1: trains(), 2: mute}), model(), num_rounds=2)
    assert clock.now - begun < 60.0


def test_one_client_alone_does_not_fix_the_width_of_a_report(clock) -> None:
    strategy = Selected(FedAvg(fraction_evaluate=0.0), fp.FedGS(3, graph="embedding"), wait=0.0)
    strategy.start(FakeGrid(clock, {9: trains(embedding=[1.0])}), model(), num_rounds=1)
    nodes = {node: trains(embedding=[1.0, float(node), 2.0]) for node in range(3)}
    strategy.start(FakeGrid(clock, nodes), model(), num_rounds=2)
    assert strategy.roster.widths == {"embedding": 3}
    assert np.isfinite(strategy.roster.state.vectors[1:]).all()


def test_a_late_joiner_without_handlers_ends_nothing(clock) -> None:
    from test_describe import answers, told

    missing = Error(2, "ValueError: No query function registered with name 'describe'")
    grid = FakeGrid(clock, {node: answers(told(10.0)) for node in range(3)})
    strategy = Selected(FedAvg(fraction_evaluate=0.0), fp.SizeWeighted(2), describe="ask", wait=0.0)
    strategy.start(grid, model(), num_rounds=1)
    grid.nodes[9] = answers(missing)
    strategy.start(grid, model(), num_rounds=1)
    assert strategy.roster.clients.sizes.tolist() == [10.0, 10.0, 10.0, 1.0]

    probing = Selected(FedAvg(fraction_evaluate=0.0), fp.PowerOfChoice(2, 2), wait=0.0)
    probing.start(FakeGrid(clock, {0: trains(probe=1.0), 1: trains(probe=2.0)}), model(), num_rounds=1)
    probing.start(FakeGrid(clock, {7: trains()}), model(), num_rounds=1)  # it alone is there, and has none
    assert probing.round == 2


def test_a_slow_first_answer_does_not_cost_the_name(clock) -> None:
    from test_describe import answers, told

    slow = [True]

    def behave(message):
        if message.metadata.message_type == "query.describe" and slow[0]:
            slow[0] = False
            return 1e6, told(name="tram")
        return answers(told(name="tram"))(message)

    grid = FakeGrid(clock, {0: answers(told(name="bus")), 1: behave})
    strategy = Selected(FedAvg(fraction_evaluate=0.0), fp.Uniform(2), identity="reported", wait=0.0)
    strategy.start(grid, model(), num_rounds=2)
    assert strategy.roster.names == ["reported:bus", "reported:tram"]


def test_starts_of_other_shapes_are_called_as_they_are(clock) -> None:
    class Own(FedAvg):
        def start(self, grid, initial_arrays, num_rounds, save_path, **more):
            self.saved = save_path
            return super().start(grid, initial_arrays, num_rounds, **more)

    base, seen = Own(fraction_evaluate=0.0), []
    strategy = Selected(base, fp.Uniform(1))
    strategy.start(FakeGrid(clock, {0: trains()}), model(), 2, "here", evaluate_fn=lambda r, a: seen.append(r))
    assert (base.saved, strategy.round, seen) == ("here", 2, [0, 1, 2])
    Selected(FedAvg(fraction_evaluate=0.0), fp.Uniform(1)).start(
        FakeGrid(clock, {0: trains()}), model(), num_rounds=1, timeout=None
    )


def test_an_identity_that_looks_like_a_node_id_is_not_taken_over(clock) -> None:
    names = {0: "same", 1: "same", 2: "node:0"}
    strategy = Selected(FedAvg(fraction_evaluate=0.0), fp.Uniform(3), identity=lambda node: names[node.node_id])
    strategy.start(FakeGrid(clock, {node: trains() for node in range(3)}), model(), num_rounds=1)
    assert sorted(strategy.roster.names) == ["node:0", "node:0'", "node:1"]
    assert set(status(strategy).values()) == {DONE}


def test_a_base_may_send_a_rounds_messages_in_parts(clock) -> None:
    class InParts(FedAvg):
        def start(self, grid, initial_arrays, num_rounds):
            from flwr.app import ConfigRecord

            messages = list(self.configure_train(1, initial_arrays, ConfigRecord(), grid))
            replies = [reply for one in messages for reply in grid.send_and_receive([one], timeout=5.0)]
            self.aggregate_train(1, replies)

    grid = FakeGrid(clock, {node: trains(seconds=1.0 + node) for node in range(4)})
    grid.refuses = {3}
    strategy = Selected(InParts(fraction_evaluate=0.0), fp.Uniform(4), deadline=5.0)
    strategy.start(grid, model(), 1)
    assert status(strategy) == {"node:0": DONE, "node:1": DONE, "node:2": DONE, "node:3": FAILED}
    seconds = dict(zip(strategy.last.ids.tolist(), strategy.last.duration, strict=True))
    assert [round(seconds[k]) for k in range(3)] == [1, 2, 3]
