"""RBCS-F, Fig. 3: training time."""

from typing import TYPE_CHECKING

import numpy as np

from fedpick.studies import _plots
from fedpick.studies._stats import band, order, rounded, show, steps, verdict
from fedpick.studies._study import Finding, Found, Result, Settings
from fedpick.studies.rbcsf._common import BASE, SCHEMES, SILENT, by_name, study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["STUDY"]

# Our own check with another program: mean seconds of a round.
CHECK = {"Random": 15.2, "RBCS-F(1)": 10.0, "RBCS-F(10)": 8.5, "RBCS-F(50)": 5.7, "RBCS-F(100)": 4.8, "FedCS(3)": 4.0}


def _gather(settings: Settings, found: Found) -> Result:
    rounds = settings["rounds"]
    at = steps(rounds, 100)
    result: Result = {"rounds": rounds, "cohort_size": settings["cohort_size"], "at": rounded(at)}
    result |= {"check": settings["check"] if rounds == BASE["rounds"] else None}
    result |= {"curves": {}, "seconds": {}, "size": {}}
    for name, runs in by_name(settings, found).items():
        seconds = np.array([run["seconds"] for run in runs])
        mean, half = band(seconds.cumsum(axis=1)[:, at - 1])
        result["curves"][name] = {"mean": rounded(mean), "half": rounded(half)}
        result["seconds"][name] = rounded(seconds.mean(axis=1))
        result["size"][name] = rounded([run["chosen"].mean() for run in runs])
    return result


def _score(result: Result) -> list[Finding]:
    seconds = result["seconds"]
    falling = "RBCS-F(1) > RBCS-F(10) > RBCS-F(50) > RBCS-F(100)"
    saved, ours, gap = (
        order(seconds, claim, digits=2) for claim in ("Random > RBCS-F(1)", falling, "RBCS-F(100) > FedCS(3)")
    )
    size = result["size"]["FedCS(3)"]
    findings = [
        Finding(
            "RBCS-F trains in less time than random selection",
            "curves only",
            f"mean seconds a round: {saved.shown}",
            verdict(saved.holds),
            ". ".join([*saved.broken, SILENT]),
        ),
        Finding(
            "The higher V, the shorter the time",
            "curves only",
            f"mean seconds a round: {ours.shown}",
            verdict(ours.holds),
            ". ".join(ours.broken),
        ),
        Finding(
            "A gap to FedCS(3) remains: the price of fairness and of learning",
            "curves only",
            f"mean seconds a round: {gap.shown}",
            verdict(gap.holds),
            ". ".join(gap.broken),
        ),
        Finding(
            "A deadline of 3 s makes FedCS choose about 8 clients",
            "'approximates to 8'",
            f"{show(size, 2)} clients a round",
            verdict([abs(float(np.mean(size)) - result["cohort_size"]) <= 1]),
            "about means within 1; a difference of size changes the time of the slowest",
        ),
    ]
    if result["check"]:
        off = {name: float(np.mean(seconds[name])) - value for name, value in result["check"].items()}
        findings.append(
            Finding(
                "Mean time of a round agrees with an independent program",
                "curves only; the program: " + ", ".join(f"{n} {v} s" for n, v in result["check"].items()),
                ", ".join(f"{name} {show(seconds[name], 2)} s" for name in off),
                verdict([abs(gap) <= 0.05 * result["check"][name] for name, gap in off.items()]),
                "less than 5% apart counts as agreeing; apart: "
                + (
                    ", ".join(f"{n} {g:+.2f} s" for n, g in off.items() if abs(g) > 0.05 * result["check"][n]) or "none"
                ),
            )
        )
    return findings


def _plot(result: Result) -> "Figure":
    figure, axes = _plots.figure(5.6, 3.8)
    axis = axes[0][0]
    for i, (name, curve) in enumerate(result["curves"].items()):
        mean, half, look = np.asarray(curve["mean"]), np.asarray(curve["half"]), _plots.line(i)
        axis.plot(result["at"], mean, label=name, **look)
        axis.fill_between(result["at"], mean - half, mean + half, color=look["color"], alpha=0.2, linewidth=0)
    axis.set_xlabel("federated round")
    axis.set_ylabel("training time (s)")
    axis.legend()
    return figure


STUDY = study(
    "3",
    "Training time of client-selection strategies",
    SCHEMES,
    {"check": CHECK},
    gather=_gather,
    score=_score,
    plot=_plot,
)
