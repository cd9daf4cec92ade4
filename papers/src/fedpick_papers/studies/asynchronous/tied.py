"""Where asynchrony hurts: what clients hold goes with how fast they are."""

from typing import TYPE_CHECKING, Any

import numpy as np

from fedpick.core.types import Floats
from fedpick_papers.studies import _plots
from fedpick_papers.studies._stats import rounded, show
from fedpick_papers.studies._study import Finding, Found, Item, Result, Settings, Study, seeds_of, table
from fedpick_papers.studies._verdicts import above, judge
from fedpick_papers.studies.asynchronous import _play
from fedpick_papers.studies.asynchronous._play import KINDS, cell_of, cost, edges, missed, ratio, shown, to_level
from fedpick_papers.studies.asynchronous._task import DRAWN, TASK, TEXT

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["FREE", "PACES", "STUDY", "TIED", "slower"]

FREE, LOOSE, TIED = DRAWN[1:]
WORDS = {FREE: "apart", LOOSE: "tied by all labels", TIED: "tied by one label"}
PACES = ("rounds", "over-selection", "FedBuff", "FedBuff, corrected")


def _long(settings: Settings, drawn: str) -> dict[str, Any]:
    """Settings of runs that do not end at a level, with rates that are not tuned."""
    paces = {kind: {**pace, "rates": [settings["long_rates"][kind]]} for kind, pace in settings["paces"].items()}
    endless = settings["task"] | {"level": 9.0}
    return {**settings, "drawn": drawn, "task": endless, "most": settings["long"], "paces": paces}


def _items(settings: Settings) -> list[Item]:
    short = [one for drawn in settings["speeds"] for one in _play.items({**settings, "drawn": drawn})]
    return short + [one for drawn in (FREE, TIED) for one in _play.items(_long(settings, drawn))]


def _gather(settings: Settings, found: Found) -> Result:
    parts = {drawn: _play.gather({**settings, "drawn": drawn}, found) for drawn in settings["speeds"]}
    late: dict[str, Any] = {}
    for drawn in (FREE, TIED):
        how, late[drawn] = _long(settings, drawn), {}
        for kind, C, sigma in _play.cells(how):
            runs = [found[_play.item(how, kind, C, sigma, seed)] for seed in seeds_of(settings)]
            late[drawn][kind] = rounded([100 * run["late"] / (run["level"] / 9.0) for run in runs])
    return {"parts": parts, "late": late, "long": settings["long"], "seeds": settings["seeds"]}


def _at(result: Result) -> tuple[Result, Result, int, float]:
    free, tied = result["parts"][FREE], result["parts"][TIED]
    return free, tied, free["C"][0], free["sigma"][0]


def slower(result: Result, kind: str, drawn: str = TIED) -> Floats:
    """Logarithm of how many times as long a pace takes if the data go with the speed, for each seed."""
    free, _, C, sigma = _at(result)
    a, b = (np.asarray(cell_of(part, kind, C, sigma)["seconds"]) for part in (result["parts"][drawn], free))
    found: Floats = np.log(a) - np.log(b)
    return found


