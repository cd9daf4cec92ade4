"""E3CS, section VI-B1: who is chosen (Fig. 3), and how much participation is effective (Fig. 4)."""

from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpick.studies import _plots
from fedpick.studies._runs import Measured, play_scheme, scheme_items
from fedpick.studies._stats import band, interval, order, rounded, show, steps, verdict
from fedpick.studies._study import Finding, Result, Settings, Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["FIG3", "FIG4"]

PAPER = (
    "Huang, Lin, Shen, Li & Zomaya (2022), Stochastic Client Selection for Federated Learning with Volatile Clients, "
    "IEEE Internet of Things Journal"
)
SCHEMES = {
    "FedCS": "fedcs",
    "E3CS-0": "e3cs(quota=0.0, learning_rate=0.5)",
    "E3CS-0.5": "e3cs(quota=0.5, learning_rate=0.5)",
    "E3CS-0.8": "e3cs(quota=0.8, learning_rate=0.5)",
    "E3CS-inc": "e3cs(quota='inc', learning_rate=0.5, horizon={rounds})",
    "Random": "uniform",
}
BASE = {
    "clients": 100,
    "cohort_size": 20,
    "rounds": 2500,
    "seeds": 10,
    "success_rates": [0.1, 0.3, 0.6, 0.9],  # of the four equal classes: those of the world "e3cs"
}


def _one_world(settings: Settings) -> Sequence[dict[str, Any]]:
    return scheme_items(settings, {"iid": settings["world"]})


# --- Fig. 3: selections per class --------------------------------------------------------------------------------


def _gather3(settings: Settings, done: list[Measured]) -> Result:
    seeds, names = settings["seeds"], list(settings["schemes"])
    counts = {name: [run.counts for run in done[i * seeds : (i + 1) * seeds]] for i, name in enumerate(names)}
    size = settings["clients"] // len(settings["success_rates"])
    return {
        "rounds": settings["rounds"],
        "success_rates": settings["success_rates"],
        "counts": {
            name: rounded(runs[0]) for name, runs in counts.items()
        },  # of the first seed: the paper shows one run
        "variance": {name: rounded([run.var() for run in runs]) for name, runs in counts.items()},
        "jain": {
            name: rounded([run.sum() ** 2 / (len(run) * (run.astype(float) ** 2).sum()) for run in runs])
            for name, runs in counts.items()
        },
        "outside_best": {name: rounded([run[:-size].mean() for run in runs]) for name, runs in counts.items()},
        "best_used": {
            # Clients of the best class with at least a tenth of an equal share of all selections.
            name: rounded([int((run[-size:] >= 0.1 * run.sum() / size).sum()) for run in runs])
            for name, runs in counts.items()
        },
        "best": size,
    }


def _score3(result: Result) -> list[Finding]:
    fair = order(result["variance"], "FedCS > E3CS-0 > E3CS-0.5 > E3CS-0.8 > Random")
    jain = "; ".join(f"{name} {show(result['jain'][name], 3)}" for name in result["jain"])
    wrong = interval(result["outside_best"]["E3CS-0"])
    share = result["outside_best"]["E3CS-0"]
    used = result["best_used"]
    all_used, few_used = min(used["E3CS-0"]), max(used["FedCS"])
    return [
        Finding(
            "Fairness of selection: Random > E3CS-0.8 > (pow-d) > E3CS-0.5 > E3CS-0 > FedCS",
            "the order, read off box plots",
            f"variance of selection counts (the lower, the fairer): {fair.shown}",
            verdict(fair.holds),
            ". ".join(
                [*fair.broken, "pow-d is left out: it ranks clients by loss, which needs training", f"Jain: {jain}"]
            ),
        ),
        Finding(
            "E3CS-0 wrongly selects suboptimal classes only dozens of times",
            "'dozens of times over a total of 2500 rounds'",
            f"{show(share)} selections per client outside the best class in {result['rounds']:,} rounds",
            verdict([12 <= wrong.mean < 100]),
            "read as selections per client, and 'dozens' as 12 to 99",
        ),
        Finding(
            f"E3CS-0 shares its choice over all {result['best']} clients of the best class, FedCS does not",
            "FedCS: 20 of 25; E3CS-0: all 25",
            f"best-class clients with at least a tenth of an equal share: E3CS-0 {show(used['E3CS-0'], 1)}, "
            f"FedCS {show(used['FedCS'], 1)}",
            verdict([all_used == result["best"], few_used < result["best"]]),
            ""
            if all_used == result["best"]
            else f"E3CS-0 gathers its probability on about as many clients as it chooses (fewest of the best class in "
            f"a seed: {all_used} of {result['best']}); whoever falls behind early is hardly tried again",
        ),
    ]


