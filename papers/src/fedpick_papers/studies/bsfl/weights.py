"""BSFL's two weights: alpha, that of generalisation against speed (5), and beta, the exponent of g (3)."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpick.worlds import named
from fedpick_papers.studies import _plots
from fedpick_papers.studies._runs import Played, column, play_scheme
from fedpick_papers.studies._stats import band, interval, rounded, show
from fedpick_papers.studies._study import Finding, Found, Item, Measurement, Result, Settings, Study, seeds_of, table
from fedpick_papers.studies._verdicts import above, judge, order
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

OTHERS = {"Random": "uniform", "CS-UCB": "cs-ucb(tau_min=1.0, tau_max=20.0)"}
SHARED = ("clients", "cohort_size", "rounds", "world", "tau_min", "tau_max")


def _name(alpha: float, beta: float) -> str:
    return f"alpha={alpha:g}, beta={beta:g}"


def _pairs(settings: Settings) -> list[list[float]]:
    return [[alpha, beta] for beta in settings["betas"] for alpha in settings["alphas"]]


def _item(settings: Settings, policy: str, pairs: Sequence[Sequence[float]], seed: int) -> dict[str, Any]:
    """A run, and the weights for which its regret is computed."""
    return {**{name: settings[name] for name in SHARED}, "policy": policy, "pairs": list(pairs), "seed": seed}


def _ours(settings: Settings, pair: Sequence[float], seed: int) -> dict[str, Any]:
    alpha, beta = pair
    policy = f"bsfl(alpha={alpha}, beta={beta}, tau_min={settings['tau_min']}, tau_max={settings['tau_max']})"
    return _item(settings, policy, [pair], seed)


def _items(settings: Settings) -> Sequence[Item]:
    pairs = _pairs(settings)
    ours = [_ours(settings, pair, seed) for pair in pairs for seed in seeds_of(settings)]
    return ours + [_item(settings, policy, pairs, seed) for policy in OTHERS.values() for seed in seeds_of(settings)]


def _read(item: Item, folder: Path) -> Measurement:
    """Regret (7) for each pair of weights, the length of a round, and how unevenly clients were chosen."""
    world = named(item["world"], item["clients"])
    speeds = mean_speeds(world, item["seed"], item["tau_min"], item["tau_max"])
    counts = np.asarray(play_scheme.read(item, folder)["counts"])
    regrets = {
        _name(alpha, beta): regret_of(
            {**item, "alpha": alpha, "beta": beta}, folder, speeds, item["cohort_size"] / item["clients"]
        )
        for alpha, beta in item["pairs"]
    }
    return {
        "final": {name: float(of[-1]) for name, of in regrets.items()},
        "exponent": {name: exponent(of) for name, of in regrets.items()},
        "seconds": float(column(folder, "seconds").mean()),
        "spread": float(counts.std() / counts.mean()),
    }


def _gather(settings: Settings, found: Found) -> Result:
    pairs, seeds = _pairs(settings), seeds_of(settings)
    result: Result = {"rounds": settings["rounds"], "alphas": settings["alphas"], "betas": settings["betas"]}
    result |= {"final": {}, "exponent": {}, "seconds": {}, "spread": {}, "others": {}}
    runs = {name: [found[_item(settings, text, pairs, seed)] for seed in seeds] for name, text in OTHERS.items()}
    for pair in pairs:
        name = _name(*pair)
        runs["BSFL"] = [found[_ours(settings, pair, seed)] for seed in seeds]
        for key in ("final", "exponent"):
            result[key][name] = {who: rounded([one[key][name] for one in of]) for who, of in runs.items()}
        for key in ("seconds", "spread"):
            result[key][name] = rounded([one[key] for one in runs["BSFL"]])
    for who in OTHERS:
        result["others"][who] = {key: rounded([one[key] for one in runs[who]]) for key in ("seconds", "spread")}
    return result


def _by_alpha(result: Result, key: str, beta: float) -> dict[str, Any]:
    return {f"alpha={alpha:g}": result[key][_name(alpha, beta)] for alpha in result["alphas"]}


def _score(result: Result) -> list[Finding]:
    rising = [f"alpha={alpha:g}" for alpha in result["alphas"]]
    findings = []
    for beta in result["betas"]:
        plain = beta == result["betas"][0]
        seconds, spread = (_by_alpha(result, key, beta) for key in ("seconds", "spread"))
        longer = order(seconds, " > ".join(reversed(rising)), digits=2, ratio=True)
        fairer = order(spread, " > ".join(rising), digits=3, ratio=True)
        findings += [
            Finding(
                f"beta = {beta:g}: the smaller alpha, the shorter the rounds",
                "'the smaller the value of alpha, the higher priority to select faster clients. [...] this reduces the "
                "iteration time'; no figure",
                f"seconds a round: {longer.shown}",
                judge(longer.checks),
                f"Random {show(result['others']['Random']['seconds'], 2)}, CS-UCB "
                f"{show(result['others']['CS-UCB']['seconds'], 2)}",
                extension=not plain,
            ),
            Finding(
                f"beta = {beta:g}: the smaller alpha, the less evenly clients are chosen",
                "'it tends to select the same faster clients'; no figure",
                f"standard deviation of the counts, as a share of their mean: {fairer.shown}",
                judge(fairer.checks),
                f"Random {show(result['others']['Random']['spread'], 3)}, CS-UCB "
                f"{show(result['others']['CS-UCB']['spread'], 3)}",
                extension=not plain,
            ),
        ]
    n, pairs = result["rounds"], list(result["final"])
    lowest = [
        above(np.subtract(of[who], of["BSFL"]), f"{name}: {who} > BSFL", digits=0)
        for name, of in result["final"].items()
        for who in OTHERS
    ]
    slopes = {name: interval(result["exponent"][name]["BSFL"]).mean for name in pairs}
    flat = [linear(result["exponent"][name][who], f"{who} ({name})") for name in pairs for who in OTHERS]
    shown = {name: interval(result["final"][name]["BSFL"]).mean for name in pairs}
    findings += [
        Finding(
            "BSFL has the lowest regret with every alpha and beta",
            "curves for one alpha and beta, which are not printed",
            f"regret of BSFL after {n:,} rounds from {min(shown.values()):,.1f} to {max(shown.values()):,.1f}; all "
            "in the table below",
            judge(lowest),
            extension=True,
        ),
        Finding(
            "BSFL's regret is logarithmic with every alpha and beta",
            "Theorem 1; curves for one alpha and beta, which are not printed",
            f"local exponent over the last half of {n:,} rounds from {min(slopes.values()):.2f} to "
            f"{max(slopes.values()):.2f}; a logarithm has {1 / np.log(n):.2f}",
            judge([logarithmic(result["exponent"][name]["BSFL"], f"BSFL ({name})", n) for name in pairs]),
            extension=True,
        ),
        Finding(
            "Random and CS-UCB have linear regret with every alpha and beta",
            "curves for one alpha and beta, which are not printed",
            "; ".join(
                f"{who}: local exponent from {min(means):.2f} to {max(means):.2f}"
                for who in OTHERS
                for means in [[interval(result["exponent"][name][who]).mean for name in pairs]]
            ),
            judge(flat),
            extension=True,
        ),
    ]
    return findings


def _body(result: Result) -> str:
    head = ["alpha", "beta", "regret: BSFL", "Random", "CS-UCB", "exponent of BSFL", "seconds a round", "spread"]
    rows = []
    for beta in result["betas"]:
        for alpha in result["alphas"]:
            name = _name(alpha, beta)
            regret = [show(result["final"][name][who], 1) for who in ("BSFL", *OTHERS)]
            ends = [show(result["exponent"][name]["BSFL"], 2), show(result["seconds"][name], 2)]
            rows.append([f"{alpha:g}", f"{beta:g}", *regret, *ends, show(result["spread"][name], 3)])
    return "## Every alpha and beta\n\n" + table([head, ["---:"] * len(head), *rows])


def _plot(result: Result) -> "Figure":
    figure, axes = _plots.figure(11, 3.6, columns=3)
    for i, beta in enumerate(result["betas"]):
        names = [_name(alpha, beta) for alpha in result["alphas"]]
        curves = [[result["final"][name]["BSFL"] for name in names]]
        curves += [[result[key][name] for name in names] for key in ("seconds", "spread")]
        for axis, values in zip(axes[0], curves, strict=True):
            _draw(axis, result["alphas"], values, f"BSFL, beta = {beta:g}", LOOKS["BSFL"] if i == 0 else 2 + i)
    for who in OTHERS:
        first = [result["final"][_name(alpha, result["betas"][0])][who] for alpha in result["alphas"]]
        _draw(axes[0][0], result["alphas"], first, who, LOOKS[who])
        for axis, key in zip(axes[0][1:], ("seconds", "spread"), strict=True):
            _draw(axis, result["alphas"], [result["others"][who][key]] * len(result["alphas"]), who, LOOKS[who])
    labels = (f"regret after {result['rounds']:,} rounds", "seconds a round", "uneven choice: sd / mean of counts")
    for axis, label in zip(axes[0], labels, strict=True):
        axis.set_xscale("log")
        axis.set_xlabel("alpha")
        axis.set_ylabel(label)
    axes[0][0].set_yscale("log")
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=5)
    return figure


def _draw(axis: Any, alphas: Sequence[float], values: Sequence[Any], label: str, i: int) -> None:
    """Means with their intervals over alpha."""
    _plots.banded(axis, alphas, *band(np.array(values).T), i, label)


STUDY = Study(
    id="bsfl/weights",
    title="Regret, length of a round and fairness for several alpha and beta",
    paper=PAPER + ", sections III-B and III-C",
    settings={
        "clients": 20,
        "cohort_size": 5,
        "rounds": 2000,
        "seeds": 20,
        "world": "bsfl",
        "tau_min": 1.0,
        "tau_max": 20.0,
        "alphas": [0.01, 0.1, 1.0, 10.0],
        "betas": [1.0, 2.0, 3.0],
    },
    quick={"rounds": 200, "seeds": 2},
    items=_items,
    job=Played(play_scheme.config, _read),
    gather=_gather,
    score=_score,
    plot=_plot,
    limits=LIMITS,
    about="The world of bsfl/regret: selection without training, 5 of 20 clients a round, shifted gamma times with "
    "unknown means and a deadline of 20 s. The paper says what alpha does (section III-C) and that beta is a natural "
    "number (3), but shows one pair that it does not print: the sweep is ours. For each pair the regret of all "
    "policies is that of the reward with this pair",
    body=_body,
)
