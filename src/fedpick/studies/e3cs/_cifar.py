"""E3CS, Table III and Fig. 6: seven schemes train the paper's network on CIFAR-10, with volatile clients."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpick.studies import _plots
from fedpick.studies._runs import play_training
from fedpick.studies._stats import band, rounded, show, steps
from fedpick.studies._study import Finding, Found, Item, Result, Settings, Study, seeds_of
from fedpick.studies._trained import reached
from fedpick.studies._verdicts import Check, Limit, judge, order, within
from fedpick.studies.e3cs._common import PAPER, SCHEMES
from fedpick.types import Floats

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["study"]

Row = tuple[int | None, int | None, int | None, float]  # first round with 45, 55 and 65% (None: never), final accuracy
# Table III by the clients' data and FedProx's gamma.
PRINTED: dict[tuple[str, float], dict[str, Row]] = {
    ("iid", 0.0): {
        "FedCS": (59, 119, None, 60.6),
        "E3CS-0": (89, 164, None, 63.8),
        "E3CS-0.5": (106, 198, 468, 69.48),
        "E3CS-0.8": (123, 228, 454, 70.94),
        "E3CS-inc": (89, 170, 650, 71.12),
        "Random": (121, 251, 515, 71.46),
        "pow-d": (126, 328, 742, 72.52),
    },
    ("non-iid", 0.0): {
        "FedCS": (246, 817, None, 57.78),
        "E3CS-0": (307, 636, None, 61.0),
        "E3CS-0.5": (362, 767, 2252, 65.6),
        "E3CS-0.8": (429, 849, 2279, 65.42),
        "E3CS-inc": (307, 631, 2127, 65.5),
        "Random": (472, 930, 2156, 65.18),
        "pow-d": (689, 1517, None, 60.54),
    },
    ("iid", 0.5): {
        "FedCS": (93, 189, None, 60.06),
        "E3CS-0": (130, 252, None, 64.18),
        "E3CS-0.5": (160, 292, 749, 68.98),
        "E3CS-0.8": (183, 356, 720, 69.62),
        "E3CS-inc": (130, 252, 698, 69.68),
        "Random": (201, 392, 806, 70.54),
        "pow-d": (208, 483, 1083, 70.38),
    },
    ("non-iid", 0.5): {
        "FedCS": (285, 1822, None, 56.08),
        "E3CS-0": (374, 1130, None, 56.56),
        "E3CS-0.5": (406, 863, None, 62.7),
        "E3CS-0.8": (499, 995, None, 63.04),
        "E3CS-inc": (374, 710, None, 63.48),
        "Random": (533, 1155, None, 62.94),
        "pow-d": (736, 1928, None, 58.48),
    },
}
PARTITIONS = {"iid": "iid(size=500, overlap=True)", "non-iid": "primary-label(share=0.8, size=500)"}
LEVELS = (0.45, 0.55, 0.65)
LIMITS = {
    "as good at the end": Limit(1.0, "point below Random at most: in print, E3CS-inc is within 0.4 points of Random"),
}


def _item(settings: Settings, policy: str, seed: int) -> dict[str, Any]:
    left_out = ("schemes", "seeds", "seed0", "model", "kind")
    shared = {name: value for name, value in settings.items() if name not in left_out}
    shared["train"] = {**settings["train"], "model": settings["model"]}
    return {**shared, "policy": policy.replace("{rounds}", str(settings["rounds"])), "seed": seed}


def _items(settings: Settings) -> Sequence[Item]:
    return [_item(settings, policy, seed) for seed in seeds_of(settings) for policy in settings["schemes"].values()]


def _gather(settings: Settings, found: Found) -> Result:
    rounds = settings["rounds"]
    result: Result = {name: settings[name] for name in ("kind", "rounds", "seeds", "model")}
    result |= {"prox": settings["train"].get("prox", 0.0), "first": {}, "final": {}, "cep": {}, "early": {}}
    result |= {"rise": {}, "curves": {}}
    for name, policy in settings["schemes"].items():
        some = [found[_item(settings, policy, seed)] for seed in seeds_of(settings)]
        at, accuracy = some[0]["at"], np.array([one["accuracy"] for one in some])
        last = max(len(at) // 50, 1)
        final, before = (
            accuracy[:, -last:].mean(axis=1),
            accuracy[:, : max(3 * len(at) // 4, 1)][:, -last:].mean(axis=1),
        )
        # A level that is not reached counts as one round after the end.
        result["first"][name] = [
            [int(np.nan_to_num(reached(at, row, level), nan=rounds + 1)) for row in accuracy] for level in LEVELS
        ]
        result["final"][name], result["rise"][name] = rounded(100 * final), rounded(100 * (final - before))
        result["cep"][name] = rounded([one["returned"].sum() for one in some])
        result["early"][name] = rounded([one["returned"][: max(rounds // 4, 1)].sum() for one in some])
        shown = steps(len(at), 125) - 1
        mean, half = band(accuracy[:, shown])
        result["at"] = rounded(at[shown])
        result["curves"][name] = {"mean": rounded(100 * mean), "half": rounded(100 * half)}
    return result


def _first(result: Result, level: int) -> dict[str, Floats]:
    """First round with this level, by scheme and seed."""
    return {name: np.asarray(rows[level], dtype=np.float64) for name, rows in result["first"].items()}


def _when(rounds: Floats, end: int) -> str:
    missing = int((rounds > end).sum())
    if missing == len(rounds):
        return "never"
    return show(rounds) + (f" ({missing} of {len(rounds)} never: {end + 1} counted)" if missing else "")


def _printed(value: float | None) -> str:
    return "never" if value is None else str(value)


def _ratio_checks(first: dict[str, Floats], printed: dict[str, Row], level: int, links: Sequence[str]) -> list[Check]:
    """Orders of two schemes by their rounds to a level, with the printed ratio where both numbers are printed."""
    checks = []
    for link in links:
        a, b = (printed[name][level] for name in link.split(" > "))
        sizes = {link: float(np.log(a / b))} if a and b and a > b else None
        checks += order(first, link, ratio=True, sizes=sizes).checks
    return checks


def _score(result: Result) -> list[Finding]:
    printed, end = PRINTED[result["kind"], result["prox"]], result["rounds"]
    final, notes = result["final"], _how(result)
    findings = []
    early = ("Random > E3CS-0", "E3CS-0 > FedCS", "Random > E3CS-inc", "Random > E3CS-0.5", "pow-d > Random")
    for level, links in ((0, early), (1, ("Random > E3CS-0", "Random > E3CS-inc", "pow-d > Random"))):
        first = _first(result, level)
        findings.append(
            Finding(
                f"More participation makes training faster: first round with {LEVELS[level]:.0%}",
                ", ".join(f"{name} {_printed(row[level])}" for name, row in printed.items()),
                "; ".join(f"{name} {_when(first[name], end)}" for name in printed),
                judge(_ratio_checks(first, printed, level, links)),
                "by ratios of rounds, with the printed ratio as the size" + (f". {notes}" if level == 0 else ""),
            )
        )
    last = _first(result, 2)
    never = [within(last[name] - end, f"{name} never has 65%", low=1.0) for name in printed if printed[name][2] is None]
    findings.append(
        Finding(
            "Which schemes never reach 65%",
            ", ".join(f"{name} {_printed(row[2])}" for name, row in printed.items()),
            "; ".join(f"{name} {_when(last[name], end)}" for name in printed),
            judge(never),
            "judged for those that never do in print",
        )
    )
    gaps = ("Random > E3CS-0", "E3CS-0 > FedCS", "E3CS-0.5 > E3CS-0", "E3CS-0.8 > E3CS-0", "E3CS-inc > E3CS-0")
    sizes = {link: printed[a][3] - printed[b][3] for link in gaps for a, b in [link.split(" > ")]}
    checks = [
        check
        for link in gaps
        for check in order(final, link, digits=1, sizes={link: sizes[link]} if sizes[link] > 0 else None).checks
    ]
    findings.append(
        Finding(
            "Fairness makes the final accuracy: FedCS is lowest, E3CS-0 next",
            ", ".join(f"{name} {row[3]}%" for name, row in printed.items()),
            "; ".join(f"{name} {show(final[name], 1, '%')}" for name in printed),
            judge(checks),
            "mean of the last fiftieth of the evaluations; in the last quarter of the rounds Random still gained "
            f"{show(result['rise']['Random'], 1)} points",
        )
    )
    below = LIMITS["as good at the end"].value
    gap = np.asarray(final["E3CS-inc"]) - np.asarray(final["Random"])
    both = [
        *_ratio_checks(_first(result, 0), printed, 0, ["Random > E3CS-inc"]),
        within(gap, "E3CS-inc less Random at the end", low=-below, digits=1),
    ]
    a, b = printed["E3CS-inc"], printed["Random"]
    findings.append(
        Finding(
            "E3CS-inc is good at both: early as E3CS-0, at the end as the fair schemes",
            f"45% in round {a[0]} (Random {b[0]}), finally {a[3]}% (Random {b[3]}%)",
            f"45% in round {_when(_first(result, 0)['E3CS-inc'], end)}; finally less Random's: {show(gap, 1)} points",
            judge(both),
        )
    )
    participation = order(result["cep"], "FedCS > E3CS-0 > E3CS-0.5 > E3CS-0.8 > Random > pow-d")
    findings.append(
        Finding(
            "Effective participation: FedCS > E3CS-0 > E3CS-0.5 > E3CS-0.8 > Random > pow-d",
            "said of Fig. 4",
            f"returned in all: {participation.shown}",
            judge(participation.checks),
            "pow-d has twice as many candidates as places: the paper gives no d",
        )
    )
    return findings


def _how(result: Result) -> str:
    return (
        f"100 clients with 500 images each, {result['kind']}, of which each holds 10% out for the test; 20 a round, "
        f"{result['rounds']:,} rounds, the printed network ({result['model']}), SGD 0.01 with momentum 0.9, batches of "
        "40, 1 to 4 epochs, averaged as o2 (clients that do not return count with the old model); each seed draws the "
        "clients' data anew"
    )


def _plot(result: Result) -> "Figure":
    figure, axes = _plots.figure(7.2, 4.4)
    axis, printed = axes[0][0], PRINTED[result["kind"], result["prox"]]
    for i, (name, curve) in enumerate(result["curves"].items()):
        mean, half, look = np.asarray(curve["mean"]), np.nan_to_num(np.asarray(curve["half"])), _plots.line(i)
        axis.plot(result["at"], mean, label=name, **look)
        axis.fill_between(result["at"], mean - half, mean + half, color=look["color"], alpha=0.2, linewidth=0)
        marks = [(row, 100 * level) for row, level in zip(printed[name], LEVELS, strict=False) if row]
        marks.append((result["rounds"], printed[name][3]))
        axis.plot(*zip(*marks, strict=True), linestyle="none", marker=_plots.MARKERS[i], color=look["color"])
    axis.set_xlabel("communication rounds")
    axis.set_ylabel("test accuracy, % (marks: printed)")
    figure.legend(*axis.get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


def study(kind: str, prox: float = 0.0) -> Study:
    """A quarter of the table: clients' data ("iid" or "non-iid") and FedProx's gamma (0: FedAvg)."""
    method = "FedProx" if prox else "FedAvg"
    train = {"lr": 0.01, "momentum": 0.9, "batch": 40, "steps": 0, "aggregation": "o2", "evaluate_every": 5}
    return Study(
        id=f"e3cs/table3-{kind}" + ("-fedprox" if prox else ""),
        title=f"Accuracy over rounds on CIFAR-10, {kind}, {method}, seven schemes",
        paper=f"{PAPER}, Table III and Fig. 6 ({method}, {kind})",
        settings={
            "kind": kind,
            "data": "cifar10",
            "partition": PARTITIONS[kind],
            "data_settings": {"hold_out": 0.1, "test": "held-out"},
            "world": "e3cs",
            "clients": 100,
            "cohort_size": 20,
            "rounds": 2500,
            "seeds": 3,
            "model": "cifar-cnn",
            "train": {**train, "prox": prox} if prox else train,
            "schemes": {**SCHEMES, "pow-d": "pow-d(candidates=40)"},
        },
        # A network that two cores train in seconds: quick checks the form, not the numbers.
        quick={"rounds": 5, "seeds": 1, "model": "cnn(channels=(4, 4), hidden=(16,))"},
        items=_items,
        job=play_training,
        gather=_gather,
        score=_score,
        plot=_plot,
        limits=LIMITS,
        trains=True,
    )
