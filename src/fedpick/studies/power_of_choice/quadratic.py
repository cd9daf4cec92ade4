"""Power-of-Choice, quadratic simulation: global loss (Fig. 2), selection skew (Fig. 3) and who is chosen (Fig. 7).

Local steps are in closed form: tau steps of gradient descent at rate eta take w to c_k + (1 - eta h_k)^tau (w - c_k).
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from fedpick import rng as rngs
from fedpick import theory
from fedpick.policies.text import policy as policy_from_text
from fedpick.studies import _plots
from fedpick.studies._stats import band, rounded, show, steps
from fedpick.studies._study import Finding, Found, Item, Measurement, Result, Settings, Study, seeds_of
from fedpick.studies._verdicts import Limit, above, judge, order, within
from fedpick.studies.power_of_choice._common import PAPER
from fedpick.studies.power_of_choice._problem import Quadratic, shares
from fedpick.types import Clients, Ints, Outcome, Status, View

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["STUDY"]

LIMITS = {
    "negligible floor": Limit(1.0, "% of the first gap: 'nearly negligible' is read as a hundredth"),
    "the same floor": Limit(0.1, "% of the first gap above rand's: a tenth of what counts as negligible"),
    "as fast": Limit(0.05, "relative: a twentieth is read as no difference"),
    "follows data size": Limit(0.95, "correlation; 1 would be exactly in proportion"),
}


SILENT = {
    "authors": "e_k is 'arbitrary' in the paper: U(0, 100), from w_0 = 100 N(0, I), as in the authors' supplement; a "
    "new problem for each seed",
    "centred": "e_k is 'arbitrary' in the paper: e_k = h_k N(1, I), from w_0 = 0; a new problem for each seed",
}


def _item(settings: Settings, K: str, name: str, seed: int) -> dict[str, Any]:
    shared = {
        name: settings[name] for name in ("problem", "fraction", "rounds", "v", "tau", "learning_rate", "draws", "grid")
    }
    policy, d = _text(name, int(K), settings["rounds"]), _candidates(name)
    return {**shared, "K": int(K), "policy": policy, "d": d, "seed": seed}


def _items(settings: Settings) -> Sequence[Item]:
    return [
        _item(settings, K, name, seed)
        for K, schemes in settings["schemes"].items()
        for name in schemes
        for seed in seeds_of(settings)
    ]


def _text(name: str, K: int, rounds: int) -> str:
    """The policy of a scheme: "rand", "d=9", or "ada" (from K, halved every quarter: 5000 of the paper's rounds)."""
    if name == "rand":
        return "size-weighted"
    if name == "ada":
        return f"pow-d(schedule=halving({K}, every={max(rounds // 4, 1)}))"
    return f"pow-d(candidates={_candidates(name)})"


def _candidates(name: str) -> int | None:
    return int(name.removeprefix("d=")) if name.startswith("d=") else None


def _train(item: Item, _: Path) -> Measurement:
    """One policy on one problem."""
    K, rounds, seed = item["K"], item["rounds"], item["seed"]
    m = max(round(item["fraction"] * K), 1)
    problem = Quadratic.draw(K, item["v"], seed, item["problem"])
    shrink = (1.0 - item["learning_rate"] * problem.h) ** item["tau"]
    policy = policy_from_text(item["policy"], cohort_size=m)
    clients = Clients(problem.p)
    everyone = np.ones(K, dtype=bool)
    w = problem.start

    def probe(ids: Ints, /, *, batch: int | None = None) -> ArrayLike:
        return problem.losses(w, ids)

    done = Outcome(np.full(m, Status.DONE, dtype=np.int8), np.zeros(m), np.zeros(m))
    state, counts = policy.init(clients), np.zeros(K, dtype=np.int64)
    gaps = np.empty(rounds + 1)
    gaps[0] = problem.gap(w)
    kept = set(np.unique(np.geomspace(1, rounds, item["grid"]).astype(int)).tolist())
    path = [w]
    for t in range(1, rounds + 1):
        view = View(t, everyone, clients, probe=probe)
        choice = policy.select(state, view, rngs.stream(seed, t, "policy"))
        ids = choice.ids
        local = problem.centres[ids] + shrink[ids, None] * (w - problem.centres[ids])
        w = local.mean(axis=0)  # the plain mean over the cohort, copies counted
        state = policy.observe(state, view, choice, done)
        np.add.at(counts, ids, 1)
        gaps[t] = problem.gap(w)
        if t in kept:
            path.append(w)
    reached = np.flatnonzero(gaps <= 0.1 * gaps[0])
    points = np.array(path)
    skews = theory.Skews(1.0, 1.0)  # of selection by size, exactly
    if item["d"] is not None:
        chosen = shares(problem, points, item["d"], m, item["draws"], rngs.stream(seed, 0, "shares"))
        at = np.array([problem.losses(point) for point in points])
        skews = theory.pow_skew_extremes(chosen, at, problem.losses(problem.optimum), np.zeros(K), problem.p)
        now = [theory.pow_skew(at[i], np.zeros(K), problem.p, chosen[i]) for i in range(len(points))]
    else:
        now = [1.0] * len(points)
    return {
        "gaps": gaps[1:] / gaps[0],
        "reached": int(reached[0]) if len(reached) else rounds,
        "missed": not len(reached),
        "floor": float(gaps[-max(rounds // 20, 1) :].mean() / gaps[0]),
        "rho_bar": skews.rho_bar,
        "rho_tilde": skews.rho_tilde,
        "rho_path": float(min(now)),
        "frequency": counts / counts.sum(),
        "p": problem.p,
        "follows_size": float(np.corrcoef(counts, problem.p)[0, 1]) if K > 1 and counts.std() > 0 else 0.0,
    }


def _gather(settings: Settings, found: Found) -> Result:
    rounds = settings["rounds"]
    at = steps(rounds, 100)
    numbers = ("reached", "missed", "floor", "rho_bar", "rho_tilde", "rho_path", "follows_size")
    result: Result = {"rounds": rounds, "problem": settings["problem"], "at": rounded(at), "curves": {}, "profile": {}}
    result |= {"check": settings["check"], **{name: {} for name in numbers}}
    for K, schemes in settings["schemes"].items():
        for name in ("curves", "profile", *numbers):
            result[name][K] = {}
        for scheme in schemes:
            part = [found[_item(settings, K, scheme, seed)] for seed in seeds_of(settings)]
            mean, half = band(np.log10([one["gaps"][at - 1] for one in part]))
            result["curves"][K][scheme] = {"log10": rounded(mean), "half": rounded(half)}
            result["profile"][K][scheme] = rounded(part[0]["frequency"])  # of the first seed: the paper shows one run
            for name in numbers:
                result[name][K][scheme] = rounded([one[name] for one in part])
        result["profile"][K]["data size"] = rounded(part[0]["p"])
    return result


def _sized(result: Result, K: str) -> list[str]:
    return [name for name in result["reached"][K] if name.startswith("d=")]


def _stalled(result: Result, K: str) -> list[str]:
    """The schemes that do not reach 10% in some problems, and the speeds in the problems where all do."""
    missed = {name: np.asarray(values, dtype=bool) for name, values in result["missed"][K].items()}
    late = [f"{name} in {values.sum()}" for name, values in missed.items() if values.any()]
    if not late:
        return []
    told = (
        f"some do not get to 10% in some of the {len(missed['rand'])} problems, which count as {result['rounds']:,} "
        f"rounds: {', '.join(late)}"
    )
    all_there = ~np.any(list(missed.values()), axis=0)
    if all_there.sum() < 2:
        return [told]
    rest = {name: np.asarray(values)[all_there] for name, values in result["reached"][K].items()}
    speeds = "; ".join(f"{name} {show(values)}" for name, values in rest.items())
    return [told, f"in the other {all_there.sum()} problems: {speeds}"]


def _pace(result: Result, K: str, largest: str) -> str:
    """Where adapow-d and d = K differ: they are the same policy until the first halving."""
    ada, full = (np.asarray(result["reached"][K][name]) for name in ("ada", largest))
    early = full <= result["rounds"] // 4
    return (
        f"in {np.count_nonzero(ada[early] == full[early])} of {len(full)} problems both get there at the same round, "
        f"before the first halving; in the other {np.count_nonzero(~early)} {largest} stalls first and ada gets there "
        "later, once its d is smaller"
    )


def _score(result: Result) -> list[Finding]:
    findings = []
    sizes = list(result["reached"])
    silent = SILENT[result.get("problem", "centred")]
    for K in sizes:
        grown, reached, floor = _sized(result, K), result["reached"][K], result["floor"][K]
        speed = order(reached, " > ".join(["rand", *grown]), ratio=True)
        stalled = _stalled(result, K)
        check = result["check"].get(K)
        findings.append(
            Finding(
                f"K = {K}: pow-d converges faster than rand, and the faster the larger d (Fig. 2)",
                "curves only",
                f"rounds to 10% of the first gap: {speed.shown}",
                judge(speed.checks),
                ". ".join(
                    [
                        silent,
                        *([f"an independent program, one problem: {check}"] if check else []),
                        *stalled,
                    ]
                ),
            )
        )
        percent = {name: 100 * np.asarray(values) for name, values in floor.items()}
        bias = order(percent, " > ".join(reversed(grown)), digits=3, ratio=True)
        limit = {name: each.value for name, each in LIMITS.items()}
        small = within(percent[grown[0]], f"{grown[0]}: negligible", high=limit["negligible floor"], digits=3)
        findings.append(
            Finding(
                f"K = {K}: the error floor rises with d, and is nearly negligible for small d (Fig. 2)",
                "curves only",
                f"gap in the last 5% of {result['rounds']:,} rounds, % of the first: rand {show(percent['rand'], 3)}; "
                + bias.shown,
                judge([*bias.checks, small]),
                "floors are compared as ratios",
            )
        )
        largest = grown[-1]
        gone = order(percent, f"{largest} > ada", digits=3, ratio=True)
        beside = within(
            percent["ada"] - percent["rand"], "ada less rand at the end", high=limit["the same floor"], digits=3
        )
        near = limit["as fast"]
        pace = within(np.divide(reached["ada"], reached[largest]), f"ada over {largest}", low=1 - near, high=1 + near)
        findings.append(
            Finding(
                f"K = {K}: adapow-d is as fast as pow-d with d = K and ends where rand ends (Fig. 2)",
                "curves only",
                f"rounds to 10%: ada {show(reached['ada'])}, {largest} {show(reached[largest])}; floor, %: ada "
                f"{show(percent['ada'], 3)}, {largest} {show(percent[largest], 3)}, rand {show(percent['rand'], 3)}",
                judge([pace, *gone.checks, beside]),
                ". ".join(
                    [
                        *([] if pace.verdict == "reproduced" else [_pace(result, K, largest)]),
                        f"ada's floor is {np.mean(percent['ada']) / np.mean(percent['rand']):.1f} times rand's",
                    ]
                ),
            )
        )
        bar, tilde, path = result["rho_bar"][K], result["rho_tilde"][K], result["rho_path"][K]
        ratio = {name: np.divide(tilde[name], np.maximum(bar[name], 1e-12)) for name in ["rand", *grown]}
        skewed = order(bar, " > ".join(reversed(grown)), digits=2)
        faster = [above(np.asarray(bar[name]) - 1, f"rho_bar of {name} > 1") for name in grown]
        biased = order(ratio, " > ".join([*reversed(grown), "rand"]), digits=2)
        findings.append(
            Finding(
                f"K = {K}: rho_bar is above rand's 1 for every d; it and rho_tilde/rho_bar grow with d (Fig. 3)",
                "rho_bar 1 to about 1.75, by eye",
                "rho_bar: "
                + "; ".join(f"{name} {show(bar[name], 2)}" for name in grown)
                + f". rho_tilde/rho_bar: {biased.shown}",
                judge([*faster, *skewed.checks, *biased.checks]),
                ". ".join(
                    [
                        *(
                            []
                            if all(check.verdict == "reproduced" for check in faster)
                            else [
                                "rho_bar, the least over all pairs of models on the way, is not above 1 for "
                                + ", ".join(n for n, c in zip(grown, faster, strict=True) if c.verdict != "reproduced")
                                + ": who is chosen at one model may have a low loss at another. At one and the same "
                                "model the least skew is "
                                + "; ".join(f"{name} {show(path[name], 2)}" for name in grown)
                            ]
                        ),
                        "grid: the models of each run; the paper's is 'a large range'",
                    ]
                ),
            )
        )
    if len(sizes) > 1:
        few, many = sizes[0], sizes[1]
        common = [name for name in _sized(result, few) if name in result["floor"][many]]
        drop = [
            above(np.log(result["floor"][few][n]) - np.log(result["floor"][many][n]), f"{n}: lower", ratio=True)
            for n in common
        ]
        findings.append(
            Finding(
                f"The bias is smaller for K = {many} than for K = {few} (Fig. 2)",
                "'the bias is smaller'",
                "floor, % of the first gap: "
                + "; ".join(
                    f"{name}: {show(100 * np.asarray(result['floor'][few][name]), 3)} and "
                    f"{show(100 * np.asarray(result['floor'][many][name]), 3)}"
                    for name in common
                ),
                judge(drop),
                "at the same d",
            )
        )
    K = sizes[0]
    follow = result["follows_size"][K]
    small_d = _sized(result, K)[0]
    profile = order(follow, f"rand > {small_d}", digits=3)
    findings.append(
        Finding(
            f"Who is chosen follows data size under rand, not under pow-d ({small_d}, K = {K}, Fig. 7)",
            "bars only",
            f"correlation of frequency and size: {profile.shown}",
            judge(
                [
                    *profile.checks,
                    within(follow["rand"], "rand follows size", low=LIMITS["follows data size"].value, digits=3),
                ]
            ),
        )
    )
    return findings


def _plot(result: Result) -> "Figure":
    sizes = list(result["curves"])
    figure, axes = _plots.figure(11, 6.4, columns=len(sizes) + 1, rows=2)
    for column, K in enumerate(sizes):
        for i, (name, curve) in enumerate(result["curves"][K].items()):
            log = np.asarray(curve["log10"])
            axis = axes[0][column]
            label = {"ada": "adapow-d"}.get(name, f"pow-d, {name}" if name.startswith("d=") else name)
            half, look = np.nan_to_num(np.asarray(curve["half"])), _plots.line(i)
            axis.plot(result["at"], 10**log, label=label, **look)
            ends = 10 ** (log - half), 10 ** (log + half)
            axis.fill_between(result["at"], *ends, color=look["color"], alpha=0.2, linewidth=0)
        axis.set_yscale("log")
        axis.set_ylim(top=40)  # room for the legend
        axis.set_title(f"Fig. 2: K = {K}, C = 0.1", fontsize=10)
        axis.set_xlabel("communication round")
        axis.set_ylabel("gap of the global loss, first = 1\n(geometric mean over problems)")
        axis.legend(fontsize=8, loc="upper right", ncols=2)
    skew = axes[0][-1]
    for i, K in enumerate(sizes):
        names = ["rand", *_sized(result, K)]
        x = [np.mean(result["rho_bar"][K][name]) for name in names]
        y = [np.mean(np.divide(result["rho_tilde"][K][name], result["rho_bar"][K][name])) for name in names]
        skew.plot(x, y, marker=_plots.MARKERS[i], label=f"K = {K}", **_plots.line(i))
        for name, at, up in zip(names, x, y, strict=True):
            skew.annotate(name, (at, up), textcoords="offset points", xytext=(5, -9), fontsize=7)
    skew.set_title("Fig. 3: selection skew", fontsize=10)
    skew.set_xlabel("rho_bar (convergence speed)")
    skew.set_ylabel("rho_tilde / rho_bar (bias)")
    skew.legend(loc="upper left")
    K = sizes[0]
    small = _sized(result, K)[0]
    for axis, name, colour in zip(axes[1], ("rand", small, "data size"), _plots.COLOURS, strict=False):
        ratio = np.asarray(result["profile"][K][name])
        by = np.argsort(-np.asarray(result["profile"][K]["data size"]))
        axis.bar(range(len(ratio)), ratio[by], color=colour)
        axis.set_title(
            "data size" if name == "data size" else f"Fig. 7: {'pow-d, ' if name != 'rand' else ''}{name}", fontsize=10
        )
        axis.set_xlabel("client, the largest data first")
        axis.set_ylabel("share of the data" if name == "data size" else "selected ratio")
    for axis in axes[1][3:]:
        axis.set_visible(False)
    return figure


def _extension(result: Result) -> list[Finding]:
    return [replace(finding, own=True) for finding in _score(result)]


def _study(id: str, problem: str, check: dict[str, str], **more: Any) -> Study:
    return Study(
        id=f"power-of-choice/{id}",
        title="Quadratic simulation: global loss, selection skew, selected clients"
        + (", another problem" if problem == "centred" else ""),
        paper=PAPER + ", Fig. 2, 3, 7 and appendix F",
        settings={
            "problem": problem,
            "schemes": {
                "30": ["rand", "d=6", "d=9", "d=15", "d=30", "ada"],
                "100": ["rand", "d=15", "d=30", "d=50", "d=100", "ada"],
            },
            "fraction": 0.1,
            "tau": 2,
            "learning_rate": 2e-5,
            "v": 5,
            "rounds": 20_000,
            "seeds": 12,
            "draws": 2_000,
            "grid": 20,
            "check": check,
        },
        quick={"rounds": 1_000, "seeds": 3},
        items=_items,
        job=_train,
        gather=_gather,
        plot=_plot,
        limits=LIMITS,
        about="Each of 30 or 100 clients has a quadratic objective in five dimensions with a curvature from U(1, 20), "
        f"and a data size by a power law; a tenth of them does two gradient steps a round. {SILENT[problem]}. Chosen "
        "by us: the grid over which the skew is measured (models of each run), and that floors are read in the last "
        "twentieth of the rounds",
        **more,
    )


STUDY = _study(
    "quadratic",
    "authors",
    {"30": "rand 2,752; d = 6, 9, 15, 30: 2,048, 1,850, 1,700, 1,617 (mean of 8 problems)"},
    score=_score,
)
CENTRED = _study(
    "quadratic-centred", "centred", {"30": "rand 2,615; d = 6, 9, 15, 30: 1,921, 1,733, 1,572, 1,364"}, score=_extension
)
