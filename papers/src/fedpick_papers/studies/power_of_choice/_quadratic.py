"""Power-of-Choice, quadratic simulation: what is played, measured and drawn.

Local steps are in closed form: tau steps of gradient descent at rate eta take w to c_k + (1 - eta h_k)^tau (w - c_k).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from fedpick import Clients, Outcome, Status, View
from fedpick import policy as policy_from_text
from fedpick.core import rng as rngs
from fedpick.core.types import Ints
from fedpick_papers import theory
from fedpick_papers.studies import _plots
from fedpick_papers.studies._stats import band, rounded, steps
from fedpick_papers.studies._study import Found, Item, Measurement, Result, Settings, seeds_of
from fedpick_papers.studies.power_of_choice._problem import Quadratic, shares

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["gather", "halved", "items", "plot", "sized", "train"]

HALVED = 5_000


def _item(settings: Settings, K: str, name: str, seed: int) -> dict[str, Any]:
    shared = {
        name: settings[name] for name in ("problem", "fraction", "rounds", "v", "tau", "learning_rate", "draws", "grid")
    }
    policy, d = _text(name, int(K), settings["rounds"]), _candidates(name)
    return {**shared, "K": int(K), "policy": policy, "d": d, "seed": seed}


def items(settings: Settings) -> Sequence[Item]:
    """An item for each size, scheme and seed."""
    return [
        _item(settings, K, name, seed)
        for K, schemes in settings["schemes"].items()
        for name in schemes
        for seed in seeds_of(settings)
    ]


def _text(name: str, K: int, rounds: int) -> str:
    """The policy of a scheme: "rand", "d=9", or "ada" (from K, halved every 5,000 rounds)."""
    if name == "rand":
        return "size-weighted"
    if name == "ada":
        return f"pow-d(schedule=halving({K}, every={halved(rounds)}))"
    return f"pow-d(candidates={_candidates(name)})"


def halved(rounds: int) -> int:
    """After how many rounds adapow-d halves d: 5,000 as printed; a quarter of a shorter run."""
    return max(min(HALVED, rounds // 4), 1)


def _candidates(name: str) -> int | None:
    return int(name.removeprefix("d=")) if name.startswith("d=") else None


def train(item: Item, _: Path) -> Measurement:
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


def gather(settings: Settings, found: Found) -> Result:
    """Curves, and the numbers of each seed."""
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


def sized(result: Result, K: str) -> list[str]:
    """The schemes with a fixed d."""
    return [name for name in result["reached"][K] if name.startswith("d=")]


def plot(result: Result) -> "Figure":
    """Fig. 2, 3 and 7."""
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
            if len(result["floor"][K][name]) >= _plots.BAND:
                axis.fill_between(result["at"], *ends, color=look["color"], alpha=0.2, linewidth=0)
        axis.set_yscale("log")
        axis.set_ylim(top=40)  # room for the legend
        axis.set_title(f"Fig. 2: K = {K}, C = 0.1", fontsize=10)
        axis.set_xlabel("communication round")
        axis.set_ylabel("gap of the global loss, first = 1\n(geometric mean over problems)")
        axis.legend(fontsize=8, loc="upper right", ncols=2)
    skew = axes[0][-1]
    for i, K in enumerate(sizes):
        names = ["rand", *sized(result, K)]
        x = [np.mean(result["rho_bar"][K][name]) for name in names]
        y = [np.mean(np.divide(result["rho_tilde"][K][name], result["rho_bar"][K][name])) for name in names]
        skew.plot(x, y, marker=_plots.MARKERS[i], label=f"K = {K}", **_plots.line(i))
        for j, (name, at, up) in enumerate(zip(names, x, y, strict=True)):
            # The line of the first d leads right, to rand. With two K, each has its names on another side.
            left = i % 2 == 0 or j == 1
            place = {"ha": "right" if left else "left", "xytext": (-6 if left else 6, -9 if i % 2 and j == 1 else -2)}
            if name != "rand":
                colour = _plots.line(i)["color"]
                skew.annotate(name, (at, up), textcoords="offset points", fontsize=8, color=colour, **place)
    skew.annotate("rand", (1.0, 1.0), textcoords="offset points", xytext=(0, 7), ha="center", fontsize=8)
    skew.margins(x=0.2)
    skew.set_title("Fig. 3: selection skew", fontsize=10)
    skew.set_xlabel("rho_bar (convergence speed)")
    skew.set_ylabel("rho_tilde / rho_bar (bias)")
    skew.legend(loc="upper right")
    K = sizes[0]
    small = sized(result, K)[0]
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
