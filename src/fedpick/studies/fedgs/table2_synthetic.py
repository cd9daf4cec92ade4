"""FedGS, Table 2, on Synthetic(0.5, 0.5): the lowest test loss of nine methods under five modes of availability."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtrit

from fedpick.policies.text import policy as policy_from_text
from fedpick.schedules import Decay
from fedpick.studies import _plots
from fedpick.studies._stats import band, interval, rounded, show, steps
from fedpick.studies._study import Finding, Found, Item, Measurement, Result, Settings, Study, seeds_of
from fedpick.studies._trained import ideal_world, play_trained, split
from fedpick.studies._verdicts import Limit, Order, above, judge, most, not_testable, order, within
from fedpick.studies.fedgs._common import PAPER, true_models
from fedpick.types import Floats
from fedpick.worlds import World
from fedpick.worlds.availability import Always, LessDataFirst, LogNormal, MoreDataFirst, SinLogNormal

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["STUDY", "claims", "printed"]

PARTS = {"IDL": Always, "LN": LogNormal, "SLN": SinLogNormal, "LDF": LessDataFirst, "MDF": MoreDataFirst}
# Table 2, Synthetic(0.5, 0.5): IDL, LN, SLN, LDF, MDF.
PRINTED = {
    "UniformSample": (0.302, 0.320, 0.324, 0.330, 0.362),
    "MDSample": (0.302, 0.322, 0.328, 0.328, 0.326),
    "Power-of-Choice": (0.691, 0.362, 0.352, 0.557, 0.301),
    "FedProx": (0.301, 0.346, 0.376, 0.319, 0.410),
    "FedGS(0)": (0.307, 0.305, 0.320, 0.309, 0.310),
    "FedGS(0.5)": (0.311, 0.306, 0.319, 0.308, 0.311),
    "FedGS(1)": (0.328, 0.306, 0.318, 0.308, 0.311),
    "FedGS(2)": (0.306, 0.307, 0.320, 0.308, 0.311),
    "FedGS(5)": (0.317, 0.307, 0.321, 0.309, 0.311),
}
BASELINES = ("UniformSample", "MDSample", "FedProx")  # those whose order with FedGS the paper claims in every mode
LIMITS = {"about as good": Limit(1.05, "times the loss: in print FedGS loses at most 5% by absence, for every alpha")}


def _item(settings: Settings, mode: str, seed: int) -> dict[str, Any]:
    shared = {name: value for name, value in settings.items() if name not in ("modes", "seeds", "seed0")}
    return {**shared, "mode": mode, "beta": settings["modes"][mode], "seed": seed}


def _items(settings: Settings) -> Sequence[Item]:
    """An item for each mode and seed: all methods get the same data and the same clients."""
    return [_item(settings, mode, seed) for seed in seeds_of(settings) for mode in settings["modes"]]


def _world(item: Item) -> World:
    people = split(item["data"], "", item["clients"], item["seed"])
    part: Any = PARTS[_mode(item["mode"])]
    return ideal_world(people.clients, part() if item["mode"] == "IDL" else part(beta=item["beta"]))


def _present(world: World, rounds: int, seed: int) -> float:
    """Mean number of available clients in a round."""
    state = world.init(seed)
    return float(np.mean([world.view(state, world.draw(state, seed, t)).available.sum() for t in range(1, rounds + 1)]))


def _job(item: Item, _: Path) -> Measurement:
    """All methods under one mode at one seed: test loss after every round."""
    from fedpick import learn

    people, world = split(item["data"], "", item["clients"], item["seed"]), _world(item)
    model = learn.logistic(people.dataset.inputs, people.dataset.classes)
    loss = {}
    for name, method in item["methods"].items():
        policy = policy_from_text(
            method["policy"].replace("{clients}", str(item["clients"])), cohort_size=item["cohort_size"]
        )
        if method.get("graph") == "true models":
            policy = replace(policy, graph=true_models(policy, item["clients"]))
        trainer = learn.Trainer(
            people,
            model,
            lr=Decay(item["lr"], item["decay"]),
            batch=item["batch"],
            steps=item["steps"],
            prox=method.get("prox", 0.0),
            aggregation=method["aggregation"],
            evaluate_every=1,
            spread_every=0,
        )
        loss[name] = play_trained(policy, world, trainer, item["rounds"], item["seed"]).metrics["test_loss"]
    return {"loss": loss, "present": _present(world, item["rounds"], item["seed"])}


def _gather(settings: Settings, found: Found) -> Result:
    at = steps(settings["rounds"], 60)
    result: Result = {name: settings[name] for name in ("rounds", "clients", "cohort_size", "seeds")}
    result |= {"at": rounded(at), "loss": {}, "present": {}, "curves": {}, "halves": {}}
    for mode in settings["modes"]:
        part = [found[_item(settings, mode, seed)] for seed in seeds_of(settings)]
        curves = {name: np.array([one["loss"][name] for one in part]) for name in settings["methods"]}
        result["loss"][mode] = {name: rounded(np.nanmin(y, axis=1)) for name, y in curves.items()}
        result["present"][mode] = rounded([one["present"] for one in part])
        bands = {name: band(y[:, at - 1]) for name, y in curves.items()}
        result["curves"][mode] = {name: rounded(mean) for name, (mean, _) in bands.items()}
        result["halves"][mode] = {name: rounded(half) for name, (_, half) in bands.items()}
    return result


def _ratio(a: ArrayLike, b: ArrayLike) -> str:
    """Geometric mean of a/b with its 95% interval, in words."""
    gap = interval(np.log(a) - np.log(b))
    width = f" ({np.exp(gap.low):.2f} to {np.exp(gap.high):.2f})" if np.isfinite(gap.half) else ""
    return f"{np.exp(gap.mean):.2f}{width}"


def _spread(values: ArrayLike) -> tuple[float, float]:
    """95% t prediction interval for one more data set, for numbers > 0."""
    x = np.log(values)
    if len(x) < 2:
        return 0.0, float("inf")
    half = stdtrit(len(x) - 1, 0.975) * x.std(ddof=1) * np.sqrt(1 + 1 / len(x))
    return float(np.exp(x.mean() - half)), float(np.exp(x.mean() + half))


def _mode(name: str) -> str:
    """The paper's mode of a column: "MDF" of "MDF, beta = 0.7", which is another degree of it."""
    return name.partition(",")[0]


