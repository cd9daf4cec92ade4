"""`Selected` against a grid in memory: who trains, how each round ends, what the policy learns."""

import math
from functools import cache
from inspect import signature

import numpy as np
import pytest
from fake_flower import Behaviour, Clock, FakeGrid, content, model, replies, trains
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, MetricRecord
from flwr.serverapp.strategy import (
    DifferentialPrivacyServerSideFixedClipping,
    FedAdam,
    FedAvg,
    FedProx,
    FedTrimmedAvg,
)

import fedpick as fp
from fedpick.flower import NotEnoughClientsError, Selected

DONE, LATE, FAILED, SURPLUS = fp.Status


def base(**options):
    return FedAvg(fraction_evaluate=0.0, **options)


def statuses(strategy: Selected, grid: FakeGrid) -> dict[int, fp.Status]:
    """Status by node id, in the last round."""
    nodes = {f"node:{node}": node for node in grid.nodes}
    names = strategy.roster.names
    record = strategy.last
    assert record is not None
    pairs = zip(record.ids, record.status, strict=True)
    return {nodes.get(names[k], names[k]): fp.Status(status) for k, status in pairs}


def run(strategy: Selected, grid: FakeGrid, rounds: int = 1, **options):
    return strategy.start(grid, model(), num_rounds=rounds, **options)


@pytest.mark.parametrize("make", [FedAvg, FedProx, FedAdam, FedTrimmedAvg])
def test_the_policy_chooses_and_the_base_aggregates(clock: Clock, make) -> None:
    grid = FakeGrid(clock, {node: trains(value=2.0) for node in range(10, 30)})
    inner = make(fraction_train=0.1, fraction_evaluate=0.5, min_train_nodes=7, min_available_nodes=20)
    strategy = Selected(inner, fp.Uniform(cohort_size=5))
    result = run(strategy, grid, rounds=3)
    assert len(grid.asked()) == 15
    assert len(grid.asked("evaluate")) == 30
    assert set(statuses(strategy, grid).values()) == {DONE}
    assert sorted(result.train_metrics_clientapp) == [1, 2, 3]
    assert sorted(result.evaluate_metrics_clientapp) == [1, 2, 3]
    assert (inner.fraction_train, inner.min_train_nodes, inner.min_available_nodes) == (0.1, 7, 20)
    if make is FedAvg:
        assert result.arrays["w"].numpy().tolist() == [2.0, 2.0]
    if make is FedProx:
        assert "proximal-mu" in grid.sent[0].content["config"]
    assert "configure_train" not in vars(inner)


def test_the_choice_is_that_of_the_policy_alone(clock: Clock) -> None:
    policy = fp.E3CS(cohort_size=4, quota=0.5)
    grid = FakeGrid(clock, {node: trains() for node in range(12)})
    run(Selected(base(), policy, seed=3), grid)
    view = fp.View(1, np.ones(12, dtype=bool), fp.Clients(np.ones(12)))
    choice = policy.select(policy.init(view.clients), view, fp.rng.stream(3, 1, "policy"))
    assert sorted(grid.asked()) == sorted(choice.ids.tolist())


def test_each_fault_is_the_right_status_of_the_right_client(clock: Clock) -> None:
    nan = content(model(math.nan, 1.0), train_loss=0.5)
    faults: dict[int, Behaviour] = {
        11: trains(seconds=2.0),
        12: replies(Error(2, "ClientApp raised"), 1.0),
        13: replies(Error(5, "node lost"), 3.0),
        14: replies(None),
        15: trains(seconds=50.0),
        16: replies(nan, 1.0),
        17: trains(train_loss=math.nan),
        18: trains(seconds=3.0, train_loss=0.7),
        19: trains(),
    }
    grid = FakeGrid(clock, faults)
    grid.refuses = {19}
    strategy = Selected(base(), fp.E3CS(cohort_size=9), deadline=10.0)
    result = run(strategy, grid)
    assert statuses(strategy, grid) == {
        11: DONE,
        12: FAILED,
        13: FAILED,
        14: LATE,
        15: LATE,
        16: FAILED,
        17: FAILED,
        18: DONE,
        19: FAILED,
    }
    record = strategy.last
    names = strategy.roster.names
    by = {names[k]: (d, loss) for k, d, loss in zip(record.ids, record.duration, record.loss, strict=True)}
    assert by["node:11"] == (pytest.approx(2.0, abs=1.0), 0.5)
    assert by["node:18"] == (pytest.approx(3.0, abs=1.0), 0.7)
    assert by["node:14"][0] == by["node:15"][0] == 10.0
    assert math.isnan(by["node:12"][0])
    assert math.isnan(by["node:16"][1])
    assert result.arrays["w"].numpy().tolist() == [1.0, 1.0]
    assert record.seconds == pytest.approx(10.0, abs=0.1)
    assert all(message.metadata.ttl == 10.0 for message in grid.sent)


