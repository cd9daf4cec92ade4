"""Pallas kernels for a GPU: convolution, bias, ReLU and 2x2 max pooling of all clients, reading patches in place.

Arrays have the clients first: images (S, N, H, W, C), weights (S, k, k, C, O). A patch's row of k * C values is
contiguous in memory, so a kernel needs no copy of the patches: it reads those rows where they are. On a CPU the kernels
are interpreted, which is slow and good for tests only.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

K = 5  # the kernel's side


class Convolve(NamedTuple):
    """Block sizes of a convolution: outputs, values of a patch's row, warps, stages."""

    rows: int
    chunk: int
    warps: int
    stages: int


class Weigh(NamedTuple):
    """Block sizes of the gradient of the weights.

    Outputs, multiple a patch's row is padded to, values of a patch, parts of the sum over outputs, warps, stages; and
    whether the kernel undoes the pool itself.
    """

    rows: int
    chunk: int
    tile: int
    splits: int
    warps: int
    stages: int
    undo_pool: bool


class Layer(NamedTuple):
    """Block sizes of a layer's kernels; no `inputs`: nobody asks for the gradient to its inputs."""

    forward: Convolve
    weights: Weigh
    inputs: Convolve | None


# The fastest of 6 to 8 block sizes for each kernel, on an H200 with JAX 0.11.2, for the CIFAR-10 CNN's two layers.
TUNED = {
    "float32": (
        Layer(Convolve(128, 16, 4, 1), Weigh(32, 16, 128, 16, 4, 3, True), None),
        Layer(Convolve(128, 64, 8, 3), Weigh(64, 64, 64, 1, 4, 3, True), Convolve(128, 64, 4, 3)),
    ),
    "bfloat16": (
        Layer(Convolve(128, 16, 4, 3), Weigh(64, 16, 128, 40, 4, 2, True), None),
        Layer(Convolve(128, 64, 4, 2), Weigh(32, 64, 64, 1, 4, 4, False), Convolve(128, 64, 4, 3)),
    ),
}
SMALL = (  # for 16 channels
    Layer(Convolve(32, 16, 4, 2), Weigh(32, 16, 128, 2, 4, 2, True), None),
    Layer(Convolve(32, 16, 4, 2), Weigh(32, 16, 16, 1, 4, 2, False), Convolve(32, 16, 4, 2)),
)


def _div(a, n):
    return lax.div(a, lax.full_like(a, n))  # of values >= 0: no code for signs


def _rem(a, n):
    return lax.rem(a, lax.full_like(a, n))


