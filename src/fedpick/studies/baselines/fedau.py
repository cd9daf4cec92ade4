"""FedAU: accuracy when participation depends on the data, without known probabilities."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedpick.core.types import Choice, Clients, Floats, Outcome, View
from fedpick.experiment.trainers import build_trainer
from fedpick.policies import Uniform
from fedpick.policies._common import ByValue, CountState
from fedpick.studies._study import Finding, Item, Measurement, Result
from fedpick.studies._trained import ideal_world, play_trained, split
from fedpick.studies._verdicts import Limit, above, judge, within
from fedpick.studies.baselines._levels import study, texts
from fedpick.worlds import YCycle, YMaxFirst

__all__ = ["STUDY"]

SAME = "points of accuracy below known probabilities that count as no worse"
LIMITS = {SAME: Limit(1.0, "our choice, before the run")}
MODES: dict[str, Any] = {"by label": YMaxFirst(0.9), "in turns": YCycle(0.9)}
CYCLE = 100  # rounds, after which the turns of ten labels repeat


@dataclass(frozen=True, eq=False)
class Known(ByValue):
    """All available clients, each with its share of the data over its rate of participation, used as it is.

    Args:
        cohort_size: number of clients.
        rate: P(available) of each client, over all rounds.
    """

    cohort_size: int
    rate: Floats

    def init(self, clients: Clients) -> CountState:
        """Return the state before the first round."""
        return Uniform(self.cohort_size).init(clients)

    def select(self, state: CountState, view: View, rng: np.random.Generator) -> Choice:
        """All who are available."""
        ids = np.flatnonzero(view.available)
        sizes = view.clients.sizes
        return Choice(ids, weights=sizes[ids] / sizes.sum() / self.rate[ids], normalise=False)

    def observe(self, state: CountState, view: View, choice: Choice, outcome: Outcome) -> CountState:
        """Count them."""
        return Uniform(self.cohort_size).observe(state, view, choice, outcome)


def _play(item: Item, folder: Path) -> Measurement:
    people = split(item["data"], item["partition"], item["clients"], item["seed"])
    mode, count = MODES[item["mode"]], item["clients"]
    memory = mode.init(people.clients, np.random.default_rng(0))
    rate = np.mean([mode.chance(memory, t) for t in range(1, CYCLE + 1)], axis=0)
    known = item["weights"] == "known"
    train = {**item["train"], "aggregation": "fedavg" if known else item["weights"], "spread_every": 0}
    trainer = build_trainer(people, {"name": item["data"]}, train, ())
    policy: Any = Known(count, rate) if known else Uniform(count)
    found = play_trained(policy, ideal_world(people.clients, mode), trainer, item["rounds"], item["seed"])
    at, accuracy = found.metric("accuracy")
    return {"at": at, "clock": np.asarray(at, dtype=np.float64), "accuracy": accuracy}


def _score(result: Result) -> list[Finding]:
    final, findings = result["final"], []
    for mode in MODES:
        mine, plain, known = (np.asarray(final[f"{name}, {mode}"]) * 100 for name in ("fedau", "fedavg", "known"))
        shown = texts({"fedau": mine, "fedavg": plain, "known probabilities": known}, 1, "%")
        findings += [
            Finding(
                f"participation {mode}: FedAU ends with a higher accuracy than FedAvg",
                "'the advantage of FedAU over baseline methods with various participation patterns'",
                shown,
                judge([above(mine - plain, "FedAU > FedAvg (points)", digits=1)]),
                own=True,
            ),
            Finding(
                f"participation {mode}: FedAU is no worse than weights from known probabilities",
                "converges to an optimum 'without knowing the statistics of client participation'",
                shown,
                judge([within(mine - known, "FedAU - known (points)", low=-LIMITS[SAME].value, digits=1)]),
                own=True,
            ),
        ]
    return findings


STUDY = study(
    "fedau/participation",
    "Accuracy when participation depends on the data",
    "Wang & Ji (2024), FedAU",
    {
        "uniform": {"weights": "fedavg", "mode": "by label"},
        **{
            f"{name}, {mode}": {"weights": weights, "mode": mode}
            for mode in MODES
            for name, weights in (("fedau", "fedau"), ("fedavg", "fedavg"), ("known", "known"))
        },
    },
    _score,
    about="Unlike in the other studies, all available clients take part in a round. By label: a client is available "
    "the more often, the larger its smallest label (FedGS's YMF, 0.9). In turns: labels take turns of ten rounds "
    "(FedGS's YC, 0.9). Known: each update counts with the client's share of the data over its rate of participation; "
    "'uniform' is FedAvg by label, again",
    job=_play,
    limits=LIMITS,
    seeds=8,
)
