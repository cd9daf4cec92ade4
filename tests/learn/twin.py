"""The slow twin of `fedpick.learn`: NumPy in float64, client by client, step by step, gradients written by hand.

It shares three things with the library, because they are the rule and not the computation:

- the random numbers: first one uniform for each example seen, client by client in the cohort's order, then two words of
  a dropout key for each client that trains;
- the layout of parameters: a list of layers {"w", "b"}, or {"conv": layers, "dense": layers};
- the draw of what is dropped: jax.random.bernoulli(fold_in(key, step), 1 - rate) over a whole padded batch.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedpick.data import Dataset, Federated


class Client(NamedTuple):
    delta: Any
    loss: float
    norm: float


# ---- which examples, in which order


def batches(
    data: Federated, client: int, epochs: int, batch: int, steps: int | None, uniform: Callable[[], float]
) -> list[list[int]]:
    """The batches of one client: cards are drawn from its deck, and when the deck is empty it is taken up again.

    The card drawn is swapped to the place of the first not yet drawn (Fisher and Yates).
    """
    deck = [int(i) for i in data.examples_of(client)]
    drawn = 0

    def card() -> int:
        nonlocal drawn
        other = drawn + int(uniform() * (len(deck) - drawn))
        deck[drawn], deck[other] = deck[other], deck[drawn]
        drawn += 1
        found = deck[drawn - 1]
        if drawn == len(deck):
            drawn = 0
        return found

    out = []
    if steps is None:  # whole passes; the last batch of a pass is what is left
        for _ in range(epochs):
            left = len(deck)
            while left:
                take = min(batch, left)
                out.append([card() for _ in range(take)])
                left -= take
    else:  # full batches, or all that the client has
        for _ in range(epochs * steps):
            out.append([card() for _ in range(min(batch, len(deck)))])
    return out


# ---- networks


def inputs_of(dataset: Dataset, x: Any) -> np.ndarray:
    """Inputs as the model sees them."""
    x = np.asarray(x)
    if x.dtype != np.uint8:
        return x.astype(np.float64)
    return (x / 255.0 - np.asarray(dataset.mean)) / np.asarray(dataset.std)


def losses(out: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Cross-entropy of labels, squared error of targets."""
    if y.dtype.kind in "iu":
        high = out.max(axis=1)
        return high + np.log(np.exp(out - high[:, None]).sum(axis=1)) - out[np.arange(len(y)), y]
    return (out[:, 0] - y) ** 2


def _slope(out: np.ndarray, y: np.ndarray) -> np.ndarray:
    """d(mean loss)/d(outputs)."""
    if y.dtype.kind in "iu":
        share = np.exp(out - out.max(axis=1, keepdims=True))
        share /= share.sum(axis=1, keepdims=True)
        share[np.arange(len(y)), y] -= 1.0
        return share / len(y)
    return 2.0 * (out - y[:, None]) / len(y)


def _dense(layers: list[Any], x: np.ndarray, kept: np.ndarray | float) -> list[np.ndarray]:
    """What goes into each layer, and at last what comes out."""
    values = [x]
    for layer in layers[:-1]:
        values.append(np.maximum(values[-1] @ layer["w"] + layer["b"], 0.0))
    values[-1] = values[-1] * kept
    return [*values, values[-1] @ layers[-1]["w"] + layers[-1]["b"]]


def _dense_gradient(
    layers: list[Any], x: np.ndarray, y: np.ndarray, kept: np.ndarray | float
) -> tuple[np.ndarray, list[Any], np.ndarray]:
    """Losses, the gradient of their mean, and that with respect to the inputs."""
    *values, out = _dense(layers, x, kept)
    back = _slope(out, y)
    gradient: list[Any] = []
    for number in reversed(range(len(layers))):
        gradient.insert(0, {"w": values[number].T @ back, "b": back.sum(axis=0)})
        back = back @ layers[number]["w"].T
        if number == len(layers) - 1:
            back = back * kept
        if number:
            back = back * (values[number] > 0)
    return losses(out, y), gradient, back


