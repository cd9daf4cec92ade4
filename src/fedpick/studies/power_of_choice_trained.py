"""Power-of-Choice with training: Synthetic(1,1) (Fig. 4), Fashion-MNIST (Tables 1, 2), intermittent clients (Fig. 8).

What the paper does not print (layers, dropout, weight decay) is as in its authors' code.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from fedpick.policies.text import policy as policy_from_text
from fedpick.studies import _plots
from fedpick.studies._stats import Interval, Order, interval, order, rounded, show, verdict
from fedpick.studies._study import Finding, Result, Settings, Study
from fedpick.studies._trained import Halved, ideal_world, play_trained, reached, split
from fedpick.types import Floats
from fedpick.worlds import Halves

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["FIG4", "FIG8", "TABLE1", "TABLE2"]

PAPER = (
    "Cho, Wang & Joshi (2021), Client Selection in Federated Learning: Convergence Analysis and Power-of-Choice "
    "Selection Strategies"
)
OURS = ("pow-d", "cpow-d", "rpow-d")

# --- one run -----------------------------------------------------------------------------------------------------

SHARED = (
    "data",
    "clients",
    "model",
    "halved",
    "batch",
    "steps",
    "weight_decay",
    "rounds",
    "evaluate_every",
    "loss_every",
)


def _item(settings: Settings, seed: int, policy: str, cohort_size: int, **changes: Any) -> dict[str, Any]:
    shared = {name: settings[name] for name in SHARED if name in settings}
    return {**shared, "seed": seed, "policy": policy, "cohort_size": cohort_size, "away": None, **changes}


def _train(item: Mapping[str, Any]) -> dict[str, Any]:
    """One policy at one seed: the seed draws the data's partition and all of the run."""
    from fedpick import learn  # here, so that only the processes that train import JAX

    people = split(item["data"], item["partition"], item["clients"], item["seed"])
    trainer = learn.Trainer(
        people,
        learn.model(item["model"], people.dataset.inputs, people.dataset.classes),
        lr=Halved(item["lr"], tuple(item["halved"])),
        batch=item["batch"],
        steps=item["steps"],
        weight_decay=item["weight_decay"],
        aggregation="mean",
        evaluate_every=item["evaluate_every"],
        spread_every=item["loss_every"],
        reports=(),
    )
    world = ideal_world(people.clients, None if item["away"] is None else Halves(item["away"]))
    policy = policy_from_text(item["policy"], cohort_size=item["cohort_size"])
    curves = play_trained(policy, world, trainer, item["rounds"], item["seed"])
    in_a_row, parallel = curves.mean_t_comp()
    found: dict[str, Any] = {"t_comp": in_a_row, "parallel": parallel}
    for name in ("accuracy", "train_loss"):
        if name in curves.metrics:
            found[f"{name}_at"], found[name] = curves.metric(name)
    return found


def _tail(curves: ArrayLike, over: int) -> Floats:
    """Mean of the last evaluations of each seed's curve."""
    ends: Floats = np.asarray(curves, dtype=np.float64)[:, -over:].mean(axis=1)
    return ends


def _curve(runs: Sequence[Mapping[str, Any]], name: str) -> Result:
    return {"at": rounded(runs[0][f"{name}_at"]), "mean": rounded(np.mean([run[name] for run in runs], axis=0))}


def _for_good(rounds: ArrayLike, values: ArrayLike, level: float) -> float:
    """The first round after which the value stays at the level or above; NaN if it does not."""
    at, below = np.asarray(rounds), np.flatnonzero(np.asarray(values) < level)
    if not len(below):
        return float(at[0])
    return float(at[below[-1] + 1]) if below[-1] + 1 < len(at) else float("nan")


def _or_none(values: ArrayLike) -> Any:
    """NaN as None: JSON knows no NaN."""
    return [None if np.isnan(x) else float(x) for x in np.asarray(values, dtype=np.float64)]


