"""Hundreds of thousands of draws in one compiled loop over the samplers' own kernels.

A call from Python costs fifty times what a draw of five clients does. Each function here first checks that it draws
what the public function draws from the same seed, so that its frequencies are the public function's.
"""

from collections import Counter

import numpy as np
from numba import njit

from fedpick import sampling
from fedpick.sampling import exact, sequential

ALIKE = 300  # draws compared with the public function's


@njit(cache=True)
def _put(drawn, cohorts, i):
    for j in range(len(drawn)):  # an assignment of the whole row takes eight times as long to compile
        cohorts[i, j] = drawn[j]


@njit(cache=True)
def _pivotal(p, undecided, k, rng, draws):
    cohorts = np.empty((draws, k), np.int64)
    for i in range(draws):
        order = undecided.copy()
        rng.shuffle(order)
        _put(exact._duels(p, order, k, rng), cohorts, i)
    return cohorts


@njit(cache=True)
def _systematic(p, undecided, k, rng, draws):
    cohorts = np.empty((draws, k), np.int64)
    points, ordered = np.empty(k), np.empty(len(undecided))
    for i in range(draws):
        order = undecided.copy()
        rng.shuffle(order)
        start = rng.random()
        for j in range(k):
            points[j] = min(j + start, np.nextafter(j + 1.0, 0.0))
        for j in range(len(order)):
            ordered[j] = p[order[j]]
        places = exact._march(ordered, points)
        for j in range(k):
            cohorts[i, j] = order[places[j]]
    return cohorts


@njit(cache=True)
def _weighted(weights, k, rng, draws):
    cohorts = np.empty((draws, k), np.int64)
    for i in range(draws):
        _put(sequential._reservoir(weights, k, rng), cohorts, i)
    return cohorts


KERNELS = {sampling.pivotal: _pivotal, sampling.systematic: _systematic}


def exact_draws(design, p, seed, draws):
    """`draws` cohorts of an exact design, sorted, one a row."""
    p, sure, k = exact._split(p)
    undecided = np.flatnonzero((p > 0.0) & ~sure)
    drawn = KERNELS[design](p, undecided, k, np.random.default_rng(seed), draws)
    always = np.tile(np.flatnonzero(sure), (draws, 1))
    cohorts = np.sort(np.hstack([always, drawn]), axis=1)
    rng = np.random.default_rng(seed)
    np.testing.assert_array_equal(cohorts[:ALIKE], [design(p, rng) for _ in range(ALIKE)])
    return cohorts


def sequential_draws(draw, weights, k, seed, draws):
    """`draws` cohorts of `weighted` or `multinomial_nr`, sorted, one a row."""
    weights = np.asarray(weights, float)
    cohorts = np.sort(_weighted(weights / weights.max(), k, np.random.default_rng(seed), draws), axis=1)
    rng = np.random.default_rng(seed)
    np.testing.assert_array_equal(cohorts[:ALIKE], [draw(weights, k, rng) for _ in range(ALIKE)])
    return cohorts


def counted(cohorts):
    """How often each cohort came."""
    found, counts = np.unique(cohorts, axis=0, return_counts=True)
    return Counter({tuple(row): int(count) for row, count in zip(found.tolist(), counts, strict=True)})
