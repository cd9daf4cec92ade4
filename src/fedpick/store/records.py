"""A round's record: one row of the rounds' table, and one row of the selections' table per chosen client."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fedpick.core.types import Bools, Choice, Floats, Ints, Outcome, Status, View
from fedpick.engine.flight import Task
from fedpick.engine.stream import Ended

__all__ = [
    *("BINS", "FRESH", "NOTES", "ROUND_COLUMNS", "UNSHOWN", "Record"),
    *("bin_edges", "late_uses", "packed", "packed_chances", "presence", "unpacked", "unpacked_chances"),
]

# The columns of every table of rounds; no metric may have one of these names.
ROUND_COLUMNS = (
    *("round", "clock", "seconds", "available", "chosen"),
    *(status.name.lower() for status in Status),
    *("messages", "unusable", "megabytes", "there", "joined"),
    *("version", "sent_at", "present", "mask", "chances"),
    *("late_used", "staleness_mean", "staleness_max", "late_clients", "late_sent", "asked", "flying"),
    "client_seconds",
)
UNSHOWN = ("there", "mask", "chances", "late_clients", "late_sent")  # which functions of their own read
FRESH = "fresh_model"  # in a deployment's records: 1 in a round before which the model began again
NOTES = ("forgotten", FRESH)  # columns of a deployment's records that describe the server, not the model
BINS = 100  # of clients, at most, in `Record.there`
MOST = 10_000  # clients: of more, it is not recorded who exactly was there, and with which chance


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
    first, sizes = _bins(len(available))
    counts = np.add.reduceat(available, first, dtype=np.int64)  # no bin is empty
    return np.rint(255.0 * counts / sizes).astype(np.uint8).tobytes()


@lru_cache(maxsize=4)
def _bins(clients: int) -> tuple[Ints, Ints]:
    """The first client of each bin, and its number of clients."""
    edges = bin_edges(clients)
    return edges[:-1], np.diff(edges)


def late_uses(tasks: Iterable[Task]) -> dict[str, Ints]:
    """The fields of a record about the late updates that a round used, whose clients are numbers."""
    pairs = np.array([(task.client, task.round) for task in tasks], dtype=np.int64).reshape(-1, 2)
    return {"late_ids": pairs[:, 0], "late_rounds": pairs[:, 1]}


def packed(there: Bools) -> bytes | None:
    """Who was there, a bit for each client; None for more than 10,000 clients. Parquet compresses it.

    >>> unpacked(packed(np.array([True, False, True])), 3)
    array([ True, False,  True])
    """
    return np.packbits(there).tobytes() if len(there) <= MOST else None


def unpacked(mask: bytes, clients: int) -> Bools:
    """What `packed` was given, of so many clients."""
    return np.unpackbits(np.frombuffer(mask, dtype=np.uint8), count=clients).astype(np.bool_)


def packed_chances(view: View, choice: Choice) -> bytes | None:
    """With which probability each client that was there would have been chosen; None if the policy does not know.

    If it is the same for all, that one number, after "="; else four bytes for each client that was there, after "+",
    if they are no more than 10,000.
    """
    chances = choice.chances
    if chances is None:
        return None
    everyone = view.available is view.there or bool((view.available == view.there).all())
    if isinstance(chances, float) and everyone:
        return b"=" + np.float64(chances).tobytes()
    if len(view.there) > MOST:
        return None
    kept = view.available[view.there]  # those that could be chosen, of those that were there
    each = np.zeros(len(kept), dtype="<f4")
    each[kept] = chances() if callable(chances) else chances
    return b"+" + each.tobytes()


def unpacked_chances(chances: bytes, there: Bools) -> Floats:
    """The probability of each client, 0 for those that were not there, from what `packed_chances` gave."""
    found = np.zeros(len(there))
    found[there] = np.frombuffer(chances[1:], dtype="<f8" if chances[:1] == b"=" else "<f4")
    return found


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
    version: int = 0  # of the model that was sent: the rounds before this one
    unusable: int = 0  # answers that came but cannot be used, such as updates that are not finite; they are FAILED
    sent_at: float | None = None  # the clock when the clients were asked
    present: int | None = None  # clients that were there, also those that could not be chosen
    mask: bytes | None = None  # exactly who was there, see `packed`; None: of more than 10,000 clients
    chances: bytes | None = None  # see `packed_chances`; None: the policy does not know them
    late_ids: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))  # of late updates used in this round
    late_rounds: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))  # in which each of them was sent
    asked: int | None = None  # under `fp.Buffered`: clients asked since the model last moved
    flying: int | None = None  # under `fp.Buffered`: clients that work when it moves
    client_seconds: float | None = None  # that clients compute, also for work that is not used; None: not known
    tasks: tuple[Ended, ...] | None = None  # under `fp.Buffered`: how they ended, as in `ids`

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
            version=view.version,
            present=int(np.count_nonzero(view.there)),
            **rest,
        )