def _censored(values: Sequence[float | None], rounds: int) -> Floats:
    """Rounds until something happened; what did not happen counts as all the rounds."""
    return np.array([rounds if x is None else x for x in values], dtype=np.float64)


def _show_rounds(values: Sequence[float | None], rounds: int) -> str:
    missed = sum(x is None for x in values)
    if missed == len(values):
        return f"not in {rounds:,}"
    return show(_censored(values, rounds)) + (f" ({missed} of {len(values)} seeds not in {rounds:,})" if missed else "")


def _links(values: Mapping[str, ArrayLike], pairs: Sequence[tuple[str, str]], **how: Any) -> Order:
    """Judge each "a > b" by paired differences; names in words in the order given."""
    judged = [order(values, f"{a} > {b}", **how) for a, b in pairs]
    return Order(
        [hold for one in judged for hold in one.holds],
        [link for one in judged for link in one.broken],
        "; ".join(f"{name} {show(values[name], how.get('digits', 0))}" for name in values),
    )


def _gain(points: ArrayLike) -> str:
    mean, half = interval(points)
    return f"{mean:+.1f}" + (f" ± {half:.1f}" if np.isfinite(half) else "") + " points"


# --- Fig. 4: Synthetic(1,1) --------------------------------------------------------------------------------------


def _schemes4(m: int, K: int, rounds: int) -> dict[str, str]:
    return {
        "rand": "size-weighted",
        "d=2m": f"pow-d(candidates={min(2 * m, K)})",
        "d=10m": f"pow-d(candidates={min(10 * m, K)})",
        "ada": f"pow-d(schedule=step({K}, {m}, at={rounds / 2:g}))",
    }


def _items4(settings: Settings) -> Sequence[dict[str, Any]]:
    return [
        _item(settings, seed, policy, m, data=text, partition="", lr=settings["lr"], weight_decay=0.0)
        for text in settings["problems"].values()
        for m in settings["cohort_sizes"]
        for policy in _schemes4(m, settings["clients"], settings["rounds"]).values()
        for seed in range(settings["seeds"])
    ]


def _gather4(settings: Settings, done: list[dict[str, Any]]) -> Result:
    seeds, over = settings["seeds"], settings["over"]
    result: Result = {"rounds": settings["rounds"], "level": settings["level"], "check": settings["check"]}
    result |= {"problems": {}}
    start = 0
    for problem in settings["problems"]:
        by_size: Result = {}
        for m in settings["cohort_sizes"]:
            one: Result = {"reached": {}, "end": {}, "curves": {}}
            for name in _schemes4(m, settings["clients"], settings["rounds"]):
                runs = done[start : start + seeds]
                start += seeds
                hits = [reached(r["train_loss_at"], r["train_loss"], settings["level"], below=True) for r in runs]
                one["reached"][name] = _or_none(hits)
                one["end"][name] = rounded(_tail([r["train_loss"] for r in runs], over))
                one["curves"][name] = _curve(runs, "train_loss")
            by_size[str(m)] = one
        result["problems"][problem] = by_size
    return result


def _speed_up(one: Mapping[str, Any], name: str, rounds: int) -> tuple[Interval, str]:
    """How many times sooner than rand, as logarithms, and in words."""
    logs = np.log(_censored(one["reached"]["rand"], rounds)) - np.log(_censored(one["reached"][name], rounds))
    seen = interval(logs)
    ends = f" ({np.exp(seen.low):.1f} to {np.exp(seen.high):.1f})" if np.isfinite(seen.half) else ""
    return seen, f"{np.exp(seen.mean):.1f}{ends}"


