"""A trainer of the user: softmax regression in NumPy, with the five methods and one more."""

import typing
from typing import Any, ClassVar

import numpy as np

import fedpick as fp

try:
    Updates = fp.Updates
except AttributeError:  # at commits where it is not among the public names
    Updates = typing.get_type_hints(fp.learn.Trainer.train)["return"]


class Loop:
    """Full batches; every client's update is weighed equally."""

    directions: ClassVar = {"quality": "larger"}

    def __init__(self, data: Any, lr: float = 0.1) -> None:
        self.data, self.lr = data, lr

    def init(self, seed: int) -> dict[str, Any]:
        """Zeros, and a count of the rounds with an update."""
        inputs, classes = self.data.dataset.x.shape[1], self.data.dataset.classes
        return {"w": np.zeros((inputs, classes)), "rounds": np.zeros(1, dtype=np.int64)}

    def _loss(self, w: Any, k: int) -> tuple[float, Any]:
        at = self.data.examples_of(k)
        x, y = self.data.dataset.x[at].astype(np.float64), self.data.dataset.y[at]
        scores = x @ w
        scores -= scores.max(axis=1, keepdims=True)
        logs = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
        p = np.exp(logs)
        p[np.arange(len(y)), y] -= 1.0
        return float(-logs[np.arange(len(y)), y].mean()), x.T @ p / len(y)

    def probe(self, model: Any, ids: Any, batch: int | None, rng: np.random.Generator) -> Any:
        """The losses of these clients."""
        return np.array([self._loss(model["w"], int(k))[0] for k in ids])

    def train(self, model: Any, ids: Any, used: Any, epochs: Any, round: int, rng: np.random.Generator) -> Any:
        """One step per epoch."""
        loss, moves = np.full(len(ids), np.nan), np.zeros((len(ids), *model["w"].shape))
        for at in np.flatnonzero(used):
            w = model["w"]
            for _ in range(int(epochs[at])):
                loss[at], gradient = self._loss(w, int(ids[at]))
                w = w - self.lr * gradient
            moves[at] = w - model["w"]
        return Updates(loss, payload=moves)

    def aggregate(self, model: Any, choice: Any, outcome: Any, updates: Any) -> Any:
        """Add the mean update."""
        done = outcome.status == fp.Status.DONE
        return {"w": model["w"] + updates.payload[done].mean(axis=0), "rounds": model["rounds"] + 1}

    def evaluate(self, model: Any, round: int) -> dict[str, float]:
        """Minus the mean loss of all clients, every second round."""
        if round % 2:
            return {}
        return {"quality": -float(np.mean([self._loss(model["w"], k)[0] for k in range(len(self.data))]))}

    def client_scores(self, model: Any, round: int) -> Any:
        """Minus each client's loss."""
        return np.array([-self._loss(model["w"], k)[0] for k in range(len(self.data))])
