"""Late updates in simulated runs: trained when they are sent, kept until they come, used in the round they come in.

Their tasks are in the run's `Flight`, the updates in `RunState.late`: arrays whose first axis is the update, "task"
(its id) and what the trainer keeps of it.

In a round of two phases, a client whose norm comes late cannot be drawn by its norm. Its update is used as if it had
been drawn with probability 1: its base weight is its share of the data of all who were asked and did not fail.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from fedpick.core import rng as rngs
from fedpick.core.protocol import Trainer
from fedpick.core.types import Choice, Floats, Status
from fedpick.engine.cohort import Cohort
from fedpick.engine.flight import Task, rows_of
from fedpick.simulate.abilities import LateTrainer
from fedpick.store.checkpoint import RunState

if TYPE_CHECKING:
    from fedpick.simulate.round import OpenRound

__all__ = ["take", "train", "wait"]

Kept = dict[str, Any]


def _asked(cohort: Cohort, sizes: Floats) -> Choice:
    """All who were asked in a first phase, each with its share of the data of those who did not fail."""
    ids = cohort.choice.ids
    held = np.where(cohort.statuses == Status.FAILED, 0.0, sizes[ids])
    return Choice(ids, weights=held / max(held.sum(), np.finfo(np.float64).tiny), normalise=False)


def train(trainer: Trainer, state: RunState, seed: int, chosen: "OpenRound") -> Kept:
    """Let the late tasks of this round go on; their clients train from the model that they were sent: the present one.

    Returns the updates of those that will come.
    """
    cohort, answers, choice = chosen.cohort, chosen.answers, chosen.cohort.choice
    if chosen.first is not None and chosen.first.cohort is not None:
        cohort, answers = chosen.first.cohort, chosen.first.answers
        choice = _asked(cohort, chosen.view.clients.sizes)
    if not chosen.pace.late or not len(cohort.late):
        return {}
    ids, round, due = choice.ids, chosen.round, chosen.begun + chosen.spent + answers.took
    state.flight.add(Task(cohort.first + int(at), int(ids[at]), round, due=float(due[at])) for at in cohort.late)
    late = np.zeros(len(ids), dtype=np.bool_)
    late[cohort.late] = np.isfinite(due[cohort.late])
    if not late.any():
        return {}
    rng = rngs.stream(seed, round, "train late")
    updates = trainer.train(state.model, ids, late, state.world.epochs[ids], round, rng)
    assert isinstance(trainer, LateTrainer)  # see check_fit
    at, kept = trainer.keep(choice, updates)
    return {"task": cohort.first + at, **kept} if len(at) else {}


def take(state: RunState, chosen: "OpenRound") -> Kept:
    """The late updates that this round uses, for `LateTrainer.aggregate`; those that are of no use leave the state."""
    tasks, held = state.flight.come(chosen.round, chosen.pace.late), state.late
    state.flight.use(tasks)
    if not held:
        return {}
    at = rows_of(held["task"], tasks)
    sent = {task.id: task.round for task in tasks}
    found = {name: values[at] for name, values in held.items()}
    chosen.used.extend(task for task in tasks if task.id in set(found["task"].tolist()))
    rounds = np.array([sent[id] for id in found["task"].tolist()], dtype=np.int64)
    awaited = np.isin(held["task"], state.flight.ids)
    state.late = {name: values[awaited] for name, values in held.items()} if awaited.any() else {}
    return {**found, "round": rounds, "now": chosen.round, "beta": chosen.pace.beta} if len(at) else {}


def wait(state: RunState, more: Kept) -> None:
    """Add these to the updates that wait in the state."""
    if more:
        held = state.late
        state.late = {name: np.concatenate([held[name], new]) if held else new for name, new in more.items()}
