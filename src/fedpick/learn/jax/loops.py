"""The compiled loops of `fedpick.learn.jax.dense`: outputs, losses and slopes of dense layers with ReLU between them.

Arrays are float32. Weights are (layers, outputs, inputs); the inputs of a layer are padded with zeros to a multiple of
LANES after one that is always 1, whose weights are the biases. Numbers of layers, units and examples are no part of the
compiled program.
"""

import math
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpick._support.native import Native
from fedpick.core.types import Ints

__all__ = ["LANES", "Singles", "room", "score_examples", "train_clients"]

Singles = NDArray[np.float32]

LANES = 8  # inputs of a layer are padded to a multiple of this: loops have no remainder
FIVE = 5  # examples whose products are computed together
# Sums may be in any order, which is the same in every call; NaN and infinity are kept.
_outer = partial(Native, nogil=True, fastmath={"reassoc", "contract", "nsz", "arcp"})
_inner = partial(_outer, forceinline=True)

# For compiled code; a plain number would make float64 of what it meets.
ZERO, HALF, ONE, TWO = (np.float32(number) for number in (0, 0.5, 1, 2))
LOWEST, LOG2E, LN2_HIGH, LN2_LOW = (
    np.float32(number) for number in (-87, 1.44269504, 0.693359375, -2.12194440e-4)
)  # exp(-87) is about the smallest normal number
P0, P1, P2, P3, P4, P5 = (
    np.float32(number)
    for number in (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)
)
BIAS, MANTISSA = np.int32(127), np.int32(23)  # of the bits of a float32