def printed(mode: str) -> dict[str, float]:
    """The column of the table."""
    return {name: row[list(PARTS).index(_mode(mode))] for name, row in PRINTED.items()}


def _levels(mode: str, loss: Mapping[str, list[float]], present: list[float], size: int) -> Finding:
    """The printed losses beside ours."""
    paper = {name: value for name, value in printed(mode).items() if name in loss}
    base, own = paper["UniformSample"], loss["UniformSample"]
    low, high = _spread(own)
    outside = []
    if not low <= base <= high:
        outside.append(f"UniformSample: one data set lies between {low:.2f} and {high:.2f}")
    for name, value in paper.items():
        if name == "UniformSample":
            continue
        ratio = np.divide(loss[name], own)
        low, high = _spread(ratio)
        if not low <= value / base <= high:
            outside.append(f"{name}: {value / base:.2f} printed, {_ratio(loss[name], own)} here")
    apart = [name for name, value in paper.items() if abs(np.mean(loss[name]) - value) > interval(loss[name]).half]
    judged = not_testable(
        "the level goes with the data, and the paper's one data set is not at hand (UniformSample over ours: "
        f"{min(own):.2f} to {max(own):.2f})"
    )
    notes = [f"{np.mean(present):.1f} clients are there on average"]
    if apart:
        notes.append(f"further from the print than the interval of our mean: {', '.join(apart)}")
    if outside:
        notes.append("ratios to UniformSample that no data set like ours should give: " + "; ".join(outside))
    if _mode(mode) == "MDF":
        notes.append(
            "beta is not printed: 0.5, with which the losses are like the print, is judged, and 0.7, as in the "
            "authors' configurations, stands beside it"
        )
    if "FedGS(1), printed" in loss:
        notes.append(f"FedGS(1) with scale and sigma^2 as printed: {show(loss['FedGS(1), printed'], 3)}")
    return Finding(
        f"Lowest test loss under {mode}, {size} clients a round",
        ", ".join(f"{name} {value:.3f}" for name, value in paper.items()),
        "; ".join(f"{name} {show(loss[name], 3)}" for name in paper),
        judged,
        ". ".join(notes),
        own="," in mode,
    )


def _worst(loss: Mapping[str, Mapping[str, list[float]]], name: str) -> tuple[Floats, str]:
    """The mode that is worst for this method compared with IDL: logarithms of the factor by seed, and a text."""
    costs = {m: np.log(of[name]) - np.log(loss["IDL"][name]) for m, of in loss.items() if m != "IDL"}
    mode = max(costs, key=lambda m: float(costs[m].mean()))
    return costs[mode], f"{name} {np.exp(costs[mode].mean()) - 1:+.1%} ({mode})"


