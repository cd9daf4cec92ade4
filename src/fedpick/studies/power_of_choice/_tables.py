"""Power-of-Choice, Tables 1 and 2: R60, t_comp and test accuracy, printed and ours."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedpick.studies._stats import interval, show
from fedpick.studies._study import Finding, Result, Study
from fedpick.studies._verdicts import Limit, Order, above, judge, order, within
from fedpick.studies.power_of_choice._common import PAPER, censored, show_rounds
from fedpick.studies.power_of_choice._fashion import (
    BIG,
    FASHION,
    PRINTED_RATE,
    QUICK,
    SCHEMES,
    about,
    early_gains,
    gain,
    gather,
    items,
    plot,
    train,
)

__all__ = ["table"]

LIMITS = {"R60, the same": Limit(1.25, "times the printed number, or its inverse: the paper gives no spread")}
OURS = ("pow-d", "cpow-d", "rpow-d")
TRIED = {
    "accuracy": ["the paper does not print how many rounds it runs: 400 is the last round marked on an axis (Fig. 11)"],
    "R60": ["tried: the learning rate (both are here) and the three readings"],
}


def _links(values: Mapping[str, ArrayLike], pairs: Sequence[tuple[str, str]], **how: Any) -> Order:
    """Judge each "a > b" by paired differences; values are listed in the given order of names."""
    judged = [order(values, f"{a} > {b}", **how) for a, b in pairs]
    return Order(
        [check for one in judged for check in one.checks],
        "; ".join(f"{name} {show(values[name], how.get('digits', 0))}" for name in values),
    )


def _printed_accuracy(result: Result, rate: str, one: Mapping[str, Any]) -> Finding:
    printed = result["paper"]["accuracy"]
    near, outside = [], []
    for name, (mean, spread) in printed.items():
        near.append(within(one["accuracy"][name], name, low=mean - spread, high=mean + spread, digits=1))
        if near[-1].verdict != "reproduced":
            outside.append(f"{name} {interval(one['accuracy'][name]).mean - mean:+.1f} points")
    return Finding(
        f"Learning rate {rate}: test accuracy after {result['rounds']:,} rounds is the printed one",
        "; ".join(f"{name} {mean:.2f} ± {spread:.2f}" for name, (mean, spread) in printed.items()),
        "; ".join(f"{name} {show(one['accuracy'][name], 2)}" for name in printed),
        judge(near),
        ". ".join(
            [
                f"mean of the last {result['over']} evaluations, on the 10,000 test examples; the same where our "
                "interval is within the paper's ±",
                *([f"ours less the print: {', '.join(outside)}", *result["tried"]["accuracy"]] if outside else []),
            ]
        ),
        own=rate != PRINTED_RATE,
    )


def _printed_rounds(result: Result, rate: str, one: Mapping[str, Any]) -> Finding:
    printed, rounds = result["paper"]["R60"], result["rounds"]
    about = LIMITS["R60, the same"].value
    near = [
        within(censored(one["first"][name], rounds), name, low=value / about, high=value * about, digits=0)
        for name, value in printed.items()
    ]
    of_mean = "; ".join(f"{name} {x:,.0f}" if x else f"{name} never" for name, x in one["of_mean"].items())
    for_good = "; ".join(f"{name} {show_rounds(one['for_good'][name], rounds)}" for name in printed)
    return Finding(
        f"Learning rate {rate}: R60, rounds to {result['level']:.0%} test accuracy, is the printed one",
        "; ".join(f"{name} {value}" for name, value in printed.items()),
        "; ".join(f"{name} {show_rounds(one['first'][name], rounds)}" for name in printed),
        judge(near),
        ". ".join(
            [
                f"read as each seed's first hit, evaluated every {result['evaluate_every']} rounds. First hit of the "
                f"mean curve: {of_mean}. From there on never "
                f"below: {for_good}",
                *(result["tried"]["R60"] if any(check.verdict != "reproduced" for check in near) else []),
            ]
        ),
        own=rate != PRINTED_RATE,
    )


def _orders(result: Result, rate: str, one: Mapping[str, Any]) -> list[Finding]:
    small = {name: one["accuracy"][name] for name in ("rand", "afl", *OURS)}
    up = [("afl", "rand"), *((name, "afl") for name in OURS), *((name, "rand") for name in OURS)]
    best = _links(small, up, digits=2)
    hits = {name: censored(one["first"][name], result["rounds"]) for name in small}
    fast = _links(hits, [(b, a) for a, b in up], ratio=True)
    return [
        Finding(
            f"Learning rate {rate}: accuracy in the order rand < afl < pow-d, cpow-d, rpow-d (C = 0.03)",
            "the order of the table",
            best.shown,
            judge(best.checks),
            own=rate != PRINTED_RATE,
        ),
        Finding(
            f"Learning rate {rate}: R60 in the order rand > afl > pow-d, cpow-d, rpow-d (C = 0.03)",
            "the order of the table",
            fast.shown,
            judge(fast.checks),
            own=rate != PRINTED_RATE,
        ),
    ]


def _beats_more_clients(result: Result, rate: str, one: Mapping[str, Any]) -> Finding:
    paper, rounds = result["paper"], result["rounds"]
    gains, ratios, checks = {}, {}, []
    for name in OURS:
        gains[name] = np.subtract(one["accuracy"][name], one["accuracy"][BIG])
        ratios[name] = np.log(censored(one["first"][name], rounds) / censored(one["first"][BIG], rounds))
        points = paper["accuracy"][name][0] - paper["accuracy"][BIG][0]
        times = float(np.log(paper["R60"][BIG] / paper["R60"][name]))
        checks.append(above(gains[name], f"{name}: accuracy higher (points)", size=points, digits=1))
        checks.append(above(-ratios[name], f"{name}: R60 lower", size=times, ratio=True))
    return Finding(
        f"Learning rate {rate}: with a third of the clients, Power-of-Choice beats rand with C = 0.1",
        "; ".join(
            f"{name} {paper['accuracy'][name][0] - paper['accuracy'][BIG][0]:+.1f} points, R60 "
            f"{paper['R60'][name] / paper['R60'][BIG]:.2f} times"
            for name in OURS
        ),
        "; ".join(f"{name} {gain(gains[name])}, R60 {np.exp(ratios[name].mean()):.2f} times" for name in OURS),
        judge(checks),
        own=rate != PRINTED_RATE,
    )


def _early(rate: str, one: Mapping[str, Any]) -> list[Finding]:
    """The gain over rand while the training is young, where the curves of Fig. 6 are furthest apart."""
    told = early_gains(one, OURS)
    if not told:
        return []
    first = next(iter(one["at_moments"]["rand"]))
    gains = {n: np.subtract(one["at_moments"][n][first], one["at_moments"]["rand"][first]) for n in OURS}
    return [
        Finding(
            f"Learning rate {rate}: at round {first}, Power-of-Choice is more accurate than rand",
            "curves only (Fig. 6)",
            told,
            judge([above(gains[name], f"{name} > rand (points)", digits=1) for name in OURS]),
            "each the mean of five evaluations",
            own=rate != PRINTED_RATE,
        )
    ]


def _computation(result: Result, rates: Mapping[str, Mapping[str, Any]]) -> Finding:
    """Local work does not depend on the learning rate: all runs together."""
    printed = result["paper"]["t_comp"]
    claims = [(BIG, "cpow-d"), (BIG, "rpow-d"), ("pow-d", "rand")]
    judged, words = [], []
    for key, title in (("t_comp", "one after another"), ("parallel", "every client a core")):
        ms = {name: 1000 * np.concatenate([one[key][name] for one in rates.values()]) for name in printed}
        judged.append(_links(ms, claims, digits=1, ratio=True))
        words.append(f"ms, {title}: {judged[-1].shown}")
    return Finding(
        "t_comp: cpow-d and rpow-d with C = 0.03 take less time a round than rand with C = 0.1; pow-d takes more than "
        "rand",
        "s: " + "; ".join(f"{name} {value:.2f}" for name, value in printed.items()),
        ". ".join(words),
        judge([check for one in judged for check in one.checks]),
        "choosing, probes and local work of this program, without evaluation and without the first round, which "
        "compiles; each claim first with clients one after another, then with a core for every client. The paper has a "
        "GPU for each client, and its time grows with their number, which ours does not when they work side by side: "
        "nothing is sent between machines here",
    )


def _score(result: Result) -> list[Finding]:
    (rates,) = result["partitions"].values()
    findings = []
    for rate, one in rates.items():
        findings += [_printed_accuracy(result, rate, one), _printed_rounds(result, rate, one)]
        findings += [*_orders(result, rate, one), _beats_more_clients(result, rate, one), *_early(rate, one)]
    return [*findings, _computation(result, rates)]


def table(
    number: int, alpha: float, accuracy: Sequence[tuple[float, float]], R60: Sequence[int], t: Sequence[float]
) -> Study:
    """One of the two tables."""
    return Study(
        id=f"power-of-choice/table{number}",
        title=f"Fashion-MNIST, Dirichlet({alpha:g}): R60, t_comp and test accuracy",
        paper=f"{PAPER}, Table {number}, Fig. 6 and appendix F",
        settings={
            **FASHION,
            "partitions": {f"alpha = {alpha:g}": f"dirichlet(alpha={alpha:g})"},
            "schemes": SCHEMES,
            "level": 0.6,
            "paper": {
                "accuracy": dict(zip(SCHEMES, map(list, accuracy), strict=True)),
                "R60": dict(zip(SCHEMES, R60, strict=True)),
                "t_comp": dict(zip(SCHEMES, t, strict=True)),
            },
            "tried": TRIED,
        },
        quick=QUICK,
        items=items,
        job=train,
        gather=gather,
        score=_score,
        plot=plot,
        limits=LIMITS,
        about=about(FASHION),
        trains=True,
    )
