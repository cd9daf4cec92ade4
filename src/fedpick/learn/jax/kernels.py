"""Pallas kernels for a GPU: convolution, bias, ReLU and 2x2 max pooling, reading patches where they lie.

The row of a patch, k * C values, is contiguous in memory, so no copy of the patches is made: less memory traffic, which
is the bound (`benchmarks/results/gpu/convolutions.md`). The code is of one client; `jax.vmap` over clients adds an axis
to the kernels' grid. On a CPU the kernels are interpreted, which is slow and good for tests only.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

__all__ = ["convolve", "convolve_and_pool", "fits", "usable", "weights_gradient"]


class Sizes(NamedTuple):
    """Block sizes of a kernel.

    Args:
        rows: outputs.
        chunk: values of a patch's row, which is padded to a multiple of it.
        tile: values of a patch, for the gradient of the weights.
        splits: parts of the sum over outputs, for the gradient of the weights.
        warps: of a block.
        stages: of the loop over a block's sum that are under way at once.
    """

    rows: int
    chunk: int
    tile: int
    splits: int
    warps: int
    stages: int


def usable() -> bool:
    """Whether the kernels are for this machine: an H100 or H200, where they were tuned and tested.

    On others the block sizes may not fit into a block's memory; their convolutions are products over strips.
    """
    device = jax.devices()[0]
    return device.platform == "gpu" and getattr(device, "compute_capability", "") == "9.0"


def fits(kernel: int, depth: int, wide: int) -> bool:
    """Whether a layer with this kernel, from `depth` to `wide` channels, can be computed: Triton wants powers of 2.

    >>> fits(5, 3, 64), fits(5, 20, 50)
    (True, False)
    """
    return kernel >= 2 and wide in (16, 32, 64, 128) and depth <= 128


def _sizes(kernel: int, depth: int, half: bool) -> tuple[Sizes, Sizes]:
    """For the convolution and for the gradient of the weights: a rule from trials with the CIFAR-10 CNN on an H200."""
    length = -(-kernel * depth // 16) * 16
    chunk = next(c for c in ((64, 32, 16) if half else (32, 16)) if length % c == 0)
    splits = max(1, 16 // -(-kernel * length // 128))
    return Sizes(128, chunk, 0, 0, 4, 3 if length >= 64 else 1), Sizes(32, chunk, 128, splits, 4, 3)


def _div(a: Any, n: int) -> Any:
    return lax.div(a, lax.full_like(a, n))  # of values >= 0: no code for signs


def _rem(a: Any, n: int) -> Any:
    return lax.rem(a, lax.full_like(a, n))


def _place(m: Any, total: int, high: int, broad: int, pool: bool) -> tuple[Any, Any, Any]:
    """Image, row, column of output number m; with a pool, its four inputs follow each other."""
    if pool:
        q = _rem(m, 4)
        pos = jnp.minimum(_div(m, 4), total // 4 - 1)
        hp, wp = high // 2, broad // 2
        c, r, n = _rem(pos, wp), _rem(_div(pos, wp), hp), _div(pos, wp * hp)
        return n, 2 * r + _div(q, 2), 2 * c + _rem(q, 2)
    pos = jnp.minimum(m, total - 1)
    return _div(pos, high * broad), _rem(_div(pos, broad), high), _rem(pos, broad)


def _length(kernel: int, depth: int, chunk: int) -> int:
    """Values in a row of a patch, padded to a multiple of the chunk."""
    return -(-kernel * depth // chunk) * chunk


def _flat(x: jax.Array, spare: int) -> jax.Array:
    """All images in one row, with some zeros at its end, since the last patch's row may be read past it."""
    flat = x.reshape(-1)
    return jnp.pad(flat, (0, spare)) if spare else flat


def _exact(dtype: Any) -> Any:
    """The type of sums."""
    return jnp.promote_types(dtype, jnp.float32)


def _zero() -> jax.Array:
    return jnp.zeros(1, jnp.int32)


def _loaded_zero(ref: Any) -> Any:
    """A zero that the compiler does not know.

    Added to the places of patches, since Triton takes some of them for aligned that are not: a row of 3 channels at an
    odd column, after the columns of a pool were counted in pairs. Where a multiple of 16 channels makes them aligned,
    they are loaded in one piece all the same.
    """
    return ref[0]


