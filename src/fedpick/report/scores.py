"""Scores of a run, each a small function of its rounds and selections.

Rounds and selections are the tables of `fedpick.store`; K is the number of clients. The papers: E3CS
(https://arxiv.org/abs/2011.08756), RBCS-F (https://doi.org/10.1109/TPDS.2020.3040887).
"""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from fedpick.core.types import Bools, Floats, Ints, Status
from fedpick.store.records import FRESH, NOTES, ROUND_COLUMNS

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "METRICS",
    "cep",
    "counts",
    "ended",
    "fresh",
    "jain",
    "learned",
    "metrics_of",
    "never_chosen",
    "queue_lengths",
    "reach",
    "rounds_to",
    "staleness",
    "success_ratio",
    "summary",
    "time_to",
    "trouble",
    "unusable",
]


METRICS = ("accuracy", "test_loss", "train_loss", "worst_decile", "spread")  # the first ones of a frame

# What frames and CSV have besides metrics: a metric of such a name is shown as "metric_..." instead.
_TAKEN = (
    *("returned", "success", "hours", "jain", "variance", "never", "staleness", "messages", "gigabytes"),
    *("rounds_to", "hours_to", "gigabytes_to", "policy", "world", "cohort_size", "data", "train", "seed", "engine"),
    *("oracle", "num_clients", "rounds", "folder", "target", "target_metric"),
)
_PREFIX = "metric_"


def _column(table: "pa.Table", name: str) -> Floats:
    values: Floats = table[name].to_numpy().astype(np.float64)
    return values


def cep(rounds: "pa.Table") -> Floats:
    """Cumulative effective participation (E3CS, eq. (8)): models returned in time up to each round."""
    total: Floats = np.cumsum(_column(rounds, "done"))
    return total


def success_ratio(rounds: "pa.Table") -> float:
    """The share of the chosen clients that answered in time (DONE or SURPLUS)."""
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


def never_chosen(selections: "pa.Table", num_clients: int) -> float:
    """The share of clients never chosen."""
    return float(np.mean(counts(selections, num_clients) == 0))


def staleness(selections: "pa.Table", num_clients: int, last_round: int) -> Ints:
    """Rounds since each client was last chosen, at the end of the run; `last_round` for those never chosen."""
    last = np.zeros(num_clients, dtype=np.int64)
    np.maximum.at(last, selections["client"].to_numpy(), selections["round"].to_numpy())
    return last_round - last


def queue_lengths(selections: "pa.Table", num_clients: int, last_round: int, beta: float) -> Floats:
    """Lengths (T, K) of RBCS-F's queues (eq. (6)) under these selections, which may be of any policy."""
    queue, lengths = np.zeros(num_clients), np.empty((last_round, num_clients))
    round, client = selections["round"].to_numpy(), selections["client"].to_numpy()
    edges = np.searchsorted(round, np.arange(1, last_round + 2))
    for t in range(last_round):
        queue += beta
        np.subtract.at(queue, client[edges[t] : edges[t + 1]], 1.0)
        np.maximum(queue, 0.0, out=queue)
        lengths[t] = queue
    return lengths


def rounds_to(series: ArrayLike, target: float) -> int | None:
    """The first round in which the series reaches the target, or None.

    >>> rounds_to([1.0, 4.0, 9.0], 4.0)
    2
    """
    reached = np.flatnonzero(np.asarray(series) >= target)
    return int(reached[0]) + 1 if len(reached) else None


def time_to(rounds: "pa.Table", series: ArrayLike, target: float) -> float | None:
    """Simulated seconds until the series reaches the target, or None."""
    round = rounds_to(series, target)
    return None if round is None else float(rounds["clock"][round - 1].as_py())


def metrics_of(rounds: "pa.Table") -> dict[str, str]:
    """The metrics of a table of rounds, in the order in which they were first given: name -> column."""
    names = [name for name in rounds.column_names if name not in (*ROUND_COLUMNS, *NOTES)]
    return {(_PREFIX + name if name in _TAKEN else name): name for name in names}


def learned(rounds: "pa.Table") -> dict[str, float]:
    """The last evaluation of the model: every metric that it gave, fedpick's own first; empty without training."""
    known = metrics_of(rounds)
    ordered = [*(name for name in METRICS if name in known), *(name for name in known if name not in METRICS)]
    found = {name: rounds[known[name]].drop_null() for name in ordered}
    return {name: float(values[-1].as_py()) for name, values in found.items() if len(values)}


def fresh(rounds: "pa.Table") -> list[int]:
    """Rounds before which a restarted server's model began again, so that its curves are of several trainings."""
    if FRESH not in rounds.column_names:
        return []
    again = np.nan_to_num(_column(rounds, FRESH)) > 0
    found: list[int] = rounds["round"].to_numpy()[again].tolist()
    return found


def ended(selections: "pa.Table", *statuses: Status) -> Bools:
    """Mask of the selections with one of these statuses."""
    encoded = selections["status"].combine_chunks().dictionary_encode()
    names = np.array([status.name for status in statuses])
    found: Bools = np.isin(np.asarray(encoded.dictionary.to_pylist()), names)[encoded.indices.to_numpy()]
    return found


def unusable(selections: "pa.Table") -> int:
    """Number of answers with a loss or an update that is not finite, which count as FAILED."""
    failed = ended(selections, Status.FAILED)
    return int(np.count_nonzero(failed & np.isfinite(_column(selections, "duration"))))


def trouble(selections: "pa.Table", most: int = 10) -> list[dict[str, Any]]:
    """The clients that failed or were late most often: counts, and the mean seconds of answers in time."""
    client, seconds = selections["client"].to_numpy(), _column(selections, "duration")
    size = int(client.max(initial=-1)) + 1
    late, failed = (np.bincount(client[ended(selections, s)], minlength=size) for s in (Status.LATE, Status.FAILED))
    good = ended(selections, Status.DONE, Status.SURPLUS) & np.isfinite(seconds)
    chosen, answered = np.bincount(client, minlength=size), np.bincount(client[good], minlength=size)
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
    """Rounds, simulated hours and gigabytes until the metric first reached the target; None if it never did.

    Args:
        rounds: of the run.
        metric: by its name in `metrics_of`.
        target: to be reached.
        smaller: whether smaller is better, so that values have to fall to the target.
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
    }


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
        **learned(rounds),
    }
