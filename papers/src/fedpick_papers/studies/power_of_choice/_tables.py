"""Power-of-Choice, Tables 1 and 2: R60, t_comp and test accuracy, printed and ours."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from fedpick.core.types import Floats
from fedpick_papers.studies._stats import interval, show
from fedpick_papers.studies._study import Finding, Result, Study, beside
from fedpick_papers.studies._verdicts import POINT, Check, Judged, Limit, above, judge, within
from fedpick_papers.studies.power_of_choice._common import PAPER, censored, show_rounds
from fedpick_papers.studies.power_of_choice._fashion import (
    BIG,
    FASHION,
    JUDGED_RATE,
    QUICK,
    SCHEMES,
    Paper,
    about,
    alike,
    early_gains,
    gain,
    gather,
    items,
    plot,
    train,
)

__all__ = ["table"]

LIMITS = {
    "R60, the same": Limit(1.25, "times the printed number, or its inverse: the paper gives no spread"),
    "as well": Limit(
        2.0, "points of accuracy: 'as well as' is read as a difference that a curve hardly shows", "2026-11-16: new"
    ),
}
OURS = ("pow-d", "cpow-d", "rpow-d")
VARIANTS = OURS[1:]  # what pow-d itself gains over rand and afl is judged in power-of-choice/fig5
BELOW = "in the table below"
CHANGED = "this rule was changed on 2026-11-16, after the run: the table's own order of all policies was asked for, "
"now what the text says"
TRIED = {
    "accuracy": ["the paper does not print how many rounds it runs: 400 is the last round marked on an axis (Fig. 11)"],
    "R60": ["tried: the learning rate (both are here) and the three readings"],
}


def _less(one: Mapping[str, Any], a: str, b: str) -> Floats:
    """How many points a is more accurate than b."""
    return np.asarray(np.subtract(one["accuracy"][a], one["accuracy"][b]), dtype=np.float64)


def _sooner(one: Mapping[str, Any], a: str, b: str, rounds: int) -> Floats:
    """Logarithm of how many times as long b takes to R60 as a."""
    return np.log(censored(one["first"][b], rounds) / censored(one["first"][a], rounds))


def _times(logs: Floats) -> str:
    seen = interval(logs)
    ends = f" ({np.exp(seen.low):.2f} to {np.exp(seen.high):.2f})" if np.isfinite(seen.half) else ""
    return f"{np.exp(seen.mean):.2f}{ends}"


def _points(one: Mapping[str, Any], names: Sequence[str], base: str) -> str:
    return "; ".join(f"{name} {gain(_less(one, name, base))}" for name in names)


def _higher(one: Mapping[str, Any], a: str, b: str, size: float | None = None) -> Check:
    return above(_less(one, a, b), f"{a} > {b} (points)", size=size, margin=POINT, digits=1)


def _printed(paper: Paper, result: Result, rate: str, one: Mapping[str, Any]) -> list[Finding]:
    """Whether accuracies and R60 are the printed ones."""
    rounds, about, extension = result["rounds"], LIMITS["R60, the same"].value, rate != JUDGED_RATE
    near, off = [], []
    for name, (mean, spread) in paper["accuracy"].items():
        near.append(within(one["accuracy"][name], name, low=mean - spread, high=mean + spread, digits=1))
        off.append(interval(one["accuracy"][name]).mean - mean)
    sooner = [
        within(censored(one["first"][name], rounds), name, low=value / about, high=value * about, digits=0)
        for name, value in paper["R60"].items()
    ]
    shares = [float(censored(one["first"][name], rounds).mean()) / value for name, value in paper["R60"].items()]
    of_mean = "; ".join(f"{name} {x:,.0f}" if x else f"{name} never" for name, x in one["of_mean"].items())
    for_good = "; ".join(f"{name} {show_rounds(one['for_good'][name], rounds)}" for name in paper["R60"])
    return [
        Finding(
            f"Learning rate {rate}: test accuracy after {rounds:,} rounds is the printed one",
            BELOW,
            f"ours less the print: {min(off):+.1f} to {max(off):+.1f} points",
            judge(near),
            ". ".join(
                [
                    f"mean of the last {result['over']} evaluations, on the 10,000 test examples; the same where our "
                    "interval is within the paper's ±",
                    *(result["tried"]["accuracy"] if any(check.verdict != "reproduced" for check in near) else []),
                ]
            ),
            extension=extension,
        ),
        Finding(
            f"Learning rate {rate}: R60, rounds to {result['level']:.0%} test accuracy, is the printed one",
            BELOW,
            f"ours over the print: {min(shares):.2f} to {max(shares):.2f}",
            judge(sooner),
            ". ".join(
                [
                    f"read as each seed's first hit, evaluated every {result['evaluate_every']} rounds. First hit of "
                    f"the mean curve: {of_mean}. From there on never below: {for_good}",
                    *(result["tried"]["R60"] if any(check.verdict != "reproduced" for check in sooner) else []),
                ]
            ),
            extension=extension,
        ),
    ]


def _variants(paper: Paper, result: Result, rate: str, one: Mapping[str, Any]) -> list[Finding]:
    """What section 5 says of cpow-d and rpow-d (Fig. 6)."""
    extension, over, near = rate != JUDGED_RATE, paper["over rand"], LIMITS["as well"].value
    findings = [
        Finding(
            f"Learning rate {rate}: cpow-d and rpow-d are more accurate than rand (Fig. 6)",
            "; ".join(f"{name} about {points:g} points" for name, points in over.items()),
            _points(one, VARIANTS, "rand"),
            judge([_higher(one, name, "rand", points) for name, points in over.items()]),
            "pow-d against rand and afl is judged in power-of-choice/fig5",
            extension=extension,
        )
    ]
    if paper["variants"] == "as well":
        words, quote = "cpow-d and rpow-d are as accurate as pow-d", "'perform as well as'"
        checks = [
            within(_less(one, name, "pow-d"), f"{name} is like pow-d (points)", low=-near, high=near, digits=1)
            for name in VARIANTS
        ]
        judged = alike(judge(checks), one["accuracy"], OURS, near)
    else:
        words, quote = "cpow-d and rpow-d are less accurate than pow-d", "'lower accuracy'"
        judged = judge([_higher(one, "pow-d", name) for name in VARIANTS])
    findings.append(
        Finding(
            f"Learning rate {rate}: {words} (Fig. 6)",
            quote,
            _points(one, VARIANTS, "pow-d"),
            judged,
            CHANGED,
            extension=extension,
        )
    )
    sooner = {name: _sooner(one, name, "afl", result["rounds"]) for name in OURS}
    findings += [
        Finding(
            f"Learning rate {rate}: cpow-d and rpow-d are more accurate than afl (Fig. 6)",
            "'higher accuracy'",
            _points(one, VARIANTS, "afl"),
            judge([_higher(one, name, "afl") for name in VARIANTS]),
            CHANGED,
            extension=extension,
        ),
        Finding(
            f"Learning rate {rate}: pow-d, cpow-d and rpow-d converge faster than afl (Fig. 6)",
            "'faster convergence'",
            "R60 of afl over theirs: " + "; ".join(f"{name} {_times(logs)}" for name, logs in sooner.items()),
            judge([above(logs, f"R60 of afl > {name}'s", ratio=True) for name, logs in sooner.items()]),
            CHANGED,
            extension=extension,
        ),
    ]
    return findings


def _beats_more_clients(paper: Paper, result: Result, rate: str, one: Mapping[str, Any]) -> list[Finding]:
    extension, points = rate != JUDGED_RATE, paper["over rand, C=0.1"]
    # "Approximately": the table itself may have a little less than the text.
    table = {name: paper["accuracy"][name][0] - paper["accuracy"][BIG][0] for name in OURS}
    less = ", ".join(f"{name} {size:.1f}" for name, size in table.items() if size < points)
    sooner = {name: _sooner(one, name, BIG, result["rounds"]) for name in OURS}
    sizes = {name: float(np.log(paper["R60"][BIG] / paper["R60"][name])) for name in OURS}
    return [
        Finding(
            f"Learning rate {rate}: with C = 0.03, pow-d, cpow-d and rpow-d are more accurate than rand with C = 0.1",
            f"'{paper['words']} {points:g}%' higher",
            _points(one, OURS, BIG),
            judge([_higher(one, name, BIG, min(points, table[name])) for name in OURS]),
            f"less is asked for where the table itself has less: {less} points" if less else "",
            extension=extension,
        ),
        Finding(
            f"Learning rate {rate}: with C = 0.03, pow-d, cpow-d and rpow-d have a lower R60 than rand with C = 0.1",
            "rand's over theirs: "
            + "; ".join(
                f"{n} {np.exp(size):.2f} (in print {np.exp(-size):.2f} times rand's)" for n, size in sizes.items()
            ),
            "rand's over theirs: " + "; ".join(f"{name} {_times(logs)}" for name, logs in sooner.items()),
            judge([above(sooner[n], f"R60 of {BIG} > {n}'s", size=sizes[n], ratio=True) for n in OURS]),
            extension=extension,
        ),
    ]


def _early(rate: str, one: Mapping[str, Any]) -> list[Finding]:
    """The gain over rand in the first rounds, which Fig. 6 shows and the text does not mention."""
    remark = early_gains(one, OURS)
    if not remark:
        return []
    first = next(iter(one["at_moments"]["rand"]))
    gains = {n: np.subtract(one["at_moments"][n][first], one["at_moments"]["rand"][first]) for n in OURS}
    return [
        Finding(
            f"Learning rate {rate}: at round {first}, Power-of-Choice is more accurate than rand",
            "curves only (Fig. 6)",
            "; ".join(f"{name} {gain(values)}" for name, values in gains.items()),
            judge([above(gains[name], f"{name} > rand (points)", margin=POINT, digits=1) for name in OURS]),
            f"each the mean of five evaluations. {remark}",
            extension=True,
        )
    ]


def _computation(rates: Mapping[str, Mapping[str, Any]]) -> list[Finding]:
    """Local work does not depend on the learning rate: all runs together."""
    kinds = {"t_comp": "one after another", "parallel": "every client a core"}
    ms = {
        key: {name: 1000 * np.concatenate([one[key][name] for one in rates.values()]) for name in SCHEMES}
        for key in kinds
    }

    def longer(key: str, a: str, b: str) -> Floats:
        return np.asarray(np.log(ms[key][a]) - np.log(ms[key][b]), dtype=np.float64)

    def shown(names: Sequence[str], base: str) -> str:
        return "; ".join(
            f"{title}: " + ", ".join(f"{name} {_times(longer(key, name, base))}" for name in names)
            for key, title in kinds.items()
        )

    def judged(pairs: Sequence[tuple[str, str]]) -> Judged:
        return judge(
            [
                above(longer(key, a, b), f"{a} > {b}, {title}", ratio=True)
                for key, title in kinds.items()
                for a, b in pairs
            ]
        )

    remark = ". ".join(
        f"ms, {title}: " + "; ".join(f"{name} {show(values, 1)}" for name, values in ms[key].items())
        for key, title in kinds.items()
    )
    return [
        Finding(
            "t_comp: cpow-d and rpow-d with C = 0.03 take less time a round than rand with C = 0.1",
            "'smaller'",
            f"times that of rand with C = 0.1: {shown(VARIANTS, BIG)}",
            judged([(BIG, name) for name in VARIANTS]),
            "this rule was changed on 2026-11-16, after the run: it also asked that pow-d take longer than rand, "
            "which the text does "
            "not say. Choosing, probes and local work of this program, without evaluation and without the first "
            "round, which compiles; first with clients one after another, then with a core for every client. The "
            "paper has a GPU for each client, and its time grows with their number, which ours does not when they work "
            f"side by side: nothing is sent between machines here. {remark}",
        ),
        Finding(
            "t_comp: pow-d takes more time a round than rand (C = 0.03)",
            BELOW,
            f"times that of rand: {shown(['pow-d'], 'rand')}",
            judged([("pow-d", "rand")]),
            extension=True,
        ),
    ]


def _score(paper: Paper, result: Result) -> list[Finding]:
    (rates,) = result["partitions"].values()
    findings = []
    for rate, one in rates.items():
        findings += [*_printed(paper, result, rate, one), *_variants(paper, result, rate, one)]
        findings += [*_beats_more_clients(paper, result, rate, one), *_early(rate, one)]
    return [*findings, *_computation(rates)]


def _body(paper: Paper, result: Result) -> str:
    (rates,) = result["partitions"].values()
    head = ["policy", *(f"{what}, rate {rate}" for what in ("accuracy, %", "R60") for rate in rates), "t_comp, s"]
    ours, printed = {}, {}
    for name, (mean, spread) in paper["accuracy"].items():
        seconds = np.concatenate([one["t_comp"][name] for one in rates.values()])
        ours[name] = [
            *(show(one["accuracy"][name], 2) for one in rates.values()),
            *(show_rounds(one["first"][name], result["rounds"]) for one in rates.values()),
            show(seconds, 3),
        ]
        printed[name] = [*[f"{mean:.2f} ± {spread:.2f}"] * len(rates), *[str(paper["R60"][name])] * len(rates)]
        printed[name].append(f"{paper['t_comp'][name]:.2f}")
    return beside(head, ours, printed) + "\nC = 0.03 where nothing is said. t_comp is of clients one after another.\n"


def table(
    number: int,
    alpha: float,
    accuracy: Sequence[tuple[float, float]],
    R60: Sequence[int],
    t: Sequence[float],
    quote: Mapping[str, Any],
) -> Study:
    """One of the two tables.

    Args:
        number: of the table.
        alpha: of the Dirichlet distribution.
        accuracy: printed, with its ±, in the order of `SCHEMES`.
        R60: printed.
        t: printed computation time, in seconds.
        quote: what the text says: points "over rand" and "over rand, C=0.1" (with its "words"), and how the "variants"
            compare with pow-d.
    """
    settings = {
        **FASHION,
        "partitions": {f"alpha = {alpha:g}": f"dirichlet(alpha={alpha:g})"},
        "schemes": SCHEMES,
        "level": 0.6,
        "tried": TRIED,
    }
    paper = {
        "accuracy": dict(zip(SCHEMES, map(list, accuracy), strict=True)),
        "R60": dict(zip(SCHEMES, R60, strict=True)),
        "t_comp": dict(zip(SCHEMES, t, strict=True)),
        **quote,
    }
    return Study(
        id=f"power-of-choice/table{number}",
        title=f"Fashion-MNIST, Dirichlet({alpha:g}): R60, t_comp and test accuracy",
        paper=f"{PAPER}, Table {number}, Fig. 6 and appendix F",
        settings=settings,
        quick=QUICK,
        items=items,
        job=train,
        gather=gather,
        score=partial(_score, paper),
        plot=partial(plot, paper),
        limits={name: limit for name, limit in LIMITS.items() if name != "as well" or quote["variants"] == "as well"},
        about=about(settings),
        body=partial(_body, paper),
        trains=True,
    )
