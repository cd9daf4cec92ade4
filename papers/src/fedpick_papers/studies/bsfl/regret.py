"""BSFL, Fig. 5, left: regret over rounds, without training."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpick.worlds import named
from fedpick_papers import theory
from fedpick_papers.studies import _plots
from fedpick_papers.studies._runs import Played, play_scheme
from fedpick_papers.studies._stats import band, rounded, show, steps
from fedpick_papers.studies._study import Finding, Found, Item, Measurement, Result, Settings, Study, seeds_of
from fedpick_papers.studies._verdicts import above, judge, order, vacuous
from fedpick_papers.studies.bsfl._common import (
    LIMITS,
    LOOKS,
    PAPER,
    exponent,
    linear,
    logarithmic,
    mean_speeds,
    regret_of,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["STUDY"]


def _item(settings: Settings, policy: str, seed: int) -> dict[str, Any]:
    names = ("clients", "cohort_size", "rounds", "alpha", "beta", "world", "tau_min", "tau_max")
    return {**{name: settings[name] for name in names}, "policy": policy, "seed": seed}


def _items(settings: Settings) -> Sequence[Item]:
    return [_item(settings, policy, seed) for policy in settings["schemes"].values() for seed in seeds_of(settings)]


def _read(item: Item, folder: Path) -> Measurement:
    """Regret (7) after every round, and the smallest nonzero regret of a round."""
    world = named(item["world"], item["clients"])
    speeds = mean_speeds(world, item["seed"], item["tau_min"], item["tau_max"])
    regret = regret_of(item, folder, speeds, item["cohort_size"] / item["clients"])
    lost = np.diff(regret, prepend=0.0)
    return {
        "regret": regret,
        "least": float(lost[lost > 1e-12].min(initial=np.inf)),
        "delta_max": theory.bsfl_delta_max(item["alpha"], speeds),
    }


def _gather(settings: Settings, found: Found) -> Result:
    rounds = settings["rounds"]
    at = np.union1d(steps(rounds, 120), np.geomspace(1, rounds, 60).astype(np.int64))  # for both scales of the plot
    result: Result = {"rounds": rounds, "clients": settings["clients"], "cohort_size": settings["cohort_size"]}
    result |= {"at": rounded(at), "curves": {}, "final": {}, "exponent": {}, "early_exponent": {}}
    for name, policy in settings["schemes"].items():
        part = [found[_item(settings, policy, seed)] for seed in seeds_of(settings)]
        regret = np.array([one["regret"] for one in part])
        mean, half = band(regret[:, at - 1])
        result["curves"][name] = {"mean": rounded(mean), "half": rounded(half)}
        result["final"][name] = rounded(regret[:, -1])
        result["exponent"][name] = rounded([exponent(one) for one in regret])
        result["early_exponent"][name] = rounded([exponent(one[: max(rounds // 10, 4)]) for one in regret])
        if name == "BSFL":
            result["bound"] = rounded(
                [
                    theory.bsfl_bound(
                        rounds, settings["clients"], settings["cohort_size"], one["delta_max"], one["least"]
                    )
                    for one in part
                ]
            )
    return result


def _score(result: Result) -> list[Finding]:
    final, n = result["final"], result["rounds"]
    best = order(final, "Random > BSFL")
    worse = order(final, "CS-UCB > BSFL")
    slope, others = result["exponent"], ("Random", "CS-UCB")
    bound = np.asarray(result["bound"], dtype=np.float64)
    useless = bool((bound > np.asarray(final["Random"])).all())  # even a policy that learns nothing keeps it
    law = (
        "The paper gives no law of times, alpha or beta: tau = 1 + Gamma(4, mean theta_k), theta ~ U(0.2, 8) s, "
        "deadline 20 s, alpha = beta = 1"
    )
    return [
        Finding(
            "BSFL has the lowest regret",
            "curves only",
            f"regret after {n:,} rounds: BSFL {show(final['BSFL'])}; Random {show(final['Random'])}; CS-UCB "
            f"{show(final['CS-UCB'])}",
            judge([*best.checks, *worse.checks]),
            law,
            extension=True,
        ),
        Finding(
            "BSFL's regret is logarithmic",
            "'logarithmic regret', a curve",
            f"local exponent over the last half of {n:,} rounds: {show(slope['BSFL'], 2)} (over rounds "
            f"{n // 20:,} to {n // 10:,}: {show(result['early_exponent']['BSFL'], 2)})",
            judge([logarithmic(slope["BSFL"], "BSFL", n)]),
            f"a logarithm has exponent 1/ln n = {1 / np.log(n):.2f} here. g is continuous, so that Delta_min of (15) "
            "goes to 0",
            extension=True,
        ),
        Finding(
            "Random and CS-UCB have linear regret",
            "curves only",
            "local exponent: " + "; ".join(f"{name} {show(slope[name], 2)}" for name in others),
            judge([linear(slope[name], name) for name in others]),
            extension=True,
        ),
        Finding(
            "The bound (15) holds",
            "Theorem 1, for rewards in steps of Delta_min",
            f"regret {show(final['BSFL'])}, bound {np.min(result['bound']):.1e} at least",
            vacuous("the regret of Random, which learns nothing, keeps it, too")
            if useless
            else judge([above(bound - np.asarray(final["BSFL"]), "regret below the bound", digits=0)]),
            "with the least loss of a round that occurred as Delta_min, since a continuous g has none",
        ),
    ]


def _plot(result: Result) -> "Figure":
    figure, axes = _plots.figure(9, 3.6, columns=2)
    for name, curve in result["curves"].items():
        for axis in axes[0]:
            _plots.banded(axis, result["at"], curve["mean"], curve["half"], LOOKS[name], name)
    at, mean = np.asarray(result["at"], dtype=float), np.asarray(result["curves"]["BSFL"]["mean"])
    middle = len(at) // 2
    log = np.log(at[1:]) * mean[middle] / np.log(at[middle]) if len(at) > 2 else np.ones(len(at) - 1)
    axes[0][1].plot(at[1:], log, color="grey", linewidth=1, linestyle=":", label="a logarithm, for comparison")
    axes[0][0].locator_params(axis="x", nbins=5)
    axes[0][1].set_xscale("log")
    axes[0][1].set_yscale("log")
    for axis in axes[0]:
        axis.set_xlabel("iterations")
        axis.set_ylabel("regret")
    axes[0][1].legend()
    return figure


STUDY = Study(
    id="bsfl/regret",
    title="Regret over iterations, 5 of 20 clients",
    paper=PAPER + ", Theorem 1; section VI, Fig. 5 (left)",
    settings={
        "clients": 20,
        "cohort_size": 5,
        "rounds": 20_000,
        "seeds": 10,
        "world": "bsfl",
        "alpha": 1.0,
        "beta": 1.0,
        "tau_min": 1.0,
        "tau_max": 20.0,
        "schemes": {
            "BSFL": "bsfl(alpha=1.0, beta=1.0, tau_min=1.0, tau_max=20.0)",
            "Random": "uniform",
            "CS-UCB": "cs-ucb(tau_min=1.0, tau_max=20.0)",
        },
    },
    quick={"rounds": 100, "seeds": 2},
    items=_items,
    job=Played(play_scheme.config, _read),
    gather=_gather,
    score=_score,
    plot=_plot,
    limits=LIMITS,
    about="Selection without training, 5 of 20 clients a round; times are shifted gamma with unknown means and a "
    "deadline of 20 s. The law of times, alpha and beta are our choice, since the paper prints none. What Fig. 5 says "
    "of the regret is counted in bsfl/fig5; here it is shown with ten times as many rounds",
)