def test_a_policy_learns_who_crashes(clock: Clock) -> None:
    grid = FakeGrid(clock, {node: trains() for node in range(6)})
    grid.nodes[3] = replies(Error(2, "raised"))
    strategy = Selected(base(), fp.E3CS(cohort_size=3, quota=0.2))
    run(strategy, grid, rounds=40)
    weights = strategy.roster.state.log_weights
    assert weights[strategy.roster.index["node:3"]] == weights.min()
    assert (np.delete(weights, strategy.roster.index["node:3"]) > weights.min()).all()


def test_a_round_closes_when_all_have_answered_or_failed(clock: Clock) -> None:
    grid = FakeGrid(clock, {1: trains(), 2: replies(Error(2, "raised"))})
    strategy = Selected(base(), fp.Uniform(cohort_size=2), deadline=500.0)
    run(strategy, grid)
    assert strategy.last.seconds < 3.0


def test_without_a_deadline_the_timeout_of_start_holds(clock: Clock) -> None:
    grid = FakeGrid(clock, {1: trains(), 2: replies(None)})
    strategy = Selected(base(), fp.Uniform(cohort_size=2))
    run(strategy, grid, timeout=30.0)
    assert statuses(strategy, grid) == {1: DONE, 2: LATE}
    assert strategy.last.seconds == pytest.approx(30.0, abs=0.1)
    assert grid.sent[0].metadata.ttl == 30.0


def test_without_either_a_probe_is_waited_for_as_long_as_start_waits_unless_told(clock: Clock) -> None:
    """Also in a loop of one's own, which has no start."""
    grid = FakeGrid(clock, {1: trains(probe=0.5), 2: replies(None)})
    strategy, begun = Selected(base(), fp.PowerOfChoice(1, candidates=2)), clock.now
    list(strategy.configure_train(1, model(), ConfigRecord(), grid))
    usual = signature(FedAvg.start).parameters["timeout"].default
    assert clock.now - begun == pytest.approx(usual, abs=0.9)


def test_an_expired_message_is_late_and_not_an_error_for_the_base(clock: Clock) -> None:
    grid = FakeGrid(clock, {1: trains(), 2: trains(), 3: replies(Error(3, "expired"), 9.99)})
    inner = base()
    handed = []
    inner.train_metrics_aggr_fn = lambda records, key: handed.append(len(records)) or MetricRecord()
    strategy = Selected(inner, fp.Uniform(cohort_size=3), deadline=10.0)
    run(strategy, grid)
    assert statuses(strategy, grid) == {1: DONE, 2: DONE, 3: LATE}
    assert handed == [2]


def test_over_selection_hands_on_the_first_that_answer(clock: Clock) -> None:
    grid = FakeGrid(clock, {node: trains(seconds=float(node), value=float(node)) for node in range(1, 7)})
    strategy = Selected(base(), fp.OverSelect(fp.Uniform(cohort_size=4), 1.5))
    result = run(strategy, grid)
    assert statuses(strategy, grid) == {1: DONE, 2: DONE, 3: DONE, 4: DONE, 5: SURPLUS, 6: SURPLUS}
    assert result.arrays["w"].numpy().tolist() == [2.5, 2.5]


def test_replies_of_one_look_are_taken_in_the_order_in_which_their_messages_were_sent(clock: Clock) -> None:
    grid = FakeGrid(clock, {node: trains(train_loss=float(node)) for node in range(1, 31)})
    inner, handed = base(), []
    inner.train_metrics_aggr_fn = lambda records, key: (
        handed.extend(record["metrics"]["train_loss"] for record in records) or MetricRecord()
    )
    run(Selected(inner, fp.OverSelect(fp.Uniform(cohort_size=20), 1.5)), grid)
    assert handed == [float(message.metadata.dst_node_id) for message in grid.sent[:20]]


def test_reported_seconds_count_where_they_are_sane(clock: Clock) -> None:
    said = {1: 0.25, 2: -3.0, 3: math.inf, 4: 1e9, 5: [1.0]}
    answers = {node: content(model(1.0, 1.0), train_loss=0.5, seconds=value) for node, value in said.items()}
    grid = FakeGrid(clock, {node: replies(answer, 2.0) for node, answer in answers.items()})
    strategy = Selected(base(), fp.Uniform(cohort_size=5), deadline=60.0, durations="reported")
    run(strategy, grid)
    names = strategy.roster.names
    took = {names[k]: d for k, d in zip(strategy.last.ids, strategy.last.duration, strict=True)}
    assert took["node:1"] == 0.25
    assert all(1.9 < took[f"node:{node}"] < 3.5 for node in (2, 3, 4))
    assert math.isnan(took["node:5"])  # a list where the others have a number: not aggregable


