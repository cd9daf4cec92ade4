"""The numbers of the charts about clients: by class, accuracy, stated probabilities, who was away, FedGS's graph."""

import base64
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedpick.core.types import Bools, Floats
from fedpick.report.intervals import band
from fedpick.report.page.clients import ClientRecords, NameLists

__all__ = ["accuracies", "away", "by_class", "graph", "over_seeds", "rounded", "stated"]

MOST_GROUPS = 20  # classes of clients of one kind, such as labels
ALIKE = 1.2  # clients are alike if the largest class median is at most this times the smallest
MOST_RATES = 8  # different success rates; if there are more, thirds are shown
MOST_NODES = 300  # clients of a graph that is drawn
NEAREST = 3  # neighbours that a node is joined with
LEVELS = np.arange(101)
UNKNOWN = 255  # in a map of shares, which are 0 to 254

Classes = list[tuple[str, Bools]]  # of clients: name and mask of each


def rounded(values: ArrayLike, digits: int = 5) -> list[float]:
    """Numbers with so many significant digits."""
    return [float(f"{value:.{digits}g}") for value in np.asarray(values, dtype=np.float64).tolist()]


def over_seeds(values: ArrayLike, digits: int = 5) -> dict[str, list[float]]:
    """Mean and half width of the interval at each point of values (seeds, points); no half width for one seed."""
    mean, half = band(values)
    return {"mean": rounded(mean, digits), "half": rounded(half, digits) if len(np.asarray(values)) > 1 else []}


# ---- by class


def _thirds(values: Floats, names: tuple[str, str, str], unit: str) -> Classes:
    """A third of the clients each; none if they hardly differ."""
    edges = np.quantile(values, [1 / 3, 2 / 3], method="lower")
    group = np.searchsorted(edges, values)  # equal values are in one group, so that one may be empty
    found = [(name, group == g) for g, name in enumerate(names) if (group == g).any()]
    middles = [float(np.median(values[mask])) for _, mask in found]
    if max(middles) <= ALIKE * min(middles):
        return []
    return [
        (f"{name}, about {middle:,.{0 if middle >= 100 else 3}{'f' if middle >= 100 else 'g'}}{unit}", mask)
        for (name, mask), middle in zip(found, middles, strict=True)
    ]


def _labels(labels: Any) -> Classes:
    return [(f"label {each}", labels == each) for each in np.unique(labels).tolist()]


def _rates(given: Any) -> Classes:
    rates = np.round(given.astype(np.float64), 4)
    if len(np.unique(rates)) > MOST_RATES:
        return _thirds(rates, ("least reliable", "medium", "most reliable"), "")
    return [(f"succeeds with {100 * each:g}%", rates == each) for each in np.unique(rates).tolist()]


# Value of a client -> what it is called, and how it divides the clients into classes.
_KINDS: dict[str, tuple[str, Callable[[Any], Classes]]] = {
    "success": ("success rate", _rates),
    "seconds": ("speed", partial(_thirds, names=("fastest", "medium", "slowest"), unit=" s")),
    "label": ("most frequent label", _labels),
    "size": ("amount of data", partial(_thirds, names=("least data", "medium", "most data"), unit=" examples")),
}


def by_class(policies: Sequence[Sequence[ClientRecords]]) -> list[dict[str, Any]]:
    """For each way to group the clients: how often those of a group were chosen, and how accurate the model is."""
    everyone = [each for runs in policies for each in runs]
    found = []
    for name, (label, split) in _KINDS.items():
        if any(name not in each.census for each in everyone):
            continue
        groups = [split(each.census[name]) for each in everyone]
        count = max(map(len, groups))
        if min(map(len, groups)) != count or not 2 <= count <= MOST_GROUPS:
            continue
        named = [text for text, _ in groups[0]]
        masks = iter([np.array([mask for _, mask in each]) for each in groups])
        rows = [_row(runs, [next(masks) for _ in runs]) for runs in policies]
        sizes = [int(mask.sum()) for _, mask in groups[0]]
        found.append({"label": label, "groups": named, "clients": sizes, "rows": rows})
    return found


def _row(runs: Sequence[ClientRecords], masks: Sequence[Any]) -> dict[str, Any]:
    """Means over the clients of each group, and over seeds."""
    chosen = [mask @ each.run.counts / mask.sum(axis=1) for each, mask in zip(runs, masks, strict=True)]
    row = {"chosen": over_seeds(chosen)}
    if all("accuracy" in each.census for each in runs):
        found = []
        for each, mask in zip(runs, masks, strict=True):
            known = np.isfinite(each.census["accuracy"])
            hits = (mask & known) @ np.where(known, each.census["accuracy"], 0.0)
            found.append(hits / np.maximum(1, (mask & known).sum(axis=1)))
        row["accuracy"] = over_seeds(found)
    return row


# ---- accuracy


def accuracies(runs: Sequence[ClientRecords]) -> dict[str, Any] | None:
    """The clients' accuracy at the end, worst first, as percentiles; the mean over seeds."""
    found = [each.census["accuracy"].astype(np.float64) for each in runs if "accuracy" in each.census]
    found = [each[np.isfinite(each)] for each in found]
    if len(found) < len(runs) or not all(map(len, found)):
        return None
    return {"percent": LEVELS.tolist(), **over_seeds([np.percentile(each, LEVELS) for each in found])}


# ---- inclusion


