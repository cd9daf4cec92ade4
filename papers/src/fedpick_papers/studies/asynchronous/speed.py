"""How much sooner asynchronous training reaches a level than rounds, over concurrencies and spreads of durations."""

from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from fedpick_papers.studies import _plots
from fedpick_papers.studies._stats import interval
from fedpick_papers.studies._study import Finding, Result, Study, table
from fedpick_papers.studies._verdicts import Limit, above, judge
from fedpick_papers.studies.asynchronous._play import (
    KINDS,
    cell_of,
    cost,
    edges,
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

__all__ = ["OURS", "RIVAL", "STUDY"]

TWICE = "times as fast as over-selection at the largest concurrency"
LIMITS = {TWICE: Limit(2.0, "what is expected of it, before the run")}
PACES = ("rounds", "over-selection", "FedBuff")
RIVAL, OURS = "over-selection", "FedBuff"


def _score(result: Result) -> list[Finding]:
    many, few = max(result["C"]), min(result["C"])
    sigma = 1.0 if 1.0 in result["sigma"] else result["sigma"][0]
    most, least = (ratio(result, "seconds", RIVAL, OURS, C, sigma) for C in (many, few))
    held = Finding(
        f"at C = {many} and sigma = {sigma:g}, FedBuff reaches the level twice as fast as rounds with over-selection",
        "no paper's: what we expected",
        f"{shown(most)} times as fast",
        judge([above(most, "over-selection > FedBuff", size=float(np.log(LIMITS[TWICE].value)), ratio=True)]),
        missed(result, (RIVAL, many, sigma), (OURS, many, sigma)),
        extension=True,
    )
    found = [held]
    if many > few:
        grows = Finding(
            f"what FedBuff gains grows with the concurrency, from C = {few} to {many} (sigma = {sigma:g})",
            "no paper's",
            f"times as fast: {shown(least)} and {shown(most)}",
            judge([above(most - least, f"C = {many} > C = {few}", ratio=True)]),
            extension=True,
        )
        found.append(grows)
    low, high = min(result["sigma"]), max(result["sigma"])
    if high > low:
        even, uneven = (ratio(result, "seconds", RIVAL, OURS, many, each) for each in (low, high))
        spread = Finding(
            f"what FedBuff gains grows with the spread of durations, from sigma = {low:g} to {high:g} (C = {many})",
            "no paper's",
            f"times as fast: {shown(even)} and {shown(uneven)}",
            judge([above(uneven - even, f"sigma = {high:g} > sigma = {low:g}", ratio=True)]),
            extension=True,
        )
        found.append(spread)
    return found


def _body(result: Result) -> str:
    head = ["sigma", "C", *(f"{kind}, s" for kind in PACES), "over-selection over FedBuff", "rounds over FedBuff"]
    rows = [head, ["---:"] * len(head)]
    for sigma, C in product(result["sigma"], result["C"]):
        cells = [cell_of(result, kind, C, sigma) for kind in PACES]
        short = ["" if cell["reached"] == result["seeds"] else f" ({cell['reached']} reached it)" for cell in cells]
        medians = [f"{np.median(cell['seconds']):.0f}{few}" for cell, few in zip(cells, short, strict=True)]
        gains = [shown(ratio(result, "seconds", rival, OURS, C, sigma)) for rival in (RIVAL, "rounds")]
        rows.append([f"{sigma:g}", str(C), *medians, *gains])
    words = (
        "Median seconds to the level (a client's median is one second), and ratios in pairs of seeds with their 95% "
        "intervals. Nobody waits for the slowest of 100 clients, so the last "
        "column is no headline.\n"
    )
    return f"## Times\n\n{words}\n{table(rows)}\n{edges(result)}"


def _plot(result: Result) -> "Figure":
    figure, axes = _plots.figure(6, 3.8)
    axis = axes[0][0]
    for i, sigma in enumerate(result["sigma"]):
        seen = [interval(ratio(result, "seconds", RIVAL, OURS, C, sigma)) for C in result["C"]]
        middle = np.exp([each.mean for each in seen])
        width = np.nan_to_num(np.abs(np.exp([[each.low for each in seen], [each.high for each in seen]]) - middle))
        at = np.asarray(result["C"]) * 1.03**i
        axis.errorbar(
            at, middle, width, marker=_plots.MARKERS[i], capsize=2, label=f"sigma = {sigma:g}", **_plots.line(i)
        )
    axis.axhline(1.0, color="black", linewidth=0.8)
    axis.set_xscale("log")
    axis.set_xticks(result["C"], [str(C) for C in result["C"]])
    axis.set_xlabel("clients at the same time (C)")
    axis.set_ylabel("times as fast as rounds with over-selection")
    axis.legend()
    return figure


STUDY = Study(
    id="asynchrony/speed",
    title="Time to a level: FedBuff beside rounds with over-selection",
    paper="",
    settings={
        "task": TASK,
        "paces": {kind: KINDS[kind] for kind in PACES},
        "C": [10, 30, 100],
        "sigma": [0.5, 1.0, 1.5],
        "drawn": "each time",
        "tuning": 3,
        "most": 12_000,
        "seeds": 10,
    },
    quick={
        "task": TASK | {"clients": 60, "level": 0.5},
        "C": [10],
        "sigma": [1.0],
        "tuning": 1,
        "most": 300,
        "seeds": 2,
    },
    items=items,
    job=to_level,
    gather=gather,
    score=_score,
    plot=_plot,
    limits=LIMITS,
    about=TEXT.format(clients=500)
    + ". A client's duration is log-normal with median 1 s and is drawn anew each time. All paces have the same "
    "places C: rounds ask C clients and wait for all, over-selection asks C and uses the first C/1.3, FedBuff moves "
    "the model after K = 10 answers",
    body=_body,
    trains=True,
    cost=cost,
)
