"""How updates are weighed in the mean of a round."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from fedpick.core.errors import MissingError
from fedpick.core.types import Bools, Choice, Floats, Ints
from fedpick.engine.weights import bases

__all__ = ["AGGREGATIONS", "Aggregation", "FedAU", "Rule"]

Memory = dict[str, Ints]


class Aggregation(Protocol):
    """Weights of a round's updates, and what it remembers of the rounds before; that is kept with the model."""

    def init(self, clients: int) -> Memory:
        """The memory before the first round; empty for an aggregation without one."""
        ...

    def apply(self, memory: Mapping[str, Any], choice: Choice, returned: Bools, sizes: Ints) -> tuple[Floats, Memory]:
        """(weight of each chosen client's update, 0 for those that did not return; the memory after this round)."""
        ...


@dataclass(frozen=True)
class Rule:
    """An aggregation without a memory: a function of the choice, of who returned, and of all clients' sizes."""

    weights: Callable[[Choice, Bools, Ints], Floats]

    def init(self, clients: int) -> Memory:
        """Nothing."""
        return {}

    def apply(self, memory: Mapping[str, Any], choice: Choice, returned: Bools, sizes: Ints) -> tuple[Floats, Memory]:
        """The weights, and nothing to remember."""
        return self.weights(choice, returned, sizes), {}


def fedavg(choice: Choice, returned: Bools, sizes: Ints) -> Floats:
    """n_k over the sum of those that returned: FedAvg; FedGS (18). A policy's own weights stand in n_k's place."""
    shares = choice.shares(returned)
    if shares is not None:
        return shares
    held = np.where(returned, bases(choice, sizes), 0.0)
    weights: Floats = held / max(held.sum(), np.finfo(np.float64).tiny)
    return weights


def mean(choice: Choice, returned: Bools, sizes: Ints) -> Floats:
    """The same for all that returned: Power-of-Choice. A client drawn twice counts twice."""
    drawn = np.where(returned, choice.times, 0)
    return drawn * (1.0 / max(drawn.sum(), 1))


def o2(choice: Choice, returned: Bools, sizes: Ints) -> Floats:
    """n_k over all K clients' examples: the old model stands in for all who did not return (E3CS, section III)."""
    return np.where(returned, sizes[choice.ids] * choice.times / sizes.sum(), 0.0)


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
    return np.where(returned, sizes[choice.ids] / sizes.sum() / choice.inclusion * choice.times, 0.0)


class FedAU:
    """Wang & Ji (2024): n_k over all examples, times the mean interval between the client's participations.

    Algorithm 2 of "A Lightweight Method for Tackling Unknown Participation Statistics in Federated Averaging": an
    interval ends with a participation, or is cut at 50 rounds; weights of a round come from those before it, and are 1
    until an interval has ended. Rounds in which no client returns do not change the model and are not counted. The
    paper gives all clients the same importance; here it is n_k over all examples, as in the other aggregations.

    Its memory is kept with the model: whole numbers, one per client.
    """

    cutoff = 50

    def init(self, clients: int) -> Memory:
        """The memory before the first round."""
        return {name: np.zeros(clients, np.int32) for name in ("waited", "total", "intervals")}

    def apply(self, memory: Mapping[str, Any], choice: Choice, returned: Bools, sizes: Ints) -> tuple[Floats, Memory]:
        """Weights of this round, and the next memory; a client drawn twice has its weight dealt out to its copies."""
        ids = choice.ids
        number, total = np.asarray(memory["intervals"])[ids], np.asarray(memory["total"])[ids]
        interval = np.where(number > 0, total / np.maximum(number, 1), 1.0)
        copies = np.bincount(ids[returned], minlength=len(sizes))[ids]
        weights = np.where(returned, sizes[ids] / sizes.sum() * interval / np.maximum(copies, 1), 0.0)
        return weights, self._next(memory, ids[returned])

    def _next(self, memory: Mapping[str, Any], returned: Ints) -> Memory:
        waited = np.asarray(memory["waited"]) + 1
        took_part = np.zeros(len(waited), np.bool_)
        took_part[returned] = True
        ended = took_part | (waited == self.cutoff)
        total = np.asarray(memory["total"]) + np.where(ended, waited, 0)
        intervals = np.asarray(memory["intervals"]) + ended
        found = {"waited": np.where(ended, 0, waited), "total": total, "intervals": intervals}
        return {name: values.astype(np.int32) for name, values in found.items()}


AGGREGATIONS: dict[str, Aggregation] = {
    "fedavg": Rule(fedavg),
    "mean": Rule(mean),
    "o2": Rule(o2),
    "horvitz-thompson": Rule(horvitz_thompson),
    "fedau": FedAU(),
}