def _score4(result: Result) -> list[Finding]:
    findings = []
    rounds, level = result["rounds"], result["level"]
    for problem, sizes in result["problems"].items():
        missed = [
            f"{name} at m = {m} in {values.count(None)} of {len(values)}"
            for m, one in sizes.items()
            for name, values in one["reached"].items()
            if None in values
        ]
        chosen = [
            "each seed is a problem of its own (the paper has one), speeds are ratios of first hits, the same problem "
            "under both, and 'about' n times holds where the 95% interval is above 1 and reaches n"
        ]
        if missed:
            chosen.append(f"not at {level:g} in {rounds:,} rounds, counted as {rounds:,}: {'; '.join(missed)}")
        for name, factor in (("d=10m", 3.0), ("d=2m", 2.0)):
            holds, words, slower = [], [], []
            for m, one in sizes.items():
                seen, text = _speed_up(one, name, rounds)
                sooner = seen.low > 0.0
                holds += [sooner, sooner and seen.high >= np.log(factor)]
                words.append(
                    f"m = {m}: {text} times ({_show_rounds(one['reached'][name], rounds)} rounds, rand "
                    f"{_show_rounds(one['reached']['rand'], rounds)})"
                )
                if not holds[-1]:
                    slower.append(f"m = {m}")
            check = [f"an independent program: {result['check'][name]}"] if name in result["check"] else []
            findings.append(
                Finding(
                    f"pow-d with {name.replace('=', ' = ')} reaches the global loss {level:g} about {factor:g} times "
                    f"sooner than rand ({problem})",
                    f"{factor:g} times",
                    "; ".join(words),
                    verdict(holds),
                    ". ".join([*([f"not so at {', '.join(slower)}"] if slower else []), *chosen, *check]),
                )
            )
        holds, words, notes = [], [], []
        for m, one in sizes.items():
            floor = order(one["end"], "d=10m > rand", digits=3, ratio=True)
            times = float(np.exp(np.mean(np.log(one["end"]["d=10m"]) - np.log(one["end"]["rand"]))))
            holds += [*floor.holds, floor.holds[0] and times < 1.5]
            words.append(f"m = {m}: {floor.shown} ({times:.2f} times)")
            notes += [f"m = {m}: {link}" for link in floor.broken]
        findings.append(
            Finding(
                f"The error floor of pow-d with d = 10m is slightly higher than rand's ({problem})",
                "'slightly higher'",
                "; ".join(words),
                verdict(holds),
                ". ".join(
                    [*notes, "the global loss at the end; 'slightly' is read as less than 1.5 times, on average"]
                ),
            )
        )
        holds, words, notes = [], [], []
        for m, one in sizes.items():
            seen, text = _speed_up(one, "ada", rounds)
            gone = order(one["end"], "d=10m > ada", ratio=True)
            beside = interval(np.log(one["end"]["ada"]) - np.log(one["end"]["rand"]))
            fast = seen.low > 0.0
            holds += [fast, fast and seen.high >= np.log(3.0), *gone.holds, beside.mean < np.log(1.1)]
            words.append(f"m = {m}: {text} times, loss at the end {np.exp(beside.mean):.2f} times rand's")
            notes += [f"m = {m}: {link}" for link in gone.broken]
        findings.append(
            Finding(
                f"adapow-d is 3 times as fast as rand and ends where rand ends ({problem})",
                "'at least 3 times'; curves",
                "; ".join(words),
                verdict(holds),
                ". ".join([*notes, "d = K until half of the rounds, then m; the same end means less than 10% above"]),
            )
        )
    return findings


def _plot4(result: Result) -> "Figure":
    problems = result["problems"]
    columns = len(next(iter(problems.values())))
    figure, axes = _plots.figure(3.4 * columns, 2.8 * len(problems), columns=columns, rows=len(problems), sharey="row")
    for row, (problem, sizes) in zip(axes, problems.items(), strict=True):
        for axis, (m, one) in zip(row, sizes.items(), strict=True):
            for i, (name, curve) in enumerate(one["curves"].items()):
                _line(axis, curve, i, {"ada": "adapow-d"}.get(name, f"pow-d, {name}" if name != "rand" else name))
            axis.axhline(result["level"], color="grey", linewidth=0.8)
            axis.set_yscale("log")
            axis.set_title(f"m = {m} ({problem})", fontsize=10)
            axis.set_xlabel("communication round")
        row[0].set_ylabel("global loss (mean over seeds)")
    axes[0][0].legend(fontsize=8)
    return figure


