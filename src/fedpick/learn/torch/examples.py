"""Examples as tensors, in the order of axes that PyTorch has, and what is computed of them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch.nn import functional

from fedpick.data.federated import Dataset
from fedpick.learn.pixels import affine, inputs_of

__all__ = ["Tensors", "arranged", "correct", "example_losses", "place"]

ROOM = 1 << 28  # bytes that pixels may take as floats; larger sets are turned into floats batch by batch
IMAGE = 3  # axes of one image: height, width, channels


def arranged(x: torch.Tensor) -> torch.Tensor:
    """Inputs as a module gets them: of images the channels come first."""
    return x.permute(0, 3, 1, 2).contiguous() if x.ndim == IMAGE + 1 else x


@dataclass(frozen=True, eq=False)
class Tensors:
    """Examples on a device.

    Args:
        x: inputs as a module gets them: floats, or pixels of a large set.
        y: labels or targets.
        scale: of pixels.
        shift: of pixels.
    """

    x: torch.Tensor
    y: torch.Tensor
    scale: torch.Tensor
    shift: torch.Tensor

    def batch(self, index: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
        """Inputs and targets of these examples."""
        x, y = self.x[index], self.y[index]
        if x.dtype == torch.uint8:
            x = x.to(torch.float32) * self.scale + self.shift
        return x.to(dtype) if x.is_floating_point() else x, y.to(dtype) if y.is_floating_point() else y


_PLACED: WeakKeyDictionary[Dataset, dict[tuple[str, str], Tensors]] = WeakKeyDictionary()


def place(dataset: Dataset, part: str, device: torch.device) -> Tensors:
    """The "train" or "test" examples on a device, once for all trainers that share the data set."""
    kept = _PLACED.setdefault(dataset, {})
    if (part, str(device)) not in kept:
        x, y = (dataset.x, dataset.y) if part == "train" else (dataset.test_x, dataset.test_y)
        scale, shift = map(torch.tensor, affine(dataset))
        if x.ndim == IMAGE + 1:
            scale, shift = scale.view(-1, 1, 1), shift.view(-1, 1, 1)
        if x.dtype == np.int32:
            x = x.astype(np.int64)  # tokens, as PyTorch has indices
        elif 4 * x.size <= ROOM:
            x = inputs_of(dataset, x)
        targets = torch.tensor(y).to(torch.int64 if dataset.classes else torch.float32)
        found = (arranged(torch.tensor(x)), targets, scale, shift)
        kept[part, str(device)] = Tensors(*(each.to(device) for each in found))
    return kept[part, str(device)]


def example_losses(own: Callable[..., Any] | None) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """What gives each example's loss: the user's function, or cross-entropy of labels, squared error of targets."""

    def usual(outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        if y.dtype == torch.int64:
            classes_second = outputs if y.ndim == 1 else outputs.movedim(-1, 1)
            return _mean(functional.cross_entropy(classes_second, y, reduction="none"))
        return _mean(torch.square(outputs.reshape(y.shape) - y))

    return usual if own is None else own


def _mean(each: torch.Tensor) -> torch.Tensor:
    """A number for each example that has several."""
    return each if each.ndim == 1 else each.flatten(1).mean(dim=1)


def correct(outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """1 where the label is right, 0 where not, of several labels the share that is right; 0 for a regression."""
    if y.dtype != torch.int64:
        return torch.zeros(len(y), device=y.device)
    return _mean((outputs.argmax(dim=-1) == y).to(torch.float32))
