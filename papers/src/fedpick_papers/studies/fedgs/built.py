"""FedGS on graphs that are built from the models of clients, beside the oracle's graph (appendix B)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpick_papers.studies import _plots
from fedpick_papers.studies._runs import play_training
from fedpick_papers.studies._stats import band, rounded, show, steps
from fedpick_papers.studies._study import Finding, Found, Item, Result, Settings, Study, seeds_of
from fedpick_papers.studies._trained import NAMES
from fedpick_papers.studies._verdicts import Limit, above, judge, within
from fedpick_papers.studies.fedgs._common import PAPER
from fedpick_papers.studies.fedgs._images import availability

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["STUDIES"]

ORACLE, BUILT = "FedGS(1), oracle", ("FedGS(1), func-sim", "FedGS(1), cos-sim")
LIMITS = {
    "about as good": Limit(1.05, "times the oracle's loss: as in fedgs/table2-synthetic, what the paper calls little")
}


def _item(settings: Settings, mode: str, method: str, seed: int) -> dict[str, Any]:
    left_out = ("modes", "methods", "seeds", "seed0", "model")
    shared = {name: value for name, value in settings.items() if name not in left_out}
    shared["train"] = {**settings["train"], "aggregation": "fedavg", "model": settings["model"]}
    part = availability(mode, settings["modes"][mode])
    return {**shared, **part, "policy": settings["methods"][method], "seed": seed}


def _items(settings: Settings) -> Sequence[Item]:
    return [
        _item(settings, mode, method, seed)
        for seed in seeds_of(settings)
        for mode in settings["modes"]
        for method in settings["methods"]
    ]


def _gather(settings: Settings, found: Found) -> Result:
    result: Result = {name: settings[name] for name in ("data", "rounds", "clients", "cohort_size", "seeds", "model")}
    result |= {"loss": {}, "curves": {}}
    for mode in settings["modes"]:
        runs = {
            name: [found[_item(settings, mode, name, seed)] for seed in seeds_of(settings)]
            for name in settings["methods"]
        }
        result["loss"][mode] = {name: rounded([np.nanmin(one["loss"]) for one in part]) for name, part in runs.items()}
        result["curves"][mode] = {}
        for name, part in runs.items():
            at = part[0]["at"]
            shown = steps(len(at), 50) - 1
            mean, half = band(np.array([one["loss"][shown] for one in part]))
            result["at"] = rounded(at[shown])
            result["curves"][mode][name] = {"mean": rounded(mean), "half": rounded(half)}
    return result


def _score(result: Result) -> list[Finding]:
    allowed, loss = float(np.log(LIMITS["about as good"].value)), result["loss"]

    def shown(*names: str) -> str:
        return "; ".join(
            f"{mode}: " + ", ".join(f"{name} {show(of[name], 3)}" for name in names) for mode, of in loss.items()
        )

    findings = [
        Finding(
            f"On the graph built with {built[10:]}, FedGS loses little against the oracle's graph",
            "in appendix B, which is not at hand",
            shown(ORACLE, built),
            judge(
                [
                    within(np.log(of[built]) - np.log(of[ORACLE]), f"{mode}: {built} over the oracle's", high=allowed,
                           ratio=True)
                    for mode, of in loss.items()
                ]
            ),
            "clients report as they take part, and the graph is refined from round to round"
            + ("" if result["data"].startswith("synthetic") else "; updates of networks as sketches of 1,024 numbers"),
            extension=True,
        )
        for built in BUILT
    ]  # fmt: skip
    better = [
        above(np.log(of["UniformSample"]) - np.log(of[BUILT[0]]), f"{mode}: UniformSample > {BUILT[0]}", ratio=True)
        for mode, of in loss.items()
    ]
    findings.append(
        Finding(
            "FedGS on the graph built with func-sim has a lower loss than UniformSample",
            "in appendix B, which is not at hand",
            shown("UniformSample", "FedGS(0)", BUILT[0]),
            judge(better),
            "FedGS(0), which has no graph, shows what equal counts alone give",
            extension=True,
        )
    )
    return findings


def _plot(result: Result) -> "Figure":
    modes = list(result["curves"])
    figure, axes = _plots.figure(3.4 * len(modes) + 1, 5.4, columns=len(modes), rows=2, sharey="row")
    for column, mode in enumerate(modes):
        for i, (name, curve) in enumerate(result["curves"][mode].items()):
            seeds = len(result["loss"][mode][name])
            _plots.banded(axes[0][column], result["at"], curve["mean"], curve["half"], i, name, seeds)
            _plots.spread(axes[1][column], i, result["loss"][mode][name], i)
        axes[0][column].set_title(mode, fontsize=10)
        axes[0][column].set_xlabel("rounds")
        axes[1][column].set_xticks([])
    axes[0][0].set_ylabel("test loss")
    axes[1][0].set_ylabel("lowest test loss")
    named = axes[0][0].get_legend_handles_labels()
    figure.legend(*named, loc="outside lower center", ncols=3, title=f"curves: {_plots.seeds_label(seeds)}")
    return figure


def _study(
    data: str,
    partition: str,
    model: str,
    small: str,
    modes: dict[str, float],
    train: dict[str, Any],
    *,
    update: str = "sketch_1024",
    **more: Any,
) -> Study:
    """A data set of Table 2.

    Args:
        data: its name.
        partition: what each client holds.
        model: the network.
        small: a network for a quick check of the form.
        modes: of availability, with their degree of absence.
        train: settings of the training.
        update: the report that cos-sim is computed from.
        more: settings that differ.
    """
    train = {"momentum": 0.0, "steps": 10, "evaluate_every": 10, **train}
    return Study(
        id=f"fedgs/built-{data.partition('(')[0]}",
        title=f"FedGS on graphs built from models, on {NAMES.get(data, data)}",
        paper=f"{PAPER}, section 4.4 and appendix B",
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
            "methods": {
                "UniformSample": "uniform",
                "FedGS(0)": "fedgs(alpha=0.0)",
                ORACLE: "fedgs(alpha=1.0, graph='features')",
                BUILT[0]: "fedgs(alpha=1.0, graph='embedding')",
                BUILT[1]: f"fedgs(alpha=1.0, graph='{update}')",
            },
            **more,
        },
        quick={"rounds": 3, "seeds": 1, "model": small, "train": {**train, "evaluate_every": 1}},
        items=_items,
        job=play_training,
        gather=_gather,
        score=_score,
        plot=_plot,
        limits=LIMITS,
        about="FedGS(1) with the oracle's graph (label shares), and with graphs that grow from what clients send: "
        "the cosine of their updates (11, cos-sim) or of their models' mean outputs on Gaussian noise (12, func-sim). "
        "The paper builds the graph once, with everyone there; here it is built and refined as clients take part, "
        "which needs no such round. Data, networks and learning rates as in Table 2; the cohort, the rounds and the "
        "degrees of absence are our choice",
        trains=True,
    )


STUDIES = (
    _study(
        "synthetic(0.5, 0.5)",
        "",
        "logistic",
        "logistic",
        {"IDL": 0.0, "LN": 0.5, "MDF": 0.5},
        {"lr": "decay(0.1, 0.998)", "batch": 10},
        update="update",
        clients=30,
        cohort_size=6,
        rounds=300,
        seeds=8,
    ),
    _study(
        "cifar10",
        "dirichlet(alpha=0.5)",
        "cifar-cnn",
        "mlp(hidden=(16,))",
        {"LN": 0.5},
        {"lr": "decay(0.03, 0.998)", "batch": 32},
    ),
    _study(
        "fashion-mnist",
        "labels-per-client(labels=2)",
        "cnn(channels=(32, 64), hidden=(512,))",
        "mlp(hidden=(16,))",
        {"YMF": 0.9},
        {"lr": "decay(0.1, 0.998)", "batch": 32},
    ),
)
