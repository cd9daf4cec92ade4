"""Power-of-Choice, Fig. 1: a toy example with two clients, of which one trains in each round."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from fedpick import Clients, Outcome, Status, View
from fedpick import policy as policy_from_text
from fedpick.core import rng as rngs
from fedpick.core.types import Floats, Ints
from fedpick_papers.studies import _plots
from fedpick_papers.studies._stats import band, rounded, show
from fedpick_papers.studies._study import Finding, Found, Item, Measurement, Result, Settings, Study, seeds_of
from fedpick_papers.studies._verdicts import judge, order
from fedpick_papers.studies.power_of_choice._common import PAPER

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["STUDY"]


def _item(settings: Settings, name: str, seed: int) -> dict[str, Any]:
    shared = {key: settings[key] for key in ("tau", "learning_rate", "rounds", "toys")}
    return {**shared, "policy": settings["schemes"][name], "seed": seed}


def _items(settings: Settings) -> Sequence[Item]:
    return [_item(settings, name, seed) for name in settings["schemes"] for seed in seeds_of(settings)]


def walk(centres: Floats, start: float, policy: Any, rounds: int, shrink: float, seed: int, toy: int) -> Floats:
    """|w - w*| after every round, as a share of the first; F_k = (w - c_k)^2 / 2, the clients have equal data."""
    clients, everyone, w = Clients(np.ones(2)), np.ones(2, dtype=bool), start
    best = float(centres.mean())

    def probe(ids: Ints, /, *, batch: int | None = None) -> ArrayLike:
        return 0.5 * (w - centres[ids]) ** 2

    done = Outcome(np.full(1, Status.DONE, dtype=np.int8), np.zeros(1), np.zeros(1))
    state, far = policy.init(clients), np.empty(rounds)
    for t in range(1, rounds + 1):
        view = View(t, everyone, clients, probe=probe)
        choice = policy.select(state, view, rngs.stream(seed, t, f"toy {toy}"))
        centre = float(centres[choice.ids[0]])
        w = centre + shrink * (w - centre)
        state = policy.observe(state, view, choice, done)
        far[t - 1] = abs(w - best)
    return far / abs(start - best)


def _play(item: Item, _: Path) -> Measurement:
    """A number of toys: optima apart by a unit, a start outside of both."""
    policy = policy_from_text(item["policy"], cohort_size=1)
    shrink = (1.0 - item["learning_rate"]) ** item["tau"]
    far = []
    for toy in range(item["toys"]):
        rng = rngs.stream(item["seed"], toy, "toy")
        start = float(rng.uniform(1.5, 3.0))  # from w*, which lies at 0
        far.append(walk(np.array([-0.5, 0.5]), start, policy, item["rounds"], shrink, item["seed"], toy))
    return {"far": np.mean(far, axis=0)}


def _gather(settings: Settings, found: Found) -> Result:
    result: Result = {"rounds": settings["rounds"], "far": {}, "curves": {}, "first": settings["first"]}
    for name in settings["schemes"]:
        far = np.array([found[_item(settings, name, seed)]["far"] for seed in seeds_of(settings)])
        result["far"][name] = rounded(far[:, min(settings["first"], settings["rounds"]) - 1])
        mean, half = band(far)
        result["curves"][name] = {"mean": rounded(mean), "half": rounded(half)}
    return result


def _score(result: Result) -> list[Finding]:
    nearer = order(result["far"], "random > higher loss", digits=3)
    return [
        Finding(
            f"After {result['first']} rounds, selecting the client with the higher loss is closer to the optimum",
            "a drawing of five rounds, one order of random clients",
            "distance to w*, as a share of the first: "
            + "; ".join(f"{name} {show(values, 3)}" for name, values in result["far"].items()),
            judge(nearer.checks),
        )
    ]


def _plot(result: Result) -> "Figure":
    figure, axes = _plots.figure(5, 3.2)
    at = range(1, result["rounds"] + 1)
    for i, (name, curve) in enumerate(result["curves"].items()):
        _plots.banded(axes[0][0], at, curve["mean"], curve["half"], i, name, len(result["far"][name]))
    axes[0][0].set_xlabel("round")
    axes[0][0].set_ylabel("distance to the optimum, first = 1")
    axes[0][0].legend()
    return figure


STUDY = Study(
    id="power-of-choice/fig1",
    title="A toy example with two clients",
    paper=PAPER + ", Fig. 1",
    settings={
        "schemes": {"random": "size-weighted", "higher loss": "pow-d(candidates=2)"},
        "tau": 2,
        "learning_rate": 0.2,
        "rounds": 20,
        "first": 5,
        "toys": 20,
        "seeds": 10,
    },
    quick={"seeds": 2},
    items=_items,
    job=_play,
    gather=_gather,
    score=_score,
    plot=_plot,
    about="Two clients with F_k = (w - c_k)^2/2 in one dimension; one of them does two gradient steps a round. The "
    "paper draws one such walk and gives no numbers: optima at -0.5 and 0.5, starts from U(1.5, 3), learning rate 0.2 "
    "and 20 toys a seed are our choice",
)
