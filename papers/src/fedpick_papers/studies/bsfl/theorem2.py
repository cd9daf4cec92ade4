"""BSFL, Theorem 2 and Fig. 3: the exact law of ALSA's walk on small graphs of selections."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse.csgraph import connected_components

from fedpick.core import rng as rngs
from fedpick_papers.studies import _plots
from fedpick_papers.studies._stats import band, rounded, show
from fedpick_papers.studies._study import Finding, Found, Item, Measurement, Result, Settings, Study, seeds_of
from fedpick_papers.studies._verdicts import Judged, Limit, above, judge, order, vacuous, within
from fedpick_papers.studies.bsfl._common import PAPER
from fedpick_papers.studies.bsfl._walk import at_rest, decades, energies, law, proposals, selections

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["STUDY"]

WALKS = {"ALSA": "alsa", "ALSA, one-sided": "alsa-drop", "SA": "sa"}
LIMITS = {
    "efficient": Limit(0.5, "probability of the optimum, at least, after as many steps as there are selections: to "
                       "look at each of them once is certain to find it"),
    "at rest": Limit(0.05, "in total variation, at most: the walk keeps up with its cooling, as the theorem needs"),
    "nearly sure": Limit(0.9, "probability of the optimum; the steps until then are told"),
}  # fmt: skip


def _item(settings: Settings, K: int, m: int, seed: int) -> dict[str, Any]:
    names = ("steps", "alpha", "sure")
    return {**{name: settings[name] for name in names}, "clients": K, "m": m, "seed": seed}


def _items(settings: Settings) -> Sequence[Item]:
    return [_item(settings, K, m, seed) for K, m in settings["sizes"] for seed in seeds_of(settings)]


def _steps(last: int) -> list[int]:
    """Two steps a decade, and the last one."""
    return sorted({round(10 ** (i / 2)) for i in range(2 * len(str(last))) if 10 ** (i / 2) <= last} | {last})


def _play(item: Item, _: Path) -> Measurement:
    """A problem with random ucb and g: for each walk the law of its state after several steps."""
    K, m = item["clients"], item["m"]
    states = selections(K, m)
    at = sorted({*_steps(item["steps"]), len(states)})
    rng = rngs.stream(item["seed"], 0, f"small graph {K} {m}")
    value, bonus = rng.random((K,)), item["alpha"] / m * rng.uniform(-1.0, 1.0, K)
    energy, ordered = energies(value, bonus, states), np.sort(bonus)
    spread = float(np.ptp(value) + ordered[-m:].sum() - ordered[:m].sum())  # Delta_max, as the solver has it
    best, walks = int(energy.argmax()), {}
    for name, neighbours in WALKS.items():
        proposed = proposals(value, bonus, states, neighbours)
        laws = np.array(law(proposed, energy, spread, at))
        degree = (proposed > 0).sum(axis=1).astype(np.float64)
        walks[name] = {
            "optimum": laws[:, best],
            "below": (energy[best] - laws @ energy) / np.ptp(energy),
            "degree": degree.mean(),
            "one": float(connected_components(proposed > 0, connection="strong")[0] == 1),
        }
        if neighbours != "alsa-drop":  # without symmetry there is no such law
            rest = at_rest(degree, energy, spread, float(np.log(at[-1] + 1.0)))
            walks[name]["off"] = 0.5 * np.abs(rest - laws[-1]).sum()
            walks[name]["decades"] = decades(degree, energy, spread, item["sure"])
    return {"at": np.array(at), "selections": len(states), "walks": walks}


def _gather(settings: Settings, found: Found) -> Result:
    result: Result = {"steps": settings["steps"], "problems": settings["seeds"], "sizes": {}}
    for K, m in settings["sizes"]:
        some = [found[_item(settings, K, m, seed)] for seed in seeds_of(settings)]
        size: Result = {"at": rounded(some[0]["at"]), "selections": some[0]["selections"], "bound": 4 * (K - m)}
        for name in WALKS:
            walks = [one["walks"][name] for one in some]
            optimum, below = (np.array([one[key] for one in walks]) for key in ("optimum", "below"))
            mean, half = band(optimum)
            where = some[0]["at"].tolist().index(some[0]["selections"])
            size[name] = {
                "curve": {"mean": rounded(mean), "half": rounded(half)},
                "enumerated": rounded(optimum[:, where]),
                "end": rounded(optimum[:, -1]),
                "below": rounded(below[:, where]),
                "below_end": rounded(below[:, -1]),
                **{
                    key: rounded([one[key] for one in walks])
                    for key in ("degree", "one", "off", "decades")
                    if key in walks[0]
                },
            }
        result["sizes"][f"{m} of {K}"] = size
    return result


def _fewer(sizes: dict[str, Any]) -> Judged:
    """Whether ALSA's neighbours are within the bound and fewer than SA's; vacuous where SA's are within it, too."""
    checks = []
    for size, one in sizes.items():
        fewer = np.subtract(one["SA"]["degree"], one["ALSA"]["degree"])
        checks += [
            within(one["ALSA"]["degree"], f"{size}: neighbours", high=one["bound"], digits=1),
            above(fewer, f"{size}: fewer than SA", digits=1),
        ]
    judged = judge(checks)
    if judged.verdict == "reproduced" and all(max(one["SA"]["degree"]) <= one["bound"] for one in sizes.values()):
        return vacuous(
            "SA's m(K - m) neighbours are within the bound, too, since m is at most 4 here, and the neighbours of ALSA "
            "are some of SA's by their definition"
        )
    return judged


