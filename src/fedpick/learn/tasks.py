"""Training of what is in flight without rounds: tasks of several versions of the model, and of several runs."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpick.core.types import Updates
from fedpick.engine.stream import TaskCall
from fedpick.learn.backend import LocalResults
from fedpick.learn.batches import Batches

if TYPE_CHECKING:
    from fedpick.learn.trainer import Trainer

__all__ = ["train_calls"]


def train_calls(trainers: Sequence["Trainer"], calls: Sequence[TaskCall]) -> list[tuple[Updates, dict[str, Any]]]:
    """The updates of each call's tasks, and a row of each one's; all are trained in one compiled call.

    A task's batches come from its own stream, so they do not depend on which tasks are trained together.

    Args:
        trainers: of each call; they can train together (`fedpick.simulate.together.difference`).
        calls: with one or more tasks each.
    """
    first = trainers[0]
    counts = [len(call.tasks) for call in calls]
    ends = np.cumsum(counts).tolist()
    lanes = max(call.most for call in calls)
    while lanes < ends[-1]:  # few numbers of lanes: each is compiled anew
        lanes *= 2
    lanes = -(-lanes // first.backend.devices) * first.backend.devices
    longest = [
        trainer.longest(np.array([task.client for task in each.tasks]), np.arange(len(each.tasks)), each.epochs)
        for trainer, each in _pairs(trainers, calls)
    ]
    drawn = Batches.empty(lanes, first.steps_for(max(longest)), first.batch)
    owner = np.zeros(lanes, np.int32)
    sent: list[Any] = []
    for (trainer, call), end in zip(_pairs(trainers, calls), ends, strict=True):
        versions = sorted({task.version for task in call.tasks})
        for at, (task, rng) in enumerate(zip(call.tasks, call.rngs, strict=True), end - len(call.tasks)):
            one, epochs = np.array([task.client]), call.epochs[at - end + len(call.tasks)][None]
            trainer.draw_into(drawn.part(slice(at, at + 1)), one, np.zeros(1, np.int64), epochs, task.version + 1, rng)
            owner[at] = len(sent) + versions.index(task.version)
        sent += [call.models[version]["params"] for version in versions]
    # A new number of models is compiled anew, too.
    stacked = sent + [sent[-1]] * (max(4, 1 << (len(sent) - 1).bit_length()) - len(sent))
    trained = first.train_all(first.backend.stack(stacked), drawn, owner)
    loss, norm = np.asarray(trained.loss), np.asarray(trained.norm)
    leaves = [np.asarray(leaf) for leaf in first.backend.leaves(trained.delta)]
    found = []
    for (trainer, call), end in zip(_pairs(trainers, calls), ends, strict=True):
        mine = np.arange(end - len(call.tasks), end)
        rows = {f"delta/{i}": leaf[mine] for i, leaf in enumerate(leaves)}
        found.append((_updates(trainer, call, LocalResults(trained.delta, loss, norm), mine), rows))
    return found


def _pairs(trainers: Sequence["Trainer"], calls: Sequence[TaskCall]) -> "zip[tuple[Trainer, TaskCall]]":
    return zip(trainers, calls, strict=True)


def _updates(trainer: "Trainer", call: TaskCall, trained: LocalResults, mine: Any) -> Updates:
    """What the server learns of a call's tasks, whose results are in these places."""
    ids, versions = (np.array([getattr(task, name) for task in call.tasks]) for name in ("client", "version"))
    parts, found = [np.flatnonzero(versions == version) for version in np.unique(versions)], []
    for part in parts:
        version, at, slots = int(versions[part[0]]), np.arange(len(part)), mine[part]
        one = LocalResults(trainer.backend.rows(trained.delta, slots), trained.loss[slots], trained.norm[slots])
        sent = call.models[version]["params"]
        updates = trainer.updates(sent, one, at, len(part), at)
        found.append(trainer.with_reports(sent, updates, ids[part], at, version + 1))
    back = np.argsort(np.concatenate(parts))
    names = found[0].reports
    reports = {name: np.concatenate([np.asarray(each.reports[name]) for each in found])[back] for name in names}
    valid = np.concatenate([np.asarray(each.valid) for each in found])[back]
    return Updates(trained.loss[mine], reports, None, valid)
