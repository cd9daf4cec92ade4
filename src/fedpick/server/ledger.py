"""The work in flight of a session on the disk: what a checkpoint holds of it, and the entries of the journal.

    asked       clients that joined or were forgotten since the last entry, and the tasks given
    came        tasks that have ended, by an answer or otherwise; updates themselves are in memory only
    prepared    a move of the model, all that the policy learns from it: written before the user saves the model
    closed      that move has taken place
    void        it has not: a restart found the model of the version before

A task is in flight until it is in a closed move. Of those that had ended in no closed move when the server was killed,
answers that were to be used are LATE, because their updates are lost, and the policy is not told; others stand.
"""

import io
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fedpick._support.archive import FORMAT, dump_archive
from fedpick.core.types import Clients, Status
from fedpick.engine.paces import Buffered
from fedpick.engine.stream import Ended, Job, Stream
from fedpick.server.journal import mark_of, under
from fedpick.server.models import Mark
from fedpick.server.move import Move, find, forget_times
from fedpick.server.roster import Newcomers, Roster
from fedpick.store.records import FRESH, Record

__all__ = ["Entry", "Ledger", "asked", "body", "came", "closed", "prepared", "records_of"]

Entry = tuple[str, dict[str, Any], dict[str, Any]]  # kind, arrays, meta
_NUMBERS = ("version", "at", "seconds", "asked", "back")
_SEEN = ("available", "present", "joined")
_BYTES = ("there", "mask")


def body(entry: Entry, number: int, settings: str) -> bytes:
    """An entry for the journal, with its number and the hash of the policy's settings."""
    kind, arrays, meta = entry
    file = io.BytesIO()
    head = {"format": FORMAT, "kind": kind, "entry": number, "settings": settings}
    dump_archive(file, {name: values for name, values in arrays.items() if values is not None}, head | meta)
    return file.getvalue()


def _with_newcomers(newcomers: list[Newcomers], arrays: dict[str, Any], meta: dict[str, Any]) -> None:
    for i, (_, clients) in enumerate(newcomers):
        known = {} if clients is None else vars(clients)  # names without arrays are of clients forgotten
        arrays |= {f"new/{i}/{name}": values for name, values in known.items()}
    meta["newcomers"] = [names for names, _ in newcomers]


def asked(roster: Roster, pace: Buffered, tasks: list[Job], sized: list[float], asks: int) -> Entry:
    """Tasks that are given; `sized` as in `Ledger`, NaN for those that are not in it."""
    arrays = Stream(pace, flying={task.id: task for task in tasks}, issued=roster.tasks).pack()
    meta = {"asks": asks, "clock": tasks[0].sent_at}
    arrays["sized"] = np.array(sized)
    _with_newcomers(roster.newcomers, arrays, meta)
    return "asked", arrays, meta


def came(ended: Iterable[Ended], skipped: Iterable[int] = (), lost: bool = False) -> Entry:
    """Tasks that have ended, or were not sent at all."""
    rows = [[each.task.id, each.status, each.at, each.weight, each.loss, each.took] for each in ended]
    arrays = {"ended": np.array(rows, dtype=np.float64).reshape(-1, 6), "skipped": np.array([*skipped], dtype=np.int64)}
    return "came", arrays, {"lost": lost}


def prepared(roster: Roster, pace: Buffered, move: Move) -> Entry:
    """A move of the model that the user is told of."""
    arrays = Stream(pace, ended=list(move.ended)).pack()
    arrays |= {f"report/{name}": values for name, values in move.reports.items()}
    arrays |= {"busy": np.array(move.busy, dtype=np.int64), "lost": np.array(sorted(move.lost), dtype=np.int64)}
    arrays |= {"where": np.packbits(move.there)}
    meta = {name: getattr(move, name) for name in _NUMBERS} | {"enrolled": len(move.there)}
    meta["widths"] = roster.widths
    _with_newcomers(roster.newcomers, arrays, meta)
    return "prepared", arrays, meta


