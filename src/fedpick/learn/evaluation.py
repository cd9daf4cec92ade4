"""Figures of a model on test data and on the clients' data, and the part of a trainer that computes them."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from fedpick.core import rng as rngs
from fedpick.core.types import Floats, Ints
from fedpick.data.federated import Dataset, Federated
from fedpick.learn import measures
from fedpick.learn.backend import Backend, Examples, Scores
from fedpick.learn.measures import Metric

__all__ = ["Evaluation", "by_client", "segment_means", "split_test"]


class Evaluation:
    """The part of `fedpick.learn.Trainer` that evaluates its model."""

    data: Federated
    model: Any
    evaluate_every: int
    spread_every: int | None
    metrics: tuple[Metric, ...]
    set_aside: int
    backend: Backend

    def placed(self, part: str = "train") -> Examples:
        """The "train" or "test" examples where they are computed with."""
        return self.backend.place(self.data.dataset, part)

    def scores(self, params: Any, index: Ints) -> Scores:
        """Loss and hit (1 or 0) of each of these training examples."""
        return self.placed().launch(self.model, self.backend.everywhere(params), index)()

    def evaluate(self, model: Any, round: int) -> dict[str, float]:
        """Test loss and accuracy; global training loss, and the spread of accuracy over clients (worst decile)."""
        params, due = self.backend.everywhere(model["params"]), self.examples(round)
        under_way = {name: where.launch(self.model, params, index) for name, (where, index) in due.items()}
        return self.figures({name: wait() for name, wait in under_way.items()}) | self.measured(model, round)

    def examples(self, round: int) -> dict[str, tuple[Examples, Ints]]:
        """The examples of this round's evaluation, if one is due: "own", which clients hold, and "test"."""
        found: dict[str, tuple[Examples, Ints]] = {}
        if round % self.evaluate_every:
            return found
        dataset = self.data.dataset
        every = self.evaluate_every if self.spread_every is None else self.spread_every
        if every and round % every == 0:
            found["own"] = self.placed(), np.arange(len(dataset))
        if len(dataset.test_x):
            found["test"] = self.placed("test"), split_test(dataset, self.set_aside)[1]
        elif len(self.data.held):
            found["test"] = self.placed(), self.data.held
        return found

    def figures(self, scores: Mapping[str, Scores]) -> dict[str, float]:
        """What an evaluation found, given the scores of `examples`; nothing if none was due."""
        found: dict[str, float] = {}
        own, test, classes = scores.get("own"), scores.get("test"), self.data.dataset.classes
        if own is not None:
            found["train_loss"] = float(own[0][self.data.examples].mean())
        if test is not None and len(test[0]):
            found["test_loss"] = float(test[0].mean())
            if classes:
                found["accuracy"] = float(test[1].mean())
        if own is not None and classes:
            each = by_client(self.data, own[1])
            each = np.sort(each[np.isfinite(each)])
            found["spread"] = float(each.std())
            found["worst_decile"] = float(each[: max(1, len(each) // 10)].mean())
        return found

    def measured(self, model: Any, round: int) -> dict[str, float]:
        """The metrics of `metrics` on the held-out examples; nothing if no evaluation was due."""
        if not self.metrics or round % self.evaluate_every:
            return {}
        dataset, part = self.data.dataset, "test" if len(self.data.dataset.test_x) else "train"
        index = split_test(dataset, self.set_aside)[1] if part == "test" else self.data.held
        if not len(index):
            return {}
        outputs = self.backend.outputs(self.model, model["params"], dataset, part, index)
        targets = (dataset.test_y if part == "test" else dataset.y)[index]
        return measures.measure(self.metrics, outputs, targets)

    @property
    def directions(self) -> dict[str, str]:
        """Which way is better, as declared by the user's metric functions."""
        return measures.declared(self.metrics)

    def accuracies(self, model: Any, round: int) -> Floats | None:
        """Accuracy of each client, NaN without examples; None if no evaluation up to this round computes it."""
        every = self.evaluate_every if self.spread_every is None else self.spread_every
        if not every or round < every or not self.data.dataset.classes:
            return None
        return by_client(self.data, self.scores(model["params"], np.arange(len(self.data.dataset)))[1])


def segment_means(values: Floats, starts: Ints) -> Floats:
    """The mean of each run of values; NaN for an empty one.

    >>> segment_means(np.array([1.0, 3.0, 5.0]), np.array([0, 2, 2, 3]))
    array([ 2., nan,  5.])
    """
    counts = np.diff(starts)
    owner = np.repeat(np.arange(len(counts)), counts)
    with np.errstate(invalid="ignore"):
        means: Floats = np.bincount(owner, weights=values, minlength=len(counts)) / counts
    return means


def by_client(data: Federated, hits: Floats) -> Floats:
    """Accuracy of each client on its held-out examples; if no client has any, on its training examples.

    Args:
        data: of all clients.
        hits: 1 or 0 for each example of the data set.
    """
    own, starts = (data.held, data.held_starts) if len(data.held) else (data.examples, data.starts)
    return segment_means(hits[own], starts)


def split_test(dataset: Dataset, set_aside: int) -> tuple[Ints, Ints]:
    """Of the test examples, those that are set aside for the server (at most half), and the others, for tests.

    Which ones they are depends on the data alone, so that all runs that set some aside are tested on the same.
    """
    return _split(len(dataset.test_x), set_aside)


@lru_cache
def _split(count: int, set_aside: int) -> tuple[Ints, Ints]:
    drawn = rngs.stream(0, 0, "validation").permutation(count)[: min(set_aside, count // 2)]
    mine = np.sort(drawn).astype(np.int64)
    return mine, np.setdiff1d(np.arange(count), mine)