@pytest.mark.parametrize(
    "hostile",
    [
        content(model(1.0, 1.0), train_loss=1e300),
        content(model(1.0, 1.0), train_loss=2**62),
        content(model(1.0, 1.0), train_loss=0.5, node_id=4, client=2),
        # made in the test and once, because making them takes seconds
        pytest.param(cache(lambda: content(model(1.0, 1.0), **{f"m{i}": float(i) for i in range(200_000)})), id="many"),
        pytest.param(cache(lambda: content(model(1.0, 1.0), train_loss=[0.1] * 1_300_000)), id="long"),
        content(model(1.0, 1.0)),
        content(model(1.0, 1.0), train_loss=0.5, num_examples=0),
        content(model(1.0, 1.0), train_loss=0.5, num_examples=-5),
        content(model(1.0, 1.0), train_loss=0.5, num_examples=math.nan),
        content(model(1.0, 1.0), train_loss=0.5, num_examples=[1, 2]),
        content(model(1.0, 1.0, 1.0), train_loss=0.5),
        content(ArrayRecord({"other": Array(np.ones(2))}), train_loss=0.5),
        content(ArrayRecord({"w": Array("float64", (2,), "numpy.ndarray", b"junk")}), train_loss=0.5),
        content(ArrayRecord({"w": Array("float64", (2,), "my.form", b"junk")}), train_loss=0.5),
        content(ArrayRecord({"w": Array(np.array(["a", "b"]))}), train_loss=0.5),
        content(train_loss=0.5),
        content(model(math.inf, 1.0), train_loss=0.5),
        content(model(1.0, 1.0), train_loss=0.5, embedding=[1.0, 2.0, 3.0]),
    ],
    ids=lambda record: " ".join(record)[:20],
)
@pytest.mark.parametrize("policy", [fp.PowerOfChoice(cohort_size=5, variant="rpow-d"), fp.BSFL(5), fp.FedGS(5)])
def test_a_hostile_client_harms_only_itself(clock: Clock, hostile, policy) -> None:
    grid = FakeGrid(clock, {node: trains() for node in range(1, 6)})
    grid.nodes[3] = replies(hostile() if callable(hostile) else hostile)
    strategy = Selected(base(), policy, deadline=10.0)
    result = run(strategy, grid, rounds=2)
    assert {node: s for node, s in statuses(strategy, grid).items() if node != 3} == dict.fromkeys((1, 2, 4, 5), DONE)
    assert result.arrays["w"].numpy().tolist() == pytest.approx([1.0, 1.0])
    others = [at for name, at in strategy.roster.index.items() if name != "node:3"]
    if isinstance(policy, fp.PowerOfChoice):
        assert strategy.roster.state.loss[others].tolist() == [0.5] * 4


def test_a_hostile_evaluation_does_not_end_the_server(clock: Clock) -> None:
    grid = FakeGrid(clock, {node: trains() for node in range(1, 6)})
    grid.nodes[2] = lambda message: (
        trains()(message) if message.metadata.message_type == "train" else (0.1, content(other=[1.0, 2.0]))
    )
    result = run(Selected(FedAvg(), fp.Uniform(cohort_size=3)), grid)
    assert result.evaluate_metrics_clientapp[1]["accuracy"] == pytest.approx(0.9)


def test_everyone_fails_and_training_goes_on(clock: Clock) -> None:
    grid = FakeGrid(clock, {node: replies(Error(2, "raised")) for node in range(4)})
    for policy in fp.E3CS(cohort_size=2, reward="usefulness"), fp.Uniform(cohort_size=2), fp.FedGS(2):
        strategy = Selected(base(), policy)
        run(strategy, grid, rounds=3)
        assert strategy.round == 3


def test_a_reply_nobody_asked_for_is_ignored(clock: Clock) -> None:
    grid = FakeGrid(clock, {1: trains(), 2: trains()})
    strategy = Selected(base(), fp.Uniform(cohort_size=2))
    messages = list(strategy.configure_train(1, model(), ConfigRecord(), grid))
    grid.push_messages(messages)
    clock.sleep(5.0)
    found = list(grid.pull_messages([m.metadata.message_id for m in messages]))
    found[1].metadata.__dict__["_reply_to_message_id"] = "m77"
    strategy.aggregate_train(1, [*found, found[0]])  # one of them twice
    assert sorted(strategy.last.status.tolist()) == [DONE, LATE]


