"""A cohort of logistic or linear regressions on a CPU: every client's local SGD in one loop that Numba compiles.

It computes what `fedpick.learn.cohort` computes. XLA spends most of a step of so small a model on calling its parts: a
step of 50 examples of 60 inputs and 10 labels takes it three times as long.
"""

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

LANES = 16  # inputs are padded with zeros to a multiple of this: no loop has a remainder
SHARE = 1_000_000  # multiplications of a client's share that are worth waking a thread
# Sums may be in any order, which is the same in every call; NaN and infinity are kept.
_inner = partial(Native, nogil=True, fastmath={"reassoc", "contract", "nsz", "arcp"})


def suits(model: Model, dataset: Dataset, precision: str) -> bool:
    """Whether this model can be trained here on these data."""
    plain = dataset.x.dtype == np.float32 and dataset.y.ndim == 1
    return model.dense and plain and precision == "float32" and jax.default_backend() == "cpu"


@_inner
def _outputs(x: Singles, n: int, w: Singles, b: Singles, z: Singles) -> None:
    """z = x w + b for n examples, a multiple of five: two outputs of five examples in one pass over the inputs."""
    outputs, inputs = w.shape
    for e in range(0, n, 5):
        for k in range(0, outputs, 2):
            j = min(k + 1, outputs - 1)  # the last of an odd number is computed twice
            k0 = k1 = k2 = k3 = k4 = b[k]
            j0 = j1 = j2 = j3 = j4 = b[j]
            for d in range(inputs):
                x0, x1, x2, x3, x4 = x[e, d], x[e + 1, d], x[e + 2, d], x[e + 3, d], x[e + 4, d]
                k0 += x0 * w[k, d]
                k1 += x1 * w[k, d]
                k2 += x2 * w[k, d]
                k3 += x3 * w[k, d]
                k4 += x4 * w[k, d]
                j0 += x0 * w[j, d]
                j1 += x1 * w[j, d]
                j2 += x2 * w[j, d]
                j3 += x3 * w[j, d]
                j4 += x4 * w[j, d]
            z[e, k], z[e + 1, k], z[e + 2, k], z[e + 3, k], z[e + 4, k] = k0, k1, k2, k3, k4
            z[e, j], z[e + 1, j], z[e + 2, j], z[e + 3, j], z[e + 4, j] = j0, j1, j2, j3, j4


@_inner
def _exponentials(z: Singles, powers: NDArray[np.int32]) -> None:
    """Replace z <= 0 by exp(z), to float32's precision: 2^t from the exponent's bits, times a polynomial of the rest.

    (Coefficients of Cephes' expf. `np.exp` would be called for one number after another.)
    """
    for i in range(len(z)):
        v = z[i]
        v = np.float32(-87.0) if v < np.float32(-87.0) else v  # NaN stays NaN
        t = np.floor(v * np.float32(1.44269504) + np.float32(0.5))
        powers[i] = (np.int32(t) + np.int32(127)) << np.int32(23)
        r = v - t * np.float32(0.693359375) - t * np.float32(-2.12194440e-4)
        q = np.float32(1.9875691500e-4)
        q = q * r + np.float32(1.3981999507e-3)
        q = q * r + np.float32(8.3334519073e-3)
        q = q * r + np.float32(4.1665795894e-2)
        q = q * r + np.float32(1.6666665459e-1)
        q = q * r + np.float32(5.0000001201e-1)
        z[i] = q * r * r + r + np.float32(1.0)
    scales = powers.view(np.float32)
    for i in range(len(z)):
        z[i] *= scales[i]


@_inner
def _cross_entropy(z: Singles, n: int, y: Any, powers: NDArray[np.int32]) -> float:
    """The sum of n losses; z becomes the gradient of their mean."""
    labels = z.shape[1]
    total = 0.0
    for e in range(n):
        top = z[e, 0]
        for k in range(1, labels):
            top = z[e, k] if z[e, k] > top else top
        for k in range(labels):
            z[e, k] -= top
        total -= z[e, y[e]]
    _exponentials(z[:n].reshape(-1), powers[: n * labels])
    product = 1.0  # of the sums: one logarithm of many
    for e in range(n):
        together = np.float32(0.0)
        for k in range(labels):
            together += z[e, k]
        product *= together
        if product > 1e200:
            total += np.log(product)
            product = 1.0
        share = np.float32(1.0) / (together * np.float32(n))
        for k in range(labels):
            z[e, k] *= share
        z[e, y[e]] -= np.float32(1.0) / np.float32(n)
    return total + np.log(product)


@_inner
def _squared_error(z: Singles, n: int, y: Any) -> float:
    """The same for targets and one output."""
    total = 0.0
    for e in range(n):
        off = z[e, 0] - y[e]
        total += off * off
        z[e, 0] = np.float32(2.0) * off / np.float32(n)
    return total


@_inner
def _gradient(x: Singles, n: int, z: Singles, g: Singles, slope: Singles) -> None:
    """g = z' x and slope = the sum of z, over n examples, a multiple of five: five in one pass over the weights."""
    outputs, inputs = g.shape
    g[:] = 0.0
    slope[:] = 0.0
    for e in range(0, n, 5):
        for k in range(outputs):
            z0, z1, z2, z3, z4 = z[e, k], z[e + 1, k], z[e + 2, k], z[e + 3, k], z[e + 4, k]
            slope[k] += z0 + z1 + z2 + z3 + z4
            for d in range(inputs):
                g[k, d] += z0 * x[e, d] + z1 * x[e + 1, d] + z2 * x[e + 2, d] + z3 * x[e + 3, d] + z4 * x[e + 4, d]


