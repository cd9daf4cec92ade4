"""RBCS-F, Fig. 3: training time."""

from typing import TYPE_CHECKING

import numpy as np

from fedpick_papers.studies import _plots
from fedpick_papers.studies._stats import band, rounded, show, steps
from fedpick_papers.studies._study import Finding, Found, Result, Settings
from fedpick_papers.studies._verdicts import Limit, judge, order, within
from fedpick_papers.studies.rbcsf._common import BASE, LONGER, LOOKS, SCHEMES, SILENT, by_name, study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["STUDY"]

# Our own check with another program: mean seconds of a round.
CHECK = {"Random": 15.2, "RBCS-F(1)": 10.0, "RBCS-F(10)": 8.5, "RBCS-F(50)": 5.7, "RBCS-F(100)": 4.8, "FedCS(3)": 4.0}

LIMITS = {
    "clients, about 8": Limit(
        1, "'approximates to 8'; the base of the logarithm, which is not printed, moves it by more"
    ),
    "seconds, the programs agree": Limit(0.05, "relative; the other program's numbers are given with one decimal"),
}


def _gather(settings: Settings, found: Found) -> Result:
    rounds = settings["rounds"]
    at = steps(rounds, 100)
    result: Result = {"rounds": rounds, "cohort_size": settings["cohort_size"], "at": rounded(at)}
    result |= {"check": settings["check"] if rounds == BASE["rounds"] else None}
    result |= {"longer": max(settings["longer"], rounds), "curves": {}, "seconds": {}, "seconds_later": {}, "size": {}}
    for name, runs in by_name(settings, found).items():
        seconds = np.array([run["seconds"] for run in runs])
        result["seconds_later"][name] = rounded(seconds.mean(axis=1))
        seconds = seconds[:, :rounds]
        mean, half = band(seconds.cumsum(axis=1)[:, at - 1])
        result["curves"][name] = {"mean": rounded(mean), "half": rounded(half)}
        result["seconds"][name] = rounded(seconds.mean(axis=1))
        result["size"][name] = rounded([run["chosen"][:rounds].mean() for run in runs])
    return result


def _score(result: Result) -> list[Finding]:
    seconds = result["seconds"]
    falling = "RBCS-F(1) > RBCS-F(10) > RBCS-F(50) > RBCS-F(100)"
    saved, ours, gap = (
        order(seconds, claim, digits=2) for claim in ("Random > RBCS-F(1)", falling, "RBCS-F(100) > FedCS(3)")
    )
    size, k, about = result["size"]["FedCS(3)"], result["cohort_size"], LIMITS["clients, about 8"].value
    later = result["seconds_later"]
    kept = [order(later, claim, digits=2) for claim in ("Random > RBCS-F(1)", falling)]
    lost = {
        n: np.subtract(seconds["RBCS-F(1)"], seconds[n]) - np.subtract(later["RBCS-F(1)"], later[n])
        for n in ("RBCS-F(10)", "RBCS-F(50)", "RBCS-F(100)")
    }
    findings = [
        Finding(
            f"After {result['longer']:,} rounds, too: less time than random selection, and the less the higher V",
            "not run",
            "mean seconds a round: " + "; ".join(f"{name} {show(values, 2)}" for name, values in later.items()),
            judge([check for one in kept for check in one.checks]),
            f"what a higher V gains over V = 1 in the paper's {result['rounds']} rounds and then loses, s a round: "
            + "; ".join(f"{name} {show(values, 2)}" for name, values in lost.items()),
            extension=True,
        ),
        Finding(
            "RBCS-F trains in less time than random selection",
            "curves only",
            f"mean seconds a round: {saved.shown}",
            judge(saved.checks),
            SILENT,
        ),
        Finding(
            "The higher V, the shorter the time",
            "curves only",
            f"mean seconds a round: {ours.shown}",
            judge(ours.checks),
        ),
        Finding(
            "A gap to FedCS(3) remains: the price of fairness and of learning",
            "curves only",
            f"mean seconds a round: {gap.shown}",
            judge(gap.checks),
        ),
        Finding(
            "A deadline of 3 s makes FedCS choose about 8 clients",
            "'approximates to 8'",
            f"{show(size, 2)} clients a round",
            judge([within(size, f"about {k}", low=k - about, high=k + about)]),
            "a difference of size changes the time of the slowest",
        ),
    ]
    if result["check"]:
        off = {name: np.asarray(seconds[name]) / value - 1 for name, value in result["check"].items()}
        apart = LIMITS["seconds, the programs agree"].value
        findings.append(
            Finding(
                "Mean time of a round agrees with an independent program",
                "curves only; the program: " + ", ".join(f"{n} {v} s" for n, v in result["check"].items()),
                ", ".join(f"{name} {show(seconds[name], 2)} s" for name in off),
                judge([within(gap, name, low=-apart, high=apart, digits=3) for name, gap in off.items()]),
                extension=True,
            )
        )
    return findings


def _plot(result: Result) -> "Figure":
    figure, axes = _plots.figure(5.6, 3.8)
    axis = axes[0][0]
    for name, curve in result["curves"].items():
        _plots.banded(axis, result["at"], curve["mean"], curve["half"], LOOKS[name], name)
    axis.set_xlabel("federated round")
    axis.set_ylabel("training time (s)")
    axis.legend()
    return figure


STUDY = study(
    "3",
    "Training time of client-selection strategies",
    SCHEMES,
    {**LONGER, "check": CHECK},
    gather=_gather,
    score=_score,
    plot=_plot,
    limits=LIMITS,
)
