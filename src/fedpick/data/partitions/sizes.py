"""How many examples each client gets: a number, or a law of sizes."""

from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np

from fedpick._support.text import Makers
from fedpick.core.errors import require
from fedpick.core.types import Floats, Ints
from fedpick.data.federated import Dataset

__all__ = [
    "SIZES",
    "LogNormalSizes",
    "PowerLawSizes",
    "Size",
    "SizeLaw",
    "check_size",
    "check_whole",
    "draw_sizes",
    "share_out",
]


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


def _check_law(law: "PowerLawSizes | LogNormalSizes") -> None:
    name = type(law).__name__
    check_whole(f"{name}: at_least", law.at_least, 1)
    if law.mean is not None:
        bound = f"finite and >= at_least = {law.at_least}"
        require(law.at_least <= law.mean < np.inf, f"{name}: mean", law.mean, bound)


def _in_proportion(law: "PowerLawSizes | LogNormalSizes", weights: Floats, total: int) -> Ints:
    least = law.at_least * len(weights)
    what = f"{type(law).__name__}: at_least * num_clients"
    require(least <= total, what, least, f"<= {total}, the examples to give", "take fewer clients or a lower at_least")
    sizes: Ints = law.at_least + share_out(np.array([total - least]), weights[None])[0]
    return sizes


@dataclass(frozen=True)
class PowerLawSizes:
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
        _check_law(self)

    def __call__(self, num_clients: int, rng: np.random.Generator, total: int) -> Ints:
        """Sizes that sum to `total`."""
        return _in_proportion(self, rng.random(num_clients) ** (1.0 / self.a), total)


@dataclass(frozen=True)
class LogNormalSizes:
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
        _check_law(self)

    def __call__(self, num_clients: int, rng: np.random.Generator, total: int) -> Ints:
        """Sizes that sum to `total`."""
        return _in_proportion(self, rng.lognormal(0.0, self.sigma, num_clients), total)


SizeLaw = PowerLawSizes | LogNormalSizes
Size = int | SizeLaw | None  # examples per client; None: all the data in equal parts

SIZES: Makers = {"power-law": PowerLawSizes, "log-normal": LogNormalSizes}


def check_size(part: object, size: Size) -> None:
    """Raise unless this is a number of examples, a law of sizes or None."""
    holds = size is None or isinstance(size, SizeLaw) or _whole(size, 1)
    bound = "an integer >= 1, a law of sizes, or None for all the data"
    require(holds, f"{type(part).__name__}: size", size, bound, "laws are power-law and log-normal")


def draw_sizes(
    part: object, size: Size, dataset: Dataset, num_clients: int, rng: np.random.Generator, overlap: bool
) -> Ints:
    """How many examples each client gets."""
    name, there = type(part).__name__, len(dataset)
    if isinstance(size, SizeLaw):
        sizes = size(num_clients, rng, there if size.mean is None else round(size.mean * num_clients))
    else:
        sizes = np.full(num_clients, there // num_clients if size is None else int(size))
    if overlap:
        bound = f"<= {there}, the examples of {dataset.name}"
        require(int(sizes.max()) <= there, f"{name}: largest client", int(sizes.max()), bound, "take a smaller size")
    else:
        fix = f"take at most {there // max(int(sizes.mean()), 1)} clients, or a size of at most {there // num_clients}"
        require(
            int(sizes.sum()) <= there,
            f"{name}: examples for {num_clients} clients",
            int(sizes.sum()),
            f"<= {there}: {dataset.name} has no more, and no example is given twice",
            fix + (", or overlap=True" if hasattr(part, "overlap") else ""),
        )
    return sizes
