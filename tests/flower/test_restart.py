"""What a Flower server learned survives its end."""

import json

import numpy as np
import pytest
from fake_flower import Clock, FakeGrid, model, replies, trains
from flwr.app import ConfigRecord, Error
from flwr.serverapp.strategy import FedAvg

import fedpick as fp
from fedpick.core.state import pack, read_archive, write_archive
from fedpick.flower import Selected


def base():
    return FedAvg(fraction_evaluate=0.0)


def world(clock):
    grid = FakeGrid(clock, {node: trains(train_loss=node / 10) for node in range(8)})
    grid.nodes[5] = replies(Error(2, "raised"))
    return grid


def context(round, names, idle):
    return np.column_stack([np.full(len(names), round / 10), idle, np.arange(len(names)) / 7])


def growing(clock, round):
    """Two more clients come in every other round, and some are away."""
    grid = FakeGrid(
        clock,
        {
            node: trains(train_loss=node / 10, embedding=[1.0, float(node)])
            for node in range(6 + round)
            if (node + round) % 5
        },
    )
    grid.nodes[1] = replies(Error(2, "raised"))
    return grid


def same(one, other) -> None:
    assert one.round == other.round
    assert one.roster.names == other.roster.names
    assert one.roster.last == other.roster.last
    assert one.roster.widths == other.roster.widths
    for name, value in pack(other.roster.state).items():
        np.testing.assert_array_equal(pack(one.roster.state)[name], value, err_msg=name)


@pytest.mark.parametrize("every", [3, *(pytest.param(every, marks=pytest.mark.slow) for every in (1, 20))])
@pytest.mark.parametrize(
    "policy",
    [
        fp.E3CS(cohort_size=3, quota=0.3),
        fp.E3CS(cohort_size=3, sampler="multinomial"),
        fp.OverSelect(fp.PowerOfChoice(cohort_size=3, variant="rpow-d"), 1.3),
        fp.BSFL(cohort_size=3),
        fp.CSUCB(cohort_size=3),
        fp.RBCSF(cohort_size=3),
        fp.ActiveFL(cohort_size=3),
        fp.FedGS(cohort_size=3, graph="embedding"),
        fp.Uniform(cohort_size=3),
    ],
    ids=lambda policy: type(policy).__name__,
)
def test_a_restarted_server_goes_on_as_if_nothing_had_happened(clock: Clock, tmp_path, policy, every) -> None:
    options = {"seed": 5, "context": context, "wait": 0.0}
    whole = Selected(base(), policy, **options)
    for round in range(7):
        whole.start(growing(clock, round), model(), num_rounds=1)
        # A new process each time.
        strategy = Selected(base(), policy, **options, state=tmp_path, limits=fp.server.Limits(checkpoint_every=every))
        strategy.start(growing(clock, round), model(), num_rounds=1)
        same(strategy, whole)
        assert strategy.last.ids.tolist() == whole.last.ids.tolist()
    same(Selected(base(), policy, **options, state=tmp_path), whole)


def test_rounds_of_the_base_go_on_too(clock: Clock, tmp_path) -> None:
    for _ in range(2):
        grid = world(clock)
        Selected(base(), fp.Uniform(2), state=tmp_path).start(grid, model(), num_rounds=2)
    assert sorted({m.content["config"]["server-round"] for m in grid.sent})[-1] == 4


class Counted(FedAvg):
    """Writes down the number of the round that each of its methods is given."""

    def __init__(self, **options):
        super().__init__(**options)
        self.rounds = []

    def configure_train(self, server_round, *args):
        self.rounds.append(("train", server_round))
        return super().configure_train(server_round, *args)

    def aggregate_train(self, server_round, *args):
        self.rounds.append(("trained", server_round))
        return super().aggregate_train(server_round, *args)

    def configure_evaluate(self, server_round, *args):
        self.rounds.append(("evaluate", server_round))
        return super().configure_evaluate(server_round, *args)

    def aggregate_evaluate(self, server_round, *args):
        self.rounds.append(("evaluated", server_round))
        return super().aggregate_evaluate(server_round, *args)


