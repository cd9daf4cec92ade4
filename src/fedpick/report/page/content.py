"""The numbers that the page's charts draw, thinned and binned, so that the page stays small for any run."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedpick.core.types import Floats, Status
from fedpick.report.groups import Group, Summary
from fedpick.report.intervals import band
from fedpick.report.page import who
from fedpick.report.page.told import Names, Told, told
from fedpick.report.played import Played, selections_until
from fedpick.report.plots import LABELS, Curve, Panel, is_share, ranked
from fedpick.report.scores import ended
from fedpick.report.tables import cell_of, columns_of, finite, fitting, group_name, printable

__all__ = ["setting"]

POINTS = 300  # of a curve, at most; fewer if there are many policies
CLIENTS, ROUNDS = 100, 120  # rows and columns of a map of clients and rounds, at most
SEEDS = 5  # with a map, at most; fewer if there are many policies
ALL_POINTS, ALL_MAPS = 6_000, 60  # of a page

# Columns of a round that are not a state but happen in it: a point is the mean of its rounds.
_PER_ROUND = {
    "seconds": "seconds a round",
    "available": "clients there",
    "joined": "clients that have joined so far",
    "chosen": "clients chosen",
    "done": "models returned in a round",
    "late": "late answers in a round",
    "failed": "failures in a round",
    "surplus": "answers not needed in a round",
}
_NOT_DRAWN = ("round", "clock", "counts", "messages", "megabytes")
_FAIR = {"jain": ("fairness (Jain)", 2), "never": ("never chosen", 2), "staleness": ("mean rounds since chosen", 1)}


def setting(panel: Panel, rows: Sequence[Summary], drawn: Sequence[Summary], policies: int) -> dict[str, Any]:
    """What the charts show of one block.

    Args:
        panel: its curves.
        rows: of the table.
        drawn: the same rows, for what is drawn of selections and rounds.
        policies: number of them on the whole page, all blocks together.
    """
    points = max(40, min(POINTS, ALL_POINTS // policies))
    seeds = max(1, min(SEEDS, ALL_MAPS // policies))
    names = [group_name(row.group) for row in rows]
    last = max(int(run.rounds["round"].to_numpy().max()) for row in drawn for run in row.group.runs)
    known, called = [[told(run, last, ROUNDS) for run in row.group.runs] for row in drawn], Names()
    chosen = [_chosen(row.group, runs, last, seeds, called) for row, runs in zip(drawn, known, strict=True)]
    found = {
        "title": panel.title,
        "policies": names,
        "metrics": _metrics(panel, points, rows[0].metric),
        "differences": _differences(rows),
        "counts": [_counts(panel.curves[name], points) for name in names],
        "fair": {
            "heads": [heading for heading, _ in _FAIR.values()],
            "rows": [[cell_of(row.scores[name], digits).main for name, (_, digits) in _FAIR.items()] for row in drawn],
        },
        "clients": max(run.info.num_clients or 1 for row in drawn for run in row.group.runs),
        "last": last,
        "maps": [each["maps"] for each in chosen],
        "status": [each["status"] for each in chosen],
        "answers": [each["answers"] for each in chosen],
        "stated": [each["stated"] for each in chosen],
        "classes": who.by_class(known),
        "accuracies": [who.accuracies(runs) for runs in known],
        "away": who.away(known, seeds, called),
        "graphs": [who.graph(runs) for runs in known],
        "real": rows[0].group.block.engine != "simulator",
        "names": called.lists,
    }
    return dict(finite(found))


def _short(values: ArrayLike) -> list[Any]:
    """Numbers with six significant digits."""
    return [float(f"{value:.6g}") for value in np.asarray(values, dtype=np.float64).tolist()]


# ---- curves


def _metrics(panel: Panel, points: int, main: str | None) -> list[dict[str, Any]]:
    """The curves of each metric that all runs have, the most important first."""
    everywhere = set.intersection(*(set(seed) for seed in panel.seeds)) - set(_NOT_DRAWN)
    first = [name for name in dict.fromkeys([main, *LABELS]) if name in everywhere]
    own = sorted(everywhere - set(first) - set(_PER_ROUND))
    found = []
    for name in [*first, *own, *(each for each in _PER_ROUND if each in everywhere)]:
        values = np.concatenate([np.asarray(seed[name], dtype=np.float64) for seed in panel.seeds])
        known = values[np.isfinite(values)]
        if not len(known) or (name in _PER_ROUND and np.ptp(known) == 0):  # nothing to see
            continue
        lines = [_line(seeds, name, points) for seeds in panel.curves.values()]
        label = LABELS.get(name, _PER_ROUND.get(name, printable(name)))
        found.append({"name": name, "label": label, "share": is_share(name, known), "lines": lines})
    return found


def _line(seeds: Sequence[Curve], name: str, points: int) -> dict[str, Any]:
    """The mean over seeds and its interval at each point, against rounds, seconds and megabytes sent."""
    curves: Floats = np.array([seed[name] for seed in seeds], dtype=np.float64)
    across = {
        "round": np.asarray(seeds[0]["round"], dtype=np.float64),
        "seconds": np.mean([seed["clock"] for seed in seeds], axis=0),
        "megabytes": np.mean([np.cumsum(seed["megabytes"]) for seed in seeds], axis=0),
    }
    at = np.flatnonzero(np.isfinite(curves).all(axis=0))
    curves, width = curves[:, at], 1
    if len(at) > points and name in _PER_ROUND:
        width = -(-len(at) // points)
        starts = np.arange(0, len(at), width)
        sizes = np.diff(np.append(starts, len(at)))
        curves, at = np.add.reduceat(curves, starts, axis=1) / sizes, at[np.append(starts[1:], len(at)) - 1]
    elif len(at) > points:
        kept = np.unique(np.linspace(0, len(at) - 1, points).round().astype(int))
        curves, at = curves[:, kept], at[kept]
    mean, half = band(curves) if len(at) else (np.empty(0), np.empty(0))
    return {
        **{key: _short(values[at]) for key, values in across.items()},
        "mean": _short(mean),
        "half": _short(half) if len(seeds) > 1 else [],
        "width": width,
    }


def _counts(seeds: Sequence[Curve], points: int) -> dict[str, Any]:
    """How often the clients were chosen, least chosen first."""
    counts = ranked([seed["counts"] for seed in seeds])
    clients = counts.shape[1]
    kept = np.unique(np.linspace(0, clients - 1, min(clients, points)).round().astype(int))
    mean, half = band(counts[:, kept])
    share = 100 * kept / max(1, clients - 1)
    return {"percent": _short(share), "mean": _short(mean), "half": _short(half) if len(seeds) > 1 else []}


def _differences(rows: Sequence[Summary]) -> list[dict[str, Any]]:
    """The paired differences to the reference, by score."""
    found = []
    rows, units = fitting(rows)
    for name, (heading, digits) in columns_of(rows, units).items():
        entries = []
        for i, row in enumerate(rows):
            gap = row.scores[name].difference
            if gap is not None:
                text = cell_of(row.scores[name], digits).below
                entries.append({"policy": i, "mean": gap.mean, "half": gap.half, "text": text, "clear": gap.clear})
        if entries:
            found.append({"label": heading, "rows": entries})
    return found


# ---- selections


def _chosen(group: Group, known: Sequence[Told], last: int, seeds: int, called: Names) -> dict[str, Any]:
    """Who was chosen when, how it ended, and how long the answers took; of all seeds but for the maps."""
    maps, durations, status, tables = [], [], np.zeros(len(Status), dtype=np.int64), []
    for i, run in enumerate(group.runs):
        selections = selections_until(run.info, int(run.rounds["round"].to_numpy().max()), "inclusion")
        tables.append(selections.select([each for each in ("client", "inclusion") if each in selections.column_names]))
        if i < seeds:
            maps.append(_map(run, selections, last) | {"names": called.at(known[i])})
        status += [np.count_nonzero(ended(selections, each)) for each in Status]
        answered = ended(selections, Status.DONE, Status.SURPLUS)
        durations.append(selections["duration"].to_numpy().astype(np.float64)[answered])
    pooled = np.concatenate(durations)
    pooled = pooled[np.isfinite(pooled)]
    rounds = np.concatenate([run.rounds["seconds"].to_numpy() for run in group.runs]).astype(np.float64)
    return {
        "maps": maps,
        "stated": who.stated(known, tables, called),
        "status": {each.name.lower(): int(count) for each, count in zip(Status, status, strict=True)},
        "answers": {
            "percent": list(range(101)),
            "mean": _short(np.percentile(pooled, np.arange(101))) if len(pooled) and pooled.max() > 0 else [],
            "half": [],
            "rounds": _short(np.percentile(rounds, [50, 90, 99])) if len(rounds) and rounds.max() > 0 else [],
        },
    }


def _map(run: Played, selections: Any, last: int) -> dict[str, Any]:
    """How often the clients of each bin were chosen in the rounds of each bin, a row per bin of clients."""
    clients = run.info.num_clients or 1
    height, width = min(clients, CLIENTS), min(last, ROUNDS)
    y = selections["client"].to_numpy() * height // clients
    x = np.maximum(selections["round"].to_numpy() - 1, 0) * width // last
    cells = np.bincount(y * width + x, minlength=height * width)
    return {"seed": run.info.seed, "clients": clients, "height": height, "width": width, "cells": cells.tolist()}