def reference_features(layers: Any, x: Any, padding: str) -> Any:
    """Convolution, ReLU, pooling, as JAX's own operations have them."""
    for layer in layers:
        kernel = layer["w"].shape[0]
        around = [((kernel - 1) // 2, kernel // 2)] * 2 if padding == "same" else "VALID"
        x = lax.conv_general_dilated(
            x, layer["w"], (1, 1), around, dimension_numbers=("NHWC", "HWIO", "NHWC"), precision="highest"
        )
        x = jax.nn.relu(x + layer["b"])
        x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    return x.reshape(len(x), -1)


class Network:
    """Outputs and gradients; convolutions by `reference_features`, in float64."""

    def __init__(self, dropout: float = 0.0, padding: str = "valid") -> None:
        self.dropout = dropout
        sooner = {"xla_backend_optimization_level": 0}  # compiling takes longer than computing
        self._features = jax.jit(lambda layers, x: reference_features(layers, x, padding), compiler_options=sooner)
        self._pull = jax.jit(
            lambda layers, x, d: jax.vjp(lambda w: reference_features(w, x, padding), layers)[1](d)[0],
            compiler_options=sooner,
        )

    def outputs(self, params: Any, x: np.ndarray) -> np.ndarray:
        if isinstance(params, list):
            return _dense(params, x.reshape(len(x), -1), 1.0)[-1]
        with jax.enable_x64(True):
            flat = np.asarray(self._features(params["conv"], x))
        return _dense(params["dense"], flat, 1.0)[-1]

    def gradient(self, params: Any, x: np.ndarray, y: np.ndarray, key: Any, batch: int) -> tuple[np.ndarray, Any]:
        dense = params if isinstance(params, list) else params["dense"]
        kept: np.ndarray | float = 1.0
        if self.dropout:
            stay = jax.random.bernoulli(key, 1.0 - self.dropout, (batch, len(dense[-1]["w"])))
            kept = np.asarray(stay)[: len(x)] / (1.0 - self.dropout)
        if isinstance(params, list):
            return _dense_gradient(params, x.reshape(len(x), -1), y, kept)[:2]
        some, blank = len(x), [(0, batch - len(x))]
        x = np.pad(x, blank + [(0, 0)] * 3)  # one shape: JAX compiles these once
        with jax.enable_x64(True):
            flat = np.asarray(self._features(params["conv"], x))[:some]
            each, gradient, back = _dense_gradient(dense, flat, y, kept)
            conv = jax.tree.map(np.asarray, self._pull(params["conv"], x, np.pad(back, [*blank, (0, 0)])))
        return each, {"conv": conv, "dense": gradient}


# ---- training


def double(params: Any) -> Any:
    """The same numbers as float64."""
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params)


def train(
    trainer: Any,
    network: Network,
    params: Any,
    ids: Sequence[int],
    used: Sequence[bool],
    epochs: Sequence[int],
    round: int,
    rng: np.random.Generator,
    more: Callable[[int], Any] | None = None,
) -> dict[int, Client]:
    """What each client at a used place of the cohort gives back, by its place; `more` is added to its gradients."""
    places = [place for place in range(len(ids)) if used[place]]
    work = {
        place: batches(trainer.data, ids[place], epochs[place], trainer.batch, trainer.steps, rng.random)
        for place in places
    }
    keys = {place: jnp.asarray(rng.integers(0, 2**32, 2, dtype=np.uint32)) for place in places}
    lr = trainer.lr(round) if callable(trainer.lr) else trainer.lr
    extra = {place: None if more is None else more(int(ids[place])) for place in places}
    return {
        place: _client(trainer, network, double(params), work[place], keys[place], lr, extra[place]) for place in places
    }


def _client(
    trainer: Any, network: Network, sent: Any, work: list[list[int]], key: Any, lr: float, more: Any = None
) -> Client:
    dataset = trainer.data.dataset
    weights = sent
    velocity = jax.tree.map(np.zeros_like, sent)
    seen: list[float] = []
    for number, examples in enumerate(work):
        x, y = inputs_of(dataset, dataset.x[examples]), dataset.y[examples]
        each, gradient = network.gradient(weights, x, y, jax.random.fold_in(key, number), trainer.batch)
        seen.extend(each)
        gradient = jax.tree.map(
            lambda g, w, old: g + trainer.weight_decay * w + trainer.prox * (w - old), gradient, weights, sent
        )
        if more is not None:
            gradient = jax.tree.map(np.add, gradient, more)
        velocity = jax.tree.map(lambda v, g: trainer.momentum * v + g, velocity, gradient)
        weights = jax.tree.map(lambda w, v: w - lr * v, weights, velocity)
    delta = jax.tree.map(lambda w, old: w - old, weights, sent)
    norm = np.sqrt(sum(float((leaf**2).sum()) for leaf in jax.tree.leaves(delta)))
    return Client(delta, sum(seen) / len(seen), norm)