def _score(result: Result) -> list[Finding]:
    free, tied, C, sigma = _at(result)
    notes = {kind: missed(tied, (kind, C, sigma)) for kind in PACES}

    def hurts(kind: str, drawn: str = TIED) -> Finding:
        gap = slower(result, kind, drawn)
        return Finding(
            f"{kind} takes longer to the level if data and speed are {WORDS[drawn]}",
            "no paper's",
            f"{shown(gap)} times as long",
            judge([above(gap, "tied > apart", ratio=True)]),
            missed(result["parts"][drawn], (kind, C, sigma)),
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

    def loses(kind: str) -> Finding:
        gap = np.subtract(result["late"][FREE][kind], result["late"][TIED][kind])
        ends = "; ".join(f"{WORDS[drawn]} {show(result['late'][drawn][kind], 1, '%')}" for drawn in (FREE, TIED))
        return Finding(
            f"{kind} ends with a lower accuracy if data and speed are {WORDS[TIED]}",
            "no paper's",
            f"of the best rule's accuracy: {ends}",
            judge([above(gap, "apart > tied (points)", digits=1)]),
            f"the mean of the last fifth of {result['long']:,} answers",
            extension=True,
        )

    fixed = np.subtract(result["late"][TIED]["FedBuff, corrected"], result["late"][TIED]["FedBuff"])
    mended = Finding(
        f"if data and speed are {WORDS[TIED]}, FedBuff, corrected ends with a higher accuracy than FedBuff",
        "no paper's",
        f"{show(fixed, 1)} points of the best rule's accuracy",
        judge([above(fixed, "corrected > FedBuff (points)", digits=1)]),
        extension=True,
    )
    both = "; ".join(filter(None, [notes["over-selection"], notes["FedBuff"]]))
    return [
        hurts("FedBuff", LOOSE),
        hurts("FedBuff"),
        hurts("over-selection"),
        hurts("FedBuff, corrected"),
        gains("over-selection", "FedBuff", free, f"if data and speed are {WORDS[FREE]}", ""),
        gains("over-selection", "FedBuff", tied, f"if they are {WORDS[TIED]}", both),
        gains("FedBuff", "FedBuff, corrected", tied, f"if they are {WORDS[TIED]}", notes["FedBuff, corrected"]),
        gains("FedBuff", "FedBuff, corrected", free, f"if they are {WORDS[FREE]}", ""),
        loses("FedBuff"),
        loses("over-selection"),
        mended,
    ]


def _body(result: Result) -> str:
    _, _, C, sigma = _at(result)
    head = ["data and speed", "pace", "median seconds", "answers", "reached by", "share of the slowest quarter"]
    rows = [head, ["---", "---", *["---:"] * 4]]
    for drawn, words in WORDS.items():
        for kind in PACES:
            cell = cell_of(result["parts"][drawn], kind, C, sigma)
            numbers = [f"{np.median(cell[name]):,.0f}" for name in ("seconds", "answers")]
            many = f"{cell['reached']} of {result['seeds']}"
            rows.append([words, kind, *numbers, many, f"{np.mean(cell['slow']):.1%}"])
    words = (
        "Until the level, or the end of the run. An equal share of the slowest quarter would be 25% of the answers.\n"
    )
    late = [["pace", *(WORDS[drawn] for drawn in (FREE, TIED))], ["---", "---:", "---:"]]
    late += [[kind, *(show(result["late"][drawn][kind], 1, "%") for drawn in (FREE, TIED))] for kind in PACES]
    more = f"Over the last fifth of {result['long']:,} answers, as a share of the best rule's accuracy.\n"
    ends = {drawn: edges(part) for drawn, part in result["parts"].items()}
    edge = "".join(f"Data and speed {WORDS[drawn]}. {end}\n" for drawn, end in ends.items() if end)
    return f"## Times and shares\n\n{words}\n{table(rows)}\n{edge}## In the long run\n\n{more}\n{table(late)}"


def _plot(result: Result) -> "Figure":
    _, _, C, sigma = _at(result)
    figure, axes = _plots.figure(6, 3.8)
    axis = axes[0][0]
    for i, (drawn, words) in enumerate(WORDS.items()):
        for x, kind in enumerate(PACES):
            values = cell_of(result["parts"][drawn], kind, C, sigma)["seconds"]
            place = np.full(len(values), x + 0.2 * i - 0.2)
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
        "speeds": [FREE, LOOSE, TIED],
        "long": 8000,
        "long_rates": {kind: {"server": 4.0 if "FedBuff" in kind else 8.0} for kind in PACES},
        "tuning": 3,
        "most": 20_000,
        "seeds": 10,
    },
    quick={"task": TASK | {"clients": 60, "level": 0.5}, "C": [10], "tuning": 1, "most": 300, "long": 100, "seeds": 2},
    items=_items,
    job=to_level,
    gather=_gather,
    score=_score,
    plot=_plot,
    about=TEXT.format(clients=500)
    + ". Each client always takes the same time; the times are the quantiles of a log-normal law of median 1 s and "
    "sigma 1.5 (a hundredth takes more than half a minute). They are dealt out by chance; or in the order of the mean "
    "label of a client's data, so that the slowest quarter holds about half of the last three labels; or in the order "
    "of its share of the last label, of which that quarter then holds four fifths. The last was added when the first "
    "two had been seen, to find where asynchrony fails, and so were long runs of 8,000 answers, whose rates are not "
    "tuned. C = 100, K = 10; over-selection uses the first 77 of 100; corrected: `fp.Buffered(correct=True)`",
    body=_body,
    trains=True,
    cost=cost,
)
