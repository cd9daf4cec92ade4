"""Where asynchrony hurts: what clients hold goes with how fast they are."""

from typing import TYPE_CHECKING

import numpy as np

from fedpick.core.types import Floats
from fedpick_papers.studies import _plots
from fedpick_papers.studies._study import Finding, Found, Item, Result, Settings, Study, table
from fedpick_papers.studies._verdicts import above, judge
from fedpick_papers.studies.asynchronous import _play
from fedpick_papers.studies.asynchronous._play import KINDS, cell_of, cost, missed, ratio, shown, to_level
from fedpick_papers.studies.asynchronous._task import DRAWN, TASK, TEXT

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["FREE", "STUDY", "TIED", "slower"]

FREE, TIED = DRAWN[1:]
PACES = ("rounds", "over-selection", "FedBuff", "FedBuff, corrected")


def _items(settings: Settings) -> list[Item]:
    return [one for drawn in settings["speeds"] for one in _play.items({**settings, "drawn": drawn})]


def _gather(settings: Settings, found: Found) -> Result:
    parts = {drawn: _play.gather({**settings, "drawn": drawn}, found) for drawn in settings["speeds"]}
    return {"parts": parts, "seeds": settings["seeds"]}


def _at(result: Result) -> tuple[Result, Result, int, float]:
    free, tied = result["parts"][FREE], result["parts"][TIED]
    return free, tied, free["C"][0], free["sigma"][0]


def slower(result: Result, kind: str) -> Floats:
    """Logarithm of how many times as long a pace takes if the data go with the speed, for each seed."""
    free, tied, C, sigma = _at(result)
    a, b = (np.asarray(cell_of(part, kind, C, sigma)["seconds"]) for part in (tied, free))
    found: Floats = np.log(a) - np.log(b)
    return found


def _score(result: Result) -> list[Finding]:
    free, tied, C, sigma = _at(result)
    notes = {kind: missed(tied, (kind, C, sigma)) for kind in PACES}

    def hurts(kind: str) -> Finding:
        return Finding(
            f"{kind} takes longer to the level if the data go with the speed",
            "no paper's",
            f"{shown(slower(result, kind))} times as long",
            judge([above(slower(result, kind), "tied > free", ratio=True)]),
            notes[kind],
            extension=True,
        )

    def gains(slower: str, faster: str, where: Result, words: str, note: str) -> Finding:
        gap = ratio(where, "seconds", slower, faster, C, sigma)
        return Finding(
            f"{faster} reaches the level sooner than {slower} {words}",
            "no paper's",
            f"{shown(gap)} times as fast",
            judge([above(gap, f"{slower} > {faster}", ratio=True)]),
            note,
            extension=True,
        )

    both = "; ".join(filter(None, [notes["over-selection"], notes["FedBuff"]]))
    return [
        hurts("FedBuff"),
        hurts("over-selection"),
        hurts("FedBuff, corrected"),
        gains("over-selection", "FedBuff", free, "if the data do not go with the speed", ""),
        gains("over-selection", "FedBuff", tied, "if they do", both),
        gains("FedBuff", "FedBuff, corrected", tied, "if they do", notes["FedBuff, corrected"]),
        gains("FedBuff", "FedBuff, corrected", free, "if they do not", ""),
    ]


def _body(result: Result) -> str:
    _, _, C, sigma = _at(result)
    head = ["data and speed", "pace", "median seconds", "answers", "reached by", "share of the slowest quarter"]
    rows = [head, ["---", "---", *["---:"] * 4]]
    for drawn, words in ((FREE, "apart"), (TIED, "together")):
        for kind in PACES:
            cell = cell_of(result["parts"][drawn], kind, C, sigma)
            numbers = [f"{np.median(cell[name]):,.0f}" for name in ("seconds", "answers")]
            many = f"{cell['reached']} of {result['seeds']}"
            rows.append([words, kind, *numbers, many, f"{np.mean(cell['slow']):.1%}"])
    words = (
        "Until the level, or the end of the run. An equal share of the slowest quarter would be 25% of the answers.\n"
    )
    return f"## Times and shares\n\n{words}\n{table(rows)}"


def _plot(result: Result) -> "Figure":
    _, _, C, sigma = _at(result)
    figure, axes = _plots.figure(6, 3.8)
    axis = axes[0][0]
    for i, (drawn, words) in enumerate(((FREE, "data and speed apart"), (TIED, "data go with speed"))):
        for x, kind in enumerate(PACES):
            values = cell_of(result["parts"][drawn], kind, C, sigma)["seconds"]
            place = np.full(len(values), x + 0.2 * i - 0.1)
            look = {"color": _plots.COLOURS[i], "marker": _plots.MARKERS[i], "markersize": 4}
            axis.plot(place, values, linestyle="none", label=words if x == 0 else None, **look)
    axis.set_yscale("log")
    axis.set_xticks(range(len(PACES)), PACES)
    axis.set_ylabel("simulated seconds to the level, each seed")
    axis.legend()
    return figure


STUDY = Study(
    id="asynchrony/tied",
    title="Time to a level if the clients' data go with their speed",
    paper="",
    settings={
        "task": TASK,
        "paces": {kind: KINDS[kind] for kind in PACES},
        "C": [100],
        "sigma": [1.5],
        "speeds": [FREE, TIED],
        "tuning": 3,
        "most": 20_000,
        "seeds": 10,
    },
    quick={"task": TASK | {"clients": 60, "level": 0.5}, "C": [10], "tuning": 1, "most": 300, "seeds": 2},
    items=_items,
    job=to_level,
    gather=_gather,
    score=_score,
    plot=_plot,
    about=TEXT.format(clients=500)
    + ". Each client always takes the same time; the times are the quantiles of a log-normal law of median 1 s and "
    "sigma 1.5 (a hundredth takes more than half a minute). Either they are dealt out by chance, or in the order of "
    "the mean label of a client's data, so that the labels from 7 on are mostly held by slow clients. C = 100, K = "
    "10; over-selection uses the first 77 of 100; corrected: `fp.Buffered(correct=True)`",
    body=_body,
    trains=True,
    cost=cost,
)