def test_the_base_is_told_the_round_of_all_that_were_played_in_training_and_in_evaluation(
    clock: Clock, tmp_path
) -> None:
    names = ("train", "trained", "evaluate", "evaluated")
    for first in (1, 3):
        counted = Counted()
        Selected(counted, fp.Uniform(2), state=tmp_path).start(world(clock), model(), num_rounds=2)
        assert counted.rounds == [(name, number) for number in (first, first + 1) for name in names]


def test_an_evaluation_before_the_first_round_is_that_of_round_1(clock: Clock) -> None:
    counted = Counted()
    strategy, grid = Selected(counted, fp.Uniform(2)), world(clock)
    names = grid.push_messages(list(strategy.configure_evaluate(7, model(), ConfigRecord(), grid)))
    clock.sleep(2.0)
    strategy.aggregate_evaluate(7, list(grid.pull_messages(names)))
    assert counted.rounds == [("evaluate", 1), ("evaluated", 1)]


def test_killed_in_mid_round_the_round_is_played_again(clock: Clock, tmp_path) -> None:
    policy = fp.E3CS(cohort_size=3)
    Selected(base(), policy, state=tmp_path).start(world(clock), model(), num_rounds=2)
    killed = Selected(base(), policy, state=tmp_path)
    first = [m.metadata.dst_node_id for m in killed.configure_train(1, model(), ConfigRecord(), world(clock))]
    killed.session.memory.unlock()  # as the end of its process does
    again = Selected(base(), policy, state=tmp_path)
    second = [m.metadata.dst_node_id for m in again.configure_train(1, model(), ConfigRecord(), world(clock))]
    assert again.round == 2
    assert sorted(first) == sorted(second)


def _written(clock, folder):
    Selected(base(), fp.E3CS(cohort_size=3), state=folder).start(world(clock), model(), num_rounds=1)
    return folder / "state.npz"


def _rewrite(path, names=None, **notes):
    """Change what a state file says of the server."""
    arrays, meta = read_archive(path)
    if names is not None:
        arrays["names"] = np.frombuffer(json.dumps(names).encode(), dtype=np.uint8)
    meta["session"].update(notes)
    write_archive(path, arrays, meta)


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(path.read_bytes()[:200]),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_text("hello"),
        lambda path: fp.save_state(fp.E3CS(3), fp.E3CS(3).init(fp.Clients(np.ones(8))), path),
        lambda path: fp.save_state(fp.Uniform(3), fp.Uniform(3).init(fp.Clients(np.ones(8))), path, flower={}),
        lambda path: _rewrite(path, names=["a"] * 8),
        lambda path: _rewrite(path, names=["a", "b"]),
        lambda path: _rewrite(path, round="soon"),
        lambda path: _rewrite(path, last=[99]),
        lambda path: _rewrite(path, widths=None),
    ],
)
def test_a_damaged_or_foreign_file_is_refused_and_left_alone(clock: Clock, tmp_path, damage) -> None:
    path = _written(clock, tmp_path)
    damage(path)
    before = path.read_bytes()
    with pytest.raises(fp.StateError, match="the files are left as they are"):
        Selected(base(), fp.E3CS(cohort_size=3), state=tmp_path)
    assert path.read_bytes() == before


def test_another_policy_is_refused(clock: Clock, tmp_path) -> None:
    _written(clock, tmp_path)
    with pytest.raises(fp.StateError, match="holds the state of E3CS, but the policy is BSFL"):
        Selected(base(), fp.BSFL(cohort_size=3), state=tmp_path)


def test_of_100_000_enrolled_only_the_connected_are_chosen(clock: Clock) -> None:
    grid = FakeGrid(clock, {node: trains() for node in range(1000)})
    strategy = Selected(base(), fp.E3CS(cohort_size=20))
    strategy.roster.enrol([f"node:{node}" for node in range(100_000)], fp.Clients(np.ones(100_000)))
    messages = list(strategy.configure_train(1, model(), ConfigRecord(), grid))
    assert strategy.roster.names[1000] == "node:1000"
    assert len({message.metadata.dst_node_id for message in messages}) == 20
    assert all(0 <= message.metadata.dst_node_id < 1000 for message in messages)
