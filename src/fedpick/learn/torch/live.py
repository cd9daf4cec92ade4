"""A module whose weights lie in one vector: to load, compare and move them are single operations.

What a message with the model carries:

- `weights`: the parameters that are trained;
- `kept`: frozen parameters and the buffers of floats, such as BatchNorm's running mean and variance. Clients change
  buffers as the module does; the server moves them by the mean of the changes.

Other buffers (numbers of batches, indices) are not sent: each client starts from those that the module was made with.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

__all__ = ["Live", "on_its_own"]


@contextmanager
def on_its_own(device: torch.device) -> Iterator[None]:
    """A block whose random numbers and threads are its own: the user's are as they were.

    One thread: results then do not depend on the number of cores, and runs side by side take a core each.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []), torch.enable_grad():
            yield
    finally:
        torch.set_num_threads(threads)


class Live:
    """A module to compute with.

    Args:
        module: which is changed: its parameters become parts of one vector.
        dtype: of its floating-point numbers.
        device: to compute on.
    """

    def __init__(self, module: nn.Module, dtype: torch.dtype, device: torch.device) -> None:
        self.module = module.to(device=device, dtype=dtype)
        trained = [each for each in module.parameters() if each.requires_grad]
        self.shapes = [tuple(each.shape) for each in trained]
        sizes = [each.numel() for each in trained]
        self.weights = torch.cat([each.detach().reshape(-1).to(dtype) for each in trained])
        self.slopes = torch.zeros_like(self.weights)
        self.weights.grad = self.slopes
        parts = zip(trained, self.weights.split(sizes), self.slopes.split(sizes), strict=True)
        for each, weights, slopes in parts:
            each.data, each.grad = weights.view(each.shape), slopes.view(each.shape)
        self._kept: list[tuple[dict[str, Any], str]] = []  # where each is: a module may put another into its place
        self._fixed: list[tuple[dict[str, Any], str, torch.Tensor]] = []
        for owner in module.modules():
            for name, frozen in owner._parameters.items():
                if frozen is not None and not frozen.requires_grad:
                    self._kept.append((owner._parameters, name))
            for name, buffer in owner._buffers.items():
                if buffer is None:
                    continue
                if buffer.is_floating_point():
                    self._kept.append((owner._buffers, name))
                else:
                    self._fixed.append((owner._buffers, name, buffer.clone()))
        self._kept_sizes = [place[name].numel() for place, name in self._kept]
        self._norms = [each for each in module.modules() if isinstance(each, nn.modules.batchnorm._BatchNorm)]

    def load(self, weights: torch.Tensor, kept: torch.Tensor) -> None:
        """Take these numbers."""
        with torch.no_grad():
            self.weights.copy_(weights)
            for (place, name), part in zip(self._kept, kept.split(self._kept_sizes) if self._kept else (), strict=True):
                place[name].copy_(part.view(place[name].shape))
            for place, name, value in self._fixed:
                place[name].copy_(value)

    def kept(self) -> torch.Tensor:
        """A copy of what is kept, as one vector."""
        if not self._kept:
            return self.weights.new_zeros(0)
        return torch.cat([place[name].detach().reshape(-1) for place, name in self._kept])

    def train(self, alone: bool) -> None:
        """Set it to training; with one example `alone` in a batch, BatchNorm takes its running mean and variance."""
        self.module.train()
        if alone:
            for each in self._norms:
                each.eval()

    @property
    def normalises(self) -> bool:
        """Whether it has BatchNorm layers."""
        return bool(self._norms)
