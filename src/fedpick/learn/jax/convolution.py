"""Convolution, ReLU and 2x2 max pooling as one layer, in the form that suits the machine.

On a CPU the batch is the last axis (C, H, W, N): a layer is one copy of its patches, in long runs, and matrix products,
forward and back; `lax.conv` and its gradients inside a loop are 10x slower. On a GPU the batch is the first axis, and
memory traffic is the bound: patches are read in place (`fedpick.learn.jax.kernels`). On GPUs and for shapes that those
kernels are not made for, they run along the width only (all but the first layer), with one product per row of the
kernel.
Where several inputs of a pool are the maximum, they share its gradient on a CPU; on a GPU the first of them gets it.
"""

from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

__all__ = ["features"]


def features(layers: list[Any], x: jax.Array, padding: str) -> jax.Array:
    """Convolution, ReLU and 2x2 max pooling for each layer; (N, H, W, C) -> (N, features), channels last."""
    if jax.default_backend() != "cpu":
        for layer in layers:
            x = _batch_first(_pad(x, layer["w"].shape[0], padding), layer["w"], layer["b"])
        return x.reshape(len(x), -1)
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


def _batch_last(x: jax.Array, w: jax.Array, b: jax.Array) -> jax.Array:
    """(C, H, W, N) -> (C', H'', W'', N); JAX derives the gradient; equal maxima of a pool share it."""
    kernel, _, depth, wide = w.shape
    high, broad = x.shape[1] - kernel + 1, x.shape[2] - kernel + 1
    windows = [x[:, i : i + high, j : j + broad] for i in range(kernel) for j in range(kernel)]
    patches = jnp.stack(windows, axis=1).reshape(depth * kernel * kernel, -1)
    patches = lax.optimization_barrier(patches)  # else XLA computes them again inside each product
    y = (w.transpose(3, 2, 0, 1).reshape(wide, -1) @ patches).reshape(wide, high, broad, -1)
    y = jax.nn.relu(y[:, : high // 2 * 2, : broad // 2 * 2] + b[:, None, None, None])
    return y.reshape(wide, high // 2, 2, broad // 2, 2, -1).max(axis=(2, 4))


# ---- GPU


def _cut(x: jax.Array, kernel: int, axis: int) -> jax.Array:
    """Neighbours along this axis side by side in the channels: windows of `kernel`, first neighbour first."""
    size = x.shape[axis] - kernel + 1
    return jnp.concatenate([lax.slice_in_dim(x, j, j + size, axis=axis) for j in range(kernel)], axis=-1)


def _wide(x: jax.Array, kernel: int) -> bool:
    """Whether patches run along the width only; whole patches of few channels are still short."""
    return x.shape[-1] * kernel > 32


def _multiply(x: jax.Array, w: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The convolution (N, H, W, C) -> (N, H', W', C'), and the patches it was made of."""
    kernel, _, depth, wide = w.shape
    strips = _cut(x, kernel, 2)
    if not _wide(x, kernel):
        patches = _cut(strips, kernel, 1)
        return patches @ w.reshape(-1, wide), patches
    height = x.shape[1] - kernel + 1
    rows = w.reshape(kernel, kernel * depth, wide)
    return sum(strips[:, i : i + height] @ rows[i] for i in range(kernel)), strips  # type: ignore[return-value]


def _quarters(y: jax.Array) -> list[jax.Array]:
    count, high, broad, wide = y.shape
    y = y[:, : high // 2 * 2, : broad // 2 * 2].reshape(count, high // 2, 2, broad // 2, 2, wide)
    return [y[:, :, i, :, j] for i in (0, 1) for j in (0, 1)]


def _pool(corners: list[jax.Array], b: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Max of the four, then bias and ReLU; and which of them it was, the first if several, 4 where ReLU is flat."""
    a, c, d, e = corners
    best = jnp.maximum(jnp.maximum(a, c), jnp.maximum(d, e))
    top = best + b
    which = jnp.where(a == best, 0, jnp.where(c == best, 1, jnp.where(d == best, 2, 3)))
    return jax.nn.relu(top), jnp.where(top > 0, which, 4).astype(jnp.int8)


def _in_place(kernel: int, depth: int, wide: int) -> ModuleType | None:
    """The kernels, if a convolution from `depth` to `wide` channels can read its patches in place."""
    from fedpick.learn.jax import kernels  # here, since Pallas takes a while to import, and a CPU never needs it

    return kernels if kernels.usable() and kernels.fits(kernel, depth, wide) else None


@jax.custom_vjp
def _batch_first(x: jax.Array, w: jax.Array, b: jax.Array) -> jax.Array:
    """(N, H, W, C) -> (N, H'', W'', C')."""
    return _save_first(x, w, b)[0]


def _save_first(x: jax.Array, w: jax.Array, b: jax.Array) -> tuple[jax.Array, tuple[Any, ...]]:
    if kernels := _in_place(*w.shape[1:]):
        out, which = kernels.convolve_and_pool(x, w, b)
        return out, (None, which, w, x)
    y, patches = _multiply(x, w)
    out, which = _pool(_quarters(y), b)
    return out, (patches, which, w, x)


def _unpool(dy: jax.Array, which: jax.Array, high: int, broad: int) -> jax.Array:
    """The gradient before the pool, (N, high, broad, C')."""
    count, rows, columns, wide = dy.shape
    corner = jnp.arange(4, dtype=jnp.int8).reshape(1, 1, 2, 1, 2, 1)
    dz = jnp.where(which[:, :, None, :, None] == corner, dy[:, :, None, :, None], 0)
    return jnp.pad(dz.reshape(count, 2 * rows, 2 * columns, wide), ((0, 0), (0, high % 2), (0, broad % 2), (0, 0)))


def _bias_gradient(dy: jax.Array, which: jax.Array) -> jax.Array:
    exact = jnp.promote_types(dy.dtype, jnp.float32)
    return jnp.where(which < 4, dy, 0).sum(axis=(0, 1, 2), dtype=exact).astype(dy.dtype)


def _back_first(kept: tuple[Any, ...], dy: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    patches, which, w, x = kept
    kernel, _, depth, wide = w.shape
    high = x.shape[1] - kernel + 1
    dz = _unpool(dy, which, high, x.shape[2] - kernel + 1)
    if patches is None and (kernels := _in_place(kernel, depth, wide)):
        dw = kernels.weights_gradient(x, dy, which, kernel)
    elif _wide(x, kernel):
        cut = [patches[:, i : i + high].reshape(-1, kernel * depth) for i in range(kernel)]
        dw = jnp.stack([rows.T @ dz.reshape(-1, wide) for rows in cut])
    else:
        dw = patches.reshape(-1, kernel * kernel * depth).T @ dz.reshape(-1, wide)
    return _to_inputs(dz, w), dw.reshape(w.shape), _bias_gradient(dy, which)


def _to_inputs(dz: jax.Array, w: jax.Array) -> jax.Array:
    """The gradient of a convolution to its inputs; of a network's first layer nobody asks for it, and XLA drops it."""
    kernel, _, depth, wide = w.shape
    edge = kernel - 1
    dz = jnp.pad(dz, ((0, 0), (edge, edge), (0, 0), (0, 0)))
    if kernels := _in_place(kernel, wide, depth):
        around = jnp.pad(dz, ((0, 0), (0, 0), (edge, edge), (0, 0)))
        back: jax.Array = kernels.convolve(around, w[::-1, ::-1].transpose(0, 1, 3, 2))
        return back
    # Rows of the kernel by one product over cut gradients, then k shifted additions along the width.
    rows = _cut(dz, kernel, 1)
    turned = w[::-1].transpose(0, 3, 1, 2).reshape(kernel * wide, kernel * depth)
    strips = (rows @ turned).reshape(len(dz), -1, dz.shape[2], kernel, depth)
    dx = sum(jnp.pad(strips[:, :, :, j], ((0, 0), (0, 0), (j, edge - j), (0, 0))) for j in range(kernel))
    return dx  # type: ignore[return-value]


_batch_first.defvjp(_save_first, _back_first)
