"""Scores of a run, each a small function of its rounds and selections.

Rounds and selections are the tables of `fedpick.store`; K is the number of clients.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from fedpick.core.types import Bools, Floats, Ints, Status
from fedpick.store.records import FRESH, NOTES, ROUND_COLUMNS

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    *("METRICS", "TO", "cep", "client_hours", "counts", "fresh_starts", "jain", "last_metrics", "metrics_of", "reach"),
    *("staleness", "success_ratio", "summary", "tasks", "trouble", "unusable", "with_status"),
]

METRICS = ("accuracy", "test_loss", "train_loss", "worst_decile", "spread")  # the first columns of metrics in a frame

# Columns of frames and CSV besides metrics: a metric with one of these names is shown as "metric_...".
_TAKEN = (
    *("returned", "success", "hours", "jain", "variance", "never", "staleness", "messages", "gigabytes"),
    *("tasks", "flying", "stale_mean", "stale_max", "rounds_to", "hours_to", "gigabytes_to", "messages_to", "tasks_to"),
    *("client_hours", "client_hours_to", "given"),
    *("policy", "world", "cohort_size", "data", "train", "seed", "engine"),
    *("code", "pace", "oracle", "num_clients", "rounds", "folder", "target", "target_metric"),
)
_PREFIX = "metric_"
# What a target takes; the scores have "_to" at their end.
TO = ("rounds", "hours", "gigabytes", "messages", "tasks", "client_hours")


def _column(table: "pa.Table", name: str) -> Floats:
    values: Floats = table[name].to_numpy().astype(np.float64)
    return values


def cep(rounds: "pa.Table") -> Floats:
    """Cumulative effective participation (E3CS, arXiv:2011.08756, eq. (8)): models returned in time so far."""
    return np.cumsum(_column(rounds, "done"))


def tasks(rounds: "pa.Table") -> Floats:
    """Tasks given to clients in each round: the chosen; without rounds, those asked since the model last moved."""
    given = _column(rounds, "chosen")
    if "asked" not in rounds.column_names:
        return given
    asked = _column(rounds, "asked")
    return np.where(np.isfinite(asked), asked, given)


def client_hours(rounds: "pa.Table", first: int | None = None) -> dict[str, float]:
    """Hours that clients computed in so many first rounds; nothing where that is not known of all rounds."""
    seconds = _column(rounds, "client_seconds") if "client_seconds" in rounds.column_names else np.full(1, np.nan)
    return {"client_hours": float(seconds[:first].sum()) / 3600.0} if np.isfinite(seconds).all() else {}


def success_ratio(rounds: "pa.Table") -> float:
    """The share of the tasks that ended with an answer in time (DONE or SURPLUS)."""
    asked = _column(rounds, "chosen").sum()
    answered = _column(rounds, "done").sum() + _column(rounds, "surplus").sum()
    return float(answered / asked) if asked else 0.0


def counts(selections: "pa.Table", num_clients: int) -> Ints:
    """How often each client was chosen."""
    found: Ints = np.bincount(selections["client"].to_numpy(), minlength=num_clients)
    return found


def jain(values: ArrayLike) -> float:
    """Jain's index of fairness: 1 if all values are equal, 1/K if all but one are 0.

    >>> jain([2, 2, 2]), jain([3, 0, 0])
    (1.0, 0.333...)
    """
    array = np.asarray(values, dtype=np.float64)
    square = (array**2).sum() * len(array)
    return float(array.sum() ** 2 / square) if square else 1.0


def staleness(selections: "pa.Table", num_clients: int, last_round: int) -> Ints:
    """Rounds since each client was last chosen, at the end of the run; `last_round` for those never chosen."""
    last = np.zeros(num_clients, dtype=np.int64)
    np.maximum.at(last, selections["client"].to_numpy(), selections["round"].to_numpy())
    return last_round - last


def metrics_of(rounds: "pa.Table") -> dict[str, str]:
    """The metrics of a table of rounds, in the order in which they were first given: name -> column."""
    names = [name for name in rounds.column_names if name not in (*ROUND_COLUMNS, *NOTES)]
    found = {}
    for name in names:
        shown = name
        while shown in _TAKEN or (shown != name and shown in names):
            shown = _PREFIX + shown
        found[shown] = name
    return found


def last_metrics(rounds: "pa.Table") -> dict[str, float]:
    """Every metric of the last evaluation of the model, those in `METRICS` first; empty without training."""
    known = metrics_of(rounds)
    ordered = [*(name for name in METRICS if name in known), *(name for name in known if name not in METRICS)]
    found = {name: rounds[known[name]].drop_null() for name in ordered}
    return {name: float(values[-1].as_py()) for name, values in found.items() if len(values)}


def fresh_starts(rounds: "pa.Table") -> list[int]:
    """Rounds before which a restarted server's model began again, so that its curves are of several trainings."""
    if FRESH not in rounds.column_names:
        return []
    again = np.nan_to_num(_column(rounds, FRESH)) > 0
    found: list[int] = rounds["round"].to_numpy()[again].tolist()
    return found


