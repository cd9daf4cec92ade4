"""Modules for the tests, and JAX's models with the same weights."""

from itertools import pairwise
from typing import Any

import numpy as np
from torch import nn

import fedpick as fp
from fedpick.data import Dataset, Federated

SIZES = np.array([20, 3, 1, 8, 13, 1, 9, 16])
IMAGE = (10, 9, 2)


def data_of(kind: str) -> Federated:
    """Ragged clients, some with one example; kind is "floats", "images" or "regression"."""
    rng = np.random.default_rng(7)
    starts = np.concatenate([[0], np.cumsum(SIZES)])
    total = int(starts[-1])
    shape = IMAGE if kind == "images" else (6,)
    x, test = (rng.normal(size=(n, *shape)).astype(np.float32) for n in (total, 40))
    if kind == "regression":
        y, test_y, classes = rng.normal(size=total).astype(np.float32), rng.normal(size=40).astype(np.float32), 0
    else:
        y, test_y, classes = rng.integers(0, 4, total, dtype=np.int32), rng.integers(0, 4, 40, dtype=np.int32), 4
    return Federated(Dataset(kind, x, y, test, test_y, classes), rng.permutation(total), starts)


class Mlp(nn.Module):
    """As `fp.learn.mlp`."""

    def __init__(self, inputs: tuple[int, ...], outputs: int, hidden: tuple[int, ...] = (7, 5)) -> None:
        super().__init__()
        sizes = [int(np.prod(inputs)), *hidden, outputs]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))

    def forward(self, x: Any) -> Any:
        x = x.flatten(1)
        for layer in self.layers[:-1]:
            x = layer(x).relu()
        return self.layers[-1](x)


class Cnn(nn.Module):
    """As `fp.learn.cnn` with 3 channels, kernels of 3 and 8 hidden units."""

    def __init__(self, inputs: tuple[int, ...], outputs: int) -> None:
        super().__init__()
        height, width, channels = inputs
        self.convolution = nn.Conv2d(channels, 3, 3)
        self.hidden = nn.Linear(3 * ((height - 2) // 2) * ((width - 2) // 2), 8)
        self.last = nn.Linear(8, outputs)

    def forward(self, x: Any) -> Any:
        x = nn.functional.max_pool2d(self.convolution(x).relu(), 2)
        x = x.permute(0, 2, 3, 1).flatten(1)  # as JAX's, whose channels come last
        return self.last(self.hidden(x).relu())


def vector(params: Any) -> Any:
    """JAX's parameters of a dense network or a `Cnn` in the order of the module's."""
    dense = params if isinstance(params, list) else params["dense"]
    parts = [] if isinstance(params, list) else [params["conv"][0]]
    found = []
    for layer in (*parts, *dense):
        w = np.asarray(layer["w"])
        found += [w.transpose(3, 2, 0, 1) if w.ndim == 4 else w.T, np.asarray(layer["b"])]
    return np.concatenate([each.reshape(-1) for each in found])


def trainer_of(kind: str, model: Any, **settings: Any) -> Any:
    """A trainer with short batches that evaluates every 5 rounds."""
    return fp.learn.Trainer(data_of(kind), model, **{"lr": 0.1, "batch": 8, "evaluate_every": 5, **settings})