def _call(function: Callable[..., None], grid: tuple[int, ...], args: list[Any], shapes: list[Any], by: Sizes) -> Any:
    return pl.pallas_call(
        function,
        grid=grid,
        out_shape=shapes,
        interpret=jax.devices()[0].platform == "cpu",
        compiler_params=triton.CompilerParams(num_warps=by.warps, num_stages=by.stages),
    )(*args)


class _Map(NamedTuple):
    """Shapes of a convolution: its images, its kernel, its outputs; with a pool, only those that are pooled count."""

    images: int
    height: int
    width: int
    depth: int
    kernel: int
    wide: int
    high: int
    broad: int

    @property
    def total(self) -> int:
        return self.images * self.high * self.broad


def _map(x: jax.Array, kernel: int, wide: int, pool: bool) -> _Map:
    count, height, width, depth = x.shape
    high, broad = height - kernel + 1, width - kernel + 1
    if pool:
        high, broad = high // 2 * 2, broad // 2 * 2
    return _Map(count, height, width, depth, kernel, wide, high, broad)


def _convolve_kernel(*refs: Any, at: _Map, by: Sizes, pool: bool) -> None:
    x_ref, w_ref, zero_ref = refs[:3]
    rows, chunk, wide = by.rows, by.chunk, at.wide
    length = _length(at.kernel, at.depth, chunk)
    pid = pl.program_id(0)
    n, y, x = _place(pid * rows + jnp.arange(rows), at.total, at.high, at.broad, pool)
    base = (((n * at.height + y) * at.width + x) + _loaded_zero(zero_ref)) * at.depth
    along, out = jnp.arange(chunk), jnp.arange(wide)
    chunks = length // chunk
    a_at = base[:, None] + along[None, :]
    b_at = out[:, None] * (at.kernel * length) + along[None, :]
    exact = _exact(x_ref.dtype)

    def body(t: Any, acc: Any) -> Any:
        i, c = _div(t, chunks), _rem(t, chunks)
        a = triton.load(x_ref.at[a_at + (i * (at.width * at.depth) + c * chunk)])
        b = triton.load(w_ref.at[b_at + t * chunk])
        return acc + lax.dot_general(a, b, (((1,), (1,)), ((), ())), preferred_element_type=exact)

    acc = lax.fori_loop(0, at.kernel * chunks, body, jnp.zeros((rows, wide), exact))
    if not pool:
        m = pid * rows + jnp.arange(rows)
        mask = jnp.broadcast_to((m < at.total)[:, None], (rows, wide))
        triton.store(refs[3].at[m[:, None] * wide + out[None, :]], acc.astype(refs[3].dtype), mask=mask)
        return
    b_ref, out_ref, which_ref = refs[3:]
    four = acc.reshape(rows // 4, 4, wide)
    best = jnp.max(four, axis=1)
    corner = lax.broadcasted_iota(jnp.int32, (rows // 4, 4, wide), 1)
    which = jnp.min(jnp.where(four == best[:, None, :], corner, 4), axis=1)
    top = best + triton.load(b_ref.at[out]).astype(exact)[None, :]
    pos = pid * (rows // 4) + jnp.arange(rows // 4)
    mask = jnp.broadcast_to((pos < at.total // 4)[:, None], (rows // 4, wide))
    to = pos[:, None] * wide + out[None, :]
    triton.store(out_ref.at[to], jnp.maximum(top, 0.0).astype(out_ref.dtype), mask=mask)
    triton.store(which_ref.at[to], jnp.where(top > 0, which, 4).astype(jnp.int8), mask=mask)


def _prepare(x: jax.Array, w: jax.Array, pool: bool) -> tuple[_Map, Sizes, Callable[..., None], list[jax.Array]]:
    """Shapes, block sizes, the kernel, and its arguments: images and weights in one row each."""
    kernel, _, depth, wide = w.shape
    at, (by, _) = _map(x, kernel, wide, pool), _sizes(kernel, depth, x.dtype == jnp.bfloat16)
    spare = _length(kernel, depth, by.chunk) - kernel * depth
    rows = jnp.pad(w.reshape(kernel, kernel * depth, wide).transpose(2, 0, 1), ((0, 0), (0, 0), (0, spare)))
    function = functools.partial(_convolve_kernel, at=at, by=by, pool=pool)
    return at, by, function, [_flat(x, spare), rows.reshape(-1), _zero()]


def convolve(x: jax.Array, w: jax.Array) -> jax.Array:
    """(N, H, W, C), (k, k, C, O) -> (N, H - k + 1, W - k + 1, O)."""
    at, by, function, args = _prepare(x, w, pool=False)
    shape = jax.ShapeDtypeStruct((at.total * at.wide,), x.dtype)
    (out,) = _call(function, (-(-at.total // by.rows),), args, [shape], by)
    return out.reshape(at.images, at.high, at.broad, at.wide)


def convolve_and_pool(x: jax.Array, w: jax.Array, b: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Convolution, bias, ReLU, 2x2 maximum; and which of the four it was: the first if several, 4 if ReLU is flat."""
    at, by, function, args = _prepare(x, w, pool=True)
    shapes = [jax.ShapeDtypeStruct((at.total // 4 * at.wide,), kind) for kind in (x.dtype, jnp.int8)]
    out, which = _call(function, (-(-at.total // by.rows),), [*args, b], shapes, by)
    shape = (at.images, at.high // 2, at.broad // 2, at.wide)
    return out.reshape(shape), which.reshape(shape)


def _weigh_kernel(
    x_ref: Any, d_ref: Any, which_ref: Any, zero_ref: Any, out_ref: Any, *, at: _Map, by: Sizes, loops: int
) -> None:
    rows, tile, wide = by.rows, by.tile, at.wide
    length = _length(at.kernel, at.depth, by.chunk)
    kt, split = pl.program_id(0), pl.program_id(1)
    along, out, several = jnp.arange(tile), jnp.arange(wide), jnp.arange(rows)
    exact, zero = _exact(x_ref.dtype), _loaded_zero(zero_ref)
    if length % tile == 0:
        offset = _div(kt, length // tile) * (at.width * at.depth) + _rem(kt, length // tile) * tile + along
    else:
        k = kt * tile + along
        offset = jnp.minimum(_div(k, length), at.kernel - 1) * (at.width * at.depth) + _rem(k, length)

    def body(t: Any, acc: Any) -> Any:
        n, y, x = _place((split * loops + t) * rows + several, at.total, at.high, at.broad, True)
        base = (((n * at.height + y) * at.width + x) + zero) * at.depth
        a = triton.load(x_ref.at[base[:, None] + offset[None, :]])
        pos = (split * loops + t) * (rows // 4) + jnp.arange(rows // 4)
        ok = jnp.broadcast_to((pos < at.total // 4)[:, None], (rows // 4, wide))
        where = jnp.minimum(pos, at.total // 4 - 1)[:, None] * wide + out[None, :]
        dy = triton.load(d_ref.at[where], mask=ok, other=0.0)
        which = triton.load(which_ref.at[where]).astype(jnp.int32)
        corner = lax.broadcasted_iota(jnp.int32, (rows // 4, 4, wide), 1)
        hit = jnp.broadcast_to(which[:, None, :], (rows // 4, 4, wide)) == corner
        spread = jnp.broadcast_to(dy[:, None, :], (rows // 4, 4, wide))
        d = jnp.where(hit, spread, jnp.zeros_like(spread)).reshape(rows, wide)
        return acc + lax.dot_general(a, d, (((0,), (0,)), ((), ())), preferred_element_type=exact)

    acc = lax.fori_loop(0, loops, body, jnp.zeros((tile, wide), exact))
    tiles = -(-at.kernel * length // tile)
    triton.store(out_ref.at[((split * tiles + kt) * tile + along)[:, None] * wide + out[None, :]], acc)


def weights_gradient(x: jax.Array, dy: jax.Array, which: jax.Array, kernel: int) -> jax.Array:
    """From the pool's gradient and which input each maximum was."""
    at = _map(x, kernel, dy.shape[-1], True)
    _, by = _sizes(kernel, at.depth, x.dtype == jnp.bfloat16)
    length = _length(kernel, at.depth, by.chunk)
    tiles = -(-kernel * length // by.tile)
    loops = -(-at.total // (by.rows * by.splits))
    function = functools.partial(_weigh_kernel, at=at, by=by, loops=loops)
    shape = jax.ShapeDtypeStruct((by.splits * tiles * by.tile * at.wide,), _exact(x.dtype))
    args = [_flat(x, length - kernel * at.depth), dy.reshape(-1), which.reshape(-1), _zero()]
    (out,) = _call(function, (tiles, by.splits), args, [shape], by)
    out = out.reshape(by.splits, tiles * by.tile, at.wide).sum(axis=0)[: kernel * length]
    out = out.reshape(kernel, length, at.wide)[:, : kernel * at.depth]
    return out.reshape(kernel, kernel, at.depth, at.wide).astype(x.dtype)
