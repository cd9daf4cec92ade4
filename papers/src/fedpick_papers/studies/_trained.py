"""Shared by the studies that train models.

Nothing here imports JAX: a study's job imports `fedpick.learn` when it starts, in its own process.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedpick import Choice, Clients, Outcome, Policy, Run, Status, Trainer, Updates, data
from fedpick.core import rng as rngs
from fedpick.core.errors import require
from fedpick.core.types import Bools, Floats, Ints
from fedpick.worlds import World, availability, latency, volatility

__all__ = ["NAMES", "Curves", "Halved", "dataset", "ideal_world", "play_trained", "reached", "split"]

# For readers; digits stand in for images in quick checks of a study.
NAMES = {"cifar10": "CIFAR-10", "fashion-mnist": "Fashion-MNIST", "mnist": "MNIST", "digits": "digits"}


@dataclass(frozen=True, eq=False)
class Curves:
    """The results of one run with training: E evaluations in T rounds, K clients."""

    rounds: Ints  # (E) the rounds that were evaluated
    clock: Floats  # (E) simulated seconds then
    metrics: dict[str, Floats]  # (E) by name; NaN where this evaluation did not measure it
    losses: Floats  # (T) mean local training loss of those whose work was used; NaN where there was nobody
    t_comp: Floats  # (T) seconds of this machine: choosing (probes included), local work, averaging; no evaluation
    parallel: Floats  # (T) the same, had every client a machine like this: probes and local work take one client's time
    counts: Ints  # (K) how often each client was chosen; drawn with replacement, a client counts each time

    def mean_t_comp(self) -> tuple[float, float]:
        """Seconds per round, sequential and parallel, without the first round, which includes compilation."""
        later = slice(1, None) if len(self.t_comp) > 1 else slice(None)
        return float(self.t_comp[later].mean()), float(self.parallel[later].mean())

    def metric(self, name: str) -> tuple[Ints, Floats]:
        """The rounds in which this metric was measured, and its values."""
        values = self.metrics[name]
        there = ~np.isnan(values)
        return self.rounds[there], values[there]

    def last(self, name: str, over: int = 1) -> float:
        """Mean of the last measurements, as many as given."""
        return float(self.metric(name)[1][-over:].mean())


@dataclass
class _Timed:
    """A trainer with a stopwatch."""

    trainer: Trainer
    spent: dict[str, float] = field(default_factory=dict)
    saved: float = 0.0  # what working side by side would save

    def start(self) -> None:
        self.spent, self.saved = {"probe": 0.0, "train": 0.0, "evaluate": 0.0}, 0.0

    def _add(self, what: str, since: float, clients: int = 1) -> None:
        took = time.perf_counter() - since
        self.spent[what] += took
        self.saved += took * (1.0 - 1.0 / max(clients, 1))

    def init(self, seed: int) -> Any:
        return self.trainer.init(seed)

    def probe(self, model: Any, ids: Ints, batch: int | None, rng: np.random.Generator) -> Floats:
        since = time.perf_counter()
        losses = self.trainer.probe(model, ids, batch, rng)
        self._add("probe", since, len(ids))
        return losses

    def train(
        self, model: Any, ids: Ints, used: Bools, epochs: Floats, round: int, rng: np.random.Generator
    ) -> Updates:
        since = time.perf_counter()
        updates = self.trainer.train(model, ids, used, epochs, round, rng)
        self._add("train", since, int(np.count_nonzero(used)))
        return updates

    def aggregate(self, model: Any, choice: Choice, outcome: Outcome, updates: Updates) -> Any:
        return self.trainer.aggregate(model, choice, outcome, updates)

    def evaluate(self, model: Any, round: int) -> dict[str, float]:
        since = time.perf_counter()
        found = self.trainer.evaluate(model, round)
        self._add("evaluate", since)
        return found


def play_trained(policy: Policy[Any], world: World, trainer: Trainer, rounds: int, seed: int) -> Curves:
    """Play a run and return its curves.

    Args:
        policy: that chooses the clients.
        world: whose clients are those of the trainer's data.
        trainer: such as `fedpick.learn.Trainer`; it decides which rounds are evaluated.
        rounds: number of rounds.
        seed: of everything except the data.
    """
    timed = _Timed(trainer)
    run = Run(policy, world, seed=seed, trainer=timed)
    losses, took, parallel = np.full(rounds, np.nan), np.zeros(rounds), np.zeros(rounds)
    counts = np.zeros(len(world.clients), dtype=np.int64)
    at: list[int] = []
    clock: list[float] = []
    found: list[Mapping[str, float]] = []
    timed.start()
    since = time.perf_counter()
    for t, record in enumerate(run.rounds(rounds)):
        took[t] = time.perf_counter() - since - timed.spent["evaluate"]
        parallel[t] = took[t] - timed.saved
        used = record.status == Status.DONE
        if used.any():
            losses[t] = record.loss[used].mean()
        np.add.at(counts, record.ids, 1)
        if record.metrics:
            at.append(record.round)
            clock.append(record.clock)
            found.append(record.metrics)
        timed.start()
        since = time.perf_counter()
    names = sorted({name for one in found for name in one})
    metrics = {name: np.array([one.get(name, np.nan) for one in found]) for name in names}
    return Curves(np.array(at, dtype=np.int64), np.array(clock), metrics, losses, took, parallel, counts)


def reached(rounds: ArrayLike, values: ArrayLike, level: float, *, below: bool = False) -> float:
    """The first of these rounds whose value is at least (with `below`: at most) the level; NaN if there is none.

    >>> reached([1, 2, 3], [0.5, 0.7, 0.6], 0.6)
    2.0
    """
    y = np.asarray(values, dtype=np.float64)
    hits = np.flatnonzero(y <= level if below else y >= level)
    return float(np.asarray(rounds)[hits[0]]) if len(hits) else float("nan")


@dataclass(frozen=True)
class Halved:
    """A learning rate, halved after each of these rounds.

    >>> [Halved(0.4, (150, 300))(t) for t in (150, 151, 301)]
    [0.4, 0.2, 0.1]
    """

    start: float
    at: Sequence[int]

    def __post_init__(self) -> None:
        require(self.start > 0, "Halved: start", self.start, "> 0")

    def __call__(self, round: int) -> float:
        """The value in this round."""
        return float(self.start * 0.5 ** sum(round > turn for turn in self.at))


@lru_cache(maxsize=4)  # one copy per process for all runs
def dataset(name: str) -> data.Dataset:
    """A data set from the cache; as `fedpick.data.load`."""
    return data.load(name)


@lru_cache(maxsize=8)
def split(name: str, partition: str, num_clients: int, seed: int) -> data.Federated:
    """A data set divided among clients, the same for every policy with one seed; without a partition, generated data.

    >>> len(split("digits", "dirichlet(alpha=2)", 20, seed=0)), len(split("synthetic(1, 1)", "", 30, seed=0))
    (20, 30)
    """
    rng = rngs.stream(seed, 0, "data")
    if not partition:
        return data.generate(name, num_clients, rng)
    return data.partition(partition, dataset(name), num_clients, rng)


def ideal_world(clients: Clients, there: Any = None) -> World:
    """All clients succeed at once with one local epoch; `there` is the availability, by default always."""
    return World(
        clients,
        availability=there or availability.Always(),
        volatility=volatility.Reliable(),
        latency=latency.PerClient(),
        deadline=None,
        epochs=(1,),
    )
