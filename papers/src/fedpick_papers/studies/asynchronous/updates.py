"""FedBuff: client updates until a level, beside synchronous rounds and FedAsync, as more clients work at once."""

from typing import TYPE_CHECKING

import numpy as np

from fedpick_papers.studies import _plots
from fedpick_papers.studies._stats import interval, show
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
    name_of,
    ratio,
    shown,
    to_level,
)
from fedpick_papers.studies.asynchronous._task import TASK, TEXT

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["STUDY"]

PACES = ("rounds", "FedBuff", "FedAsync")
PAPER = "Nguyen, Malik, Zhan, Yousefpour, Rabbat, Malek & Huba (2022), FedBuff"


def _there(result: Result, kind: str) -> list[int]:
    return [C for C in result["C"] if name_of(kind, C, result["sigma"][0]) in result["cells"]]


def _score(result: Result) -> list[Finding]:
    sigma = result["sigma"][0]

    def fewer(rival: str, C: int, size: float | None, printed: str) -> Finding:
        gap = ratio(result, "answers", rival, "FedBuff", C, sigma)
        return Finding(
            f"at C = {C}, FedBuff needs fewer client updates than {rival}",
            printed,
            f"{shown(gap)} times fewer",
            judge([above(gap, f"{rival} > FedBuff", size=None if size is None else float(np.log(size)), ratio=True)]),
            missed(result, (rival, C, sigma), ("FedBuff", C, sigma)),
            extension=True,
        )

    found = [fewer("rounds", C, 3.3, "3.3 times fewer") for C in result["C"] if C >= 30 or len(result["C"]) == 1]
    there = _there(result, "FedAsync")  # "up to" is a size where most clients work at once, elsewhere a direction
    found += [fewer("FedAsync", C, 2.5 if max(there) == C else None, "up to 2.5 times fewer") for C in there]
    low, high = min(result["C"]), max(result["C"])
    if low < high:
        grown = {
            kind: np.log(cell_of(result, kind, high, sigma)["answers"])
            - np.log(cell_of(result, kind, low, sigma)["answers"])
            for kind in ("rounds", "FedBuff")
        }
        wasted = np.log(high / low)
        ends = (("rounds", low, sigma), ("rounds", high, sigma), ("FedBuff", high, sigma))
        found.append(
            Finding(
                f"rounds do not scale: with {high // low} times as many clients at once they need more updates",
                "'cannot scale efficiently beyond a few hundred clients training in parallel'",
                f"{shown(grown['rounds'])} times the updates; FedBuff {shown(grown['FedBuff'])}",
                judge([above(grown["rounds"], f"C = {high} > C = {low}", ratio=True)]),
                missed(result, *ends)
                or f"{np.exp(wasted):.0f} times as many would mean that nothing is gained by the clients added",
                extension=True,
            )
        )
        found.append(
            Finding(
                f"FedBuff scales better than rounds, from C = {low} to {high}",
                "curves only",
                f"growth of the updates, rounds over FedBuff: {shown(grown['rounds'] - grown['FedBuff'])}",
                judge([above(grown["rounds"] - grown["FedBuff"], "rounds > FedBuff", ratio=True)]),
                missed(result, *ends),
                extension=True,
            )
        )
    return found


def _body(result: Result) -> str:
    sigma = result["sigma"][0]
    head = ["C", *(f"{kind}: {what}" for kind in PACES for what in ("client updates", "seconds"))]
    rows = [head, ["---:"] * len(head)]
    for C in result["C"]:
        row = [str(C)]
        for kind in PACES:
            if C not in _there(result, kind):
                row += ["not run"] * 2
                continue
            cell = cell_of(result, kind, C, sigma)
            few = "" if cell["reached"] == result["seeds"] else f" ({cell['reached']} reached it)"
            row += [show(cell["answers"], 0) + few, show(cell["seconds"], 0)]
        rows.append(row)
    return f"## Client updates and time to the level\n\n{table(rows)}\n{edges(result)}"


def _plot(result: Result) -> "Figure":
    sigma = result["sigma"][0]
    figure, axes = _plots.figure(6, 3.8)
    axis = axes[0][0]
    for i, kind in enumerate(PACES):
        at = _there(result, kind)
        seen = [interval(np.log(cell_of(result, kind, C, sigma)["answers"])) for C in at]
        axis.plot(at, np.exp([each.mean for each in seen]), marker=_plots.MARKERS[i], label=kind, **_plots.line(i))
        low, high = (np.exp(np.nan_to_num([getattr(each, end) for each in seen], posinf=0)) for end in ("low", "high"))
        if result["seeds"] >= _plots.BAND:
            axis.fill_between(at, low, high, color=_plots.COLOURS[i], alpha=0.2, linewidth=0)
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlabel("clients at the same time (C)")
    axis.set_ylabel("client updates to the level")
    axis.legend()
    return figure


STUDY = Study(
    id="fedbuff/updates",
    title="Client updates to a level, as more clients work at once",
    paper="",
    settings={
        "task": TASK | {"clients": 2000},
        "paces": {kind: KINDS[kind] for kind in PACES},
        "up_to": {"FedAsync": 100},
        "C": [10, 30, 100, 300, 1000],
        "sigma": [1.0],
        "drawn": "each time",
        "tuning": 2,
        "most": 60_000,
        "seeds": 10,
    },
    quick={"task": TASK | {"clients": 60, "level": 0.5}, "C": [10], "tuning": 1, "most": 300, "seeds": 2},
    items=items,
    job=to_level,
    gather=gather,
    score=_score,
    plot=_plot,
    about=f"A headline claim of {PAPER}. "
    + TEXT.format(clients=2000)
    + ". A client's duration is log-normal with median 1 s and sigma 1, drawn anew each time. Rounds ask C clients "
    "and use all answers; FedBuff has K = 10; FedAsync weighs by (1 + staleness)^-0.5, and was run up to C = 100 "
    "only, since it takes longest here. The paper trains larger models, on Sent140, CelebA and CIFAR-10",
    body=_body,
    trains=True,
    cost=cost,
)
