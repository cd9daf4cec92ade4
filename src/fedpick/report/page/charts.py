"""The numbers that the page's charts draw, thinned and binned, so that the page stays small for any run."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedpick.core.errors import printable
from fedpick.core.types import Floats, Ints, Status
from fedpick.report.groups import Group
from fedpick.report.page import client_charts
from fedpick.report.page.client_charts import over_seeds, rounded
from fedpick.report.page.clients import ClientRecords, NameLists, client_records
from fedpick.report.plots import LABELS, Curve, Panel, is_share, ranked
from fedpick.report.run_data import RunData, selections_until
from fedpick.report.scores import with_status
from fedpick.report.summaries import Summary
from fedpick.report.tables import cell_of, columns_of, finite, fitting, group_name

__all__ = ["setting"]

POINTS = 300  # of a curve, at most; fewer if there are many policies
CLIENTS, ROUNDS = 100, 120  # rows and columns of a map of clients and rounds, at most
SEEDS = 5  # with a map, at most; fewer if there are many policies
ALL_POINTS, ALL_MAPS = 6_000, 60  # on a page, at most

# Columns that count what happened in one round: where rounds are too many to be drawn, a point is the mean of some.
_PER_ROUND = {
    "seconds": "seconds a round",
    "present": "clients there",
    "available": "clients that could be chosen",
    "joined": "clients that have joined so far",
    "chosen": "clients chosen",
    "done": "models returned in a round",
    "late": "late answers in a round",
    "failed": "failures in a round",
    "surplus": "clients asked but not needed in a round",
    "late_used": "late updates used in a round",
    "staleness_mean": "mean rounds that these were late",
    "staleness_max": "most rounds that one of these was late",
}
_NOT_DRAWN = ("round", "clock", "counts", "messages", "megabytes", "version", "sent_at")
_FAIR = {"jain": ("fairness (Jain)", 2), "never": ("never chosen", 2), "staleness": ("mean rounds since chosen", 1)}


def setting(panel: Panel, rows: Sequence[Summary], drawn: Sequence[Summary], policies: int) -> dict[str, Any]:
    """What the charts show of one block; see `Content` for `drawn`. `policies` is their number on the whole page."""
    points = max(40, min(POINTS, ALL_POINTS // policies))
    seeds = max(1, min(SEEDS, ALL_MAPS // policies))
    names = [group_name(row.group) for row in rows]
    last = max(run.last for row in drawn for run in row.group.runs)
    records, lists = [[client_records(run, last, ROUNDS) for run in row.group.runs] for row in drawn], NameLists()
    chosen = [_chosen(row.group, runs, last, seeds, lists) for row, runs in zip(drawn, records, strict=True)]
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
        "clients": max(row.group.num_clients for row in drawn),
        "last": last,
        "maps": [each["maps"] for each in chosen],
        "status": [each["status"] for each in chosen],
        "answers": [each["answers"] for each in chosen],
        "stated": [each["stated"] for each in chosen],
        "classes": client_charts.by_class(records),
        "accuracies": [client_charts.accuracies(runs) for runs in records],
        "away": client_charts.away(records, seeds, lists),
        "graphs": [client_charts.graph(runs) for runs in records],
        "real": not rows[0].group.block.simulated,
        "names": lists.lists,
    }
    return dict(finite(found))


# ---- curves


def _metrics(panel: Panel, points: int, main: str | None) -> list[dict[str, Any]]:
    """The curves of each metric that all runs have, the most important first."""
    everywhere = set.intersection(*(set(seed) for seed in panel.seeds)) - set(_NOT_DRAWN)
    first = [name for name in dict.fromkeys([main, *LABELS]) if name in everywhere]
    others = sorted(everywhere - set(first) - set(_PER_ROUND))
    found = []
    for name in [*first, *others, *(each for each in _PER_ROUND if each in everywhere)]:
        values = np.concatenate([np.asarray(seed[name], dtype=np.float64) for seed in panel.seeds])
        known = values[np.isfinite(values)]
        if not len(known) or (name in _PER_ROUND and np.ptp(known) == 0):  # nothing to see
            continue
        lines = [_line(seeds, at, curves, points, name in _PER_ROUND) for _, seeds, at, curves in panel.points(name)]
        label = LABELS.get(name, _PER_ROUND.get(name, printable(name)))
        found.append({"name": name, "label": label, "share": is_share(name, known), "lines": lines})
    return found


def _line(seeds: Sequence[Curve], at: Ints, curves: Floats, points: int, averaged: bool) -> dict[str, Any]:
    """The mean over seeds and its interval at each point, against rounds, seconds and megabytes sent.

    If there are more positions `at` than points, a point is the mean of some, or if not `averaged` one of them.
    """
    across = {
        "round": np.asarray(seeds[0]["round"], dtype=np.float64),
        "seconds": np.mean([seed["clock"] for seed in seeds], axis=0),
        "megabytes": np.mean([np.cumsum(seed["megabytes"]) for seed in seeds], axis=0),
    }
    width = 1
    if len(at) > points and averaged:
        width = -(-len(at) // points)
        starts = np.arange(0, len(at), width)
        sizes = np.diff(np.append(starts, len(at)))
        curves, at = np.add.reduceat(curves, starts, axis=1) / sizes, at[np.append(starts[1:], len(at)) - 1]
    elif len(at) > points:
        kept = _spread(len(at), points)
        curves, at = curves[:, kept], at[kept]
    positions = {key: rounded(values[at], 6) for key, values in across.items()}
    return {**positions, **over_seeds(curves, 6), "width": width}


def _spread(length: int, points: int) -> Ints:
    """At most so many positions, evenly spread over a length."""
    return np.unique(np.linspace(0, length - 1, min(length, points)).round().astype(int))


def _counts(seeds: Sequence[Curve], points: int) -> dict[str, Any]:
    """How often the clients were chosen, least chosen first."""
    counts = ranked([seed["counts"] for seed in seeds])
    kept = _spread(counts.shape[1], points)
    return {"percent": rounded(100 * kept / max(1, counts.shape[1] - 1), 6), **over_seeds(counts[:, kept], 6)}


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


def _chosen(group: Group, records: Sequence[ClientRecords], last: int, seeds: int, lists: NameLists) -> dict[str, Any]:
    """Who was chosen when (maps of the first seeds), how it ended, and how long the answers took (of all seeds)."""
    maps, durations, status, tables = [], [], np.zeros(len(Status), dtype=np.int64), []
    for i, run in enumerate(group.runs):
        selections = selections_until(run.info, run.last, "inclusion")
        tables.append(selections.select([each for each in ("client", "inclusion") if each in selections.column_names]))
        if i < seeds:
            maps.append(_map(run, selections, last) | {"names": lists.index(records[i])})
        status += [np.count_nonzero(with_status(selections, each)) for each in Status]
        answered = with_status(selections, Status.DONE, Status.SURPLUS)
        durations.append(selections["duration"].to_numpy().astype(np.float64)[answered])
    pooled = np.concatenate(durations)
    pooled = pooled[np.isfinite(pooled)]
    rounds = np.concatenate([run.rounds["seconds"].to_numpy() for run in group.runs]).astype(np.float64)
    return {
        "maps": maps,
        "stated": client_charts.stated(records, tables, lists),
        "status": {each.name.lower(): int(count) for each, count in zip(Status, status, strict=True)},
        "answers": {
            "percent": list(range(101)),
            "mean": rounded(np.percentile(pooled, np.arange(101)), 6) if len(pooled) and pooled.max() > 0 else [],
            "half": [],
            "rounds": rounded(np.percentile(rounds, [50, 90, 99]), 6) if len(rounds) and rounds.max() > 0 else [],
        },
    }


def _map(run: RunData, selections: Any, last: int) -> dict[str, Any]:
    """How often the clients of each bin were chosen in the rounds of each bin, a row per bin of clients."""
    clients = run.info.num_clients or 1
    height, width = min(clients, CLIENTS), min(last, ROUNDS)
    y = selections["client"].to_numpy() * height // clients
    x = np.maximum(selections["round"].to_numpy() - 1, 0) * width // last
    cells = np.bincount(y * width + x, minlength=height * width)
    return {"seed": run.info.seed, "clients": clients, "height": height, "width": width, "cells": cells.tolist()}