def stated(runs: Sequence[ClientRecords], selections: Sequence[Any], names: NameLists) -> dict[str, Any] | None:
    """The probability that a policy states against how often it chose, by bin of clients; None where it states none.

    A policy states the probability p of those whom it chose. Of a client that was there in A rounds and chosen in n of
    them, the sum of 1/p over these n is A on average, so n over this sum is what was stated, and n/A what was done.
    """
    clients = runs[0].clients
    if not all(each.presence.complete and each.clients == clients for each in runs):
        return None
    count = runs[0].presence.there.shape[1]
    times, inverse, there = np.zeros(count), np.zeros(count), np.zeros(count)
    for each, table in zip(runs, selections, strict=True):
        p = table["inclusion"].to_numpy() if "inclusion" in table.column_names else np.empty(0)
        if not len(p) or not (p > 0).all():  # NaN where it is not known
            return None
        at = table["client"].to_numpy() * count // clients
        times += np.bincount(at, minlength=count)
        inverse += np.bincount(at, weights=1.0 / p, minlength=count)
        there += each.presence.there.sum(axis=0)
    seen = np.flatnonzero((times > 0) & (there > 0))
    return {
        "bin": seen.tolist(),
        "bins": count,
        "stated": rounded(times[seen] / inverse[seen]),
        "observed": rounded(times[seen] / there[seen]),
        "times": times[seen].astype(int).tolist(),
        "names": names.index(runs[0]) if len(runs) == 1 else None,  # others have other clients
    }


# ---- availability


def away(policies: Sequence[Sequence[ClientRecords]], seeds: int, names: NameLists) -> dict[str, Any] | None:
    """Maps of the share of clients that were away, of the first seeds; equal maps once.

    None if nobody was away, or it is not known. The names of the clients are added to `names`.
    """
    maps: dict[tuple[bytes, int, int | None], int] = {}
    of: list[list[int]] = []
    for runs in policies:
        of.append([])
        for each in runs[:seeds]:
            there, known = each.presence.there.T, each.presence.known.T
            if not known.any():
                return None
            share = 1.0 - there / np.maximum(known, 1e-9)
            cells = np.where(known > 0, np.rint(254.0 * share), UNKNOWN).astype(np.uint8).tobytes()
            of[-1].append(maps.setdefault((cells, each.clients, names.index(each)), len(maps)))
    if not any(set(cells) - {0, UNKNOWN} for cells, _, _ in maps):
        return None
    width = policies[0][0].presence.there.shape[0]
    return {
        "maps": [
            {
                "cells": base64.b64encode(cells).decode(),
                "height": len(cells) // width,
                "width": width,
                "clients": clients,
                "names": at,
            }
            for cells, clients, at in maps
        ],
        "of": of,
    }


# ---- FedGS's graph


def graph(runs: Sequence[ClientRecords]) -> dict[str, Any] | None:
    """The clients as FedGS's distances in the first run's checkpoint place them; None if there are none or too many."""
    first = runs[0]
    if "fedgs" not in first.run.info.policy.lower() or first.clients > MOST_NODES:
        return None
    distance = _distances(first)
    if distance is None:
        return None
    placed = np.flatnonzero(~np.isnan(distance.diagonal()))
    near = distance[np.ix_(placed, placed)].astype(np.float64)
    if len(placed) < 3:
        return None
    where = _apart(_plane(near))
    order = np.argsort(near + 2.0 * near.max() * np.eye(len(near)), axis=1, kind="stable")[:, :NEAREST]
    links = {(min(a, b), max(a, b)) for a, row in enumerate(order.tolist()) for b in row}
    labels = first.census.get("label")
    return {
        "seed": first.run.info.seed,
        "client": placed.tolist(),
        "x": rounded(where[:, 0]),
        "y": rounded(where[:, 1]),
        "links": sorted(map(list, links)),
        "times": first.run.counts[placed].tolist(),
        "label": [] if labels is None else labels[placed].tolist(),
    }


def _distances(records: ClientRecords) -> Any:
    from fedpick._support.archive import read_archive

    file = records.run.info.folder / "checkpoint.npz"
    if not file.is_file():
        return None
    arrays = read_archive(file)[0]
    shape = (records.clients, records.clients)
    found = (each for name, each in arrays.items() if name.startswith("policy/") and name.endswith("distance"))
    return next((each for each in found if each.shape == shape), None)


def _plane(distance: Floats) -> Floats:
    """Points in the unit square whose distances are close to these: classical scaling."""
    square = distance**2
    centred = square - square.mean(axis=0) - square.mean(axis=1)[:, None] + square.mean()
    values, vectors = np.linalg.eigh(-centred / 2.0)
    points: Floats = vectors[:, [-1, -2]] * np.sqrt(np.maximum(values[[-1, -2]], 0.0))
    points *= np.sign(points[np.abs(points).argmax(axis=0), [0, 1]] + 1e-300)  # eigenvectors have no sign
    return _unit(points)


def _unit(points: Floats) -> Floats:
    low, high = points.min(axis=0), points.max(axis=0)
    return np.asarray((points - low) / np.where(high > low, high - low, 1.0))


def _apart(points: Floats, steps: int = 80) -> Floats:
    """Push points apart that lie on one another, as clients with the same data do."""
    room = 0.8 / np.sqrt(len(points))
    turn: Floats = np.multiply(2.4, np.arange(len(points)))
    points = points + 1e-3 * np.array([np.cos(turn), np.sin(turn)], dtype=np.float64).T
    for _ in range(steps):
        gap = points[:, None] - points[None]
        far = np.sqrt((gap**2).sum(axis=2)) + np.eye(len(points))
        push = np.maximum(0.0, room - far) / far
        points += 0.25 * (gap * push[:, :, None]).sum(axis=1)
    return _unit(points)