def _move(pace: Buffered, arrays: dict[str, Any], meta: dict[str, Any]) -> Move:
    there = np.unpackbits(arrays["where"], count=int(meta["enrolled"])).astype(np.bool_)
    ended = tuple(Stream.unpack(pace, arrays).ended)
    reports, lost = under(arrays, "report/"), frozenset(arrays["lost"].tolist())
    return Move(
        **{name: meta[name] for name in _NUMBERS},
        ended=ended,
        busy=tuple(arrays["busy"].tolist()),
        there=there,
        reports=reports,
        lost=lost,
    )


def closed(record: Record, megabytes: float, model: Mark | None) -> Entry:
    """The prepared move has taken place; its record, without what `prepared` has of it."""
    found = {name: getattr(record, name) for name in _BYTES if getattr(record, name) is not None}
    arrays = {name: np.frombuffer(values, np.uint8) for name, values in found.items()}
    meta: dict[str, Any] = {name: getattr(record, name) for name in _SEEN} | {"version": record.round}
    fresh = FRESH in record.metrics
    return "closed", arrays, meta | {"megabytes": megabytes, "model": model, "fresh": fresh}


def records_of(pace: Buffered, entries: Iterable[tuple[dict[str, Any], dict[str, Any]]]) -> list[Record]:
    """The records of the moves that are closed in these entries, without their metrics."""
    move, found = None, []
    for arrays, meta in entries:
        if meta["kind"] == "prepared":
            move = _move(pace, arrays, meta)
        elif meta["kind"] == "closed" and move is not None:
            seen: dict[str, Any] = {name: meta[name] for name in _SEEN}
            seen |= {name: arrays[name].tobytes() for name in _BYTES if name in arrays}
            metrics = {FRESH: 1.0} if meta["fresh"] else {}
            found.append(move.record(float(meta["megabytes"]), metrics=metrics, **seen))
    return found


