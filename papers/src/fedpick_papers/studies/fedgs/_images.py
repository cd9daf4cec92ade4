"""FedGS, Table 2 and Fig. 5, on images: the lowest test loss of nine methods under modes of availability."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from fedpick.core.types import Floats
from fedpick_papers.studies import _plots
from fedpick_papers.studies._runs import play_training
from fedpick_papers.studies._stats import band, interval, rounded, show, steps
from fedpick_papers.studies._study import Finding, Found, Item, Result, Settings, Study, beside, seeds_of
from fedpick_papers.studies._trained import NAMES
from fedpick_papers.studies._verdicts import FEWEST, Limit, above, judge, most, not_testable, order, within
from fedpick_papers.studies.fedgs._common import BEST, PAPER, best

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
COUNTED = "fedgs/table2-cifar10"
FIG5 = ("YMF", "LN")  # on Fashion-MNIST and on CIFAR-10
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
    result |= {"spread": {}, "rough": {}}
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
        result["rough"][mode] = {name: rounded(_rough([one["loss"] for one in part])) for name, part in runs.items()}
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


def _rough(curves: ArrayLike) -> Floats:
    """How much a loss goes up and down in the second half: mean size of its relative changes in %, for each curve."""
    logs = np.log(np.atleast_2d(np.asarray(curves, dtype=np.float64)))
    changes = np.abs(np.diff(logs[:, (logs.shape[1] - 1) // 2 :], axis=1))
    means: Floats = 100 * changes.sum(axis=1) / max(changes.shape[1], 1)  # one evaluation has no changes
    return means


def _stable(result: Result) -> list[Finding]:
    """What the text says of Fig. 5, which shows one mode of each data set."""
    mode, one = next(mode for mode in FIG5 if mode in result["loss"]), "FedGS(1)"
    whole = "rough" in result  # results of earlier versions have only the mean over seeds
    rough = {
        name: np.asarray(result["rough"][mode][name]) if whole else _rough(result["curves"][mode][name]["mean"])
        for name in (*BASELINES, one)
    }
    return [
        Finding(
            f"FedGS stabilizes the training under {mode}: its loss goes up and down less (Fig. 5)",
            "'can stabilize FL training'; curves only",
            "; ".join(f"{name} {show(values, 1, '%')}" for name, values in rough.items())
            if whole
            else "of the mean over seeds: " + "; ".join(f"{n} {x.mean():.1f}%" for n, x in rough.items()),
            judge([check for name in BASELINES for check in order(rough, f"{name} > {one}", digits=1).checks])
            if whole
            else not_testable("this result has no curves of single seeds, only their mean; a new run keeps them"),
            "mean size of the relative change from one evaluation to the next, in the second half of the rounds. That "
            "FedGS can 'find a better solution', which the text says of the same curves, is counted in the lowest loss",
        )
    ]


def _lowest(result: Result, i: int, mode: str) -> list[Finding]:
    """That some alpha has the lowest loss of all, as the text says; and alpha = 1 alone, chosen beforehand."""
    loss, printed = result["loss"][mode], {name: row[i] for name, row in result["printed"].items()}
    (name, rival), (first, second) = best(loss, BASELINES), best(printed, BASELINES)
    size, one = float(np.log(printed[second] / printed[first])), "FedGS(1)"
    ours, others = ([n for n, value in printed.items() if value == printed[each]] for each in (first, second))
    sizes = {each: float(np.log(printed[each] / printed[one])) for each in BASELINES}
    return [
        Finding(
            f"The lowest loss under {mode} is of FedGS, with some alpha",
            f"'all the optimal results': {', '.join(others)} over {', '.join(ours)}: {np.exp(size):.3f}",
            f"{rival} over {name}: {_ratio(loss[rival], loss[name])}",
            judge(order(loss, f"{rival} > {name}", digits=3, ratio=True, sizes={f"{rival} > {name}": size}).checks),
            BEST,
        ),
        Finding(
            f"FedGS(1) has a lower loss under {mode} than every other method",
            "over FedGS(1): " + "; ".join(f"{name} {np.exp(size):.3f}" for name, size in sizes.items()),
            "; ".join(f"{name} {_ratio(loss[name], loss[one])}" for name in BASELINES),
            judge(
                [
                    check
                    for each, gap in sizes.items()
                    for check in order(
                        loss, f"{each} > {one}", ratio=True, sizes={f"{each} > {one}": gap} if gap > 0 else None
                    ).checks
                ]
            ),
            "alpha = 1 was chosen beforehand, so that chance does not favour it",
            extension=True,
        ),
    ]


def _score(result: Result) -> list[Finding]:
    loss, modes = result["loss"], list(result["modes"])
    findings = [finding for i, mode in enumerate(modes) for finding in _lowest(result, i, mode)]
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
            "by the geometric mean over the four alpha > 0; each is in the table. The sentence is about the eight "
            f"columns of CIFAR-10 and Fashion-MNIST together; it is counted once, in {COUNTED}, which has five of them",
            extension=FIG5[0] in loss,  # Fashion-MNIST
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
            "Fig. 4 is counted in fedgs/fig4-counts",
            extension=True,
        ),
    ]
    return [*findings, *_stable(result)]


def _body(result: Result) -> str:
    ours = {name: [show(of[name], 3) for of in result["loss"].values()] for name in next(iter(result["loss"].values()))}
    paper = {name: [f"{value:.3f}" for value in row] for name, row in result["printed"].items()}
    return beside(["method", *result["loss"]], ours, paper)


def _about(data: str, held: str, network: str, lr: float, modes: dict[str, float]) -> str:
    degrees = ", ".join(f"{mode} {beta:g}" for mode, beta in modes.items() if mode != "IDL")
    return (
        f"{NAMES[data]} among 100 clients, {held}; 10 of them train {network} in a round: ten steps with batches of "
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
    figure.legend(*named, loc="outside lower center", ncols=4, title=f"curves: {_plots.seeds_label(seeds)}")
    return figure


def study(
    data: str,
    partition: str,
    model: str,
    small: str,
    lr: float,
    modes: dict[str, float],
    printed: Printed,
    *,
    held: str,
    network: str,
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
        held: what each client holds, in words.
        network: the network, in words.
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
        about=_about(data, held, network, lr, modes),
        trains=True,
    )
