"""What a Flower server keeps: a checkpoint every so many rounds, and a journal of the rounds since.

    state.npz      policy state, roster, number of the round; replaced atomically
    journal        the rounds since, one entry each; the next start replays what the policy learned from them
    server.lock    held while start() runs

An entry is on the disk before its round counts. A server that is killed while it writes one leaves a torn end, which
is moved aside: that round is played again. Damage anywhere else is refused, and nothing is changed.
"""

import io
import json
import logging
import os
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout

from fedpick._version import __version__
from fedpick.errors import StateError
from fedpick.flower.roster import Roster
from fedpick.state import FORMAT, dump_archive, pack, policy_kind, read_archive, unpack, write_archive
from fedpick.store.records import Record
from fedpick.types import Choice, Clients, Outcome, View

__all__ = ["Memory", "Turn"]

log = logging.getLogger("flwr.fedpick")

MARK = b"\x93fpround"  # begins every entry
HEAD = struct.Struct("<8sQI")  # mark, bytes of the entry, their CRC-32
LARGE = 2**20  # bytes; a journal may grow to this, or to the size of the checkpoint, before it is folded into one
FIX = "the files are left as they are: restore a backup, or move the folder away to start anew"


@dataclass(frozen=True, eq=False)
class Turn:
    """A round that has ended: who came, what the policy saw and chose, how it went, and the record of it."""

    view: View
    choice: Choice
    outcome: Outcome
    record: Record
    newcomers: list[tuple[list[str], Clients]] = field(default_factory=list)  # in the order of their enrolment

    def pack(self, widths: dict[str, int]) -> bytes:
        """As the bytes of an entry."""
        arrays: dict[str, Any] = {"available": np.packbits(self.view.available)}
        for name in ("ids", "inclusion", "weights"):
            arrays[f"choice/{name}"] = getattr(self.choice, name)
        for name in ("status", "duration", "loss"):
            arrays[f"outcome/{name}"] = getattr(self.outcome, name)
        arrays |= {f"report/{name}": values for name, values in self.outcome.reports.items()}
        arrays["context"] = self.view.context
        for i, (_, clients) in enumerate(self.newcomers):
            arrays |= {f"new/{i}/{name}": values for name, values in vars(clients).items()}
        numbers = ("round", "clock", "seconds", "messages", "megabytes")
        meta = {
            "format": FORMAT,
            "record": {name: getattr(self.record, name) for name in numbers},
            "enrolled": len(self.view.available),
            "newcomers": [names for names, _ in self.newcomers],
            "widths": widths,
        }
        file = io.BytesIO()
        dump_archive(file, {name: values for name, values in arrays.items() if values is not None}, meta)
        return file.getvalue()


def _entry_at(data: bytes, at: int) -> bytes | None:
    """The entry that begins at this byte; None if there is none that is whole."""
    body = at + HEAD.size
    mark, length, check = HEAD.unpack(data[at:body].ljust(HEAD.size, b"\0"))
    entry = data[body : body + length]
    return entry if mark == MARK and len(entry) == length and zlib.crc32(entry) == check else None


def _under(arrays: dict[str, Any], prefix: str) -> dict[str, Any]:
    return {name.removeprefix(prefix): value for name, value in arrays.items() if name.startswith(prefix)}


def _replay(roster: Roster, arrays: dict[str, Any], meta: dict[str, Any]) -> Record:
    """Let the policy learn from an entry as it did then."""
    for i, names in enumerate(meta["newcomers"]):
        roster.enrol([str(name) for name in names], Clients(**_under(arrays, f"new/{i}/")))
    assert roster.clients is not None
    numbers = dict(meta["record"])
    if meta["enrolled"] != len(roster.names):
        raise ValueError(f"{meta['enrolled']} clients were enrolled, but {len(roster.names)} are known")
    available = np.unpackbits(arrays["available"], count=len(roster.names)).astype(np.bool_)
    view = View(int(numbers["round"]), available, roster.clients, arrays.get("context"))
    chosen = _under(arrays, "choice/")
    choice = Choice(chosen.get("ids", chosen.get("clients")), chosen.get("inclusion"), chosen.get("weights"))
    outcome = Outcome(**_under(arrays, "outcome/"), reports=_under(arrays, "report/"))
    roster.learn(view, choice, outcome)
    roster.clock = float(numbers["clock"])
    roster.widths = {str(name): int(width) for name, width in meta["widths"].items()}
    del numbers["round"]  # the view's
    return Record.of(view, choice, outcome, **numbers)


