"""BSFL with data of different quality: q_k other than 1 in (4)."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpick.worlds import named
from fedpick_papers.studies import _plots
from fedpick_papers.studies._runs import Played, column, play_scheme
from fedpick_papers.studies._stats import band, rounded, show
from fedpick_papers.studies._study import Finding, Found, Item, Measurement, Result, Settings, Study, seeds_of
from fedpick_papers.studies._verdicts import above, judge, order
from fedpick_papers.studies.bsfl._common import (
    LIMITS,
    LOOKS,
    PAPER,
    exponent,
    linear,
    logarithmic,
    mean_speeds,
    regret_of,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["STUDY"]

BLIND = "BSFL, all 1"
TIMES = "tau_min=1.0, tau_max=20.0"
SCHEMES = {
    "BSFL": f"bsfl(alpha=1.0, beta=1.0, quality={{quality}}, {TIMES})",
    BLIND: f"bsfl(alpha=1.0, beta=1.0, quality=1.0, {TIMES})",
    "CS-UCB-Q": f"cs-ucb-q({TIMES})",
    "Random": "uniform",
}
SHARED = ("clients", "cohort_size", "rounds", "alpha", "beta", "world", "tau_min", "tau_max")


def _item(settings: Settings, kind: str, scheme: str, seed: int) -> dict[str, Any]:
    quality = settings["qualities"][kind]
    policy = settings["schemes"][scheme].replace("{quality}", str(quality))
    return {**{name: settings[name] for name in SHARED}, "policy": policy, "quality": quality, "seed": seed}


def _items(settings: Settings) -> Sequence[Item]:
    return [
        _item(settings, kind, scheme, seed)
        for kind in settings["qualities"]
        for scheme in settings["schemes"]
        for seed in seeds_of(settings)
    ]


def _target(item: Item) -> Any:
    worth = np.asarray(item["quality"], dtype=np.float64)  # the clients of this world have equal sizes
    return item["cohort_size"] * worth / worth.sum()


def _read(item: Item, folder: Path) -> Measurement:
    """Regret (7) by the reward with these qualities, the rate of every client, and the length of a round."""
    world = named(item["world"], item["clients"])
    speeds = mean_speeds(world, item["seed"], item["tau_min"], item["tau_max"])
    regret = regret_of(item, folder, speeds, _target(item))
    rates = np.asarray(play_scheme.read(item, folder)["counts"]) / item["rounds"]
    return {
        "final": float(regret[-1]),
        "exponent": exponent(regret),
        "rates": rates,
        "off": float(np.abs(rates - _target(item)).mean() / _target(item).mean()),
        "seconds": float(column(folder, "seconds").mean()),
    }


def _gather(settings: Settings, found: Found) -> Result:
    keys = ("final", "exponent", "off", "seconds")
    result: Result = {"rounds": settings["rounds"], "qualities": settings["qualities"], **{key: {} for key in keys}}
    result |= {"rates": {}, "better": {}, "target": {}}
    for kind, quality in settings["qualities"].items():
        worth = np.asarray(quality)
        best, worst = worth >= np.median(worth), worth < np.median(worth)
        for key in (*keys, "rates", "better"):
            result[key][kind] = {}
        for scheme in settings["schemes"]:
            some = [found[_item(settings, kind, scheme, seed)] for seed in seeds_of(settings)]
            for key in keys:
                result[key][kind][scheme] = rounded([one[key] for one in some])
            rates = np.array([one["rates"] for one in some])
            mean, half = band(rates)
            result["rates"][kind][scheme] = {"mean": rounded(mean), "half": rounded(half)}
            result["better"][kind][scheme] = rounded(rates[:, best].mean(axis=1) / rates[:, worst].mean(axis=1))
        result["target"][kind] = rounded(_target(_item(settings, kind, BLIND, 0)))
    return result


def _score(result: Result) -> list[Finding]:
    findings = []
    n = result["rounds"]
    for i, kind in enumerate(result["qualities"]):
        better, final, slope = (result[key][kind] for key in ("better", "final", "exponent"))
        target = np.asarray(result["target"][kind])
        worth = np.asarray(result["qualities"][kind])
        due = float(target[worth >= np.median(worth)].mean() / target[worth < np.median(worth)].mean())
        ratio = np.log(better["BSFL"])
        nearer = order(result["off"][kind], f"{BLIND} > BSFL", digits=3)
        rivals = [name for name in final if name != "BSFL"]
        lower = [check for name in rivals for check in order(final, f"{name} > BSFL", digits=1).checks]
        findings += [
            Finding(
                f"{kind}: clients with better data are chosen more often",
                "'designed to prioritize clients with higher data quality'; no figure",
                f"choices of the better half over those of the worse (as (4) asks: {due:.2f}): "
                + ", ".join(f"{name} {show(values, 2)}" for name, values in better.items()),
                judge([above(ratio, "the better half is chosen more often", ratio=True)]),
                "the paper does not say which q_k it ran with",
                extension=i > 0,  # one claim, counted once
            ),
            Finding(
                f"{kind}: with the qualities, choices are nearer to the rates that (4) asks for",
                "not in the paper",
                "mean distance of a client's rate from m d_k / sum d, as a share of the mean rate: "
                + ", ".join(f"{name} {show(values, 3)}" for name, values in result["off"][kind].items()),
                judge(nearer.checks),
                extension=True,
            ),
            Finding(
                f"{kind}: BSFL has the lowest regret",
                "not in the paper, which does not say which q_k it ran with",
                f"after {n:,} rounds: " + "; ".join(f"{name} {show(values, 1)}" for name, values in final.items()),
                judge(lower),
                extension=True,
            ),
            Finding(
                f"{kind}: BSFL's regret is logarithmic, that of the others linear",
                "not in the paper, which does not say which q_k it ran with",
                f"local exponent over the last half of {n:,} rounds: "
                + "; ".join(f"{name} {show(values, 2)}" for name, values in slope.items()),
                judge([logarithmic(slope["BSFL"], "BSFL", n), *(linear(slope[name], name) for name in rivals)]),
                "seconds a round: "
                + ", ".join(f"{name} {show(values, 2)}" for name, values in result["seconds"][kind].items()),
                extension=True,
            ),
        ]
    return findings


def _plot(result: Result) -> "Figure":
    kinds = list(result["qualities"])
    figure, axes = _plots.figure(4.6 * len(kinds), 3.6, columns=len(kinds), sharey=True)
    for axis, kind in zip(axes[0], kinds, strict=True):
        at = np.arange(1, len(result["target"][kind]) + 1)
        for name, rates in result["rates"][kind].items():
            _plots.banded(axis, at, rates["mean"], rates["half"], {**LOOKS, BLIND: 3}[name], name)
        target = result["target"][kind]
        axis.plot(at, target, linestyle="none", marker="_", markersize=9, color="black", label="rate that (4) asks for")
        axis.set_title(kind, fontsize=10)
        axis.set_xticks(at[::5])
        axis.set_xlabel("client, by rising quality")
    axes[0][0].set_ylabel("rate of selection")
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=5)
    return figure


STUDY = Study(
    id="bsfl/quality",
    title="Data of different quality: who is chosen, and the regret",
    paper=PAPER + ", section III-B, eq. (4)",
    settings={
        "clients": 20,
        "cohort_size": 5,
        "rounds": 2000,
        "seeds": 8,
        "world": "bsfl",
        "alpha": 1.0,
        "beta": 1.0,
        "tau_min": 1.0,
        "tau_max": 20.0,
        "qualities": {
            "half of the clients at 0.5": [0.5] * 10 + [1.0] * 10,
            "from 0.1 to 1": [round(0.1 + 0.9 * i / 19, 3) for i in range(20)],
        },
        "schemes": SCHEMES,
    },
    quick={"rounds": 60, "seeds": 2},
    items=_items,
    job=Played(play_scheme.config, _read),
    gather=_gather,
    score=_score,
    plot=_plot,
    limits=LIMITS,
    about="The world of bsfl/regret, with clients of equal size whose data differ in quality; speeds do not depend on "
    "it. The paper defines g with a quality q_k in [0, 1] (4), but does not say which q_k it ran with: the qualities "
    "are our choice. The regret of all policies is that of the reward with these qualities",
)
