"""Compiled loops as plain Python, which raises where a compiled one would read or write beyond an array.

Both forms draw the same, and what was written down: a change of the order or the number of random draws is seen.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fedpick import sampling, solvers
from fedpick._support.native import Native

EIGHTHS = np.array([1, 3, 0, 8, 5, 2, 7, 4, 6, 4]) / 8  # sums to 5, without rounding
WEIGHTS = np.array([3.0, 0.0, 1.0, 8.0, 2.0, 5.0, 1e-3, 8.0, 4.0])
VALUES = np.array([0.3, 0.9, 0.9, 0.1, 0.5, 0.7, 0.2, 0.8])
BONUS = np.array([0.4, 0.0, 0.1, 0.9, 0.3, 0.2, 0.8, 0.05])
APART = np.abs(np.subtract.outer(VALUES, BONUS)) + np.abs(np.subtract.outer(BONUS, VALUES))
np.fill_diagonal(APART, 0.0)

DRAWS: dict[str, tuple[Callable[[np.random.Generator], np.ndarray], list[str]]] = {
    "systematic": (
        lambda rng: sampling.systematic(EIGHTHS, rng),
        ["3 6 7 8 9", "3 4 5 6 7", "0 3 5 8 9", "3 4 6 7 8", "3 4 7 8 9"],
    ),
    "pivotal": (
        lambda rng: sampling.pivotal(EIGHTHS, rng),
        ["1 3 6 7 8", "1 3 5 6 8", "1 3 6 7 9", "3 4 6 7 8", "3 4 6 8 9"],
    ),
    "weighted": (
        lambda rng: sampling.weighted(WEIGHTS, 4, rng),
        ["3 4 5 7", "3 5 7 8", "0 4 5 8", "0 3 5 7", "3 4 5 7"],
    ),
    "weighted, all": (
        lambda rng: sampling.weighted(WEIGHTS, 8, rng),
        ["0 2 3 4 5 6 7 8", "0 2 3 4 5 6 7 8", "0 2 3 4 5 6 7 8", "0 2 3 4 5 6 7 8", "0 2 3 4 5 6 7 8"],
    ),
    "weighted, one": (lambda rng: sampling.weighted(WEIGHTS, 1, rng), ["3", "5", "7", "4", "3"]),
    "weighted, beyond floats": (
        lambda rng: sampling.weighted(np.append(WEIGHTS, 1e-300), 4, rng),
        ["2 3 7 8", "2 4 5 7", "0 3 7 8", "0 3 4 7", "3 4 5 7"],
    ),
    "multinomial": (
        lambda rng: sampling.multinomial_nr(WEIGHTS, 3, rng),
        ["3 4 7", "3 5 8", "0 4 8", "0 7 8", "5 7 8"],
    ),
    "with replacement": (
        lambda rng: sampling.with_replacement(WEIGHTS, 6, rng),
        ["0 0 3 7 7 8", "3 3 4 5 8 8", "0 3 3 5 7 7", "0 0 3 4 5 7", "0 3 5 5 8 8"],
    ),
    "top": (lambda rng: solvers.top(VALUES.round(), 3, rng), ["2 5 7", "1 2 7", "1 2 7", "1 2 7", "2 5 7"]),
    "bottleneck": (
        lambda rng: solvers.bottleneck(VALUES.round(), 0 * BONUS, 3, rng=rng),
        ["2 5 7", "1 2 5", "1 2 7", "1 2 5", "1 2 5"],
    ),
    "alsa": (lambda rng: solvers.anneal(VALUES, BONUS, 3, 30, rng), ["1 4 5", "5 6 7", "4 5 6", "1 5 7", "1 2 3"]),
    "sa": (
        lambda rng: solvers.anneal(VALUES, BONUS, 3, 30, rng, neighbours="sa"),
        ["1 4 6", "1 3 6", "0 2 4", "3 5 6", "1 2 4"],
    ),
}


def some(draw: Callable[[np.random.Generator], np.ndarray]) -> list[str]:
    return [" ".join(map(str, draw(np.random.default_rng(seed)))) for seed in range(5)]


@pytest.mark.parametrize("name", DRAWS)
def test_draws_stay(name: str) -> None:
    draw, kept = DRAWS[name]
    assert some(draw) == kept


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    def call(self: Native[Any, Any], *args: Any) -> Any:
        return self.function(*args)

    monkeypatch.setattr(Native, "__call__", call)


@pytest.mark.parametrize("name", DRAWS)
def test_plain_python_draws_the_same(name: str, plain: None) -> None:
    draw, kept = DRAWS[name]
    assert some(draw) == kept


@pytest.mark.parametrize("design", [sampling.systematic, sampling.pivotal])
def test_designs_stay_inside_their_arrays(design: Callable[..., np.ndarray], plain: None) -> None:
    for seed in range(100):
        rng = np.random.default_rng(seed)
        p = sampling.proportional(rng.exponential(size=int(rng.integers(2, 9))), 2)
        assert len(design(p, rng)) == 2


def test_reservoirs_stay_inside_their_arrays(plain: None) -> None:
    for seed in range(100):
        rng = np.random.default_rng(seed)
        count = int(rng.integers(1, 9))
        weights = rng.exponential(size=count) ** 4
        k = int(rng.integers(0, count + 1))
        assert len(np.unique(sampling.weighted(weights, k, rng))) == k


def test_solvers_stay_inside_their_arrays(plain: None) -> None:
    for seed in range(60):
        rng = np.random.default_rng(seed)
        count = int(rng.integers(2, 8))
        m = int(rng.integers(1, count + 1))
        value, bonus = rng.integers(0, 4, count) / 4.0, rng.integers(0, 4, count) / 4.0
        distance = rng.integers(1, 5, (count, count)).astype(float)
        distance = np.minimum(distance, distance.T)
        np.fill_diagonal(distance, 0.0)
        for chosen in (
            solvers.bottleneck(value, bonus, m, rng=rng),
            solvers.anneal(value, bonus, m, 20, rng),
            solvers.anneal(value, bonus, m, 20, rng, neighbours="sa"),
            solvers.disperse(distance, bonus, m, 1.0, rng=rng),
            solvers.facility_location(distance, m, rng=rng)[0],
        ):
            assert len(np.unique(chosen)) == m
