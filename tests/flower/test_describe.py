"""What clients say of themselves when they are enrolled: sizes, features (masked, too), names; and embeddings."""

import numpy as np
import pytest
from fake_flower import Clock, FakeGrid, content, model, trains
from flwr.app import ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import fedpick as fp
from fedpick.flower import Selected, describe, masked

SECRET = "known to the clients alone"


def answers(said: RecordDict | Error | None, seconds: float = 0.1, **training):
    """Trains, and answers the question about itself with this."""
    train = trains(**training)

    def behave(message: Message):
        if message.metadata.message_type == "query.describe":
            return seconds, said
        return train(message)

    return behave


def told(size=None, features=None, name=None) -> RecordDict:
    metrics = {k: v for k, v in (("size", size), ("features", features)) if v is not None}
    record = RecordDict({"metrics": MetricRecord(metrics)})
    if name is not None:
        record["config"] = ConfigRecord({"client-id": name})
    return record


def selected(policy, **options):
    return Selected(FedAvg(fraction_evaluate=0.0), policy, wait=0.0, **options)


def asked(grid) -> list[int]:
    return grid.asked("query.describe")


def ask_app(app: ClientApp, **node_config):
    context = Context(1, 2, node_config, RecordDict(), {})
    return app(Message(RecordDict(), 2, "query.describe"), context)


def test_the_handler_answers_with_size_features_and_name(clock: Clock) -> None:
    app = ClientApp()

    @describe(app)
    def me(context):
        return 120, np.array([3, 4])

    reply = ask_app(app, **{"client-id": "tram 7"})
    assert dict(reply.content["metrics"]) == {"size": 120.0, "features": [3.0, 4.0]}
    assert reply.content["config"]["client-id"] == "tram 7"
    plain = ClientApp()
    describe(plain, lambda context: 7)
    reply = ask_app(plain)
    assert dict(reply.content["metrics"]) == {"size": 7.0}


def test_newcomers_are_asked_once(clock: Clock) -> None:
    grid = FakeGrid(clock, {node: answers(told(10.0 * (node + 1))) for node in range(4)})
    strategy = selected(fp.SizeWeighted(2), describe="ask")
    strategy.start(grid, model(), num_rounds=3)
    assert asked(grid) == [0, 1, 2, 3]
    grid.nodes[9] = answers(told(99.0))
    strategy.start(grid, model(), num_rounds=1)
    assert asked(grid) == [0, 1, 2, 3, 9]
    assert strategy.roster.clients.sizes.tolist() == [10.0, 20.0, 30.0, 40.0, 99.0]


def test_who_left_is_forgotten_and_so_is_what_it_said(clock: Clock) -> None:
    grid = FakeGrid(clock, {node: answers(told(10.0, name=f"tram {node}")) for node in range(4)})
    strategy = selected(
        fp.SizeWeighted(2), describe="ask", identity="reported", limits=fp.server.Limits(forget_after=2)
    )
    for fresh in range(4, 40, 4):
        strategy.start(grid, model(), num_rounds=1)
        grid.nodes = {node: answers(told(10.0, name=f"tram {node}")) for node in range(fresh, fresh + 4)}
    assert len(strategy.roster.names) <= 4 * 4
    assert len(strategy._presence._descriptions) <= 4
    assert len(strategy._presence._asked) <= 4


def test_a_restart_does_not_ask_again(clock: Clock, tmp_path) -> None:
    nodes = {node: answers(told(10.0, [1.0, float(node)])) for node in range(4)}
    policy = fp.FedGS(2, graph="features")
    first = selected(policy, describe="ask", state=tmp_path)
    first.start(FakeGrid(clock, nodes), model(), num_rounds=3)
    grid = FakeGrid(clock, nodes | {8: answers(told(5.0, [2.0, 2.0]))})
    strategy = selected(policy, describe="ask", state=tmp_path)
    np.testing.assert_array_equal(strategy.roster.clients.features, first.roster.clients.features)
    strategy.start(grid, model(), num_rounds=1)
    assert asked(grid) == [8]
    assert selected(policy, describe="ask", state=tmp_path).roster.clients.features.tolist()[-1] == [2.0, 2.0]


