"""What reports and late updates take of models and of a cohort's updates, computed with JAX."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedpick.core.types import Floats, Ints
from fedpick.data.federated import Dataset
from fedpick.learn.jax import placement
from fedpick.learn.jax.models import Model
from fedpick.learn.jax.objective import affine_of, losses, prepare, wide

__all__ = ["distances", "embed", "inputs_of", "validation_losses"]


def inputs_of(dataset: Dataset, x: Any) -> Any:
    """Stored examples as the inputs of a model."""
    return np.asarray(prepare(jnp.asarray(x), affine_of(dataset)))


@partial(jax.jit, static_argnums=0)
def embed(model: Model, sent: Any, delta: Any, noise: jax.Array) -> jax.Array:
    """Mean output of each local model on the noise."""

    def one(update: Any) -> jax.Array:
        return model.apply(jax.tree.map(jnp.add, sent, update), noise, None).mean(axis=0).reshape(-1)

    return lax.map(one, delta)


@jax.jit
def distances(delta: Any, weights: Any) -> Any:
    """Squared distance of every update to the weighted mean; updates of weight 0 may hold anything, NaN too."""

    def squared(leaf: jax.Array) -> jax.Array:
        flat = leaf.reshape(len(leaf), -1)
        mean = jnp.tensordot(weights, jnp.where(weights[:, None] > 0, flat, 0.0), axes=1, precision="highest")
        return jnp.square(flat - mean).sum(axis=1)

    return sum(squared(leaf) for leaf in jax.tree.leaves(delta))


@partial(jax.jit, static_argnums=0)
def _losses(model: Model, sent: Any, delta: Any, weights: jax.Array, data: tuple[Any, ...]) -> jax.Array:
    """Loss of the model sent plus each weighted sum of the updates; updates of weight 0 may hold NaN."""
    affine, x, y = data

    def one(row: jax.Array) -> jax.Array:
        def moved(old: jax.Array, each: jax.Array) -> jax.Array:
            used = jnp.where(row[:, None] > 0, each.reshape(len(each), -1), 0.0)
            return old + jnp.tensordot(row, used, axes=1, precision="highest").reshape(old.shape)

        outputs = model.apply(jax.tree.map(moved, sent, delta), prepare(x, affine), None)
        return losses(wide(outputs), y).mean()

    return lax.map(one, weights)


def validation_losses(model: Model, dataset: Dataset, index: Ints, sent: Any, delta: Any, weights: Any) -> Floats:
    """Mean loss on these test examples of the model sent plus each weighted sum of the updates, on one device."""
    kept = placement.place(dataset, "test", 1)
    data = kept.affine, kept.x[index], kept.y[index]
    parts = [_losses(model, sent, delta, part, data) for part in weights]
    found: Floats = np.concatenate(jax.device_get(parts)).astype(np.float64)
    return found
