"""`fedpick.learn.OwnTrainer`: what a user does not write is done as for fedpick's own models."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import fedpick as fp
from fedpick import worlds
from fedpick.data import Dataset, Federated
from fedpick.learn import OwnTrainer

SIZES = np.array([20, 3, 1, 8, 13, 1, 9, 16])


def data_of(regression: bool = False) -> Federated:
    rng = np.random.default_rng(7)
    total = int(SIZES.sum())
    x, test = (rng.normal(size=(n, 6)).astype(np.float32) for n in (total, 40))
    true = rng.normal(size=(6, 4))
    y, test_y = ((each @ true).argmax(axis=1).astype(np.int32) for each in (x, test))
    if regression:
        y, test_y = ((each @ true[:, 0]).astype(np.float32) for each in (x, test))
    starts = np.concatenate([[0], np.cumsum(SIZES)])
    return Federated(Dataset("mine", x, y, test, test_y, 0 if regression else 4), rng.permutation(total), starts)


class Softmax(OwnTrainer):
    """The twin of a linear model that fedpick trains: SGD by hand."""

    def first(self, seed: int) -> Any:
        return {"w": np.zeros((6, 4)), "b": np.zeros(4), "steps": np.array(3)}

    def fit(self, weights: Any, batches: Any, lr: float, seed: int) -> Any:
        seen = total = 0.0
        for x, y in batches:
            outputs = self.predict(weights, x)
            shares = np.exp(outputs) / np.exp(outputs).sum(axis=1, keepdims=True)
            total, seen = total + self.losses(outputs, y).sum(), seen + len(y)
            slope = (shares - np.eye(4)[y]) / len(y)
            weights["w"] -= lr * x.T @ slope
            weights["b"] -= lr * slope.sum(axis=0)
        return weights, total / seen

    def predict(self, weights: Any, x: Any) -> Any:
        return x @ weights["w"] + weights["b"]


def same_start(trainer: Any, model: Any) -> Any:
    """The linear model of fedpick with weights 0."""
    model["params"] = [{name: np.zeros_like(part) for name, part in layer.items()} for layer in model["params"]]
    return model


REPORTS = ("update_norm", "squared_loss", "accuracy", "update", "output_update", "embedding", "shapley", "sketch_8")
CASES: dict[str, Any] = {
    "reports": (lambda: fp.Oort(3), {"reports": REPORTS}, {}),
    "norms": (lambda: fp.OptimalSampling(3), {"aggregation": "fedavg"}, {}),
    "probes": (
        lambda: fp.PowerOfChoice(3, candidates=6),
        {"metrics": ("macro_f1", "auroc"), "aggregation": "mean"},
        {},
    ),
    "late": (lambda: fp.REFL(3), {}, {"late": 2}),
    "server": (lambda: fp.Uniform(3), {"server": "fedadam(lr=0.1)"}, {}),
    "asynchronous": (lambda: fp.Uniform(4), {}, {"pace": fp.Buffered(concurrency=4, size=2)}),
    "memory": (lambda: fp.E3CS(3), {"aggregation": "fedau", "steps": 2}, {}),
}


@pytest.mark.parametrize("what", CASES)
def test_a_loop_by_hand_is_treated_as_fedpicks_own_model(what: str) -> None:
    policy, settings, world = CASES[what]
    pace = {"pace": world["pace"]} if "pace" in world else {}
    data = data_of()
    place = replace(worlds.named("volatile", len(data)), clients=data.clients, late=world.get("late", 0))
    both = []
    for make in (Softmax, lambda *given, **more: fp.learn.Trainer(*given, fp.learn.logistic(6, 4), **more)):
        trainer = make(data, **{"lr": 0.3, "batch": 8, "evaluate_every": 2, **settings})
        run = fp.Run(policy(), place, seed=3, trainer=trainer, **pace)
        both.append(run)
    same_start(both[1].trainer, both[1].state.model)
    for mine, other in zip(both[0].rounds(6), both[1].rounds(6), strict=True):
        np.testing.assert_array_equal(mine.ids, other.ids)
        np.testing.assert_array_equal(mine.status, other.status)
        np.testing.assert_allclose(mine.loss, other.loss, rtol=1e-4, atol=1e-5)
        assert mine.metrics.keys() == other.metrics.keys()
        for key, value in mine.metrics.items():
            assert value == pytest.approx(other.metrics[key], abs=1e-4), key


def test_tensors_lists_and_numbers_that_are_not_trained() -> None:
    """What PyTorch gives counts as arrays, and whole numbers stay as they were."""

    class Tensor:
        def __init__(self, array: Any) -> None:
            self.array = array

        def detach(self) -> Any:
            return self

        cpu = detach

        def numpy(self) -> Any:
            return self.array

    class Net(Softmax):
        def first(self, seed: int) -> Any:
            return [{"w": Tensor(np.full((6, 4), seed % 10, np.float32))}, Tensor(np.arange(4.0)), Tensor(np.array(7))]

        def fit(self, weights: Any, batches: Any, lr: float, seed: int) -> Any:
            assert len(batches) == len(list(batches)) == len(list(batches))
            weights[0]["w"] += 1
            weights[2] += 1
            return [{"w": Tensor(weights[0]["w"])}, *weights[1:]], np.array(0.5)

        def predict(self, weights: Any, x: Any) -> Any:
            assert weights[2] == 7
            return Tensor(x @ weights[0]["w"] + weights[1])

    trainer, updates = trained(Net)
    assert updates.loss.tolist() == [0.5, 0.5]
    np.testing.assert_allclose(updates.payload[0]["weights"], [[1] * 24 + [0] * 4] * 2)
    assert trainer.megabytes == 29 * 4 / 1e6


def test_a_loss_of_ones_own_and_numbers() -> None:
    class Absolute(Softmax):
        def fit(self, weights: Any, batches: Any, lr: float, seed: int) -> Any:
            return weights, 1.0

        def predict(self, weights: Any, x: Any) -> Any:
            return x[:, 0]

        def losses(self, outputs: Any, y: Any) -> Any:
            return np.abs(outputs - y)

    data = data_of(regression=True)
    trainer = Absolute(data, metrics=("mae",), evaluate_every=1)
    found = trainer.evaluate(trainer.init(0), 1)
    assert found["test_loss"] == pytest.approx(found["mae"])
    assert found["mae"] == pytest.approx(np.abs(data.dataset.test_x[:, 0] - data.dataset.test_y).mean())


def test_a_client_whose_loss_is_nan_fails_and_the_run_goes_on() -> None:
    class Lost(Softmax):
        def fit(self, weights: Any, batches: Any, lr: float, seed: int) -> Any:
            return super().fit(weights, batches, lr, seed) if len(batches) > 1 else (weights, np.nan)

    data = data_of()
    run = fp.Run(fp.Uniform(8), fp.World(data.clients), seed=1, trainer=Lost(data, lr=0.3, batch=8, evaluate_every=10))
    *_, last = run.rounds(10)
    failed = last.status == fp.Status.FAILED
    np.testing.assert_array_equal(failed, (SIZES <= 8)[last.ids])
    assert last.metrics["test_loss"] < 1.2


def trained(kind: Any) -> Any:
    """The trainer, and the updates of two clients."""
    trainer, rng = kind(data_of(), batch=8), np.random.default_rng(0)
    return trainer, trainer.train(trainer.init(1), np.arange(2), np.ones(2, bool), np.ones(2), 1, rng)


def returns(value: Any) -> Any:
    return lambda self, *given: value


BROKEN: dict[str, Any] = {
    "no method": ({"fit": OwnTrainer.fit}, "write the method fit(self, weights, batches, lr, seed), which returns"),
    "no first": ({"first": OwnTrainer.first}, "write the method first(self, seed), which returns the weights before"),
    "nothing to train": ({"first": returns({"n": np.arange(3)})}, "first: gives no array of floating-point numbers"),
    "no arrays": (
        {"first": returns({"n": "x"})},
        "first: gives str as weights, but must give arrays in dicts",
    ),
    "one thing": ({"fit": returns(3)}, "fit: returns int, but must return (weights, loss)"),
    "three things": ({"fit": returns((1, 2, 3))}, "fit: returns tuple of 3, but must return (weights, loss)"),
    "other names": (
        {"fit": returns(({"w": np.zeros((6, 4))}, 1.0))},
        "gives weights named weights['w'], but those of first are weights['w'], weights['b'], weights['steps']",
    ),
    "another shape": (
        {"fit": returns(({"w": np.zeros((6, 5)), "b": np.zeros(4), "steps": np.array(3)}, 1.0))},
        "fit: weights['w'] has shape (6, 5), but first gave it (6, 4); give the same",
    ),
    "a loss that is no number": (
        {"fit": returns(({"w": np.zeros((6, 4)), "b": np.zeros(4), "steps": np.array(3)}, "low"))},
        "fit: the loss is 'low', but must be a number",
    ),
    "few outputs": ({"predict": returns(np.zeros((2, 3)))}, "it must give (2, 4), or write a method losses"),
    "no rows": ({"predict": returns(np.zeros(3))}, "gives float64 of shape (3,) for 2 inputs, but must give a row"),
    "one loss": ({"losses": returns(0.5)}, "losses: gives shape () for 2 examples, but must give a loss for each"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_mistake_is_one_sentence(what: str) -> None:
    methods, says = BROKEN[what]
    with pytest.raises(fp.SettingError) as caught:
        trained(type("Mine", (Softmax,), methods))
    assert says in str(caught.value)
    assert str(caught.value).startswith("Mine")


def test_what_the_users_code_raises_is_one_sentence_with_its_place() -> None:
    class Divides(Softmax):
        def fit(self, weights: Any, batches: Any, lr: float, seed: int) -> Any:
            return 1 / 0

    with pytest.raises(fp.SettingError, match=r"Divides\.fit: ZeroDivisionError: division by zero \(in fit, .*own"):
        trained(Divides)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"model": "logistic"}, "Softmax: model = 'logistic', but it trains as its fit says; leave model out"),
        ({"form": "vmap"}, "Softmax: form = 'vmap', but it trains as its fit says"),
        ({"precision": "bfloat16"}, "Softmax: precision = 'bfloat16', but weights are 'float32' or 'float64'"),
        (
            {"algorithm": "scaffold"},
            "Softmax: algorithm = 'scaffold' changes every gradient of a client, but the gradients",
        ),
        ({"server": 3}, r"Softmax: server = 3, but must be a text such as 'fedadam\(lr=0.01\)'"),
    ],
)
def test_settings_that_it_has_not(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(fp.SettingError, match=says):
        Softmax(data_of(), **settings)


def test_a_cohort_of_small_clients_takes_no_room_for_the_largest() -> None:
    """Nothing is compiled, so batches are as many as the cohort needs."""
    sizes = np.array([5000, 8, 8, 8])
    data = Federated(
        Dataset("skewed", np.zeros((5024, 6), np.float32), np.zeros(5024, np.int32), classes=4),
        np.arange(5024),
        np.concatenate([[0], np.cumsum(sizes)]),
    )
    trainer, at, rng = Softmax(data, batch=8), np.arange(3), np.random.default_rng(0)
    for ids, steps in (([1, 2, 3], 2), ([1, 0, 3], 1250), ([3, 1, 2], 2)):
        drawn = trainer.draw(np.array(ids), at, np.full(3, 2.0), 1, rng)
        assert drawn.index.shape == (3, steps, 8)
        assert drawn.steps.max() == steps
    for form, steps in (("loop", 2), ("scan", 1250)):  # XLA compiles: one shape for all cohorts
        other = fp.learn.Trainer(data, fp.learn.logistic(6, 4), batch=8, form=form)
        assert other.draw(np.array([1, 2, 3]), at, np.full(3, 2.0), 1, rng).index.shape[1:] == (steps, 8)
