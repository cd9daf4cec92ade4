"""A cohort of logistic or linear regressions on a CPU: every client's local SGD in one loop that Numba compiles.

It computes what `fedpick.learn.cohort` computes. XLA spends most of a step of so small a model on calling its parts: a
step of 50 examples of 60 inputs and 10 labels takes it three times as long.
"""

import math
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from typing import Any
from weakref import WeakKeyDictionary

import jax
import numpy as np
from numpy.typing import NDArray

from fedpick.data.federated import Dataset
from fedpick.learn.batches import Batches
from fedpick.learn.cohort import Local, Trained
from fedpick.learn.models import Model
from fedpick.learn.placement import deal
from fedpick.native import Native
from fedpick.types import Ints

__all__ = ["suits", "train"]

Singles = NDArray[np.float32]

LANES = 16  # inputs, a 1 for the bias among them, are padded with zeros to a multiple of this: loops have no remainder
SHARE = 1_000_000  # multiplications of a client's share that are worth waking a thread
# Sums may be in any order, which is the same in every call; NaN and infinity are kept.
_inner = partial(Native, nogil=True, fastmath={"reassoc", "contract", "nsz", "arcp"})

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


def suits(model: Model, dataset: Dataset, precision: str) -> bool:
    """Whether this model can be trained here on these data."""
    plain = dataset.x.dtype == np.float32 and dataset.y.ndim == 1
    return model.dense and plain and precision == "float32" and jax.default_backend() == "cpu"


@_inner
def _outputs(x: Singles, n: int, w: Singles, z: Singles) -> None:
    """z = x w for n examples, a multiple of five: two outputs of five examples in one pass over the inputs."""
    outputs, inputs = w.shape
    for e in range(0, n, 5):
        for k in range(0, outputs, 2):
            j = min(k + 1, outputs - 1)  # the last of an odd number is computed twice
            k0 = k1 = k2 = k3 = k4 = j0 = j1 = j2 = j3 = j4 = ZERO
            for d in range(inputs):
                x0, x1, x2, x3, x4 = x[e, d], x[e + 1, d], x[e + 2, d], x[e + 3, d], x[e + 4, d]
                wk, wj = w[k, d], w[j, d]
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
            z[e, k], z[e + 1, k], z[e + 2, k], z[e + 3, k], z[e + 4, k] = k0, k1, k2, k3, k4
            z[e, j], z[e + 1, j], z[e + 2, j], z[e + 3, j], z[e + 4, j] = j0, j1, j2, j3, j4


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
def _gradient(x: Singles, n: int, z: Singles, g: Singles) -> None:
    """g = z' x over n examples, a multiple of five: five in one pass over the weights."""
    outputs, inputs = g.shape
    for k in range(outputs):
        for d in range(inputs):
            g[k, d] = ZERO
    for e in range(0, n, 5):
        for k in range(outputs):
            z0, z1, z2, z3, z4 = z[e, k], z[e + 1, k], z[e + 2, k], z[e + 3, k], z[e + 4, k]
            for d in range(inputs):
                g[k, d] += z0 * x[e, d] + z1 * x[e + 1, d] + z2 * x[e + 2, d] + z3 * x[e + 3, d] + z4 * x[e + 4, d]


