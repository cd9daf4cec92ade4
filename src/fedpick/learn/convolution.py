"""Convolution, ReLU and 2x2 max pooling as one layer, in the form that suits the machine.

On a CPU the batch is the last axis (C, H, W, N): a layer is one gather of its patches (runs of N numbers) and matrix
products, forward and back; `lax.conv` and its gradients inside a loop are 10x slower. On a GPU the batch is the first
axis, and patches run along the width only (all but the first layer), with one product per row of the kernel: k times
less memory traffic, which is the bound there.
"""

from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

__all__ = ["features"]


def features(layers: list[Any], x: jax.Array, padding: str) -> jax.Array:
    """Convolution, ReLU and 2x2 max pooling for each layer; (N, H, W, C) -> (N, features), channels last."""
    if jax.default_backend() != "cpu":
        return _batch_first(layers, x, padding)
    x = x.transpose(3, 1, 2, 0)
    for layer in layers:
        x = _batch_last(_pad(x, layer["w"].shape[0], padding), layer["w"], layer["b"])
    return x.transpose(3, 1, 2, 0).reshape(x.shape[-1], -1)


def _pad(x: jax.Array, kernel: int, padding: str) -> jax.Array:
    """Zeros around axes 1 and 2, so that the output is as large as the input."""
    if padding == "valid":
        return x
    both = ((kernel - 1) // 2, kernel // 2)
    return jnp.pad(x, ((0, 0), both, both, (0, 0)))


# ---- CPU


@lru_cache
def _places(height: int, width: int, kernel: int) -> Any:
    """Where in a flat (H, W) image the pixels of each patch are: (k, k, H', W') flat."""
    row = np.arange(kernel)[:, None] + np.arange(height - kernel + 1)  # (k, H')
    column = np.arange(kernel)[:, None] + np.arange(width - kernel + 1)
    return (row[:, None, :, None] * width + column[None, :, None, :]).astype(np.int32).reshape(-1)


def _forward(x: jax.Array, w: jax.Array, b: jax.Array) -> tuple[jax.Array, tuple[Any, ...]]:
    depth, height, width, count = x.shape
    kernel, wide = w.shape[0], w.shape[3]
    high, broad = height - kernel + 1, width - kernel + 1
    patches = jnp.take(x.reshape(depth, height * width, count), _places(height, width, kernel), axis=1, mode="clip")
    patches = lax.optimization_barrier(patches.reshape(depth * kernel * kernel, high * broad * count))
    weights = w.transpose(3, 2, 0, 1).reshape(wide, -1)
    y = lax.optimization_barrier(weights @ patches).reshape(wide, high, broad, count)
    a, c, d, e = _corners(y)
    best = jnp.maximum(jnp.maximum(a, c), jnp.maximum(d, e))
    top = best + b[:, None, None, None]
    # Which of the four it was, the first if several; 4 where ReLU is flat.
    which = jnp.where(a == best, 0, jnp.where(c == best, 1, jnp.where(d == best, 2, 3)))
    which = jnp.where(top > 0, which, 4).astype(jnp.int8)
    return jax.nn.relu(top), (patches, weights, which)


def _corners(y: jax.Array) -> list[jax.Array]:
    wide, high, broad, count = y.shape
    y = y[:, : high // 2 * 2, : broad // 2 * 2].reshape(wide, high // 2, 2, broad // 2, 2, count)
    return [y[:, :, i, :, j] for i in (0, 1) for j in (0, 1)]


@jax.custom_vjp
def _batch_last(x: jax.Array, w: jax.Array, b: jax.Array) -> jax.Array:
    """(C, H, W, N) -> (C', H'', W'', N)."""
    return _forward(x, w, b)[0]


def _save(x: jax.Array, w: jax.Array, b: jax.Array) -> tuple[jax.Array, tuple[Any, ...]]:
    y, kept = _forward(x, w, b)
    return y, (*kept, x, w)


def _back(kept: tuple[Any, ...], dy: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    patches, weights, which, x, w = kept
    depth, height, width, count = x.shape
    kernel, wide = w.shape[0], w.shape[3]
    high, broad = height - kernel + 1, width - kernel + 1
    corner = jnp.arange(4, dtype=jnp.int8).reshape(1, 1, 2, 1, 2, 1)
    dz = jnp.where(which[:, :, None, :, None] == corner, dy[:, :, None, :, None], 0.0)
    dz = dz.reshape(wide, high // 2 * 2, broad // 2 * 2, count)
    dz = jnp.pad(dz, ((0, 0), (0, high % 2), (0, broad % 2), (0, 0))).reshape(wide, -1)
    dz = lax.optimization_barrier(dz)
    dw = (dz @ patches.T).reshape(wide, depth, kernel, kernel).transpose(2, 3, 1, 0)
    db = jnp.where(which < 4, dy, 0.0).sum(axis=(1, 2, 3))
    # Back from patches to pixels, first along the rows, then along the columns: 2k additions a pixel instead of k^2.
    spread = (weights.T @ dz).reshape(depth, kernel, kernel, high, broad, count)
    rows = sum(jnp.pad(spread[:, :, j], ((0, 0), (0, 0), (0, 0), (j, kernel - 1 - j), (0, 0))) for j in range(kernel))
    rows = lax.optimization_barrier(rows)
    dx = sum(jnp.pad(rows[:, i], ((0, 0), (i, kernel - 1 - i), (0, 0), (0, 0))) for i in range(kernel))
    return dx, dw, db  # type: ignore[return-value]


_batch_last.defvjp(_save, _back)


# ---- GPU


def _batch_first(layers: list[Any], x: jax.Array, padding: str) -> jax.Array:
    for number, layer in enumerate(layers):
        kernel, _, depth, wide = layer["w"].shape
        x = _pad(x, kernel, padding)
        height, width = x.shape[1] - kernel + 1, x.shape[2] - kernel + 1
        if number == 0:  # few channels: whole patches are still short
            windows = [x[:, i : i + height, j : j + width] for i in range(kernel) for j in range(kernel)]
            y = jnp.concatenate(windows, axis=-1) @ layer["w"].reshape(-1, wide)
        else:
            strip = jnp.concatenate([x[:, :, j : j + width] for j in range(kernel)], axis=-1)
            strip = lax.optimization_barrier(strip)
            rows = layer["w"].reshape(kernel, kernel * depth, wide)
            y = sum(strip[:, i : i + height] @ rows[i] for i in range(kernel))
        y = jax.nn.relu(y + layer["b"])
        y = y[:, : height // 2 * 2, : width // 2 * 2]
        x = y.reshape(len(y), height // 2, 2, width // 2, 2, wide).max(axis=(2, 4))
    return x.reshape(len(x), -1)