def _place(m, total, high, broad, pool):
    """Image, row, column of output number m; with a pool, its four inputs follow each other."""
    if pool:
        q = _rem(m, 4)
        pos = jnp.minimum(_div(m, 4), total // 4 - 1)
        hp, wp = high // 2, broad // 2
        c, r, n = _rem(pos, wp), _rem(_div(pos, wp), hp), _div(pos, wp * hp)
        return n, 2 * r + _div(q, 2), 2 * c + _rem(q, 2)
    pos = jnp.minimum(m, total - 1)
    return _div(pos, high * broad), _rem(_div(pos, broad), high), _rem(pos, broad)


def _length(depth, chunk):
    """Values in a row of a patch, padded to a multiple of the chunk."""
    return -(-K * depth // chunk) * chunk


def _all_of(size):
    """One client's flat array."""
    return pl.BlockSpec((None, size), lambda s, *_: (s, 0))


def _flat(x, spare):
    """Images of a client in one row, with some zeros at its end, since the last patch's row may be read past it."""
    flat = x.reshape(len(x), -1)
    return jnp.pad(flat, ((0, 0), (0, spare))) if spare else flat


def _flat_weights(w, length):
    """(S, k, k, C, O) -> (S, O * k * length): the kernel's rows, each of k * C values and then zeros, last."""
    s, _, _, c, o = w.shape
    w = w.reshape(s, K, K * c, o).transpose(0, 3, 1, 2)
    return jnp.pad(w, ((0, 0), (0, 0), (0, 0), (0, length - K * c))).reshape(s, -1)


def _call(kernel, grid, args, shapes, sizes):
    return pl.pallas_call(
        kernel,
        grid=grid,
        in_specs=[_all_of(arg.shape[1]) for arg in args],
        out_specs=[_all_of(shape.shape[1]) for shape in shapes],
        out_shape=shapes,
        interpret=jax.default_backend() == "cpu",
        compiler_params=triton.CompilerParams(num_warps=sizes.warps, num_stages=sizes.stages),
    )(*args)


def _convolve_kernel(*refs, shape, wide, length, total, high, broad, pool, rows, chunk):
    x_ref, w_ref = refs[:2]
    height, width, depth = shape
    pid = pl.program_id(1)
    n, y, x = _place(pid * rows + jnp.arange(rows), total, high, broad, pool)
    base = ((n * height + y) * width + x) * depth
    along, out = jnp.arange(chunk), jnp.arange(wide)
    chunks = length // chunk
    a_at = base[:, None] + along[None, :]
    b_at = out[:, None] * (K * length) + along[None, :]

    def body(t, acc):
        i, c = _div(t, chunks), _rem(t, chunks)
        a = triton.load(x_ref.at[a_at + (i * (width * depth) + c * chunk)])
        b = triton.load(w_ref.at[b_at + t * chunk])
        return acc + lax.dot_general(a, b, (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32)

    acc = lax.fori_loop(0, K * chunks, body, jnp.zeros((rows, wide), jnp.float32))
    if not pool:
        m = pid * rows + jnp.arange(rows)
        mask = jnp.broadcast_to((m < total)[:, None], (rows, wide))
        triton.store(refs[2].at[m[:, None] * wide + out[None, :]], acc.astype(refs[2].dtype), mask=mask)
        return
    b_ref, out_ref, which_ref = refs[2:]
    four = acc.reshape(rows // 4, 4, wide)
    best = jnp.max(four, axis=1)
    corner = lax.broadcasted_iota(jnp.int32, (rows // 4, 4, wide), 1)
    which = jnp.min(jnp.where(four == best[:, None, :], corner, 4), axis=1)
    top = best + triton.load(b_ref.at[out]).astype(jnp.float32)[None, :]
    pos = pid * (rows // 4) + jnp.arange(rows // 4)
    mask = jnp.broadcast_to((pos < total // 4)[:, None], (rows // 4, wide))
    at = pos[:, None] * wide + out[None, :]
    triton.store(out_ref.at[at], jnp.maximum(top, 0.0).astype(out_ref.dtype), mask=mask)
    triton.store(which_ref.at[at], jnp.where(top > 0, which, 4).astype(jnp.int8), mask=mask)


def convolve(x, w, b, sizes):
    """The convolution if b is None; else with bias, ReLU and pool: the result, and which input it was (4: none)."""
    s, n, height, width, depth = x.shape
    wide = w.shape[-1]
    pool = b is not None
    high, broad = height - K + 1, width - K + 1
    if pool:
        high, broad = high // 2 * 2, broad // 2 * 2
    total = n * high * broad
    length = _length(depth, sizes.chunk)
    args = [_flat(x, length - K * depth), _flat_weights(w, length)]
    kernel = functools.partial(
        _convolve_kernel, shape=(height, width, depth), wide=wide, length=length, total=total, high=high, broad=broad,
        pool=pool, rows=sizes.rows, chunk=sizes.chunk,
    )  # fmt: skip
    size = total // 4 * wide if pool else total * wide
    shapes = [jax.ShapeDtypeStruct((s, size), x.dtype)]
    if pool:
        shapes.append(jax.ShapeDtypeStruct((s, size), jnp.int8))
        args.append(b)
    out = _call(kernel, (s, -(-total // sizes.rows)), args, shapes, sizes)
    if pool:
        return tuple(one.reshape(s, n, high // 2, broad // 2, wide) for one in out)
    return out[0].reshape(s, n, high, broad, wide)


def _weigh_kernel(*refs, shape, wide, length, total, high, broad, undo_pool, rows, tile, loops):
    x_ref, d_ref, out_ref = refs[0], refs[1], refs[-1]
    height, width, depth = shape
    kt, split = pl.program_id(1), pl.program_id(2)
    along, out, several = jnp.arange(tile), jnp.arange(wide), jnp.arange(rows)
    if length % tile == 0:
        offset = _div(kt, length // tile) * (width * depth) + _rem(kt, length // tile) * tile + along
    else:
        k = kt * tile + along
        offset = jnp.minimum(_div(k, length), K - 1) * (width * depth) + _rem(k, length)
    edge = K - 1  # zeros around the gradient, if it is of the whole map

    def body(t, acc):
        m = (split * loops + t) * rows + several
        n, y, x = _place(m, total, high, broad, undo_pool)
        a = triton.load(x_ref.at[(((n * height + y) * width + x) * depth)[:, None] + offset[None, :]])
        if undo_pool:
            pos = (split * loops + t) * (rows // 4) + jnp.arange(rows // 4)
            ok = jnp.broadcast_to((pos < total // 4)[:, None], (rows // 4, wide))
            at = jnp.minimum(pos, total // 4 - 1)[:, None] * wide + out[None, :]
            dy = triton.load(d_ref.at[at], mask=ok, other=0.0)
            which = triton.load(refs[2].at[at]).astype(jnp.int32)
            corner = lax.broadcasted_iota(jnp.int32, (rows // 4, 4, wide), 1)
            hit = jnp.broadcast_to(which[:, None, :], (rows // 4, 4, wide)) == corner
            spread = jnp.broadcast_to(dy[:, None, :], (rows // 4, 4, wide))
            d = jnp.where(hit, spread, jnp.zeros_like(spread)).reshape(rows, wide)
        else:
            ok = jnp.broadcast_to((m < total)[:, None], (rows, wide))
            first = ((n * (high + 2 * edge) + y + edge) * (broad + 2 * edge) + x + edge) * wide
            d = triton.load(d_ref.at[first[:, None] + out[None, :]], mask=ok, other=0.0)
        return acc + lax.dot_general(a, d, (((0,), (0,)), ((), ())), preferred_element_type=jnp.float32)

    acc = lax.fori_loop(0, loops, body, jnp.zeros((tile, wide), jnp.float32))
    tiles = -(-K * length // tile)
    at = ((split * tiles + kt) * tile + along)[:, None] * wide + out[None, :]
    triton.store(out_ref.at[at], acc)


def weigh(x, d, which, sizes):
    """Gradient of the weights, from the pool's gradient and `which`, or from the whole map's with zeros around it."""
    s, n, height, width, depth = x.shape
    wide = d.shape[-1]
    high, broad = height - K + 1, width - K + 1
    if sizes.undo_pool:
        high, broad = high // 2 * 2, broad // 2 * 2
    total = n * high * broad
    length = _length(depth, sizes.chunk)
    tiles = -(-K * length // sizes.tile)
    args = [_flat(x, length - K * depth), d.reshape(s, -1)] + ([which.reshape(s, -1)] if sizes.undo_pool else [])
    kernel = functools.partial(
        _weigh_kernel, shape=(height, width, depth), wide=wide, length=length, total=total, high=high, broad=broad,
        undo_pool=sizes.undo_pool, rows=sizes.rows, tile=sizes.tile, loops=-(-total // (sizes.rows * sizes.splits)),
    )  # fmt: skip
    shape = jax.ShapeDtypeStruct((s, sizes.splits * tiles * sizes.tile * wide), jnp.float32)
    (out,) = _call(kernel, (s, tiles, sizes.splits), args, [shape], sizes)
    out = out.reshape(s, sizes.splits, tiles * sizes.tile, wide).sum(axis=1)[:, : K * length]
    return out.reshape(s, K, length, wide)[:, :, : K * depth].reshape(s, K, K, depth, wide).astype(x.dtype)


def whole_map(dy, which, high, broad):
    """The gradient before the pool (S, N, high, broad, O), with K - 1 zeros around it."""
    s, n, hp, wp, wide = dy.shape
    corner = jnp.arange(4, dtype=jnp.int8).reshape(1, 1, 1, 2, 1, 2, 1)
    dz = jnp.where(which[:, :, :, None, :, None] == corner, dy[:, :, :, None, :, None], 0).astype(dy.dtype)
    dz = dz.reshape(s, n, 2 * hp, 2 * wp, wide)
    more = ((K - 1, K - 1 + high - 2 * hp), (K - 1, K - 1 + broad - 2 * wp))
    return jnp.pad(dz, ((0, 0), (0, 0), *more, (0, 0)))


def turned(w):
    """Weights for the way back: rotated by half a turn, inputs and outputs exchanged."""
    return w[:, ::-1, ::-1].transpose(0, 1, 2, 4, 3)


def bias_gradient(dy, which):
    """Of all clients."""
    return jnp.where(which < 4, dy, 0).sum(axis=(1, 2, 3), dtype=jnp.float32).astype(dy.dtype)


def pallas_layer(sizes):
    """A layer (x, w, b) -> result, of all clients, with these block sizes."""

    @jax.custom_vjp
    def layer(x, w, b):
        return save(x, w, b)[0]

    def save(x, w, b):
        out, which = convolve(x, w, b, sizes.forward)
        return out, (x, w, which)

    def back(kept, dy):
        x, w, which = kept
        if sizes.inputs is None:
            dx = jnp.full_like(x, jnp.nan)  # nobody asks for it; if someone does, it shows
            return dx, weigh(x, dy, which, sizes.weights), bias_gradient(dy, which)
        dz = whole_map(dy, which, x.shape[2] - K + 1, x.shape[3] - K + 1)
        dw = weigh(x, dy if sizes.weights.undo_pool else dz, which, sizes.weights)
        return convolve(dz, turned(w), None, sizes.inputs), dw, bias_gradient(dy, which)

    layer.defvjp(save, back)
    return layer