@dataclass
class Ledger:
    """The work in flight as it is on the disk.

    Args:
        stream: tasks in flight, and those that have ended in no closed move.
        sized: of tasks where a size with the answer counts: the largest, as a multiple of the median.
        lost: tasks that have ended, of which the policy is not told.
        prepared: a move that is not closed.
        asks: so far.
        entry: number of the last entry of the journal.
    """

    stream: Stream
    sized: dict[int, float] = field(default_factory=dict)
    lost: set[int] = field(default_factory=set)
    prepared: Move | None = None
    asks: int = 0
    entry: int = 0

    def pack(self, roster: Roster) -> tuple[dict[str, Any], dict[str, Any]]:
        """Arrays and numbers for a checkpoint."""
        arrays = self.stream.pack()
        arrays["sizes"] = np.array([[id, most] for id, most in self.sized.items()], dtype=np.float64).reshape(-1, 2)
        arrays["missed"] = np.array(sorted(self.lost), dtype=np.int64)
        meta: dict[str, Any] = {"asks": self.asks, "entry": self.entry}
        if self.prepared is not None:
            _, more, meta["prepared"] = prepared(roster, self.stream.pace, self.prepared)
            arrays |= {f"prepared/{name}": values for name, values in more.items()}
        return arrays, meta

    @classmethod
    def unpack(cls, pace: Buffered, arrays: dict[str, Any], meta: dict[str, Any]) -> "Ledger":
        """What `pack` gave."""
        own = {name: values for name, values in arrays.items() if not name.startswith("prepared/")}
        sized = {int(id): most for id, most in arrays["sizes"].tolist()}
        move = _move(pace, under(arrays, "prepared/"), meta["prepared"]) if "prepared" in meta else None
        lost = set(arrays["missed"].tolist())
        return cls(Stream.unpack(pace, own), sized, lost, move, int(meta["asks"]), int(meta["entry"]))

    def replay(self, roster: Roster, arrays: dict[str, Any], meta: dict[str, Any]) -> None:
        """Let happen again what an entry of the journal says."""
        number = int(meta["entry"])
        if number != self.entry + 1:
            raise ValueError(f"the journal continues with entry {number} after {self.entry}")
        self.entry = number
        for i, names in enumerate(meta.get("newcomers", ())):
            if known := under(arrays, f"new/{i}/"):
                roster.enrol([str(name) for name in names], Clients(**known))
            else:
                roster.forget([str(name) for name in names])
                self.leave(roster)
        roster.newcomers = []
        acts: dict[str, Callable[[Roster, dict[str, Any], dict[str, Any]], None]] = {
            "asked": self._asked,
            "came": self._came,
            "prepared": self._prepared,
            "closed": self._closed,
            "void": self._void,
        }
        acts[meta["kind"]](roster, arrays, meta)

    def leave(self, roster: Roster) -> None:
        """Forget the tasks in flight of clients that are not enrolled any more."""
        known = find(roster, self.stream.busy) >= 0
        tasks = list(self.stream.flying.values())
        self.stream.flying = {task.id: task for task, stays in zip(tasks, known.tolist(), strict=True) if stays}
        forget_times(self.stream, roster)

    def _asked(self, roster: Roster, arrays: dict[str, Any], meta: dict[str, Any]) -> None:
        sent = Stream.unpack(self.stream.pace, arrays)
        self.stream.flying |= sent.flying
        self.stream.asked += len(sent.flying)
        self.stream.issued = roster.tasks = sent.issued
        self.sized |= {id: most for id, most in zip(sent.flying, arrays["sized"].tolist(), strict=True) if most == most}
        self.asks, roster.clock = int(meta["asks"]), float(meta["clock"])

    def _came(self, roster: Roster, arrays: dict[str, Any], meta: dict[str, Any]) -> None:
        for id, status, at, weight, loss, took in arrays["ended"].tolist():
            task = self.stream.flying.pop(int(id))
            self.stream.ended.append(Ended(task, Status(int(status)), at, 0, weight, loss, took))
            if status != Status.FAILED:
                self.stream.note_time(task, at)
            roster.clock = max(roster.clock, at)
            if meta["lost"]:
                self.lost.add(task.id)
        for id in arrays["skipped"].tolist():
            del self.stream.flying[id]
            self.stream.asked -= 1

    def _prepared(self, roster: Roster, arrays: dict[str, Any], meta: dict[str, Any]) -> None:
        self.prepared = _move(self.stream.pace, arrays, meta)
        roster.widths = {str(name): int(width) for name, width in meta["widths"].items()}

    def _closed(self, roster: Roster, arrays: dict[str, Any], meta: dict[str, Any]) -> None:
        if self.prepared is None or not self.prepared.version == meta["version"] == roster.round + 1:
            raise ValueError(f"version {meta['version']} is closed after {roster.round}, and was not prepared")
        self.close(roster)
        roster.model = mark_of(meta["model"])

    def _void(self, roster: Roster, arrays: dict[str, Any], meta: dict[str, Any]) -> None:
        self.prepared = None

    def close(self, roster: Roster) -> Move:
        """The prepared move has taken place: the policy learns, and its tasks are over."""
        assert self.prepared is not None
        move, stream, self.prepared = self.prepared, self.stream, None
        move.learn(roster)
        over = {each.task.id for each in move.ended}
        stream.flying = {id: task for id, task in stream.flying.items() if id not in over}
        stream.ended = [each for each in stream.ended if each.task.id not in over]
        self.lost -= over
        stream.asked -= move.asked
        stream.moved_at, stream.version = move.at, move.version
        if stream.pace.correct:
            count(stream, move)
        return move

    def live(self) -> Stream:
        """The work as it goes on after a restart: answers in no closed move are lost."""
        stream = self.stream
        ended = []
        for each in stream.ended:
            if each.status == Status.DONE:
                self.lost.add(each.task.id)
                each = replace(each, status=Status.LATE, weight=0.0)
            ended.append(replace(each, staleness=stream.version - each.task.version))
        return Stream(
            stream.pace,
            stream.version,
            stream.issued,
            stream.moved_at,
            dict(stream.flying),
            ended,
            stream.asked,
            rates=stream.rates,
            seconds=stream.seconds,
            slowest=stream.slowest,
        )


def count(stream: Stream, move: Move) -> None:
    """Let the answers of a move count in the rates by which later ones are corrected."""
    for each in move.done:
        stream.rates.weigh(each.task.client, each.task.base, float(stream.pace.damping(each.staleness)))
