"""Rounds, or simulated hours, until a level of accuracy, beside other policies; and how unsteady the way there is."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpick_papers.studies import _plots
from fedpick_papers.studies._runs import play_training
from fedpick_papers.studies._stats import band, rounded, show
from fedpick_papers.studies._study import (
    Finding,
    Found,
    Item,
    Job,
    Measurement,
    Result,
    Settings,
    Study,
    canonical,
    seeds_of,
)
from fedpick_papers.studies._trained import reached
from fedpick_papers.studies._verdicts import Limit

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["More", "study", "texts"]

More = Callable[[Measurement, float], float]  # a run and its level of accuracy -> a number

LAST = 5  # evaluations whose mean is the final accuracy
LIMITS = {"share of uniform's final accuracy that is the level": Limit(0.95, "as in the tournament")}
BASE: dict[str, Any] = {
    "data": "digits",
    "partition": "dirichlet(alpha=0.2)",
    "clients": 50,
    "cohort_size": 5,
    "rounds": 150,
    "seeds": 10,
    "world": "ideal",
    "world_settings": {},
    "train": {"evaluate_every": 2},
}
QUICK = {"rounds": 20, "seeds": 2}
DIGITS = (
    "The 8x8 digits, divided among 50 clients by Dirichlet(0.2), five of which train a round with the default network"
)
ABOUT = (
    "The level is 95% of the accuracy that uniform choice ends with at the same seed; a run that does not reach it "
    "counts with its whole length. "
)
OURS = "Data, network, level and settings are our choice, far smaller than the paper's"


def _item(settings: Settings, scheme: str | Mapping[str, Any], seed: int) -> dict[str, Any]:
    """The run of a scheme: a policy, or settings that differ, of which those that are mappings are joined."""
    item = {name: value for name, value in settings.items() if name not in ("schemes", "seeds", "seed0")}
    for name, value in ({"policy": scheme} if isinstance(scheme, str) else scheme).items():
        item[name] = {**item.get(name, {}), **value} if isinstance(value, Mapping) else value
    return {**item, "seed": seed}


def _items(settings: Settings) -> Sequence[Item]:
    items = [_item(settings, scheme, seed) for scheme in settings["schemes"].values() for seed in seeds_of(settings)]
    return list({canonical(item): item for item in items}.values())  # the reference may be one of the schemes


def _gather(settings: Settings, found: Found, more: Mapping[str, More]) -> Result:
    share = LIMITS["share of uniform's final accuracy that is the level"].value
    runs = {
        name: [found[_item(settings, scheme, seed)] for seed in seeds_of(settings)]
        for name, scheme in settings["schemes"].items()
    }
    levels = [share * float(run["accuracy"][-LAST:].mean()) for run in runs["uniform"]]
    result: Result = {name: settings[name] for name in ("rounds", "clients", "cohort_size", "seeds")}
    result |= {
        "rounds_to": {},
        "hours_to": {},
        "final": {},
        "unsteady": {},
        "reached": {},
        "curve": {},
        "half": {},
        "hours": {},
    }
    for name, part in runs.items():
        at = np.array([reached(run["at"], run["accuracy"], level) for run, level in zip(part, levels, strict=True)])
        clock = [reached(run["clock"], run["accuracy"], level) / 3600 for run, level in zip(part, levels, strict=True)]
        ends = [float(run["clock"][-1]) / 3600 for run in part]
        result["rounds_to"][name] = rounded(np.where(np.isfinite(at), at, settings["rounds"]))
        result["hours_to"][name] = rounded([c if np.isfinite(c) else end for c, end in zip(clock, ends, strict=True)])
        result["reached"][name] = int(np.isfinite(at).sum())
        result["final"][name] = rounded([float(run["accuracy"][-LAST:].mean()) for run in part])
        half = len(part[0]["at"]) // 2
        result["unsteady"][name] = rounded([float(np.abs(np.diff(run["accuracy"][half:])).mean()) for run in part])
        mean, wide = band([run["accuracy"] for run in part])
        result["curve"][name], result["half"][name] = rounded(mean), rounded(wide)
        result["hours"][name] = rounded(np.mean([run["clock"] for run in part], axis=0) / 3600)
    for key, number in more.items():
        result[key] = {
            name: rounded([number(run, level) for run, level in zip(part, levels, strict=True)])
            for name, part in runs.items()
        }
    result["at"] = part[0]["at"].tolist()
    return result


def texts(values: Mapping[str, Any], digits: int, unit: str = "") -> str:
    """Means and intervals of all schemes."""
    return "; ".join(f"{name} {show(each, digits, unit)}" for name, each in values.items())


def study(
    id: str,
    title: str,
    paper: str,
    schemes: Mapping[str, str | Mapping[str, Any]],
    score: Callable[[Result], list[Finding]],
    *,
    setting: str = DIGITS,
    chosen: str = OURS,
    about: str = "",
    time: bool = False,
    job: Job = play_training,
    more: Mapping[str, More] | None = None,
    limits: Mapping[str, Limit] | None = None,
    **settings: Any,
) -> Study:
    """A study of these schemes, one of which is called "uniform".

    Args:
        id: of the study.
        title: one line.
        paper: citation.
        schemes: policies by name, or settings that differ from those of the study.
        score: result -> findings.
        setting: clients and data, for the page.
        chosen: what of it is ours and not the paper's.
        about: further words for the page.
        time: whether the figure's axis is time instead of rounds.
        job: item, folder -> what was measured: "at", "clock" and "accuracy" of each evaluation, and what `more` reads.
        more: further numbers for each run, by name.
        limits: further thresholds of the verdicts.
        settings: that differ.
    """

    def plot(result: Result) -> "Figure":
        figure, axes = _plots.figure(6, 3.8)
        for i, (name, curve) in enumerate(result["curve"].items()):
            at, mean, look = result["hours"][name] if time else result["at"], np.asarray(curve), _plots.line(i)
            axes[0][0].plot(at, mean, label=name, **look)
            if "half" in result:  # results of earlier versions have none
                half = np.asarray(result["half"][name])
                axes[0][0].fill_between(at, mean - half, mean + half, color=look["color"], alpha=0.2, linewidth=0)
        axes[0][0].set_xlabel("simulated hours (means)" if time else "rounds")
        axes[0][0].set_ylabel("test accuracy")
        axes[0][0].legend()
        return figure

    return Study(
        id=id,
        title=title,
        paper="",  # not one of the five
        settings={**BASE, **settings, "schemes": dict(schemes)},
        quick=QUICK,
        items=_items,
        job=job,
        gather=partial(_gather, more=more or {}),
        score=score,
        plot=plot,
        limits={**LIMITS, **(limits or {})},
        about=". ".join(part for part in (f"A headline claim of {paper}", setting, ABOUT + chosen, about) if part),
        trains=True,
    )
