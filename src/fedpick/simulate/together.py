"""Several runs at once, with their cohorts stacked into one compiled call: for small models on a GPU.

Seeds, policies, partitions and worlds may differ; the data set, the model and the training settings may not.
"""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from fedpick._support import devices
from fedpick.core.errors import SettingError
from fedpick.core.types import Choice, Ints, Outcome, Status, Updates
from fedpick.data.federated import Dataset
from fedpick.engine.paces import Buffered, Rounds
from fedpick.learn import payload
from fedpick.learn.backend import Examples, LocalResults, Scores
from fedpick.learn.batches import Batches
from fedpick.learn.reports import needs_vectors
from fedpick.learn.tasks import train_calls
from fedpick.learn.trainer import Trainer
from fedpick.simulate import late
from fedpick.simulate.round import Work, choose, close, settle, train, work
from fedpick.simulate.run import Run
from fedpick.simulate.stream import Found, steps
from fedpick.store.records import Record

__all__ = ["RunError", "aggregate_together", "blame", "difference", "of_device", "play_together", "train_together"]

LANES = 64  # clients in a stack are padded to a multiple of this, on each device
SPARE = 1.25  # padding, as a factor: computing for unused places is cheaper than compiling a larger shape
_SHARED = (
    "model",
    "batch",
    "steps",
    "momentum",
    "weight_decay",
    "prox",
    "precision",
    "form",
    "loss",
    "optimizer",
    "clip",
    "place",
    "algorithm",
)


class RunError(Exception):
    """An error in one of several runs; the others are in the middle of a round.

    Args:
        index: of the run.
        error: that was raised.
    """

    def __init__(self, index: int, error: Exception) -> None:
        super().__init__(f"run {index} of those played together: {error}")
        self.index, self.error = index, error


def of_device(error: Exception) -> bool:
    """Whether an error is of JAX's device, such as lack of memory."""
    jax = sys.modules.get("jax")
    return jax is not None and isinstance(error, jax.errors.JaxRuntimeError)


@contextmanager
def blame(index: int) -> Iterator[None]:
    """Attribute errors in this block to a run; errors of the device, such as lack of memory, are passed on."""
    try:
        yield
    except Exception as error:
        if of_device(error):
            raise
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
        share = LANES * trainer.backend.devices
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
    triples = zip(trainers, ats, jobs, strict=True)
    longest = max(trainer.longest(job.ids, at, job.epochs) for trainer, at, job in triples)
    drawn = Batches.empty(*_kept_shape(first, (max(int(starts[-1]), 1), longest)), first.batch)
    owner = np.zeros(len(drawn.keys), np.int32)

    def draw(r: int) -> None:
        place, job = slice(starts[r], starts[r + 1]), jobs[r]
        trainers[r].draw_into(drawn.part(place), job.ids, ats[r], job.epochs, job.round, job.rng)
        owner[place] = r

    with ThreadPoolExecutor(devices.cores()) as pool:  # each run has its own stream, and its own part of the arrays
        for _ in pool.map(draw, range(len(jobs))):
            pass
    sent = first.backend.stack([job.model["params"] for job in jobs])
    those = [(job.model, job.ids[at]) for job, at in zip(jobs, ats, strict=True)]
    trained = first.train_all(sent, drawn, owner, *first.added(those, len(drawn.steps)))
    loss, norm = np.asarray(trained.loss), np.asarray(trained.norm)
    found = []
    for r, (trainer, job, at) in enumerate(zip(trainers, jobs, ats, strict=True)):
        slots, delta = starts[r] + np.arange(len(at)), None
        if needs_vectors(trainer.reports):  # vectors of the run's own clients, padded to a constant shape
            padded = np.zeros(len(job.ids), np.int64)
            padded[: len(at)] = slots
            delta = trainer.backend.rows(trained.delta, padded)
        mine = LocalResults(delta, loss[slots], norm[slots])
        updates = trainer.updates(job.model["params"], mine, at, len(job.ids), np.arange(len(at)))
        updates = trainer.with_reports(job.model["params"], updates, job.ids, at, job.round) if len(at) else updates
        found.append(trainer.with_work(replace(updates, payload=(trained.delta, at, slots)), drawn))
    return found


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
    # A model with an optimiser's state, or a memory of its aggregation or algorithm, is moved by its own trainer.
    kept = {"aggregation", "algorithm"}
    apart = {r for r, model in enumerate(models) if trainers[r].server is not None or kept & model.keys()}
    apart |= set(alone)
    apart |= {r for r, came in enumerate(arrived) if came}
    together = [r for r in range(len(trainers)) if done[r] and r not in apart]
    found = list(models)
    for r, trainer in enumerate(trainers):
        came = arrived[r] if arrived else {}
        if (done[r] or came) and r not in together:
            found[r] = trainer.aggregate(models[r], choices[r], outcomes[r], updates[r], came or None)
    if together:
        rows = {}
        for r in together:
            each, _ = trainers[r].weights(models[r], choices[r], outcomes[r], updates[r])
            delta, rows[r] = payload.weighed(trainers[r].backend, updates[r], each)
        nothing = np.zeros_like(rows[together[0]])
        weights = np.stack([rows.get(r, nothing) for r in range(len(trainers))])
        added = trainers[0].backend.add([model["params"] for model in models], delta, weights)
        for r in together:
            found[r] = {"params": added[r], "server": models[r]["server"]}
    return found


class _Test(NamedTuple):
    """An evaluation of some runs' models on the same examples."""

    name: str  # of the examples, see `Trainer.examples`
    examples: Examples
    rows: Ints  # of the data set
    runs: list[int]


Launched = list[tuple[_Test, Callable[[], Scores]]]


