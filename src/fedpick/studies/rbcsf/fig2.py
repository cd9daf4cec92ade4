"""RBCS-F, Fig. 2: the queues."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpick.studies import _plots
from fedpick.studies._runs import Played, chosen_in, play_scheme, scheme_item
from fedpick.studies._stats import band, rounded, show, steps
from fedpick.studies._study import Finding, Found, Item, Measurement, Result, Settings, seeds_of
from fedpick.studies._verdicts import Limit, judge, order, within
from fedpick.studies.rbcsf._common import QUEUED, SILENT, study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["STUDY"]

LIMITS = {
    "flat": Limit(0.1, "growth in the last tenth of the rounds over that in the first: at most a tenth is read as flat")
}


def _longer(settings: Settings) -> dict[str, Any]:
    """The settings with the rounds of the longer runs; the figure shows their first rounds."""
    return {**settings, "rounds": max(settings["rounds"], settings["longer"])}


def _item(settings: Settings, policy: str, seed: int) -> dict[str, Any]:
    item = scheme_item(_longer(settings), settings["world"], policy, seed)
    return {**item, "guarantee": settings["guarantee"]}


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


def _gather(settings: Settings, found: Found) -> Result:
    rounds, longer = settings["rounds"], _longer(settings)["rounds"]
    at, tail = steps(rounds), max(rounds // 10, 1)
    result: Result = {"rounds": rounds, "at": rounded(at)}
    result |= {
        "curves": {},
        "level": {},
        "reached": {},
        "start": {},
        "growth": {},
        "longer": longer,
        "later": {},
    }
    for name, policy in settings["schemes"].items():
        whole = np.array([found[_item(settings, policy, seed)]["queue"] for seed in seeds_of(settings)])
        result["later"][name] = rounded(
            (whole[:, -1] - whole[:, -1 - tail]) / tail if len(whole[0]) > tail else whole[:, 0]
        )
        queue = whole[:, :rounds]
        level = queue[:, -tail:].mean(axis=1)
        mean, half = band(queue[:, at - 1])
        result["curves"][name] = {"mean": rounded(mean), "half": rounded(half)}
        result["level"][name] = rounded(level)
        # How fast the curve converges: the first round at 90% of the level of the last tenth.
        result["reached"][name] = rounded(np.argmax(queue >= 0.9 * level[:, None], axis=1) + 1)
        result["start"][name] = rounded(queue[:, tail - 1] / tail)  # growth a round, first and last tenth
        result["growth"][name] = rounded((queue[:, -1] - queue[:, -1 - tail]) / tail if rounds > tail else level * 0)
    return result


def _score(result: Result) -> list[Finding]:
    names = list(result["level"])
    ratio = {name: np.divide(result["growth"][name], result["start"][name]) for name in names}
    flat = [within(x, f"{name} is flat", high=LIMITS["flat"].value, digits=3) for name, x in ratio.items()]
    rising = " > ".join(reversed(names))
    level, speed = order(result["level"], rising, digits=2), order(result["reached"], rising)
    later = {name: 100 * np.divide(result["later"][name], result["start"][name]) for name in names}
    return [
        Finding(
            "The mean queue flattens for every V",
            "curves only",
            "growth in the last tenth of the rounds, as a share of that in the first: "
            + "; ".join(f"{name} {show(100 * ratio[name], 1, '%')}" for name in names),
            judge(flat),
            f"flat means less than {LIMITS['flat'].value:.0%}. After "
            f"{result['longer']:,} rounds: "
            + "; ".join(f"{name} {show(values, 1, '%')}" for name, values in later.items())
            + f". {SILENT}",
        ),
        Finding(
            "The higher V, the higher the queue converges",
            "curves only",
            f"mean queue over the last tenth: {level.shown}",
            judge(level.checks),
        ),
        Finding(
            "The higher V, the slower the queue converges",
            "curves only",
            f"rounds to 90% of that level: {speed.shown}",
            judge(speed.checks),
        ),
    ]


def _plot(result: Result) -> "Figure":
    figure, axes = _plots.figure(5.6, 3.6)
    axis = axes[0][0]
    for i, (name, curve) in enumerate(result["curves"].items()):
        mean, half, look = np.asarray(curve["mean"]), np.asarray(curve["half"]), _plots.line(i)
        axis.plot(result["at"], mean, label=name, **look)
        axis.fill_between(result["at"], mean - half, mean + half, color=look["color"], alpha=0.2, linewidth=0)
    axis.set_xlabel("federated round")
    axis.set_ylabel("average queue length")
    axis.legend()
    return figure


STUDY = study(
    "2",
    "The impact of V on the queues",
    QUEUED,
    # The paper's 500 rounds are shown; longer ones tell whether the rest flattens, too.
    {"longer": 3000, "guarantee": 0.15},
    items=_items,
    job=Played(play_scheme.config, _read),
    gather=_gather,
    score=_score,
    plot=_plot,
    limits=LIMITS,
)
