"""Fixed-size designs whose first-order inclusion probabilities are exact.

Madow (1949), "On the theory of systematic sampling, II", https://doi.org/10.1214/aoms/1177729988; Deville & Tillé
(1998), "Unequal probability sampling without replacement through a splitting method" (the pivotal method),
https://doi.org/10.1093/biomet/85.1.89. Both go through the clients in a random order: with a fixed order, half of the
pairs of clients would never be chosen together.
"""

import numpy as np
from numpy.typing import ArrayLike

from fedpick._support.native import native
from fedpick.core.errors import ContractError
from fedpick.core.types import Bools, Floats, Ints

__all__ = ["pivotal", "systematic"]

_CERTAIN = 1.0 - 1e-12  # probabilities above this count as 1: rounding must not lose a certain client


def _split(p: ArrayLike) -> tuple[Floats, Bools, int]:
    """Check p; return it, the mask of sure clients, and how many of the others are to be drawn."""
    probabilities = np.asarray(p, dtype=np.float64)
    if probabilities.ndim != 1:
        raise ContractError(f"p has shape {probabilities.shape}, but must be one probability per client")
    if len(probabilities) and not (probabilities.min() >= 0.0 and probabilities.max() <= 1.0 + 1e-9):
        bad = probabilities[~((probabilities >= 0.0) & (probabilities <= 1.0 + 1e-9))][0]
        raise ContractError(f"p holds {bad}, but probabilities are in [0, 1]; sampling.proportional caps them")
    total = float(probabilities.sum())
    k = round(total)
    if abs(total - k) > 1e-6 * min(max(1.0, total), 1e5):
        raise ContractError(
            f"p sums to {total:.9g}, but a fixed-size design needs a whole number; sampling.proportional(sizes, k) "
            "gives probabilities that sum to k"
        )
    sure: Bools = probabilities >= _CERTAIN
    return probabilities, sure, k - int(np.count_nonzero(sure))


def _random_order(p: Floats, sure: Bools, rng: np.random.Generator) -> Ints:
    order: Ints = np.flatnonzero((p > 0.0) & ~sure)
    rng.shuffle(order)
    return order


def _settled(p: Floats, k: int) -> Floats:
    """Make the sum exactly k by scaling down the probabilities, or their complements, so that none exceeds 1."""
    total, count = p.sum(), len(p)
    if total >= k or count <= k:
        lowered: Floats = p * (k / total)
        return lowered
    settled: Floats = 1.0 - (1.0 - p) * ((count - k) / (count - total))
    return settled


@native
def _march(p: Floats, points: Floats) -> Ints:
    """Clients lie end to end on a line, client i over a length p[i]: the client at each of the points.

    The points are sorted. If rounding makes the line too short for a point, it belongs to the last client.
    """
    hits = np.full(len(points), len(p) - 1)
    end = 0.0
    at = 0
    for i in range(len(p) - 1):
        end += p[i]
        while at < len(points) and points[at] < end:
            hits[at] = i
            at += 1
    return hits


def systematic(p: ArrayLike, rng: np.random.Generator) -> Ints:
    """Draw k = sum(p) clients, client i with probability p[i]: equal steps through the clients in random order.

    >>> import numpy as np
    >>> systematic([0.5, 0.5, 1.0, 0.0], np.random.default_rng(0)).tolist()
    [0, 2]
    """
    probabilities, sure, k = _split(p)
    if k <= 0:
        return np.flatnonzero(sure)
    order = _random_order(probabilities, sure, rng)
    whole = np.arange(float(k))
    points = np.minimum(whole + rng.random(), np.nextafter(whole + 1.0, 0.0))  # a start near 1 must not round up to 1
    hits = _march(_settled(probabilities[order], k), points)
    return np.sort(np.concatenate([np.flatnonzero(sure), order[hits]]))


@native
def _duels(p: Floats, order: Ints, k: int, rng: np.random.Generator) -> Ints:
    """The pivotal method: a first client duels each of the others in turn; each duel decides one of the two.

    While the two together hold less than 1, the newcomer wins with probability p/(sum): the fighter survives up to a
    sum t with probability s/t, so that one uniform number tells at which sum it falls (no number per client).
    """
    chosen = np.empty(k, dtype=np.int64)
    count = 0
    fighter = order[0]
    held = p[fighter]
    falls_at = held / (1.0 - rng.random())
    for j in range(1, len(order)):
        rival = order[j]
        both = held + p[rival]
        if both < 1.0:
            if both > falls_at:
                fighter = rival
                falls_at = both / (1.0 - rng.random())
            held = both
            continue
        # One of the two is chosen, the other goes on with the remaining probability.
        winner = fighter
        if rng.random() * (2.0 - both) < 1.0 - p[rival]:
            fighter = rival
        else:
            winner = rival
        if count < k:
            chosen[count] = winner
            count += 1
        held = both - 1.0
        falls_at = held / (1.0 - rng.random())
    if count < k:  # the last one has probability 1 up to rounding
        chosen[count] = fighter
        count += 1
    return chosen[:count]


def pivotal(p: ArrayLike, rng: np.random.Generator) -> Ints:
    """Draw k = sum(p) clients, client i with probability p[i]: duels between the clients in random order.

    Neighbours in the order exclude each other, so that the chosen are negatively correlated: totals estimated from
    the cohort vary less than with independent draws.

    >>> import numpy as np
    >>> pivotal([0.5, 0.5, 1.0, 0.0], np.random.default_rng(0)).tolist()
    [0, 2]
    """
    probabilities, sure, k = _split(p)
    if k <= 0:
        return np.flatnonzero(sure)
    order = _random_order(probabilities, sure, rng)
    return np.sort(np.concatenate([np.flatnonzero(sure), _duels(probabilities, order, k, rng)]))
