"""RBCS-F, Fig. 2: the queues."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpick.core.types import Floats
from fedpick_papers.studies import _plots
from fedpick_papers.studies._runs import Played, chosen_in, play_scheme, scheme_item
from fedpick_papers.studies._stats import band, rounded, show, steps
from fedpick_papers.studies._study import Finding, Found, Item, Measurement, Result, Settings, seeds_of
from fedpick_papers.studies._verdicts import Limit, judge, order, within
from fedpick_papers.studies.rbcsf._common import CHOSEN, LOOKS, QUEUED, WORLD, study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["STUDY"]

LIMITS = {
    "flat": Limit(
        0.1,
        "growth in the last tenth of the rounds over that in the first: at most a tenth is read as flat; the number of "
        "rounds is no threshold: it was raised from 500 to 3,000 after the run",
    )
}


def _item(settings: Settings, policy: str, seed: int) -> dict[str, Any]:
    return {**scheme_item(settings, settings["world"], policy, seed), "guarantee": settings["guarantee"]}


def _items(settings: Settings) -> Sequence[Item]:
    return [_item(settings, policy, seed) for policy in settings["schemes"].values() for seed in seeds_of(settings)]


def _read(item: Item, folder: Path) -> Measurement:
    """The mean queue after every round, computed by eq. (6) from the chosen clients."""
    queue, mean = np.zeros(item["clients"]), np.empty(item["rounds"])
    for t, ids in enumerate(chosen_in(folder, item["rounds"])):
        queue += item["guarantee"]
        queue[ids] -= 1.0
        np.clip(queue, 0.0, None, out=queue)
        mean[t] = queue.mean()
    return {"queue": mean}


def _growth(queue: Floats) -> Floats:
    """Growth in the last tenth of the rounds as a share of that in the first, for each seed."""
    tail = max(queue.shape[1] // 10, 1)
    last = queue[:, -1] - queue[:, -1 - tail]
    found: Floats = last / queue[:, tail - 1]
    return found


def _gather(settings: Settings, found: Found) -> Result:
    rounds, early = settings["rounds"], min(settings["early"], settings["rounds"])
    at, tail = steps(rounds), max(rounds // 10, 1)
    result: Result = {"rounds": rounds, "early": early, "at": rounded(at)}
    result |= {"curves": {}, "level": {}, "reached": {}, "growth": {}, "growth_early": {}}
    for name, policy in settings["schemes"].items():
        queue = np.array([found[_item(settings, policy, seed)]["queue"] for seed in seeds_of(settings)])
        level = queue[:, -tail:].mean(axis=1)
        mean, half = band(queue[:, at - 1])
        result["curves"][name] = {"mean": rounded(mean), "half": rounded(half)}
        result["level"][name] = rounded(level)
        # How fast the curve converges: the first round at 90% of the level of the last tenth.
        result["reached"][name] = rounded(np.argmax(queue >= 0.9 * level[:, None], axis=1) + 1)
        result["growth"][name] = rounded(_growth(queue))
        result["growth_early"][name] = rounded(_growth(queue[:, :early]))
    return result


def _score(result: Result) -> list[Finding]:
    names = list(result["level"])
    growth = result["growth"]
    flat = [within(growth[name], f"{name} is flat", high=LIMITS["flat"].value, digits=3) for name in names]
    rising = " > ".join(reversed(names))
    level, speed = order(result["level"], rising, digits=2), order(result["reached"], rising)

    def shares(of: dict[str, list[float]]) -> str:
        return "; ".join(f"{name} {show(100 * np.asarray(of[name]), 1, '%')}" for name in names)

    return [
        Finding(
            "The mean queue flattens for every V",
            "curves only: 'flatten after going through a number of scheduling rounds'",
            f"growth in the last tenth of {result['rounds']:,} rounds, as a share of that in the first: "
            f"{shares(growth)}",
            judge(flat),
            f"flat means at most {LIMITS['flat'].value:.0%}. After {result['early']:,} rounds, where the claim was "
            f"judged first and contradicted: {shares(result['growth_early'])}",
        ),
        Finding(
            "The higher V, the higher the queue converges",
            "curves only: 'a higher convergence value'",
            f"mean queue over the last tenth: {level.shown}",
            judge(level.checks),
        ),
        Finding(
            "The higher V, the slower the queue converges",
            "curves only: 'a slower convergence speed'",
            f"rounds to 90% of that level: {speed.shown}",
            judge(speed.checks),
        ),
    ]


def _plot(result: Result) -> "Figure":
    figure, axes = _plots.figure(5.6, 3.6)
    axis = axes[0][0]
    for name, curve in result["curves"].items():
        _plots.banded(axis, result["at"], curve["mean"], curve["half"], LOOKS[name], name)
    axis.axvline(result["early"], color="grey", linewidth=0.8, linestyle=":")
    axis.set_xlabel("federated round")
    axis.set_ylabel("average queue length")
    axis.legend()
    return figure


STUDY = study(
    "2",
    "The impact of V on the queues",
    QUEUED,
    {"rounds": 3000, "early": 500, "guarantee": 0.15},
    quick={"rounds": 400, "seeds": 2},
    items=_items,
    job=Played(play_scheme.config, _read),
    gather=_gather,
    score=_score,
    plot=_plot,
    limits=LIMITS,
    about=f"{WORLD}. The paper does not say for how many rounds it shows the queues. We judged them after the 500 of "
    "Fig. 4 first (dotted line), where those of a large V still grew; 3,000 give all of them time to flatten. "
    f"{CHOSEN}",
)
