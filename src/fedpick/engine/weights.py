"""What updates count for: clients drawn twice, over-selection, and late updates beside those in time (REFL)."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpick.core.bounds import limited
from fedpick.core.types import Bools, Choice, Floats, Ints

__all__ = ["bases", "late_weights", "merged", "of_used", "weigh"]


def late_weights(rounds: Ints, distance: Floats, beta: float) -> Floats:
    """REFL's weight of late updates, beside 1 for those in time: (1 - beta)/(tau + 1) + beta (1 - exp(-L/L_max)).

    Abdelmoniem et al. (2023), section 4.2; L compares an update with the mean of those in time: an update unlike the
    others counts more.

    Args:
        rounds: tau, by how many each is late.
        distance: squared, of each to the mean of those in time; L is this times a factor that cancels in L/L_max.
        beta: how much the second part counts, in [0, 1].

    >>> late_weights(np.array([1, 3]), np.array([1.0, 2.0]), 0.0).tolist()
    [0.5, 0.25]
    """
    most = distance.max(initial=0.0)
    other: Floats = 1.0 - np.exp(-distance / most) if most > 0.0 else np.zeros(len(rounds))
    return (1.0 - beta) / (rounds + 1.0) + beta * other


def merged(choice: Choice) -> Choice:
    """The choice with each client once, in the order of first appearance; `copies` says how often each was drawn.

    A client that was drawn twice trains once, and counts twice: its weights are added up.

    >>> found = merged(Choice([4, 7, 4], weights=[1, 1, 1]))
    >>> found.ids.tolist(), found.weights.tolist(), found.copies.tolist()
    ([4, 7], [2.0, 1.0], [2, 1])
    """
    ids = choice.ids
    if len(ids) < 2 or (ids[1:] > ids[:-1]).all():
        return choice
    unique, first, back, counts = np.unique(ids, return_index=True, return_inverse=True, return_counts=True)
    if len(unique) == len(ids):
        return choice
    order = np.argsort(first)  # of the clients, by their first appearance
    weights = None
    if choice.weights is not None:
        weights = np.bincount(back.ravel(), weights=choice.weights, minlength=len(unique))[order]
    inclusion = None if choice.inclusion is None else choice.inclusion[first[order]]
    copies = counts[order].astype(np.int64)
    kept = None if choice.kept is None else {name: values[first[order]] for name, values in choice.kept.items()}
    return choice.with_(ids=unique[order], inclusion=inclusion, weights=weights, copies=copies, kept=kept)


def of_used(choice: Choice, used: int, surplus: int) -> Choice:
    """The choice with inclusion and weights of the clients that are used, where others were surplus.

    Over-selection uses the first answers: of `used + surplus` clients that did not fail, each is taken to be among them
    with the same probability. Without this, weights used as they are would sum to used/(used + surplus) of what they
    should.

    >>> of_used(Choice([1, 2], inclusion=[0.2, 0.4], weights=[5, 2.5], normalise=False), 1, 1).weights.tolist()
    [10.0, 5.0]
    """
    if not surplus or not used:
        return choice
    share = used / (used + surplus)
    inclusion = None if choice.inclusion is None else choice.inclusion * share
    weights = choice.weights if choice.weights is None or choice.normalise else choice.weights / share
    return choice.with_(inclusion=inclusion, weights=weights)


def bases(choice: Choice, sizes: NDArray[Any]) -> NDArray[Any]:
    """What each chosen client's update counts for beside the others: the policy's weight, else its size.

    Args:
        choice: of the policy.
        sizes: of all clients.

    >>> bases(Choice([0, 1, 2], most=1.5), np.array([600, 600, 9000])).tolist()
    [600.0, 600.0, 900.0]
    """
    if choice.weights is not None:
        return choice.weights
    own = sizes[choice.ids]
    return (own if choice.most is None else limited(own, choice.most)) * choice.times


def weigh(base: Floats, relative: Bools) -> Floats:
    """The factor of each update in the model's change, from what each counts for beside the others.

    Args:
        base: of the updates of a round, in time or late.
        relative: mask of those whose base is divided by the sum of such bases; the others are used as they are.

    >>> weigh(np.array([1.0, 3.0, 0.25]), np.array([True, True, False])).tolist()
    [0.25, 0.75, 0.25]
    """
    total = max(base[relative].sum(), np.finfo(np.float64).tiny)  # all may be 0
    return base / np.where(relative, total, 1.0)
