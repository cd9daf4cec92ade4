"""From stored examples to inputs, and from outputs to losses."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedpick.data.federated import Dataset

__all__ = ["Affine", "affine_of", "correct", "losses", "prepare", "wide"]


class Affine(NamedTuple):
    """Inputs are x * scale + shift: pixels become numbers with mean 0 and deviation 1 only here, on the device."""

    scale: jax.Array
    shift: jax.Array


def affine_of(dataset: Dataset) -> Affine:
    """Scale and shift of a data set; float inputs stay as they are."""
    if dataset.x.dtype != np.uint8:
        return Affine(jnp.ones(1, jnp.float32), jnp.zeros(1, jnp.float32))
    mean, std = np.asarray(dataset.mean, np.float64), np.asarray(dataset.std, np.float64)
    return Affine(jnp.asarray(1.0 / (255.0 * std), jnp.float32), jnp.asarray(-mean / std, jnp.float32))


def prepare(x: jax.Array, affine: Affine, precision: str = "float32") -> jax.Array:
    """Inputs as the model gets them; whole numbers other than pixels are tokens."""
    if x.dtype == jnp.uint8:
        x = x.astype(jnp.float32) * affine.scale + affine.shift
    if jnp.issubdtype(x.dtype, jnp.integer):
        return x
    return x.astype(precision)


def losses(outputs: jax.Array, y: jax.Array) -> jax.Array:
    """Loss of each example: cross-entropy of labels (integers), squared error of numbers; of several the mean."""
    if jnp.issubdtype(y.dtype, jnp.integer):
        right = jnp.take_along_axis(outputs, y[..., None], axis=-1)[..., 0]
        return _mean(jax.nn.logsumexp(outputs, axis=-1) - right)
    return _mean(jnp.square(outputs.reshape(y.shape) - y))


def _mean(each: jax.Array) -> jax.Array:
    """A number for each example that has several."""
    return each if each.ndim == 1 else each.reshape(len(each), -1).mean(axis=1)


def correct(outputs: jax.Array, y: jax.Array) -> jax.Array:
    """1 where the label is right, 0 where not, of several labels the share that is right; 0 for a regression."""
    if jnp.issubdtype(y.dtype, jnp.integer):
        return _mean((jnp.argmax(outputs, axis=-1) == y).astype(jnp.float32))
    return jnp.zeros(len(y), jnp.float32)


def wide(outputs: jax.Array) -> jax.Array:
    """Outputs as losses are computed of them: float32, or float64 as they are."""
    return outputs if outputs.dtype == np.float64 else outputs.astype(jnp.float32)
