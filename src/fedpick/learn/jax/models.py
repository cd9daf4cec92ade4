"""Models: two functions each. The small ones, and the networks of the five papers by name.

    init(key) -> parameters                        any nest of dicts, lists and tuples of arrays
    apply(parameters, inputs, key) -> outputs      (B, ...) -> (B, L); key is for dropout, None when evaluating

A model of your own is `Model(init, apply)`; examples/own_model.py shows one, and one made with Flax.
Weights start uniform within 1/sqrt(inputs of the unit), as in PyTorch, which most of the papers used.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, wraps
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedpick._support import user_code
from fedpick._support.text import Makers, make
from fedpick.core.errors import SettingError, require
from fedpick.data.federated import Dataset
from fedpick.learn.jax import convolution

__all__ = ["MODELS", "Model", "check_outputs", "cnn", "linear", "logistic", "mlp", "model"]

Params = Any


@dataclass(frozen=True)
class Model:
    """Two functions, and how to run them.

    Args:
        init: key -> parameters.
        apply: (parameters, inputs, dropout key or None) -> outputs.
        name: for tables and manifests.
        chunk: examples evaluated in one call.
        dense: units of the inputs, the hidden layers and the outputs, if the parameters are [{"w": ..., "b": ...}, ...]
            and each layer gives inputs @ w + b, with ReLU between layers: a CPU can train small ones in a faster way
            (`fedpick.learn.jax.dense`).
    """

    init: Callable[[jax.Array], Params]
    apply: Callable[[Params, jax.Array, jax.Array | None], jax.Array]
    name: str = "own"
    chunk: int = 1000
    dense: tuple[int, ...] = ()


def _layer(key: jax.Array, shape: tuple[int, ...]) -> dict[str, jax.Array]:
    bound = 1.0 / math.sqrt(math.prod(shape[:-1]))
    weights, bias = jax.random.split(key)
    return {
        "w": jax.random.uniform(weights, shape, jnp.float32, -bound, bound),
        "b": jax.random.uniform(bias, shape[-1:], jnp.float32, -bound, bound),
    }


def _drop(x: jax.Array, rate: float, key: jax.Array | None) -> jax.Array:
    if key is None or rate == 0.0:
        return x
    return jnp.where(jax.random.bernoulli(key, 1.0 - rate, x.shape), x / (1.0 - rate), 0.0).astype(x.dtype)


def _dense(layers: list[Params], x: jax.Array, dropout: float, key: jax.Array | None) -> jax.Array:
    """Hidden layers with ReLU, then one without; dropout after the last hidden one."""
    for layer in layers[:-1]:
        x = jax.nn.relu(x @ layer["w"] + layer["b"])
    x = _drop(x, dropout, key)
    return x @ layers[-1]["w"] + layers[-1]["b"]


def _once(maker: Callable[..., Model]) -> Callable[..., Model]:
    """Return the same model for the same settings, so that nothing is compiled twice; lists count as tuples."""
    kept = lru_cache(maker)

    @wraps(maker)
    def make_once(*args: Any, **settings: Any) -> Model:
        plain = [tuple(value) if isinstance(value, list) else value for value in (*args, *settings.values())]
        return kept(*plain[: len(args)], **dict(zip(settings, plain[len(args) :], strict=True)))

    return make_once


def _shape(model: str, inputs: Any, example: str) -> tuple[int, ...]:
    """The shape of one input; a whole number is that of a row of so many numbers."""
    shape = tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,)
    whole = all(isinstance(each, int | np.integer) and each >= 1 for each in shape)
    require(whole and len(shape) >= 1, f"{model}: inputs", inputs, f"the shape of one input, such as {example}")
    return tuple(map(int, shape))


def _check_outputs(model: str, outputs: Any) -> None:
    whole = isinstance(outputs, int | np.integer) and outputs >= 1
    require(bool(whole), f"{model}: outputs", outputs, "a whole number >= 1: of labels, or 1 for a regression")


@_once
def mlp(
    inputs: tuple[int, ...] | int, outputs: int, hidden: tuple[int, ...] = (200, 200), dropout: float = 0.0
) -> Model:
    """Dense layers with ReLU; `hidden=(64, 30), dropout=0.5` is Power-of-Choice's for Fashion-MNIST.

    Args:
        inputs: shape of one input, such as (28, 28, 1), or 60 for (60,).
        outputs: number of labels, or 1 for a regression.
        hidden: units of the hidden layers.
        dropout: share of the last hidden layer that is dropped while training.

    >>> small = mlp((4,), 3, hidden=(5,))
    >>> small.apply(small.init(jax.random.key(0)), jnp.ones((2, 4)), None).shape
    (2, 3)
    """
    require(0.0 <= dropout < 1.0, "mlp: dropout", dropout, "a share in [0, 1)")
    require(all(units >= 1 for units in hidden), "mlp: hidden", hidden, "numbers of units >= 1")
    _check_outputs("mlp" if hidden else "linear", outputs)
    sizes = (math.prod(_shape("mlp" if hidden else "linear", inputs, "(28, 28, 1) or 60")), *hidden, outputs)

    def init(key: jax.Array) -> Params:
        keys = jax.random.split(key, len(sizes) - 1)
        return [_layer(k, shape) for k, shape in zip(keys, pairwise(sizes), strict=True)]

    def apply(params: Params, x: jax.Array, key: jax.Array | None) -> jax.Array:
        return _dense(params, x.reshape(len(x), -1), dropout, key)

    shown = "-".join(map(str, sizes))
    return Model(init, apply, f"mlp {shown}" if hidden else f"linear {shown}", dense=() if dropout else sizes)


def logistic(inputs: tuple[int, ...] | int, outputs: int) -> Model:
    """Logistic regression: one dense layer (the loss is cross-entropy).

    >>> logistic((60,), 10).name
    'linear 60-10'
    """
    return mlp(inputs, outputs, ())


def linear(inputs: tuple[int, ...] | int, outputs: int = 1) -> Model:
    """Linear regression: one dense layer (the loss is the squared error).

    >>> linear((5,)).name
    'linear 5-1'
    """
    return mlp(inputs, outputs, ())


@_once
def cnn(
    inputs: tuple[int, ...],
    outputs: int,
    channels: tuple[int, ...] = (20, 50),
    hidden: tuple[int, ...] = (500,),
    kernel: int = 5,
    padding: str = "valid",
    dropout: float = 0.0,
) -> Model:
    """Convolutions, each with ReLU and 2x2 max pooling, then dense layers.

    Args:
        inputs: (height, width, channels) of one image.
        outputs: number of labels.
        channels: of the convolutions.
        hidden: units of the dense hidden layers.
        kernel: width of the square kernels.
        padding: "valid" (none) or "same".
        dropout: share of the last hidden layer that is dropped while training.

    >>> cnn((28, 28, 1), 10).name
    'cnn 20-50-500'
    """
    _check_outputs("cnn", outputs)
    inputs = _shape("cnn", inputs, "(28, 28, 1)")
    require(len(inputs) == 3, "cnn: inputs", inputs, "(height, width, channels)", "use mlp for other inputs")
    require(padding in ("valid", "same"), "cnn: padding", padding, "'valid' or 'same'")
    require(0.0 <= dropout < 1.0, "cnn: dropout", dropout, "a share in [0, 1)")
    height, width, depth = inputs
    shapes = []
    for wide in channels:
        shapes.append((kernel, kernel, depth, wide))
        lost = kernel - 1 if padding == "valid" else 0
        height, width, depth = (height - lost) // 2, (width - lost) // 2, wide
        require(
            height >= 1 and width >= 1, "cnn: inputs", inputs, f"large enough for {len(channels)} kernels of {kernel} "
            "and poolings", "use padding='same', or a smaller kernel",
        )  # fmt: skip
    sizes = (height * width * depth, *hidden, outputs)
    dense = list(pairwise(sizes))

    def init(key: jax.Array) -> Params:
        keys = jax.random.split(key, len(shapes) + len(dense))
        return {
            "conv": [_layer(k, shape) for k, shape in zip(keys, shapes, strict=False)],
            "dense": [_layer(k, shape) for k, shape in zip(keys[len(shapes) :], dense, strict=True)],
        }

    def apply(params: Params, x: jax.Array, key: jax.Array | None) -> jax.Array:
        return _dense(params["dense"], convolution.features(params["conv"], x, padding), dropout, key)

    return Model(init, apply, "cnn " + "-".join(map(str, (*channels, *hidden))), chunk=200)


def _fixed(**settings: Any) -> Callable[[tuple[int, ...], int], Model]:
    def network(inputs: tuple[int, ...], outputs: int) -> Model:
        return cnn(inputs, outputs, **settings)

    return network


MODELS: Makers = {
    "logistic": logistic,
    "linear": linear,
    "mlp": mlp,
    "cnn": cnn,
    # E3CS, section VI; "1280 and 256 units" as printed
    "e3cs-letters": _fixed(channels=(10, 10), hidden=(1280, 256)),
    # E3CS, RBCS-F and FedGS for CIFAR-10
    "cifar-cnn": _fixed(channels=(64, 64), hidden=(384, 192)),
    # RBCS-F, section 6.2
    "rbcsf-fashion": _fixed(channels=(20, 50), hidden=(500,)),
    # FedGS: conv 32 - conv 64 - 512 (its code pads)
    "fedgs-fashion": _fixed(channels=(32, 64), hidden=(512,), padding="same"),
    # BSFL says only "convolutional, max-pooling, dense layers, and dropout": the sizes are our choice
    "bsfl-cnn": _fixed(channels=(32, 64), hidden=(128,), kernel=3, dropout=0.5),
}


def model(text: str, inputs: tuple[int, ...], outputs: int) -> Model:
    """A model from one line of text, for inputs of this shape and this many outputs.

    >>> model("mlp(hidden=(64, 30), dropout=0.5)", (28, 28, 1), 10).name
    'mlp 784-64-30-10'
    """
    made = make(text, "model", MODELS, values={}, example="mlp(hidden=(64, 30))", inputs=inputs, outputs=outputs)
    if not isinstance(made, Model):
        raise SettingError(
            f"the model {user_code.shown(text)!r} is {type(made).__name__}, but must be a fedpick.learn.Model (for "
            "JAX: return Model(init, apply))"
        )
    return replace(made, name=user_code.shown(text)) if made.name == Model.name else made


@lru_cache  # a comparison makes a trainer for every run
def _parameters(model: Model) -> Any:
    """Shapes of a model's parameters."""
    return jax.eval_shape(model.init, jax.random.key(0))


