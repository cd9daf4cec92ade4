"""FedAsync: how an answer's weight should fall with its staleness."""

from typing import TYPE_CHECKING, Any

import numpy as np

from fedpick_papers.studies import _plots
from fedpick_papers.studies._stats import interval, show
from fedpick_papers.studies._study import Finding, Result, Study, table
from fedpick_papers.studies._verdicts import above, judge, not_testable
from fedpick_papers.studies.asynchronous._play import (
    cell_of,
    cost,
    gather,
    items,
    missed,
    ratio,
    shown,
    to_level,
)
from fedpick_papers.studies.asynchronous._task import TASK, TEXT

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["STUDY"]

RULES = ("constant", "polynomial", "hinge")
FIXED = [{"lr": 1.6, "alpha": 0.6}]
PAPER = "Xie, Koyejo & Gupta (2019), FedAsync"
PACES: dict[str, dict[str, Any]] = {rule: {"size": 1, "mixing": rule, "rates": FIXED} for rule in RULES}


def _score(result: Result) -> list[Finding]:
    sigma, found = result["sigma"][0], []
    for C in result["C"]:
        for rule in RULES[1:]:
            gap = ratio(result, "answers", "constant", rule, C, sigma)
            stale = np.mean(cell_of(result, rule, C, sigma)["staleness"])
            never = not any(cell_of(result, kind, C, sigma)["reached"] for kind in ("constant", rule))
            found.append(
                Finding(
                    f"at C = {C}, {rule} needs fewer client updates than constant",
                    "curves only: better 'when the staleness is large'",
                    f"{shown(gap)} times fewer, at a mean staleness of {stale:.0f}",
                    not_testable("no run of either reached the level")
                    if never
                    else judge([above(gap, f"constant > {rule}", ratio=True)]),
                    missed(result, ("constant", C, sigma), (rule, C, sigma)),
                    extension=True,
                )
            )
    return found


def _body(result: Result) -> str:
    sigma = result["sigma"][0]
    head = ["C", "rule", "client updates to the level", "reached by", "mean staleness", "clients' rate"]
    rows = [head, ["---:", "---", *["---:"] * 4]]
    for C in result["C"]:
        for kind in PACES:
            cell = cell_of(result, kind, C, sigma)
            many = f"{cell['reached']} of {result['seeds']}"
            more = [f"{np.mean(cell['staleness']):.0f}", f"{cell['rate']['lr']:g}"]
            rows.append([str(C), kind, show(cell["answers"], 0), many, *more])
    return f"## Client updates\n\n{table(rows)}"


def _plot(result: Result) -> "Figure":
    figure, axes = _plots.figure(6, 3.8)
    axis = axes[0][0]
    for i, rule in enumerate(RULES):
        cells = [cell_of(result, rule, C, result["sigma"][0]) for C in result["C"]]
        middle = np.exp([interval(np.log(cell["answers"])).mean for cell in cells])
        axis.plot(result["C"], middle, marker=_plots.MARKERS[i], label=rule, **_plots.line(i))
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xticks(result["C"], [str(C) for C in result["C"]])
    axis.set_xlabel("clients at the same time (C)")
    axis.set_ylabel("client updates to the level (means)")
    axis.legend()
    return figure


STUDY = Study(
    id="fedasync/mixing",
    title="Constant, polynomial and hinge weights, as staleness grows",
    paper="",
    settings={
        "task": TASK,
        "paces": PACES,
        "C": [4, 16, 64],
        "sigma": [1.0],
        "drawn": "each time",
        "tuning": 1,
        "most": 1500,
        "seeds": 4,
    },
    quick={"task": TASK | {"clients": 60, "level": 0.5}, "C": [4], "tuning": 1, "most": 100, "seeds": 2},
    items=items,
    job=to_level,
    gather=gather,
    score=_score,
    plot=_plot,
    about=f"A headline claim of {PAPER}. "
    + TEXT.format(clients=500)
    + ". A client's duration is log-normal with median 1 s and sigma 1, drawn anew each time. "
    "Here nothing is tuned for each rule: alpha is 0.6 for all, as in the paper, and the clients' rate 1.6, which "
    "was best for the polynomial rule with ten clients on seeds that are not shown. The other settings are the "
    "paper's: (1 + staleness)^-0.5, and a hinge of slope 10 at 4; a run ends at the level or after 1,500 updates. "
    "The paper draws staleness at random, up to 4 and up to 16; here it comes from C clients at work",
    body=_body,
    trains=True,
    cost=cost,
)
