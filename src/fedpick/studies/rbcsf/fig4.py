"""RBCS-F, Fig. 4: pulls of each client."""

from typing import TYPE_CHECKING

import numpy as np

from fedpick.studies import _plots
from fedpick.studies._stats import rounded, show
from fedpick.studies._study import Finding, Found, Result, Settings
from fedpick.studies._verdicts import Limit, judge, not_testable, order, within
from fedpick.studies.rbcsf._common import SCHEMES, by_name, study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["STUDY"]

LIMITS = {
    "share of beta": Limit(0.9, "that a client must have had: the theorem allows what is still in its queue"),
    "the long run": Limit(10_000, "rounds; within 500 the queues of a large V still grow (rbcs-f/fig2)"),
}


def _gather(settings: Settings, found: Found) -> Result:
    counts = {name: [run["counts"] for run in runs] for name, runs in by_name(settings, found).items()}
    return {
        "rounds": settings["rounds"],
        "guarantee": settings["guarantee"],
        # The paper shows one run, clients in ascending order of pulls; we show the mean over seeds of each rank.
        "pulls": {name: rounded(np.mean([np.sort(one) for one in of], axis=0)) for name, of in counts.items()},
        "spread": {name: rounded([one.std() / one.mean() for one in of]) for name, of in counts.items()},
        "least": {name: rounded([one.min() / settings["rounds"] for one in of]) for name, of in counts.items()},
    }


def _score(result: Result) -> list[Finding]:
    spread, least = result["spread"], result["least"]
    uneven = order(spread, "FedCS(3) > RBCS-F(100) > RBCS-F(50) > RBCS-F(10) > RBCS-F(1)", digits=3)
    even = order(spread, "RBCS-F(50) > Random", digits=3)
    low = order(spread, "RBCS-F(50) > RBCS-F(1)", digits=3)
    enough = LIMITS["share of beta"].value * result["guarantee"]
    kept = judge([within(values, name, low=enough, digits=3) for name, values in least.items() if "RBCS" in name])
    if kept.verdict != "reproduced" and result["rounds"] < LIMITS["the long run"].value:
        kept = not_testable(
            f"the theorem is about the long run, and {result['rounds']:,} rounds are not: " + ". ".join(kept.reasons)
        )
    return [
        Finding(
            "Pulls vary more the higher V, and most for FedCS(3)",
            "colours only",
            f"standard deviation of pulls over their mean: {uneven.shown}",
            judge(uneven.checks),
        ),
        Finding(
            "Random and RBCS-F with a low V spread the pulls evenly",
            "colours only",
            f"the same: Random {show(spread['Random'], 3)}, {low.shown}",
            judge([*even.checks, *low.checks]),
        ),
        Finding(
            f"In the long run every client takes part in at least beta = {result['guarantee']} of the rounds",
            "Theorem 4, long-term; no figure",
            "share of the least chosen client: "
            + "; ".join(f"{name} {show(values, 3)}" for name, values in least.items()),
            kept,
            f"judged for RBCS-F after {result['rounds']} rounds",
        ),
    ]


def _plot(result: Result) -> "Figure":
    names = list(result["pulls"])
    figure, axes = _plots.figure(7, 3)
    axis = axes[0][0]
    image = axis.imshow([result["pulls"][name] for name in names], aspect="auto", cmap="cividis", vmin=0)
    axis.set_yticks(range(len(names)), names)
    axis.set_xlabel("client, in ascending order of pulls")
    axis.grid(False)
    figure.colorbar(image, ax=axis, label=f"pulls in {result['rounds']} rounds")
    return figure


STUDY = study(
    "4",
    "Pull record of clients",
    SCHEMES,
    {"guarantee": 0.15},
    gather=_gather,
    score=_score,
    plot=_plot,
    limits=LIMITS,
)
