"""Whole runs with a trainer: they learn, survive bad clients, and give the same bits twice, resumed, and anywhere."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import bits
import jax
import numpy as np
import pytest
from small_data import BATCH, SIZES, data_of, model_of, same_bits, split

import fedpick as fp
from fedpick import data, learn, worlds
from fedpick.core.errors import MissingError, SettingError
from fedpick.data import Dataset, Federated
from fedpick.learn.trainer import Trainer
from fedpick.simulate.together import play_together
from fedpick.store import Folder

pytestmark = pytest.mark.usefixtures("quick_start")


def still(clients: fp.Clients, **parts: Any) -> fp.World:
    """A world where everybody is there, nobody fails, and all train one epoch."""
    calm = {"availability": worlds.Always(), "volatility": worlds.Reliable(), "deadline": None, "epochs": (1,)}
    return fp.World(clients, latency=worlds.PerClient(1.0), **(calm | parts))


def run_of(
    policy: Any, federated: Federated | None = None, place: dict[str, Any] | None = None, **settings: Any
) -> fp.Run:
    federated = data_of("floats") if federated is None else federated
    chosen = {"lr": 0.1, "batch": BATCH, "evaluate_every": 2, "form": "vmap"} | settings
    trainer = Trainer(federated, chosen.pop("model", model_of("floats")), **chosen)
    return fp.Run(policy, still(federated.clients, **(place or {})), seed=1, trainer=trainer)


def trail(run: fp.Run, until: int) -> list[Any]:
    """What the rounds told, to compare."""
    return [(r.ids.tolist(), r.status.tolist(), r.loss.tobytes(), dict(r.metrics)) for r in run.rounds(until)]


# ---- learning


def test_digits_are_learned() -> None:
    federated = data.Dirichlet(alpha=1.0)(data.load("digits"), 20, fp.rng.stream(0, 0, "data"))
    model = learn.mlp((8, 8, 1), 10, hidden=(32,))
    trainer = Trainer(federated, model, lr=0.1, batch=16, momentum=0.5, evaluate_every=30)
    run = fp.Run(fp.Uniform(5), still(federated.clients), seed=1, trainer=trainer)
    before = trainer.evaluate(run.state.model, 30)
    after = list(run.rounds(until=30))[-1].metrics
    assert before["accuracy"] < 0.3
    assert after["accuracy"] > 0.87  # seeds give 0.91 to 0.94 of 180 digits
    assert after["train_loss"] < before["train_loss"] / 5
    assert after["worst_decile"] <= after["accuracy"] + 0.1


@pytest.mark.parametrize(
    ("policy", "reports"),
    [
        (fp.PowerOfChoice(3, 5), ()),
        (fp.PowerOfChoice(3, 5, variant="cpow-d"), ()),
        (fp.ActiveFL(3), ("update_norm",)),
        (fp.FedGS(3, graph="update"), ("update",)),
        (fp.FedGS(3, graph="embedding"), ("embedding",)),
        (fp.OverSelect(fp.E3CS(2), 2.0), ("update_norm",)),
        (fp.SizeWeighted(3), ()),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, tuple) else "-".join(value),
)
def test_policies_that_ask_for_losses_updates_or_embeddings(policy: Any, reports: tuple[str, ...]) -> None:
    run = run_of(policy, reports=reports)
    records = list(run.rounds(until=6))
    assert all((record.status == fp.Status.DONE).any() for record in records)
    assert all(np.isfinite(record.loss[record.status == fp.Status.DONE]).all() for record in records)
    assert records[-1].metrics["train_loss"] < records[1].metrics["train_loss"]


def test_a_report_that_the_trainer_does_not_give_is_missed_before_the_first_round() -> None:
    with pytest.raises(MissingError, match="embedding"):
        run_of(fp.FedGS(3, graph="embedding"), reports=("update_norm",))


def test_horvitz_thompson_runs_with_a_policy_that_knows_its_chances() -> None:
    run = run_of(fp.E3CS(3, quota=0.5), aggregation="horvitz-thompson")
    assert list(run.rounds(until=4))[-1].metrics["train_loss"] < 2.0


# ---- bad clients


@pytest.mark.parametrize("form", ["scan", "vmap"])
def test_a_client_whose_loss_is_not_finite_has_failed_and_the_run_goes_on(form: str) -> None:
    good = data_of("floats").dataset
    x = good.x.copy()
    federated = split(Dataset("bad", x, good.y, good.test_x, good.test_y, 4), SIZES)
    bad = int(np.flatnonzero([9 in federated.examples_of(k) for k in range(len(SIZES))])[0])
    x[9] = np.inf
    run = run_of(fp.Uniform(4), federated, form=form)
    chosen = 0
    for record in run.rounds(until=8):
        fails = record.ids == bad
        chosen += int(fails.sum())
        np.testing.assert_array_equal(record.status, np.where(fails, fp.Status.FAILED, fp.Status.DONE))
        assert np.isfinite(record.loss[~fails]).all()
        assert not np.isfinite(record.loss[fails]).any()
        assert record.messages == 8  # its update came, useless as it was
    assert chosen
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(run.state.model))
    assert np.isfinite(record.metrics["accuracy"])


def test_a_learning_rate_far_too_high_fails_everybody_and_leaves_the_model_alone() -> None:
    run = run_of(fp.Uniform(3), lr=1e30, steps=4)
    before = jax.tree.map(np.copy, run.state.model)
    for record in run.rounds(until=3):
        assert (record.status == fp.Status.FAILED).all()
    assert same_bits(run.state.model, before)
    assert np.isfinite(record.metrics.get("accuracy", 0.0))


def test_rounds_in_which_nobody_is_there_or_nobody_returns() -> None:
    run = run_of(fp.Uniform(3), place={"volatility": worlds.SuccessRates((0.0,))})
    before = jax.tree.map(np.copy, run.state.model)
    assert all((record.status == fp.Status.FAILED).all() for record in run.rounds(until=2))
    assert same_bits(run.state.model, before)


# ---- the same bits


def rough(form: str) -> fp.Run:
    """Dropout, a server with a memory, clients with one or two epochs; cohorts of 4, but of 3 in rounds 5 to 7."""
    place = {"availability": worlds.Bernoulli(0.4), "epochs": (1, 2)}
    model = learn.logistic((6,), 4) if form == "loop" else model_of("floats", 0.3)
    settings = {"model": model, "server": "fedavgm", "form": form}
    return run_of(fp.Uniform(4), place=place, **settings)


@pytest.mark.parametrize("form", [pytest.param("scan", marks=pytest.mark.slow), "vmap"])
def test_twice_the_same_seed(form: str) -> None:
    one, other = rough(form), rough(form)
    assert trail(one, 6) == trail(other, 6)
    assert same_bits(one.state.model, other.state.model)


@pytest.mark.parametrize("form", [*(pytest.param(form, marks=pytest.mark.slow) for form in ("scan", "loop")), "vmap"])
def test_resumed_from_a_folder(form: str, tmp_path: Path) -> None:
    """Killed after round 5, with a checkpoint of round 4: rounds 5 to 7 are those of the run that was not.

    The resumed run has seen only smaller cohorts, and so computes in arrays of another shape.
    """
    whole = rough(form)
    wanted = trail(whole, 7)

    first = rough(form)
    folder = Folder(tmp_path / "run", {"what": form}, every=2)
    first.state = folder.restore(first.state, first.world.clients)
    for record in first.rounds(until=5):
        folder.append(record, first.state)
    folder.close()

    again = rough(form)
    folder = Folder(tmp_path / "run", {"what": form}, every=2)
    again.state = folder.restore(again.state, again.world.clients)
    folder.close()
    assert again.state.round == 4
    assert trail(again, 7) == wanted[4:]
    assert same_bits(again.state.model, whole.state.model)


@pytest.mark.slow
@pytest.mark.parametrize("network", ["mlp", "cnn", "logistic"])
def test_any_number_of_devices_gives_the_same_bits(network: str) -> None:
    """Training, aggregation, evaluation; the CNN in over 130 blocks, where a loop inside one call once went wrong."""
    found = {}
    for devices, worth in ((1, 0), (2, 0), (3, 0), (3, 10**9)):  # the last one's cohorts stay on one of three
        flags = f"--xla_force_host_platform_device_count={devices} --xla_cpu_multi_thread_eigen=false"
        done = subprocess.run(
            [sys.executable, str(Path(bits.__file__)), network, str(worth)],
            env=os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        found[devices, worth] = json.loads(done.stdout)
        assert found[devices, worth].pop("devices") == devices
        assert found[devices, worth]["train_loss"] == pytest.approx(found[devices, worth]["wanted"], rel=1e-5)
    assert len(found) == 4
    assert all(each == found[1, 0] for each in found.values())


# ---- several runs at once


def seeds_together(count: int, **place: Any) -> list[fp.Run]:
    federated = data_of("floats")
    policies = [fp.Uniform(4), fp.SizeWeighted(3), fp.E3CS(2)]
    return [
        fp.Run(
            policies[number],
            still(federated.clients, **place),
            seed=number,
            trainer=Trainer(
                federated, model_of("floats"), lr=0.1 / (1 + number), batch=BATCH, form="vmap", evaluate_every=2
            ),
        )
        for number in range(count)
    ]


def test_runs_played_together_are_the_runs_played_alone() -> None:
    together, alone = seeds_together(3, epochs=(1, 3)), seeds_together(3, epochs=(1, 3))
    rounds = list(play_together(together, until=4))
    for number, run in enumerate(alone):
        for mine, wanted in zip([records[number] for records in rounds], run.rounds(until=4), strict=True):
            np.testing.assert_array_equal(mine.ids, wanted.ids)
            np.testing.assert_array_equal(mine.status, wanted.status)
            np.testing.assert_allclose(mine.loss, wanted.loss, rtol=1e-5)
            assert mine.metrics == pytest.approx(wanted.metrics, rel=1e-5)
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), together[number].state.model, run.state.model
        )


def test_runs_together_in_which_somebody_has_nobody() -> None:
    """In some rounds no client of one run returns, while those of another do."""
    together = seeds_together(3, volatility=worlds.SuccessRates((0.2,)))
    alone = seeds_together(3, volatility=worlds.SuccessRates((0.2,)))
    rounds = list(play_together(together, until=6))
    done = np.array([[(record.status == fp.Status.DONE).any() for record in records] for records in rounds])
    assert (done.any(axis=1) & ~done.all(axis=1)).any()
    for number, run in enumerate(alone):
        list(run.rounds(until=6))
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), together[number].state.model, run.state.model
        )


def test_runs_that_cannot_be_played_together() -> None:
    one, other = seeds_together(2)
    with pytest.raises(SettingError, match=r"must each have a fedpick.learn.Trainer"):
        next(play_together([one, fp.Run(fp.Uniform(3), fp.World(), seed=1)], until=1))
    other.trainer.batch = 3  # type: ignore[union-attr]
    with pytest.raises(SettingError, match=r"must have the same batch, but have 8 and 3; play them separately"):
        next(play_together([one, other], until=1))
    stranger = run_of(
        fp.Uniform(3),
        split(Dataset("other", data_of("floats").dataset.x + 1, data_of("floats").dataset.y, classes=4), SIZES),
    )
    with pytest.raises(SettingError, match="must share one data set, but have Dataset"):
        next(play_together([one, stranger], until=1))
    late = seeds_together(1)[0]
    list(late.rounds(until=1))
    with pytest.raises(SettingError, match="must be in the same round; first play those behind separately"):
        next(play_together([seeds_together(1)[0], late], until=3))
