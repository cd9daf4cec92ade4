"""RBCS-F, section 6.1: queues (Fig. 2), training time (Fig. 3) and pulls (Fig. 4) in 500 rounds without training."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpick.studies import _plots
from fedpick.studies._runs import Measured, play_scheme, scheme_items
from fedpick.studies._stats import band, interval, order, rounded, show, steps, verdict
from fedpick.studies._study import Finding, Result, Settings, Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["FIG2", "FIG3", "FIG4"]

PAPER = (
    "Huang, Lin, Wu, He, Li & Zomaya (2021), An Efficiency-Boosting Client Selection Scheme for Federated Learning "
    "with Fairness Guarantee, IEEE Transactions on Parallel and Distributed Systems"
)
SILENT = "the paper gives no V and no base of the logarithm in eta: we took V = 1, 10, 50, 100 and base 2 (Shannon)"


def _ours(penalty: int) -> str:
    return f"rbcs-f(penalty={penalty}, guarantee=0.15, ridge=1.0, exploration=0.1)"


QUEUED = {f"RBCS-F({v})": _ours(v) for v in (1, 10, 50, 100)}
SCHEMES = {"Random": "uniform", **QUEUED, "FedCS(3)": "fedcs(cohort_size=None, deadline=3.0)"}
BASE = {"clients": 40, "cohort_size": 8, "rounds": 500, "seeds": 20, "world": "rbcs-f"}
QUICK = {"seeds": 5}


def _items(settings: Settings) -> Sequence[dict[str, Any]]:
    return scheme_items(settings, {"": settings["world"]})


def _by_name(settings: Settings, done: list[Measured]) -> dict[str, list[Measured]]:
    seeds = settings["seeds"]
    return {name: done[i * seeds : (i + 1) * seeds] for i, name in enumerate(settings["schemes"])}


def _study(
    figure: str,
    title: str,
    schemes: dict[str, str],
    more: Settings,
    items: Callable[[Settings], Sequence[Any]] = _items,
    quick: Settings = QUICK,
    **functions: Any,
) -> Study:
    return Study(
        id=f"rbcs-f/fig{figure}",
        title=title,
        paper=f"{PAPER}, Fig. {figure}",
        settings={**BASE, "schemes": schemes, **more},
        quick=quick,
        items=items,
        job=play_scheme,
        **functions,
    )


# --- Fig. 2: mean queue ------------------------------------------------------------------------------------------


def _items2(settings: Settings) -> Sequence[dict[str, Any]]:
    return _items({**settings, "rounds": max(settings["rounds"], settings["longer"])})


def _gather2(settings: Settings, done: list[Measured]) -> Result:
    rounds = settings["rounds"]
    at, tail = steps(rounds), max(rounds // 10, 1)
    result: Result = {"rounds": rounds, "flat": settings["flat"], "at": rounded(at)}
    result |= {
        "curves": {},
        "level": {},
        "reached": {},
        "start": {},
        "growth": {},
        "longer": len(done[0].queue),
        "later": {},
    }
    for name, runs in _by_name(settings, done).items():
        whole = np.array([run.queue for run in runs])
        result["later"][name] = rounded(
            (whole[:, -1] - whole[:, -1 - tail]) / tail if len(whole[0]) > tail else whole[:, 0]
        )
        queue = whole[:, :rounds]
        level = queue[:, -tail:].mean(axis=1)
        mean, half = band(queue[:, at - 1])
        result["curves"][name] = {"mean": rounded(mean), "half": rounded(half)}
        result["level"][name] = rounded(level)
        # The first round at 90% of the level of the last tenth: how fast the curve converges.
        result["reached"][name] = rounded(np.argmax(queue >= 0.9 * level[:, None], axis=1) + 1)
        result["start"][name] = rounded(queue[:, tail - 1] / tail)  # growth a round, first and last tenth
        result["growth"][name] = rounded((queue[:, -1] - queue[:, -1 - tail]) / tail if rounds > tail else level * 0)
    return result


def _score2(result: Result) -> list[Finding]:
    names = list(result["level"])
    ratio = {name: np.divide(result["growth"][name], result["start"][name]) for name in names}
    flat = {name: interval(values).high < result["flat"] for name, values in ratio.items()}
    rising = " > ".join(reversed(names))
    level, speed = order(result["level"], rising, digits=2), order(result["reached"], rising)
    left = [name for name in names if not flat[name]]
    later = {name: 100 * np.divide(result["later"][name], result["start"][name]) for name in names}
    return [
        Finding(
            "The mean queue flattens for every V",
            "curves only",
            "growth in the last tenth of the rounds, as a share of that in the first: "
            + "; ".join(f"{name} {show(100 * ratio[name], 1, '%')}" for name in names),
            verdict(list(flat.values())),
            f"flat means less than {result['flat']:.0%}"
            + (f"; within {result['rounds']} rounds {', '.join(left)} still grow" if left else "")
            + f". After {result['longer']:,} rounds: "
            + "; ".join(f"{name} {show(values, 1, '%')}" for name, values in later.items())
            + f". {SILENT}",
        ),
        Finding(
            "The higher V, the higher the queue converges",
            "curves only",
            f"mean queue over the last tenth: {level.shown}",
            verdict(level.holds),
            ". ".join(level.broken),
        ),
        Finding(
            "The higher V, the slower the queue converges",
            "curves only",
            f"rounds to 90% of that level: {speed.shown}",
            verdict(speed.holds),
            ". ".join(speed.broken),
        ),
    ]


def _plot2(result: Result) -> "Figure":
    figure, axes = _plots.figure(5.6, 3.6)
    axis = axes[0][0]
    for i, (name, curve) in enumerate(result["curves"].items()):
        mean, half, look = np.asarray(curve["mean"]), np.asarray(curve["half"]), _plots.line(i)
        axis.plot(result["at"], mean, label=name, **look)
        axis.fill_between(result["at"], mean - half, mean + half, color=look["color"], alpha=0.2, linewidth=0)
    axis.set_xlabel("federated round")
    axis.set_ylabel("average queue length")
    axis.legend()
    return figure


FIG2 = _study(
    "2",
    "The impact of V on the queues",
    QUEUED,
    {"flat": 0.1, "longer": 3000},  # the paper's 500 rounds are shown; longer ones tell whether the rest flattens, too
    items=_items2,
    quick={"longer": 1000},  # flatness is lost in the noise of fewer seeds
    gather=_gather2,
    score=_score2,
    plot=_plot2,
)

# --- Fig. 3: training time ---------------------------------------------------------------------------------------

# Our own check with another program: mean seconds of a round.
CHECK = {"Random": 15.2, "RBCS-F(1)": 10.0, "RBCS-F(10)": 8.5, "RBCS-F(50)": 5.7, "RBCS-F(100)": 4.8, "FedCS(3)": 4.0}


def _gather3(settings: Settings, done: list[Measured]) -> Result:
    rounds = settings["rounds"]
    at = steps(rounds, 100)
    result: Result = {"rounds": rounds, "cohort_size": settings["cohort_size"], "at": rounded(at)}
    result |= {"check": settings["check"] if rounds == BASE["rounds"] else None}
    result |= {"curves": {}, "seconds": {}, "size": {}}
    for name, runs in _by_name(settings, done).items():
        seconds = np.array([run.seconds for run in runs])
        mean, half = band(seconds.cumsum(axis=1)[:, at - 1])
        result["curves"][name] = {"mean": rounded(mean), "half": rounded(half)}
        result["seconds"][name] = rounded(seconds.mean(axis=1))
        result["size"][name] = rounded([run.chosen.mean() for run in runs])
    return result


def _score3(result: Result) -> list[Finding]:
    seconds = result["seconds"]
    falling = "RBCS-F(1) > RBCS-F(10) > RBCS-F(50) > RBCS-F(100)"
    saved, ours, gap = (
        order(seconds, claim, digits=2) for claim in ("Random > RBCS-F(1)", falling, "RBCS-F(100) > FedCS(3)")
    )
    size = result["size"]["FedCS(3)"]
    findings = [
        Finding(
            "RBCS-F trains in less time than random selection",
            "curves only",
            f"mean seconds a round: {saved.shown}",
            verdict(saved.holds),
            ". ".join([*saved.broken, SILENT]),
        ),
        Finding(
            "The higher V, the shorter the time",
            "curves only",
            f"mean seconds a round: {ours.shown}",
            verdict(ours.holds),
            ". ".join(ours.broken),
        ),
        Finding(
            "A gap to FedCS(3) remains: the price of fairness and of learning",
            "curves only",
            f"mean seconds a round: {gap.shown}",
            verdict(gap.holds),
            ". ".join(gap.broken),
        ),
        Finding(
            "A deadline of 3 s makes FedCS choose about 8 clients",
            "'approximates to 8'",
            f"{show(size, 2)} clients a round",
            verdict([abs(float(np.mean(size)) - result["cohort_size"]) <= 1]),
            "about means within 1; a difference of size changes the time of the slowest",
        ),
    ]
    if result["check"]:
        off = {name: float(np.mean(seconds[name])) - value for name, value in result["check"].items()}
        findings.append(
            Finding(
                "Mean time of a round agrees with an independent program",
                "curves only; the program: " + ", ".join(f"{n} {v} s" for n, v in result["check"].items()),
                ", ".join(f"{name} {show(seconds[name], 2)} s" for name in off),
                verdict([abs(gap) <= 0.05 * result["check"][name] for name, gap in off.items()]),
                "less than 5% apart counts as agreeing; apart: "
                + (
                    ", ".join(f"{n} {g:+.2f} s" for n, g in off.items() if abs(g) > 0.05 * result["check"][n]) or "none"
                ),
            )
        )
    return findings


def _plot3(result: Result) -> "Figure":
    figure, axes = _plots.figure(5.6, 3.8)
    axis = axes[0][0]
    for i, (name, curve) in enumerate(result["curves"].items()):
        mean, half, look = np.asarray(curve["mean"]), np.asarray(curve["half"]), _plots.line(i)
        axis.plot(result["at"], mean, label=name, **look)
        axis.fill_between(result["at"], mean - half, mean + half, color=look["color"], alpha=0.2, linewidth=0)
    axis.set_xlabel("federated round")
    axis.set_ylabel("training time (s)")
    axis.legend()
    return figure


FIG3 = _study(
    "3",
    "Training time of client-selection strategies",
    SCHEMES,
    {"check": CHECK},
    gather=_gather3,
    score=_score3,
    plot=_plot3,
)

# --- Fig. 4: pulls per client ------------------------------------------------------------------------------------


def _gather4(settings: Settings, done: list[Measured]) -> Result:
    runs = _by_name(settings, done)
    return {
        "rounds": settings["rounds"],
        "guarantee": settings["guarantee"],
        # The paper shows one run, clients in ascending order of pulls; we show the mean over seeds of each rank.
        "pulls": {name: rounded(np.mean([np.sort(run.counts) for run in of], axis=0)) for name, of in runs.items()},
        "spread": {name: rounded([run.counts.std() / run.counts.mean() for run in of]) for name, of in runs.items()},
        "least": {name: rounded([run.counts.min() / settings["rounds"] for run in of]) for name, of in runs.items()},
    }


def _score4(result: Result) -> list[Finding]:
    spread, least = result["spread"], result["least"]
    uneven = order(spread, "FedCS(3) > RBCS-F(100) > RBCS-F(50) > RBCS-F(10) > RBCS-F(1)", digits=3)
    even = order(spread, "RBCS-F(50) > Random", digits=3)
    low = order(spread, "RBCS-F(50) > RBCS-F(1)", digits=3)
    kept = {
        name: interval(values).mean >= 0.9 * result["guarantee"] for name, values in least.items() if "RBCS" in name
    }
    return [
        Finding(
            "Pulls vary more the higher V, and most for FedCS(3)",
            "colours only",
            f"standard deviation of pulls over their mean: {uneven.shown}",
            verdict(uneven.holds),
            ". ".join(uneven.broken),
        ),
        Finding(
            "Random and RBCS-F with a low V spread the pulls evenly",
            "colours only",
            f"the same: Random {show(spread['Random'], 3)}, {low.shown}",
            verdict([*even.holds, *low.holds]),
            ". ".join([*even.broken, *low.broken]),
        ),
        Finding(
            f"In the long run every client takes part in at least beta = {result['guarantee']} of the rounds",
            "Theorem 4, long-term; no figure",
            "share of the least chosen client: "
            + "; ".join(f"{name} {show(values, 3)}" for name, values in least.items()),
            verdict(list(kept.values())),
            f"judged for RBCS-F after {result['rounds']} rounds, as 90% of beta; not yet there: "
            + (", ".join(name for name, good in kept.items() if not good) or "none"),
        ),
    ]


def _plot4(result: Result) -> "Figure":
    names = list(result["pulls"])
    figure, axes = _plots.figure(7, 3)
    axis = axes[0][0]
    image = axis.imshow([result["pulls"][name] for name in names], aspect="auto", cmap="cividis", vmin=0)
    axis.set_yticks(range(len(names)), names)
    axis.set_xlabel("client, in ascending order of pulls")
    axis.grid(False)
    figure.colorbar(image, ax=axis, label=f"pulls in {result['rounds']} rounds")
    return figure


FIG4 = _study("4", "Pull record of clients", SCHEMES, {"guarantee": 0.15}, gather=_gather4, score=_score4, plot=_plot4)
