"""FedGS, Table 2 and Fig. 5, on images: the lowest test loss of nine methods under modes of availability."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from fedpick.studies import _plots
from fedpick.studies._runs import play_training
from fedpick.studies._stats import band, interval, rounded, show, steps
from fedpick.studies._study import Finding, Found, Item, Result, Settings, Study, beside, seeds_of
from fedpick.studies._trained import NAMES
from fedpick.studies._verdicts import FEWEST, Check, Limit, above, judge, most, order, within
from fedpick.studies.fedgs._common import PAPER
from fedpick.types import Floats

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["availability", "study"]

Printed = Mapping[str, tuple[float, ...]]
BASELINES = ("UniformSample", "MDSample", "Power-of-Choice", "FedProx")
ALPHAS = (0.0, 0.5, 1.0, 2.0, 5.0)
METHODS: dict[str, dict[str, Any]] = {
    "UniformSample": {"policy": "uniform", "aggregation": "fedavg"},
    "MDSample": {"policy": "size-weighted", "aggregation": "mean"},
    "Power-of-Choice": {"policy": "pow-d(candidates={clients})", "aggregation": "mean"},
    "FedProx": {"policy": "size-weighted", "aggregation": "mean", "prox": 0.01},
    **{f"FedGS({alpha:g})": {"policy": f"fedgs(alpha={alpha})", "aggregation": "fedavg"} for alpha in ALPHAS},
}
WORLDS = {name: f"fedgs-{name.lower()}" for name in ("IDL", "LN", "SLN", "LDF", "MDF", "YMF", "YC")}
LIMITS = {
    "printed level": Limit(
        1.1, "times the printed loss, or less by as much: the paper's sizes and rounds are not known"
    )
}


def _item(settings: Settings, mode: str, method: str, seed: int) -> dict[str, Any]:
    left_out = ("modes", "methods", "seeds", "seed0", "model", "printed")
    shared = {name: value for name, value in settings.items() if name not in left_out}
    how = dict(settings["methods"][method])
    shared["policy"] = how.pop("policy").replace("{clients}", str(settings["clients"]))
    shared["train"] = {**settings["train"], **how, "model": settings["model"]}
    return {**shared, **availability(mode, settings["modes"][mode]), "seed": seed}


_PARTS = {
    "LN": "log-normal",
    "SLN": "sin-log-normal",
    "LDF": "less-data-first",
    "MDF": "more-data-first",
    "YMF": "y-max-first",
    "YC": "y-cycle",
}


def availability(mode: str, beta: float) -> dict[str, Any]:
    """The fields of an item that say who is there: the world of this mode, with this degree of absence."""
    part = {} if mode == "IDL" else {"world_settings": {"availability": f"{_PARTS[mode]}(beta={beta})"}}
    return {"world": WORLDS[mode], **part}


def _items(settings: Settings) -> Sequence[Item]:
    return [
        _item(settings, mode, method, seed)
        for seed in seeds_of(settings)
        for mode in settings["modes"]
        for method in settings["methods"]
    ]


def _gather(settings: Settings, found: Found) -> Result:
    result: Result = {name: settings[name] for name in ("data", "rounds", "clients", "cohort_size", "seeds", "modes")}
    result |= {"model": settings["model"], "printed": settings["printed"], "loss": {}, "accuracy": {}, "curves": {}}
    result |= {"spread": {}}
    for mode in settings["modes"]:
        runs = {
            method: [found[_item(settings, mode, method, seed)] for seed in seeds_of(settings)]
            for method in settings["methods"]
        }
        result["loss"][mode] = {name: rounded([np.nanmin(one["loss"]) for one in part]) for name, part in runs.items()}
        result["accuracy"][mode] = {
            name: rounded([100 * np.nanmax(one["accuracy"]) for one in part]) for name, part in runs.items()
        }
        result["spread"][mode] = {name: rounded([one["counts"].std() for one in part]) for name, part in runs.items()}
        result["curves"][mode] = {}
        for name, part in runs.items():
            at = part[0]["at"]
            shown = steps(len(at), 50) - 1
            mean, half = band(np.array([one["loss"][shown] for one in part]))
            result["at"] = rounded(at[shown])
            result["curves"][mode][name] = {"mean": rounded(mean), "half": rounded(half)}
    return result


def _ratio(a: ArrayLike, b: ArrayLike) -> str:
    """Geometric mean of a/b in words, from three seeds on with its 95% interval."""
    gap = interval(np.log(a) - np.log(b))
    width = f" ({np.exp(gap.low):.3f} to {np.exp(gap.high):.3f})" if gap.n >= FEWEST else ""
    return f"{np.exp(gap.mean):.3f}{width}"


def _positive(of: Mapping[str, ArrayLike]) -> Floats:
    """Geometric mean of the losses with alpha > 0, by seed."""
    logs: Floats = np.mean([np.log(of[f"FedGS({a:g})"]) for a in ALPHAS[1:]], axis=0)
    return np.exp(logs)


def _beats(result: Result, mode: str, name: str, rival: str) -> list[Check]:
    """That FedGS's loss is lower, with the printed ratio as the size where the paper's numbers have this order."""
    printed = {each: row[list(result["modes"]).index(mode)] for each, row in result["printed"].items()}
    claim = f"{rival} > {name}"
    size = float(np.log(printed[rival] / printed[name]))
    return order(result["loss"][mode], claim, digits=3, ratio=True, sizes={claim: size} if size > 0 else None).checks


def _score(result: Result) -> list[Finding]:
    loss, modes = result["loss"], list(result["modes"])
    findings = []
    for i, mode in enumerate(modes):
        printed = {name: row[i] for name, row in result["printed"].items()}
        best = min(BASELINES, key=lambda name: printed[name])
        findings.append(
            Finding(
                f"FedGS has the lowest loss under {mode}",
                "over FedGS(1): "
                + "; ".join(f"{name} {printed[name] / printed['FedGS(1)']:.3f}" for name in BASELINES),
                "; ".join(f"{name} {_ratio(loss[mode][name], loss[mode]['FedGS(1)'])}" for name in BASELINES),
                judge([check for rival in BASELINES for check in _beats(result, mode, "FedGS(1)", rival)]),
                "judged at alpha = 1, chosen beforehand, against every other method; the best of those in print is "
                f"{best}",
            )
        )
    helped = [
        above(
            np.log(of["FedGS(0)"]) - np.log(_positive(of)),
            f"{mode}: FedGS(0) > the mean of alpha > 0",
            ratio=True,
        )
        for mode, of in loss.items()
    ]
    allowed = float(np.log(LIMITS["printed level"].value))
    levels = [
        within(
            np.log(loss[mode][name]) - np.log(result["printed"][name][i]),
            f"{mode}: {name} over the printed loss",
            low=-allowed,
            high=allowed,
            ratio=True,
        )
        for i, mode in enumerate(modes)
        for name in ("UniformSample", "FedGS(1)")
    ]
    findings += [
        Finding(
            "alpha > 0 improves on alpha = 0 in most modes",
            "'a non-trivial improvement over using alpha = 0 in most of the client availability modes'",
            "loss of alpha > 0 over that of alpha = 0: "
            + "; ".join(f"{mode} {_ratio(_positive(of), of['FedGS(0)'])}" for mode, of in loss.items()),
            judge([most(helped, "alpha > 0 improves in most modes")]),
            "by the geometric mean over the four alpha > 0; each is in the table",
        ),
        Finding(
            "The losses of UniformSample and FedGS(1) are the printed ones",
            "in the table below",
            "over the print: "
            + "; ".join(
                f"{mode} "
                + " and ".join(
                    f"{np.mean(of[name]) / result['printed'][name][i]:.2f}" for name in ("UniformSample", "FedGS(1)")
                )
                for i, (mode, of) in enumerate(loss.items())
            ),
            judge(levels),
        ),
        Finding(
            "FedGS evens out how often clients are sampled (Fig. 4)",
            "a picture, without numbers",
            "standard deviation of the counts: "
            + "; ".join(
                f"{mode}: UniformSample {show(of['UniformSample'], 1)}, FedGS(1) {show(of['FedGS(1)'], 1)}"
                for mode, of in result["spread"].items()
            ),
            judge(
                [
                    check
                    for mode, of in result["spread"].items()
                    for check in order(
                        {f"{mode}: {name}": values for name, values in of.items()},
                        f"{mode}: UniformSample > {mode}: FedGS(1)",
                        digits=1,
                    ).checks
                ]
            ),
        ),
    ]
    return findings


def _body(result: Result) -> str:
    ours = {name: [show(of[name], 3) for of in result["loss"].values()] for name in next(iter(result["loss"].values()))}
    paper = {name: [f"{value:.3f}" for value in row] for name, row in result["printed"].items()}
    return beside(["method", *result["loss"]], ours, paper)


def _about(data: str, partition: str, model: str, lr: float, modes: dict[str, float]) -> str:
    degrees = ", ".join(f"{mode} {beta:g}" for mode, beta in modes.items() if mode != "IDL")
    return (
        f"{NAMES[data]} among 100 clients ({partition}), of which 10 train a round: {model}, ten steps with batches of "
        f"32, learning rate {lr:g} that falls by 0.2% a round. Steps, batches, learning rate and its decay are printed "
        "(the authors chose them by a grid search with FedAvg). Who is there is decided by the paper's modes of "
        "availability; in IDL everyone is. FedGS has the oracle's graph, from label shares. Degrees of absence: "
        f"{degrees}. The paper prints LN-0.5 and YMF-0.9; its appendix, with the others, the cohort size and the "
        "rounds, is not at hand: those are our choice"
    )


def _plot(result: Result) -> "Figure":
    modes = list(result["curves"])
    names = ("UniformSample", "MDSample", "Power-of-Choice", "FedProx", "FedGS(0)", "FedGS(1)", "FedGS(5)")
    figure, axes = _plots.figure(2.3 * len(modes) + 1, 5.4, columns=len(modes), rows=2, sharey="row")
    for column, mode in enumerate(modes):
        for i, name in enumerate(names):
            curve, seeds = result["curves"][mode][name], len(result["loss"][mode][name])
            _plots.banded(axes[0][column], result["at"], curve["mean"], curve["half"], i, name, seeds)
            _plots.spread(axes[1][column], i, result["loss"][mode][name], i)
            axes[1][column].plot(i, result["printed"][name][column], marker="_", color="black", markersize=12)
        axes[0][column].set_title(mode, fontsize=10)
        axes[0][column].set_xlabel("rounds")
        axes[1][column].set_xticks([])
    axes[0][0].set_ylabel("test loss")
    each = " of each seed" if 1 < seeds < _plots.BAND else ""
    axes[1][0].set_ylabel(f"lowest test loss{each}\n(bar: printed)")
    named = axes[0][0].get_legend_handles_labels()
    figure.legend(*named, loc="outside lower center", ncols=4, title=f"curves: {_plots.told(seeds)}")
    return figure


def study(
    data: str, partition: str, model: str, small: str, lr: float, modes: dict[str, float], printed: Printed
) -> Study:
    """A data set of the table.

    Args:
        data: its name.
        partition: what each of the 100 clients holds.
        model: the network.
        small: a network for a quick check of the form.
        lr: first learning rate.
        modes: of availability, with their degree of absence.
        printed: the table's rows, in the order of the modes.
    """
    train = {"lr": f"decay({lr}, 0.998)", "momentum": 0.0, "batch": 32, "steps": 10, "evaluate_every": 10}
    return Study(
        id=f"fedgs/table2-{data}",
        title=f"Lowest test loss on {NAMES[data]} under {len(modes)} modes of availability",
        paper=f"{PAPER}, Table 2 and Fig. 5",
        settings={
            "data": data,
            "partition": partition,
            "clients": 100,
            "cohort_size": 10,
            "rounds": 500,
            "seeds": 3,
            "model": model,
            "train": train,
            "modes": modes,
            "methods": METHODS,
            "printed": {name: list(row) for name, row in printed.items()},
        },
        quick={"rounds": 3, "seeds": 1, "model": small, "train": {**train, "evaluate_every": 1}},
        items=_items,
        job=play_training,
        gather=_gather,
        score=_score,
        plot=_plot,
        limits=LIMITS,
        body=_body,
        about=_about(data, partition, model, lr, modes),
        trains=True,
    )
