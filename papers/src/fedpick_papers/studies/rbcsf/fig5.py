"""RBCS-F, Fig. 5: the impact of fairness alone, with clients drawn by a fixed vector of probabilities."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpick.core import rng as rngs
from fedpick.core.types import Floats
from fedpick_papers.studies import _plots
from fedpick_papers.studies._runs import play_training
from fedpick_papers.studies._stats import band, rounded, show, steps, times
from fedpick_papers.studies._study import Finding, Found, Item, Measurement, Result, Settings, Study, seeds_of, table
from fedpick_papers.studies._trained import NAMES
from fedpick_papers.studies._verdicts import POINT, Check, Limit, above, judge, order, within
from fedpick_papers.studies.rbcsf._common import PAPER, crossed
from fedpick_papers.studies.rbcsf.images import TRAIN

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["STUDY"]

LIMITS = {
    "the same effect": Limit(
        2.0, "points between the gains at the most and the least skewed data: as much as the curves' jitter hides"
    )
}
HARD, EASY = "cifar10", "fashion-mnist"


def _vector(fairness: float, clients: int, seed: int) -> str:
    """q' ~ Dir(gamma_2 1), with which clients are drawn in every round of a run."""
    drawn = rngs.stream(seed, 0, f"fairness {fairness:g}").dirichlet(np.full(clients, fairness))
    # Beside the largest, 1e-9 is as good as never, and the cohort stays full.
    return ", ".join(f"{max(x, 1e-9):.4g}" for x in drawn)


def _item(settings: Settings, data: str, gamma: float, fairness: float, seed: int) -> dict[str, Any]:
    left_out = ("gammas", "fairness", "seeds", "seed0", "model")
    shared = {name: value for name, value in settings.items() if name not in left_out}
    return {
        **shared,
        "data": data,
        "partition": settings["partition"].replace("{gamma}", str(gamma)),
        "train": {**settings["train"], "model": settings["model"][data]},
        "policy": f"fixed-probabilities(p=[{_vector(fairness, settings['clients'], seed)}])",
        "seed": seed,
    }


def _items(settings: Settings) -> Sequence[Item]:
    return [
        _item(settings, data, gamma, fairness, seed)
        for seed in seeds_of(settings)
        for data in settings["data"]
        for gamma in settings["gammas"]
        for fairness in settings["fairness"]
    ]