def _line(axis: Any, curve: Mapping[str, Any], i: int, label: str, scale: float = 1.0) -> None:
    axis.plot(curve["at"], scale * np.asarray(curve["mean"]), label=label, **_plots.line(i))


FIG4 = Study(
    id="power-of-choice/fig4",
    title="Logistic regression on Synthetic(1,1): global loss over rounds",
    paper=PAPER + ", Fig. 4 and appendix F",
    settings={
        # "Follows the power law": FedProx, whose data this is, says so of its log-normal sizes; the other reading is
        # the power law that this paper has for its quadratics.
        "problems": {
            "log-normal sizes": "synthetic(1, 1, test=0)",
            "power-law sizes": "synthetic(1, 1, test=0, size=power-law(mean=200))",
        },
        "clients": 30,
        "cohort_sizes": [1, 2, 3],
        "model": "logistic",
        "lr": 0.05,
        "halved": [300, 600],
        "batch": 50,
        "steps": 30,
        "rounds": 800,
        "seeds": 8,
        "evaluate_every": 2,
        "loss_every": None,
        "level": 0.7,
        "over": 10,
        "check": {
            "d=10m": "4.1, 2.3 and 2.0 times at m = 1, 2, 3",
            "d=2m": "2.0, 2.0 and 1.3 times at m = 1, 2, 3",
        },
    },
    quick={"rounds": 100, "seeds": 2},
    items=_items4,
    job=_train,
    gather=_gather4,
    score=_score4,
    plot=_plot4,
)

# --- Tables 1 and 2: Fashion-MNIST -------------------------------------------------------------------------------

BIG = "rand, C=0.1"
FASHION = {
    "data": "fashion-mnist",
    "clients": 100,
    "model": "mlp(hidden=(64, 30), dropout=0.5)",
    "rates": [0.005, 0.0005],  # as printed; the one that explains the figures
    "halved": [150, 300],
    "batch": 64,
    "steps": 30,
    "weight_decay": 1e-4,
    "rounds": 400,
    "seeds": 3,
    "evaluate_every": 2,
    "loss_every": 10,
    "over": 5,
}
SCHEMES = {
    BIG: ["size-weighted", 0.1],
    "rand": ["size-weighted", 0.03],
    "pow-d": ["pow-d(candidates=6)", 0.03],
    "cpow-d": ["cpow-d(candidates=6)", 0.03],
    "rpow-d": ["rpow-d(candidates=50)", 0.03],
    "afl": ["active-fl", 0.03],
}


def _rows(settings: Settings) -> list[tuple[str, str, float]]:
    """(partition, scheme, learning rate) of every row."""
    return [
        (partition, name, rate)
        for partition in settings["partitions"]
        for rate in settings["rates"]
        for name in settings["schemes"]
    ]


def _items_fashion(settings: Settings) -> Sequence[dict[str, Any]]:
    items = []
    for partition, name, rate in _rows(settings):
        policy, fraction = settings["schemes"][name]
        m = max(round(fraction * settings["clients"]), 1)
        how = {"partition": settings["partitions"][partition], "lr": rate, "away": settings.get("away")}
        items += [_item(settings, seed, policy, m, **how) for seed in range(settings["seeds"])]
    return items


def _gather_fashion(settings: Settings, done: list[dict[str, Any]]) -> Result:
    seeds, level = settings["seeds"], settings.get("level", 0.6)
    kept = ("rounds", "paper", "over", "evaluate_every", "tried", "silent")
    result: Result = {name: settings[name] for name in kept if name in settings} | {"level": level, "partitions": {}}
    for i, (partition, name, rate) in enumerate(_rows(settings)):
        runs = done[i * seeds : (i + 1) * seeds]
        at, accuracy = runs[0]["accuracy_at"], np.array([run["accuracy"] for run in runs])
        one = result["partitions"].setdefault(partition, {}).setdefault(f"{rate:g}", {})
        for key, value in (
            ("accuracy", rounded(100 * _tail(accuracy, settings["over"]))),
            ("first", _or_none([reached(at, run, level) for run in accuracy])),
            ("for_good", _or_none([_for_good(at, run, level) for run in accuracy])),
            ("of_mean", _or_none([reached(at, accuracy.mean(axis=0), level)])[0]),
            ("t_comp", rounded([run["t_comp"] for run in runs])),
            ("parallel", rounded([run["parallel"] for run in runs])),
            ("curves", {metric: _curve(runs, metric) for metric in ("accuracy", "train_loss") if metric in runs[0]}),
        ):
            one.setdefault(key, {})[name] = value
    return result


