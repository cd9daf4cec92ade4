"""How a trainer evaluates its model."""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from fedpick.core.types import Floats, Ints
from fedpick.data.federated import Federated
from fedpick.learn import dense, evaluation, measures, placement
from fedpick.learn.measures import Metric
from fedpick.learn.models import Model
from fedpick.learn.reports import judged

__all__ = ["Tested"]


class Tested:
    """The part of `fedpick.learn.Trainer` that evaluates, of the settings below."""

    data: Federated
    model: Model
    evaluate_every: int
    spread_every: int | None
    metrics: tuple[Metric, ...]
    reports: tuple[str, ...]
    form: str
    devices: int

    def _placed(self, part: str) -> placement.Arrays | dense.Rows:
        place = dense.place if self.form == "loop" else placement.place
        return place(self.data.dataset, part, self.devices)

    @property
    def _arrays(self) -> placement.Arrays | dense.Rows:
        return self._placed("train")

    def everywhere(self, params: Any) -> Any:
        """The parameters on all devices that a cohort is dealt out to."""
        if self.devices == 1 or self.form == "loop":
            return params
        return jax.device_put(params, placement.everywhere(self.devices))

    def evaluate(self, model: Any, round: int) -> dict[str, float]:
        """Test loss and accuracy; global training loss, and the spread of accuracy over clients (worst decile)."""
        params = self.everywhere(model["params"])
        due = self.examples(round)
        going = {name: evaluation.launch(self.model, params, *where) for name, where in due.items()}
        found = self.figures({name: evaluation.fetch(going[name], len(index)) for name, (_, index) in due.items()})
        return found | self.measured(model, round)

    def examples(self, round: int) -> dict[str, tuple[placement.Arrays | dense.Rows, Ints]]:
        """What the model is evaluated on after this round, if on anything: "own" and "test" examples."""
        found: dict[str, tuple[placement.Arrays | dense.Rows, Ints]] = {}
        if round % self.evaluate_every:
            return found
        dataset = self.data.dataset
        every = self.evaluate_every if self.spread_every is None else self.spread_every
        if every and round % every == 0:
            found["own"] = self._arrays, np.arange(len(dataset))
        if len(dataset.test_x):
            found["test"] = self._placed("test"), judged(self.reports, dataset)
        elif len(self.data.held):
            found["test"] = self._arrays, self.data.held
        return found

    def figures(self, scores: Mapping[str, evaluation.Scores]) -> dict[str, float]:
        """What an evaluation found, given the scores of `examples`; nothing if none was due."""
        return evaluation.figures(self.data, scores.get("own"), scores.get("test"))

    def measured(self, model: Any, round: int) -> dict[str, float]:
        """The metrics of `metrics` on the held-out examples; nothing if no evaluation was due."""
        if not self.metrics or round % self.evaluate_every:
            return {}
        dataset, part = self.data.dataset, "test" if len(self.data.dataset.test_x) else "train"
        index = judged(self.reports, dataset) if part == "test" else self.data.held
        if not len(index):
            return {}
        placed = placement.place(dataset, part, 1 if self.form == "loop" else self.devices)
        outputs = evaluation.outputs(self.model, model["params"], placed.first, index)
        targets = (dataset.test_y if part == "test" else dataset.y)[index]
        return measures.measured(self.metrics, outputs, targets)

    @property
    def directions(self) -> dict[str, str]:
        """Which way is better, of the metrics of the user's own functions that say so."""
        return measures.declared(self.metrics)

    def accuracies(self, model: Any, round: int) -> Floats | None:
        """Accuracy of each client, NaN without examples; None if no evaluation up to this round computes it."""
        every = self.evaluate_every if self.spread_every is None else self.spread_every
        if not every or round < every or not self.data.dataset.classes:
            return None
        params, everyone = self.everywhere(model["params"]), np.arange(len(self.data.dataset))
        return evaluation.by_client(self.data, evaluation.score(self.model, params, self._arrays, everyone)[1])
