"""From the clients' updates to the next model: weights of the mean, and the server's optimiser."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from fedpick._support.text import Makers
from fedpick.core.errors import MissingError
from fedpick.core.types import Bools, Choice, Floats, Ints

__all__ = ["AGGREGATIONS", "SERVERS", "FedAU", "combine", "fedadam", "fedavgm", "fedyogi", "moved"]


def fedavg(choice: Choice, returned: Bools, sizes: Ints) -> Floats:
    """n_k over the sum of those that returned: FedAvg; FedGS (18). A policy's own weights stand in n_k's place."""
    shares = choice.shares(returned)
    if shares is not None:
        return shares
    held = np.where(returned, sizes[choice.ids], 0.0)
    weights: Floats = held / max(held.sum(), np.finfo(np.float64).tiny)
    return weights


def mean(choice: Choice, returned: Bools, sizes: Ints) -> Floats:
    """The same for all that returned: Power-of-Choice. A client drawn twice counts twice."""
    return np.where(returned, 1.0 / np.count_nonzero(returned), 0.0)


def o2(choice: Choice, returned: Bools, sizes: Ints) -> Floats:
    """n_k over all K clients' examples: the old model stands in for all who did not return (E3CS, section III)."""
    return np.where(returned, sizes[choice.ids] / sizes.sum(), 0.0)


def horvitz_thompson(choice: Choice, returned: Bools, sizes: Ints) -> Floats:
    """n_k over all examples and over the chance of being chosen: unbiased for the mean over all K if all return.

    A policy's weights that are used as they are (`Choice.normalise`) are such a sum already, and stand as they are.
    """
    if choice.weights is not None and not choice.normalise:
        return np.where(returned, choice.weights, 0.0)
    if choice.inclusion is None or not np.isfinite(choice.inclusion).all():
        raise MissingError(
            "aggregation 'horvitz-thompson' divides by Choice.inclusion, but this policy does not know it; use one "
            "that does, such as e3cs(sampler='pivotal'), or another aggregation"
        )
    return np.where(returned, sizes[choice.ids] / sizes.sum() / choice.inclusion, 0.0)


class FedAU:
    """Wang & Ji (2024): n_k over all examples, times the mean interval between the client's participations.

    Algorithm 2 of "A Lightweight Method for Tackling Unknown Participation Statistics in Federated Averaging": an
    interval ends with a participation, or is cut at 50 rounds; weights of a round come from those before it, and are 1
    until an interval has ended. Rounds in which no client returns do not change the model and are not counted. The
    paper gives all clients the same importance; here it is n_k over all examples, as in the other aggregations.

    Its memory is kept with the model: whole numbers, one per client.
    """

    cutoff = 50

    def init(self, clients: int) -> dict[str, Ints]:
        """The memory before the first round."""
        return {name: np.zeros(clients, np.int32) for name in ("waited", "total", "intervals")}

    def weights(self, memory: Mapping[str, Any], choice: Choice, returned: Bools, sizes: Ints) -> Floats:
        """Weights of this round, given those before it; a client drawn twice has its weight dealt out to its copies."""
        ids = choice.ids
        number, total = np.asarray(memory["intervals"])[ids], np.asarray(memory["total"])[ids]
        interval = np.where(number > 0, total / np.maximum(number, 1), 1.0)
        copies = np.bincount(ids[returned], minlength=len(sizes))[ids]
        return np.where(returned, sizes[ids] / sizes.sum() * interval / np.maximum(copies, 1), 0.0)

    def learn(self, memory: Mapping[str, Any], choice: Choice, returned: Bools) -> dict[str, Ints]:
        """The memory after a round in which these returned."""
        waited = np.asarray(memory["waited"]) + 1
        took_part = np.zeros(len(waited), np.bool_)
        took_part[choice.ids[returned]] = True
        ended = took_part | (waited == self.cutoff)
        total = np.asarray(memory["total"]) + np.where(ended, waited, 0)
        intervals = np.asarray(memory["intervals"]) + ended
        found = {"waited": np.where(ended, 0, waited), "total": total, "intervals": intervals}
        return {name: values.astype(np.int32) for name, values in found.items()}


AGGREGATIONS: dict[str, Callable[[Choice, Bools, Ints], Floats] | FedAU] = {
    "fedavg": fedavg,
    "mean": mean,
    "o2": o2,
    "horvitz-thompson": horvitz_thompson,
    "fedau": FedAU(),  # has a memory
}


def fedavgm(lr: float = 1.0, momentum: float = 0.9) -> optax.GradientTransformation:
    """FedAvgM (Hsu et al. 2019): momentum on the server."""
    return optax.sgd(lr, momentum)


def fedadam(lr: float = 0.01, b1: float = 0.9, b2: float = 0.99, eps: float = 1e-3) -> optax.GradientTransformation:
    """FedAdam (Reddi et al. 2021) on the server, as optax has it: with bias correction."""
    return optax.adam(lr, b1, b2, eps)


def fedyogi(lr: float = 0.01, b1: float = 0.9, b2: float = 0.99, eps: float = 1e-3) -> optax.GradientTransformation:
    """FedYogi (Reddi et al. 2021) on the server, as optax has it: with bias correction."""
    return optax.yogi(lr, b1, b2, eps)


SERVERS: Makers = {"fedavgm": fedavgm, "fedadam": fedadam, "fedyogi": fedyogi}


@partial(jax.jit, static_argnums=0)
def combine(server: optax.GradientTransformation | None, params: Any, state: Any, delta: Any, weights: Any) -> Any:
    """Parameters and the server's state after this round; updates of weight 0 may hold anything, NaN too."""

    def total(leaf: jax.Array) -> jax.Array:
        flat = jnp.where(weights[:, None] > 0, leaf.reshape(len(leaf), -1), 0.0)
        if flat.shape[1] == 1:  # a plain dot product sums in an order that depends on its length, padding included
            flat = jnp.repeat(flat, 2, axis=1)
        summed = jnp.tensordot(weights, flat, axes=1, precision="highest")
        return summed[: leaf[0].size].reshape(leaf.shape[1:])

    return _moved(server, params, state, jax.tree.map(total, delta))


def _moved(server: optax.GradientTransformation | None, params: Any, state: Any, step: Any) -> Any:
    if server is None:
        return jax.tree.map(jnp.add, params, step), state
    # The pseudo-gradient of Reddi et al. (2021): minus the mean update.
    changes, state = server.update(jax.tree.map(jnp.negative, step), state, params)
    return optax.apply_updates(params, changes), state


moved = jax.jit(_moved, static_argnums=0)  # the second half of `combine`, given the weighted sum of the updates