@_inner
def _descend(
    w: Singles, sent: Singles, g: Singles, v: Singles, lr: float, momentum: float, decay: float, prox: float
) -> None:
    """One step of SGD on flat arrays, as `fedpick.learn.cohort.Local` describes it."""
    if decay or prox:
        for i in range(len(w)):
            g[i] += decay * w[i] + prox * (w[i] - sent[i])
    if momentum:
        for i in range(len(w)):
            v[i] = momentum * v[i] + g[i]
            w[i] -= lr * v[i]
    else:
        for i in range(len(w)):
            w[i] -= lr * g[i]


@partial(Native, nogil=True)
def _clients(
    these: Ints,
    x: Singles,
    y: Any,
    sent: tuple[Singles, Singles],
    owner: Any,
    batches: tuple[Any, Any, Any],
    lr: Singles,
    rates: tuple[Any, Any, Any],
    labels: bool,
    delta: tuple[Singles, Singles],
    loss: Singles,
) -> None:
    """Train these clients; writes to `delta` and `loss`."""
    index, count, steps = batches
    momentum, decay, prox = rates
    outputs, inputs = sent[0].shape[1:]
    most = -(-index.shape[2] // 5) * 5
    rows = np.empty((most, inputs), np.float32)
    there = np.empty(most, y.dtype)
    z, powers = np.empty((most, outputs), np.float32), np.empty(most * outputs, np.int32)
    g, slope = np.empty((outputs, inputs), np.float32), np.empty(outputs, np.float32)
    for c in these:
        w0, b0 = sent[0][owner[c]], sent[1][owner[c]]
        w, b = w0.copy(), b0.copy()
        v, u = np.zeros_like(w), np.zeros_like(b)
        total, seen = 0.0, 0
        for s in range(steps[c]):
            n = count[c, s]
            full = -(-n // 5) * 5  # the last few are zeros
            for e in range(n):
                i = index[c, s, e]
                there[e] = y[i]
                for d in range(inputs):
                    rows[e, d] = x[i, d]
            rows[n:full] = 0.0
            _outputs(rows, full, w, b, z)
            total += _cross_entropy(z, n, there, powers) if labels else _squared_error(z, n, there)
            seen += n
            z[n:full] = 0.0
            _gradient(rows, full, z, g, slope)
            _descend(w.reshape(-1), w0.reshape(-1), g.reshape(-1), v.reshape(-1), lr[c], momentum, decay, prox)
            _descend(b, b0, slope, u, lr[c], momentum, decay, prox)
        delta[0][c] = w - w0
        delta[1][c] = b - b0
        loss[c] = total / max(seen, 1)


_ROWS: WeakKeyDictionary[Dataset, tuple[Singles, Any]] = WeakKeyDictionary()


def _rows(dataset: Dataset) -> tuple[Singles, Any]:
    """The examples as padded rows, once for all trainers that share the data set."""
    if dataset not in _ROWS:
        x = dataset.x.reshape(len(dataset.x), -1)
        padded = np.zeros((len(x), -(-x.shape[1] // LANES) * LANES), np.float32)
        padded[:, : x.shape[1]] = x
        _ROWS[dataset] = padded, np.asarray(dataset.y, np.int32 if dataset.classes else np.float32)
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
    if owner is None:
        w, b, owner = w[None], b[None], np.zeros(len(batches.steps), np.int32)
    x, y = _rows(dataset)
    models, inputs, outputs = w.shape
    padded = np.zeros((models, outputs, x.shape[1]), np.float32)
    padded[:, :, :inputs] = w.transpose(0, 2, 1)
    clients = len(batches.steps)
    delta = np.zeros((clients, outputs, x.shape[1]), np.float32), np.zeros((clients, outputs), np.float32)
    loss = np.zeros(clients, np.float32)
    given = (
        x,
        y,
        (padded, np.ascontiguousarray(b)),
        np.asarray(owner, np.int32),
        batches.parts(),
        np.asarray(lr, np.float32),
        tuple(np.float32(rate) for rate in (local.momentum, local.weight_decay, local.prox)),
        bool(dataset.classes),
        delta,
        loss,
    )
    trained = np.flatnonzero(batches.steps)
    work = int(batches.steps.sum()) * batches.index.shape[2] * padded[0].size
    hands = min(threads, len(trained), max(work // SHARE, 1))
    if hands <= 1:
        _clients(trained, *given)
    else:
        even = np.concatenate([trained, np.full(-len(trained) % hands, -1)])  # -1: nobody
        shares = even[deal(np.where(even < 0, 0, batches.steps[even]), hands)].reshape(hands, -1)
        for _ in _pool(threads).map(lambda some: _clients(some[some >= 0], *given), shares):
            pass
    moved = {"w": np.ascontiguousarray(delta[0][:, :, :inputs].transpose(0, 2, 1)), "b": delta[1]}
    square = sum(np.square(part, dtype=np.float64).reshape(clients, -1).sum(axis=1) for part in moved.values())
    return Trained([moved], loss, np.sqrt(square).astype(np.float32))
