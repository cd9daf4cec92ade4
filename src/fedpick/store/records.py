"""A round's record: one row of the rounds' table, and one row of the selections' table per chosen client."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fedpick.core.types import Bools, Choice, Floats, Ints, Outcome, Status, View

__all__ = ["BINS", "FRESH", "NOTES", "ROUND_COLUMNS", "Record", "bin_edges", "presence"]

# The columns of every table of rounds; no metric may have one of these names.
ROUND_COLUMNS = (
    *("round", "clock", "seconds", "available", "chosen"),
    *(status.name.lower() for status in Status),
    *("messages", "megabytes", "there", "joined"),
)
FRESH = "fresh_model"  # in a deployment's records: 1 in a round before which the model began again
NOTES = ("forgotten", FRESH)  # columns of a deployment's records that describe the server, not the model
BINS = 100  # of clients, at most, in `Record.there`


def bin_edges(clients: int) -> Ints:
    """The first client of each bin of `presence`, and the number of clients.

    >>> bin_edges(3), bin_edges(250)[:4], len(bin_edges(250))
    (array([0, 1, 2, 3]), array([0, 3, 5, 8]), 101)
    """
    bins = min(BINS, clients)
    return -(-np.arange(bins + 1) * clients // bins)


def presence(available: Bools) -> bytes | None:
    """The share of available clients, in 255ths, in each of at most 100 bins of clients; None if all are available.

    A bin holds clients with consecutive numbers; up to 100 clients have one each.

    >>> presence(np.array([True, False, True]))
    b'\\xff\\x00\\xff'
    """
    if available.all():
        return None
    edges = bin_edges(len(available))
    counts = np.add.reduceat(available, edges[:-1], dtype=np.int64)  # no bin is empty
    return np.rint(255.0 * counts / np.diff(edges)).astype(np.uint8).tobytes()


@dataclass(frozen=True, eq=False)
class Record:
    """What happened in a round; `Record.of` makes one."""

    round: int
    clock: float  # seconds at the end of the round, simulated or real
    seconds: float  # duration of the round
    available: int
    messages: int
    megabytes: float  # sent both ways, in units of 1e6 bytes
    ids: Ints
    inclusion: Floats  # NaN where the policy does not know it
    status: NDArray[np.int8]
    duration: Floats
    loss: Floats
    metrics: Mapping[str, float] = field(default_factory=dict)
    wall: Mapping[str, float] = field(default_factory=dict)  # real seconds of "selection" and "training"; not stored
    there: bytes | None = None  # who was there, see `presence`; None: all, or not known
    lacking: tuple[tuple[str, str], ...] = ()  # missing reports, and what the policy took instead; not stored
    joined: int | None = None  # clients of a deployment that have joined so far, also if they left; `there` counts them

    @classmethod
    def of(cls, view: View, choice: Choice, outcome: Outcome, **rest: Any) -> Self:
        """The record of a round, simulated or on real machines.

        Args:
            view: what the policy saw.
            choice: of the policy.
            outcome: of the round.
            rest: the other fields: clock, seconds, messages, megabytes, ...
        """
        return cls(
            round=view.round,
            available=int(np.count_nonzero(view.available)),
            ids=choice.ids,
            inclusion=np.full(len(choice), np.nan) if choice.inclusion is None else choice.inclusion,
            status=outcome.status,
            duration=outcome.duration,
            loss=outcome.loss,
            **rest,
        )
