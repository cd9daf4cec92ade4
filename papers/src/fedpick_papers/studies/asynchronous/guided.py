"""Pisces: how much sooner a choice guided by losses reaches a level than FedBuff's chance, and than Oort in rounds."""

from typing import TYPE_CHECKING, Any

import numpy as np

from fedpick_papers.studies import _plots
from fedpick_papers.studies._stats import show
from fedpick_papers.studies._study import Finding, Found, Item, Result, Settings, Study, table
from fedpick_papers.studies._verdicts import above, judge, not_testable
from fedpick_papers.studies.asynchronous import _play
from fedpick_papers.studies.asynchronous._play import RATES, cell_of, cost, edges, missed, ratio, shown, to_level
from fedpick_papers.studies.asynchronous._task import TASK, TEXT, ZIPF

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["STUDY"]

PAPER = "Jiang, Wang, Li & Li (2022), Pisces"
WIDE = [*RATES, {"server": 64.0}, {"server": 1.0}]
PACES: dict[str, dict[str, Any]] = {
    "Oort": {"over": 1.0, "policy": "oort", "rates": WIDE},
    "FedBuff": {"size": 10, "rates": WIDE},
    "Pisces": {"bound": 20, "policy": "pisces", "rates": WIDE},
}
WORDS = dict(zip(ZIPF, ("apart", "tied by one label"), strict=True))
CLAIMS = (("Oort", "Oort in rounds", "up to 2.0 times"), ("FedBuff", "FedBuff", "up to 1.9 times"))


def _items(settings: Settings) -> list[Item]:
    return [one for drawn in settings["speeds"] for one in _play.items({**settings, "drawn": drawn})]


def _gather(settings: Settings, found: Found) -> Result:
    parts = {drawn: _play.gather({**settings, "drawn": drawn}, found) for drawn in settings["speeds"]}
    return {"parts": parts, "seeds": settings["seeds"]}


def _score(result: Result) -> list[Finding]:
    found = []
    for drawn, part in result["parts"].items():
        C, sigma = part["C"][0], part["sigma"][0]
        for rival, words, printed in CLAIMS:
            gap = ratio(part, "seconds", rival, "Pisces", C, sigma)
            never = not any(cell_of(part, kind, C, sigma)["reached"] for kind in (rival, "Pisces"))
            free = drawn == ZIPF[0]
            found.append(
                Finding(
                    f"Pisces reaches the level sooner than {words}, data and speed {WORDS[drawn]}",
                    printed if free else "no paper's",
                    f"{shown(gap)} times as fast",
                    not_testable("no run of either reached the level")
                    if never
                    else judge([above(gap, f"{rival} > Pisces", ratio=True)]),
                    "; ".join(
                        filter(
                            None,
                            [
                                missed(part, (rival, C, sigma), ("Pisces", C, sigma)),
                                "the printed size is that of the best of the paper's tasks" if free else "",
                            ],
                        )
                    ),
                    extension=True,
                )
            )
    return found


def _body(result: Result) -> str:
    head = ["data and speed", "pace and policy", "seconds to the level", "answers", "reached by", "mean staleness"]
    rows = [[*head, "share of the slowest quarter"], ["---", "---", *["---:"] * 5]]
    ends = []
    for drawn, part in result["parts"].items():
        for kind in PACES:
            cell = cell_of(part, kind, part["C"][0], part["sigma"][0])
            numbers = [show(cell[name], 0) for name in ("seconds", "answers")]
            many = f"{cell['reached']} of {result['seeds']}"
            stale, slow = f"{np.mean(cell['staleness']):.1f}", f"{np.mean(cell['slow']):.1%}"
            rows.append([WORDS[drawn], kind, *numbers, many, stale, slow])
        if end := edges(part, PACES):
            ends.append(f"\nData and speed {WORDS[drawn]}. {end}")
    return f"## Until the level\n\n{table(rows)}{''.join(ends)}"


def _plot(result: Result) -> "Figure":
    figure, axes = _plots.figure(6, 3.8)
    axis = axes[0][0]
    for i, (drawn, part) in enumerate(result["parts"].items()):
        for x, kind in enumerate(PACES):
            values = cell_of(part, kind, part["C"][0], part["sigma"][0])["seconds"]
            place = np.full(len(values), x + 0.2 * i - 0.1)
            look = {"color": _plots.COLOURS[i], "marker": _plots.MARKERS[i], "markersize": 4}
            axis.plot(place, values, linestyle="none", label=WORDS[drawn] if x == 0 else None, **look)
    axis.set_yscale("log")
    axis.set_xticks(range(len(PACES)), list(PACES))
    axis.set_ylabel("simulated seconds to the level, each seed")
    axis.legend()
    return figure


STUDY = Study(
    id="pisces/guided",
    title="Time to a level: Pisces beside FedBuff, and Oort in rounds",
    paper="",
    settings={
        "task": TASK | {"clients": 100},
        "paces": PACES,
        "C": [20],
        "sigma": [1.2],
        "speeds": list(ZIPF),
        "tuning": 3,
        "most": 6000,
        "seeds": 10,
    },
    quick={"task": TASK | {"clients": 60, "level": 0.5}, "C": [10], "tuning": 1, "most": 300, "seeds": 2},
    items=_items,
    job=to_level,
    gather=_gather,
    score=_score,
    plot=_plot,
    about=f"The headline claims of {PAPER}. "
    + TEXT.format(clients=100)
    + ". As in the paper, 20 of 100 clients work at once and their durations follow Zipf's law with the exponent 1.2 "
    "(the sigma of these pages): a client always takes the same whole number of seconds, and at most 60, which is our "
    "cut; 39 of 100 take that long. The durations are dealt out by chance, or, which is ours, in the order of the "
    "share of one label in a client's data, so that slow clients hold it. FedBuff asks clients at random and moves "
    "the model after K = 10 answers; Oort chooses rounds of 20 and waits for all; Pisces is `pisces` with its pace "
    "(`bound=20`), both with their defaults. The paper trains convolutional networks on MNIST, FEMNIST and CIFAR-10, "
    "and a language model",
    body=_body,
    trains=True,
    cost=cost,
)