def test_a_loop_of_ones_own_works_without_start(clock: Clock) -> None:
    grid = FakeGrid(clock, {node: trains() for node in range(5)})
    strategy = Selected(base(), fp.E3CS(cohort_size=3), deadline=7.0)
    for round in 1, 2:
        messages = list(strategy.configure_train(round, model(), ConfigRecord(), grid))
        assert {m.metadata.ttl for m in messages} == {7.0}
        names = grid.push_messages(messages)
        clock.sleep(2.0)
        arrays, _ = strategy.aggregate_train(round, grid.pull_messages(names))
        assert arrays["w"].numpy().tolist() == [1.0, 1.0]
        assert strategy.last.status.tolist() == [DONE] * 3


def test_a_base_with_a_start_of_its_own(clock: Clock) -> None:
    class Mine(FedAvg):
        def start(self, grid, initial_arrays, **options):
            self.started = True
            return super().start(grid, initial_arrays, **options)

    inner = Mine(fraction_evaluate=0.0)
    grid = FakeGrid(clock, {node: trains() for node in range(9)})
    run(Selected(inner, fp.Uniform(cohort_size=3)), grid, rounds=2)
    assert inner.started
    assert len(grid.asked()) == 6


def test_differential_privacy_inside(clock: Clock) -> None:
    grid = FakeGrid(clock, {node: trains() for node in range(6)})
    private = DifferentialPrivacyServerSideFixedClipping(base(), 0.0, 10.0, num_sampled_clients=3)
    strategy = Selected(private, fp.E3CS(cohort_size=3))
    assert run(strategy, grid).arrays["w"].numpy().tolist() == [1.0, 1.0]
    # One update that is not a number: the wrapper hears of a failure and drops the round, as for any other.
    for node in grid.nodes:
        grid.nodes[node] = replies(content(model(math.nan, 0.0), train_loss=0.5))
    assert run(strategy, grid).arrays == {} or run(strategy, grid).arrays is None


def test_clients_come_go_and_keep_their_history(clock: Clock) -> None:
    keys = {node: f"key {node % 10}".encode() for node in range(100)}
    grid = FakeGrid(clock, {node: trains() for node in range(3)}, keys)
    strategy = Selected(base(), fp.BSFL(cohort_size=3))
    run(strategy, grid)
    first = list(strategy.roster.names)
    assert all(name.startswith("key:") for name in first)
    grid.nodes = {node: trains() for node in (11, 12, 13)}  # 1 and 2 with new node ids, 0 gone, 3 new
    run(strategy, grid)
    assert strategy.roster.names[:3] == first
    assert len(strategy.roster.names) == 4
    assert strategy.last.available == 3
    counts = dict(zip(strategy.roster.names, strategy.roster.state.counts.tolist(), strict=True))
    assert list(counts.values()) == [1, 2, 2, 1]


def test_nodes_that_share_an_identity_go_by_node_id(clock: Clock) -> None:
    grid = FakeGrid(clock, {node: trains() for node in range(1, 5)}, {1: b"same", 2: b"same", 3: b"other"})
    strategy = Selected(base(), fp.Uniform(cohort_size=4))
    run(strategy, grid)
    assert [name for name in strategy.roster.names if name.startswith("node:")] == ["node:1", "node:2", "node:4"]


def test_other_identities(clock: Clock) -> None:
    grid = FakeGrid(clock, {node: trains() for node in (30, 20, 10)}, {10: b"a", 20: b"b"})
    for identity, names in {
        "node-id": ["node:30", "node:20", "node:10"],
        "simulation": ["partition:0", "partition:1", "partition:2"],
        lambda node: f"site {node.node_id}": ["site 30", "site 20", "site 10"],
    }.items():
        strategy = Selected(base(), fp.Uniform(cohort_size=3), identity=identity)
        run(strategy, grid)
        assert strategy.roster.names == names


def test_too_few_clients(clock: Clock) -> None:
    grid = FakeGrid(clock, {1: trains(), 2: trains()})
    before = clock.now
    strategy = Selected(base(min_available_nodes=50), fp.Uniform(cohort_size=5), wait=30.0)
    run(strategy, grid, rounds=3)
    assert len(grid.asked()) == 6
    assert 30.0 <= clock.now - before < 40.0  # once, not in every round
    with pytest.raises(NotEnoughClientsError, match=r"2 clients .* after 30 s, but the policy asks for 5"):
        run(Selected(base(), fp.Uniform(cohort_size=5), wait=30.0, too_few="error"), grid)
    grid.nodes = {}
    with pytest.raises(NotEnoughClientsError, match="no client was connected for 60 s"):
        run(Selected(base(), fp.Uniform(cohort_size=5)), grid)


