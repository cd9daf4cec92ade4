"""The tournament's page: ranks with intervals, and all figures of each world."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import rankdata

from fedpick.core.types import Floats
from fedpick.report.intervals import Interval, interval, paired
from fedpick_papers.studies import _plots
from fedpick_papers.studies._stats import show
from fedpick_papers.studies._study import Result, table
from fedpick_papers.studies.tournament._play import METRICS, ORACLES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["FEW", "better", "body", "chance", "cost", "gap", "plot", "ranks", "speedup"]


FEW = 5  # seeds; with fewer, intervals are wide, and a difference that is not named may still be there


def _ranked(result: Result) -> list[str]:
    """The policies that are compared: no oracles, which know what no server knows."""
    return [name for name in result["policies"] if name not in ORACLES]


def _values(cell: Mapping[str, Any], name: str, metric: str) -> Floats:
    """A metric for each seed; infinite where a level was not reached."""
    return np.array([np.inf if x is None else x for x in cell[name][metric]], dtype=np.float64)


def ranks(result: Result, metric: str, worlds: Sequence[str] | None = None) -> dict[str, Interval]:
    """Mean rank of each policy over these worlds (1 is best, ties share), with its interval over seeds."""
    names, more = _ranked(result), METRICS[metric][1]
    by_seed = []
    for world in worlds or list(result["worlds"]):
        cell = result["worlds"][world]["policies"]
        values = np.array([_values(cell, name, metric) for name in names])
        by_seed.append(rankdata(-values if more else values, axis=0))
    mean = np.mean(by_seed, axis=0)
    return {name: interval(row) for name, row in zip(names, mean, strict=True)}


def chance(result: Result) -> float:
    """Level of the intervals where all policies are compared with the reference at once (Bonferroni)."""
    return 1.0 - 0.05 / max(len(_ranked(result)) - 1, 1)


def gap(result: Result, world: str, name: str, metric: str = "accuracy") -> Interval:
    """Paired difference to the reference, at the level of `chance`."""
    cell = result["worlds"][world]["policies"]
    return paired(_values(cell, name, metric), _values(cell, result["reference"], metric), chance(result))


def speedup(result: Result, world: str, name: str) -> Interval | None:
    """Logarithm of the reference's hours to the level over the policy's; None if one of them missed it at a seed."""
    cell = result["worlds"][world]["policies"]
    mine, base = _values(cell, name, "hours"), _values(cell, result["reference"], "hours")
    if not (np.isfinite(mine).all() and np.isfinite(base).all() and (mine > 0).all() and (base > 0).all()):
        return None
    return paired(np.log(base), np.log(mine), chance(result))


def better(result: Result, world: str) -> list[str]:
    """The policies whose final accuracy is above the reference's beyond chance, the best rank first."""
    there = [name for name in _ranked(result) if name != result["reference"]]
    won = [name for name in there if gap(result, world, name).low > 0]
    by = ranks(result, "accuracy", [world])
    return sorted(won, key=lambda name: by[name].mean)


def cost(result: Result, world: str, name: str) -> float:
    """Messages a round, as a multiple of the reference's."""
    cell = result["worlds"][world]["policies"]
    return float(np.mean(cell[name]["messages"]) / np.mean(cell[result["reference"]]["messages"]))


def _hours(cell: Mapping[str, Any], name: str) -> str:
    hours = cell[name]["hours"]
    got = [x for x in hours if x is not None]
    if not got:
        return "never"
    return f"{np.median(got):.3f}" + (f" ({len(got)} of {len(hours)})" if len(got) < len(hours) else "")


def _world(result: Result, world: str) -> str:
    cell = result["worlds"][world]["policies"]
    by = ranks(result, "accuracy", [world])
    ordered = [*sorted(by, key=lambda name: by[name].mean), *(name for name in cell if name in ORACLES)]
    head = ["policy", "hours to the level", "accuracy, %", "after as many rounds, %", "worst tenth, %", "Jain"]
    head += ["not used, %", "messages a round", "rounds"]
    rows = [head, ["---", *["---:"] * (len(head) - 1)]]
    for name in ordered:
        one = cell[name]
        rows.append(
            [
                f"{name} (not ranked)" if name in ORACLES else name,
                _hours(cell, name),
                show(one["accuracy"], 1),
                show(one["by_rounds"], 1),
                show(one["worst"], 1),
                f"{np.mean(one['jain']):.2f}",
                f"{np.mean(one['wasted']):.0f}",
                f"{np.mean(one['messages']):.1f}",
                f"{np.mean(one['rounds']):.0f}",
            ]
        )
    level = show(result["worlds"][world]["level"], 1)
    return f"### {world}\n\nLevel: {level} % (of each seed).\n\n{table(rows)}"


