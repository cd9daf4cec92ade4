"""DivFL: rounds to an accuracy, and how equal the clients' accuracies are."""

from pathlib import Path

import numpy as np

from fedpick_papers.studies._runs import Played, column, play_training
from fedpick_papers.studies._study import Finding, Item, Measurement, Result
from fedpick_papers.studies._verdicts import above, judge
from fedpick_papers.studies.baselines._levels import LAST, study, texts

__all__ = ["STUDY"]

EQUAL = {name: f"{name}, equal weights" for name in ("divfl", "uniform")}  # without the weights of (4)


def _read(item: Item, folder: Path) -> Measurement:
    spread = column(folder, "spread")
    return {**play_training.read(item, folder), "spread": spread[np.isfinite(spread)]}


def _score(result: Result) -> list[Finding]:
    rounds, spread, most = result["rounds_to"], result["spread"], result["most"]
    why = (
        f"the client that is chosen most is in {100 * np.mean(most['divfl']):.0f}% of DivFL's cohorts (uniform: "
        f"{100 * np.mean(most['uniform']):.0f}%), as the nearest to most others, whose weight it gets"
    )

    def fewer(policy: str, rival: str, when: str = "") -> Finding:
        return Finding(
            f"{when}DivFL needs fewer rounds than {rival.split(',')[0]}",
            "curves only: 'faster convergence' than random choice and Power-of-Choice",
            f"rounds: {texts({name: rounds[name] for name in (policy, rival)}, 0)}",
            judge([above(np.log(rounds[rival]) - np.log(rounds[policy]), f"{rival} > {policy}", ratio=True)]),
            f"reached by {result['reached'][policy]} and {result['reached'][rival]} of {result['seeds']} seeds; {why}",
            extension=True,
        )

    def fairer(policy: str, rival: str, when: str = "") -> Finding:
        gap = 100 * (np.asarray(spread[rival]) - spread[policy])
        return Finding(
            f"{when}with DivFL the clients' accuracies differ less than with {rival.split(',')[0]}",
            "'more uniform (i.e., fair) performance across clients'",
            f"points: {texts({name: 100 * np.asarray(spread[name]) for name in (policy, rival)}, 1)}",
            judge([above(gap, f"{rival} > {policy}", digits=1)]),
            "standard deviation over the clients, at the end of the run",
            extension=True,
        )

    equal = (EQUAL["divfl"], EQUAL["uniform"], "if all chosen count equally, ")
    found = [claim("divfl", rival) for claim in (fewer, fairer) for rival in ("uniform", "pow-d")]
    return [*found, fewer(*equal), fairer(*equal)]


STUDY = study(
    "divfl/rounds",
    "Rounds to an accuracy, and how equal the clients' accuracies are",
    "Balakrishnan et al. (2022), DivFL, section 5",
    {
        "divfl": "divfl(width=None)",
        "uniform": "uniform",
        "pow-d": "pow-d(candidates=30)",
        EQUAL["divfl"]: {"policy": "divfl(width=None)", "train": {"aggregation": "mean"}},
        EQUAL["uniform"]: {"policy": "uniform", "train": {"aggregation": "mean"}},
    },
    _score,
    setting="Synthetic(1, 1) with 30 clients and logistic regression, ten of which train a round, as in the paper",
    chosen="The level is our choice, and the steps of training",
    about="DivFL compares whole updates, not sketches of them, the last that it heard of each client; Power-of-Choice "
    "asks all clients for their loss, as in the authors' code. The paper gives a chosen client the weight of those "
    "that it represents; the authors' code leaves these weights out and averages by size; here equal weights are "
    "played beside the paper's",
    job=Played(play_training.config, _read),
    more={
        "spread": lambda run, level: float(run["spread"][-LAST:].mean()),
        "most": lambda run, level: float(run["counts"].max() / len(run["returned"])),
    },
    data="synthetic(1, 1)",
    partition=None,
    clients=30,
    cohort_size=10,
    rounds=200,
    seeds=8,
    train={"evaluate_every": 2, "spread_every": 10, "lr": 0.01, "batch": 10},
)
