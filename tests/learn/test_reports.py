"""Reports that clients can give beside their loss: what they are, and what they cost."""

import jax
import numpy as np
import pytest
import twin
from small_data import BATCH, SIZES, data_of, model_of

import fedpick as fp
from fedpick import learn
from fedpick.core.rng import stream
from fedpick.data import Dataset, Federated
from fedpick.flower import reports as flower_reports
from fedpick.learn.jax.forms import Scan
from fedpick.learn.reports import noise_of
from fedpick.simulate.round import _reported
from fedpick.worlds import Always, PerClient, Reliable, World

pytestmark = pytest.mark.usefixtures("quick_start")

EVERY = ("update_norm", "update", "sketch_5", "output_update", "squared_loss", "accuracy")


@pytest.fixture(scope="module")
def trained():
    trainer = learn.Trainer(data_of("floats"), model_of("floats"), batch=8, reports=EVERY)
    model, ids = trainer.init(0), np.array([4, 0, 1])
    used = np.array([True, False, True])
    updates = trainer.train(model, ids, used, np.ones(3), 1, np.random.default_rng(0))
    return trainer, model, updates


def test_each_report_is_what_its_name_says(trained):
    trainer, model, updates = trained
    assert set(updates.reports) == set(EVERY)
    for values in updates.reports.values():
        assert np.isnan(values[1]).all()  # did not train
        assert np.isfinite(values[[0, 2]]).all()
    update = updates.reports["update"]
    np.testing.assert_allclose(
        updates.reports["update_norm"][[0, 2]], np.linalg.norm(update[[0, 2]], axis=1), rtol=1e-5
    )
    np.testing.assert_allclose(updates.reports["sketch_5"][[0, 2]], fp.graph.sketch(update[[0, 2]], 5), rtol=1e-5)
    delta, at, slots = updates.payload
    wanted = np.asarray(delta[-1]["b"])[slots]
    np.testing.assert_allclose(updates.reports["output_update"][at], wanted, rtol=1e-6)
    assert updates.reports["output_update"].shape == (3, 4)  # one number per label
    for at, client in ((0, 4), (2, 1)):
        held = trainer.data.examples_of(client)
        loss, right = trainer.scores(model["params"], held)
        assert updates.reports["squared_loss"][at] == pytest.approx(np.mean(loss**2))
        assert updates.reports["accuracy"][at] == pytest.approx(right.mean())


def test_a_report_that_there_is_not_is_named():
    with pytest.raises(fp.UnknownNameError, match="unknown report 'sketch_0'; did you mean 'sketch_32'"):
        learn.Trainer(data_of("floats"), model_of("floats"), reports=("sketch_0",))


def test_reports_that_the_policy_asks_for_are_charged_and_others_are_not():
    outcome = fp.Outcome(
        [0, 0, 2], np.ones(3), np.ones(3), {"squared_loss": [1.0, 2.0, np.nan], "update_norm": np.ones(3)}
    )
    clients = fp.Clients(np.ones(3))
    assert _reported(fp.Oort(3), clients, outcome) == pytest.approx(2 * 4e-6)
    assert _reported(fp.Uniform(3), clients, outcome) == 0.0


def test_a_round_of_oort_is_charged_for_its_numbers():
    trainer = learn.Trainer(data_of("floats"), model_of("floats"), batch=8, reports=("squared_loss",))
    world = World(
        data_of("floats").clients,
        availability=Always(),
        volatility=Reliable(),
        latency=PerClient(),
        model_megabytes=1.0,
    )
    records = [next(iter(fp.Run(policy, world, 0, trainer).rounds(1))) for policy in (fp.Oort(3), fp.Uniform(3))]
    assert records[0].megabytes - records[1].megabytes == pytest.approx(3 * 4e-6)
    assert np.isfinite(fp.Run(fp.Oort(len(SIZES)), world, 0, trainer).state.policy.speed).all()


def test_what_a_flower_client_tells_is_what_the_trainer_reports(trained):
    trainer, model, updates = trained

    before = [np.asarray(leaf) for leaf in jax.tree.leaves(model["params"])]
    flat = np.concatenate([leaf.ravel() for leaf in before]) + updates.reports["update"][0]
    after, start = [], 0
    for leaf in before:
        after.append(flat[start : start + leaf.size].reshape(leaf.shape))
        start += leaf.size
    held = trainer.data.examples_of(4)
    loss, right = trainer.scores(model["params"], held)
    told = flower_reports(losses=loss, correct=right, before=before, after=after, sketch=5)
    assert sorted(told) == ["accuracy", "sketch_5", "squared_loss", "update_norm"]
    for name, value in told.items():
        np.testing.assert_allclose(value, updates.reports[name][0], rtol=1e-4, atol=1e-6)


def test_updates_and_embeddings_are_reported() -> None:
    """The update itself, flat; and the mean output of the local model on noise like the held-out inputs."""
    reports = ("update", "embedding")
    trainer = learn.Trainer(data_of("images"), model_of("images"), lr=0.1, batch=BATCH, reports=reports)
    model = trainer.init(5)
    ids, used = np.array([4, 2, 0]), np.array([True, False, True])
    updates = trainer.train(model, ids, used, np.ones(3), 1, stream(1, 1, "train"))
    assert set(updates.reports) == set(reports)
    slow = twin.train(trainer, twin.Network(), model["params"], ids, used, [1, 1, 1], 1, stream(1, 1, "train"))
    noise = np.asarray(noise_of(trainer.backend, trainer.data.dataset), np.float64)
    for place, client in slow.items():
        flat = np.concatenate([leaf.ravel() for leaf in jax.tree.leaves(client.delta)])
        np.testing.assert_allclose(updates.reports["update"][place], flat, atol=1e-5)
        local = jax.tree.map(lambda w, d: w + d, twin.double(model["params"]), client.delta)
        wanted = twin.Network().outputs(local, noise).mean(axis=0)
        np.testing.assert_allclose(updates.reports["embedding"][place], wanted, atol=1e-5)
    for name in reports:
        assert np.isnan(updates.reports[name][1]).all()
        assert updates.reports[name].shape[0] == 3


def test_the_noise_of_embeddings_has_the_inputs_mean_and_covariance() -> None:
    rng = np.random.default_rng(0)
    mixing = rng.normal(size=(4, 4))
    x = (rng.normal(size=(500, 4)) @ mixing + 3.0).astype(np.float32)
    data = Federated(Dataset("like", x, rng.normal(size=500).astype(np.float32)), np.arange(500), np.array([0, 500]))
    noise = np.asarray(noise_of(Scan(), data.dataset), np.float64)
    count = len(noise)
    variance = np.cov(x.T.astype(np.float64), bias=True)
    error = np.sqrt(np.diag(variance) / count)
    assert (np.abs(noise.mean(axis=0) - x.mean(axis=0)) < 4 * error).all()
    spread = np.sqrt((variance**2 + np.outer(np.diag(variance), np.diag(variance))) / count)  # of Wishart's entries
    assert (np.abs(np.cov(noise.T) - variance) < 4.5 * spread).all()
