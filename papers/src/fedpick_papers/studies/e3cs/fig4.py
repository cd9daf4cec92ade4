"""E3CS, section VI-B1, Fig. 4: how much participation is effective."""

from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from fedpick_papers.studies import _plots
from fedpick_papers.studies._stats import band, rounded, show, steps
from fedpick_papers.studies._study import Finding, Found, Item, Result, Settings, Study, seeds_of
from fedpick_papers.studies._verdicts import Limit, above, judge, order, within
from fedpick_papers.studies.e3cs._common import (
    ABOUT,
    BASE,
    LOOKS,
    LOSS,
    PAPER,
    SCHEMES,
    TRAINING,
    drawn,
    item_of,
    play,
    runs_of,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["STUDY"]

# Our own check with another program, 40 seeds and an exact sampling design: mean CEP at T = 2500.
CHECK = {
    "FedCS": 44_988,
    "E3CS-0": 43_314,
    "E3CS-0.5": 34_084,
    "E3CS-inc": 28_189,
    "E3CS-0.8": 27_737,
    "Random": 23_761,
}
ORDER = "FedCS > E3CS-0 > E3CS-0.5 > E3CS-inc = E3CS-0.8 > Random"
EARLY = "E3CS-0.5 > E3CS-0.8 > Random"
LIMITS = {
    "CEP, the same": Limit(0.02, "of the plot's height k T: read as the same curve"),
    "success ratio, the same": Limit(0.01, "a fifth of a client in a cohort of 20"),
    "CEP, the programs agree": Limit(
        0.02, "relative; the other program has 40 seeds of its own, and errors of its own"
    ),
}
SAMPLED = ("E3CS-0", "E3CS-0.5", "E3CS-0.8", "E3CS-inc")  # schemes that the sampler matters to


def _variants(settings: Settings) -> list[tuple[str, str, str, str]]:
    """(variant, scheme, world, policy) of every row."""
    schemes, worlds = settings["schemes"], settings["worlds"]
    rows = [(variant, name, worlds[variant], schemes[name]) for variant, name in product(worlds, schemes)]
    rows += [("iid", name, worlds["iid"], policy) for name, policy in settings["by_loss"].items()]
    return rows + [("multinomial", name, worlds["iid"], drawn(schemes[name])) for name in SAMPLED]


def _items(settings: Settings) -> Sequence[Item]:
    return [
        item_of(settings, world, policy, seed)
        for _, _, world, policy in _variants(settings)
        for seed in seeds_of(settings)
    ]


def _gather(settings: Settings, found: Found) -> Result:
    rounds = settings["rounds"]
    early, at = max(rounds // 4, 1), steps(rounds, 100)
    result: Result = {
        "rounds": rounds,
        "cohort_size": settings["cohort_size"],
        "early": early,
        "check": settings["check"] if rounds == BASE["rounds"] else None,
        "at": rounded(at),
        "cep": {},
        "cep_early": {},
        "late_ratio": {},
        "turned_ratio": {},
        "curves": {},
    }
    for variant, name, world, policy in _variants(settings):
        wins = np.array([run["successes"] for run in runs_of(settings, found, world, policy)])
        total = wins.cumsum(axis=1)
        k = settings["cohort_size"]
        for key, value in (
            ("cep", total[:, -1]),
            ("cep_early", total[:, early - 1]),
            ("late_ratio", wins[:, -max(rounds // 10, 1) :].mean(axis=1) / k),
            ("turned_ratio", wins[:, early:].mean(axis=1) / k),
        ):
            result[key].setdefault(variant, {})[name] = rounded(value)
        mean, half = band(total[:, at - 1])
        result["curves"].setdefault(variant, {})[name] = {"cep": rounded(mean), "half": rounded(half)}
    return result


def _score(result: Result) -> list[Finding]:
    exact = result["cep"]["iid"]
    # E3CS as the paper draws, by multinomialNR; the other schemes have no such choice.
    measured = ("cep", "cep_early", "late_ratio", "turned_ratio")
    cep, early, late, turning = ({**result[one]["iid"], **result[one]["multinomial"]} for one in measured)
    limit = {name: each.value for name, each in LIMITS.items()}
    tolerance = limit["CEP, the same"] * result["cohort_size"] * result["rounds"]
    whole = order(cep, f"{ORDER} > pow-d", same=tolerance)
    gap = np.asarray(cep["E3CS-inc"]) - np.asarray(cep["E3CS-0.8"])
    start = [order(early, f"FedCS > E3CS-0 > {EARLY} > pow-d"), order(early, f"E3CS-inc > {EARLY.split(' > ')[0]}")]
    quota = order(late, "E3CS-0 > E3CS-0.5 > E3CS-0.8", digits=3)
    turned = {name: turning[name] for name in ("E3CS-inc", "Random")}
    before = np.asarray(early["E3CS-inc"]) / (result["early"] * result["cohort_size"])
    same = limit["success ratio, the same"]
    findings = [
        Finding(
            f"CEP over the whole session: {ORDER} > pow-d",
            "the order; no numbers",
            whole.shown,
            judge(whole.checks),
            f"E3CS-inc less E3CS-0.8 is {show(gap)}, '=' means at most {tolerance:,.0f}",
        ),
        Finding(
            f"CEP over the first quarter ({result['early']} rounds): FedCS > E3CS-0, E3CS-inc > {EARLY} > pow-d",
            f"FedCS > E3CS-0 > E3CS-inc > {EARLY} > pow-d; no numbers",
            start[0].shown,
            judge([check for one in start for check in one.checks]),
            "E3CS-0 > E3CS-inc is not asked for: until round T/4 they are the same policy, so that at one seed the two "
            "are equal, and the paper's '>' between them can only be chance",
        ),
        Finding(
            "The larger the quota, the lower the success ratio that E3CS converges to",
            "curves only",
            f"success ratio over the last tenth: {quota.shown}",
            judge(quota.checks),
        ),
        Finding(
            "E3CS-inc turns at round T/4 and is a random selection from there on",
            "'a significant turn in Round 625'",
            f"success ratio after T/4: E3CS-inc {show(turned['E3CS-inc'], 4)}, Random {show(turned['Random'], 4)}; "
            f"before: {show(before, 3)}",
            judge(
                [
                    above(before - turned["E3CS-inc"], "the ratio falls at T/4", digits=3),
                    within(np.subtract(*turned.values()), "E3CS-inc less Random", low=-same, high=same, digits=4),
                ]
            ),
        ),
    ]
    if result["check"]:
        off = {name: np.asarray(exact[name]) / value - 1 for name, value in result["check"].items()}
        apart = limit["CEP, the programs agree"]
        findings.append(
            Finding(
                "CEP at T = 2500 agrees with an independent program (40 seeds, exact sampling)",
                "curves only; the program: " + ", ".join(f"{n} {v:,}" for n, v in result["check"].items()),
                ", ".join(f"{name} {show(100 * gap, 2, '%')}" for name, gap in off.items()),
                judge([within(gap, name, low=-apart, high=apart, digits=4) for name, gap in off.items()]),
                extension=True,
            )
        )
    bursts = order(result["cep"]["markov"], ORDER, same=tolerance)
    drop = {name: np.mean(markov) / np.mean(exact[name]) - 1 for name, markov in result["cep"]["markov"].items()}
    exactly = order(exact, f"{ORDER} > pow-d", same=tolerance)
    lost = {name: np.subtract(cep[name], exact[name]) for name in SAMPLED}
    findings += [
        Finding(
            "The order also holds when crashes last (Markov volatility, mean spells of 10 rounds)",
            "argued for, not run",
            bursts.shown,
            judge(bursts.checks),
            "Change of CEP: " + ", ".join(f"{n} {d:+.1%}" for n, d in drop.items()),
            extension=True,
        ),
        Finding(
            "The order of CEP also holds with exact sampling (pivotal)",
            "the paper draws by multinomialNR, taking p for its inclusion",
            exactly.shown,
            judge(exactly.checks),
            "CEP of multinomialNR less that of the exact design: "
            + ", ".join(f"{n} {show(d)}" for n, d in lost.items()),
            extension=True,
        ),
    ]
    return findings


def _plot(result: Result) -> "Figure":
    at = np.asarray(result["at"])
    figure, axes = _plots.figure(10, 5.6, columns=3, rows=2, sharex=True, sharey="row")
    titles = {"iid": "independent failures (the paper)", "markov": "crashes that last (Markov)"}
    titles["multinomial"] = "the paper's sampler"
    names = list(result["curves"]["iid"])
    for column, (variant, title) in enumerate(titles.items()):
        for name in names:
            if variant == "markov" and name not in result["curves"][variant]:
                continue
            curve = result["curves"][variant].get(name, result["curves"]["iid"][name])
            cep, half = np.asarray(curve["cep"]), np.asarray(curve["half"])
            most = at * result["cohort_size"]
            _plots.banded(axes[0][column], at, cep / most, half / most, LOOKS[name], name)
            _plots.banded(axes[1][column], at, cep, half, LOOKS[name])
        axes[0][column].set_title(title, fontsize=10)
        axes[1][column].set_xlabel("communication rounds")
    axes[0][0].set_ylabel("success ratio")
    axes[1][0].set_ylabel("cumulative effective participation")
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=len(names))
    return figure


STUDY = Study(
    id="e3cs/fig4",
    title="Success ratio and cumulative effective participation (CEP) over rounds",
    paper=PAPER + ", Fig. 4",
    settings={
        **BASE,
        "worlds": {"iid": "e3cs", "markov": "bursts"},
        "schemes": SCHEMES,
        "by_loss": LOSS,
        "training": TRAINING,
        "check": CHECK,
    },
    quick={"rounds": 40, "seeds": 2},
    items=_items,
    job=play,
    gather=_gather,
    score=_score,
    plot=_plot,
    limits=LIMITS,
    about=ABOUT,
    trains=True,
)
