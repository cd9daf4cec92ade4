"""How many examples each client gets: a number, or a law of sizes."""

from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np

from fedpick._support.text import Makers
from fedpick.core.errors import require
from fedpick.core.types import Floats, Ints

__all__ = ["SIZES", "LogNormalSizes", "PowerLawSizes", "Size", "SizeLaw", "check_size", "check_whole", "share_out"]


def _whole(value: Any, low: int) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= low


def check_whole(what: str, value: Any, low: int) -> None:
    """Raise unless the value is a whole number that is large enough."""
    require(_whole(value, low), what, value, f"an integer >= {low}")


def share_out(totals: Ints, weights: Floats) -> Ints:
    """Whole numbers in proportion to each row of weights, each row summing to its total exactly (largest remainders).

    >>> share_out(np.array([10, 4]), np.array([[1.0, 1.0, 1.0], [0.0, 3.0, 1.0]]))
    array([[4, 3, 3], [0, 3, 1]])
    """
    exact = totals[:, None] * (weights / weights.sum(axis=1, keepdims=True))
    whole = np.floor(exact)
    missing = totals - whole.sum(axis=1)
    rank = np.argsort(np.argsort(whole - exact, axis=1, kind="stable"), axis=1)
    shares: Ints = (whole + (rank < missing[:, None])).astype(np.int64)
    return shares


class SizeLaw:
    """A law of sizes: called with a number of clients, it draws sizes with a given total."""

    mean: float | None
    at_least: int

    def __call__(self, num_clients: int, rng: np.random.Generator, total: int) -> Ints:
        """Sizes that sum to `total`."""
        raise AssertionError("subclasses define it")

    def _check(self) -> None:
        name = type(self).__name__
        check_whole(f"{name}: at_least", self.at_least, 1)
        if self.mean is not None:
            bound = f"finite and >= at_least = {self.at_least}"
            require(self.at_least <= self.mean < np.inf, f"{name}: mean", self.mean, bound)

    def _in_proportion(self, weights: Floats, total: int) -> Ints:
        least, what = self.at_least * len(weights), f"{type(self).__name__}: at_least * num_clients"
        fix = "take fewer clients or a lower at_least"
        require(least <= total, what, least, f"<= {total}, the examples to give", fix)
        sizes: Ints = self.at_least + share_out(np.array([total - least]), weights[None])[0]
        return sizes


@dataclass(frozen=True)
class PowerLawSizes(SizeLaw):
    """Sizes in proportion to draws from P(x) = a x^(a-1) on [0, 1] (Power-of-Choice: a = 3).

    Args:
        a: the exponent; with a smaller one, more clients have few examples.
        mean: examples per client; None: all examples of the data set are given out.
        at_least: every client gets this many; the rest is divided by the law.

    >>> PowerLawSizes(at_least=1)(4, np.random.default_rng(0), total=20)
    array([7, 6, 4, 3])
    """

    a: float = 3.0
    mean: float | None = None
    at_least: int = 10

    def __post_init__(self) -> None:
        require(0.01 <= self.a <= 1e6, "PowerLawSizes: a", self.a, "in [0.01, 1e6]", "the paper has 3")
        self._check()

    def __call__(self, num_clients: int, rng: np.random.Generator, total: int) -> Ints:
        """Sizes that sum to `total`."""
        return self._in_proportion(rng.random(num_clients) ** (1.0 / self.a), total)


@dataclass(frozen=True)
class LogNormalSizes(SizeLaw):
    """Sizes in proportion to draws from LogNormal(0, sigma): a few clients have most of the data (FedProx: sigma = 2).

    Args:
        sigma: standard deviation of the logarithm; 0 gives equal sizes.
        mean: examples per client; None: all examples of the data set are given out.
        at_least: every client gets this many; the rest is divided by the law.

    >>> LogNormalSizes(at_least=1)(4, np.random.default_rng(0), total=40)
    array([ 8,  5, 20,  7])
    """

    sigma: float = 2.0
    mean: float | None = None
    at_least: int = 10

    def __post_init__(self) -> None:
        require(0.0 <= self.sigma <= 10.0, "LogNormalSizes: sigma", self.sigma, "in [0, 10]", "FedProx has 2")
        self._check()

    def __call__(self, num_clients: int, rng: np.random.Generator, total: int) -> Ints:
        """Sizes that sum to `total`."""
        return self._in_proportion(rng.lognormal(0.0, self.sigma, num_clients), total)


Size = int | SizeLaw | None  # examples per client; None: all the data in equal parts

SIZES: Makers = {"power-law": PowerLawSizes, "log-normal": LogNormalSizes}


def check_size(part: object, size: Size) -> None:
    """Raise unless this is a number of examples, a law of sizes or None."""
    holds = size is None or isinstance(size, SizeLaw) or _whole(size, 1)
    bound = "an integer >= 1, a law of sizes, or None for all the data"
    require(holds, f"{type(part).__name__}: size", size, bound, "laws are power-law and log-normal")
