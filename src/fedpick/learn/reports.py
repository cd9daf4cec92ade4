"""What clients report besides their loss, and what the server computes from their updates."""

import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any
from weakref import WeakKeyDictionary

import jax
import jax.numpy as jnp
import numpy as np

from fedpick.core import rng as rngs
from fedpick.core.errors import SettingError
from fedpick.core.types import Floats, Ints, Updates
from fedpick.data.federated import Dataset, Federated
from fedpick.graph import sketch
from fedpick.learn import dense, evaluation, late, placement, valuation
from fedpick.learn.models import Model
from fedpick.learn.objective import affine_of, prepare
from fedpick.solvers import shapley

__all__ = [
    "OF_DATA",
    "REPORTS",
    "check_reports",
    "gives",
    "judged",
    "needs_vectors",
    "noise_of",
    "of_data",
    "of_server",
    "validation",
    "vectors",
]

NOISE = 256  # number of random inputs for a functional embedding
# All reports that a trainer can give; and "sketch_32" for a sketch of any width.
REPORTS = ("update_norm", "embedding", "update", "output_update", "squared_loss", "accuracy", "shapley")
OF_DATA = ("squared_loss", "accuracy")  # those that take a pass over the clients' data
VALIDATION = 1000  # test examples that the server values updates on, at most half of them
_SKETCH = re.compile(r"sketch_([1-9][0-9]{0,5})")


def gives(report: str) -> bool:
    """Whether a trainer can give this report."""
    return report in REPORTS or _SKETCH.fullmatch(report) is not None


def check_reports(asked: Collection[str], model: Model, shapes: Sequence[tuple[int, ...]], dataset: Dataset) -> None:
    """Raise unless these reports can be made of a model whose parameters have these shapes, with this data."""
    biases = (dataset.classes or 1,)
    if "output_update" in asked and biases not in shapes:
        raise SettingError(
            f"the report 'output_update' is of the output layer's biases, but the model {model.name!r} has no "
            f"array of shape {biases}; use a model with such biases"
        )
    if "shapley" in asked and len(dataset.test_x) < 2:
        raise SettingError(
            f"the report 'shapley' values updates on the server's examples, but {dataset.name} has "
            "no test examples; use data that has, or a policy that does not ask for it"
        )


def needs_vectors(asked: Collection[str]) -> bool:
    """Whether a report is made of the updates themselves."""
    of_updates = ("update", "embedding", "output_update", "shapley")
    return any(name in of_updates or _SKETCH.fullmatch(name) for name in asked)


def vectors(asked: Collection[str], model: Model, dataset: Dataset, sent: Any, delta: Any) -> dict[str, Any]:
    """A vector per client: the update itself (FedGS (11)), a sketch of it, or a functional embedding (12).

    Args:
        asked: names of all reports.
        model: that was trained.
        dataset: that it was trained on.
        sent: the parameters before.
        delta: updates, a row per client.
    """
    found: dict[str, Any] = {}
    widths = [int(match[1]) for name in asked if (match := _SKETCH.fullmatch(name))]
    if "update" in asked or widths:
        leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(delta)]
        rows = np.concatenate([leaf.reshape(len(leaf), -1) for leaf in leaves], axis=1)
        found |= {f"sketch_{width}": sketch(rows, width) for width in widths}
        found |= {"update": rows} if "update" in asked else {}
    if "output_update" in asked:
        biases = [leaf for leaf in jax.tree.leaves(delta) if leaf.shape[1:] == (dataset.classes or 1,)]
        found["output_update"] = np.asarray(biases[-1], dtype=np.float64)
    if "embedding" in asked:
        found["embedding"] = np.asarray(_embed(model, sent, delta, noise_of(dataset)))
    return found


@partial(jax.jit, static_argnums=0)
def _embed(model: Model, sent: Any, delta: Any, noise: jax.Array) -> jax.Array:
    """Mean output of each local model on the noise."""

    def one(update: Any) -> jax.Array:
        return model.apply(jax.tree.map(jnp.add, sent, update), noise, None).mean(axis=0)

    return jax.lax.map(one, delta)


_NOISES: WeakKeyDictionary[Dataset, jax.Array] = WeakKeyDictionary()


def noise_of(dataset: Dataset) -> jax.Array:
    """Gaussian inputs with the held-out data's mean and covariance: random mixtures of its deviations."""
    if dataset not in _NOISES:
        some = (dataset.test_x if len(dataset.test_x) else dataset.x)[:2000]
        inputs = np.asarray(prepare(jnp.asarray(some), affine_of(dataset))).reshape(len(some), -1)
        mean = inputs.mean(axis=0)
        mixtures = rngs.stream(0, 0, "embedding noise").standard_normal((NOISE, len(some))) / np.sqrt(len(some))
        rows = mean + mixtures @ (inputs - mean)
        _NOISES[dataset] = jnp.asarray(rows.reshape(NOISE, *dataset.inputs), jnp.float32)
    return _NOISES[dataset]


def of_data(
    asked: Collection[str],
    model: Model,
    data: Federated,
    arrays: placement.Arrays | dense.Rows,
    params: Any,
    ids: Ints,
) -> dict[str, Floats]:
    """Reports that take a pass over these clients' data, with the model that they were sent.

    Args:
        asked: names of all reports.
        model: that was trained.
        data: of all clients.
        arrays: the data on the devices.
        params: that were sent, on the same devices.
        ids: of the clients.
    """
    held = [data.examples_of(int(client)) for client in ids]
    starts = np.concatenate([[0], np.cumsum([len(part) for part in held])])
    each, hits = evaluation.score(model, params, arrays, np.concatenate(held))
    found = {"squared_loss": np.square(each), "accuracy": hits}
    return {name: evaluation.segment_means(found[name], starts) for name in OF_DATA if name in asked}


def of_server(
    asked: Collection[str], model: Model, data: Federated, sent: Any, updates: Updates, ids: Ints, round: int
) -> dict[str, Floats]:
    """What the server computes itself: Shapley values of the usable updates; NaN for the others.

    Args:
        asked: names of all reports.
        model: that was trained.
        data: of all clients.
        sent: the parameters before.
        updates: of a cohort.
        ids: of the cohort.
        round: in which it trained.
    """
    if "shapley" not in asked:
        return {}
    at, slots = late.usable(updates)
    kept, mine = placement.place(data.dataset, "test", 1), validation(asked, data.dataset)
    sizes = data.sizes[ids[at]].astype(np.float64)
    examples = replace(kept, x=kept.x[mine], y=kept.y[mine])
    value = valuation.coalitions(model, sent, updates.payload[0], slots, sizes, examples)
    found = np.full(len(ids), np.nan)
    found[at] = shapley(value, len(at), rngs.stream(0, round, "shapley"))  # one set of orders for all runs
    return {"shapley": found}


@lru_cache
def _split(count: int, valued: bool) -> tuple[Ints, Ints]:
    """Of so many test examples: those on which the server values updates, and the others."""
    drawn = rngs.stream(0, 0, "validation").permutation(count)[: min(VALIDATION, count // 2) if valued else 0]
    mine = np.sort(drawn).astype(np.int64)
    return mine, np.setdiff1d(np.arange(count), mine)


def validation(asked: Collection[str], dataset: Dataset) -> Ints:
    """Test examples on which the server values updates."""
    return _split(len(dataset.test_x), "shapley" in asked)[0]


def judged(asked: Collection[str], dataset: Dataset) -> Ints:
    """Test examples that the model is tested on: the others."""
    return _split(len(dataset.test_x), "shapley" in asked)[1]
