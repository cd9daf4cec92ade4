"""What trains a PyTorch model."""

from typing import Any

import numpy as np
import torch

from fedpick._support.text import make
from fedpick.core.errors import MissingError, SettingError
from fedpick.data.federated import Dataset
from fedpick.learn.backend import LocalSGD
from fedpick.learn.servers import SERVERS
from fedpick.learn.setup import Factory, Setup
from fedpick.learn.torch import check_version
from fedpick.learn.torch.loop import Loop
from fedpick.learn.torch.network import Network

__all__ = ["set_up_torch"]


def set_up_torch(factory: Factory, dataset: Dataset, local: LocalSGD, server: Any, loss: Any, place: str) -> Setup:
    """A loop over clients for this module."""
    check_version(str(torch.__version__))
    device = _device(place)
    if isinstance(server, str):
        server = make(server, "server optimiser", SERVERS, values={}, example="fedadam(lr=0.01)")
    if server is not None and not hasattr(server, "move"):
        raise SettingError(
            f"Trainer: server = {server!r:.60}, but a PyTorch model takes a text such as 'fedadam(lr=0.01)' or one of "
            "fedpick.learn.servers"
        )
    if loss is not None and not callable(loss):
        raise SettingError(
            f"Trainer: loss = {loss!r:.60}, but must be a function (outputs, targets) -> losses, or None"
        )
    network = Network(factory, loss, dataset)
    network.check(dataset)
    backend = Loop(network, local, device)
    shapes = backend.live.shapes
    kept = len(backend.live.kept())
    return Setup(network, backend, server, "auto", shapes, kept + sum(int(np.prod(shape)) for shape in shapes))


def _device(place: str) -> torch.device:
    """The device of a name, if it is there."""
    try:
        device = torch.device(place)
    except (RuntimeError, TypeError):
        device = torch.device("meta")
    if device.type not in ("cpu", "cuda"):
        raise SettingError(f"Trainer: place = {place!r}, but must be 'cpu', 'cuda' or 'cuda:1'")
    count = torch.cuda.device_count() if device.type == "cuda" and torch.cuda.is_available() else 0
    if device.type == "cuda" and (device.index or 0) >= count:
        raise MissingError(
            f"Trainer: place = {place!r}, but PyTorch finds {count} such GPUs here; use place = 'cpu', or install a "
            "build of PyTorch for CUDA on a machine with a GPU"
        )
    return device
