"""A server's state folder: a checkpoint every few rounds, and a journal of the rounds since.

    state.npz      policy state, roster, number of the round; replaced atomically
    journal        one entry per round since the checkpoint; the next start replays them
    server.lock    held while a server uses the folder

A round counts only once its entry is on disk. A server killed while writing one leaves an incomplete last entry, which
is moved aside; that round is played again. Any other damage raises an error, and no file is changed. The journal is
deleted only when both the checkpoint and the records contain its rounds; until then, missing records are restored from
it.
"""

import json
import logging
import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from fedpick._support import atomic
from fedpick._support.archive import FORMAT, read_archive, write_archive
from fedpick._version import __version__
from fedpick.core.errors import StateError
from fedpick.core.state import pack, policy_kind, settings_hash, unpack
from fedpick.core.types import Clients
from fedpick.server.journal import FIX, Journal, Turn, mark_of, record_of, replay, under
from fedpick.server.ledger import Ledger, records_of
from fedpick.server.models import Arrays, Mark, Models, checked_letters
from fedpick.server.roster import Roster
from fedpick.store.lock import FolderLock
from fedpick.store.records import Record

if TYPE_CHECKING:
    from fedpick.server.stream import InFlight

__all__ = ["Memory"]

T = TypeVar("T")
LARGE = 2**20  # bytes; a journal larger than this and than the last checkpoint causes a new checkpoint