def test_waiting_ends_when_they_come(clock: Clock) -> None:
    grid = FakeGrid(clock, {1: trains()})
    clock.events.append((clock.now + 5.0, lambda: grid.nodes.update({2: trains(), 3: trains()})))
    strategy = Selected(base(), fp.Uniform(cohort_size=3), too_few="error")
    run(strategy, grid)
    assert strategy.last.available == 3


def test_all_leave_before_the_evaluation(clock: Clock) -> None:
    grid = FakeGrid(clock, {1: trains(), 2: trains()})
    clock.events.append((clock.now + 0.5, grid.nodes.clear))
    result = run(Selected(FedAvg(), fp.Uniform(cohort_size=2)), grid)
    assert result.evaluate_metrics_clientapp == {}
    assert sorted(result.train_metrics_clientapp) == [1]


def test_with_replacement_a_client_drawn_twice_trains_once(clock: Clock) -> None:
    grid = FakeGrid(clock, {1: trains(), 2: trains()})
    strategy = Selected(base(), fp.SizeWeighted(cohort_size=6), wait=0)
    run(strategy, grid)
    assert strategy.last.ids.tolist() == [0, 1]
    assert strategy.last.messages == 4
    assert sorted(grid.asked()) == [1, 2]


def test_a_policy_may_choose_nobody(clock: Clock) -> None:
    grid = FakeGrid(clock, {1: trains(), 2: trains()})
    policy = fp.FedCS(deadline=1.0, times=lambda clients: np.full(len(clients), 9.0))
    strategy = Selected(base(), policy)
    run(strategy, grid, rounds=2)
    assert (strategy.round, grid.sent) == (2, [])


def test_context_and_descriptions(clock: Clock) -> None:
    grid = FakeGrid(clock, {node: trains() for node in range(6)})
    seen = []

    def context(round, names, idle):
        seen.append((round, int(idle.sum())))
        return np.column_stack([np.ones(len(names)), idle, np.full(len(names), 0.1)])

    run(Selected(base(), fp.RBCSF(cohort_size=2), context=context), grid, rounds=2)
    assert seen == [(1, 6), (2, 4)]
    features = {f"node:{node}": [float(node % 2), 1.0 - node % 2] for node in range(6)}
    policy = fp.FedGS(cohort_size=2, graph="features")
    describe = lambda names: fp.Clients(np.full(len(names), 7.0), features=[features[n] for n in names])  # noqa: E731
    strategy = Selected(base(), policy, describe=describe)
    run(strategy, grid)
    assert len({int(k) % 2 for k in strategy.last.ids}) == 2
    assert strategy.roster.clients.sizes.tolist() == [7.0] * 6
    with pytest.raises(fp.MissingError, match="context=function"):
        Selected(base(), fp.RBCSF(cohort_size=2))
    with pytest.raises(fp.MissingError, match="describe=function"):
        Selected(base(), policy)
    with pytest.raises(fp.ContractError, match="returned 1 clients for 6 names"):
        run(Selected(base(), policy, describe=lambda names: fp.Clients([1.0], features=[[1.0]])), grid)


def test_settings_are_checked() -> None:
    with pytest.raises(fp.SettingError, match="deadline = 0"):
        Selected(base(), fp.Uniform(2), deadline=0)
    with pytest.raises(fp.SettingError, match="wait = -1"):
        Selected(base(), fp.Uniform(2), wait=-1)
    with pytest.raises(fp.SettingError, match="too_few = 'none'"):
        Selected(base(), fp.Uniform(2), too_few="none")
    with pytest.raises(fp.UnknownNameError, match="did you mean 'registered'"):
        Selected(base(), fp.Uniform(2), identity="registred")
    with pytest.raises(fp.ContractError, match=r"flwr\.serverapp\.strategy"):
        Selected("fedavg", fp.Uniform(2))


def test_the_record_counts_messages_and_megabytes(clock: Clock) -> None:
    grid = FakeGrid(clock, {node: trains() for node in range(4)})
    strategy = Selected(base(), fp.E3CS(cohort_size=2))
    run(strategy, grid, rounds=2)
    record = strategy.last
    assert (record.round, record.available, record.messages) == (2, 4, 4)
    assert record.megabytes > 0
    assert record.clock > record.seconds > 0
    assert ((record.inclusion > 0) & (record.inclusion < 1)).all()
