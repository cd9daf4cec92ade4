"""Papaya: time and traffic with a thousand clients at once, and how often slow clients take part."""

from typing import TYPE_CHECKING

import numpy as np

from fedpick.core.types import Floats
from fedpick_papers.studies import _plots
from fedpick_papers.studies._stats import show
from fedpick_papers.studies._study import Finding, Result, Study, table
from fedpick_papers.studies._verdicts import above, judge
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

PACES = ("rounds", "over-selection", "FedBuff, K = 100")
RIVAL, OURS = PACES[1:]
PAPER = "Huba, Nguyen, Malik et al. (2022), Papaya"
FAIR = 0.25  # the slowest quarter's equal share


def _share(result: Result, kind: str, C: int, sigma: float) -> Floats:
    return np.asarray(cell_of(result, kind, C, sigma)["slow"], dtype=np.float64)


def _score(result: Result) -> list[Finding]:
    C, found = result["C"][0], []
    for sigma in result["sigma"]:
        note = missed(result, (RIVAL, C, sigma), (OURS, C, sigma))
        for measure, words, size, printed in (
            ("seconds", "sooner", 5.0, "5 times faster"),
            ("messages", "with fewer messages", 8.0, "nearly 8 times less communication"),
        ):
            gap = ratio(result, measure, RIVAL, OURS, C, sigma)
            found.append(
                Finding(
                    f"at sigma = {sigma:g}, FedBuff reaches the level {words} than rounds with over-selection",
                    printed,
                    f"{shown(gap)} times",
                    judge([above(gap, "over-selection > FedBuff", size=float(np.log(size)), ratio=True)]),
                    note,
                    extension=True,
                )
            )
        theirs, ours = (_share(result, kind, C, sigma) for kind in (RIVAL, OURS))
        off = 100 * (np.abs(theirs - FAIR) - np.abs(ours - FAIR))
        found.append(
            Finding(
                f"at sigma = {sigma:g}, slow clients are nearer to their share than with over-selection",
                "curves only: over-selection leaves slow clients out, FedBuff does not",
                f"the slowest quarter's share: {show(100 * ours, 1, '%')}, over-selection {show(100 * theirs, 1, '%')}",
                judge([above(off, "distance from 25%, over-selection > FedBuff (points)", digits=1)]),
                "of the answers used until the level",
                extension=True,
            )
        )
    return found


def _body(result: Result) -> str:
    head = ["sigma", "pace", "seconds", "messages", "answers used", "share of the slowest quarter", "reached by"]
    rows = [head, ["---:", "---", *["---:"] * 5]]
    for sigma in result["sigma"]:
        for kind in PACES:
            cell = cell_of(result, kind, result["C"][0], sigma)
            numbers = [show(cell[name], 0) for name in ("seconds", "messages", "answers")]
            share = show(100 * np.asarray(cell["slow"]), 1, "%")
            rows.append([f"{sigma:g}", kind, *numbers, share, f"{cell['reached']} of {result['seeds']}"])
    return f"## Until the level\n\n{table(rows)}\n{edges(result)}"


def _plot(result: Result) -> "Figure":
    figure, axes = _plots.figure(8, 3.4, columns=2)
    C = result["C"][0]
    for axis, measure, words in zip(
        axes[0], ("seconds", "slow"), ("seconds to the level", "slowest quarter's share"), strict=True
    ):
        for i, kind in enumerate(PACES):
            for x, sigma in enumerate(result["sigma"]):
                _plots.spread(axis, x + 0.12 * (i - 1), cell_of(result, kind, C, sigma)[measure], i)
            axis.plot([], [], color=_plots.COLOURS[i], marker=_plots.MARKERS[i], linestyle="none", label=kind)
        axis.set_xticks(range(len(result["sigma"])), [f"sigma = {sigma:g}" for sigma in result["sigma"]])
        axis.set_ylabel(words)
    axes[0][0].set_yscale("log")
    axes[0][1].axhline(FAIR, color="black", linewidth=0.8)
    axes[0][0].legend()
    return figure


STUDY = Study(
    id="papaya/scale",
    title="Time, traffic and slow clients, with 1,000 clients at once",
    paper="",
    settings={
        "task": TASK | {"clients": 10_000},
        "paces": {kind: KINDS[kind] for kind in PACES},
        "C": [1000],
        "sigma": [1.0, 1.5],
        "drawn": "each client",
        "tuning": 2,
        "most": 60_000,
        "seeds": 5,
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
    about=f"A headline claim of {PAPER}. "
    + TEXT.format(clients=10_000)
    + ". Each client always takes the same time; the times are the quantiles of a log-normal law of median 1 s. 1,000 "
    "clients work at once: over-selection uses the first 769, FedBuff moves the model after K = 100 answers, as in the "
    "paper. The paper's task is a language model on some 100 million phones",
    body=_body,
    trains=True,
    cost=cost,
)
