"""Whole runs under every algorithm of the clients and the server are those of slow twins, in float64.

The run says who was asked and whose answer was used; the twin trains these clients in NumPy, and moves the model by the
paper's own lines. Both draw the same batches.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import twin
from small_data import data_of, same_bits

import fedpick as fp
from fedpick import learn, worlds
from fedpick.learn.trainer import Trainer
from fedpick.simulate.together import play_together
from fedpick.store import Folder

pytestmark = pytest.mark.usefixtures("quick_start")

SEED = 3


@pytest.fixture
def double() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def run_of(policy: Any = None, pace: Any = None, place: dict[str, Any] | None = None, **settings: Any) -> fp.Run:
    """Clients of very different sizes, of whom every fourth fails. (Rates are float32: this one is exact.)"""
    given = {"lr": 0.25, "batch": 4, "evaluate_every": 50, "form": "scan", "precision": "float64"} | settings
    trainer = Trainer(data_of("floats"), learn.logistic((6,), 4), **given)
    parts = {"latency": worlds.LogNormalTime(), "volatility": worlds.SuccessRates((0.75,)), "epochs": (1, 2)}
    world = fp.World(trainer.data.clients, **(parts | (place or {})))
    return fp.Run(policy or fp.Uniform(4), world, SEED, trainer, pace=pace)


# ---- the twins: flat vectors of weights


Move = Callable[[np.ndarray, np.ndarray], np.ndarray]  # from (weights, mean update) to the next weights


def flat(params: Any) -> np.ndarray:
    return np.concatenate([np.ravel(np.asarray(leaf, np.float64)) for leaf in jax.tree.leaves(params)])


def tree(vector: np.ndarray, like: Any) -> Any:
    leaves, form = jax.tree.flatten(like)
    ends = np.cumsum([leaf.size for leaf in leaves])
    parts = [part.reshape(leaf.shape) for part, leaf in zip(np.split(vector, ends[:-1]), leaves, strict=True)]
    return jax.tree.unflatten(form, parts)


def adding() -> Move:
    return lambda weights, step: weights + step


def momentum() -> Move:
    """FedAvgM (Hsu et al. 2019), lr 0.5, momentum 0.7."""
    kept = {"v": 0.0}

    def move(weights: np.ndarray, step: np.ndarray) -> np.ndarray:
        kept["v"] = 0.7 * kept["v"] + step
        return weights + 0.5 * kept["v"]

    return move


def adaptive(name: str) -> Move:
    """Reddi et al. (2021), Algorithm 2, lr 0.1, beta_1 0.8, beta_2 0.95, tau 0.01.

    FedAdam and FedYogi as optax has them: with bias correction, and with first values 0 and 1e-6. FedAdagrad has no
    first moment.
    """
    first = {"adam": 0.0, "yogi": 1e-6, "adagrad": 0.01**2}[name]
    kept = {"m": -first if name == "yogi" else 0.0, "v": first, "t": 0}

    def move(weights: np.ndarray, step: np.ndarray) -> np.ndarray:
        kept["t"] += 1
        if name == "adagrad":
            kept["v"] = kept["v"] + step**2
            return weights + 0.1 * step / (np.sqrt(kept["v"]) + 0.01)
        kept["m"] = 0.8 * kept["m"] + 0.2 * step
        if name == "adam":
            kept["v"] = 0.95 * kept["v"] + 0.05 * step**2
        else:
            kept["v"] = kept["v"] - 0.05 * step**2 * np.sign(kept["v"] - step**2)
        mean, square = kept["m"] / (1 - 0.8 ** kept["t"]), kept["v"] / (1 - 0.95 ** kept["t"])
        return weights + 0.1 * mean / (np.sqrt(square) + 0.01)

    return move


SETTINGS: dict[str, tuple[dict[str, Any], Callable[[], Move]]] = {
    "fedprox": ({"prox": 0.8}, adding),
    "momentum": ({"server": "fedavgm(lr=0.5, momentum=0.7)"}, momentum),
    "fedadam": ({"server": "fedadam(lr=0.1, b1=0.8, b2=0.95, eps=0.01)"}, lambda: adaptive("adam")),
    "fedyogi": ({"server": "fedyogi(lr=0.1, b1=0.8, b2=0.95, eps=0.01)"}, lambda: adaptive("yogi")),
    "fedadagrad": ({"server": "fedadagrad(lr=0.1, eps=0.01)", "prox": 0.3}, lambda: adaptive("adagrad")),
}


def rounds_by_hand(run: fp.Run, records: list[Any], start: Any, move: Move) -> np.ndarray:
    """The weights after these rounds: the mean of the updates by data size, given to the server's optimiser."""
    trainer, weights = run.trainer, flat(start)
    assert isinstance(trainer, Trainer)
    for record in records:
        used = record.status == fp.Status.DONE
        rng = fp.rng.stream(SEED, record.round, "train")
        epochs = run.state.world.epochs[record.ids].astype(int)
        sent = tree(weights, start)
        found = twin.train(trainer, twin.Network(), sent, record.ids, used, epochs, record.round, rng)
        if found:
            sizes = trainer.data.sizes[record.ids[list(found)]]
            updates = [flat(each.delta) for each in found.values()]
            weights = move(weights, np.average(updates, axis=0, weights=sizes))
    return weights


