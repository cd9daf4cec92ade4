"""PyTorch and JAX give the same cohorts, losses, reports and models."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch is not installed here; `make test-torch` runs this")

import jax
import optax
from networks import Cnn, Mlp, data_of, trainer_of, vector

import fedpick as fp
from fedpick import worlds
from fedpick._support.text import make
from fedpick.learn import SERVERS, servers

LINEAR = (lambda: Mlp((6,), 4, ())), fp.learn.logistic((6,), 4)
MLP = (lambda: Mlp((6,), 4)), fp.learn.mlp((6,), 4, hidden=(7, 5))
CNN = Cnn, fp.learn.cnn((10, 9, 2), 4, channels=(3,), hidden=(8,), kernel=3)
REGRESSION = (lambda: Mlp((6,), 1)), fp.learn.mlp((6,), 1, hidden=(7, 5))
MODELS = {
    "linear": ("floats", LINEAR),
    "mlp": ("floats", MLP),
    "cnn": ("images", CNN),
    "numbers": ("regression", REGRESSION),
}


@pytest.fixture
def double() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def runs(name: str, policy: Any, pace: Any = None, **settings: Any) -> tuple[fp.Run, fp.Run]:
    """The same run with both backends, from the same weights."""
    kind, (module, model) = MODELS[name]
    late = settings.pop("late", 0)
    world = replace(worlds.named("volatile", len(data_of(kind))), clients=data_of(kind).clients, late=late)
    ours, theirs = (
        fp.Run(
            policy(), world, seed=3, trainer=trainer_of(kind, each, **{"precision": "float64", **settings}), pace=pace
        )
        for each in (module, model)
    )
    ours.state.model["params"]["weights"] = vector(theirs.state.model["params"])
    return ours, theirs


def check(ours: fp.Run, theirs: fp.Run, rounds: int = 20) -> None:
    """Raise unless both play the same rounds, to 1e-5."""
    for mine, other in zip(ours.rounds(rounds), theirs.rounds(rounds), strict=True):
        np.testing.assert_array_equal(mine.ids, other.ids)
        np.testing.assert_array_equal(mine.status, other.status)
        np.testing.assert_allclose(mine.loss, other.loss, rtol=1e-5, atol=1e-5)
        assert mine.metrics.keys() == other.metrics.keys()
        for key, value in mine.metrics.items():
            assert value == pytest.approx(other.metrics[key], abs=1e-5), key
    np.testing.assert_allclose(
        ours.state.model["params"]["weights"], vector(theirs.state.model["params"]), rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("name", MODELS)
def test_twenty_rounds(name: str, double: None) -> None:
    check(*runs(name, lambda: fp.PowerOfChoice(3, candidates=6), momentum=0.9, weight_decay=0.01, prox=0.1))


WIDE = ("update_norm", "squared_loss", "accuracy", "update", "output_update", "embedding")
POLICIES = {
    "losses": (lambda: fp.ActiveFL(3), {}),
    "norms": (lambda: fp.OptimalSampling(3), {}),
    "embeddings": (lambda: fp.FedGS(3), {"reports": WIDE}),
    "output layer": (lambda: fp.HiCS(3), {"reports": WIDE}),
    "squared losses": (lambda: fp.Oort(3), {"reports": WIDE}),
    "values": (lambda: fp.GreedyFed(3), {"reports": ("update_norm", "shapley")}),
    "late": (lambda: fp.REFL(3), {"late": 2}),
    "server": (lambda: fp.Uniform(3), {"server": "fedadam(lr=0.1)", "aggregation": "mean"}),
    "memory": (lambda: fp.Uniform(3), {"aggregation": "fedau", "server": "fedavgm(lr=0.7)"}),
    "scaffold": (lambda: fp.Uniform(3), {"algorithm": "scaffold", "aggregation": "mean"}),
    "feddyn": (lambda: fp.OverSelect(fp.Uniform(2), 1.5), {"algorithm": "feddyn(alpha=0.3)", "momentum": 0.5}),
    "fednova": (lambda: fp.Uniform(3), {"algorithm": "fednova", "momentum": 0.5, "prox": 0.1}),
    "metrics": (lambda: fp.Uniform(3), {"server": "fedyogi(lr=0.02)", "metrics": ("macro_f1", "auroc", "perplexity")}),
}


@pytest.mark.parametrize("what", POLICIES)
def test_what_policies_get(what: str, double: None) -> None:
    policy, settings = POLICIES[what]
    check(*runs("mlp", policy, **settings), rounds=8)


@pytest.mark.parametrize("mixing", [None, "polynomial"])
def test_asynchronous(mixing: str | None, double: None) -> None:
    pace = fp.Buffered(concurrency=4, size=1 if mixing else 2, mixing=mixing)
    check(*runs("mlp", lambda: fp.Uniform(4), pace), rounds=10)


def test_all_reports_are_equal(double: None) -> None:
    """Also those that no policy above was given."""
    ours, theirs = runs("linear", lambda: fp.Uniform(3), reports=WIDE)
    ids, used, epochs = np.arange(4), np.array([True, True, False, True]), np.array([1.0, 2.0, 1.0, 3.0])
    one, other = (
        run.trainer.train(run.state.model, ids, used, epochs, 1, np.random.default_rng(1)) for run in (ours, theirs)
    )
    assert one.reports.keys() == other.reports.keys() == set(WIDE)
    for name in set(WIDE) - {"update"}:
        np.testing.assert_allclose(one.reports[name], other.reports[name], rtol=1e-5, atol=1e-6, err_msg=name)
    angles = [report @ report.T for report in (np.nan_to_num(each.reports["update"]) for each in (one, other))]
    np.testing.assert_allclose(*angles, rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(one.loss, other.loss, rtol=1e-6)


TEXTS = "fedavgm(lr=0.7, momentum=0.8)", "fedadam(lr=0.1, eps=0.01)", "fedyogi(lr=0.1)", "fedadagrad(lr=0.1, eps=0.01)"


@pytest.mark.parametrize("text", TEXTS)
def test_servers_are_those_of_optax(text: str) -> None:
    """Ten steps of a vector with zeros, small and large entries."""
    ours, theirs = (make(text, "server", each, values={}, example="") for each in (servers.SERVERS, SERVERS))
    rng = np.random.default_rng(5)
    weights = other = rng.normal(size=30)
    state, with_jax = ours.init(weights), theirs.init(other)
    with jax.enable_x64(True):
        for _ in range(10):
            step = rng.normal(size=30) * 10.0 ** rng.integers(-4, 2, 30) * rng.integers(0, 2, 30)
            weights, state = ours.move(weights, state, step)
            change, with_jax = theirs.update(-step, with_jax, other)
            other = optax.apply_updates(other, change)
            np.testing.assert_allclose(weights, other, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_float32_differs_by_rounding(name: str) -> None:
    """Twenty rounds of 3 clients: some 100 roundings in a row, each of at most half of 1.2e-7; measured were 4e-7."""
    ours, theirs = runs(name, lambda: fp.Uniform(3), precision="float32", momentum=0.9)
    for run in (ours, theirs):
        list(run.rounds(20))
    mine, other = ours.state.model["params"]["weights"], vector(theirs.state.model["params"])
    assert mine.dtype == other.dtype == np.float32
    assert np.linalg.norm(mine - other) < 100 * np.finfo(np.float32).eps / 2 * np.linalg.norm(other)
