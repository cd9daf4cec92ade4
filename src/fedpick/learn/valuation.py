"""What the updates of a round are worth: Shapley values of minus the loss on a server's validation data."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedpick.core.types import Bools, Floats
from fedpick.learn.models import Model
from fedpick.learn.objective import losses, prepare
from fedpick.learn.placement import Arrays

__all__ = ["coalitions"]

BLOCK = 8  # coalitions in one compiled call
WORST = 1e6  # larger losses of clients' means, and those that are no number, count as this


@partial(jax.jit, static_argnums=0)
def _losses(model: Model, sent: Any, delta: Any, weights: jax.Array, data: tuple[Any, ...]) -> jax.Array:
    """Loss of the model sent plus each weighted sum of the updates; updates of weight 0 may hold NaN."""
    affine, x, y = data

    def one(row: jax.Array) -> jax.Array:
        def moved(old: jax.Array, each: jax.Array) -> jax.Array:
            used = jnp.where(row[:, None] > 0, each.reshape(len(each), -1), 0.0)
            return old + jnp.tensordot(row, used, axes=1, precision="highest").reshape(old.shape)

        outputs = model.apply(jax.tree.map(moved, sent, delta), prepare(x, affine), None)
        return losses(outputs.astype(jnp.float32), y).mean()

    return jax.lax.map(one, weights)


def coalitions(
    model: Model, sent: Any, delta: Any, slots: Any, sizes: Floats, data: Arrays
) -> Callable[[Bools], Floats]:
    """The value of coalitions of clients: minus the validation loss of the mean of their models, weighted by size.

    Args:
        model: that was trained.
        sent: parameters at the start of the round.
        delta: (C, ...) updates.
        slots: where among them those of the clients are.
        sizes: of the clients.
        data: for validation, on one device.
    """

    def value(rows: Bools) -> Floats:
        held = rows * sizes
        weights = np.zeros((-(-len(rows) // BLOCK) * BLOCK, len(jax.tree.leaves(delta)[0])), np.float32)
        weights[: len(rows), slots] = held / np.maximum(held.sum(axis=1, keepdims=True), 1e-300)
        batch = (data.affine, data.x, data.y)
        parts = [_losses(model, sent, delta, part, batch) for part in weights.reshape(-1, BLOCK, weights.shape[1])]
        found = np.concatenate(jax.device_get(parts))[: len(rows)].astype(np.float64)
        # No client has a part in the model that was sent: if it has no loss, nothing can be said of the updates.
        bad = np.where(rows.any(axis=1) | np.isfinite(found), WORST, np.nan)
        worth: Floats = -np.where(np.abs(found) <= WORST, found, bad)
        return worth

    return value