def body(result: Result) -> str:
    """Ranks over all worlds, then a table for each world."""
    first = result["reference"]
    over = {metric: ranks(result, metric) for metric in METRICS}
    order = sorted(over["accuracy"], key=lambda name: over["accuracy"][name].mean)
    heads = ("hours", "accuracy", "worst tenth", "fairness", "work not used")
    rows = [["policy", *heads], ["---", *["---:"] * len(heads)]]
    for name in order:
        cells = [over[metric][name] for metric in METRICS]
        rows.append([name, *(f"{c.mean:.1f}" + (f" ± {c.half:.1f}" if np.isfinite(c.half) else "") for c in cells)])
    won = [["world", f"higher final accuracy than {first}, beyond chance", "lower"], ["---", "---", "---"]]
    for world in result["worlds"]:
        lost = [n for n in _ranked(result) if n != first and gap(result, world, n).high < 0]
        above = [f"{n} {gap(result, world, n).mean:+.1f}" for n in better(result, world)]
        won.append([world, ", ".join(above) or "none", ", ".join(lost) or "none"])
    words = (words.removeprefix(f"{head}: ") for head, (words, _, _) in zip(heads, METRICS.values(), strict=True))
    legend = "; ".join(f"*{head}*: {each}" for head, each in zip(heads, words, strict=True))
    one = result["seeds"] == 1
    wide = "of one seed, so without intervals" if one else f"with 95% intervals over {result['seeds']} seeds"
    few = f" {result['seeds']} seeds tell only large differences from chance." if result["seeds"] < FEW else ""
    known = [name for name in result["policies"] if name in ORACLES]
    oracles = f"Not ranked: {', '.join(known)}, which is told how reliable each client is, and no server knows that.\n"
    against = (
        "One seed tells nothing apart from chance: no policy can be called better or worse. The figure has the "
        "differences.\n"
        if one
        else f"Differences are paired by seed; the intervals are wide enough ({chance(result):.1%}) for all policies "
        f"together to be right in 95% of such comparisons.{few}\n"
    )
    return "\n".join(
        [
            "## Ranks\n",
            f"Mean rank over the {len(result['worlds'])} worlds among {len(order)} policies (1 is best, ties share "
            f"it), {wide}. {legend}.\n",
            table(rows),
            f"## Against {first}\n",
            against,
            *([] if one else [table(won)]),
            "## Each world\n",
            *([oracles] if known else []),
            *(_world(result, world) for world in result["worlds"]),
        ]
    )


def plot(result: Result) -> "Figure":
    """Final accuracy less the reference's, for each policy and world."""
    worlds, names = list(result["worlds"]), [n for n in result["policies"] if n != result["reference"]]
    seen = np.array([[gap(result, world, name).mean for world in worlds] for name in names])
    clear = np.array([[gap(result, world, name).clear for world in worlds] for name in names])
    halves = np.array([[gap(result, world, name).half for world in worlds] for name in names])
    figure, axes = _plots.figure(max(2.0 + 0.9 * len(worlds), 4.0), max(1.2 + 0.24 * len(names), 2.8))
    axis = axes[0][0]
    most = max(float(np.abs(seen).max()), 1e-9)
    image = axis.imshow(seen, cmap="RdBu", vmin=-most, vmax=most, aspect="auto")
    for i, row in enumerate(seen):
        for j, value in enumerate(row):
            dark = abs(value) > 0.6 * most
            axis.text(
                j,
                i,
                f"{value:+.1f}" + (f" ± {halves[i, j]:.1f}" if np.isfinite(halves[i, j]) else ""),
                ha="center",
                va="center",
                fontsize=6.5,
                color="white" if dark else "black",
                weight="bold" if clear[i, j] else "normal",
            )
    axis.set_xticks(range(len(worlds)), worlds, rotation=30, ha="right")
    axis.set_yticks(range(len(names)), [f"{n} (not ranked)" if n in ORACLES else n for n in names])
    axis.grid(False)
    sure = "one seed" if result["seeds"] == 1 else "bold: beyond chance"
    figure.colorbar(image, ax=axis, label=f"final accuracy less\n{result['reference']}'s, points\n({sure})")
    return figure
