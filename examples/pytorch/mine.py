"""A PyTorch model, data and a policy of one's own for `fedpick compare`; docs/pytorch.md has the command."""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import Subset, TensorDataset

import fedpick as fp


class Net(nn.Sequential):
    """A small CNN; images come as (channels, height, width)."""

    def __init__(self, hidden=32):
        images = nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten())
        super().__init__(images, nn.Linear(288, hidden), nn.Dropout(0.2), nn.ReLU(), nn.Linear(hidden, 10))


def data():
    """A data set of PyTorch, which `--partition` divides; clients.py has one for each client, and a partitioner."""
    x, y = load_digits(return_X_y=True)
    whole = TensorDataset(torch.tensor(x, dtype=torch.float32).view(-1, 1, 8, 8) / 16, torch.tensor(y))
    return fp.data.read(Subset(whole, range(1500)), test=Subset(whole, range(1500, 1797)))


class ManyLabels:
    """The clients whose data have the most kinds of labels, at random among equals."""

    def __init__(self, cohort_size=20):
        self.cohort_size = cohort_size

    def init(self, clients):
        """It keeps nothing."""

    def select(self, state, view, rng):
        """Of those that are there."""
        there = view.available.nonzero()[0]
        return fp.Choice(there[fp.solvers.top((view.clients.labels[there] > 0).sum(axis=1), self.cohort_size, rng)])

    def observe(self, state, view, choice, outcome):
        """It learns nothing."""
