"""How clients train, and what a trained cohort is: for every form of training."""

from dataclasses import dataclass
from typing import Any, NamedTuple

__all__ = ["Local", "Trained"]

Params = Any


@dataclass(frozen=True)
class Local:
    """How a client trains.

    Args:
        momentum: of SGD, as in PyTorch: v = momentum v + gradient, w = w - lr v; v starts at 0 in each round.
        weight_decay: times the weights, added to the gradient.
        prox: FedProx's mu (E3CS's gamma): mu/2 |w - w_sent|^2 added to the loss.
        precision: "float32", or "bfloat16" for activations over float32 weights.
    """

    momentum: float = 0.0
    weight_decay: float = 0.0
    prox: float = 0.0
    precision: str = "float32"


class Trained(NamedTuple):
    """Results of C clients."""

    delta: Params  # (C, ...) local model minus the model sent
    loss: Any  # (C) mean training loss over all examples seen, each under the model that saw it
    norm: Any  # (C) Euclidean length of delta