def _plot3(result: Result) -> "Figure":
    names = list(result["counts"])
    rates = result["success_rates"]
    figure, axes = _plots.figure(10, 3, columns=len(names), sharey=True)
    for axis, name in zip(axes[0], names, strict=True):
        classes = np.split(np.asarray(result["counts"][name]), len(rates))
        boxes = axis.boxplot(classes, patch_artist=True, widths=0.6, medianprops={"color": "black"})
        for box, colour in zip(boxes["boxes"], _plots.COLOURS, strict=False):
            box.set_facecolor(colour)
        axis.set_xticks(range(1, len(rates) + 1), [f"{rate:g}" for rate in rates])
        axis.set_title(name, fontsize=10)
    figure.supxlabel("success rate of the class", fontsize=9)
    axes[0][0].set_ylabel(f"times of selection in {result['rounds']:,} rounds")
    return figure


FIG3 = Study(
    id="e3cs/fig3",
    title="Times of selection over four classes of volatile clients",
    paper=PAPER + ", Fig. 3",
    settings={**BASE, "world": "e3cs", "schemes": SCHEMES},
    quick={"rounds": 1000, "seeds": 4},
    items=_one_world,
    job=play_scheme,
    gather=_gather3,
    score=_score3,
    plot=_plot3,
)

# --- Fig. 4: success ratio and cumulative effective participation ------------------------------------------------

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
EARLY = "FedCS > E3CS-0 > E3CS-inc > E3CS-0.5 > E3CS-0.8 > Random"
SAMPLED = ("E3CS-0", "E3CS-0.5", "E3CS-0.8", "E3CS-inc")  # schemes that the sampler matters to


def _variants(settings: Settings) -> list[tuple[str, str, str]]:
    """(variant, scheme, policy) of every row."""
    schemes = settings["schemes"]
    rows = [(variant, name, schemes[name]) for variant, name in product(settings["worlds"], schemes)]
    return rows + [
        ("multinomial", name, schemes[name].replace("e3cs(", "e3cs(sampler='multinomial', ")) for name in SAMPLED
    ]


def _items4(settings: Settings) -> Sequence[dict[str, Any]]:
    items = []
    for variant, name, policy in _variants(settings):
        world = settings["worlds"].get(variant, settings["worlds"]["iid"])
        items += scheme_items({**settings, "schemes": {name: policy}}, {variant: world})
    return items