class Memory:
    """The folder in which a roster and the policy's state are saved; an empty roster is filled from it.

    A complete checkpoint is written after `every` rounds. The folder is created if it does not exist. `work` is what
    is in flight, of a session without rounds.
    """

    def __init__(
        self,
        folder: Path,
        roster: Roster,
        every: int,
        log: logging.Logger,
        models: Models | None = None,
        work: "InFlight | None" = None,
    ) -> None:
        self.folder, self.roster, self.every, self.log, self.models = folder, roster, every, log, models
        self.work, self._pace = work, "rounds" if work is None else "buffered"
        self.letters = secrets.token_hex(4)  # of the state, by which its models and records are recognised
        self._lettered = False  # whether state.npz has the letters
        self.state, self.journal = folder / "state.npz", Journal(folder / "journal")
        try:
            atomic.make_folder(folder)
            self._lock = FolderLock(folder / "server.lock")
        except OSError as error:
            raise StateError(
                f"{folder}: cannot be used as the folder of the state ({error.strerror}); choose another path"
            ) from None
        self.settings = settings_hash(roster.policy)
        self._saved = 0  # the round of the checkpoint; 0: there is none
        self._covered = 0  # bytes of the journal that the checkpoint holds as well
        self.kept = 0  # the last round that is safely on the disk
        self.behind = False  # whether the roster has rounds that the folder lacks; then a checkpoint must be written
        self._whole_before = True  # whether it missed nothing before the round that ends now
        self.load()

    def _stamp(self) -> list[tuple[int, int]]:
        files = [path.stat() for path in (self.state, self.journal.path) if path.exists()]
        return [(file.st_size, file.st_mtime_ns) for file in files]

    def lock(self) -> None:
        """Lock the folder against other servers, and read what another one wrote in the meantime."""
        try:
            self._lock.acquire()
        except TimeoutError:
            raise StateError(
                f"{self.folder.resolve()}: another server is working with this state; wait until it ends, or give each "
                "server a folder of its own"
            ) from None
        except OSError as error:
            raise StateError(
                f"{self.folder}: cannot be locked ({error.strerror or error}); free space, or choose another folder"
            ) from None
        try:
            atomic.tidy(self.folder)
            if self._stamp() != self._seen:
                self.load()
            if self.models is not None:
                self.models.tidy(self.letters)
        except BaseException:
            self._lock.release()
            raise

    def unlock(self) -> None:
        """Release the lock."""
        self._seen = self._stamp()
        self._lock.release()

    def load(self) -> None:
        """Fill the roster from the folder."""
        roster, self._seen = self.roster, self._stamp()
        if not self.state.exists():
            if self.journal.path.exists() and self.journal.path.stat().st_size:
                raise StateError(f"{self.journal.path}: the state.npz that this journal continues is missing; {FIX}")
            return
        ledger = None
        try:
            ledger = self._unpack(*read_archive(self.state))
        except StateError as error:
            raise StateError(f"{error}; {FIX}") from None
        except Exception as error:  # a damaged file, or one made to harm, can raise anything
            raise StateError(
                f"{self.state}: not the state of a server ({type(error).__name__}: {str(error)[:200]}); {FIX}"
            ) from None
        self._saved = roster.round
        if ledger is not None:
            self._replay_work(ledger)
        for arrays, meta in self._entries() if ledger is None else ():
            number, settings = self._careful(lambda entry: (int(entry["record"]["round"]), entry["settings"]), meta)
            if number > self._saved:  # else the checkpoint holds it
                self._check_settings(self.journal.path, settings, None)
                self._careful(replay, roster, arrays, meta)
        if self.journal.torn:
            torn, so = self.journal.path.resolve(), "that round is played again" if ledger is None else "it is left out"
            self.log.warning("the last entry of %s is incomplete: %s", torn, so)
        self.kept, where = roster.round, self.folder.resolve()
        self.log.info("continuing after round %d with %d clients, from %s", roster.round, len(roster.names), where)

    def _replay_work(self, ledger: Ledger) -> None:
        """Let happen again what the journal has after the checkpoint; then the work goes on."""
        assert self.work is not None
        for arrays, meta in self._entries():
            number, settings = self._careful(lambda entry: (int(entry["entry"]), entry["settings"]), meta)
            if number > ledger.entry:
                self._check_settings(self.journal.path, settings, None)
                self._careful(ledger.replay, self.roster, arrays, meta)
        self.work.take(ledger, self.models is not None, self._model_of(ledger))

    def _model_of(self, ledger: Ledger) -> Mark | None:
        """The mark of the model of the move that is prepared, if it is kept here."""
        if self.models is None or ledger.prepared is None:
            return None
        return self.models.mark(self.letters, ledger.prepared.version)

    def _entries(self) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        return [self._careful(read_archive, self.journal.path, entry) for entry in self.journal.read()]

    def _careful(self, use: Callable[..., T], *args: Any) -> T:
        """Use an entry; it may be of another policy, or damaged in a way that its checksum does not show."""
        try:
            return use(*args)
        except Exception as error:
            raise StateError(
                f"{self.journal.path}: cannot be replayed by {self.roster.policy!r} ({type(error).__name__}: "
                f"{str(error)[:200]}); {FIX}"
            ) from None

    def journaled(self) -> list[Record]:
        """The records of the rounds in the journal."""
        if self.work is not None:
            return self._careful(records_of, self.work.pace, self._entries()) + self.work.take_rolled()
        return [self._careful(record_of, *entry) for entry in self._entries()]

    def _check_pace(self, found: object) -> None:
        """Raise if the state is of a session with another kind of pace."""
        if found != self._pace:
            kinds = {"rounds": "rounds (fp.Rounds)", "buffered": "asynchronous training (fp.Buffered)"}
            raise StateError(
                f"{self.state}: holds a session with {kinds.get(str(found), 'another pace')}, and this one has "
                f"{kinds[self._pace]}; start the server with the pace of before, or give state= another folder"
            )

    def _unpack(self, arrays: dict[str, Any], meta: dict[str, Any]) -> Ledger | None:
        roster = self.roster
        if meta["policy"] != policy_kind(roster.policy):
            raise StateError(
                f"{self.state}: holds the state of {meta['policy']}, but the policy is {policy_kind(roster.policy)}"
            )
        self._check_settings(self.state, meta["settings_hash"], str(meta["settings"])[:500])
        notes = meta["session"]
        self._check_pace(notes.get("pace", "rounds"))  # states of before 0.3 have none
        names = list(map(str, json.loads(arrays["names"].tobytes())))
        clients = Clients(**under(arrays, "clients/"))
        last = [int(client) for client in notes["last"]]
        numbers, issued = arrays["numbers"].tolist(), int(notes["issued"])
        if len(set(names)) != len(names) or len(clients) != len(names) or int(notes["round"]) < 0:
            raise ValueError(f"round {notes['round']}, {len(clients)} clients, {len(set(names))} different names")
        if any(not 0 <= client < len(names) for client in last):
            raise ValueError(f"the last cohort {last} is not among {len(names)} clients")
        if len(set(numbers)) != len(names) or max(numbers, default=-1) >= issued:
            raise ValueError(f"{len(set(numbers))} different numbers below {issued} for {len(names)} clients")
        state = unpack(roster.policy.init(clients), under(arrays, "policy/"), len(names), f"{self.state}:")
        roster.names, roster.index = names, {name: at for at, name in enumerate(names)}
        roster.numbers, roster.issued = numbers, issued
        roster.describe(clients)
        roster.state, roster.last, roster.newcomers = state, last, []
        roster.seen = arrays["seen"]
        roster.round, roster.clock = int(notes["round"]), float(notes["clock"])
        roster.tasks = int(notes.get("tasks", 0))  # not in states of before 0.3
        roster.widths = {str(name): int(width) for name, width in notes["widths"].items()}
        # States that were written before models were kept have neither.
        roster.model, self._lettered = mark_of(notes.get("model")), "letters" in notes
        self.letters = checked_letters(notes.get("letters", self.letters))
        return None if self.work is None else Ledger.unpack(self.work.pace, under(arrays, "work/"), notes["work"])

    def _check_settings(self, file: Path, found: str, shown: str | None) -> None:
        """Raise if the file was written with other settings of the policy: what it learned would not fit.

        The file has the hash `found` of its settings, and as text `shown`, if any.
        """
        if found != self.settings:
            now = repr(self.roster.policy)[:500]
            known = f"with {shown}, but the policy is {now}"
            differs = "with other settings or code" if shown in (None, now) else known
            raise StateError(
                f"{file}: was learned {differs}; what one learned would be wrong for the other. Start the server with "
                "the settings of before, or give state= another folder to start anew"
            )

    def expect(self) -> None:
        """Call before the policy learns from a round: if it is interrupted, a checkpoint is written instead."""
        if not self.state.exists() or not self._lettered:
            self.checkpoint()
        self._whole_before, self.behind = not self.behind, True

    def keep(self, turn: Turn) -> None:
        """Write a round to disk; see `write`."""
        self.write(lambda: turn.pack(self.roster.widths, self.settings))

    def write(self, body: Callable[[], bytes]) -> None:
        """Write an entry to disk; if that fails (a full disk), an error is logged and training continues.

        Raises if another process has written to the journal.
        """
        if self._whole_before and self.state.exists():
            self._try(lambda: self.journal.append(body()))
        else:
            self.checkpoint()

    def _try(self, write: Callable[[], None]) -> None:
        try:
            self.journal.check()
            if self.models is not None:
                self.models.flush(self.letters)  # first, so that the state on the disk always has its model
            write()
            old, self.behind, self.kept = self.kept, False, self.roster.round
        except OSError as error:
            self.behind = True
            failed = self.folder if self.models is None or self.models.pending is None else self.models.folder
            text = "%s: round %d could not be saved (%s); training continues, and saving is tried again after the next "
            self.log.error(text + "round", failed.resolve(), self.roster.round, error.strerror or error)
        else:
            if self.models is not None and self.roster.model is not None and self.kept != old:
                with suppress(OSError):  # what is left over takes room, and does no harm
                    self.models.prune(self.letters, self.roster.model[0])

    def model(self) -> Arrays | None:
        """The model after the last round; None if none was kept."""
        mark = self.roster.model
        return None if self.models is None or mark is None else self.models.read(self.letters, mark)

    def due(self) -> bool:
        """Whether it is time for a checkpoint: the last one is old or incomplete, or the journal is large."""
        state = self.state.stat().st_size if self.state.exists() else 0
        large = self.journal.size - self._covered > max(LARGE, state)
        return self.behind or self.roster.round - self._saved >= self.every or large

    def checkpoint(self) -> None:
        """Write the complete state to state.npz; the journal is kept."""
        self._try(self._checkpoint)

    def drop_journal(self) -> None:
        """Delete the journal if the checkpoint contains all of it; the caller ensures that the records do, too."""
        if not self.behind and self._saved == self.roster.round:
            try:
                self.journal.drop()
                self._covered = 0
            except OSError as error:  # it stays: what the checkpoint holds is not replayed
                self.log.warning("%s: cannot be removed (%s)", self.journal.path, error.strerror or error)

    def _checkpoint(self) -> None:
        roster = self.roster
        assert roster.clients is not None
        arrays = {f"policy/{name}": values for name, values in pack(roster.state).items()}
        arrays |= {f"clients/{name}": v for name, v in vars(roster.clients).items() if v is not None}
        arrays["names"] = np.frombuffer(json.dumps(roster.names).encode(), dtype=np.uint8)
        arrays["numbers"], arrays["seen"] = np.array(roster.numbers, dtype=np.int64), roster.seen
        notes: dict[str, Any] = {"round": roster.round, "clock": roster.clock, "tasks": roster.tasks}
        notes |= {"widths": roster.widths, "last": roster.last}
        if self.work is not None:
            work, notes["work"] = self.work.ledger().pack(roster)
            arrays |= {f"work/{name}": values for name, values in work.items()}
            notes["pace"] = self._pace
        meta = {
            "format": FORMAT,
            "fedpick": __version__,
            "policy": policy_kind(roster.policy),
            "settings": repr(roster.policy),
            "settings_hash": self.settings,
            "session": notes | {"issued": roster.issued, "model": roster.model, "letters": self.letters},
        }
        write_archive(self.state, arrays, meta)
        self._saved, self._covered, roster.newcomers, self._lettered = roster.round, self.journal.size, [], True