@pytest.mark.parametrize(
    "nonsense",
    [
        Error(2, "raised"),
        None,
        RecordDict(),
        told(-5.0, [np.nan, 1.0]),
        told(np.inf, []),
        told(1e300, [np.inf] * 2),
        told(features=[1.0] * 20_000),
        told([1.0, 2.0], 3.0),
        told(features=[1.0, 2.0, 3.0]),
        content(model()),
    ],
)
def test_nonsense_is_no_answer_and_the_client_trains_all_the_same(clock: Clock, nonsense) -> None:
    nodes = {node: answers(told(10.0, [1.0, float(node)])) for node in range(3)}
    grid = FakeGrid(clock, nodes | {3: answers(nonsense)})
    strategy = selected(fp.FedGS(4, graph="features"), describe="ask", deadline=5.0)
    strategy.start(grid, model(), num_rounds=2)
    clients = strategy.roster.clients
    assert clients.sizes.tolist() == [10.0, 10.0, 10.0, 1.0]
    assert clients.features[3].tolist() == [0.0, 0.0]
    assert strategy.last.status.tolist() == [fp.Status.DONE] * 4


def test_clients_without_the_handler_are_told_of(clock: Clock) -> None:
    missing = Error(2, "ValueError: No query function registered with name 'describe'")
    grid = FakeGrid(clock, {node: answers(missing) for node in range(3)})
    with pytest.raises(fp.MissingError, match=r"none of 3 ClientApps has a handler for 'query.describe': add fedpick"):
        selected(fp.SizeWeighted(2), describe="ask").start(grid, model(), num_rounds=1)


def test_a_policy_that_needs_features_says_so(clock: Clock) -> None:
    grid = FakeGrid(clock, {node: answers(told(10.0)) for node in range(3)})
    with pytest.raises(fp.MissingError, match=r"needs features, but none of 3 clients gave any: return \(size, featur"):
        selected(fp.FedGS(2, graph="features"), describe="ask").start(grid, model(), num_rounds=1)
    with pytest.raises(fp.MissingError, match="pass describe=function or describe='ask'"):
        selected(fp.FedGS(2, graph="features"))
    with pytest.raises(fp.SettingError, match="Selected: describe = 'tell'"):
        selected(fp.FedGS(2), describe="tell")


# -- names ------------------------------------------------------------------------------------------------------------


def test_a_reported_name_keeps_its_history_over_node_ids(clock: Clock, tmp_path) -> None:
    nodes = {node: answers(told(name=f"phone-{node}")) for node in range(4)}
    first = selected(fp.E3CS(3), identity="reported", state=tmp_path)
    first.start(FakeGrid(clock, nodes), model(), num_rounds=3)
    assert first.roster.names == [f"reported:phone-{node}" for node in range(4)]
    again = {100 + node: behaviour for node, behaviour in nodes.items()} | {7: answers(told(name=""))}
    second = selected(fp.E3CS(3), identity="reported", state=tmp_path)
    second.start(FakeGrid(clock, again), model(), num_rounds=1)
    assert second.roster.names == [*first.roster.names, "node:7"]


def test_two_that_report_one_name_go_by_their_node_ids(clock: Clock) -> None:
    grid = FakeGrid(clock, {node: answers(told(name="me")) for node in range(2)} | {5: answers(told(name="x" * 9999))})
    strategy = selected(fp.E3CS(2), identity="reported")
    strategy.start(grid, model(), num_rounds=1)
    assert strategy.roster.names == ["node:0", "node:1", "node:5"]


# -- masks ------------------------------------------------------------------------------------------------------------


@settings(max_examples=50, deadline=None)
@given(hnp.arrays(np.float64, st.tuples(st.integers(2, 6), st.integers(1, 20)), elements=st.floats(-1e3, 1e3)))
def test_masked_vectors_have_the_dot_products_of_the_unit_vectors(vectors) -> None:
    masks = np.array([masked(row, SECRET) for row in vectors])
    lengths = np.linalg.norm(vectors, axis=1)
    units = vectors / np.where(lengths > 0, lengths, 1.0)[:, None]
    np.testing.assert_allclose(masks @ masks.T, units @ units.T, atol=1e-12)


