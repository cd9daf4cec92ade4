"""The server's optimisers as `fedpick.learn.jax.forms` has them from optax, of one vector of weights, in NumPy."""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from fedpick._support.text import Makers

__all__ = ["SERVERS", "FedAdagrad", "FedAdam", "FedAvgM", "FedYogi", "Server"]


class Server(Protocol):
    """An optimiser: its state is a list of arrays, which a model holds."""

    def init(self, weights: Any) -> list[Any]:
        """The state before the first round."""
        ...

    def move(self, weights: Any, state: list[Any], step: Any) -> tuple[Any, list[Any]]:
        """The next weights and state, given the mean update."""
        ...


@dataclass(frozen=True)
class FedAvgM:
    """FedAvgM (Hsu et al. 2019): momentum on the server."""

    lr: float = 1.0
    momentum: float = 0.9

    def init(self, weights: Any) -> list[Any]:
        """No velocity."""
        return [np.zeros_like(weights)]

    def move(self, weights: Any, state: list[Any], step: Any) -> tuple[Any, list[Any]]:
        """A step along the velocity."""
        velocity = step + self.momentum * state[0]
        return weights + self.lr * velocity, [velocity]


@dataclass(frozen=True)
class FedAdam:
    """FedAdam (Reddi et al. 2021) with bias correction, as optax has it."""

    lr: float = 0.01
    b1: float = 0.9
    b2: float = 0.99
    eps: float = 1e-3
    start = 0.0  # of both moments

    def init(self, weights: Any) -> list[Any]:
        """The number of steps, and the two moments."""
        first = np.full_like(weights, self.start)
        return [np.zeros((), np.int32), first, first.copy()]

    def move(self, weights: Any, state: list[Any], step: Any) -> tuple[Any, list[Any]]:
        """A step along the first moment over the root of the second."""
        count, first, second = int(state[0]) + 1, state[1], state[2]
        first = self.b1 * first - (1.0 - self.b1) * step  # of the gradient, which is minus the update
        second = self._second(second, np.square(step))
        mean, root = first / (1.0 - self.b1**count), np.sqrt(second / (1.0 - self.b2**count))
        return weights - self.lr * mean / (root + self.eps), [np.array(count, np.int32), first, second]

    def _second(self, second: Any, square: Any) -> Any:
        return self.b2 * second + (1.0 - self.b2) * square


@dataclass(frozen=True)
class FedYogi(FedAdam):
    """FedYogi (Reddi et al. 2021) with bias correction, as optax has it."""

    start = 1e-6

    def _second(self, second: Any, square: Any) -> Any:
        return second - (1.0 - self.b2) * np.sign(second - square) * square


@dataclass(frozen=True)
class FedAdagrad:
    """FedAdagrad (Reddi et al. 2021), see `fedpick.learn.jax.forms.fedadagrad`."""

    lr: float = 0.01
    eps: float = 1e-3

    def init(self, weights: Any) -> list[Any]:
        """The sum of squares, which begins at eps^2."""
        return [np.full_like(weights, self.eps**2)]

    def move(self, weights: Any, state: list[Any], step: Any) -> tuple[Any, list[Any]]:
        """A step over the root of the sum."""
        total = state[0] + np.square(step)
        return weights + self.lr * step / (np.sqrt(total) + self.eps), [total]


SERVERS: Makers = {"fedavgm": FedAvgM, "fedadam": FedAdam, "fedyogi": FedYogi, "fedadagrad": FedAdagrad}
