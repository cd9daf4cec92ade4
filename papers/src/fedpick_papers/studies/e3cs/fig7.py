"""E3CS, appendix B, Fig. 7: cohorts of 10, 20 and 30 clients, CIFAR-10, non-iid, FedAvg."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpick_papers.studies import _plots
from fedpick_papers.studies._runs import play_training
from fedpick_papers.studies._stats import band, rounded, show, steps
from fedpick_papers.studies._study import Finding, Found, Item, Result, Settings, Study, seeds_of
from fedpick_papers.studies._verdicts import POINT, Limit, judge, order, within
from fedpick_papers.studies.e3cs._accuracy import first_of, measured, when
from fedpick_papers.studies.e3cs._common import LOOKS, PAPER, SCHEMES
from fedpick_papers.studies.e3cs._tasks import CIFAR10, PARTITIONS, SMALL, TRAIN

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["STUDY"]

LIMITS = {
    "minor loss": Limit(
        1.0, "point below Random at most: Table III prints the fair schemes above Random (non-iid, FedAvg)"
    ),
}
COUNTED = "20"  # clients a round: in e3cs/table3-non-iid
FAIR = ("E3CS-0.5", "E3CS-inc")
FAST = ("E3CS-0", "E3CS-0.5", "E3CS-inc")


def _item(settings: Settings, k: int, policy: str, seed: int) -> dict[str, Any]:
    left_out = ("schemes", "cohort_sizes", "seeds", "seed0", "model")
    shared = {name: value for name, value in settings.items() if name not in left_out}
    shared |= {"cohort_size": k, "train": {**settings["train"], "model": settings["model"]}}
    return {**shared, "policy": policy.replace("{rounds}", str(settings["rounds"])), "seed": seed}


def _items(settings: Settings) -> Sequence[Item]:
    return [
        _item(settings, k, policy, seed)
        for seed in seeds_of(settings)
        for k in settings["cohort_sizes"]
        for policy in settings["schemes"].values()
    ]


def _gather(settings: Settings, found: Found) -> Result:
    rounds = settings["rounds"]
    result: Result = {"rounds": rounds, "seeds": settings["seeds"], "model": settings["model"], "sizes": {}}
    for k in settings["cohort_sizes"]:
        size: Result = {"first": {}, "final": {}, "curves": {}}
        for name, policy in settings["schemes"].items():
            some = [found[_item(settings, k, policy, seed)] for seed in seeds_of(settings)]
            one = measured(some, rounds, CIFAR10.levels[:2], last=max(len(some[0]["at"]) // 50, 1))
            size["first"][name], size["final"][name] = one["first"], rounded(100 * one["final"])
            shown = steps(len(one["at"]), 125) - 1
            mean, half = band(one["accuracy"][:, shown])
            result["at"] = rounded(one["at"][shown])
            size["curves"][name] = {"mean": rounded(100 * mean), "half": rounded(100 * half)}
        result["sizes"][str(k)] = size
    return result


def _score(result: Result) -> list[Finding]:
    sizes, end = result["sizes"], result["rounds"]
    names = list(next(iter(sizes.values()))["final"])
    rising = list(sizes)
    first = {k: first_of(of["first"], 0) for k, of in sizes.items()}
    faster, better = [], []
    for name in names:
        named = [f"{name} with {k}" for k in rising]
        rounds = {f"{name} with {k}": first[k][name] for k in rising}
        final = {f"{name} with {k}": of["final"][name] for k, of in sizes.items()}
        faster += order(rounds, " > ".join(named), ratio=True).checks
        better += order(final, " > ".join(reversed(named)), margin=POINT, digits=1).checks
    findings = [
        Finding(
            f"With more clients a round training is faster: first round with {CIFAR10.levels[0]:.0%}",
            "'a greater extent of parallelism could indeed boost the training efficiency'; curves only",
            f"k = {', '.join(rising)}: "
            + "; ".join(f"{n} " + ", ".join(when(first[k][n], end) for k in rising) for n in names),
            judge(faster),
        ),
        Finding(
            "With more clients a round the final accuracy is higher",
            "'a significant effect on [...] the final convergence accuracy'; curves only",
            f"k = {', '.join(rising)}: "
            + "; ".join(f"{n} " + ", ".join(show(sizes[k]["final"][n], 1, "%") for k in rising) for n in names),
            judge(better),
            "the paper does not say in which direction: that it is higher is our reading",
            extension=True,
        ),
    ]
    below = LIMITS["minor loss"].value
    for k, of in sizes.items():
        quick = [check for name in FAST for check in order(first[k], f"Random > {name}", ratio=True).checks]
        gaps = {name: np.subtract(of["final"][name], of["final"]["Random"]) for name in FAIR}
        near = [within(gap, f"{name} less Random at the end", low=-below, digits=1) for name, gap in gaps.items()]
        findings.append(
            Finding(
                f"k = {k}: {', '.join(FAST[:-1])} and {FAST[-1]} are faster than Random, and {' and '.join(FAIR)} end "
                f"at most {below:g} point below it",
                "'an accelerated convergence speed [...], with no (or only minor) final accuracy loss'; curves only",
                f"first round with {CIFAR10.levels[0]:.0%}: "
                + ", ".join(f"{name} {when(values, end)}" for name, values in first[k].items())
                + "; finally: "
                + ", ".join(f"{name} {show(values, 1, '%')}" for name, values in of["final"].items()),
                judge([*quick, *near]),
                "of E3CS-0 no loss is judged: Table III itself prints it 4.2 points below Random"
                + (". These are runs of e3cs/table3-non-iid, where they are counted" if k == COUNTED else ""),
                extension=k == COUNTED,
            )
        )
    return findings


def _plot(result: Result) -> "Figure":
    sizes = result["sizes"]
    figure, axes = _plots.figure(3.8 * len(sizes), 3.8, columns=len(sizes), sharey=True)
    for axis, (k, of) in zip(axes[0], sizes.items(), strict=True):
        for name, curve in of["curves"].items():
            _plots.banded(axis, result["at"], curve["mean"], curve["half"], LOOKS[name], name, result["seeds"])
        axis.set_title(f"k = {k}", fontsize=10)
        axis.set_xlabel("communication rounds")
    axes[0][0].set_ylabel("test accuracy, %")
    label = _plots.seeds_label(result["seeds"])
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=5, title=label)
    return figure


STUDY = Study(
    id="e3cs/fig7",
    title="Accuracy over rounds on CIFAR-10 with 10, 20 and 30 clients a round",
    paper=PAPER + ", appendix B and Fig. 7",
    settings={
        "data": "cifar10",
        "partition": PARTITIONS["non-iid"],
        "data_settings": {"hold_out": 0.1, "test": "held-out"},
        "world": "e3cs",
        "clients": 100,
        "cohort_sizes": [10, 20, 30],
        "rounds": 2500,
        "seeds": 3,
        "model": CIFAR10.model,
        "train": {**TRAIN, "evaluate_every": CIFAR10.every},
        "schemes": {name: SCHEMES[name] for name in ("FedCS", "E3CS-0", "E3CS-0.5", "E3CS-inc", "Random")},
    },
    quick={"rounds": 2, "seeds": 1, "model": SMALL["cifar10"], "train": {**TRAIN, "evaluate_every": 1}},
    items=_items,
    job=play_training,
    gather=_gather,
    score=_score,
    plot=_plot,
    limits=LIMITS,
    about="CIFAR-10 among 100 volatile clients with one primary label each, FedAvg, averaged as o2, as in Table III; "
    "10, 20 or 30 clients a round. The paper's figure has curves only, and its text does not say which data it is of: "
    "non-iid is our choice, and so are five of the seven schemes, to save time",
    kept_with="e3cs/table3-non-iid",  # whose runs have 20 clients a round
    trains=True,
    cost=lambda item: float(item["rounds"] * item["cohort_size"]),
)
