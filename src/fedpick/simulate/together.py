"""Several runs at once, their cohorts stacked into one compiled call: for small models on a GPU.

Seeds, policies, partitions and worlds may differ; the data set, the model and how it is trained may not.
"""

import time
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedpick.errors import SettingError
from fedpick.learn.batches import Batches
from fedpick.learn.trainer import Drawn, Trainer
from fedpick.simulate.round import Work, choose, judge, settle, work
from fedpick.simulate.run import Run
from fedpick.store.records import Record
from fedpick.types import Choice, Outcome, Status, Updates

__all__ = ["aggregate_together", "play_together", "train_together"]

_SHARED = ("model", "batch", "steps", "momentum", "weight_decay", "prox", "precision", "form")


def _check(trainers: Sequence[Trainer]) -> None:
    first = trainers[0]
    for trainer in trainers[1:]:
        if trainer.data.dataset is not first.data.dataset:
            raise SettingError(
                "runs played together must share one data set: load it once and make every partition of that"
            )
        for name in _SHARED:
            if getattr(trainer, name) != getattr(first, name):
                raise SettingError(
                    f"runs played together must have the same {name}, but there are {getattr(first, name)!r} and "
                    f"{getattr(trainer, name)!r}; play them apart"
                )


def train_together(trainers: Sequence[Trainer], jobs: Sequence[Work]) -> list[Updates]:
    """Train the cohorts of several runs in one call; each job is what `Trainer.train` takes."""
    _check(trainers)
    first = trainers[0]
    drawn, ats = [], []
    for trainer, (_, ids, used, epochs, round, rng) in zip(trainers, jobs, strict=True):
        at = np.flatnonzero(used)
        ats.append(at)
        drawn.append(trainer.draw(ids, at, epochs, round, rng))
    shapes = [each.batches.count.shape for each in drawn]
    room = max(c for c, _ in shapes), max(s for _, s in shapes)
    count = len(trainers)
    index = np.zeros((count, *room, first.batch), np.int32)
    examples, steps = np.zeros((count, *room), np.int32), np.zeros((count, room[0]), np.int32)
    keys, lr = np.zeros((count, room[0], 2), np.uint32), np.zeros((count, room[0]), np.float32)
    for r, (batches, key, rate) in enumerate(drawn):
        c, s = batches.count.shape
        index[r, :c, :s], examples[r, :c, :s], steps[r, :c] = batches.index, batches.count, batches.steps
        keys[r, :c], lr[r, :c] = key, rate
    flat = Batches(index.reshape(-1, *index.shape[2:]), examples.reshape(-1, room[1]), steps.reshape(-1))
    sent = _stack(tuple(job.model["params"] for job in jobs))
    owner = np.repeat(np.arange(count), room[0])
    trained = first.train_all(sent, Drawn(flat, keys.reshape(-1, 2), lr.reshape(-1)), owner)
    trained = trained._replace(loss=np.asarray(trained.loss), norm=np.asarray(trained.norm))
    return [
        trainer.updates(job.model["params"], trained, at, len(job.ids), r * room[0] + np.arange(len(at)))
        for r, (trainer, job, at) in enumerate(zip(trainers, jobs, ats, strict=True))
    ]


@jax.jit
def _stack(models: tuple[Any, ...]) -> Any:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *models)


@jax.jit
def _add(models: tuple[Any, ...], delta: Any, weights: jax.Array) -> tuple[Any, ...]:
    """Each model plus its weighted sum of the updates; weights are (runs, clients)."""

    def total(leaf: jax.Array) -> jax.Array:
        used = weights.sum(axis=0).reshape((-1,) + (1,) * (leaf.ndim - 1)) > 0  # the others may hold NaN
        return jnp.tensordot(weights, jnp.where(used, leaf, 0.0), axes=1, precision="highest")

    steps = jax.tree.map(total, delta)
    return tuple(jax.tree.map(lambda w, step, r=r: w + step[r], model, steps) for r, model in enumerate(models))


def aggregate_together(
    trainers: Sequence[Trainer],
    models: Sequence[Any],
    choices: Sequence[Choice],
    outcomes: Sequence[Outcome],
    updates: Sequence[Updates],
) -> list[Any]:
    """The next model of each run; one from which nobody returned stays."""
    done = [bool((outcome.status == Status.DONE).any()) for outcome in outcomes]
    together = [r for r, trainer in enumerate(trainers) if done[r] and trainer.server is None]
    found = list(models)
    for r, trainer in enumerate(trainers):
        if done[r] and r not in together:
            found[r] = trainer.aggregate(models[r], choices[r], outcomes[r], updates[r])
    if together:
        delta = updates[together[0]].payload[0]
        weights = np.zeros((len(trainers), len(jax.tree.leaves(delta)[0])), np.float32)
        for r in together:
            _, at, slots = updates[r].payload
            weights[r, slots] = trainers[r].weights(choices[r], outcomes[r])[at]
        added = _add(tuple(model["params"] for model in models), delta, weights)
        for r in together:
            found[r] = {"params": added[r], "server": models[r]["server"]}
    return found


def play_together(runs: Sequence[Run], until: int) -> Iterator[list[Record]]:
    """Play runs side by side through round `until`: yields their records, round by round.

    Each run ends as it would alone, but for the rounding of products in a larger stack.
    """
    trainers = [run.trainer for run in runs if isinstance(run.trainer, Trainer)]
    if not runs or len(trainers) < len(runs):
        raise SettingError("runs played together must each have a fedpick.learn.Trainer")
    if len({run.state.round for run in runs}) != 1:
        raise SettingError("runs played together must be in the same round; bring them there one by one")
    while runs[0].state.round < until:
        start = time.perf_counter()
        chosen = [choose(run.policy, run.world, run.state, run.seed, run.trainer) for run in runs]
        jobs = [work(each, run.state, run.seed) for each, run in zip(chosen, runs, strict=True)]
        updates = train_together(trainers, jobs)
        outcomes = [judge(each, update) for each, update in zip(chosen, updates, strict=True)]
        choices, models = [each.choice for each in chosen], [run.state.model for run in runs]
        for run, model in zip(runs, aggregate_together(trainers, models, choices, outcomes, updates), strict=True):
            run.state.model = model
        share = (time.perf_counter() - start - sum(each.wall for each in chosen)) / len(runs)
        yield [
            settle(run.policy, run.world, run.state, each, outcome, run.trainer, share)
            for run, each, outcome in zip(runs, chosen, outcomes, strict=True)
        ]
