"""Several runs at once, with their cohorts stacked into one compiled call: for small models on a GPU.

Seeds, policies, partitions and worlds may differ; the data set, the model and the training settings may not.
"""

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import jax
import jax.numpy as jnp
import numpy as np

from fedpick._support import devices
from fedpick.core.errors import SettingError
from fedpick.core.types import Choice, Ints, Outcome, Status, Updates
from fedpick.data.federated import Dataset
from fedpick.learn import evaluation
from fedpick.learn.batches import Drawn
from fedpick.learn.dense import Rows
from fedpick.learn.local import Trained
from fedpick.learn.placement import Arrays
from fedpick.learn.trainer import Trainer
from fedpick.simulate import late
from fedpick.simulate.round import Work, choose, delay, judge, settle, work
from fedpick.simulate.run import Run
from fedpick.store.records import Record

__all__ = ["RunError", "aggregate_together", "blame", "difference", "play_together", "train_together"]

LANES = 64  # clients in a stack are padded to a multiple of this, on each device
SPARE = 1.25  # padding, as a factor: computing for unused places is cheaper than compiling a larger shape
_SHARED = ("model", "batch", "steps", "momentum", "weight_decay", "prox", "precision", "form")


class RunError(Exception):
    """An error in one of several runs; the others are in the middle of a round.

    Args:
        index: of the run.
        error: that was raised.
    """

    def __init__(self, index: int, error: Exception) -> None:
        super().__init__(f"run {index} of those played together: {error}")
        self.index, self.error = index, error


@contextmanager
def blame(index: int) -> Iterator[None]:
    """Attribute errors in this block to a run; errors of the device, such as lack of memory, are passed on."""
    try:
        yield
    except jax.errors.JaxRuntimeError:
        raise
    except Exception as error:
        raise RunError(index, error) from error


def difference(one: Trainer, other: Trainer) -> str | None:
    """Why two trainers cannot train in one call; None: they can."""
    for name in _SHARED:
        mine, theirs = getattr(one, name), getattr(other, name)
        if mine != theirs:
            return f"must have the same {name}, but have {mine!r} and {theirs!r}; play them separately"
    if not _same_data(one.data.dataset, other.data.dataset):
        return (
            f"must share one data set, but have {one.data.dataset!r} and {other.data.dataset!r}; make all partitions "
            "from one"
        )
    return None


def _same_data(one: Dataset, other: Dataset) -> bool:
    if one is other:
        return True
    if (one.classes, one.mean, one.std) != (other.classes, other.mean, other.std):
        return False
    pairs = ((getattr(one, part), getattr(other, part)) for part in ("x", "y", "test_x", "test_y"))
    return all(a.dtype == b.dtype and np.array_equal(a, b) for a, b in pairs)


def _settle(trainers: Sequence[Trainer]) -> None:
    """Raise unless they can train in one call; make equal data sets one object, so that it is on the device once."""
    first = trainers[0]
    for trainer in trainers[1:]:
        reason = difference(first, trainer)
        if reason is not None:
            raise SettingError(f"runs played together {reason}")
        if trainer.data.dataset is not first.data.dataset:
            trainer.data = replace(trainer.data, dataset=first.data.dataset)


_SHAPES: WeakKeyDictionary[Trainer, tuple[int, int]] = WeakKeyDictionary()


def _kept_shape(trainer: Trainer, needed: tuple[int, int]) -> tuple[int, int]:
    """Lanes (clients) and steps of a stack: the last ones if large enough, else more, with padding for later rounds."""
    lanes, steps = _SHAPES.get(trainer, (0, 0))
    if needed[0] > lanes:
        share = LANES * trainer.devices
        lanes = -(-int(needed[0] * SPARE) // share) * share
    _SHAPES[trainer] = found = lanes, max(steps, needed[1])
    return found


def train_together(trainers: Sequence[Trainer], jobs: Sequence[Work]) -> list[Updates]:
    """Train the cohorts of several runs in one call; a job has the arguments of `Trainer.train`."""
    _settle(trainers)
    first = trainers[0]
    ats = [np.flatnonzero(job.used) for job in jobs]
    # The clients that train, run after run, in as many lanes as were ever needed: a new shape needs compilation.
    starts = np.concatenate([[0], np.cumsum([len(at) for at in ats])])
    longest = max(trainer.longest(at, job.epochs) for trainer, at, job in zip(trainers, ats, jobs, strict=True))
    drawn = Drawn.empty(*_kept_shape(first, (max(int(starts[-1]), 1), longest)), first.batch)
    owner = np.zeros(len(drawn.keys), np.int32)

    def draw(r: int) -> None:
        own, job = slice(starts[r], starts[r + 1]), jobs[r]
        trainers[r].draw_into(drawn, own, job.ids, ats[r], job.epochs, job.round, job.rng)
        owner[own] = r

    with ThreadPoolExecutor(devices.cores()) as pool:  # each run has its own stream, and its own part of the arrays
        for _ in pool.map(draw, range(len(jobs))):
            pass
    sent = _stack(tuple(job.model["params"] for job in jobs))
    trained = first.train_all(sent, drawn, owner)
    loss, norm = jax.device_get((trained.loss, trained.norm))
    found = []
    for r, (trainer, job, at) in enumerate(zip(trainers, jobs, ats, strict=True)):
        slots, delta = starts[r] + np.arange(len(at)), None
        if trainer.needs_vectors:  # vectors of the run's own clients, padded to a constant shape
            padded = np.zeros(len(job.ids), np.int64)
            padded[: len(at)] = slots
            delta = _rows(trained.delta, padded)
        mine = Trained(delta, loss[slots], norm[slots])
        updates = trainer.updates(job.model["params"], mine, at, len(job.ids), np.arange(len(at)))
        updates = trainer.examined(job.model["params"], updates, job.ids, at, job.round) if len(at) else updates
        found.append(replace(updates, payload=(trained.delta, at, slots)))
    return found


@jax.jit
def _rows(delta: Any, slots: jax.Array) -> Any:
    return jax.tree.map(lambda leaf: leaf[slots], delta)


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
    alone: Sequence[int] = (),
    arrived: Sequence[late.Kept] = (),
) -> list[Any]:
    """The next model of each run; unchanged where no client returned.

    Args:
        trainers: of the runs.
        models: before the round.
        choices: of the policies.
        outcomes: of the round.
        updates: of the chosen clients.
        alone: positions of the runs whose updates are not in the stack.
        arrived: late updates of each run that have come; () if there are none.
    """
    done = [bool((outcome.status == Status.DONE).any()) for outcome in outcomes]
    apart = {r for r, trainer in enumerate(trainers) if trainer.server is not None or trainer.remembers} | set(alone)
    apart |= {r for r, came in enumerate(arrived) if came}
    together = [r for r in range(len(trainers)) if done[r] and r not in apart]
    found = list(models)
    for r, trainer in enumerate(trainers):
        came = arrived[r] if arrived else {}
        if (done[r] or came) and r not in together:
            found[r] = trainer.aggregate(models[r], choices[r], outcomes[r], updates[r], came or None)
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


