"""Targets that are vectors or sequences, inputs that are tokens, and shapes that are numbers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedpick as fp
from fedpick import learn
from fedpick.data import Dataset, Federated
from fedpick.learn.jax import objective
from fedpick.learn.measures import measure

STARTS = np.array([0, 3, 8, 12])


def federated(x, y, classes=0):
    return Federated(Dataset("mine", x, y, x[:4], y[:4], classes), np.arange(12), STARTS)


def played(data, model, rounds=30):
    trainer = learn.Trainer(
        data, model, lr=0.3, batch=4, evaluate_every=rounds, metrics=("rmse",) * (not data.dataset.classes)
    )
    run = fp.Run(fp.Uniform(3), fp.World(data.clients), seed=1, trainer=trainer)
    first = trainer.evaluate(run.state.model, rounds)
    *_, last = run.rounds(until=rounds)
    return first, last.metrics


def test_vectors_are_learnt_and_their_loss_is_the_mean():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(12, 3)).astype(np.float32)
    y = x @ rng.normal(size=(3, 2)).astype(np.float32)
    first, last = played(federated(x, y), learn.logistic((3,), 2))
    assert last["test_loss"] < 0.1 * first["test_loss"]
    assert last["rmse"] == pytest.approx(np.sqrt(last["test_loss"]), rel=1e-4)


def tagger() -> learn.Model:
    """A row of numbers for each token."""

    def init(key):
        return {"table": 0.1 * jax.random.normal(key, (5, 4))}

    return learn.Model(init, lambda params, x, key: params["table"][x], "tagger")


def test_sequences_of_tokens_get_a_label_each():
    x = np.random.default_rng(1).integers(0, 5, (12, 6)).astype(np.int32)
    data = federated(x, (x * 3 + 1) % 4, classes=4)
    assert data.labels is None
    first, last = played(data, tagger())
    assert last["test_loss"] < 0.5 * first["test_loss"]
    assert last["accuracy"] > 0.9 > first["accuracy"]
    with pytest.raises(fp.SettingError, match=r"has targets of shape \(6,\) with 4 labels: it must give \(2, 6, 4\)"):
        learn.Trainer(data, learn.logistic((6,), 4))
    with pytest.raises(fp.SettingError, match="the report 'embedding' is of Gaussian inputs, but mine has tokens"):
        learn.Trainer(data, tagger(), reports=("embedding",))
    with pytest.raises(fp.SettingError, match=r"Dirichlet divides by label, but mine has targets of shape \(6,\)"):
        fp.data.Dirichlet()(data.dataset, 3, np.random.default_rng(0))


def test_losses_of_several_are_the_means_of_single_ones():
    rng = np.random.default_rng(2)
    outputs, y = rng.normal(size=(3, 4, 5)).astype(np.float32), rng.integers(0, 5, (3, 4)).astype(np.int32)
    each = [objective.losses(jnp.asarray(outputs[:, t]), jnp.asarray(y[:, t])) for t in range(4)]
    hits = [objective.correct(jnp.asarray(outputs[:, t]), jnp.asarray(y[:, t])) for t in range(4)]
    np.testing.assert_allclose(objective.losses(jnp.asarray(outputs), jnp.asarray(y)), np.mean(each, axis=0), rtol=1e-5)
    np.testing.assert_allclose(
        objective.correct(jnp.asarray(outputs), jnp.asarray(y)), np.mean(hits, axis=0), rtol=1e-6
    )
    found = measure(["perplexity"], outputs, y)["perplexity"]
    assert found == pytest.approx(np.exp(np.mean(each)), rel=1e-5)


def test_the_shape_of_an_input_may_be_a_number():
    assert learn.logistic(60, 10).name == learn.logistic((60,), 10).name
    assert learn.mlp(60, 10, hidden=(5,)).dense == (60, 5, 10)
    assert learn.linear(np.int64(5)).name == "linear 5-1"
    for make, says in (
        (lambda: learn.logistic("60", 10), "linear: inputs = '60', but must be the shape of one input, such as"),
        (lambda: learn.logistic(6.5, 10), "linear: inputs = 6.5, but must be the shape of one input"),
        (lambda: learn.logistic((60,), 0), "linear: outputs = 0, but must be a whole number >= 1"),
        (lambda: learn.mlp((6, 0), 10), r"mlp: inputs = \(6, 0\), but must be the shape of one input"),
        (lambda: learn.cnn(28, 10), r"cnn: inputs = \(28,\), but must be \(height, width, channels\)"),
        (lambda: learn.cnn((28, 28, 1), "10"), "cnn: outputs = '10', but must be a whole number >= 1"),
    ):
        with pytest.raises(fp.SettingError, match=says):
            make()
