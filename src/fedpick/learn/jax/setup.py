"""What trains a `fedpick.learn.Model`."""

from typing import Any

import jax
import numpy as np

from fedpick._support.text import make
from fedpick.core.errors import SettingError
from fedpick.data.federated import Dataset
from fedpick.learn.backend import LocalSGD
from fedpick.learn.jax.forms import SERVERS, form_of
from fedpick.learn.jax.models import Model, check_outputs
from fedpick.learn.setup import Setup

__all__ = ["set_up_jax"]


def set_up_jax(model: Model, dataset: Dataset, local: LocalSGD, server: Any, form: str) -> Setup:
    """The form of training for this model."""
    if isinstance(server, str):
        server = make(server, "server optimiser", SERVERS, values={}, example="fedadam(lr=0.01)")
    if local.precision == "float64" and not jax.config.jax_enable_x64:  # type: ignore[attr-defined]
        raise SettingError(
            "Trainer: precision = 'float64', but JAX computes in float32 here; set JAX_ENABLE_X64=1 before it starts, "
            "or use 'float32'"
        )
    shapes = check_outputs(model, dataset)
    size = sum(int(np.prod(shape)) for shape in shapes)
    name, backend = form_of(form, model, size, dataset, local.precision)
    return Setup(model, backend, server, name, shapes, size)
