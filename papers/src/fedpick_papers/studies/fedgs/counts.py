"""FedGS, Fig. 4: how often each client is chosen under the seven modes of availability, without training."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from fedpick_papers.studies import _plots
from fedpick_papers.studies._runs import play_scheme, scheme_items, scheme_runs
from fedpick_papers.studies._stats import interval, rounded, show
from fedpick_papers.studies._study import Finding, Found, Item, Result, Settings, Study
from fedpick_papers.studies._verdicts import Limit, above, judge, order, within
from fedpick_papers.studies.fedgs._common import PAPER

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["STUDY"]

MODES = ("IDL", "MDF", "LDF", "YMF", "YC", "LN", "SLN")
LIMITS = {
    "uniform": Limit(0.1, "standard deviation of the counts over their mean: 'uniform' is read as at most a tenth")
}
SHOWN = ("YMF", "LN")  # of the paper's figure: YMF-0.9 and LN-0.5


def _items(settings: Settings) -> Sequence[Item]:
    return scheme_items(settings, list(settings["modes"].values()))


def _gather(settings: Settings, found: Found) -> Result:
    result: Result = {name: settings[name] for name in ("rounds", "cohort_size", "clients")}
    result |= {"variance": {}, "counts": {}}
    for mode, world in settings["modes"].items():
        result["variance"][mode], result["counts"][mode] = {}, {}
        for name, policy in settings["schemes"].items():
            part = [run["counts"] for run in scheme_runs(settings, found, world, policy)]
            result["variance"][mode][name] = rounded([counts.var() for counts in part])
            result["counts"][mode][name] = rounded(part[0])  # of the first seed: the paper shows one run
    return result


def _score(result: Result) -> list[Finding]:
    ours = result["variance"]
    # FedGS with the scale and sigma^2 in print; fedpick's defaults are shown beside it.
    variance = {mode: {**of, "FedGS(1)": of["FedGS(1), printed"]} for mode, of in ours.items()}
    silent = (
        "100 clients with two labels each and log-normal sizes, 10 a round: the paper's M is in an appendix not at hand"
    )
    findings = []
    for mode in SHOWN:
        fair = order(variance[mode], "UniformSample > FedGS(1)", digits=1)
        sized = order(variance[mode], "MDSample > FedGS(1)", digits=1)
        mean = result["cohort_size"] * result["rounds"] / result["clients"]
        spread = np.sqrt(variance[mode]["FedGS(1)"]) / mean
        findings.append(
            Finding(
                f"FedGS(alpha=1) makes selection counts uniform under {mode}",
                "a picture, without numbers: 'a uniform distribution of client sample counts'",
                f"variance of counts after {result['rounds']} rounds: "
                + "; ".join(f"{name} {show(values, 1)}" for name, values in ours[mode].items()),
                judge(
                    [
                        *fair.checks,
                        *sized.checks,
                        within(spread, "uniform counts", high=LIMITS["uniform"].value, digits=3),
                    ]
                ),
                ". ".join(
                    [
                        "uniform is read as lower than both, and a standard deviation below 10% of the mean count: "
                        + show(100 * spread, 1, "%"),
                        "FedGS(0), which looks at counts alone, shows what this availability allows",
                        silent,
                    ]
                ),
            )
        )
    ratio = {mode: np.divide(of["UniformSample"], np.maximum(of["FedGS(1)"], 1.0)) for mode, of in variance.items()}
    lower = [
        above(np.subtract(of["UniformSample"], of["FedGS(1)"]), f"{mode}: UniformSample > FedGS(1)", digits=1)
        for mode, of in variance.items()
    ]
    price = {mode: show(np.subtract(of["FedGS(1)"], of["FedGS(0)"]), 1) for mode, of in ours.items()}
    return [
        *findings,
        Finding(
            "FedGS is fairer than uniform sampling whoever is available (all seven modes)",
            "claimed for seven modes, shown for two",
            "variance of counts under UniformSample over that under FedGS(1), median of seeds (at least 1 is counted): "
            + ", ".join(f"{mode} {np.median(values):,.0f}x" for mode, values in ratio.items()),
            judge(lower),
            ". ".join(
                [
                    "What diversity costs, FedGS(1) less FedGS(0): "
                    + ", ".join(f"{m} {gap}" for m, gap in price.items()),
                    "judged: FedGS(1) with the scale and sigma^2 in print. With fedpick's defaults: "
                    + ", ".join(f"{mode} {show(of['FedGS(1)'], 1)}" for mode, of in ours.items()),
                ]
            ),
        ),
    ]


def _plot(result: Result) -> "Figure":
    modes = list(result["counts"])
    names = list(result["counts"][modes[0]])
    figure, axes = _plots.figure(11, 5.6, columns=len(modes), rows=2, sharey="row", height_ratios=(1.5, 1.0))
    mean = result["cohort_size"] * result["rounds"] / result["clients"]
    for axis, below, mode in zip(*axes, modes, strict=True):
        boxes = axis.boxplot(
            [result["counts"][mode][name] for name in names],
            patch_artist=True,
            widths=0.65,
            medianprops={"color": "black"},
            flierprops={"markersize": 3},
        )
        for box, colour in zip(boxes["boxes"], _plots.COLOURS, strict=False):
            box.set_facecolor(colour)
        axis.set_xticks([])
        axis.set_title(mode, fontsize=10)
        for i, name in enumerate(names):
            seen = interval(np.sqrt(result["variance"][mode][name]) / mean)
            bar = seen.half if np.isfinite(seen.half) else 0.0
            below.errorbar(i + 1, seen.mean, bar, color=_plots.COLOURS[i], marker=_plots.MARKERS[i], capsize=2)
        below.axhline(LIMITS["uniform"].value, color="black", linewidth=1.0)
        below.set_yscale("log")
        below.set_xticks([])
    # MDSample's largest clients would press everything else flat.
    most = max(max(result["counts"][mode]["UniformSample"]) for mode in modes)
    axes[0][0].set_ylim(-0.03 * most, 1.1 * most)
    axes[0][0].set_ylabel(f"times sampled in {result['rounds']} rounds")
    axes[1][0].set_ylabel("deviation over mean\n(line: read as uniform)")
    figure.suptitle(
        "above: sampling counts of the first seed (some outliers of MDSample are beyond the axis); below: all seeds",
        fontsize=9,
    )
    figure.legend(boxes["boxes"], names, loc="outside lower center", ncols=len(names))
    return figure


STUDY = Study(
    id="fedgs/fig4-counts",
    title="Client sampling counts under seven modes of availability",
    paper=PAPER + ", Fig. 4 and Table 1",
    settings={
        "clients": 100,
        "cohort_size": 10,
        "rounds": 500,
        "seeds": 14,
        "modes": {mode: f"fedgs-{mode.lower()}" for mode in MODES},
        "schemes": {
            "UniformSample": "uniform",
            "MDSample": "size-weighted",
            "FedGS(0)": "fedgs(alpha=0.0)",
            "FedGS(1)": "fedgs(alpha=1.0)",
            "FedGS(1), printed": "fedgs(alpha=1.0, scale='paper', sigma2=0.01)",
        },
    },
    quick={"rounds": 40, "seeds": 2},
    items=_items,
    job=play_scheme,
    gather=_gather,
    score=_score,
    plot=_plot,
    limits=LIMITS,
    about="Selection without training under FedGS's seven modes of availability: 100 clients with two labels each, 10 "
    "a round. Degrees of absence are those of the authors' configurations. MDSample draws with replacement: a client "
    "that it draws twice in a round is asked once, and counts once",
)
