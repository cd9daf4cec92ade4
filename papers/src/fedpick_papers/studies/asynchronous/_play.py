"""Runs to a level under a pace, with rates that were tuned on other seeds."""

import json
from collections.abc import Mapping
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from fedpick import Buffered, OverSelect, Run, Status, policy, traits
from fedpick.core.types import Floats
from fedpick.experiment import build_trainer
from fedpick.learn.reports import gives
from fedpick_papers.studies._stats import rounded, times
from fedpick_papers.studies._study import Found, Item, Measurement, Result, Settings, canonical, seeds_of
from fedpick_papers.studies.asynchronous import _task

__all__ = [
    *(
        "KINDS",
        "TUNING",
        "cell_of",
        "cells",
        "cost",
        "gather",
        "item",
        "items",
        "missed",
        "name_of",
        "play",
        "ratio",
        "shown",
    ),
    *("at_edge", "edges", "to_level", "tuned"),
]

MEASURES = ("seconds", "answers", "messages", "staleness", "slow")
RATES = [{"server": rate} for rate in (8.0, 16.0, 4.0, 32.0, 2.0)]  # the likeliest first: it cuts the others short
ALPHAS = [{"lr": lr, "alpha": alpha} for lr in (1.6, 0.8) for alpha in (0.3, 0.6, 0.1)]
TUNING = 1000  # first of the seeds that rates are tuned on
DISMISSED = 2.0  # a rate that takes so many times as long as the best so far at one seed is given up
RATE_WORDS = {"server": "server rate", "lr": "clients' rate", "alpha": "alpha"}
TIMEOUT = 1e5  # seconds; nobody fails
# What a pace is, as data; `rates` are tuned.
KINDS: dict[str, dict[str, Any]] = {
    "rounds": {"over": 1.0, "rates": RATES},
    "over-selection": {"over": 1.3, "rates": RATES},
    "FedBuff": {"size": 10, "rates": RATES},
    "FedBuff, K = 100": {"size": 100, "rates": RATES},
    "FedBuff, corrected": {"size": 10, "correct": True, "rates": RATES},
    "FedAsync": {"size": 1, "mixing": "polynomial", "rates": ALPHAS},
}


def item(settings: Settings, kind: str, C: int, sigma: float, seed: int, **more: Any) -> dict[str, Any]:
    """One run: a pace at a concurrency, with durations of this sigma."""
    found = {name: settings[name] for name in ("task", "tuning", "most", "drawn")}
    return {**found, "pace": settings["paces"][kind], "C": C, "sigma": sigma, "seed": seed, **more}


def cells(settings: Settings) -> list[tuple[str, int, float]]:
    """Pace, concurrency and sigma of each cell; a pace may have a largest concurrency in `up_to`."""
    up_to = settings.get("up_to", {})
    every = product(settings["paces"], settings["C"], settings["sigma"])
    return [(kind, C, sigma) for kind, C, sigma in every if up_to.get(kind, C) >= C]


def items(settings: Settings) -> list[Item]:
    """A run for each cell and seed; those that share their tuning stand together."""
    return [item(settings, *cell, seed) for cell in cells(settings) for seed in seeds_of(settings)]


def cost(one: Item) -> float:
    """How long a run takes, about, beside others: it is the moves of the model that take time."""
    return float(np.sqrt(one["C"] / one["pace"].get("size", one["C"])))


