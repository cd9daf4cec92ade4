"""Scores of a run, each one small function over its rounds and selections, and what they are over seeds.

Rounds and selections are the tables of `fedpick.store`; K is the number of clients.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import ArrayLike
from scipy import stats

from fedpick.errors import ContractError
from fedpick.types import Floats, Ints, Status

__all__ = [
    "Interval",
    "cep",
    "counts",
    "interval",
    "jain",
    "learned",
    "never_chosen",
    "paired",
    "queue_lengths",
    "reach",
    "rounds_to",
    "staleness",
    "success_ratio",
    "summary",
    "time_to",
    "unusable",
]


METRICS = ("accuracy", "test_loss", "train_loss", "worst_decile", "spread")


def _column(table: pa.Table, name: str) -> Floats:
    values: Floats = table[name].to_numpy().astype(np.float64)
    return values


def cep(rounds: pa.Table) -> Floats:
    """Cumulative effective participation (E3CS (8)): models returned in time so far, round by round."""
    total: Floats = np.cumsum(_column(rounds, "done"))
    return total


def success_ratio(rounds: pa.Table) -> float:
    """Of all clients asked, the share that answered in time (DONE or SURPLUS)."""
    asked = _column(rounds, "chosen").sum()
    answered = _column(rounds, "done").sum() + _column(rounds, "surplus").sum()
    return float(answered / asked) if asked else 0.0


def counts(selections: pa.Table, num_clients: int) -> Ints:
    """How often each client was chosen."""
    found: Ints = np.bincount(selections["client"].to_numpy(), minlength=num_clients)
    return found


def jain(values: ArrayLike) -> float:
    """Jain's index of fairness: 1 if all are equal, 1/K if one has everything.

    >>> jain([2, 2, 2]), jain([3, 0, 0])
    (1.0, 0.333...)
    """
    array = np.asarray(values, dtype=np.float64)
    square = (array**2).sum() * len(array)
    return float(array.sum() ** 2 / square) if square else 1.0


def never_chosen(selections: pa.Table, num_clients: int) -> float:
    """The share of clients never chosen."""
    return float(np.mean(counts(selections, num_clients) == 0))


def staleness(selections: pa.Table, num_clients: int, last_round: int) -> Ints:
    """Rounds since each client was last chosen, at the end; as many as there were for those never chosen."""
    last = np.zeros(num_clients, dtype=np.int64)
    np.maximum.at(last, selections["client"].to_numpy(), selections["round"].to_numpy())
    return last_round - last


def queue_lengths(selections: pa.Table, num_clients: int, last_round: int, beta: float) -> Floats:
    """RBCS-F's queues (6) that these selections leave, (T, K), whatever policy made them."""
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


def time_to(rounds: pa.Table, series: ArrayLike, target: float) -> float | None:
    """Simulated seconds until the series reaches the target, or None."""
    round = rounds_to(series, target)
    return None if round is None else float(rounds["clock"][round - 1].as_py())


def learned(rounds: pa.Table) -> dict[str, float]:
    """The last evaluation of what was trained: accuracy, losses, spread over clients; empty if nothing was."""
    names = [name for name in METRICS if name in rounds.column_names]
    found = {name: pc.drop_null(rounds[name]) for name in names}
    return {name: float(values[-1].as_py()) for name, values in found.items() if len(values)}


def unusable(selections: pa.Table) -> int:
    """Answers that came and could not be used: their loss or update was not finite, so they count as FAILED."""
    failed = np.asarray(selections["status"].to_pylist()) == Status.FAILED.name
    return int(np.count_nonzero(failed & np.isfinite(_column(selections, "duration"))))


def reach(rounds: pa.Table, metric: str, target: float) -> dict[str, float] | None:
    """What it took until the metric first reached the target: rounds, simulated hours and gigabytes; None: never."""
    hit = np.flatnonzero(_column(rounds, metric) >= target)  # NaN in rounds without evaluation
    if not len(hit):
        return None
    at = int(hit[0])
    return {
        "rounds": float(at + 1),
        "hours": float(rounds["clock"][at].as_py()) / 3600.0,
        "gigabytes": float(_column(rounds, "megabytes")[: at + 1].sum()) / 1e3,
    }


def summary(rounds: pa.Table, selections: pa.Table, num_clients: int) -> dict[str, float]:
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
        "messages": float(pc.sum(rounds["messages"]).as_py()),
        "gigabytes": float(pc.sum(rounds["megabytes"]).as_py()) / 1e3,
        **learned(rounds),
    }


@dataclass(frozen=True)
class Interval:
    """A mean over seeds and half the width of its 95% interval (NaN for a single seed)."""

    mean: float
    half: float

    @property
    def clear(self) -> bool:
        """Whether the interval leaves 0 out."""
        return abs(self.mean) > self.half


def interval(values: ArrayLike) -> Interval:
    """Mean and 95% t-interval over seeds.

    >>> interval([1.0, 2.0, 3.0])
    Interval(mean=2.0, half=2.48...)
    """
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or not len(array):
        raise ContractError(f"values has shape {array.shape}, but must be one number per seed")
    if len(array) == 1:
        return Interval(float(array[0]), float("nan"))
    half = stats.t.ppf(0.975, len(array) - 1) * array.std(ddof=1) / np.sqrt(len(array))
    return Interval(float(array.mean()), float(half))


def paired(values: ArrayLike, base: ArrayLike) -> Interval:
    """Mean and 95% t-interval of the differences, seed by seed: every policy meets the same world at one seed."""
    return interval(np.asarray(values, dtype=np.float64) - np.asarray(base, dtype=np.float64))
