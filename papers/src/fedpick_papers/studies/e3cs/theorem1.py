"""E3CS, Theorem 1: the regret (27) against the best static allocation, and its bound (28)."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpick import Outcome, Status
from fedpick import policy as policy_from_text
from fedpick.core import rng as rngs
from fedpick.policies.e3cs import allocate
from fedpick.worlds import named
from fedpick_papers import theory
from fedpick_papers.studies import _plots
from fedpick_papers.studies._stats import interval, rounded, show
from fedpick_papers.studies._study import Finding, Found, Item, Measurement, Result, Settings, Study, seeds_of
from fedpick_papers.studies._verdicts import Limit, above, judge, vacuous
from fedpick_papers.studies.e3cs._common import PAPER

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["STUDY"]

LIMITS = {"says something": Limit(1.0, "times the regret of a uniform choice: a bound above it says nothing")}


def _item(settings: Settings, quota: float, rate: float | None, rounds: int, seed: int) -> dict[str, Any]:
    shared = {name: settings[name] for name in ("clients", "cohort_size", "world")}
    return {**shared, "quota": quota, "rate": rate, "rounds": rounds, "seed": seed}


def _rows(settings: Settings) -> list[tuple[str, float, float | None, int]]:
    """(name, quota, learning rate, rounds) of every row; a rate of None is the optimal one."""
    shares = [max(int(settings["rounds"] * part), 1) for part in settings["parts"]]
    return [
        (name, quota, rate, rounds)
        for name, (quota, rate) in settings["schemes"].items()
        for rounds in (shares if name in settings["over_time"] else shares[-1:])
    ]


def _items(settings: Settings) -> Sequence[Item]:
    return [
        _item(settings, quota, rate, rounds, seed)
        for _, quota, rate, rounds in _rows(settings)
        for seed in seeds_of(settings)
    ]


def _play(item: Item, _: Path) -> Measurement:
    """Regret of E3CS, and of a uniform choice, with the same successes."""
    K, k, T, seed = item["clients"], item["cohort_size"], item["rounds"], item["seed"]
    world = named(item["world"], K)
    sigma = np.full(T, item["quota"] * k / K)
    eta = theory.e3cs_optimal_rate(K, k, sigma) if item["rate"] is None else item["rate"]
    policy = policy_from_text(f"e3cs(quota={item['quota']}, learning_rate={eta!r})", cohort_size=k)
    state, kept = world.init(seed), policy.init(world.clients)
    x, p = np.empty((T, K)), np.empty((T, K))
    for t in range(1, T + 1):
        draw = world.draw(state, seed, t)
        view = world.view(state, draw)
        p[t - 1] = allocate(kept.log_weights, k, float(sigma[t - 1]))[0]
        x[t - 1] = world.works(state, draw, np.arange(K))
        choice = policy.select(kept, view, rngs.stream(seed, t, "policy"))
        works = world.works(state, draw, choice.ids)
        status = np.where(works, Status.DONE, Status.FAILED).astype(np.int8)
        outcome = Outcome(status, np.where(works, 1.0, np.nan), np.full(len(choice.ids), np.nan))
        kept = policy.observe(kept, view, choice, outcome)
    return {
        "regret": theory.e3cs_regret(x, p, k, sigma),
        "uniform": theory.e3cs_regret(x, np.full((T, K), k / K), k, sigma),
        "bound": theory.e3cs_bound(T, K, k, sigma, eta),
        "eta": eta,
    }


def _gather(settings: Settings, found: Found) -> Result:
    result: Result = {"rounds": settings["rounds"], "rows": {}}
    for name, quota, rate, rounds in _rows(settings):
        part = [found[_item(settings, quota, rate, rounds, seed)] for seed in seeds_of(settings)]
        one = {key: rounded([each[key] for each in part]) for key in ("regret", "uniform", "bound")}
        result["rows"].setdefault(name, {})[str(rounds)] = {**one, "eta": rounded(part[0]["eta"])}
    return result


def _score(result: Result) -> list[Finding]:
    checks, shown, bounds, rates, empty = [], [], [], [], []
    for name, by_rounds in result["rows"].items():
        one = max(by_rounds.items(), key=lambda pair: int(pair[0]))[1]
        bound, uniform = float(np.mean(one["bound"])), float(np.mean(one["uniform"]))
        room = np.asarray(one["bound"]) - np.asarray(one["regret"])
        check = above(room, f"{name}: the bound is above the regret", digits=0)
        if check.verdict == "reproduced" and bound > LIMITS["says something"].value * uniform:
            empty.append(f"{name}: the bound is {bound:,.0f}, and even a uniform choice regrets only {uniform:,.0f}")
        else:
            checks.append(check)
        rates.append(f"{one['eta']:.3g}")
        bounds.append(f"{name} {bound:,.0f}")
        shown.append(f"{name} {show(one['regret'])} (a uniform choice: {show(one['uniform'])})")
    remarks = [
        "against the best static allocation, which is what the proof covers",
        f"learning rates: {', '.join(rates)}",
    ]
    if checks and empty:
        remarks.append(f"not judged, since the bound says nothing there: {'; '.join(empty)}")
    findings = [
        Finding(
            f"The regret after {result['rounds']:,} rounds is below the bound (28)",
            f"Theorem 1; no figure. The bound: {'; '.join(bounds)}",
            "; ".join(shown),
            judge(checks) if checks else vacuous("; ".join(empty)),
            "; ".join(remarks),
        )
    ]
    name = next(iter(result["rows"]))
    points = sorted((int(t), np.asarray(one["regret"])) for t, one in result["rows"][name].items())
    if len(points) > 1:
        (first, early), (last, late) = points[0], points[-1]
        slope = np.log(np.maximum(late, 1e-9) / np.maximum(early, 1e-9)) / np.log(last / first)
        findings.append(
            Finding(
                f"{name}: the regret grows more slowly than the rounds",
                "'in the scale of sqrt(T)' at the optimal rate, said of the bound, not of the regret",
                f"exponent between {first:,} and {last:,} rounds: {show(slope, 2)}",
                judge([above(1.0 - slope, "the exponent is below 1")]),
                "a square root has 0.5, but below its bound the regret may grow otherwise for a while",
                extension=True,
            )
        )
    return findings


def _plot(result: Result) -> "Figure":
    rows = [(name, *max(of.items(), key=lambda pair: int(pair[0]))) for name, of in result["rows"].items()]
    figure, axes = _plots.figure(6.4, 3.4)
    axis, at = axes[0][0], np.arange(len(rows))
    for i, key in enumerate(("regret", "uniform", "bound")):
        label = {"regret": "E3CS", "uniform": "uniform choice", "bound": "bound (28)"}[key]
        seen = [interval(one[key]) for _, _, one in rows]
        ends = [np.nan_to_num(one.half, nan=0.0, posinf=0.0) for one in seen]
        how: Any = {"width": 0.25, "color": _plots.COLOURS[i], "label": label, "capsize": 2}
        axis.bar(at + 0.27 * (i - 1), [one.mean for one in seen], yerr=ends, **how)
    axis.set_xticks(at, [name for name, _, _ in rows], fontsize=8)
    axis.set_ylabel(f"regret after {result['rounds']:,} rounds")
    axis.legend()
    return figure


STUDY = Study(
    id="e3cs/theorem1",
    title="Regret against the best static allocation, and its bound",
    paper=PAPER + ", Theorem 1",
    settings={
        "clients": 100,
        "cohort_size": 20,
        "world": "e3cs",
        "rounds": 2500,
        "parts": [0.1, 0.25, 0.5, 1.0],
        "schemes": {
            "quota 0, optimal rate": [0.0, None],
            "quota 0, rate 0.5": [0.0, 0.5],
            "quota 0.5, optimal rate": [0.5, None],
            "quota 0.8, optimal rate": [0.8, None],
        },
        "over_time": ["quota 0, optimal rate"],
        "seeds": 8,
    },
    quick={"rounds": 100, "seeds": 2},
    items=_items,
    job=_play,
    gather=_gather,
    score=_score,
    plot=_plot,
    limits=LIMITS,
    about="The world of Fig. 3 and 4: 100 clients in four classes, 20 a round. The regret is that of the probabilities "
    "with the successes that came, against the best allocation that stays the same in all rounds. Rates of (29) and "
    "the paper's 0.5; the number of rounds is its 2,500",
)