def _printed_accuracy(result: Result, rate: str, one: Mapping[str, Any]) -> Finding:
    printed = result["paper"]["accuracy"]
    near, outside = [], []
    for name, (mean, spread) in printed.items():
        ours = interval(one["accuracy"][name])
        near.append(abs(ours.mean - mean) <= ours.half + spread)
        if not near[-1]:
            outside.append(f"{name} {ours.mean - mean:+.1f} points")
    return Finding(
        f"Learning rate {rate}: test accuracy after {result['rounds']:,} rounds is the printed one",
        "; ".join(f"{name} {mean:.2f} ± {spread:.2f}" for name, (mean, spread) in printed.items()),
        "; ".join(f"{name} {show(one['accuracy'][name], 2)}" for name in printed),
        verdict(near),
        ". ".join(
            [
                f"mean of the last {result['over']} evaluations, on the 10,000 test examples; the same where the "
                "paper's ± and our interval meet",
                *([f"outside: {', '.join(outside)}", *result["tried"]["accuracy"]] if outside else []),
            ]
        ),
    )


def _printed_rounds(result: Result, rate: str, one: Mapping[str, Any]) -> Finding:
    printed, rounds = result["paper"]["R60"], result["rounds"]
    near, outside = [], []
    for name, value in printed.items():
        ours = interval(_censored(one["first"][name], rounds))
        near.append(None not in one["first"][name] and abs(ours.mean - value) <= ours.half)
        if not near[-1]:
            outside.append(name)
    of_mean = "; ".join(f"{name} {x:,.0f}" if x else f"{name} never" for name, x in one["of_mean"].items())
    for_good = "; ".join(f"{name} {_show_rounds(one['for_good'][name], rounds)}" for name in printed)
    return Finding(
        f"Learning rate {rate}: R60, rounds to {result['level']:.0%} test accuracy, is the printed one",
        "; ".join(f"{name} {value}" for name, value in printed.items()),
        "; ".join(f"{name} {_show_rounds(one['first'][name], rounds)}" for name in printed),
        verdict(near),
        ". ".join(
            [
                f"read as each seed's first hit, evaluated every {result['evaluate_every']} rounds; the same where "
                f"the interval holds the paper's number. First hit of the mean curve: {of_mean}. From there on never "
                f"below: {for_good}",
                *([f"outside: {'; '.join(outside)}", *result["tried"]["R60"]] if outside else []),
            ]
        ),
    )


def _orders(result: Result, rate: str, one: Mapping[str, Any]) -> list[Finding]:
    small = {name: one["accuracy"][name] for name in ("rand", "afl", *OURS)}
    up = [("afl", "rand"), *((name, "afl") for name in OURS), *((name, "rand") for name in OURS)]
    best = _links(small, up, digits=2)
    hits = {name: _censored(one["first"][name], result["rounds"]) for name in small}
    fast = _links(hits, [(b, a) for a, b in up], ratio=True)
    return [
        Finding(
            f"Learning rate {rate}: accuracy in the order rand < afl < pow-d, cpow-d, rpow-d (C = 0.03)",
            "the order of the table",
            best.shown,
            verdict(best.holds),
            ". ".join([f"{sum(best.holds)} of {len(best.holds)} pairs hold, by seeds in pairs", *best.broken]),
        ),
        Finding(
            f"Learning rate {rate}: R60 in the order rand > afl > pow-d, cpow-d, rpow-d (C = 0.03)",
            "the order of the table",
            fast.shown,
            verdict(fast.holds),
            ". ".join(
                [f"{sum(fast.holds)} of {len(fast.holds)} pairs hold, by ratios in pairs of seeds", *fast.broken]
            ),
        ),
    ]