def _run(one: Item, seed: int, rate: Mapping[str, float], found: _task.Problem) -> Run:
    C, pace = one["C"], one["pace"]
    size, bound = pace.get("size"), pace.get("bound")
    settings: dict[str, Any] = {"model": "logistic", "lr": rate.get("lr", 0.1), "batch": 20, "aggregation": "mean"}
    settings |= {"steps": 0, "spread_every": 0, "evaluate_every": 1 if bound else max(1, C // (size or C))}
    chosen = partial(policy, pace.get("policy", "uniform"))
    if "server" in rate:
        settings["server"] = f"fedavgm(lr={rate['server']}, momentum=0.0)"
    reports = tuple(filter(gives, traits(chosen(cohort_size=C)).collect(found.data.clients)))
    trainer = build_trainer(found.data, None, settings, reports)
    world = _task.world(found, one["sigma"], one["drawn"], seed)
    if size is None and bound is None:
        wanted = round(C / pace["over"])
        inner = chosen(cohort_size=wanted)
        return Run(inner if wanted == C else OverSelect(inner, C / wanted), world, seed=seed, trainer=trainer)
    how = {name: pace[name] for name in ("mixing", "correct", "bound") if name in pace}
    how |= {"alpha": rate["alpha"]} if "alpha" in rate else {}
    stream = Buffered(C, size, timeout=TIMEOUT, **how)
    return Run(chosen(cohort_size=C), world, seed=seed, trainer=trainer, pace=stream)


def play(one: Item, seed: int, rate: Mapping[str, float], longest: float = np.inf) -> Measurement:
    """Play to the level, to `most` answers, or to this many seconds.

    Args:
        one: what to play; its seed is not used.
        seed: of data, durations and choices.
        rate: of the server, or of the clients with FedAsync's alpha.
        longest: simulated seconds.
    """
    found = _task.problem(one["task"], seed)
    run = _run(one, seed, rate, found)
    answers, messages, stale, looked, seen = 0, 0, 0.0, 0, [0.0]
    counts = np.zeros(len(found.data))
    for record in run.rounds(until=one["most"]):
        used = record.status == Status.DONE
        answers, messages = answers + int(used.sum()), messages + int(record.messages)
        np.add.at(counts, record.ids[used], 1)
        stale += sum(each.staleness for each in record.tasks or () if each.status == Status.DONE)
        # By the clock the model moves after any number of answers: then it is looked at when C more have come.
        if record.metrics and ("bound" not in one["pace"] or answers - looked >= one["C"]):
            looked, seen = answers, [*seen, record.metrics["accuracy"]]
        if seen[-1] >= found.level or answers >= one["most"] or record.clock > longest:
            break
    durations = _task.times(found.mix, one["sigma"], one["drawn"], seed)
    return {
        "reached": bool(seen[-1] >= found.level),
        "seconds": float(record.clock),
        "answers": answers,
        "messages": messages,
        "moves": int(record.round),
        "staleness": stale / max(answers, 1),
        "slow": _task.slow(durations, counts) if one["drawn"] != _task.DRAWN[0] else float("nan"),
        "accuracy": max(seen),
        "late": float(np.mean(seen[-max(len(seen) // 5, 1) :])),  # of the last fifth of the run
        "level": found.level,
    }


@cache
def _tuned(text: str) -> str:
    one = json.loads(text)
    rates, seeds = one["pace"]["rates"], range(TUNING, TUNING + one["tuning"])
    known: Floats = np.full(len(seeds), np.inf)  # the best rate's seconds
    nearest, chosen = -np.inf, rates[0]
    for rate in rates if len(rates) > 1 else []:
        took, near = [], []
        for seed, best in zip(seeds, known, strict=True):
            run = play(one, seed, rate, DISMISSED * best)
            near.append(run["accuracy"] - run["level"])
            if not run["reached"] and np.isfinite(best):
                break
            took.append(run["seconds"] if run["reached"] else np.inf)
        whole = len(took) == len(seeds)
        if whole and np.isfinite(took).all() and np.log(took).mean() < np.log(known).mean():
            known, chosen = np.array(took), rate
        elif np.isinf(known).any() and np.mean(near) > nearest:  # none has reached the level at all seeds so far
            nearest, chosen = float(np.mean(near)), rate
    return json.dumps(chosen)


def tuned(one: Item) -> dict[str, float]:
    """The rates with the shortest times to the level, in geometric mean over the seeds for tuning.

    If none reaches the level at all of them, those that come nearest to it.
    """
    found: dict[str, float] = json.loads(_tuned(canonical({**one, "seed": 0})))
    return found


def to_level(one: Item, folder: Path) -> Measurement:
    """A job: a run to the level with the tuned rates, which a process finds once for all seeds."""
    rate = tuned(one)
    return {**play(one, one["seed"], rate), "rate": json.dumps(rate)}


def gather(settings: Settings, found: Found) -> Result:
    """What the runs took: for each pace, concurrency and sigma lists over the seeds, and how many reached the level."""
    result: Result = {name: settings[name] for name in ("seeds", "C", "sigma", "most")}
    result |= {"paces": list(settings["paces"]), "clients": settings["task"]["clients"], "cells": {}}
    for kind, C, sigma in cells(settings):
        runs = [found[item(settings, kind, C, sigma, seed)] for seed in seeds_of(settings)]
        cell: dict[str, Any] = {name: rounded([run[name] for run in runs]) for name in MEASURES}
        cell |= {"reached": sum(bool(run["reached"]) for run in runs), "rate": json.loads(str(runs[0]["rate"]))}
        result["cells"][name_of(kind, C, sigma)] = cell
    return result


def name_of(kind: str, C: int, sigma: float) -> str:
    """The name of a cell.

    >>> name_of("rounds", 100, 1.0)
    'rounds, C = 100, sigma = 1'
    """
    return f"{kind}, C = {C}, sigma = {sigma:g}"


def cell_of(result: Result, kind: str, C: int, sigma: float) -> dict[str, Any]:
    """What the runs of a pace took."""
    cell: dict[str, Any] = result["cells"][name_of(kind, C, sigma)]
    return cell


def ratio(result: Result, measure: str, slower: str, faster: str, C: int, sigma: float) -> Floats:
    """Logarithm of how many times as much one pace takes as another, for each seed."""
    a, b = (np.asarray(cell_of(result, kind, C, sigma)[measure]) for kind in (slower, faster))
    found: Floats = np.log(a) - np.log(b)
    return found


def shown(logs: Floats) -> str:
    """A ratio in words: the geometric mean and its 95% interval.

    >>> shown(np.log([3.0, 3.5, 4.0]))
    '3.48 (2.43 to 4.97)'
    """
    return times(np.exp(logs), np.ones(len(logs)))


def missed(result: Result, *cells: tuple[str, int, float]) -> str:
    """Which runs did not reach the level, as a note."""
    seeds, names = result["seeds"], [name_of(*cell) for cell in cells]
    few = [
        f"by {result['cells'][n]['reached']} of {seeds} seeds ({n})"
        for n in names
        if result["cells"][n]["reached"] < seeds
    ]
    return f"the level was reached {', '.join(few)}; a run that missed it counts with its whole length" if few else ""


def at_edge(result: Result, paces: Mapping[str, Mapping[str, Any]] = KINDS) -> list[tuple[str, str]]:
    """The cells with a tuned rate that is the lowest or the highest tried, each with words on it.

    Args:
        result: of `gather`.
        paces: with the rates that were tried.
    """
    found = []
    for name, cell in result["cells"].items():
        rates = paces[name.partition(", C = ")[0]]["rates"]
        for setting, value in cell["rate"].items():
            tried = sorted({rate[setting] for rate in rates})
            if len(tried) > 1 and value in (tried[0], tried[-1]):
                end = "highest" if value == tried[-1] else "lowest"
                found.append((name, f"the {end} {RATE_WORDS[setting]} of {tried[0]:g} to {tried[-1]:g}"))
    return found


def edges(result: Result, paces: Mapping[str, Mapping[str, Any]] = KINDS) -> str:
    """Where tuned rates are at the edge of those tried, as a paragraph; "": nowhere."""
    by: dict[str, list[str]] = {}
    for name, words in at_edge(result, paces):
        by.setdefault(words, []).append(name)
    parts = [f"{words} was best for {'; '.join(names)}" for words, names in by.items()]
    said = f"**At the edge of the rates tried**, so perhaps faster with others: {'. '.join(parts)}.\n"
    return said if parts else ""