def _unsteady(run: Measurement) -> float:
    """Mean change of the accuracy between successive evaluations in the second half, points."""
    later = run["accuracy"][len(run["accuracy"]) // 2 :]
    return float(100 * np.abs(np.diff(later)).mean()) if len(later) > 1 else 0.0


def _converged(run: Measurement, last: int) -> float:
    """Rounds to 95% of the mean of the last evaluations, as many as given."""
    return crossed(run["at"], run["accuracy"], 0.95 * run["accuracy"][-last:].mean())


def _gather(settings: Settings, found: Found) -> Result:
    result: Result = {name: settings[name] for name in ("rounds", "clients", "cohort_size", "seeds", "model")}
    result |= {"final": {}, "reached": {}, "unsteady": {}, "spread": {}, "curves": {}}
    for data in settings["data"]:
        for key in ("final", "reached", "unsteady", "spread", "curves"):
            result[key][data] = {}
        for gamma in settings["gammas"]:
            runs = {
                f"{fairness:g}": [found[_item(settings, data, gamma, fairness, seed)] for seed in seeds_of(settings)]
                for fairness in settings["fairness"]
            }
            text, at = f"{gamma:g}", next(iter(runs.values()))[0]["at"]
            last, shown = max(len(at) // 20, 1), steps(len(at), 50) - 1
            ways: dict[str, Any] = {
                "final": lambda run, last=last: 100 * run["accuracy"][-last:].mean(),
                "reached": lambda run, last=last: _converged(run, last),
                "unsteady": _unsteady,
                "spread": lambda run: run["counts"].std() / run["counts"].mean(),
            }
            for key, way in ways.items():
                result[key][data][text] = {name: rounded([way(run) for run in part]) for name, part in runs.items()}
            result["at"] = rounded(at[shown])
            result["curves"][data][text] = {}
            for name, part in runs.items():
                mean, half = band(100 * np.array([one["accuracy"][shown] for one in part]))
                result["curves"][data][text][name] = {"mean": rounded(mean), "half": rounded(half)}
    return result


def _ends(row: dict[str, Any]) -> tuple[str, str]:
    """The least and the most of a row's names, which are numbers."""
    names = sorted(row, key=float)
    return names[0], names[-1]


def _gain(row: dict[str, list[float]]) -> Floats:
    """Final accuracy of the fairest draw less that of the least fair, by seed."""
    low, high = _ends(row)
    return np.subtract(row[high], row[low])


def _rising(of: dict[str, dict[str, list[float]]], digits: int) -> list[Check]:
    """That the values rise with gamma_2, for every gamma_1."""
    checks = []
    for gamma, row in of.items():
        named = {f"gamma_2 {name} at gamma_1 {gamma}": values for name, values in row.items()}
        checks += order(named, " > ".join(sorted(named, key=lambda n: -float(n.split()[1]))), digits=digits).checks
    return checks


def _by_skew(data: str, of: dict[str, dict[str, list[float]]]) -> dict[str, Floats]:
    """The mean over gamma_2 for each gamma_1, the most skewed data first."""
    return {f"{NAMES[data]} at gamma_1 {gamma}": _by_gamma(of, gamma) for gamma in sorted(of, key=float)}


def _by_gamma(of: dict[str, dict[str, list[float]]], gamma: str) -> Floats:
    mean: Floats = np.mean(list(of[gamma].values()), axis=0)
    return mean


def _score(result: Result) -> list[Finding]:
    final, same = result["final"], LIMITS["the same effect"].value
    gains = {data: {gamma: _gain(row) for gamma, row in of.items()} for data, of in final.items()}
    how = (
        f"{result['cohort_size']} of {result['clients']} clients a round, 500 images each, {result['rounds']} rounds, "
        "SGD 0.01 with momentum 0.9, batches of 40, one pass a round; the values of gamma_1 and gamma_2 and the "
        "training's settings are not printed: ours. A new vector for each seed"
    )
    findings = [
        Finding(
            f"The fairer the selection (the higher gamma_2), the higher the final accuracy, on {NAMES[data]}",
            "curves only",
            f"finally, gamma_2 = {_ends(row)[1]} less gamma_2 = {_ends(row)[0]}, points: "
            + "; ".join(f"gamma_1 = {gamma}: {show(x, 1)}" for gamma, x in gains[data].items()),
            judge(_rising(of, 1)),
            how,
        )
        for data, of in final.items()
        for row in [next(iter(of.values()))]
    ]
    if {HARD, EASY} <= set(gains):
        more = [
            above(gains[HARD][gamma] - gains[EASY][gamma], f"gamma_1 = {gamma}: more on {HARD}", margin=POINT, digits=1)
            for gamma in gains[HARD]
        ]
        findings.append(
            Finding(
                "Fairness matters more for CIFAR-10, the harder task, than for Fashion-MNIST",
                "curves only: 'an even more conspicuous one'",
                "gain on CIFAR-10 less that on Fashion-MNIST, points: "
                + "; ".join(
                    f"gamma_1 = {gamma}: {show(x - gains[EASY][gamma], 1)}" for gamma, x in gains[HARD].items()
                ),
                judge(more),
            )
        )
    least, most = _ends(next(iter(final.values())))
    alike, slower, jitter = [], [], []
    for data, of in gains.items():
        low, high = _ends(of)
        alike.append(
            within(of[low] - of[high], f"{NAMES[data]}: difference of the gains", low=-same, high=same, digits=1)
        )
        late, unsteady = (_by_skew(data, result[key][data]) for key in ("reached", "unsteady"))
        slower += order(late, " > ".join(late), ratio=True).checks
        jitter += order(unsteady, " > ".join(unsteady), digits=2).checks
    return [
        *findings,
        Finding(
            "How skewed the data is (gamma_1) changes little of the effect of fairness",
            "'little or no impact on the effect of fairness'",
            "gain at the most skewed data less that at the least: "
            + "; ".join(
                f"{NAMES[data]} {show(of[_ends(of)[0]] - of[_ends(of)[1]], 1)} points" for data, of in gains.items()
            ),
            judge(alike),
        ),
        Finding(
            "The smaller gamma_1, the more rounds to converge and the more jitter",
            "curves only: 'more jitters on the curve and more rounds underwent before convergence'",
            f"rounds to 95% of the curve's own end, gamma_1 = {least} over {most}: "
            + "; ".join(
                f"{NAMES[data]} {times(*(_by_gamma(result['reached'][data], g) for g in (least, most)))}"
                for data in gains
            ),
            judge([*slower, *jitter]),
            "jitter is the mean change between successive evaluations in the second half; both are means over gamma_2; "
            "until 2026-11-16, the rounds were judged by the mean accuracy over all of them, which a lower end "
            "lowers, too",
        ),
        Finding(
            "The smaller gamma_2, the more unequally clients are chosen",
            "the definition of gamma_2",
            "standard deviation of pulls over their mean: "
            + "; ".join(
                f"{NAMES[data]}: "
                + ", ".join(f"gamma_2 = {n} {show(x, 2)}" for n, x in next(iter(of.values())).items())
                for data, of in result["spread"].items()
            ),
            judge(
                [
                    check
                    for data, of in result["spread"].items()
                    for check in order(
                        next(iter(of.values())), " > ".join(sorted(next(iter(of.values())), key=float)), digits=2
                    ).checks
                ]
            ),
            extension=True,
        ),
    ]


def _body(result: Result) -> str:
    parts = []
    for key, title, digits, unit in (
        ("final", "Final accuracy", 1, "%"),
        ("reached", "Rounds to 95% of the curve's own end", 0, ""),
        ("unsteady", "Change between successive evaluations in the second half, points", 2, ""),
    ):
        gammas = list(next(iter(result[key].values())))
        rows = [["data, gamma_2", *(f"gamma_1 = {gamma}" for gamma in gammas)], ["---", *["---:"] * len(gammas)]]
        for data, of in result[key].items():
            for name in of[gammas[0]]:
                rows.append([f"{NAMES[data]}, {name}", *(show(of[gamma][name], digits, unit) for gamma in gammas)])
        parts.append(f"## {title}\n\n{table(rows)}")
    return "\n".join(parts)


def _plot(result: Result) -> "Figure":
    rows, gammas = list(result["curves"]), list(next(iter(result["curves"].values())))
    figure, axes = _plots.figure(3.2 * len(gammas) + 0.5, 2.8 * len(rows) + 0.4, len(gammas), len(rows), sharey="row")
    for row, data in enumerate(rows):
        for column, gamma in enumerate(gammas):
            axis = axes[row][column]
            for i, (name, curve) in enumerate(result["curves"][data][gamma].items()):
                label = f"gamma_2 = {name}"
                _plots.banded(axis, result["at"], curve["mean"], curve["half"], i, label, result["seeds"])
            axis.set_title(f"{NAMES[data]}, gamma_1 = {gamma}", fontsize=10)
            axis.set_xlabel("federated round")
        axes[row][0].set_ylabel("test accuracy, %")
    label = _plots.seeds_label(result["seeds"])
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=3, title=label)
    return figure


STUDY = Study(
    id="rbcs-f/fig5",
    title="Fairness alone: accuracy over rounds on Fashion-MNIST and CIFAR-10",
    paper=f"{PAPER}, Fig. 5",
    settings={
        "data": [EASY, HARD],
        "partition": "dirichlet-labels(alpha={gamma}, size=500)",
        "world": "rbcs-f",
        "clients": 40,
        "cohort_size": 8,
        "rounds": 500,
        "seeds": 3,
        "gammas": [10.0, 1.0, 0.1],
        "fairness": [10.0, 1.0, 0.1],
        "model": {EASY: "cnn(channels=(20, 50), hidden=(500,))", HARD: "cifar-cnn"},
        "train": TRAIN,
    },
    quick={
        "rounds": 3,
        "seeds": 1,
        "model": dict.fromkeys((EASY, HARD), "mlp(hidden=(16,))"),
        "train": {**TRAIN, "evaluate_every": 1},
    },
    items=_items,
    job=play_training,
    gather=_gather,
    score=_score,
    plot=_plot,
    body=_body,
    limits=LIMITS,
    about="In every run clients are drawn with the same vector of probabilities, from Dirichlet(gamma_2): the smaller "
    "gamma_2, the less fair. 40 clients with 500 images each and labels from Dirichlet(gamma_1), 8 a round, the world "
    "of section 6.1 and the paper's two networks, those of Fig. 6. gamma_1, gamma_2 and the settings of the training "
    "are not printed: ours",
    trains=True,
)