def _beats_more_clients(result: Result, rate: str, one: Mapping[str, Any]) -> Finding:
    paper, rounds = result["paper"], result["rounds"]
    gains, ratios = {}, {}
    for name in OURS:
        gains[name] = np.subtract(one["accuracy"][name], one["accuracy"][BIG])
        ratios[name] = np.log(_censored(one["first"][name], rounds) / _censored(one["first"][BIG], rounds))
    higher = [interval(gain).low > 0 for gain in gains.values()]
    sooner = [interval(ratio).high < 0 for ratio in ratios.values()]
    return Finding(
        f"Learning rate {rate}: with a third of the clients, Power-of-Choice beats rand with C = 0.1",
        "; ".join(
            f"{name} {paper['accuracy'][name][0] - paper['accuracy'][BIG][0]:+.1f} points, R60 "
            f"{paper['R60'][name] / paper['R60'][BIG]:.2f} times"
            for name in OURS
        ),
        "; ".join(f"{name} {_gain(gains[name])}, R60 {np.exp(ratios[name].mean()):.2f} times" for name in OURS),
        verdict([*higher, *sooner]),
        f"accuracy higher for {sum(higher)} of {len(OURS)}, R60 lower for {sum(sooner)}, by seeds in pairs",
    )


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
        verdict([hold for one in judged for hold in one.holds]),
        ". ".join(
            [
                *(f"one after another: {link}" for link in judged[0].broken),
                *(f"every client a core: {link}" for link in judged[1].broken),
                "choosing, probes and local work of this program, without evaluation and without the first round, "
                "which compiles. The paper has a GPU for each client, and its time grows with their number, which "
                "ours does not when they work side by side: nothing is sent between machines here",
            ]
        ),
    )


def _score_table(result: Result) -> list[Finding]:
    (rates,) = result["partitions"].values()
    findings = []
    for rate, one in rates.items():
        findings += [_printed_accuracy(result, rate, one), _printed_rounds(result, rate, one)]
        findings += [*_orders(result, rate, one), _beats_more_clients(result, rate, one)]
    return [*findings, _computation(result, rates)]


def _plot_fashion(result: Result) -> "Figure":
    partitions = result["partitions"]
    rates = list(next(iter(partitions.values())))
    metrics = [("accuracy", "test accuracy, %", 100.0), ("train_loss", "training loss", 1.0)]
    columns = len(metrics) * len(partitions)
    figure, axes = _plots.figure(3.6 * columns, 3.0 * len(rates), columns=columns, rows=len(rates))
    for row, rate in zip(axes, rates, strict=True):
        for j, (partition, by_rate) in enumerate(partitions.items()):
            for axis, (metric, label, scale) in zip(row[2 * j : 2 * j + 2], metrics, strict=True):
                for i, (name, curves) in enumerate(by_rate[rate]["curves"].items()):
                    if metric in curves:
                        _line(axis, curves[metric], i, name, scale)
                axis.set_title(f"{partition}, learning rate {rate}", fontsize=10)
                axis.set_xlabel("communication round")
                axis.set_ylabel(label)
            if "R60" in result["paper"]:
                row[2 * j].axhline(100 * result["level"], color="grey", linewidth=0.8)
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=6)
    return figure


ELSEWHERE = "at alpha = 0.3 and one seed, rand and pow-d with C = 0.03:"
TRIED = {
    "accuracy": [
        f"tried: the learning rate (both are here); {ELSEWHERE} 64.7 and 66.3% with dropout after both hidden layers "
        "at 0.0005; 70.9 and 72.7% with pixels in [0, 1], not standardised, at 0.005; 65.4 and 65.9% with both of "
        "these",
        "the paper does not print how many rounds it runs: 400 is the last round marked on an axis (Fig. 11)",
    ],
    "R60": [
        f"tried: the learning rate (both are here); the three readings; {ELSEWHERE} first hits at 146 and 58 with "
        "dropout after both hidden layers at 0.0005; 44 and 58 (for good: 302 and 294) with pixels in [0, 1], not "
        "standardised, at 0.005; 44 and 104 with both of these",
    ],
}


