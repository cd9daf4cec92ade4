"""The journal: an append-only file with one entry per round since the last checkpoint.

    entry    mark (8 bytes), length of the body (8), CRC-32 of the body (4), CRC-32 of these 20 bytes (4), body

The body is an archive with the arguments of `observe` and the record of the round. A process killed while writing
leaves an incomplete last entry, shorter than its header says or with zeros at its end. Any other entry whose checksum
is wrong is damaged, also the last one: its round had ended. The header has its checksum too, so its length field can be
trusted: bytes that a client reported, stored inside an entry, are never mistaken for the start of another entry.
"""

import errno
import io
import os
import struct
import zlib
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedpick._support import atomic
from fedpick._support.archive import FORMAT, dump_archive, read_archive
from fedpick.core.errors import StateError
from fedpick.core.types import Choice, Clients, Outcome, View
from fedpick.server.models import Mark
from fedpick.server.roster import Newcomers, Roster
from fedpick.store.records import FRESH, Record

__all__ = ["FIX", "HEAD", "MARK", "Journal", "Turn", "mark_of", "record_of", "replay", "under", "verify_journal"]

MARK = b"\x93fpentry"
HEAD = struct.Struct("<8sQII")  # mark, bytes of the body, their CRC-32, CRC-32 of the three
TAIL = 12  # bytes at the end of a body that are not all zeros, also if a byte is damaged: of an archive, they are the
# number of its members, and the size and the place of their list
FIX = "the files are left as they are: restore a backup, or move the folder away to start anew"


@dataclass(frozen=True, eq=False)
class Turn:
    """A round that has ended: newcomers, what the policy saw and chose, the outcome, and the record."""

    view: View
    choice: Choice
    outcome: Outcome
    record: Record
    newcomers: list[Newcomers] = field(default_factory=list)  # in the order of their enrolment
    model: Mark | None = None  # of the model after the round
    tasks: int = 0  # given to clients so far

    def pack(self, widths: dict[str, int], settings: str) -> bytes:
        """The body of an entry, with the widths of the reports so far and the hash of the policy's settings."""
        arrays: dict[str, Any] = {"available": np.packbits(self.view.available), "record/ids": self.record.ids}
        masks = {"there": self.view.available, "busy": np.False_, "held": np.False_}  # and what each is by default
        for name, usual in masks.items():
            if (getattr(self.view, name) != usual).any():
                arrays[f"view/{name}"] = np.packbits(getattr(self.view, name))
        for name in ("ids", "inclusion", "weights", "probed", "copies"):
            arrays[f"choice/{name}"] = getattr(self.choice, name)
        arrays |= {f"kept/{name}": values for name, values in (self.choice.kept or {}).items()}
        for name in ("status", "duration", "loss"):
            arrays[f"outcome/{name}"] = getattr(self.outcome, name)
        arrays |= {f"report/{name}": values for name, values in self.outcome.reports.items()}
        arrays["context"] = self.view.context
        for i, (_, clients) in enumerate(self.newcomers):
            known = {} if clients is None else vars(clients)  # names without arrays are of clients forgotten
            arrays |= {f"new/{i}/{name}": values for name, values in known.items()}
        for name in ("there", "mask", "chances"):
            if (packed := getattr(self.record, name)) is not None:
                arrays[f"record/{name}"] = np.frombuffer(packed, np.uint8)
        if len(self.record.late_ids):
            arrays |= {f"record/{name}": getattr(self.record, name) for name in ("late_ids", "late_rounds")}
        numbers = ("round", "clock", "seconds", "messages", "megabytes", "joined", "sent_at", "client_seconds")
        meta = {
            "format": FORMAT,
            "record": {name: getattr(self.record, name) for name in numbers},
            "enrolled": len(self.view.available),
            "newcomers": [names for names, _ in self.newcomers],
            "widths": widths,
            "settings": settings,
            "normalise": self.choice.normalise,
            "model": self.model,
            "fresh": FRESH in self.record.metrics,
            "tasks": self.tasks,
        }
        file = io.BytesIO()
        dump_archive(file, {name: values for name, values in arrays.items() if values is not None}, meta)
        return file.getvalue()


