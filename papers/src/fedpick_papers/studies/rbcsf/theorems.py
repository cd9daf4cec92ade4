"""RBCS-F, Theorems 1 and 2: what the queues say of the shares, and the bound on their drift, in every round of runs."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpick_papers.studies import _plots
from fedpick_papers.studies._runs import Played, chosen_in, play_scheme, scheme_item
from fedpick_papers.studies._stats import rounded, show
from fedpick_papers.studies._study import Finding, Found, Item, Measurement, Result, Settings, Study, seeds_of
from fedpick_papers.studies._verdicts import Limit, judge, within
from fedpick_papers.studies.rbcsf._common import BASE, CHOSEN, PAPER, QUEUED, WORLD

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["STUDY"]

LIMITS = {"rounding": Limit(1e-9, "a smaller violation is a rounding error")}


def _item(settings: Settings, policy: str, seed: int) -> dict[str, Any]:
    return {**scheme_item(settings, settings["world"], policy, seed), "guarantee": settings["guarantee"]}


def _items(settings: Settings) -> Sequence[Item]:
    return [_item(settings, policy, seed) for policy in settings["schemes"].values() for seed in seeds_of(settings)]


def _read(item: Item, folder: Path) -> Measurement:
    """The least slack of both inequalities, over clients and rounds; queues by eq. (6) from the chosen clients."""
    clients, beta, rounds = item["clients"], item["guarantee"], item["rounds"]
    gamma = clients * (1 + beta**2) / 2
    queue, chosen, share, drift = np.zeros(clients), np.zeros(clients), np.inf, np.empty(rounds)
    for t, ids in enumerate(chosen_in(folder, rounds)):
        x = np.zeros(clients)
        x[ids] = 1.0
        after = np.maximum(queue + beta - x, 0.0)
        chosen += x
        drift[t] = gamma + float(queue @ (beta - x)) - float((after**2 - queue**2).sum()) / 2
        queue = after
        share = min(share, float((queue / (t + 1) - (beta - chosen / (t + 1))).min()))
    return {
        "share": share,
        "drift": float(drift.min()),
        "mean_drift": float(drift.mean()),
        "queue": queue.mean() / rounds,
    }


def _gather(settings: Settings, found: Found) -> Result:
    result: Result = {"rounds": settings["rounds"], **{name: {} for name in ("share", "drift", "mean_drift", "queue")}}
    for name, policy in settings["schemes"].items():
        part = [found[_item(settings, policy, seed)] for seed in seeds_of(settings)]
        for key in ("share", "drift", "mean_drift", "queue"):
            result[key][name] = rounded([one[key] for one in part])
    return result


def _score(result: Result) -> list[Finding]:
    least = -LIMITS["rounding"].value
    return [
        Finding(
            "In every round a client's share is short of beta by no more than its queue over the number of rounds",
            "Theorem 1, whose limit this is: shares reach beta if queues grow more slowly than the rounds",
            "least slack over clients and rounds: "
            + "; ".join(f"{name} {show(np.round(values, 9) + 0.0, 4)}" for name, values in result["share"].items()),
            judge([within(values, f"{name}: slack", low=least, digits=6) for name, values in result["share"].items()]),
            f"mean queue over the rounds after {result['rounds']:,}: "
            + "; ".join(f"{name} {show(values, 4)}" for name, values in result["queue"].items()),
        ),
        Finding(
            "In every round the drift of the queues is at most Gamma + sum of Z (beta - x)",
            "Theorem 2: (11), with the cost on both sides taken away",
            "least slack over rounds: "
            + "; ".join(f"{name} {show(values, 2)}" for name, values in result["drift"].items()),
            judge([within(values, f"{name}: slack", low=least, digits=2) for name, values in result["drift"].items()]),
            "mean slack: " + "; ".join(f"{name} {show(values, 2)}" for name, values in result["mean_drift"].items()),
        ),
    ]


def _plot(result: Result) -> "Figure":
    figure, axes = _plots.figure(6, 3)
    names = list(result["drift"])
    for key, look in (("mean_drift", "mean"), ("drift", "least")):
        axes[0][0].plot(
            names, [np.mean(result[key][name]) for name in names], marker="o", label=f"{look} slack of (11)"
        )
    axes[0][0].set_ylim(bottom=0)
    axes[0][0].set_ylabel("slack")
    axes[0][0].legend()
    return figure


STUDY = Study(
    id="rbcs-f/theorems",
    title="Theorems 1 and 2: queues, shares and drift",
    paper=f"{PAPER}, Theorems 1 and 2",
    settings={**BASE, "rounds": 1_000, "guarantee": 0.15, "schemes": QUEUED},
    quick={"rounds": 50, "seeds": 2},
    items=_items,
    job=Played(play_scheme.config, _read),
    gather=_gather,
    score=_score,
    plot=_plot,
    limits=LIMITS,
    about=f"{WORLD}. {CHOSEN}",
)
