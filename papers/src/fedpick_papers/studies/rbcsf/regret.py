"""RBCS-F, Theorem 3: the time-average regret (23) against the optimal policy, and its bound (24)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpick import RBCSF
from fedpick.core import rng as rngs
from fedpick.core.types import Bools, Floats, Ints, Outcome
from fedpick.worlds import Linear, World, named
from fedpick.worlds.latency import Drawn
from fedpick_papers import theory
from fedpick_papers.studies import _plots
from fedpick_papers.studies._stats import band, rounded, show, steps
from fedpick_papers.studies._study import Finding, Found, Item, Measurement, Result, Settings, Study, seeds_of
from fedpick_papers.studies._verdicts import Limit, above, judge, vacuous
from fedpick_papers.studies.rbcsf._common import PAPER

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["STUDIES", "STUDY", "Literal"]

LIMITS = {
    "says something": Limit(1.0, "times the mean time of a random cohort: a bound above it says nothing"),
    "delta": Limit(0.1, "probability with which (24) may fail in one of its two steps; the paper gives none"),
}


def _item(settings: Settings, base: float, V: int | None, seed: int) -> dict[str, Any]:
    shared = {
        name: settings[name] for name in ("clients", "cohort_size", "rounds", "guarantee", "ridge", "exploration")
    }
    part = {"literal": True} if settings.get("literal") else {}
    return {**shared, **part, "optimal": settings["optimal"], "base": base, "V": V, "seed": seed}


def _rows(settings: Settings) -> list[tuple[str, float, int | None]]:
    """(name of the base, base, V) of every row; V = None is the optimal policy."""
    return [(name, base, V) for name, base in settings["bases"].items() for V in (*settings["V"], None)]


def _items(settings: Settings) -> Sequence[Item]:
    return [_item(settings, base, V, seed) for _, base, V in _rows(settings) for seed in seeds_of(settings)]


@dataclass(frozen=True)
class Literal(Linear):
    """The law with s as the text on (14) has it: 1 for clients that did take part in the last round."""

    def context(self, memory: dict[str, Any], drawn: Drawn, idle: Bools) -> Floats | None:
        """c for every client."""
        return super().context(memory, drawn, ~idle)

    def seconds(self, memory: dict[str, Any], drawn: Drawn, idle: Bools, ids: Ints, epochs: Floats) -> Floats:
        """How long these clients take."""
        return super().seconds(memory, drawn, ~idle, ids, epochs)


def _world(clients: int, base: float, literal: bool = False) -> tuple[World, Floats]:
    """The paper's world with this base of the logarithm in eta, and the clients' true coefficients."""
    world = named("rbcs-f", clients)
    law = (Literal if literal else Linear)(base=base)
    return replace(world, latency=law), law.theta(world.clients)


def _play(item: Item, _: Path) -> Measurement:
    """The expected time of each round's cohort, the largest c'theta*, and that of a random one beside it."""
    world, theta = _world(item["clients"], item["base"], item.get("literal", False))
    learned = item["V"] is not None
    policy = RBCSF(
        item["cohort_size"],
        penalty=item["V"] if learned else item["optimal"],
        guarantee=item["guarantee"],
        ridge=item["ridge"],
        exploration=item["exploration"],
        theta=None if learned else theta,
    )
    seed, state, kept = item["seed"], world.init(item["seed"]), policy.init(world.clients)
    times, random, longest, slowest = np.zeros(item["rounds"]), np.zeros(item["rounds"]), 0.0, 0.0
    for t in range(1, item["rounds"] + 1):
        draw = world.draw(state, seed, t)
        view = world.view(state, draw)
        choice = policy.select(kept, view, rngs.stream(seed, t, "policy"))
        assert view.context is not None
        expected = (view.context * theta).sum(axis=1)
        there = np.flatnonzero(view.available)
        any_ones = rngs.stream(seed, t, "random").permutation(there)[: item["cohort_size"]]
        times[t - 1], random[t - 1] = expected[choice.ids].max(initial=0.0), expected[any_ones].max(initial=0.0)
        longest = max(longest, float(np.sqrt((view.context**2).sum(axis=1)).max()))
        slowest = max(slowest, float(expected.max()))
        took = world.seconds(state, draw, choice.ids)  # nobody fails, and there is no deadline
        state.clock += float(took.max(initial=0.0))
        state.idle[:] = True
        state.idle[choice.ids] = False
        outcome = Outcome(np.zeros(len(choice), dtype=np.int8), took, np.full(len(choice), np.nan))
        kept = policy.observe(kept, view, choice, outcome)
    return {"times": times, "random": float(random.mean()), "L": longest, "R": slowest}


def _gather(settings: Settings, found: Found) -> Result:
    rounds = settings["rounds"]
    at = steps(rounds, 80)
    result: Result = {"rounds": rounds, "at": rounded(at), "random": {}, "bound": {}, "regret": {}, "curves": {}}
    if settings.get("literal"):
        result["literal"] = True
    for name, base, V in _rows(settings):
        part = [found[_item(settings, base, V, seed)] for seed in seeds_of(settings)]
        best = [found[_item(settings, base, None, seed)] for seed in seeds_of(settings)]
        result["random"][name] = rounded([one["random"] for one in best])
        if V is None:
            continue
        gap = np.array([a["times"] - b["times"] for a, b in zip(part, best, strict=True)])
        average = gap.cumsum(axis=1) / np.arange(1, rounds + 1)
        theta = _world(settings["clients"], base)[1]
        size = float(np.sqrt((theta**2).sum(axis=1)).max())
        delta = LIMITS["delta"].value
        L, R = (max(one[key] for one in part) for key in ("L", "R"))

        def bound(T: int, V: int = V, L: float = L, R: float = R, size: float = size, delta: float = delta) -> float:
            return theory.rbcsf_bound(
                T, settings["clients"], V, settings["guarantee"], L, settings["ridge"], R, size, delta
            )

        mean, half = band(average[:, at - 1])
        result["regret"].setdefault(name, {})[str(V)] = rounded(average[:, -1])
        result["bound"].setdefault(name, {})[str(V)] = rounded(bound(rounds))
        result["curves"].setdefault(name, {})[str(V)] = {
            "mean": rounded(mean),
            "half": rounded(half),
            "bound": rounded([bound(int(t)) for t in at]),
        }
    return result


def _score(result: Result) -> list[Finding]:
    findings = []
    for name, of in result["regret"].items():
        bounds, random = result["bound"][name], float(np.mean(result["random"][name]))
        checks = [above(bounds[V] - np.asarray(x), f"V = {V}: the bound is above the regret, s") for V, x in of.items()]
        judged = judge(checks)
        if judged.verdict == "reproduced" and min(bounds.values()) > LIMITS["says something"].value * random:
            judged = vacuous(
                f"the bound is at least {min(bounds.values()):,.0f} s a round, and a random cohort takes "
                f"{random:.1f} s in all"
            )
        findings.append(
            Finding(
                f"The time-average regret (23) after {result['rounds']:,} rounds is below the bound (24) ({name})",
                "Theorem 3; no figure",
                "; ".join(f"V = {V}: {show(x, 2)} s (bound {bounds[V]:,.0f})" for V, x in of.items()),
                judged,
                "S, L and R are the largest |theta*|, |c| and c'theta* met, and the paper's constant K is 1; the "
                "optimal policy knows theta* and has V = 1,000",
                extension=name != "base 2" or result.get("literal", False),
            )
        )
    return findings


def _plot(result: Result) -> "Figure":
    names = list(result["curves"])
    figure, axes = _plots.figure(4.6 * len(names), 3.4, columns=len(names), sharey=True)
    for axis, name in zip(axes[0], names, strict=True):
        for i, (V, curve) in enumerate(result["curves"][name].items()):
            mean, half, look = np.asarray(curve["mean"]), np.asarray(curve["half"]), _plots.line(i)
            axis.plot(result["at"], mean, label=f"V = {V}", **look)
            axis.fill_between(result["at"], mean - half, mean + half, color=look["color"], alpha=0.2, linewidth=0)
            axis.plot(result["at"], curve["bound"], color=look["color"], linewidth=0.8)
        axis.set_yscale("symlog", linthresh=1.0)
        axis.set_title(name, fontsize=10)
        axis.set_xlabel("federated round")
    axes[0][0].set_ylabel("time-average regret, s (thin: bound)")
    axes[0][0].legend(fontsize=8)
    return figure


STUDY = Study(
    id="rbcs-f/regret",
    title="Time-average regret and its bound",
    paper=f"{PAPER}, Theorem 3",
    settings={
        "clients": 40,
        "cohort_size": 8,
        "guarantee": 0.15,
        "ridge": 1.0,
        "exploration": 0.1,
        "V": [1, 10, 50, 100],
        "optimal": 1000,
        "bases": {"base 2": 2.0, "natural logarithm": float(np.e)},
        "rounds": 3000,
        "seeds": 8,
    },
    quick={"rounds": 100, "seeds": 2},
    items=_items,
    job=_play,
    gather=_gather,
    score=_score,
    plot=_plot,
    limits=LIMITS,
    about="The world of section 6.1. RBCS-F is compared with the policy that knows the clients' true coefficients, in "
    "the same world; a round's time is the largest expected time of its cohort, as the theorem has it. With base 2 and "
    "with the natural logarithm in the Shannon formula, since the paper does not say",
)
# The context's s read literally: 1 for clients that did take part in the last round.
LITERAL = replace(
    STUDY,
    id="rbcs-f/regret-literal",
    title="Time-average regret and its bound, with s read literally",
    settings={**STUDY.settings, "literal": True},
    about="As rbcs-f/regret, with the other reading of s. By its definition s tells whether a client took part in the "
    "last round, so that (14) makes those who did pay the cold start; the text after it says that those who did not "
    "need the extra time. Elsewhere we follow that text, here the definition. It is shown, not counted",
)
STUDIES = (STUDY, LITERAL)