class Memory:
    """The folder in which a roster survives.

    Args:
        folder: made if it is not there.
        roster: empty; it is filled from the folder.
        every: rounds between checkpoints.
    """

    def __init__(self, folder: Path, roster: Roster, every: int) -> None:
        self.folder, self.roster, self.every = folder, roster, every
        self.state, self.journal = folder / "state.npz", folder / "journal"
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StateError(
                f"{folder}: cannot be a folder for the state ({error.strerror}); choose another, or free the name"
            ) from None
        self._lock = FileLock(folder / "server.lock", timeout=0)
        self._whole = 0  # bytes of the journal that are good
        self._saved = 0  # the round of the checkpoint; 0: there is none
        self._behind = False  # the folder misses something: only a checkpoint can make up for it
        self._whole_before = True  # whether it missed nothing before the round that ends now
        self.replayed: list[Record] = []  # rounds since the checkpoint
        self.load()

    def _stamp(self) -> list[tuple[int, int]]:
        files = [path.stat() for path in (self.state, self.journal) if path.exists()]
        return [(file.st_size, file.st_mtime_ns) for file in files]

    def lock(self) -> None:
        """Keep other servers out; what one of them wrote meanwhile is read."""
        try:
            self._lock.acquire()
        except Timeout:
            raise StateError(
                f"{self.folder.resolve()}: another server is working with this state; wait for its end, or give each "
                "server a folder of its own"
            ) from None
        try:
            if self._stamp() != self._seen:
                self.load()
        except BaseException:
            self._lock.release()
            raise

    def unlock(self) -> None:
        """Let other servers in."""
        self._seen = self._stamp()
        self._lock.release()

    def load(self) -> None:
        """Fill the roster with what the folder holds."""
        roster, self.replayed = self.roster, []
        self._whole, self._seen = 0, self._stamp()
        if not self.state.exists():
            if self.journal.exists() and self.journal.stat().st_size:
                raise StateError(f"{self.journal}: there is no state.npz that it goes on from; {FIX}")
            return
        try:
            self._unpack(*read_archive(self.state))
        except StateError as error:
            raise StateError(f"{error}; {FIX}") from None
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise StateError(
                f"{self.state}: not the state of a Flower server ({type(error).__name__}: {error}); {FIX}"
            ) from None
        self._saved = roster.round
        for entry in self._entries():
            try:
                arrays, meta = read_archive(self.journal, entry)
                number = int(meta["record"]["round"])
                if number <= self._saved:
                    continue  # killed after a checkpoint, before the journal was emptied
                if number != roster.round + 1:
                    raise ValueError(f"it goes on with round {number} after round {roster.round}")
                self.replayed.append(_replay(roster, arrays, meta))
            except Exception as error:  # of another policy, or damaged in a way that its sum does not show
                raise StateError(
                    f"{self.journal}: cannot be replayed by {roster.policy!r} ({type(error).__name__}: {error}); {FIX}"
                ) from None
        where = self.folder.resolve()
        log.info("goes on after round %d with %d clients, from %s", roster.round, len(roster.names), where)

    def _unpack(self, arrays: dict[str, Any], meta: dict[str, Any]) -> None:
        roster, notes = self.roster, meta["flower"]
        if meta["policy"] != policy_kind(roster.policy):
            raise StateError(
                f"{self.state}: holds the state of {meta['policy']}, but the policy is {policy_kind(roster.policy)}"
            )
        names = list(map(str, json.loads(arrays["names"].tobytes())))
        clients = Clients(**_under(arrays, "clients/"))
        last = [int(client) for client in notes["last"]]
        if len(set(names)) != len(names) or len(clients) != len(names) or not names or int(notes["round"]) < 0:
            raise ValueError(f"round {notes['round']}, {len(clients)} clients, {len(set(names))} different names")
        if any(not 0 <= client < len(names) for client in last):
            raise ValueError(f"the last cohort {last} is not among {len(names)} clients")
        state = unpack(roster.policy.init(clients), _under(arrays, "policy/"), len(names), f"{self.state}:")
        roster.names, roster.index = names, {name: at for at, name in enumerate(names)}
        roster.clients, roster.state, roster.last, roster.newcomers = clients, state, last, []
        roster.round, roster.clock = int(notes["round"]), float(notes["clock"])
        roster.widths = {str(name): int(width) for name, width in notes["widths"].items()}

    def _entries(self) -> list[bytes]:
        """The whole entries of the journal; a torn one at its end is left out."""
        data = self.journal.read_bytes() if self.journal.exists() else b""
        found: list[bytes] = []
        while self._whole < len(data):
            entry = _entry_at(data, self._whole)
            if entry is None:
                later = self._whole
                while (later := data.find(MARK, later + 1)) >= 0:
                    if _entry_at(data, later) is not None:  # not the end: what was written later would be lost
                        raise StateError(f"{self.journal}: damaged at byte {self._whole} of {len(data)}; {FIX}")
                log.warning("the last entry of %s is torn: that round is played again", self.journal.resolve())
                break
            found.append(entry)
            self._whole += HEAD.size + len(entry)
        return found

    @property
    def behind(self) -> bool:
        """Whether the roster knows of rounds that the folder does not."""
        return self._behind

    def expect(self) -> None:
        """Make ready for the end of a round: whatever interrupts it from here on, a checkpoint makes up for it."""
        if not self.state.exists():
            self._try(self._checkpoint)
        self._whole_before, self._behind = not self._behind, True

    def keep(self, turn: Turn) -> None:
        """Make a round durable; a full disk is told, and does not end the training."""
        if self._whole_before and self.state.exists():
            self._try(lambda: self._append(turn.pack(self.roster.widths)))
        else:
            self._try(self._checkpoint)

    def _try(self, write: Callable[[], None]) -> None:
        try:
            write()
            self._behind = False
        except OSError as error:
            log.error(
                "%s: round %d could not be kept (%s); training goes on, and it is tried again after the next",
                self.folder.resolve(),
                self.roster.round,
                error.strerror or error,
            )

    def due(self) -> bool:
        """Whether the journal should be folded into a checkpoint: it is long, or larger than the state."""
        aged = self.roster.round - self._saved >= self.every
        return self._behind or aged or self._whole > max(LARGE, self.state.stat().st_size if self.state.exists() else 0)

    def fold(self) -> None:
        """Write the state whole, and begin a new journal."""
        self._try(self._checkpoint)

    def _append(self, entry: bytes) -> None:
        with self.journal.open("r+b" if self.journal.exists() else "w+b") as file:
            file.seek(self._whole)
            if torn := file.read():
                aside = self.journal.with_name("journal.torn")
                aside.write_bytes(torn)
                file.truncate(self._whole)
            file.seek(self._whole)
            try:
                file.write(HEAD.pack(MARK, len(entry), zlib.crc32(entry)) + entry)
                file.flush()
                os.fsync(file.fileno())
            except OSError:
                file.truncate(self._whole)
                raise
        self._whole += HEAD.size + len(entry)

    def _checkpoint(self) -> None:
        roster = self.roster
        assert roster.clients is not None
        arrays = {f"policy/{name}": values for name, values in pack(roster.state).items()}
        arrays |= {f"clients/{name}": v for name, v in vars(roster.clients).items() if v is not None}
        arrays["names"] = np.frombuffer(json.dumps(roster.names).encode(), dtype=np.uint8)
        notes = {"round": roster.round, "clock": roster.clock, "widths": roster.widths, "last": roster.last}
        meta = {
            "format": FORMAT,
            "fedpick": __version__,
            "policy": policy_kind(roster.policy),
            "settings": repr(roster.policy),
            "flower": notes,
        }
        write_archive(self.state, arrays, meta)
        self._saved, roster.newcomers = roster.round, []
        self.journal.unlink(missing_ok=True)
        self._whole = 0
