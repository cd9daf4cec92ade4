"""Label counts that clients told, and clusters of clients by them, for policies with `needs = ("labels",)`."""

import numpy as np

from fedpick.core.errors import MissingError
from fedpick.core.types import Clients, Floats, Ints

__all__ = ["centres_of", "counts_of", "nearest", "shares_of"]

LEARNED_FROM = 10_000  # clients by which centres are learned; the others are assigned once
MOST_CLUSTERS = 20
ROUNDS = 30  # of Lloyd's algorithm, at most
BLOCK = 100_000  # clients whose distances are in memory at once


def counts_of(policy: object, clients: Clients, ids: Ints | None = None) -> Floats:
    """The label counts of these clients, or of all; one that told none counts as the mean of the others."""
    if clients.labels is None:
        raise MissingError(
            f"{type(policy).__name__} needs Clients.labels, the label counts of each client, but there are none: give "
            "fp.Clients(sizes, labels=...), or clients that describe their labels, or use another policy"
        )
    counts = np.maximum(clients.labels if ids is None else clients.labels[ids], 0.0)
    silent = counts.sum(axis=1) <= 0.0
    if silent.any():  # not equal shares, which would make it the most balanced client
        counts[silent] = 1.0 if silent.all() else counts[~silent].mean(axis=0)
    return counts


def shares_of(counts: Floats) -> Floats:
    """The share of each label in a client's data."""
    found: Floats = counts / counts.sum(axis=1, keepdims=True)
    return found


def nearest(points: Floats, centres: Floats) -> Ints:
    """Index of the nearest centre of each point, the first of several."""
    found = np.empty(len(points), dtype=np.int64)
    length = np.square(centres).sum(axis=1)
    for at in range(0, len(points), BLOCK):
        found[at : at + BLOCK] = np.argmin(length - 2.0 * points[at : at + BLOCK] @ centres.T, axis=1)
    return found


def centres_of(points: Floats, clusters: int | None) -> Floats:
    """Centres by k-means, without random numbers: the first are far from one another.

    Args:
        points: one for each client; of more than 10,000, so many at equal distances are learned from.
        clusters: how many; None: the number with the lowest index of Davies and Bouldin (1979), from 2 to 20, and at
            most half as many as there are different points.

    >>> centres_of(np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]]), None).round(2).tolist()
    [[0.95, 0.05], [0.05, 0.95]]
    """
    if len(points) > LEARNED_FROM:
        points = points[np.linspace(0, len(points) - 1, LEARNED_FROM).astype(np.int64)]
    distinct = len(np.unique(points.round(12), axis=0))
    if clusters is not None:
        return _lloyd(points, min(clusters, distinct))[0]
    # At most half as many as there are points: the index is lowest where nearly every cluster is a single one.
    tried = [_lloyd(points, k) for k in range(2, min(MOST_CLUSTERS, distinct // 2) + 1)]
    if not tried:
        return _lloyd(points, min(distinct, 2))[0]
    return min(tried, key=lambda found: _davies_bouldin(points, *found))[0]


def _lloyd(points: Floats, k: int) -> tuple[Floats, Ints]:
    """Lloyd's algorithm from the point nearest to the mean, and then always the point farthest from those before it."""
    first = [int(np.argmin(np.square(points - points.mean(axis=0)).sum(axis=1)))]
    gap = np.square(points - points[first[0]]).sum(axis=1)
    for _ in range(k - 1):
        first.append(int(np.argmax(gap)))
        gap = np.minimum(gap, np.square(points - points[first[-1]]).sum(axis=1))
    centres = points[first]
    label = nearest(points, centres)
    for _ in range(ROUNDS):
        number = np.bincount(label, minlength=k)
        sums = np.stack([np.bincount(label, column, minlength=k) for column in points.T], axis=1)
        centres = np.where(number[:, None] > 0, sums / np.maximum(number, 1)[:, None], centres)
        before, label = label, nearest(points, centres)
        if (before == label).all():
            break
    return centres, label


def _davies_bouldin(points: Floats, centres: Floats, label: Ints) -> float:
    """Mean over clusters of the highest (spread + spread) / distance between centres; low: apart and narrow."""
    held = np.unique(label)
    away = np.sqrt(np.square(points - centres[label]).sum(axis=1))
    spread = np.array([away[label == c].mean() for c in held])
    apart = np.sqrt(np.square(centres[held][:, None] - centres[held][None]).sum(axis=2))
    np.fill_diagonal(apart, np.inf)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(apart > 0.0, (spread[:, None] + spread) / apart, np.inf)
    return float(ratio.max(axis=1).mean())