def under(arrays: dict[str, Any], prefix: str) -> dict[str, Any]:
    """The arrays whose names begin with the prefix, which is removed from the names."""
    return {name.removeprefix(prefix): value for name, value in arrays.items() if name.startswith(prefix)}


def mark_of(stored: Any) -> Mark | None:
    """The mark of a model, from JSON."""
    if stored is None:
        return None
    round, crc = map(int, stored)
    if round < 1:
        raise ValueError(f"the model of round {round}")
    return round, crc


def _view(number: int, arrays: dict[str, Any], clients: Clients) -> View:
    """The view of an entry's round."""
    masks = {"available": arrays["available"], **under(arrays, "view/")}
    seen: dict[str, Any] = {
        name: np.unpackbits(bits, count=len(clients)).astype(np.bool_) for name, bits in masks.items()
    }
    return View(round=number, clients=clients, context=arrays.get("context"), **seen)


def _result(arrays: dict[str, Any], meta: dict[str, Any]) -> tuple[Choice, Outcome]:
    """The choice and the outcome of an entry's round."""
    choice = Choice(**under(arrays, "choice/"), normalise=bool(meta["normalise"]), kept=under(arrays, "kept/"))
    return choice, Outcome(**under(arrays, "outcome/"), reports=under(arrays, "report/"))


def record_of(arrays: dict[str, Any], meta: dict[str, Any]) -> Record:
    """The record of an entry's round, without its metrics but for the note that the model began again."""
    choice, outcome = _result(arrays, meta)
    numbers = dict(meta["record"])
    view = _view(int(numbers.pop("round")), arrays, Clients(np.ones(int(meta["enrolled"]))))
    metrics = {FRESH: 1.0} if meta.get("fresh") else {}
    kept: dict[str, Any] = under(arrays, "record/")
    kept |= {name: kept[name].tobytes() for name in ("there", "mask", "chances") if name in kept}
    return replace(Record.of(view, choice, outcome, **numbers), metrics=metrics, **kept)


def replay(roster: Roster, arrays: dict[str, Any], meta: dict[str, Any]) -> None:
    """Enrol the entry's newcomers and let the policy learn from its round again."""
    for i, names in enumerate(meta["newcomers"]):
        if known := under(arrays, f"new/{i}/"):
            roster.enrol([str(name) for name in names], Clients(**known))
        else:
            roster.forget([str(name) for name in names])
    number = int(meta["record"]["round"])
    if number != roster.round + 1:
        raise ValueError(f"the journal continues with round {number} after round {roster.round}")
    if meta["enrolled"] != len(roster.names):
        raise ValueError(f"{meta['enrolled']} clients were enrolled, but {len(roster.names)} are known")
    assert roster.counted is not None
    roster.learn(_view(number, arrays, roster.counted), *_result(arrays, meta))
    roster.tasks = int(meta.get("tasks", 0))  # entries of before 0.3 have none
    roster.clock = float(meta["record"]["clock"])
    roster.widths = {str(name): int(width) for name, width in meta["widths"].items()}
    roster.model = mark_of(meta.get("model"))


def _header(data: bytes, at: int) -> tuple[int, int, int] | None:
    """(start of the body, its length, its checksum) of the entry at this byte; None if the header is not intact."""
    if data[at : at + len(MARK)] != MARK or len(data) < at + HEAD.size:
        return None
    _, length, body_check, head_check = HEAD.unpack_from(data, at)
    good = head_check == zlib.crc32(data[at : at + HEAD.size - 4]) and length > 0
    return (at + HEAD.size, length, body_check) if good else None


def _whole(data: bytes, at: int) -> bytes | None:
    """The body of the entry at this byte; None if the entry is incomplete or damaged."""
    if (head := _header(data, at)) is None:
        return None
    begin, length, check = head
    body = data[begin : begin + length]
    return body if len(body) == length and zlib.crc32(body) == check else None


