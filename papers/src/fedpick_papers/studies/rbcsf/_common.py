"""Shared by the figures of RBCS-F: section 6.1, without training."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedpick import store
from fedpick_papers.studies._runs import Played, play_scheme, scheme_item
from fedpick_papers.studies._study import Found, Item, Job, Measurement, Settings, Study, seeds_of

__all__ = [
    "BASE",
    "CHOSEN",
    "LONGER",
    "LOOKS",
    "PAPER",
    "QUEUED",
    "SCHEMES",
    "SILENT",
    "WORLD",
    "by_name",
    "crossed",
    "items",
    "study",
]

PAPER = (
    "Huang, Lin, Wu, He, Li & Zomaya (2021), An Efficiency-Boosting Client Selection Scheme for Federated Learning "
    "with Fairness Guarantee, IEEE Transactions on Parallel and Distributed Systems"
)
SILENT = (
    "the paper's text gives no values of V and no base of the logarithm in eta: we took V = 1, 10, 50, 100 and base 2 "
    "(Shannon)"
)


def crossed(at: ArrayLike, values: ArrayLike, level: float) -> float:
    """Where a curve first is at a level, on the line between two evaluations; NaN if it never is.

    Without the line, schemes that differ by less than an evaluation would be alike, or apart by one, at every seed.

    >>> crossed([5, 10, 15], [0.5, 0.7, 0.6], 0.6)
    7.5
    """
    x, y = np.asarray(at, dtype=np.float64), np.asarray(values, dtype=np.float64)
    hits = np.flatnonzero(y >= level)
    if not len(hits):
        return float("nan")
    i = hits[0]
    return float(x[0] if i == 0 else np.interp(level, y[i - 1 : i + 1], x[i - 1 : i + 1]))


def _ours(penalty: int) -> str:
    return f"rbcs-f(penalty={penalty}, guarantee=0.15, ridge=1.0, exploration=0.1)"


QUEUED = {f"RBCS-F({v})": _ours(v) for v in (1, 10, 50, 100)}
SCHEMES = {"Random": "uniform", **QUEUED, "FedCS(3)": "fedcs(cohort_size=None, deadline=3.0)"}
# A scheme has the same colour in all figures of the paper.
LOOKS = {name: i for i, name in enumerate(SCHEMES)}
BASE = {"clients": 40, "cohort_size": 8, "rounds": 500, "seeds": 10, "world": "rbcs-f"}
LONGER = {"longer": 10_000}  # rounds to which the runs of Fig. 3 and 4 go on
QUICK = {"rounds": 200, "longer": 400, "seeds": 2}
WORLD = (
    "Section 6.1 without training: 40 clients in four classes, 8 a round, available with probability 0.8, times linear "
    "in their context"
)
CHOSEN = (
    "The paper's text gives no values of V and no base of the logarithm in eta: V = 1, 10, 50, 100 and base 2 "
    "(Shannon) are our choice"
)
ABOUT = f"{WORLD}. 500 rounds, as the paper has in Fig. 4, and the same runs continued to 10,000. {CHOSEN}"


def _item(settings: Settings, policy: str, seed: int) -> dict[str, Any]:
    """The item of a run that goes on beyond the paper's rounds."""
    longer = {**settings, "rounds": max(settings["rounds"], settings["longer"])}
    return {**scheme_item(longer, settings["world"], policy, seed), "early": settings["rounds"]}


def items(settings: Settings) -> Sequence[Item]:
    """An item for each scheme and seed."""
    return [_item(settings, policy, seed) for policy in settings["schemes"].values() for seed in seeds_of(settings)]


def _read(item: Item, folder: Path) -> Measurement:
    """Seconds and clients of each round; how often each client was chosen in the paper's rounds, and in all."""
    table = store.read_rounds(folder, ["seconds", "chosen"])
    picked = store.read_selections(folder, ["round", "client"])
    client, early = picked["client"].to_numpy(), picked["round"].to_numpy() <= item["early"]
    return {
        "seconds": table["seconds"].to_numpy(),
        "chosen": table["chosen"].to_numpy(),
        "counts": np.bincount(client[early], minlength=item["clients"]),
        "counts_later": np.bincount(client, minlength=item["clients"]),
    }


def by_name(settings: Settings, found: Found) -> dict[str, list[Measurement]]:
    """The measurements of each scheme, for each seed."""
    return {
        name: [found[_item(settings, policy, seed)] for seed in seeds_of(settings)]
        for name, policy in settings["schemes"].items()
    }


RUN = Played(play_scheme.config, _read)


def study(
    figure: str,
    title: str,
    schemes: dict[str, str],
    more: Settings,
    items: Callable[[Settings], Sequence[Item]] = items,
    job: Job = RUN,
    quick: Settings = QUICK,
    about: str = ABOUT,
    **functions: Any,
) -> Study:
    """One of the paper's figures."""
    return Study(
        id=f"rbcs-f/fig{figure}",
        title=title,
        paper=f"{PAPER}, Fig. {figure}",
        settings={**BASE, "schemes": schemes, **more},
        quick=quick,
        items=items,
        job=job,
        about=about,
        **functions,
    )
