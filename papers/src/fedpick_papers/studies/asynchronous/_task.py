"""The task of these studies: softmax regression on 500 clients, each with a few of ten labels.

Inputs are a mixture of ten Gaussians whose common covariance has a decaying spectrum, so that the optimum takes many
steps. A level is a share of the accuracy of the best rule, which is known: nothing has to be played to find it.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtri, zeta

from fedpick import data
from fedpick.core import rng as rngs
from fedpick.core.types import Floats
from fedpick.worlds import LogNormalTime, PerClient, World, availability, volatility

__all__ = ["CLASSES", "DIM", "DRAWN", "TASK", "TEXT", "ZIPF", "Problem", "problem", "slow", "times", "world"]

CLASSES, DIM = 10, 32
TASK: dict[str, Any] = {"clients": 500, "examples": 40, "alpha": 0.3, "apart": 3.0, "decay": 0.75, "level": 0.95}
TEST = 2000  # examples, all labels alike
TEXT = (
    "Softmax regression (32 inputs, ten labels, a Gaussian for each label), {clients:,} clients with 40 examples each, "
    "whose labels are Dirichlet(0.3), two local steps of 20 examples; each seed draws data of its own. The level is "
    "95% of the accuracy of the best rule, which is known of such data; accuracy is looked at after every C answers, "
    "under all paces alike. All C places are always taken; nobody is away and nobody fails. Server rates (of "
    "FedAsync the clients' rate and alpha) are tuned for each pace and each C and sigma, on seeds that are not shown"
)
DRAWN = "each time", "each client", "each client, by its labels", "each client, by one label"  # what sets a duration
ZIPF = "each client, by Zipf's law", "each client, by Zipf's law and one label"  # sigma is then the law's exponent
LONGEST = 60  # seconds, of Zipf's law


class Problem(NamedTuple):
    """What a seed draws.

    Args:
        data: of the clients.
        mix: (K, 10) probabilities of the labels of each.
        level: accuracy to be reached.
    """

    data: data.Federated
    mix: Floats
    level: float


@lru_cache(maxsize=3)
def _problem(clients: int, examples: int, alpha: float, apart: float, decay: float, level: float, seed: int) -> Problem:
    rng = rngs.stream(seed, 0, "data")
    centres = apart * rng.standard_normal((CLASSES, DIM)) / np.sqrt(DIM)
    mix = rng.dirichlet(np.full(CLASSES, alpha), clients)
    chosen = (rng.random((clients, examples, 1)) > mix.cumsum(axis=1)[:, None, :-1]).sum(axis=2)
    y = np.concatenate([chosen.ravel(), rng.integers(0, CLASSES, TEST)]).astype(np.int32)
    z = centres[y] + rng.standard_normal((len(y), DIM))
    n = clients * examples
    nearest = ((z[n:, None] - centres) ** 2).sum(axis=2).argmin(axis=1)
    spectrum = np.arange(1, DIM + 1) ** -decay
    x = (z * (spectrum / np.sqrt((spectrum**2).mean()))).astype(np.float32)
    split = data.Dataset("gaussians", x[:n], y[:n], x[n:], y[n:], classes=CLASSES)
    held = data.Federated(split, np.arange(n), np.arange(0, n + 1, examples))
    return Problem(held, mix, level * float((nearest == y[n:]).mean()))


def problem(task: Mapping[str, Any], seed: int) -> Problem:
    """The data of this seed.

    >>> found = problem(TASK | {"clients": 20}, seed=0)
    >>> len(found.data), found.mix.shape, 0.7 < found.level < 0.95
    (20, (20, 10), True)
    """
    return _problem(**task, seed=seed)


def times(mix: Floats, sigma: float, drawn: str, seed: int) -> Floats:
    """Each client's duration: the quantiles of a log-normal law of median 1, in random order or by the clients' labels.

    By its labels: by their mean. By one label: by its share of the last one, which then slow clients hold.

    >>> mix = np.eye(10)[[9, 0, 4]]
    >>> times(mix, 1.0, "each client, by its labels", seed=0).round(2).tolist()
    [2.63, 0.38, 1.0]
    """
    clients = len(mix)
    if drawn in (DRAWN[1], ZIPF[0]):
        by = rngs.stream(seed, 0, "speeds").random(clients)
    else:
        by = mix @ np.arange(CLASSES) if drawn == DRAWN[2] else mix[:, -1]
    level = (np.argsort(np.argsort(by, kind="stable")) + 0.5) / clients
    found: Floats = zipf(level, sigma) if drawn in ZIPF else np.exp(sigma * ndtri(level))
    return found


def zipf(level: Floats, exponent: float) -> Floats:
    """Quantiles of Zipf's law of whole seconds, P(s) in proportion to s^-exponent; those above `LONGEST` are that.

    >>> zipf(np.array([0.1, 0.4, 0.5, 0.9]), 1.2).tolist()
    [1.0, 7.0, 18.0, 60.0]
    """
    below = (np.arange(1.0, LONGEST) ** -exponent).cumsum() / zeta(exponent)
    found: Floats = np.searchsorted(below, level).astype(np.float64) + 1.0
    return found


def world(found: Problem, sigma: float, drawn: str, seed: int) -> World:
    """Everybody is there and reliable, and takes log-normal times of median 1."""
    each = drawn != DRAWN[0]
    latency: Any = PerClient(times(found.mix, sigma, drawn, seed)) if each else LogNormalTime((1.0,), sigma)
    return World(
        found.data.clients,
        availability=availability.Always(),
        volatility=volatility.Reliable(),
        latency=latency,
        deadline=None,
        epochs=(1,),
    )


def slow(durations: Floats, counts: Floats) -> float:
    """Share of the answers that is of the slowest quarter of the clients.

    >>> slow(np.array([4.0, 1.0, 2.0, 3.0]), np.array([1, 2, 4, 3]))
    0.1
    """
    last = np.argsort(durations, kind="stable")[-(len(durations) // 4) :]
    return float(counts[last].sum() / max(counts.sum(), 1))
