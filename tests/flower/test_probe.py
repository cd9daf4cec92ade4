"""Probing policies and reports under Flower."""

import math

import numpy as np
import pytest
from fake_flower import Clock, FakeGrid, content, model, replies, trains
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg

import fedpick as fp
from fedpick.flower import PROBE, Selected, probe


def base():
    return FedAvg(fraction_evaluate=0.0)


def nodes_of(strategy):
    return sorted(strategy.roster.names[k] for k in strategy.last.ids)


def test_the_highest_losses_train(clock: Clock) -> None:
    grid = FakeGrid(clock, {node: trains(probe=float(node)) for node in range(8)})
    strategy = Selected(base(), fp.PowerOfChoice(cohort_size=2, candidates=8), deadline=20.0)
    strategy.start(grid, model(), num_rounds=1)
    assert nodes_of(strategy) == ["node:6", "node:7"]
    assert len(grid.asked(PROBE)) == 8
    assert strategy.last.messages == 2 * 8 + 4
    assert all(message.metadata.ttl <= 20.0 for message in grid.sent)


def test_those_that_do_not_answer_a_probe_rank_last(clock: Clock) -> None:
    grid = FakeGrid(clock, {node: trains(probe=float(node)) for node in range(8)})
    grid.nodes[7] = replies(None)
    grid.nodes[6] = replies(Error(2, "raised"))
    grid.nodes[5] = trains(probe=math.nan)
    grid.nodes[4] = trains(probe=1e300)
    grid.nodes[3] = replies(RecordDict())
    grid.nodes[2] = replies(content(loss=[9.0]))
    strategy = Selected(base(), fp.PowerOfChoice(cohort_size=2, candidates=8), deadline=20.0)
    strategy.start(grid, model(), num_rounds=1)
    assert nodes_of(strategy) == ["node:0", "node:1"]


def test_without_a_deadline_a_probe_ends_with_the_timeout(clock: Clock) -> None:
    grid = FakeGrid(clock, {node: trains(probe=float(node)) for node in range(4)})
    grid.nodes[3] = replies(None)
    before = clock.now
    strategy = Selected(base(), fp.PowerOfChoice(cohort_size=2, candidates=4))
    strategy.start(grid, model(), 1, 50.0)
    assert nodes_of(strategy) == ["node:1", "node:2"]
    assert 50.0 <= clock.now - before < 60.0


def test_an_app_without_the_handler_is_told(clock: Clock) -> None:
    grid = FakeGrid(clock, {node: trains() for node in range(4)})
    with pytest.raises(fp.MissingError, match=r"fedpick\.flower\.probe\(app, loss_fn\)"):
        Selected(base(), fp.PowerOfChoice(cohort_size=2)).start(grid, model(), num_rounds=1)


@pytest.mark.parametrize("style", ["call", "decorator"])
def test_the_handler(clock: Clock, style: str) -> None:
    app, seen = ClientApp(), []

    def loss(arrays, batch, context):
        seen.append((batch, context.node_id))
        return float(np.sum(arrays["w"].numpy()))

    assert (probe(app, loss) if style == "call" else probe(app)(loss)) is loss
    for batch in 0, 16:
        config = ConfigRecord({"batch": batch, "server-round": 1})
        message = Message(RecordDict({"arrays": model(2.0, 3.0), "config": config}), 7, PROBE)
        reply = app(message, Context(1, 7, {}, RecordDict(), {}))
        assert reply.content["metrics"]["loss"] == 5.0
    assert seen == [(None, 7), (16, 7)]


def test_embeddings_reach_fedgs(clock: Clock) -> None:
    sides = {node: [1.0, 0.0] if node % 2 else [0.0, 1.0] for node in range(6)}
    grid = FakeGrid(clock, {node: trains(embedding=side) for node, side in sides.items()})
    strategy = Selected(base(), fp.FedGS(cohort_size=2, graph="embedding"))
    strategy.start(grid, model(), num_rounds=4)
    vectors = strategy.roster.state.vectors
    known = np.isfinite(vectors).all(axis=1)
    assert known.sum() >= 4
    for name, at in strategy.roster.index.items():
        if known[at]:
            assert vectors[at].tolist() == sides[int(name.removeprefix("node:"))]
    # Everyone changes the length: no longer what the graph is made of, and no reason to stop.
    grid.nodes = {node: trains(embedding=[1.0, 2.0, 3.0]) for node in range(6)}
    strategy.start(grid, model(), num_rounds=2)
    assert strategy.roster.state.vectors.shape == (6, 2)


def test_a_reward_that_clients_report(clock: Clock) -> None:
    grid = FakeGrid(clock, {node: trains(useful=float(node == 2)) for node in range(4)})
    strategy = Selected(base(), fp.E3CS(cohort_size=2, quota=0.5, reward="useful"))
    strategy.start(grid, model(), num_rounds=20)
    assert np.argmax(strategy.roster.state.log_weights) == strategy.roster.index["node:2"]


def test_a_model_of_several_arrays(clock: Clock) -> None:
    two = ArrayRecord({"w": Array(np.zeros((2, 3))), "b": Array(np.zeros(3, dtype=np.float32))})
    grid = FakeGrid(clock, {node: replies(content(two, train_loss=1.0)) for node in range(3)})
    strategy = Selected(base(), fp.Uniform(3))
    result = strategy.start(grid, two, num_rounds=1)
    assert strategy.last.status.tolist() == [0, 0, 0]
    assert result.arrays["w"].shape == (2, 3)