def _table(
    number: int, alpha: float, accuracy: Sequence[tuple[float, float]], R60: Sequence[int], t: Sequence[float]
) -> Study:
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
        quick={"rounds": 30, "seeds": 2},
        items=_items_fashion,
        job=_train,
        gather=_gather_fashion,
        score=_score_table,
        plot=_plot_fashion,
    )


TABLE1 = _table(
    1,
    0.3,
    [(71.21, 2.41), (64.87, 1.97), (76.47, 0.87), (76.63, 0.79), (76.56, 1.00), (73.28, 1.05)],
    [172, 234, 89, 80, 98, 121],
    [0.43, 0.36, 0.48, 0.37, 0.37, 0.36],
)
TABLE2 = _table(
    2,
    2.0,
    [(63.50, 2.74), (66.03, 1.47), (73.81, 1.14), (73.36, 1.17), (72.52, 0.89), (70.64, 1.99)],
    [135, 136, 82, 89, 99, 131],
    [0.42, 0.36, 0.46, 0.38, 0.36, 0.36],
)

# --- Fig. 8: clients that come and go ----------------------------------------------------------------------------


def _score8(result: Result) -> list[Finding]:
    findings = []
    for partition, rates in result["partitions"].items():
        claimed = result["paper"][partition]
        for rate, one in rates.items():
            gains = {name: np.subtract(one["accuracy"][name], one["accuracy"]["rand"]) for name in claimed}
            seen = {name: interval(gain) for name, gain in gains.items()}
            better = {name: gain.low > 0 for name, gain in seen.items()}
            enough = {name: better[name] and gain.high >= claimed[name] for name, gain in seen.items()}
            short = [f"{name} less rand is {_gain(gains[name])}" for name in claimed if not enough[name]]
            findings.append(
                Finding(
                    f"{partition}, learning rate {rate}: with halves that take turns, Power-of-Choice is more "
                    "accurate than rand",
                    "; ".join(f"{name} +{gain:g} points" for name, gain in claimed.items()),
                    "; ".join(f"{name} {show(values, 2)}%" for name, values in one["accuracy"].items()),
                    verdict([*better.values(), *enough.values()]),
                    ". ".join(
                        [
                            *short,
                            "a gain holds where the paired interval is above 0, its size where it also reaches the "
                            f"paper's; accuracy is the mean of the last {result['over']} evaluations of "
                            f"{result['rounds']:,} rounds",
                            *result["silent"],
                        ]
                    ),
                )
            )
    return findings


FIG8 = Study(
    id="power-of-choice/fig8",
    title="Fashion-MNIST with intermittent availability: test accuracy and training loss",
    paper=PAPER + ", Fig. 8 and appendix G.3",
    settings={
        **FASHION,
        "partitions": {"alpha = 2": "dirichlet(alpha=2)", "alpha = 0.3": "dirichlet(alpha=0.3)"},
        "schemes": {name: SCHEMES[name] for name in ("rand", "pow-d", "rpow-d")},
        "away": 0.1,
        "paper": {"alpha = 2": {"pow-d": 10.0, "rpow-d": 5.0}, "alpha = 0.3": {"pow-d": 10.0, "rpow-d": 10.0}},
        "silent": [
            "the text's 'alpha = 3' is read as the figure's 0.3. d is not printed: 6 and 50 as in the tables, so that "
            "rpow-d, whose 50 are cut to the 45 there, takes the highest of all"
        ],
    },
    quick={"rounds": 30, "seeds": 2},
    items=_items_fashion,
    job=_train,
    gather=_gather_fashion,
    score=_score8,
    plot=_plot_fashion,
)
