"""A PyTorch model, data and a policy of one's own for `fedpick compare`; docs/pytorch.md has the command."""

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

import fedpick as fp


class Net(nn.Module):
    """A small CNN; images come as (channels, height, width)."""

    def __init__(self, hidden: int = 32) -> None:
        super().__init__()
        images = nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten())
        self.body = nn.Sequential(images, nn.Linear(288, hidden), nn.Dropout(0.2), nn.ReLU(), nn.Linear(hidden, 10))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """A number for each label."""
        return self.body(x)


def data() -> fp.data.Dataset:
    """Arrays of examples; of a torch Dataset: np.stack([np.asarray(x) for x, y in dataset])."""
    x, y = load_digits(return_X_y=True)
    x, y = x.reshape(-1, 8, 8, 1).astype("float32") / 16, y.astype("int32")
    return fp.data.Dataset("mine", x[:1500], y[:1500], x[1500:], y[1500:], classes=10)


class ManyLabels:
    """The clients whose data have the most kinds of labels, at random among equals."""

    def __init__(self, cohort_size: int = 20) -> None:
        self.cohort_size = cohort_size

    def init(self, clients: fp.Clients) -> None:
        """It keeps nothing."""

    def select(self, state: None, view: fp.View, rng: np.random.Generator) -> fp.Choice:
        """Of those that are there."""
        there = np.flatnonzero(view.available)
        return fp.Choice(there[fp.solvers.top((view.clients.labels[there] > 0).sum(axis=1), self.cohort_size, rng)])

    def observe(self, state: None, view: fp.View, choice: fp.Choice, outcome: fp.Outcome) -> None:
        """It learns nothing."""