def _score(result: Result) -> list[Finding]:
    sizes = result["sizes"]
    silent = "ucb from U(0, 1), g from U(-1, 1), alpha = 1: the paper does not say how they were drawn"
    sure = LIMITS["nearly sure"].value

    def text(name: str, key: str, digits: int = 3) -> str:
        return "; ".join(f"{size}: {show(one[name][key], digits)}" for size, one in sizes.items())

    limit = []
    for size, one in sizes.items():
        limit += [
            within(one["ALSA"]["one"], f"{size}: the graph is connected (share of problems)", low=1.0),
            within(
                one["ALSA"]["off"], f"{size}: distance from the law at rest", high=LIMITS["at rest"].value, digits=3
            ),
            above(
                np.subtract(one["ALSA"]["end"], one["ALSA"]["enumerated"]), f"{size}: the probability grows", digits=3
            ),
        ]
    decades = "; ".join(f"{size}: 10^{np.median(one['ALSA']['decades']):.0f}" for size, one in sizes.items())
    enough = LIMITS["efficient"].value
    findings = [
        Finding(
            "The energy of ALSA's state converges to that of the optimum",
            "Theorem 2: the limit of E(s_i) is E(s*)",
            f"share of problems whose graph is connected: {text('ALSA', 'one', 2)}. Distance of the walk's law after "
            f"{result['steps']:,} steps from the law at rest: {text('ALSA', 'off', 5)}. Probability of the optimum "
            f"then: {text('ALSA', 'end')}, and after as many steps as there are selections: "
            + text("ALSA", "enumerated"),
            judge(limit),
            "a limit cannot be run: checked are what the proof rests on, that the graph is connected and the walk "
            "keeps to the law at rest at its temperature, which tends to the optimum, and that the optimum gets more "
            "likely. "
            f"It would have probability {sure:g} after (median) {decades} steps, by the law at rest. Exact law of the "
            f"walk, {result['problems']} problems a size, one a seed. {silent}",
        ),
        Finding(
            "With ALSA, solving (13) becomes efficient",
            "'becomes efficient'; no figure",
            "probability of the optimum after as many steps as there are selections: "
            + "; ".join(
                f"{size} ({one['selections']}): {show(one['ALSA']['enumerated'], 3)}" for size, one in sizes.items()
            ),
            judge(
                [
                    within(one["ALSA"]["enumerated"], f"{size}: the optimum", low=enough, digits=3)
                    for size, one in sizes.items()
                ]
            ),
            "'efficient' by a criterion of ours: the paper gives none. One sort and a heap solve (13) exactly",
            extension=True,
        ),
        Finding(
            "ALSA has at most 4(K - m) neighbours on average, fewer than SA",
            "; ".join(f"{size}: at most {one['bound']}" for size, one in sizes.items()),
            "; ".join(
                f"{size}: {show(one['ALSA']['degree'], 1)} (SA {show(one['SA']['degree'], 0)})"
                for size, one in sizes.items()
            ),
            _fewer(sizes),
        ),
        Finding(
            "ALSA is closer to the optimum than SA after the same number of steps",
            "'faster convergence while still maintaining the theoretical convergence guarantee'; judged in bsfl/fig4",
            "; ".join(
                f"{size}, after {one['selections']} and {result['steps']:,} steps, below the optimum (range = 1): "
                f"ALSA {show(one['ALSA']['below'], 3)} and {show(one['ALSA']['below_end'], 3)}, SA "
                f"{show(one['SA']['below'], 3)} and {show(one['SA']['below_end'], 3)}"
                for size, one in sizes.items()
            ),
            judge(
                [
                    check
                    for one in sizes.values()
                    for key in ("below", "below_end")
                    for check in order({name: one[name][key] for name in WALKS}, "SA > ALSA", digits=3).checks
                ]
            ),
            extension=True,
        ),
        Finding(
            "The one-sided reading of (19) is closer to the optimum than ALSA, though the theorem does not cover it",
            "not in the paper",
            f"probability of the optimum after {result['steps']:,} steps: {text('ALSA, one-sided', 'end')}; graph "
            f"strongly connected in this share of problems: {text('ALSA, one-sided', 'one', 2)}",
            judge(
                [
                    above(
                        np.subtract(one["ALSA, one-sided"]["end"], one["ALSA"]["end"]),
                        f"{size}: one-sided > ALSA",
                        digits=3,
                    )
                    for size, one in sizes.items()
                ]
            ),
            extension=True,
        ),
    ]
    return findings