def _beaten(mode: str, loss: Mapping[str, list[float]], claim: str) -> Order:
    """An order of two by their ratio, with the printed size where the paper's numbers have this order."""
    a, b = claim.split(" > ")
    size = float(np.log(printed(mode)[a] / printed(mode)[b]))
    return order(loss, claim, digits=3, ratio=True, sizes={claim: size} if size > 0 else None)


SPLIT = "Their oracle graph compares the clients' true models, ours label shares; each seed draws data of its own"


def claims(result: Result, data: str = SPLIT) -> list[Finding]:
    """What the text claims of the table; `data` says in words how the data was made."""
    loss = {mode: of for mode, of in result["loss"].items() if "," not in mode}
    gs = [name for name in PRINTED if name.startswith("FedGS")]
    silent = (
        f"{result['rounds']} rounds and {result['cohort_size']} of {result['clients']} clients (the authors' "
        "configurations have 300 and 6; the paper's appendix is not at hand). UniformSample and FedGS average by data "
        f"size, MDSample, FedProx and Power-of-Choice equally, as in their code. {data}"
    )
    worst = {name: _worst(loss, name) for name in PRINTED}
    allowed = float(np.log(LIMITS["about as good"].value))
    costs = [
        check
        for name in gs
        for check in (
            *(above(worst[n][0] - worst[name][0], f"{n} loses more than {name}", ratio=True) for n in BASELINES[:2]),
            within(worst[name][0], f"{name} loses little", high=allowed, ratio=True),
        )
    ]
    findings = [
        Finding(
            "Availability costs FedGS least: the worst mode against IDL",
            "UniformSample +19.8% (MDF), MDSample +8.6% (LDF), FedGS at most 5% for every alpha",
            "; ".join(words for _, words in worst.values()),
            judge(costs),
            f"each alpha must lose less than UniformSample and MDSample, and at most 5%. {silent}",
        )
    ]
    for mode, paper in (("LN", "0.305 against 0.320"), ("SLN", "0.318 against 0.324"), ("LDF", "0.308 against 0.319")):
        rivals = (*BASELINES, "Power-of-Choice")
        orders = [_beaten(mode, loss[mode], f"{name} > FedGS(1)") for name in rivals]
        findings.append(
            Finding(
                f"FedGS has the lowest loss under {mode}",
                f"{paper} of the best other method",
                "loss over that of FedGS(1): "
                + "; ".join(f"{name} {_ratio(loss[mode][name], loss[mode]['FedGS(1)'])}" for name in rivals),
                judge([check for one in orders for check in one.checks]),
                "judged at alpha = 1, chosen beforehand: the paper takes the best of five",
            )
        )
    ideal = loss["IDL"]
    close = [
        within(np.log(ideal["FedGS(2)"]) - np.log(ideal[n]), f"FedGS(2) over {n}", high=allowed, ratio=True)
        for n in BASELINES[:2]
    ]
    pow_d = _beaten("IDL", ideal, "Power-of-Choice > UniformSample")
    biased = loss["MDF"]
    gains = [_beaten("MDF", biased, f"{name} > FedGS(1)") for name in BASELINES[:2]]
    gains.append(_beaten("MDF", biased, "FedGS(1) > Power-of-Choice"))
    positive = [name for name in gs if name != "FedGS(0)"]
    helped = [
        above(
            np.log(of["FedGS(0)"]) - np.mean([np.log(of[name]) for name in positive], axis=0),
            f"{mode}: FedGS(0) > the mean of alpha > 0",
            ratio=True,
        )
        for mode, of in loss.items()
    ]
    findings += [
        Finding(
            "With everyone there (IDL), FedGS is about as good as UniformSample and MDSample",
            "0.306 (alpha = 2) against 0.302",
            "loss of FedGS(2) over theirs: "
            + "; ".join(f"{name} {_ratio(ideal['FedGS(2)'], ideal[name])}" for name in BASELINES[:2]),
            judge(close),
        ),
        Finding(
            "Under MDF FedGS beats UniformSample and MDSample, and Power-of-Choice is best",
            "14.3% and 4.9% better; Power-of-Choice 0.301 against 0.310",
            "loss over that of FedGS(1): "
            + "; ".join(f"{n} {_ratio(biased[n], biased['FedGS(1)'])}" for n in (*BASELINES[:2], "Power-of-Choice")),
            judge([check for one in gains for check in one.checks]),
        ),
        Finding(
            "Power-of-Choice is unstable: far worse than the others under IDL",
            "0.691 against 0.302 ('almost 200% worse')",
            f"loss over that of UniformSample: {_ratio(ideal['Power-of-Choice'], ideal['UniformSample'])}",
            judge(pow_d.checks),
            "0.691 is 129% above 0.302",
        ),
        Finding(
            "alpha > 0 improves on alpha = 0 in most modes",
            "said of all three data sets; on this one 6 of 20 entries are lower and 12 higher, by 0.001 to 0.002 but "
            "for IDL",
            "loss over that of FedGS(0): "
            + "; ".join(
                f"{mode}: " + ", ".join(f"{n[5:]} {_ratio(of[n], of['FedGS(0)'])}" for n in positive)
                for mode, of in loss.items()
            ),
            judge([most(helped, "alpha > 0 improves in most modes")]),
            "by the geometric mean over alpha > 0. " + ". ".join(check.seen for check in helped),
        ),
    ]
    return findings


