"""FedAvg with `fedpick.learn`: what one round of `fedpick.Run` asks of its trainer.

python ours.py DATA          all cores
python ours.py DATA one      one core
"""

import os
import sys

if __name__ == "__main__" and sys.argv[2:] == ["one"]:
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])

import numpy as np
from protocol import private_stdout, serve
from workloads import Params, Task, read

import fedpick as fp
from fedpick import data, learn

# isort: split
import jax  # after fedpick.learn, which says how many devices it shall make


class Planned(learn.Trainer):
    """A trainer that draws its batches, then takes the plan's in their place: all engines see the same examples."""

    plan: np.ndarray  # (cohort, steps, batch) indices into the flat arrays

    def draw(self, ids, at, epochs, round, rng):
        """The plan's batches."""
        drawn = super().draw(ids, at, epochs, round, rng)
        most = drawn.steps.max()
        drawn.index[: len(at), :most] = self.plan[at, :most]
        return drawn


def is_layer(part: object) -> bool:
    """Whether this is {"w": ..., "b": ...}."""
    return isinstance(part, dict) and "w" in part


class Loop:
    """Train, then aggregate."""

    def __init__(self, task: Task) -> None:
        self.task, work = task, task.work
        x, y = task.x.reshape(-1, *work.inputs), task.y.reshape(-1)
        starts = np.concatenate([[0], np.cumsum(work.sizes)])
        held = np.concatenate([c * work.held + np.arange(size) for c, size in enumerate(work.sizes)])
        federated = data.Federated(data.Dataset(work.title, x, y, classes=work.classes), held, starts)
        if work.filters:
            model = learn.cnn(work.inputs, work.classes, channels=work.filters, hidden=work.hidden)
        else:
            model = learn.mlp(work.inputs, work.classes, hidden=work.hidden)
        self.trainer = Planned(federated, model, lr=work.lr, batch=work.batch, steps=work.steps or None)
        self.reset()

    def reset(self) -> None:
        """Back to the first weights and round 0."""
        self.round, self.model = 0, self.trainer.init(0)
        shape = jax.tree.structure(self.model["params"], is_leaf=is_layer)
        first = [jax.numpy.asarray(p) for p in self.task.params]
        layers = [{"w": w, "b": b} for w, b in zip(first[::2], first[1::2], strict=True)]
        self.model["params"] = jax.tree.unflatten(shape, layers)

    def run(self, rounds: int) -> None:
        """So many more."""
        work = self.task.work
        for _ in range(rounds):
            ids, steps, batches = self.task.cohort(self.round)
            used = steps > 0
            self.trainer.plan = np.maximum(batches, 0) + ids[:, None, None] * np.int32(work.held)
            epochs = steps // -(-work.sizes[ids] // work.batch) if work.least else steps / work.steps
            rng = fp.rng.stream(0, self.round + 1, "trainer")
            updates = self.trainer.train(self.model, ids, used, epochs.astype(float), self.round + 1, rng)
            status = np.where(used, fp.Status.DONE, fp.Status.LATE)
            outcome = fp.Outcome(status, np.ones(work.cohort), updates.loss)
            self.model = self.trainer.aggregate(self.model, fp.Choice(ids), outcome, updates)
            self.round += 1
        jax.block_until_ready(self.model)

    def params(self) -> Params:
        """In the common layout."""
        layers = jax.tree.leaves(self.model["params"], is_leaf=is_layer)
        return [np.asarray(layer[part]) for layer in layers for part in ("w", "b")]


def main() -> None:
    """Answer the driver."""
    out = private_stdout()
    serve(out, Loop(read(sys.argv[1])), ["fedpick", "jax", "jaxlib"])


if __name__ == "__main__":
    main()
