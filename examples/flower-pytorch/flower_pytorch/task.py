"""The model and the data: Fashion-MNIST, of which every client has its own mix of labels."""

from functools import cache

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

import fedpick as fp

Examples = tuple[Tensor, Tensor]


class Net(nn.Module):
    """Two convolutions and two dense layers: 44,306 parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 8, 5), nn.Conv2d(8, 32, 5)
        self.dense1, self.dense2 = nn.Linear(32 * 4 * 4, 72), nn.Linear(72, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of the ten classes."""
        x = functional.max_pool2d(functional.relu(self.conv1(x)), 2)
        x = functional.max_pool2d(functional.relu(self.conv2(x)), 2)
        return self.dense2(functional.relu(self.dense1(x.flatten(1))))


@cache
def dataset() -> fp.data.Dataset:
    """Fashion-MNIST from fedpick's cache; downloaded if it is missing."""
    return fp.data.load("fashion-mnist")


def tensors(x: np.ndarray, y: np.ndarray) -> Examples:
    """Pixels, centred and scaled, with the channel first; labels."""
    data = dataset()
    pixels = (x.astype(np.float32) / 255 - data.mean[0]) / data.std[0]
    return torch.from_numpy(pixels.astype(np.float32)).permute(0, 3, 1, 2).contiguous(), torch.from_numpy(y).long()


@cache
def partition(partitions: int) -> fp.data.Federated:
    """The partition of the data set, the same in every process."""
    return fp.data.Dirichlet(alpha=1.0)(dataset(), partitions, fp.rng.stream(0, 0, "partition"))


def load(number: int, partitions: int) -> Examples:
    """The training data of one client."""
    mine = partition(partitions).examples_of(number)
    return tensors(dataset().x[mine], dataset().y[mine])


@cache
def load_test() -> Examples:
    """The 10,000 test images."""
    return tensors(dataset().test_x, dataset().test_y)


def train(net: Net, data: Examples, epochs: int, batch: int, rate: float) -> float:
    """Train in place; returns the mean loss of all steps."""
    x, y = data
    optimizer = torch.optim.SGD(net.parameters(), lr=rate, momentum=0.9)
    losses = []
    net.train()
    for _ in range(epochs):
        for chosen in torch.randperm(len(x)).split(batch):
            optimizer.zero_grad()
            loss = functional.cross_entropy(net(x[chosen]), y[chosen])
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return sum(losses) / len(losses)


@torch.no_grad()
def test(net: Net, data: Examples) -> tuple[float, float]:
    """Mean loss and accuracy."""
    x, y = data
    net.eval()
    scores = torch.cat([net(part) for part in x.split(1000)])
    return functional.cross_entropy(scores, y).item(), (scores.argmax(1) == y).float().mean().item()