def _score(result: Result) -> list[Finding]:
    every = result["loss"].items()
    return claims(result) + [_levels(mode, of, result["present"][mode], result["cohort_size"]) for mode, of in every]


def _plot(result: Result) -> "Figure":
    modes = list(result["curves"])
    names = ("UniformSample", "MDSample", "Power-of-Choice", "FedProx", "FedGS(0)", "FedGS(1)", "FedGS(5)")
    figure, axes = _plots.figure(11, 5.4, columns=len(modes), rows=2, sharey="row")
    for column, mode in enumerate(modes):
        for i, name in enumerate(names):
            curve, look = np.asarray(result["curves"][mode][name]), _plots.line(i)
            axes[0][column].plot(result["at"], curve, label=name, **look)
            if "halves" in result:  # results of earlier versions have none
                half = np.asarray(result["halves"][mode][name])
                low = np.maximum(curve - half, 0.5 * curve)  # the axis is logarithmic
                axes[0][column].fill_between(result["at"], low, curve + half, color=look["color"], alpha=0.15, lw=0)
            found = interval(result["loss"][mode][name])
            bar = found.half if np.isfinite(found.half) else 0.0
            axes[1][column].errorbar(
                i, found.mean, bar, color=_plots.COLOURS[i], marker=_plots.MARKERS[i], markersize=5, capsize=2
            )
            axes[1][column].plot(i, printed(mode)[name], marker="_", color="black", markersize=12)
        axes[0][column].set_title(mode, fontsize=10)
        axes[0][column].set_yscale("log")
        axes[0][column].set_xlabel("rounds")
        axes[1][column].set_xticks([])
    axes[0][0].set_ylabel("test loss, mean" + (" and 95% interval" if "halves" in result else " of seeds"))
    axes[1][0].set_ylabel("lowest test loss (bar: printed)")
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=len(names))
    return figure


STUDY = Study(
    id="fedgs/table2-synthetic",
    title="Lowest test loss on Synthetic(0.5, 0.5) under five modes of availability",
    paper=PAPER + ", Table 2",
    settings={
        "data": "synthetic(0.5, 0.5)",
        "clients": 30,
        "cohort_size": 6,
        "rounds": 300,
        "seeds": 12,
        "batch": 10,
        "steps": 10,
        "lr": 0.1,
        "decay": 0.998,
        # Degrees of absence: those of the authors' configurations, but for MDF, where 0.7 does not give the print.
        "modes": {"IDL": 0.0, "LN": 0.5, "SLN": 0.5, "LDF": 0.7, "MDF": 0.5, "MDF, beta = 0.7": 0.7},
        "methods": {
            "UniformSample": {"policy": "uniform", "aggregation": "fedavg"},
            "MDSample": {"policy": "size-weighted", "aggregation": "mean"},
            "Power-of-Choice": {"policy": "pow-d(candidates={clients})", "aggregation": "mean"},
            "FedProx": {"policy": "size-weighted", "aggregation": "mean", "prox": 0.01},
            **{
                f"FedGS({alpha:g})": {"policy": f"fedgs(alpha={alpha})", "aggregation": "fedavg"}
                for alpha in (0.0, 0.5, 1.0, 2.0, 5.0)
            },
            "FedGS(1), printed": {"policy": "fedgs(alpha=1.0, scale='paper', sigma2=0.01)", "aggregation": "fedavg"},
        },
    },
    quick={"rounds": 20, "seeds": 2},
    items=_items,
    job=_job,
    gather=_gather,
    score=_score,
    plot=_plot,
    limits=LIMITS,
    about="Logistic regression on Synthetic(0.5, 0.5) with 30 clients, 6 a round, 10 local steps with batches of 10, "
    "learning rate 0.1 that falls by 0.2% a round; each seed draws data of its own, the paper has one data set. "
    "Rounds, cohort and degrees of absence are those of the authors' configurations, except MDF's, which is not "
    "printed. Our oracle graph compares shares of labels, theirs the clients' true models",
    trains=True,
)
