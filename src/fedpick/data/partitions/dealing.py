"""Giving out the examples once it is decided how many of each group every client gets."""

import numpy as np

from fedpick.core.errors import SettingError, require
from fedpick.core.types import Ints
from fedpick.data.federated import Dataset, Federated
from fedpick.data.partitions.sizes import check_whole

__all__ = ["check_clients", "deal", "supply_of"]


def check_clients(part: object, dataset: Dataset, num_clients: int) -> None:
    """Raise unless there is at least one client, and an example for each."""
    what = f"{type(part).__name__}: num_clients"
    check_whole(what, num_clients, 1)
    shared = getattr(part, "overlap", False) and getattr(part, "size", None) is not None
    bound = f"<= {len(dataset)}, the number of examples of {dataset.name}"
    require(shared or num_clients <= len(dataset), what, num_clients, bound, "every client needs at least one example")


def supply_of(part: object, dataset: Dataset, num_clients: int) -> Ints:
    """How many examples of each label there are."""
    check_clients(part, dataset, num_clients)
    if not dataset.classes:
        raise SettingError(
            f"{type(part).__name__} divides by label, but {dataset.name} is a regression (classes = 0); use iid"
        )
    return np.bincount(dataset.y, minlength=dataset.classes)


def deal(
    part: object, dataset: Dataset, group: Ints, wanted: Ints, rng: np.random.Generator, overlap: bool
) -> Federated:
    """Give client k wanted[k, g] examples of group g, chosen uniformly, in random order.

    Args:
        part: the partition, named in errors.
        dataset: whose examples.
        group: (N) the group of each example: its label, or 0 for all.
        wanted: (K, G) examples of each group for each client.
        rng: draws the examples.
        overlap: clients draw independently and may share examples; otherwise no example is given twice.
    """
    chosen, owner = [], []
    for g in range(wanted.shape[1]):
        members, takes = np.flatnonzero(group == g), wanted[:, g]
        demand = int(takes.max()) if overlap else int(takes.sum())
        if demand > len(members):
            who, twice = ("one client", "") if overlap else ("all clients", ", and no example is given twice")
            less = 100 - 100 * len(members) // demand
            fix = f"take a size smaller by {less}%" + ("" if overlap else ", or fewer clients")
            fix += ", or overlap=True" if not overlap and hasattr(part, "overlap") else ""
            what = f"{type(part).__name__}: examples of label {g} wanted by {who}"
            require(False, what, demand, f"<= {len(members)}: {dataset.name} has no more{twice}", fix)
        if overlap:  # one draw without replacement per client and group: ten microseconds each
            few = np.flatnonzero(takes)
            draws = [rng.choice(len(members), takes[k], replace=False, shuffle=False) for k in few]
            chosen.append(members[np.concatenate(draws)] if draws else members[:0])
        else:
            chosen.append(rng.permutation(members)[:demand])
        owner.append(np.repeat(np.arange(len(wanted)), takes))
    flat, whose = np.concatenate(chosen), np.concatenate(owner)
    shuffled = rng.permutation(len(flat))  # so that a client's labels are mixed
    order = shuffled[np.argsort(whose[shuffled], kind="stable")]
    return Federated(dataset, flat[order], np.concatenate([[0], np.cumsum(wanted.sum(axis=1))]))
