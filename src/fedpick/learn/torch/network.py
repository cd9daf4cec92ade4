"""A PyTorch model as a trainer has it: what makes its module, its loss, and whether both fit the data."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from fedpick._support import user_code
from fedpick.core.errors import FedpickError, SettingError
from fedpick.data.federated import Dataset
from fedpick.learn.setup import Factory
from fedpick.learn.torch.examples import example_losses, place

__all__ = ["Network"]


class Network:
    """What makes a module, and the loss of its outputs.

    Args:
        factory: called once for each seed.
        loss: the user's function (outputs, targets) -> the loss of each example; None: as the targets are.
        dataset: whose inputs it takes.
    """

    def __init__(self, factory: Factory, loss: Callable[..., Any] | None, dataset: Dataset) -> None:
        self.name, self._factory, self._own = factory.name, factory, loss
        self.losses = example_losses(loss)
        self._first = place(dataset, "train", torch.device("cpu"))

    def __repr__(self) -> str:
        return f"Network({self.name!r})"

    def module(self, seed: int) -> nn.Module:
        """A module with the weights that this seed gives; the user's random numbers are as they were."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            made: nn.Module = self._factory.make()
            with torch.no_grad():  # sizes that a module learns from its first inputs
                made.eval()(self._two(torch.float32)[0])
        return made

    def _two(self, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
        count = len(self._first.y)
        return self._first.batch(torch.tensor([0, min(1, count - 1)]), dtype)

    def check(self, dataset: Dataset) -> None:
        """Raise unless the module takes these inputs, gives a number for each label, and has a loss for them."""
        x, y = self._two(torch.float32)
        shape = tuple(x.shape[1:])
        try:
            made = self.module(0)
            with torch.no_grad():
                outputs = made.eval()(x)
        except FedpickError:
            raise
        except Exception as error:  # it is the user's code
            as_given = "" if shape == dataset.inputs else f", given as {shape} (channels first)"
            raise SettingError(
                f"the model {self.name!r} cannot take the inputs of {dataset.name}, of shape {dataset.inputs}{as_given}"
                f": {_said(error)}; make it for this shape"
            ) from None
        if not any(each.requires_grad for each in made.parameters()):
            raise SettingError(f"the model {self.name!r} has no parameters to train; use layers such as nn.Linear")
        self._check_outputs(outputs, dataset)
        self._check_loss(outputs, y)

    def failed(self, what: str, error: Exception) -> SettingError:
        """The error of a module that raised one in the middle of a run."""
        return SettingError(f"the model {self.name!r} cannot be {what}: {_said(error)}")

    def _check_outputs(self, outputs: Any, dataset: Dataset) -> None:
        if not isinstance(outputs, torch.Tensor):
            raise SettingError(
                f"the model {self.name!r}: forward returns {type(outputs).__name__}, but must return a tensor of "
                "outputs"
            )
        wanted, found = (2, *dataset.outputs), tuple(outputs.shape)
        if self._own is None and found != wanted and not (wanted == (2, 1) and not dataset.classes and found == (2,)):
            fix = f"make it with {wanted[1]} outputs" if len(wanted) == 2 else "or give a loss of your own (loss=)"
            raise SettingError(
                f"the model {self.name!r} gives outputs of shape {found} for 2 inputs, but {dataset.name} has "
                f"{dataset.says}: it must give {wanted}; {fix}"
            )
        if self._own is not None and dataset.classes and found[:-1] != wanted[:-1]:
            raise SettingError(
                f"the model {self.name!r} gives outputs of shape {found} for 2 inputs, but {dataset.name} has "
                f"{dataset.says}: for the accuracy it must give {(*wanted[:-1], 'any')}; give "
                "targets as floating-point numbers if they are no labels"
            )
        if not bool(torch.isfinite(outputs).all()):
            raise SettingError(
                f"the model {self.name!r} gives {_odd(outputs)} for the first inputs of {dataset.name} before any "
                "training; look for a division by zero or a logarithm in forward, and for weights without first values"
            )

    def _check_loss(self, outputs: torch.Tensor, y: torch.Tensor) -> None:
        if self._own is None:
            return
        name = getattr(self._own, "__name__", type(self._own).__name__)
        try:
            each = self._own(outputs, y)
        except Exception as error:  # it is the user's code
            raise SettingError(
                f"the loss {name!r} cannot take outputs of shape {tuple(outputs.shape)} and targets of shape "
                f"{tuple(y.shape)}: {_said(error)}"
            ) from None
        if not isinstance(each, torch.Tensor) or tuple(each.shape) != (len(y),):
            found = f"shape {tuple(each.shape)}" if isinstance(each, torch.Tensor) else type(each).__name__
            raise SettingError(
                f"the loss {name!r} gives {found} for 2 examples, but must give a loss for each, of shape (2,); use "
                "reduction='none'"
            )


def _odd(outputs: torch.Tensor) -> str:
    return "NaN" if bool(torch.isnan(outputs).any()) else "infinite numbers"


def _said(error: Exception) -> str:
    lines = str(error).splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}{user_code.place(error, torch.__file__)}"