def _torn(data: bytes, at: int) -> bool:
    """Whether the machine stopped while the entry at this byte was being written: it is short, or its end is zeros.

    A file can grow before its new content is on the disk; until then that reads as zeros. Nothing may follow them.
    """
    if (head := _header(data, at)) is None:
        return len(data[at:].rstrip(b"\0")) < HEAD.size
    end = head[0] + head[1]
    return end > len(data) or not data[max(head[0], end - TAIL) :].strip(b"\0")


class Journal:
    """The journal's file, which is created with the first entry."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0  # bytes of intact entries
        self.torn = False  # whether an incomplete entry followed them when the file was read
        self._failed = b""  # an entry whose writing failed; it may still be there

    def read(self) -> list[bytes]:
        """The bodies of all entries; an incomplete last entry is left out, damage raises."""
        data = self.path.read_bytes() if self.path.exists() else b""
        found: list[bytes] = []
        self.size, self.torn = 0, False
        while self.size < len(data):
            body = _whole(data, self.size)
            if body is None:
                if not _torn(data, self.size):
                    raise StateError(f"{self.path}: damaged at byte {self.size} of {len(data)}; {FIX}")
                self.torn = True
                break
            found.append(body)
            self.size += HEAD.size + len(body)
        return found

    def check(self) -> None:
        """Raise if another process has written to the file, or has removed it: one of both would lose its rounds."""
        if not self.path.is_symlink():
            self._rest()

    def _rest(self) -> bytes:
        """What follows the entries: one that was not written to its end, or nothing; anything else raises."""
        size = self.path.stat().st_size if self.path.exists() else 0
        rest = b""
        if size > self.size:
            with self.path.open("rb") as file:
                file.seek(self.size)
                rest = file.read()
        if size < self.size or (rest and not _torn(rest, 0) and rest != self._failed):
            raise StateError(
                f"{self.path}: has {size} bytes, but this server wrote {self.size}: another process works with this "
                "state, or has removed it. The files are left as they are; end all servers but one, start that one "
                "again, and give each a folder of its own"
            )
        return rest

    def append(self, body: bytes) -> None:
        """Write an entry and wait until it is on the disk; a torn end is moved aside first."""
        if self.path.is_symlink():  # which a server never makes
            raise OSError(errno.ELOOP, "the journal is a symbolic link")
        torn, new = self._rest(), not self.path.exists()
        with atomic.opened(self.path, "w+b" if new else "r+b") as file:
            if torn:
                atomic.write_bytes(self.path.with_name("journal.torn"), torn)
                file.truncate(self.size)
            file.seek(self.size)
            head = HEAD.pack(MARK, len(body), zlib.crc32(body), 0)[:-4]
            self._failed = head + struct.pack("<I", zlib.crc32(head)) + body
            try:
                file.write(self._failed)
                file.flush()
                os.fsync(file.fileno())
                if new:
                    atomic.sync_folder(self.path.parent)
            except OSError:
                with suppress(OSError):  # if this fails too, the torn entry is moved aside before the next one
                    file.truncate(self.size)
                raise
        self.size, self._failed = self.size + len(self._failed), b""

    def drop(self) -> None:
        """Begin anew."""
        atomic.remove(self.path)
        self.size = 0


def verify_journal(path: Path) -> str:
    """What a journal holds; a StateError if it is damaged."""
    journal = Journal(path)
    entries = [read_archive(path, body) for body in journal.read()]
    if any("kind" in meta for _, meta in entries):
        commits = sum(meta.get("kind") == "closed" for _, meta in entries)
        torn = "; its last entry is torn, and did not happen" if journal.torn else ""
        return f"{commits} commits in {len(entries)} entries{torn}"
    torn = "; its last entry is torn, that round is played again" if journal.torn else ""
    return f"{len(entries)} rounds{torn}"