def _launch(trainers: Sequence[Trainer], models: Sequence[Any], round: int) -> Launched:
    """Begin the evaluations that are due in this round, of many models in one call."""
    tests: list[_Test] = []
    for r, trainer in enumerate(trainers):
        for name, (examples, index) in trainer.examples(round).items():
            for test in tests:
                same = test.name == name and test.examples is examples and examples.stacks
                if same and np.array_equal(test.rows, index):
                    test.runs.append(r)
                    break
            else:
                tests.append(_Test(name, examples, index, [r]))
    launched = []
    for test in tests:
        params, backend = [models[r]["params"] for r in test.runs], trainers[test.runs[0]].backend
        several = len(params) > 1
        sent = backend.stack(params) if several else backend.everywhere(params[0])
        launched.append((test, test.examples.launch(trainers[0].model, sent, test.rows, several)))
    return launched


def _fetch(launched: Launched, runs: int) -> list[dict[str, Scores]]:
    """The scores of each run, by the name of the examples."""
    found: list[dict[str, Scores]] = [{} for _ in range(runs)]
    for test, wait in launched:
        loss, hits = wait()
        for r, *score in zip(test.runs, np.atleast_2d(loss), np.atleast_2d(hits), strict=True):
            found[r][test.name] = score[0], score[1]
    return found


def play_together(runs: Sequence[Run], until: int) -> Iterator[list[Record]]:
    """Play runs together up to and including round `until`; yields their records, round by round.

    Each run gives the same result as alone, except for rounding differences of products in a larger stack. Under
    `fp.Buffered`, versions of the model take the place of rounds.
    """
    trainers = [run.trainer for run in runs if isinstance(run.trainer, Trainer)]
    if not runs or len(trainers) < len(runs):
        raise SettingError("runs played together must each have a fedpick.learn.Trainer")
    if len({run.state.round for run in runs}) != 1:
        raise SettingError("runs played together must be in the same round; first play those behind separately")
    paces = [run.pace for run in runs if isinstance(run.pace, Rounds)]
    if 0 < len(paces) < len(runs):
        raise SettingError(
            "runs played together must all be in rounds (fp.Rounds), or none; play the others separately"
        )
    _settle(trainers)
    if not paces:
        yield from _play_streams(runs, trainers, until)
    while runs[0].state.round < until:
        start = time.perf_counter()
        chosen = []
        for r, run in enumerate(runs):
            with blame(r):
                chosen.append(choose(run.policy, run.world, run.state, run.seed, run.trainer, paces[r]))
        jobs = [work(each, run.state, run.seed) for each, run in zip(chosen, runs, strict=True)]
        alone = [r for r, each in enumerate(chosen) if each.sent is not None]  # trained in the round's first phase
        for r in alone:
            jobs[r] = jobs[r]._replace(used=np.zeros(len(jobs[r].ids), dtype=np.bool_))
        updates = train_together(trainers, jobs)
        for r, (run, trainer) in enumerate(zip(runs, trainers, strict=True)):
            sent = chosen[r].sent
            if sent is not None:
                updates[r] = sent
                continue
            found = train(trainer, chosen[r], run.state, run.seed, updates[r])
            if found is not updates[r]:  # an update was unusable, and others took its place
                updates[r], alone = found, [*alone, r]
        closed = [close(run.state, each, update) for run, each, update in zip(runs, chosen, updates, strict=True)]
        models = [run.state.model for run in runs]
        arrived = [late.take(run.state, each) for run, each in zip(runs, chosen, strict=True)]
        delayed = [
            late.train(trainer, run.state, run.seed, each)
            for run, trainer, each in zip(runs, trainers, chosen, strict=True)
        ]
        choices, outcomes = [each.choice for each in closed], [each.outcome for each in closed]
        after = aggregate_together(trainers, models, choices, outcomes, updates, alone, arrived)
        for run, model, more in zip(runs, after, delayed, strict=True):
            run.state.model = model
            late.wait(run.state, more)
        # Evaluations are started for all runs before any result is awaited: the device works while the policies learn.
        tests = _launch(trainers, after, runs[0].state.round + 1)
        share = (time.perf_counter() - start - sum(each.wall for each in chosen)) / len(runs)
        records = []
        for r, (run, each, end) in enumerate(zip(runs, chosen, closed, strict=True)):
            with blame(r):
                records.append(settle(run.policy, run.world, run.state, each, end, None, share))
        scores = _fetch(tests, len(runs))
        yield [
            replace(record, metrics=trainer.figures(score) | trainer.measured(model, record.round))
            for trainer, record, score, model in zip(trainers, records, scores, after, strict=True)
        ]


def _play_streams(runs: Sequence[Run], trainers: Sequence[Trainer], until: int) -> Iterator[list[Record]]:
    """Asynchronous runs, version by version: what those that wait for answers have in flight is trained in one call."""
    while runs[0].state.round < until:
        plays = []
        for run in runs:
            assert isinstance(run.pace, Buffered)  # see play_together
            plays.append(steps(run.policy, run.world, run.state, run.seed, run.trainer, run.pace))
        answers: dict[int, Found | None] = dict.fromkeys(range(len(runs)))
        records: dict[int, Record] = {}
        while answers:
            calls = {}
            for r, answer in answers.items():
                with blame(r):
                    try:
                        calls[r] = next(plays[r]) if answer is None else plays[r].send(answer)
                    except StopIteration as end:
                        records[r] = end.value
            start = time.perf_counter()
            found = train_calls([trainers[r] for r in calls], list(calls.values())) if calls else []
            share = (time.perf_counter() - start) / max(len(calls), 1)
            answers = {r: (*each, share) for r, each in zip(calls, found, strict=True)}
        yield [records[r] for r in range(len(runs))]
