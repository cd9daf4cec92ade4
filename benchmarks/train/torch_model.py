"""The workloads' models and local training in PyTorch: used by the plain loop and inside Flower's clients."""

from typing import Any

import numpy as np
import torch
from torch import nn
from workloads import Params, Task, Workload


def build(work: Workload) -> nn.Sequential:
    """Inputs are (N, channel, height, width) or flat."""
    layers: list[nn.Module] = []
    for shape in work.shapes:
        if len(shape) == 4:
            layers += [nn.Conv2d(shape[2], shape[3], 5), nn.ReLU(), nn.MaxPool2d(2)]
        else:
            if work.filters and not any(isinstance(layer, nn.Flatten) for layer in layers):
                layers.append(nn.Flatten())
            layers += [nn.Linear(*shape), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def to_torch(work: Workload, params: Params) -> list[torch.Tensor]:
    """From the common layout to PyTorch's: (out, in, height, width), (out, in), pixels after channels."""
    turned = []
    for i, p in enumerate(params):
        if p.ndim == 4:
            p = p.transpose(3, 2, 0, 1)
        elif p.ndim == 2:
            if work.filters and i == 2 * len(work.filters):  # the first dense layer reads an image
                channels = work.filters[-1]
                side = int(np.sqrt(len(p) // channels))
                p = p.reshape(side, side, channels, -1).transpose(2, 0, 1, 3).reshape(p.shape)
            p = p.T
        turned.append(torch.from_numpy(np.ascontiguousarray(p)))
    return turned


def from_torch(work: Workload, tensors: list[torch.Tensor]) -> Params:
    """The way back."""
    params = []
    for i, tensor in enumerate(tensors):
        p = tensor.detach().numpy()
        if p.ndim == 4:
            p = p.transpose(2, 3, 1, 0)
        elif p.ndim == 2:
            p = p.T
            if work.filters and i == 2 * len(work.filters):
                channels = work.filters[-1]
                side = int(np.sqrt(len(p) // channels))
                p = p.reshape(channels, side, side, -1).transpose(1, 2, 0, 3).reshape(p.shape)
        params.append(np.ascontiguousarray(p))
    return params


def tensors(task: Task) -> tuple[torch.Tensor, torch.Tensor]:
    """All clients' examples and labels, as PyTorch wants them."""
    x = torch.from_numpy(task.x)
    return (x.movedim(-1, 2).contiguous() if task.work.filters else x), torch.from_numpy(task.y).long()


def indices(batches: Any) -> Any:
    """A client's batches as tensors."""
    return [torch.from_numpy(b) for b in batches] if isinstance(batches, list) else torch.from_numpy(batches)


class Local:
    """One client's local training, again and again with the same model object."""

    def __init__(self, task: Task, channels_last: bool = False) -> None:
        self.x, self.y = tensors(task)
        self.model = build(task.work)
        self.format = torch.channels_last if channels_last else torch.contiguous_format
        self.model.to(memory_format=self.format)
        self.params = list(self.model.parameters())
        self.loss = nn.CrossEntropyLoss()
        self.optimizer = torch.optim.SGD(self.params, lr=task.work.lr)

    def load(self, params: list[torch.Tensor]) -> None:
        """Start from these."""
        with torch.no_grad():
            for own, given in zip(self.params, params, strict=True):
                own.copy_(given)

    def train(self, client: int, batches: Any) -> None:
        """Plain SGD over a client's batches, each of indices into its examples; leaves the result in `params`."""
        x, y = self.x[client], self.y[client]
        for batch in batches:
            inputs = x[batch]
            if inputs.ndim == 4:
                inputs = inputs.contiguous(memory_format=self.format)
            self.optimizer.zero_grad()
            self.loss(self.model(inputs), y[batch]).backward()
            self.optimizer.step()