class _Test(NamedTuple):
    """An evaluation of some runs' models on the same examples, under way on the device."""

    name: str  # of the examples, see `Trainer.examples`
    arrays: Arrays | Rows
    rows: Ints  # of the arrays
    runs: list[int]
    launched: list[Any]


def _launch(trainers: Sequence[Trainer], models: Sequence[Any], round: int) -> list[_Test]:
    """Begin the evaluations that are due in this round, of many models in one call."""
    tests: list[_Test] = []
    for r, trainer in enumerate(trainers):
        for name, (arrays, index) in trainer.examples(round).items():
            for test in tests:
                several = arrays.devices == 1 or isinstance(arrays, Rows)
                same = test.name == name and test.arrays is arrays and several
                if same and np.array_equal(test.rows, index):
                    test.runs.append(r)
                    break
            else:
                tests.append(_Test(name, arrays, index, [r], []))
    for test in tests:
        params = [models[r]["params"] for r in test.runs]
        several = len(params) > 1
        sent = _stack(tuple(params)) if several else trainers[test.runs[0]].everywhere(params[0])
        test.launched.extend(evaluation.launch(trainers[0].model, sent, test.arrays, test.rows, several))
    return tests


def _fetch(tests: Sequence[_Test], runs: int) -> list[dict[str, evaluation.Scores]]:
    """The scores of each run, by the name of the examples."""
    found: list[dict[str, evaluation.Scores]] = [{} for _ in range(runs)]
    for test in tests:
        loss, hits = evaluation.fetch(test.launched, len(test.rows))
        for r, *score in zip(test.runs, np.atleast_2d(loss), np.atleast_2d(hits), strict=True):
            found[r][test.name] = score[0], score[1]
    return found


def play_together(runs: Sequence[Run], until: int) -> Iterator[list[Record]]:
    """Play runs together up to and including round `until`; yields their records, round by round.

    Each run gives the same result as alone, except for rounding differences of products in a larger stack.
    """
    trainers = [run.trainer for run in runs if isinstance(run.trainer, Trainer)]
    if not runs or len(trainers) < len(runs):
        raise SettingError("runs played together must each have a fedpick.learn.Trainer")
    if len({run.state.round for run in runs}) != 1:
        raise SettingError("runs played together must be in the same round; first play those behind separately")
    _settle(trainers)
    while runs[0].state.round < until:
        start = time.perf_counter()
        chosen = []
        for r, run in enumerate(runs):
            with blame(r):
                chosen.append(choose(run.policy, run.world, run.state, run.seed, run.trainer))
        jobs = [work(each, run.state, run.seed) for each, run in zip(chosen, runs, strict=True)]
        alone = [r for r, each in enumerate(chosen) if each.sent is not None]  # trained in the round's first phase
        for r in alone:
            jobs[r] = jobs[r]._replace(used=np.zeros(len(jobs[r].ids), dtype=np.bool_))
        updates = train_together(trainers, jobs)
        for r in alone:
            updates[r] = chosen[r].sent or updates[r]
        outcomes = [judge(each, update) for each, update in zip(chosen, updates, strict=True)]
        choices, models = [each.choice for each in chosen], [run.state.model for run in runs]
        delayed = [
            delay(run.world, trainer, run.state, run.seed, each)
            for run, trainer, each in zip(runs, trainers, chosen, strict=True)
        ]
        arrived = [late.take(run.world, run.state, each.round) for run, each in zip(runs, chosen, strict=True)]
        after = aggregate_together(trainers, models, choices, outcomes, updates, alone, arrived)
        for run, model, more in zip(runs, after, delayed, strict=True):
            run.state.model = model
            late.wait(run.state, more)
        # Evaluations are started for all runs before any result is awaited: the device works while the policies learn.
        tests = _launch(trainers, after, runs[0].state.round + 1)
        share = (time.perf_counter() - start - sum(each.wall for each in chosen)) / len(runs)
        records = []
        for r, (run, each, outcome) in enumerate(zip(runs, chosen, outcomes, strict=True)):
            with blame(r):
                records.append(settle(run.policy, run.world, run.state, each, outcome, None, share))
        scores = _fetch(tests, len(runs))
        yield [
            replace(record, metrics=trainer.figures(score) | trainer.measured(model, record.round))
            for trainer, record, score, model in zip(trainers, records, scores, after, strict=True)
        ]