def _plot(result: Result) -> "Figure":
    figure, axes = _plots.figure(4.4 * len(result["sizes"]), 3.6, columns=len(result["sizes"]), sharey=True)
    for axis, (size, one) in zip(axes[0], result["sizes"].items(), strict=True):
        for i, name in enumerate(WALKS):
            _plots.banded(axis, one["at"], one[name]["curve"]["mean"], one[name]["curve"]["half"], i, name)
        axis.axhline(1.0, color="grey", linewidth=1, linestyle=":", label="limit (Theorem 2)")
        axis.axvline(one["selections"], color="black", linewidth=0.8, linestyle="--", label="number of selections")
        axis.set_xscale("log")
        axis.set_ylim(0.0, 1.03)
        axis.set_title(size, fontsize=10)
        axis.set_xlabel("steps")
    axes[0][0].set_ylabel("probability of the optimum")
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=5, columnspacing=1.2)
    return figure


STUDY = Study(
    id="bsfl/theorem2",
    title="Probability of the optimum over the steps of ALSA and SA, exactly",
    paper=PAPER + ", Theorem 2 and Fig. 3",
    settings={
        "sizes": [[8, 4], [10, 3]],
        "steps": 1_000_000,
        "alpha": 1.0,
        "sure": LIMITS["nearly sure"].value,
        "seeds": 60,
    },
    quick={"steps": 1000, "seeds": 2},
    items=_items,
    job=_play,
    gather=_gather,
    score=_score,
    plot=_plot,
    limits=LIMITS,
    about="Problems so small that the law of the walk over all selections can be computed step by step instead of "
    "being sampled: 4 of 8 clients, as in the paper's Fig. 3, and 3 of 10. Temperature Delta_max / log(i + 1), start "
    "uniform over the selections. Steps after the first 200 are taken in blocks of a tenth of those before, with "
    "one temperature a block. The draws of ucb and g are our choice",
)
