"""RBCS-F, Fig. 4: pulls of each client."""

from typing import TYPE_CHECKING

import numpy as np

from fedpick.studies import _plots
from fedpick.studies._stats import interval, order, rounded, show, verdict
from fedpick.studies._study import Finding, Found, Result, Settings
from fedpick.studies.rbcsf._common import SCHEMES, by_name, study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["STUDY"]


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
    kept = {
        name: interval(values).mean >= 0.9 * result["guarantee"] for name, values in least.items() if "RBCS" in name
    }
    return [
        Finding(
            "Pulls vary more the higher V, and most for FedCS(3)",
            "colours only",
            f"standard deviation of pulls over their mean: {uneven.shown}",
            verdict(uneven.holds),
            ". ".join(uneven.broken),
        ),
        Finding(
            "Random and RBCS-F with a low V spread the pulls evenly",
            "colours only",
            f"the same: Random {show(spread['Random'], 3)}, {low.shown}",
            verdict([*even.holds, *low.holds]),
            ". ".join([*even.broken, *low.broken]),
        ),
        Finding(
            f"In the long run every client takes part in at least beta = {result['guarantee']} of the rounds",
            "Theorem 4, long-term; no figure",
            "share of the least chosen client: "
            + "; ".join(f"{name} {show(values, 3)}" for name, values in least.items()),
            verdict(list(kept.values())),
            f"judged for RBCS-F after {result['rounds']} rounds, as 90% of beta; not yet there: "
            + (", ".join(name for name, good in kept.items() if not good) or "none"),
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


STUDY = study("4", "Pull record of clients", SCHEMES, {"guarantee": 0.15}, gather=_gather, score=_score, plot=_plot)