def with_status(selections: "pa.Table", *statuses: Status) -> Bools:
    """Mask of the selections with one of these statuses."""
    encoded = selections["status"].combine_chunks().dictionary_encode()
    names = np.array([status.name for status in statuses])
    found: Bools = np.isin(np.asarray(encoded.dictionary.to_pylist()), names)[encoded.indices.to_numpy()]
    return found


def unusable(rounds: "pa.Table", selections: "pa.Table") -> int:
    """Number of answers with a loss or an update that is not finite, which count as FAILED."""
    if "unusable" in rounds.column_names:
        return int(np.nansum(_column(rounds, "unusable")))
    failed = with_status(selections, Status.FAILED)  # in files of 0.2, such answers had a duration
    return int(np.count_nonzero(failed & np.isfinite(_column(selections, "duration"))))


def trouble(selections: "pa.Table", most: int = 10) -> list[dict[str, Any]]:
    """The clients that failed or were late most often: counts, and the mean seconds of answers in time."""
    client, seconds = selections["client"].to_numpy(), _column(selections, "duration")
    size = int(client.max(initial=-1)) + 1
    good = with_status(selections, Status.DONE, Status.SURPLUS) & np.isfinite(seconds)
    masks = (slice(None), with_status(selections, Status.LATE), with_status(selections, Status.FAILED), good)
    chosen, late, failed, answered = (np.bincount(client[mask], minlength=size) for mask in masks)
    total = np.bincount(client[good], weights=seconds[good], minlength=size)
    worst = np.argsort(-(late + failed), kind="stable")[:most]
    return [
        {
            "client": k,
            "chosen": int(chosen[k]),
            "late": int(late[k]),
            "failed": int(failed[k]),
            "seconds": float(total[k] / answered[k]) if answered[k] else None,
        }
        for k in worst[(late + failed)[worst] > 0].tolist()
    ]


def reach(rounds: "pa.Table", metric: str, target: float, *, smaller: bool = False) -> dict[str, float] | None:
    """What it took until a metric of `metrics_of` reached the target, as in `TO`; None if it never did.

    If smaller is better, values have to fall to the target.
    """
    values = _column(rounds, metrics_of(rounds)[metric])  # NaN in rounds without evaluation
    hit = np.flatnonzero(values <= target if smaller else values >= target)
    if not len(hit):
        return None
    at = int(hit[0])
    return {
        "rounds": float(rounds["round"][at].as_py()),  # a deployment may lack rounds
        "hours": float(rounds["clock"][at].as_py()) / 3600.0,
        "gigabytes": float(_column(rounds, "megabytes")[: at + 1].sum()) / 1e3,
        "messages": float(_column(rounds, "messages")[: at + 1].sum()),
        "tasks": float(tasks(rounds)[: at + 1].sum()),
        **client_hours(rounds, at + 1),
    }


def _flow(rounds: "pa.Table", selections: "pa.Table") -> dict[str, float]:
    """Without rounds: how stale the answers were that were used, and how many clients worked."""
    if "flying" not in rounds.column_names or "staleness" not in selections.column_names:
        return {}
    stale = _column(selections, "staleness")[with_status(selections, Status.DONE)]
    stale, flying = stale[np.isfinite(stale)], _column(rounds, "flying")
    found = {} if not np.isfinite(flying).any() else {"flying": float(np.nanmean(flying))}
    return found | ({"stale_mean": float(stale.mean()), "stale_max": float(stale.max())} if len(stale) else {})


def summary(rounds: "pa.Table", selections: "pa.Table", num_clients: int) -> dict[str, float]:
    """The scores that a comparison shows."""
    chosen, last = counts(selections, num_clients), int(rounds["round"][-1].as_py())
    return {
        "returned": float(cep(rounds)[-1]),
        "success": success_ratio(rounds),
        "hours": float(rounds["clock"][-1].as_py()) / 3600.0,
        "jain": jain(chosen),
        "variance": float(np.var(chosen)),
        "never": float(np.mean(chosen == 0)),
        "staleness": float(staleness(selections, num_clients, last).mean()),
        "messages": float(_column(rounds, "messages").sum()),
        "gigabytes": float(_column(rounds, "megabytes").sum()) / 1e3,
        "tasks": float(tasks(rounds).sum()),
        **client_hours(rounds),
        **_flow(rounds, selections),
        **last_metrics(rounds),
    }