def test_a_masked_vector_says_nothing_of_the_vector_itself() -> None:
    """Over secrets, the coordinates of any vector's mask are uniform on the sphere: two vectors look alike."""
    secrets = [f"the secret number {i:05d}" for i in range(4000)]
    one = np.array([masked([1.0, 0.0, 0.0], secret) for secret in secrets])
    other = np.array([masked([0.2, 0.3, 0.5], secret) for secret in secrets])
    for seen in (one, other):  # on the sphere in 3 dimensions each coordinate is uniform on [-1, 1]
        for axis in range(3):
            assert ks_distance(seen[:, axis]) < 1.95 / np.sqrt(len(secrets))  # P < 0.1% for each of the six


def ks_distance(values: np.ndarray) -> float:
    ordered = (np.sort(values) + 1.0) / 2.0
    steps = np.arange(len(values) + 1) / len(values)
    return float(max(np.abs(ordered - steps[1:]).max(), np.abs(ordered - steps[:-1]).max()))


def test_masks_need_a_secret_and_a_vector() -> None:
    with pytest.raises(fp.SettingError, match="masked: secret, in bytes = 4, but must be at least 16"):
        masked([1.0, 2.0], "abcd")
    with pytest.raises(fp.ContractError, match=r"features has shape \(1, 2\), but must be one vector"):
        masked([[1.0, 2.0]], SECRET)
    assert not np.allclose(masked([1.0, 2.0], SECRET), masked([1.0, 2.0], SECRET + "!"))
    np.testing.assert_array_equal(masked([1.0, 2.0], SECRET), masked([1.0, 2.0], SECRET.encode()))


def test_fedgs_builds_the_same_graph_from_masked_features(clock: Clock) -> None:
    labels = np.random.default_rng(0).integers(0, 20, size=(8, 5)).astype(float)

    def run(vectors):
        grid = FakeGrid(clock, {node: answers(told(1.0, list(map(float, row)))) for node, row in enumerate(vectors)})
        strategy = selected(fp.FedGS(3, graph="features"), describe="ask")
        strategy.start(grid, model(), num_rounds=4)
        return strategy

    open_, hidden = run(labels), run([masked(row, SECRET) for row in labels])
    np.testing.assert_allclose(hidden.roster.state.distance, open_.roster.state.distance, atol=1e-9)
    assert hidden.roster.last == open_.roster.last


# -- embeddings -------------------------------------------------------------------------------------------------------


def test_functional_similarity_comes_from_the_returned_models(clock: Clock) -> None:
    grid = FakeGrid(clock, {node: trains(value=float(node)) for node in range(6)})
    calls = []

    def embed(arrays):
        w = arrays["w"].numpy()
        calls.append(w[0])
        if w[0] == 4.0:
            raise ValueError("not this one")
        return [1.0, w[0]]

    strategy = selected(fp.FedGS(6, graph="embedding"), embed=embed)
    strategy.start(grid, model(), num_rounds=1)
    assert sorted(calls) == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    vectors = strategy.roster.state.vectors
    assert vectors[:, 1][[0, 1, 2, 3, 5]].tolist() == [0.0, 1.0, 2.0, 3.0, 5.0]
    assert np.isnan(vectors[4]).all()
    distance = strategy.roster.state.distance
    assert distance[1, 2] < distance[0, 5]  # closer models, closer clients


# -- seconds ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("durations", "expected"), [("reported", 0.001), ("arrival", 4.0)])
def test_reported_seconds_can_be_left_unread(clock: Clock, durations, expected) -> None:
    def behave(message):
        return 4.0, content(model(1.0, 1.0), train_loss=0.5, seconds=0.001)

    strategy = selected(fp.BSFL(2), durations=durations)
    strategy.start(FakeGrid(clock, {0: behave, 1: behave}), model(), num_rounds=1)
    assert strategy.last.duration == pytest.approx([expected] * 2, abs=1.0 if durations == "arrival" else 0.0)


def test_bad_settings_are_said() -> None:
    with pytest.raises(fp.SettingError, match="Selected: durations = 'mine', but must be one of arrival, reported"):
        selected(fp.Uniform(2), durations="mine")
    with pytest.raises(
        fp.SettingError, match=r"Selected: limits\.checkpoint_every = 0, but must be a number of rounds"
    ):
        selected(fp.Uniform(2), limits=fp.server.Limits(checkpoint_every=0))
