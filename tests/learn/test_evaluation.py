"""What is measured, against NumPy: losses, accuracy, spread over clients and probes."""

from typing import Any

import numpy as np
import pytest
import twin
from hypothesis import given
from hypothesis import strategies as st
from small_data import BATCH, SIZES, data_of, model_of

from fedpick import learn
from fedpick.core.rng import stream
from fedpick.data import Dataset, Federated
from fedpick.learn import evaluation
from fedpick.learn.trainer import Trainer

pytestmark = pytest.mark.usefixtures("quick_start")


def each(trainer: Trainer, model: Any, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The twin's losses and hits."""
    out = twin.Network().outputs(twin.double(model["params"]), twin.inputs_of(trainer.data.dataset, x))
    return twin.losses(out, y), (out.argmax(axis=1) == y).astype(float)


def small_chunks(kind: str) -> learn.Model:
    """A model that evaluates 7 examples at once, so that blocks are many and the last is not full."""
    whole = model_of(kind)
    return learn.Model(whole.init, whole.apply, whole.name, chunk=7)


@pytest.mark.parametrize("held", [0, 2])
@pytest.mark.parametrize("kind", ["floats", "images", "regression"])
def test_evaluation(kind: str, held: int) -> None:
    data = data_of(kind, held)
    trainer = Trainer(data, small_chunks(kind), evaluate_every=1)
    model, dataset = trainer.init(2), data.dataset
    found = trainer.evaluate(model, 1)

    test, right = each(trainer, model, dataset.test_x, dataset.test_y)
    loss, hits = each(trainer, model, dataset.x, dataset.y)
    wanted = {"test_loss": test.mean(), "train_loss": loss[data.examples].mean()}
    if dataset.classes:
        own = data.held_of if held else data.examples_of
        rates = np.array([hits[own(k)].mean() for k in range(len(data))])
        assert trainer.accuracies(model, 1) == pytest.approx(rates)
        rates.sort()
        wanted |= {"accuracy": right.mean(), "spread": rates.std(), "worst_decile": rates[0]}
    else:
        assert trainer.accuracies(model, 1) is None
    assert found == pytest.approx(wanted, rel=1e-5, abs=1e-6)


def test_the_worst_decile_of_many_clients() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(64, 6)).astype(np.float32), rng.integers(0, 4, 64, dtype=np.int32)
    data = Federated(Dataset("many", x, y, classes=4), rng.permutation(64), np.append(np.arange(0, 64, 2), 64))
    trainer = Trainer(data, small_chunks("floats"), evaluate_every=1)
    model = trainer.init(0)
    found = trainer.evaluate(model, 1)
    hits = each(trainer, model, x, y)[1]
    rates = np.sort([hits[data.examples_of(k)].mean() for k in range(32)])
    assert found["worst_decile"] == pytest.approx(rates[:3].mean())
    assert "test_loss" not in found  # nothing is held out anywhere


def test_without_a_test_set_the_clients_own_held_out_examples_are_it() -> None:
    with_test = data_of("floats", 2)
    data = Federated(
        Dataset("own", with_test.dataset.x, with_test.dataset.y, classes=4),
        with_test.examples,
        with_test.starts,
        with_test.held,
        with_test.held_starts,
    )
    trainer = Trainer(data, small_chunks("floats"), evaluate_every=1, spread_every=0)
    model = trainer.init(2)
    loss, hits = each(trainer, model, data.dataset.x[data.held], data.dataset.y[data.held])
    assert trainer.evaluate(model, 1) == pytest.approx({"test_loss": loss.mean(), "accuracy": hits.mean()}, rel=1e-5)


def test_rounds_of_evaluation() -> None:
    trainer = Trainer(data_of("floats"), small_chunks("floats"), evaluate_every=2, spread_every=4)
    model = trainer.init(2)
    assert [sorted(trainer.evaluate(model, round)) for round in (1, 2, 3)] == [[], ["accuracy", "test_loss"], []]
    assert [trainer.accuracies(model, round) is None for round in (3, 4)] == [True, False]
    assert sorted(trainer.evaluate(model, 4)) == ["accuracy", "spread", "test_loss", "train_loss", "worst_decile"]


@pytest.mark.parametrize("kind", ["floats", "images", "regression"])
def test_a_probe_of_all_data(kind: str) -> None:
    trainer = Trainer(data_of(kind), small_chunks(kind))
    model, dataset = trainer.init(3), trainer.data.dataset
    ids = np.array([6, 2, 0, 5])
    loss = each(trainer, model, dataset.x, dataset.y)[0]
    wanted = [loss[trainer.data.examples_of(k)].mean() for k in ids]
    np.testing.assert_allclose(trainer.probe(model, ids, None, stream(0, 1, "probe")), wanted, rtol=1e-5)


def test_a_probe_of_a_mini_batch() -> None:
    trainer = Trainer(data_of("floats"), small_chunks("floats"))
    model, dataset = trainer.init(3), trainer.data.dataset
    ids = np.array([6, 2, 0, 5, 0])
    loss = each(trainer, model, dataset.x, dataset.y)[0]
    rng = stream(0, 1, "probe")
    drawn = [twin.batches(trainer.data, k, 1, 5, 1, rng.random)[0] for k in ids]
    assert [len(part) for part in drawn] == [5, 1, 5, 1, 5]
    wanted = [loss[part].mean() for part in drawn]
    np.testing.assert_allclose(trainer.probe(model, ids, 5, stream(0, 1, "probe")), wanted, rtol=1e-5)


def test_nobody_is_probed() -> None:
    trainer = Trainer(data_of("floats"), small_chunks("floats"))
    for batch in (None, 4):
        assert trainer.probe(trainer.init(3), np.empty(0, np.int64), batch, stream(0, 1, "probe")).shape == (0,)


@given(st.lists(st.lists(st.floats(-100, 100), max_size=5), min_size=1, max_size=8))
def test_segment_means(parts: list[list[float]]) -> None:
    values = np.array([value for part in parts for value in part], dtype=float)
    starts = np.concatenate([[0], np.cumsum([len(part) for part in parts])]).astype(np.int64)
    wanted = [np.mean(part) if part else np.nan for part in parts]
    np.testing.assert_allclose(evaluation.segment_means(values, starts), wanted, rtol=1e-12, atol=1e-12)


def test_sizes_are_ragged() -> None:
    assert (SIZES == 1).any()
    assert (SIZES > BATCH).any()
