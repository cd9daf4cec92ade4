"""E3CS, section VI-B1, Fig. 3: who is chosen."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from fedpick_papers.studies import _plots
from fedpick_papers.studies._stats import interval, rounded, show
from fedpick_papers.studies._study import Finding, Found, Item, Result, Settings, Study, seeds_of
from fedpick_papers.studies._verdicts import Limit, judge, order, within
from fedpick_papers.studies.e3cs._common import (
    ABOUT,
    BASE,
    LOSS,
    PAPER,
    SCHEMES,
    TRAINING,
    drawn,
    item_of,
    play,
    runs_of,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["STUDY"]

LIMITS = {
    "dozens, at least": Limit(12, "a dozen"),
    "dozens, at most": Limit(99, "from a hundred on one would say hundreds"),
    "clients, about": Limit(0.5, "a mean over seeds that rounds to the printed number of clients"),
}


PAPERS_DRAW = {
    f"{name}, multinomialNR": drawn(SCHEMES[name]) for name in ("E3CS-0", "E3CS-0.5", "E3CS-0.8")
}  # in the order of falling variance
DRAWN = list(PAPERS_DRAW)
ORDER = "FedCS > E3CS-0 > E3CS-0.5 > pow-d > E3CS-0.8 > Random"  # by variance


def _items(settings: Settings) -> Sequence[Item]:
    return [
        item_of(settings, settings["world"], policy, seed)
        for policy in settings["schemes"].values()
        for seed in seeds_of(settings)
    ]


def _gather(settings: Settings, found: Found) -> Result:
    counts = {
        name: [run["counts"] for run in runs_of(settings, found, settings["world"], policy)]
        for name, policy in settings["schemes"].items()
    }
    size = settings["clients"] // len(settings["success_rates"])
    return {
        "rounds": settings["rounds"],
        "success_rates": settings["success_rates"],
        "counts": {
            name: rounded(runs[0]) for name, runs in counts.items()
        },  # of the first seed: the paper shows one run
        "variance": {name: rounded([run.var() for run in runs]) for name, runs in counts.items()},
        "jain": {
            name: rounded([run.sum() ** 2 / (len(run) * (run.astype(float) ** 2).sum()) for run in runs])
            for name, runs in counts.items()
        },
        "outside_best": {name: rounded([run[:-size].mean() for run in runs]) for name, runs in counts.items()},
        "best_used": {
            # Clients of the best class with at least a tenth of an equal share of all selections.
            name: rounded([int((run[-size:] >= 0.1 * run.sum() / size).sum()) for run in runs])
            for name, runs in counts.items()
        },
        "best": size,
    }


def _as_the_paper_draws(of: Mapping[str, list[float]]) -> dict[str, list[float]]:
    """The numbers of each scheme, those of E3CS drawn by multinomialNR as in the paper."""
    return {**of, **{name.partition(",")[0]: of[name] for name in DRAWN if name in of}}


def _score(result: Result) -> list[Finding]:
    exact = {what: result[what] for what in ("variance", "outside_best", "best_used")}
    drawn = {what: _as_the_paper_draws(of) for what, of in exact.items()}
    fair, exactly_fair = (order(of["variance"], ORDER) for of in (drawn, exact))
    jain = "; ".join(f"{name} {show(result['jain'][name], 3)}" for name in result["jain"])
    share = drawn["outside_best"]["E3CS-0"]
    used, about = drawn["best_used"], LIMITS["clients, about"].value
    printed = {"E3CS-0": result["best"], "FedCS": result["best"] * 20 // 25}
    fewest = min(used["E3CS-0"])
    least, most = LIMITS["dozens, at least"].value, LIMITS["dozens, at most"].value
    return [
        Finding(
            "Fairness of selection: Random > E3CS-0.8 > pow-d > E3CS-0.5 > E3CS-0 > FedCS",
            "the order, in words",
            f"variance of selection counts (the lower, the fairer): {fair.shown}",
            judge(fair.checks),
            f"E3CS draws as in the paper, by multinomialNR; pow-d, which needs losses, trains on Fashion-MNIST. "
            f"Jain: {jain}",
        ),
        Finding(
            "E3CS-0 wrongly selects suboptimal classes only dozens of times",
            "'dozens of times over a total of 2500 rounds'",
            f"{show(share)} selections per client outside the best class in {result['rounds']:,} rounds",
            judge([within(share, "dozens", low=least, high=most, digits=0)]),
            "read as selections per client",
        ),
        Finding(
            f"E3CS-0 shares its choice over all {result['best']} clients of the best class, FedCS does not",
            "FedCS: 20 of 25; E3CS-0 'would share the most probability over all the 25'",
            f"best-class clients with at least a tenth of an equal share: E3CS-0 {show(used['E3CS-0'], 1)}, "
            f"FedCS {show(used['FedCS'], 1)}",
            judge(
                [within(used[n], f"{n}: {of}", low=of - about, high=of + about, digits=1) for n, of in printed.items()]
            ),
            ""
            if fewest == result["best"]
            else f"E3CS-0 gathers its probability on about as many clients as it chooses (fewest of the best class in "
            f"a seed: {fewest} of {result['best']}); whoever falls behind early is hardly tried again",
        ),
        Finding(
            "With exact sampling (pivotal): the same order of fairness",
            "the order, in words",
            f"variance of selection counts: {exactly_fair.shown}",
            judge(exactly_fair.checks),
            extension=True,
        ),
        Finding(
            "With exact sampling (pivotal): E3CS-0 wrongly selects suboptimal classes only dozens of times",
            "'dozens of times over a total of 2500 rounds'",
            f"{show(exact['outside_best']['E3CS-0'])} selections per client outside the best class",
            judge([within(exact["outside_best"]["E3CS-0"], "dozens", low=least, high=most, digits=0)]),
            extension=True,
        ),
    ]


def _plot(result: Result) -> "Figure":
    names = [name for name in result["counts"] if name not in DRAWN]
    rates = result["success_rates"]
    figure, axes = _plots.figure(12.5, 3, columns=len(names) + 1, width_ratios=[1] * len(names) + [2])
    for axis, name in zip(axes[0], names, strict=False):
        axis.sharey(axes[0][0])
        classes = np.split(np.asarray(result["counts"][name]), len(rates))
        boxes = axis.boxplot(classes, patch_artist=True, widths=0.6, medianprops={"color": "black"})
        for box, colour in zip(boxes["boxes"], _plots.COLOURS, strict=False):
            box.set_facecolor(colour)
        axis.set_xticks(range(1, len(rates) + 1), [f"{rate:g}" for rate in rates])
        axis.set_title(name, fontsize=10)
        axis.tick_params(labelleft=name == names[0])
    figure.supxlabel("success rate of the class (first seed); right: variance of the counts over all seeds", fontsize=9)
    axes[0][0].set_ylabel(f"times of selection in {result['rounds']:,} rounds")
    seen = [interval(result["variance"][name]) for name in names]
    ends = [np.nan_to_num(one.half, nan=0.0, posinf=0.0) for one in seen]
    axes[0][-1].barh(range(len(names)), [one.mean for one in seen], xerr=ends, color=_plots.COLOURS[0], capsize=2)
    axes[0][-1].set_yticks(range(len(names)), names)
    axes[0][-1].set_xscale("log")
    axes[0][-1].set_title("variance (less: fairer)", fontsize=10)
    return figure


STUDY = Study(
    id="e3cs/fig3",
    title="Times of selection over four classes of volatile clients",
    paper=PAPER + ", Fig. 3",
    settings={**BASE, "world": "e3cs", "training": TRAINING, "schemes": {**SCHEMES, **LOSS, **PAPERS_DRAW}},
    quick={"rounds": 40, "seeds": 2},
    items=_items,
    job=play,
    gather=_gather,
    score=_score,
    plot=_plot,
    limits=LIMITS,
    about=ABOUT,
    trains=True,
)