@lru_cache
def _outputs(model: Model, inputs: tuple[int, ...], tokens: bool) -> Any:
    """Shapes of a model's outputs for two inputs."""
    given = jax.ShapeDtypeStruct((2, *inputs), jnp.int32 if tokens else jnp.float32)
    return jax.eval_shape(lambda params, x: model.apply(params, x, None), _parameters(model), given)


def _said(error: Exception) -> str:
    lines = str(error).splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}{user_code.place(error)}"


def check_outputs(model: Model, dataset: Dataset) -> list[tuple[int, ...]]:
    """Raise unless the model takes these inputs and gives an output per label; returns its parameters' shapes."""
    wanted = (2, *dataset.outputs)
    try:
        shapes = _parameters(model)
    except Exception as error:  # the user's code can raise anything
        raise SettingError(f"the model {model.name!r} cannot be initialised: {_said(error)}") from None
    try:
        outputs = _outputs(model, dataset.inputs, dataset.x.dtype == np.int32)
    except Exception as error:
        raise SettingError(
            f"the model {model.name!r} cannot take the inputs of {dataset.name}, of shape {dataset.inputs}: "
            f"{_said(error)}; make it for this shape"
        ) from None
    found = getattr(outputs, "shape", None)
    if found is None:
        raise SettingError(
            f"the model {model.name!r}: apply returns {type(outputs).__name__}, but must return an array of outputs"
        )
    if found != wanted and not (wanted == (2, 1) and not dataset.classes and found == (2,)):
        fix = f"make it with outputs={wanted[1]}" if len(wanted) == 2 else "change its last layer"
        raise SettingError(
            f"the model {model.name!r} gives outputs of shape {found} for 2 inputs, but {dataset.name} has "
            f"{dataset.says}: it must give {wanted}; {fix}"
        )
    return [tuple(leaf.shape) for leaf in jax.tree.leaves(shapes)]