def _gather4(settings: Settings, done: list[Measured]) -> Result:
    rounds, seeds = settings["rounds"], settings["seeds"]
    early, at = max(rounds // 4, 1), steps(rounds, 100)
    result: Result = {
        "rounds": rounds,
        "cohort_size": settings["cohort_size"],
        "early": early,
        "same": settings["same"],
        "check": settings["check"] if rounds == BASE["rounds"] else None,
        "at": rounded(at),
        "cep": {},
        "cep_early": {},
        "late_ratio": {},
        "turned_ratio": {},
        "curves": {},
    }
    for i, (variant, name, _) in enumerate(_variants(settings)):
        wins = np.array([run.successes for run in done[i * seeds : (i + 1) * seeds]])
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


def _score4(result: Result) -> list[Finding]:
    cep, early = result["cep"]["iid"], result["cep_early"]["iid"]
    tolerance = result["same"] * result["cohort_size"] * result["rounds"]
    whole = order(cep, ORDER, same=tolerance)
    gap = np.asarray(cep["E3CS-inc"]) - np.asarray(cep["E3CS-0.8"])
    start = order(early, EARLY)
    twins = bool(np.array_equal(early["E3CS-0"], early["E3CS-inc"]))
    late = result["late_ratio"]["iid"]
    quota = order(late, "E3CS-0 > E3CS-0.5 > E3CS-0.8", digits=3)
    turned = {name: result["turned_ratio"]["iid"][name] for name in ("E3CS-inc", "Random")}
    turn = interval(np.subtract(turned["E3CS-inc"], turned["Random"]))
    findings = [
        Finding(
            f"CEP over the whole session: {ORDER} (> pow-d)",
            "the order; no numbers",
            whole.shown,
            verdict(whole.holds),
            ". ".join(
                [
                    *whole.broken,
                    f"'=' is read as less than {result['same']:.0%} of the plot's height k T apart: E3CS-inc less "
                    f"E3CS-0.8 is {show(gap)}. pow-d is left out: it needs training",
                ]
            ),
        ),
        Finding(
            f"CEP over the first quarter ({result['early']} rounds): {EARLY} (> pow-d)",
            "the order; no numbers",
            start.shown,
            verdict(start.holds),
            "E3CS-inc is E3CS-0 until round T/4, so that at one seed the two are equal; the paper's '>' between them "
            "can only be chance" + ("" if len(start.broken) == 1 else ". " + ". ".join(start.broken))
            if twins
            else ". ".join(start.broken),
        ),
        Finding(
            "The larger the quota, the lower the success ratio that E3CS converges to",
            "curves only",
            f"success ratio over the last tenth: {quota.shown}",
            verdict(quota.holds),
            ". ".join(quota.broken),
        ),
        Finding(
            "E3CS-inc turns at round T/4 and is a random selection from there on",
            "'a significant turn in Round 625'",
            f"success ratio after T/4: E3CS-inc {show(turned['E3CS-inc'], 4)}, Random {show(turned['Random'], 4)}; "
            f"before: {show(np.asarray(early['E3CS-inc']) / (result['early'] * result['cohort_size']), 3)}",
            verdict([abs(turn.mean) < 0.01]),
            f"difference {turn.mean:+.4f} ± {turn.half:.4f}; the same means less than 0.01 apart",
        ),
    ]
    if result["check"]:
        off = {name: float(np.mean(cep[name])) / value - 1 for name, value in result["check"].items()}
        findings.append(
            Finding(
                "CEP at T = 2500 agrees with an independent program (40 seeds, exact sampling)",
                "curves only; the program: " + ", ".join(f"{n} {v:,}" for n, v in result["check"].items()),
                ", ".join(f"{name} {gap:+.2%}" for name, gap in off.items()),
                verdict([abs(gap) < 0.02 for gap in off.values()]),
                "less than 2% apart counts as agreeing",
            )
        )
    bursts = order(result["cep"]["markov"], ORDER, same=tolerance)
    drop = {name: np.mean(result["cep"]["markov"][name]) / np.mean(cep[name]) - 1 for name in cep}
    paper_draw = {**cep, **result["cep"]["multinomial"]}
    draw = order(paper_draw, ORDER, same=tolerance)
    lost = {name: np.subtract(paper_draw[name], cep[name]) for name in SAMPLED}
    findings += [
        Finding(
            "The order also holds when crashes last (Markov volatility, mean spells of 10 rounds)",
            "argued for, not run",
            bursts.shown,
            verdict(bursts.holds),
            ". ".join([*bursts.broken, "Change of CEP: " + ", ".join(f"{n} {d:+.1%}" for n, d in drop.items())]),
        ),
        Finding(
            "The order also holds with the paper's own sampler, multinomialNR",
            "the paper draws so, taking its inclusion for p",
            draw.shown,
            verdict(draw.holds),
            ". ".join(
                [
                    *draw.broken,
                    "CEP less that of the exact design: " + ", ".join(f"{n} {show(d)}" for n, d in lost.items()),
                ]
            ),
        ),
    ]
    return findings


def _plot4(result: Result) -> "Figure":
    at = np.asarray(result["at"])
    figure, axes = _plots.figure(10, 5.6, columns=3, rows=2, sharex=True, sharey="row")
    titles = {"iid": "independent failures (the paper)", "markov": "crashes that last (Markov)"}
    titles["multinomial"] = "the paper's sampler"
    names = list(result["curves"]["iid"])
    for column, (variant, title) in enumerate(titles.items()):
        for i, name in enumerate(names):
            curve = result["curves"][variant].get(name, result["curves"]["iid"][name])
            cep, half = np.asarray(curve["cep"]), np.asarray(curve["half"])
            most = at * result["cohort_size"]
            axes[0][column].plot(at, cep / most, label=name, **_plots.line(i))
            axes[1][column].plot(at, cep, **_plots.line(i))
            axes[1][column].fill_between(
                at, cep - half, cep + half, color=_plots.line(i)["color"], alpha=0.2, linewidth=0
            )
        axes[0][column].set_title(title, fontsize=10)
        axes[1][column].set_xlabel("communication rounds")
    axes[0][0].set_ylabel("success ratio")
    axes[1][0].set_ylabel("cumulative effective participation")
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=len(names))
    return figure


FIG4 = Study(
    id="e3cs/fig4",
    title="Success ratio and cumulative effective participation (CEP) over rounds",
    paper=PAPER + ", Fig. 4",
    settings={
        **BASE,
        "worlds": {"iid": "e3cs", "markov": "bursts"},
        "schemes": SCHEMES,
        "same": 0.02,
        "check": CHECK,
    },
    quick={"rounds": 1000, "seeds": 4},
    items=_items4,
    job=play_scheme,
    gather=_gather4,
    score=_score4,
    plot=_plot4,
)
