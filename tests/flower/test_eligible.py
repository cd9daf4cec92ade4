"""Who may be asked at all: no other node is sent a message of any kind, in training or in evaluation."""

import logging

import pytest
from fake_flower import Clock, FakeGrid, model, replies, trains
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp.strategy import FedAvg
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fedpick as fp
from fedpick.flower import NotEnoughClientsError, Selected

NODES = range(1, 8)
POLICIES = [
    fp.Uniform(2),
    fp.E3CS(3, quota=0.5),
    fp.Guard(fp.E3CS(2)),
    fp.OverSelect(fp.Uniform(2), 1.5),
    fp.PowerOfChoice(2, candidates=4),  # probes
    fp.PowerOfChoice(2, candidates=4, variant="cpow-d"),
    fp.SizeWeighted(2),
]


def world(clock: Clock) -> FakeGrid:
    grid = FakeGrid(clock, {node: trains(probe=node / 10) for node in NODES})
    grid.nodes[2] = replies(None)  # never answers, so that it owes its update
    return grid


def asked(grid: FakeGrid) -> list[tuple[str, int]]:
    return [(m.metadata.message_type, m.metadata.dst_node_id) for m in grid.sent]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    policy=st.sampled_from(POLICIES),
    masks=st.lists(st.sets(st.sampled_from(list(NODES))), min_size=6, max_size=6),
    late=st.integers(0, 2),
    asks=st.booleans(),
)
def test_nobody_outside_is_ever_sent_a_message(clock: Clock, policy, masks, late, asks) -> None:
    """The masks are those of training and of evaluation, in turn: what is withdrawn counts from the next message on."""
    grid, turn = world(clock), [-1]
    strategy = Selected(
        FedAvg(fraction_evaluate=1.0),
        policy,
        eligible=lambda name: int(name.removeprefix("node:")) in masks[turn[0]],
        describe="ask" if asks else None,
        deadline=10.0,
        late=late,
        wait=0.0,
    )
    begun: list[int] = []  # messages before each phase

    def phase(configure):
        def configured(*args) -> list[Message]:
            begun.append(len(grid.sent))
            turn[0] += 1
            return list(configure(*args))

        return configured

    strategy.configure_train = phase(strategy.configure_train)
    strategy.configure_evaluate = phase(strategy.configure_evaluate)
    strategy.start(grid, model(), num_rounds=3)
    ends = [*begun[1:], len(grid.sent)]
    for at, (first, end) in enumerate(zip(begun, ends, strict=True)):
        got = {node for _, node in asked(grid)[first:end]}
        assert got <= masks[at]
        assert bool(got) == bool(masks[at])
        assert at % 2 == 0 or got == masks[at]  # all that may evaluate do


def test_a_site_that_was_not_approved_gets_no_message(clock: Clock) -> None:
    grid = world(clock)
    approved = {f"node:{node}" for node in NODES if node != 3}
    strategy = Selected(FedAvg(fraction_evaluate=1.0), fp.Uniform(6), eligible=approved.__contains__, deadline=5.0)
    strategy.start(grid, model(), num_rounds=2)
    assert {node for _, node in asked(grid)} == set(NODES) - {3}
    assert {kind for kind, _ in asked(grid)} == {"train", "evaluate"}
    assert "node:3" not in strategy.roster.names


def test_if_nobody_is_eligible_the_round_is_skipped_with_a_warning(clock: Clock, caplog) -> None:
    grid, approved = world(clock), set()
    strategy = Selected(FedAvg(fraction_evaluate=1.0), fp.Uniform(2), eligible=approved.__contains__, wait=3.0)
    with caplog.at_level(logging.WARNING):
        result = strategy.start(grid, model(), num_rounds=2)
    assert grid.sent == []
    assert strategy.round == 0
    assert not result.arrays
    said = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert said[0].startswith("round 1: none of the 7 connected clients is eligible, so that nobody is asked; approve")
    assert said[1] == "round 0: no client is both connected and eligible, so evaluation is skipped"
    approved.add("node:1")
    strategy.start(grid, model(), num_rounds=1)
    assert asked(grid) == [("train", 1), ("evaluate", 1)]
    strict = Selected(FedAvg(), fp.Uniform(2), eligible=lambda name: False, wait=0.0, too_few="error")
    with pytest.raises(NotEnoughClientsError, match="7 that are connected are not eligible: approve some"):
        strict.start(grid, model(), num_rounds=1)
    assert len(grid.sent) == 2