def room(examples: int, outputs: int) -> tuple[NDArray[np.int32], Singles]:
    """Memory for powers of 2, one for each output of so many examples: integers, and the same memory as floats.

    `train_clients` and `score_examples` need it for as many examples as they take at a time. (Numba compiles such a
    view slowly.)
    """
    bits = np.empty(-(-examples // FIVE) * FIVE * outputs, np.int32)
    return bits, bits.view(np.float32)


@_inner
def _padded(count: int, to: int) -> int:
    return (count + to - 1) // to * to


@_inner
def _outputs(x: Singles, layer: int, n: int, w: Singles, inputs: int, outputs: int, last: bool, z: Singles) -> None:
    """x w for n examples, a multiple of five: two outputs of five examples in one pass over the inputs.

    Those of the last layer become z; those of another one, where they are > 0, the next layer's inputs.
    """
    for e in range(0, n, FIVE):
        for k in range(0, outputs, 2):
            j = min(k + 1, outputs - 1)  # the last of an odd number is computed twice
            k0 = k1 = k2 = k3 = k4 = j0 = j1 = j2 = j3 = j4 = ZERO
            for d in range(inputs):
                x0, x1, x2 = x[layer, e, d], x[layer, e + 1, d], x[layer, e + 2, d]
                x3, x4 = x[layer, e + 3, d], x[layer, e + 4, d]
                wk, wj = w[layer, k, d], w[layer, j, d]
                k0 += x0 * wk
                k1 += x1 * wk
                k2 += x2 * wk
                k3 += x3 * wk
                k4 += x4 * wk
                j0 += x0 * wj
                j1 += x1 * wj
                j2 += x2 * wj
                j3 += x3 * wj
                j4 += x4 * wj
            if last:
                z[e, k], z[e + 1, k], z[e + 2, k], z[e + 3, k], z[e + 4, k] = k0, k1, k2, k3, k4
                z[e, j], z[e + 1, j], z[e + 2, j], z[e + 3, j], z[e + 4, j] = j0, j1, j2, j3, j4
            else:
                x[layer + 1, e, k], x[layer + 1, e, j] = _positive(k0), _positive(j0)
                x[layer + 1, e + 1, k], x[layer + 1, e + 1, j] = _positive(k1), _positive(j1)
                x[layer + 1, e + 2, k], x[layer + 1, e + 2, j] = _positive(k2), _positive(j2)
                x[layer + 1, e + 3, k], x[layer + 1, e + 3, j] = _positive(k3), _positive(j3)
                x[layer + 1, e + 4, k], x[layer + 1, e + 4, j] = _positive(k4), _positive(j4)


@_inner
def _positive(value: Any) -> Any:
    return ZERO if value < ZERO else value  # NaN stays NaN


@_inner
def _forward(x: Singles, n: int, w: Singles, units: Any, z: Singles) -> None:
    """From the rows x[0] to the outputs z; x[1], ... become the hidden layers' outputs."""
    for layer in range(len(units) - 1):
        last = layer == len(units) - 2
        _outputs(x, layer, _padded(n, FIVE), w, _padded(units[layer] + 1, LANES), units[layer + 1], last, z)


@_inner
def _exponentials(z: Singles, n: int, bits: NDArray[np.int32], powers: Singles) -> None:
    """Replace n numbers z <= 0 by exp(z), to float32's precision: a power of 2 times a polynomial.

    (Coefficients of Cephes' expf. `np.exp` would be called for one number after another.)

    Args:
        z: the numbers.
        n: how many.
        bits: room for as many powers of 2.
        powers: the same memory, as floats.
    """
    for i in range(n):
        v = LOWEST if z[i] < LOWEST else z[i]  # NaN stays NaN
        power = np.int32(v * LOG2E - HALF)  # to the nearest
        t = np.float32(power)
        bits[i] = (power + BIAS) << MANTISSA
        r = v - t * LN2_HIGH - t * LN2_LOW
        q = ((((P0 * r + P1) * r + P2) * r + P3) * r + P4) * r + P5
        z[i] = q * r * r + r + ONE
    for i in range(n):
        z[i] *= powers[i]


@_inner
def _cross_entropy(z: Singles, flat: Singles, n: int, y: Singles, bits: NDArray[np.int32], powers: Singles) -> float:
    """The sum of n losses; z, whose memory is `flat`, becomes the gradient of their mean."""
    labels = z.shape[1]
    each = ONE / np.float32(n)
    total = 0.0
    for e in range(n):
        top = z[e, 0]
        for k in range(1, labels):
            top = z[e, k] if z[e, k] > top else top
        for k in range(labels):
            z[e, k] -= top
        total -= z[e, int(y[e])]
    _exponentials(flat, n * labels, bits, powers)
    product = 1.0  # of the sums: one logarithm of many
    for e in range(n):
        together: Any = ZERO
        for k in range(labels):
            together += z[e, k]
        product *= together
        if product > 1e200:
            total += math.log(product)
            product = 1.0
        share = each / together
        for k in range(labels):
            z[e, k] *= share
        z[e, int(y[e])] -= each
    return total + math.log(product)


@_inner
def _gradient(x: Singles, layer: int, n: int, z: Singles, inputs: int, outputs: int, g: Singles) -> None:
    """g = z' x over n examples, a multiple of five: five in one pass over the weights."""
    for k in range(outputs):
        for d in range(inputs):
            g[layer, k, d] = ZERO
    for e in range(0, n, FIVE):
        for k in range(outputs):
            z0, z1, z2, z3, z4 = z[e, k], z[e + 1, k], z[e + 2, k], z[e + 3, k], z[e + 4, k]
            for d in range(inputs):
                g[layer, k, d] += (
                    z0 * x[layer, e, d]
                    + z1 * x[layer, e + 1, d]
                    + z2 * x[layer, e + 2, d]
                    + z3 * x[layer, e + 3, d]
                    + z4 * x[layer, e + 4, d]
                )


@_inner
def _backward(x: Singles, layer: int, n: int, z: Singles, w: Singles, inputs: int, outputs: int, to: Singles) -> None:
    """The slope by the outputs z of a layer becomes that by its inputs, where those are > 0."""
    for e in range(n):
        for d in range(inputs):
            to[e, d] = ZERO
        for k in range(0, outputs, 4):
            k1, k2, k3 = min(k + 1, outputs - 1), min(k + 2, outputs - 1), min(k + 3, outputs - 1)
            z0, z1 = z[e, k], z[e, k1] if k1 == k + 1 else ZERO
            z2, z3 = z[e, k2] if k2 == k + 2 else ZERO, z[e, k3] if k3 == k + 3 else ZERO
            for d in range(inputs):
                to[e, d] += z0 * w[layer, k, d] + z1 * w[layer, k1, d] + z2 * w[layer, k2, d] + z3 * w[layer, k3, d]
        for d in range(inputs):
            to[e, d] = to[e, d] if x[layer, e, d] > ZERO else ZERO


@_outer
def train_clients(
    these: Ints,
    x: Singles,
    y: Singles,
    labels: bool,
    units: Any,
    sent: Singles,
    owner: Any,
    index: Any,
    count: Any,
    steps: Any,
    lr: Singles,
    momentum: Any,
    decay: Any,
    prox: Any,
    more: Singles | None,
    after: Singles,
    loss: Singles,
    bits: NDArray[np.int32],
    powers: Singles,
) -> None:
    """Train these clients; writes their weights to `after`, and `loss`. (Loops: slices take seconds to compile.)"""
    layers, most, wide = sent.shape[1:]
    top = units[layers]
    batch = len(bits) // top
    rows, z = np.zeros((layers, batch, wide), np.float32), np.empty((batch, top), np.float32)
    flat = z.reshape(-1)
    one, two = np.empty((batch, wide), np.float32), np.empty((batch, wide), np.float32)
    w, g = np.empty((layers, most, wide), np.float32), np.empty((layers, most, wide), np.float32)
    v = np.empty((layers, most, wide), np.float32)
    there = np.empty(batch, np.float32)
    for layer in range(1, layers):
        for e in range(batch):
            rows[layer, e, units[layer]] = ONE
    for c in these:
        own, rate = owner[c], lr[c]
        for layer in range(layers):
            for k in range(units[layer + 1]):
                for d in range(wide):
                    w[layer, k, d], v[layer, k, d] = sent[own, layer, k, d], ZERO
        total, seen = 0.0, 0
        for s in range(steps[c]):
            n = count[c, s]
            full = _padded(n, FIVE)
            for e in range(n):
                i = index[c, s, e]
                there[e] = y[i]
                for d in range(x.shape[1]):
                    rows[0, e, d] = x[i, d]
            for e in range(n, full):
                for d in range(x.shape[1]):
                    rows[0, e, d] = ZERO
            _forward(rows, n, w, units, z)
            if labels:
                total += _cross_entropy(z, flat, n, there, bits, powers)
            else:
                for e in range(n):
                    off = z[e, 0] - there[e]
                    total += off * off
                    z[e, 0] = TWO * off / np.float32(n)
            for e in range(n, full):
                for k in range(top):
                    z[e, k] = ZERO
            seen += n
            slope, free = z, one
            for layer in range(layers - 1, -1, -1):
                inputs = _padded(units[layer] + 1, LANES)
                _gradient(rows, layer, full, slope, inputs, units[layer + 1], g)
                if layer:
                    _backward(rows, layer, full, slope, w, inputs, units[layer + 1], free)
                    slope, free = (one, two) if layer % 2 == (layers - 1) % 2 else (two, one)
            for layer in range(layers):
                inputs = _padded(units[layer] + 1, LANES)
                for k in range(units[layer + 1]):
                    if decay or prox:
                        for d in range(inputs):
                            off = w[layer, k, d] - sent[own, layer, k, d]
                            g[layer, k, d] += decay * w[layer, k, d] + prox * off
                    if more is not None:  # without it the program is compiled without these lines
                        for d in range(inputs):
                            g[layer, k, d] += more[c, layer, k, d]
                    if momentum:
                        for d in range(inputs):
                            g[layer, k, d] += momentum * v[layer, k, d]
                            v[layer, k, d] = g[layer, k, d]
                    for d in range(inputs):
                        w[layer, k, d] -= rate * g[layer, k, d]
        for layer in range(layers):
            for k in range(units[layer + 1]):
                for d in range(wide):
                    after[c, layer, k, d] = w[layer, k, d]
        loss[c] = total / max(seen, 1)


@_outer
def score_examples(
    first: int,
    last: int,
    index: Any,
    x: Singles,
    y: Singles,
    labels: bool,
    units: Any,
    w: Singles,
    loss: Singles,
    hits: Singles,
    bits: NDArray[np.int32],
    powers: Singles,
) -> None:
    """Loss and hit of the examples index[first:last]."""
    layers, _, wide = w.shape
    top = units[layers]
    batch = len(bits) // top
    rows, z = np.zeros((layers, batch, wide), np.float32), np.empty((batch, top), np.float32)
    flat = z.reshape(-1)
    for layer in range(1, layers):
        for e in range(batch):
            rows[layer, e, units[layer]] = ONE
    for start in range(first, last, batch):
        n = min(batch, last - start)
        for e in range(n):
            for d in range(x.shape[1]):
                rows[0, e, d] = x[index[start + e], d]
        _forward(rows, n, w, units, z)
        if labels:
            for e in range(n):
                best = 0
                for k in range(1, top):
                    # The first of the highest; NaN is above any number.
                    if z[e, k] > z[e, best] or (z[e, k] != z[e, k] and z[e, best] == z[e, best]):
                        best = k
                mine, high = int(y[index[start + e]]), z[e, best]
                hits[start + e] = ONE if best == mine else ZERO
                for k in range(top):
                    z[e, k] -= high
                loss[start + e] = z[e, mine]
            _exponentials(flat, n * top, bits, powers)
            for e in range(n):
                together: Any = ZERO
                for k in range(top):
                    together += z[e, k]
                loss[start + e] = math.log(together) - loss[start + e]
        else:
            for e in range(n):
                off = z[e, 0] - y[index[start + e]]
                loss[start + e], hits[start + e] = off * off, ZERO
