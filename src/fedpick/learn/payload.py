"""The updates of a cohort as a trainer holds them: a row for each client, and the positions of those that trained.

A payload is (rows, positions in the cohort of those that trained, the row of each), and under algorithms that ask for
it their local work (`fedpick.learn.algorithms.Work`).
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedpick.core.types import Bools, Floats, Ints, Updates
from fedpick.engine.cohort import possible
from fedpick.engine.weights import late_weights, weigh
from fedpick.learn.backend import Backend

__all__ = ["join_late", "keep", "part", "restored", "usable", "weighed"]

ROWS = 8  # updates are padded to a multiple of this: a new shape is compiled anew


def usable(updates: Updates) -> tuple[Ints, Ints]:
    """(positions in the cohort, slots in the payload) of the updates that can be used."""
    _, at, slots = updates.payload[:3]
    good = possible(np.asarray(updates.loss)[at]) & (True if updates.valid is None else updates.valid[at])
    return at[good], slots[good]


def weighed(backend: Backend, updates: Updates, weights: Floats) -> tuple[Any, Any]:
    """(all rows of the updates, the weight of each: 0 for rows that are of no chosen client)."""
    delta, at, slots = updates.payload[:3]
    first = backend.leaves(delta)[0]
    rows = np.zeros(len(first), _kind(first))
    rows[slots] = weights[at]
    return delta, rows


def keep(backend: Backend, updates: Updates, base: Floats, relative: bool) -> tuple[Ints, dict[str, Any]]:
    """(positions of usable updates, arrays to keep of them, a row each).

    Args:
        backend: whose updates they are.
        updates: of the late clients of a cohort.
        base: what each of the cohort would have counted for in time.
        relative: whether such bases are divided by their sum.
    """
    if updates.payload is None:
        return np.empty(0, np.int64), {}
    at, slots = usable(updates)
    leaves = {f"delta/{i}": np.asarray(leaf)[slots] for i, leaf in enumerate(backend.leaves(updates.payload[0]))}
    return at, {"base": base[at], "relative": np.full(len(at), relative), **leaves}


def part(updates: Updates, positions: Ints) -> Updates:
    """The updates of some of a cohort, in this order."""
    if updates.payload is None:  # nobody trained
        return Updates(updates.loss[positions])
    delta, at, slots, *work = updates.payload
    place = np.full(len(updates.loss), -1, dtype=np.int64)
    place[at] = np.arange(len(at))
    wanted = place[positions]
    trained = np.flatnonzero(wanted >= 0)
    mine = wanted[trained]
    reports = {name: np.asarray(values)[positions] for name, values in updates.reports.items()}
    valid = None if updates.valid is None else updates.valid[positions]
    rest = (type(each)(*(values[mine] for values in each)) for each in work)
    return Updates(updates.loss[positions], reports, (delta, trained, slots[mine], *rest), valid)


def join_late(
    backend: Backend,
    params: Any,
    updates: Updates,
    base: Floats,
    returned: Bools,
    relative: bool,
    late: Mapping[str, Any],
    beta: float,
) -> tuple[Any, Any]:
    """(the updates of a round and the late ones that came in it, their weights).

    Args:
        backend: whose updates they are.
        params: of the model, for their structure.
        updates: of the cohort.
        base: what each of the cohort counts for.
        returned: mask of those whose update is used.
        relative: whether the bases of the cohort are divided by their sum; each late one says so itself.
        late: what `keep` gave, with "round" (in which each was sent) and "now" (this round).
        beta: of `late_weights`.
    """
    count = len(late["base"])
    came = [late[f"delta/{i}"] for i in range(len(backend.leaves(params)))]
    at, slots = np.empty(0, np.int64), np.empty(0, np.int64)
    if updates.payload is not None:
        delta, at, slots = updates.payload[:3]
        came = [np.concatenate([np.asarray(a), b]) for a, b in zip(backend.leaves(delta), came, strict=True)]
    first = len(came[0]) - count
    spare = -len(came[0]) % ROWS
    padded = [np.concatenate([leaf, np.zeros((spare, *leaf.shape[1:]), leaf.dtype)]) for leaf in came]
    every = backend.restore(params, padded)
    tiny = np.finfo(np.float64).tiny  # all may be 0
    weights, mine = np.zeros(len(padded[0])), slice(first, first + count)
    weights[slots] = np.where(returned, base, 0.0)[at]
    apart = np.zeros(count)
    if returned.any():
        fresh = weights / max(weights.sum(), tiny)
        apart = np.asarray(backend.distances(every, fresh.astype(np.float32)), np.float64)[mine]
    weights[mine] = late["base"] * late_weights(late["now"] - late["round"], apart, beta)
    divided = np.full(len(weights), relative)
    divided[mine] = late["relative"]
    return every, weigh(weights, divided).astype(_kind(came[0]))


def restored(backend: Backend, params: Any, rows: Mapping[str, Any], weights: Floats, sent: Any) -> tuple[Any, Any]:
    """(the updates that were kept as rows, their weights), padded; with `sent`, of the models that clients then had.

    Args:
        backend: whose updates they are.
        params: of the model.
        rows: "delta/0", ... with a row for each update.
        weights: of the updates.
        sent: parameters that the updates start from, if the model is to move towards the clients' models; or None.
    """
    leaves = backend.leaves(params)
    spare = -len(weights) % ROWS
    found = []
    for i, leaf in enumerate(leaves):
        each = rows[f"delta/{i}"]
        if sent is not None:
            each = each + (np.asarray(backend.leaves(sent)[i]) - np.asarray(leaf))
        found.append(np.concatenate([each, np.zeros((spare, *each.shape[1:]), each.dtype)]))
    return backend.restore(params, found), np.concatenate([weights, np.zeros(spare)]).astype(_kind(found[0]))


def _kind(leaf: Any) -> Any:
    """The type of weights of such updates: as precise as they are, and at least float32."""
    return np.float64 if leaf.dtype == np.float64 else np.float32