class Rude(FedAvg):
    """Sends to a node that it was not shown."""

    def __init__(self, when: str) -> None:
        super().__init__(fraction_evaluate=1.0)
        self.when = when

    def configure_evaluate(self, server_round, arrays, config, grid):
        messages = list(super().configure_evaluate(server_round, arrays, config, grid))
        more = Message(messages[0].content, 3, "evaluate")
        if self.when == "itself":
            grid.push_messages([more])
        return [*messages, more] if self.when == "returned" else messages

    def start(self, grid, *args, **options):
        if self.when == "before":
            grid.send_and_receive([Message(RecordDict(), 3, "query")], timeout=1.0)
        return super().start(grid, *args, **options)


@pytest.mark.parametrize("when", ["returned", "itself", "before"])
def test_a_base_that_sends_to_others_is_stopped_before_it_does(clock: Clock, when: str) -> None:
    grid = world(clock)
    strategy = Selected(Rude(when), fp.Uniform(2), eligible=lambda name: name not in ("node:2", "node:3"))
    with pytest.raises(fp.ContractError, match="messages was sent, because 1 nodes are not eligible, such as 3"):
        strategy.start(grid, model(), num_rounds=1)
    assert 3 not in {node for _, node in asked(grid)}


def test_in_a_loop_of_ones_own_it_is_the_same(clock: Clock) -> None:
    grid = world(clock)
    strategy = Selected(Rude("itself"), fp.PowerOfChoice(2, candidates=4), eligible=lambda name: name != "node:3")
    trained = strategy.configure_train(1, model(), ConfigRecord(), grid)
    assert 3 not in {message.metadata.dst_node_id for message in trained}
    with pytest.raises(fp.ContractError, match="not eligible"):
        strategy.configure_evaluate(1, model(), ConfigRecord(), grid)
    assert {kind for kind, _ in asked(grid)} == {"evaluate.probe"}
    assert 3 not in {node for _, node in asked(grid)}


def test_names_that_must_be_asked_for_are_refused() -> None:
    with pytest.raises(fp.SettingError, match="eligible, but identity = 'reported': a node would have to be asked"):
        Selected(FedAvg(), fp.Uniform(2), eligible=lambda name: True, identity="reported")
    with pytest.raises(
        fp.SettingError, match=r"eligible = \['a'\], but must be None, or a function from a client's name"
    ):
        Selected(FedAvg(), fp.Uniform(2), eligible=["a"])


def test_the_function_gets_the_name_that_identity_gives(clock: Clock) -> None:
    grid, names = world(clock), set()
    strategy = Selected(
        FedAvg(fraction_evaluate=0.0),
        fp.Uniform(2),
        identity=lambda info: f"hospital {info.node_id}",
        eligible=lambda name: names.add(name) or name == "hospital 4",
    )
    strategy.start(grid, model(), num_rounds=1)
    assert names == {f"hospital {node}" for node in NODES}
    assert strategy.roster.names == ["hospital 4"]


@pytest.mark.parametrize(
    ("eligible", "said"), [(lambda name: 1 / 0, "raised ZeroDivisionError"), (lambda name: 1, "returned 1, but must")]
)
def test_a_function_that_does_not_answer_ends_the_run_before_any_message(clock: Clock, eligible, said) -> None:
    grid = world(clock)
    with pytest.raises(fp.ContractError, match=said):
        Selected(FedAvg(), fp.Uniform(2), eligible=eligible).start(grid, model(), num_rounds=1)
    assert grid.sent == []