def versions_by_hand(run: fp.Run, records: list[Any], start: Any, move: Move) -> np.ndarray:
    """The same without rounds: each update starts from the version that its client was sent, and weighs as it says."""
    trainer, versions = run.trainer, [flat(start)]
    assert isinstance(trainer, Trainer)
    for record in records:
        total, count = np.zeros_like(versions[0]), 0
        for each in record.tasks:
            if each.status != fp.Status.DONE:
                continue
            task, count = each.task, count + 1
            rng, epochs = fp.rng.stream(SEED, task.id, "train task"), [int(run.state.world.epochs[task.client])]
            sent = tree(versions[task.version], start)
            found = twin.train(trainer, twin.Network(), sent, [task.client], [True], epochs, task.version + 1, rng)
            total += each.weight * flat(found[0].delta)
        versions.append(move(versions[-1], total / count))
    return versions[-1]


def played(run: fp.Run, until: int) -> tuple[list[Any], Any]:
    """The records, and the first parameters."""
    start = twin.double(run.state.model["params"])
    return list(run.rounds(until)), start


QUICK = ("fedprox", "fedadagrad")  # the others' single steps are in test_aggregation.py


@pytest.mark.parametrize(
    "name", [each if each in QUICK else pytest.param(each, marks=pytest.mark.slow) for each in SETTINGS]
)
def test_rounds_are_those_of_the_twin(name: str, double: None) -> None:
    settings, move = SETTINGS[name]
    run = run_of(**settings)
    records, start = played(run, 6)
    assert any((record.status != fp.Status.DONE).any() for record in records)
    np.testing.assert_allclose(flat(run.state.model["params"]), rounds_by_hand(run, records, start, move()), atol=1e-9)


@pytest.mark.parametrize("name", [pytest.param("momentum", marks=pytest.mark.slow), "fedadagrad"])
def test_without_rounds_too(name: str, double: None) -> None:
    settings, move = SETTINGS[name]
    run = run_of(pace=fp.Buffered(4, size=2, timeout=60.0), **settings)
    records, start = played(run, 8)
    assert any(each.task.version < record.round - 1 for record in records for each in record.tasks)  # stale ones
    found = versions_by_hand(run, records, start, move())
    np.testing.assert_allclose(flat(run.state.model["params"]), found, atol=1e-9)


# ---- stacked, and resumed


BOTH_PACES = pytest.mark.parametrize("pace", [None, fp.Buffered(4, size=2, timeout=60.0)], ids=["rounds", "buffered"])


@BOTH_PACES
@pytest.mark.parametrize("name", ["fedprox", "fedadagrad"])
def test_stacked_runs_are_those_played_alone(name: str, pace: Any) -> None:
    how = {"form": "loop", "precision": "float32", "pace": pace, **SETTINGS[name][0]}
    together, alone = ([run_of(policy, **how) for policy in (fp.Uniform(4), fp.E3CS(4))] for _ in range(2))
    list(play_together(together, until=5))
    for mine, wanted in zip(together, alone, strict=True):
        list(wanted.rounds(until=5))
        np.testing.assert_allclose(flat(mine.state.model), flat(wanted.state.model), atol=1e-6)  # sums in another order


def resumed(make: Callable[[], fp.Run], folder: Path) -> tuple[fp.Run, fp.Run]:
    """A run of 7 rounds, and one that was killed after the 5th, with a checkpoint of the 4th."""
    whole, first, again = make(), make(), make()
    list(whole.rounds(until=7))
    store = Folder(folder, {"what": "algorithm"}, every=2)
    first.state = store.restore(first.state, first.world.clients)
    for record in first.rounds(until=5):
        store.append(record, first.state)
    store.close()
    store = Folder(folder, {"what": "algorithm"}, every=2)
    again.state = store.restore(again.state, again.world.clients)
    store.close()
    assert again.state.round == 4
    list(again.rounds(until=7))
    return whole, again


@BOTH_PACES
@pytest.mark.parametrize("name", ["fedadagrad"])
def test_resumed_runs_have_the_same_bits(name: str, pace: Any, tmp_path: Path) -> None:
    how = {"form": "loop", "precision": "float32", "pace": pace, **SETTINGS[name][0]}
    whole, again = resumed(lambda: run_of(**how), tmp_path / "run")
    assert same_bits(whole.state.model, again.state.model)