@_inner
def _clients(
    these: Ints,
    x: Singles,
    y: Singles,
    labels: bool,
    sent: Singles,
    owner: Any,
    index: Any,
    count: Any,
    steps: Any,
    lr: Singles,
    momentum: Any,
    decay: Any,
    prox: Any,
    trained: Singles,
    loss: Singles,
    bits: NDArray[np.int32],
    powers: Singles,
) -> None:
    """Train these clients; writes their weights to `trained`, and `loss`. (Loops: slices take seconds to compile.)"""
    outputs, inputs = sent.shape[1:]
    most = len(bits) // outputs
    rows, z = np.empty((most, inputs), np.float32), np.empty((most, outputs), np.float32)
    flat = z.reshape(-1)
    w, g = np.empty((outputs, inputs), np.float32), np.empty((outputs, inputs), np.float32)
    v = np.empty((outputs, inputs), np.float32)
    there = np.empty(most, np.float32)
    for c in these:
        own, rate = owner[c], lr[c]
        for k in range(outputs):
            for d in range(inputs):
                w[k, d], v[k, d] = sent[own, k, d], ZERO
        total, seen = 0.0, 0
        for s in range(steps[c]):
            n = count[c, s]
            for e in range(n):
                i = index[c, s, e]
                there[e] = y[i]
                for d in range(inputs):
                    rows[e, d] = x[i, d]
            full = -(-n // 5) * 5
            for e in range(n, full):
                for d in range(inputs):
                    rows[e, d] = ZERO
            _outputs(rows, full, w, z)
            if labels:
                total += _cross_entropy(z, flat, n, there, bits, powers)
            else:
                for e in range(n):
                    off = z[e, 0] - there[e]
                    total += off * off
                    z[e, 0] = TWO * off / np.float32(n)
            for e in range(n, full):
                for k in range(outputs):
                    z[e, k] = ZERO
            seen += n
            _gradient(rows, full, z, g)
            if decay or prox:
                for k in range(outputs):
                    for d in range(inputs):
                        g[k, d] += decay * w[k, d] + prox * (w[k, d] - sent[own, k, d])
            if momentum:
                for k in range(outputs):
                    for d in range(inputs):
                        g[k, d] += momentum * v[k, d]
                        v[k, d] = g[k, d]
            for k in range(outputs):
                for d in range(inputs):
                    w[k, d] -= rate * g[k, d]
        for k in range(outputs):
            for d in range(inputs):
                trained[c, k, d] = w[k, d]
        loss[c] = total / max(seen, 1)


_ROWS: WeakKeyDictionary[Dataset, tuple[Singles, Singles]] = WeakKeyDictionary()


def _rows(dataset: Dataset) -> tuple[Singles, Singles]:
    """The examples as padded rows, once for all trainers that share the data set; labels are floats, too."""
    if dataset not in _ROWS:
        x = dataset.x.reshape(len(dataset.x), -1)
        inputs = x.shape[1]
        padded = np.zeros((len(x), -(-(inputs + 1) // LANES) * LANES), np.float32)
        padded[:, :inputs], padded[:, inputs] = x, 1.0
        _ROWS[dataset] = padded, np.asarray(dataset.y, np.float32)
    return _ROWS[dataset]


@lru_cache(maxsize=1)
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads)


def train(
    dataset: Dataset, local: Local, threads: int, sent: Any, batches: Batches, lr: Any, owner: Any = None
) -> Trained:
    """Train a cohort, as `fedpick.learn.cohort.train` does; results do not depend on the number of threads.

    Args:
        dataset: whose training examples are used.
        local: how.
        threads: to use at most.
        sent: the model that they start from; with an `owner`, several, stacked along the first axis.
        batches: what each client sees.
        lr: (C) learning rates.
        owner: (C) which of the stacked models each client starts from; None: there is one.
    """
    (layer,) = sent
    w, b = np.asarray(layer["w"]), np.asarray(layer["b"])
    clients = len(batches.steps)
    if owner is None:
        w, b, owner = w[None], b[None], np.zeros(clients)
    x, y = _rows(dataset)
    models, inputs, outputs = w.shape
    padded = np.zeros((models, outputs, x.shape[1]), np.float32)
    padded[:, :, :inputs], padded[:, :, inputs] = w.transpose(0, 2, 1), b
    owner = np.asarray(owner, np.int32)
    after, loss = padded[owner], np.zeros(clients, np.float32)
    index, count, steps = (np.ascontiguousarray(part) for part in batches.parts())
    seen = index, count, steps, np.asarray(lr, np.float32)
    momentum, decay, prox = (np.float32(rate) for rate in (local.momentum, local.weight_decay, local.prox))
    size = -(-index.shape[2] // 5) * 5 * outputs

    def of(these: Ints) -> None:
        bits = np.empty(size, np.int32)
        how = bool(dataset.classes), padded, owner, *seen, momentum, decay, prox
        _clients(these, x, y, *how, after, loss, bits, bits.view(np.float32))

    trained = np.flatnonzero(steps)
    work = int(steps.sum()) * index.shape[2] * padded[0].size
    hands = min(threads, len(trained), max(work // SHARE, 1))
    if hands <= 1:
        of(trained)
    else:
        even = np.concatenate([trained, np.full(-len(trained) % hands, -1)])  # -1: nobody
        shares = even[deal(np.where(even < 0, 0, steps[even]), hands)].reshape(hands, -1)
        for _ in _pool(threads).map(lambda share: of(share[share >= 0]), shares):
            pass
    with np.errstate(invalid="ignore", over="ignore"):  # of clients that diverged, which are told by their norms
        moved = after - padded[owner]
        square = np.square(moved, dtype=np.float64).reshape(clients, -1).sum(axis=1)
        norm = np.sqrt(square).astype(np.float32)
    delta = {"w": np.ascontiguousarray(moved[:, :, :inputs].transpose(0, 2, 1)), "b": moved[:, :, inputs].copy()}
    return Trained([delta], loss, norm)
