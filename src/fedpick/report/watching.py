"""The live page: what is in a folder now, read again whenever a file in it has changed.

Nothing in the folder is locked or written. A run that is being written, or whose files are damaged, is left out with
the reason; the page goes on.
"""

import hashlib
import json
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fedpick._support.web import Answer, Server, is_loopback
from fedpick.core.errors import ConfigError, FedpickError
from fedpick.core.metrics import read_target
from fedpick.report.page import Content, Live, make_news, make_page
from fedpick.report.results import Results
from fedpick.report.runs import DEEPEST, RunInfo, below, planned_runs, read_info, sort_runs
from fedpick.report.tables import printable

__all__ = ["Watch", "find_leniently", "serve", "states_of"]

LOCKS = Path("/proc/locks")  # of Linux
RECENT, SILENT = 10.0, 120.0  # seconds since the last write of a run that surely, or perhaps, goes on
SHARE = 5.0  # times the processor time of reading, until the folder is read again
LISTED = 200  # runs
OPEN = 15.0  # seconds since it last asked, of a page that is still open
PORT = 8642


@dataclass(frozen=True)
class Seen:
    """A run as its folder shows it."""

    policy: str
    seed: int
    reached: int
    rounds: int | None  # asked for; None: a server's, which nobody knows
    state: str
    why: str = ""


def held() -> set[int] | None:
    """The files (inode numbers) that a process of this machine has locked; None if the system does not tell."""
    try:
        lines = LOCKS.read_text().splitlines()
        return {int(line.split()[-3].rsplit(":", 1)[-1]) for line in lines if "FLOCK" in line}
    except (OSError, ValueError, IndexError):
        return None


def _stamps(folder: Path) -> Iterator[tuple[str, int, int]]:
    """Name, size and time of each file of a run that matters here."""
    for place in (folder, folder / "parts"):
        try:
            with os.scandir(place) as files:
                for file in files:
                    if file.name.endswith((".parquet", ".json")) and not file.name.startswith("."):
                        found = file.stat()
                        yield file.name, found.st_size, found.st_mtime_ns
        except OSError:  # not there yet, or gone in this moment
            continue


def _state(info: RunInfo, reached: int, quiet: float, locked: set[int] | None) -> str:
    """What a run is doing.

    Args:
        info: of the run.
        reached: its last round.
        quiet: seconds since its last write.
        locked: files that are locked, if known.
    """
    if info.rounds is not None and info.simulated and reached >= info.rounds:
        return "finished"
    try:
        inside = locked is not None and (info.folder / "run.lock").stat().st_ino in locked
    except OSError:
        inside = False
    if inside or quiet < RECENT:
        return "running"
    if locked is None:
        return "running" if quiet < SILENT else "silent"
    closed = not info.simulated and reached > 0 and not any((info.folder / "parts").glob("*.parquet"))
    return "ended" if closed else "stopped"  # a server that was closed has joined its parts


def find_leniently(folder: Path) -> tuple[list[RunInfo], dict[Path, str]]:
    """The runs in a folder, and why others cannot be read."""
    infos, broken = [], {}
    try:
        for each in below(folder, DEEPEST):
            try:
                infos.append(read_info(each))
            except FedpickError as error:
                broken[each] = str(error)
    except FileNotFoundError:  # not made yet, or removed in this moment
        pass
    except OSError as error:
        broken[folder] = f"{error.filename or folder}: cannot be read ({error.strerror})"
    try:
        return sort_runs(folder, infos), broken
    except FedpickError:  # an old comparison's list of policies that cannot be read
        return infos, broken


def states_of(
    infos: Sequence[RunInfo], stamps: Mapping[Path, Sequence[tuple[str, int, int]]] | None = None
) -> tuple[dict[Path, tuple[str, int]], float]:
    """The state and the last round of each run, and when one was last written, in seconds since 1970.

    Args:
        infos: of the runs.
        stamps: of their files, if they were looked at already.
    """
    locked, now, found, changed = held(), time.time(), {}, 0.0
    for info in infos:
        files = list(_stamps(info.folder)) if stamps is None else stamps[info.folder]
        last = max((at for *_, at in files), default=0) / 1e9
        reached = _reached(info.folder)
        found[info.folder] = _state(info, reached, now - last, locked), reached
        changed = max(changed, last)
    return found, changed


class Watch:
    """What is in a folder, as a page; `answer` gives it to a web server.

    Args:
        folder: of a run, of comparisons, or of a deployment's records.
        reference: the policy that the others are compared with; None: the first.
        target: for the columns "rounds to" and "hours to"; see `Results`.
        metric: the main one; see `Results`.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        reference: str | None = None,
        target: Any = None,
        metric: str | None = None,
    ) -> None:
        self.folder, self.reference, self.metric = Path(folder), reference, metric
        self.target = read_target(target, metric)
        self.asked = 0.0  # when a page last asked for news, by the monotonic clock
        self._guard = threading.Lock()
        self._print: Any = None
        self._answers: dict[str, Answer] = {}
        self._next = self._looked = 0.0

    def answer(self, path: str) -> Answer | None:
        """What a path shows: the page, or what has changed."""
        if path not in ("/", "/news.json"):
            return None
        with self._guard:
            self.asked = time.monotonic()
            if self.asked >= self._next:
                self._look()
            return self._answers[path]

    def settle(self, seconds: float) -> None:
        """Wait until an open page has fetched what is there now.

        Args:
            seconds: to wait at most.
        """
        if time.monotonic() - self.asked > OPEN:
            return
        with self._guard:  # a look that is under way would put off the next one
            now, self._next = time.monotonic(), 0.0
        while self._looked < now and time.monotonic() - now < seconds:
            time.sleep(0.05)
        time.sleep(1.0)  # for its way to the page

    def _look(self) -> None:
        """Read the folder if something has changed."""
        began, spent = time.monotonic(), time.thread_time()
        infos, broken = find_leniently(self.folder)
        stamps = {info.folder: sorted(_stamps(info.folder)) for info in infos}
        seen, changed = states_of(infos, stamps)
        recent = time.time() - changed < RECENT
        found = (infos, broken, stamps, seen, len(planned_runs(self.folder)), recent)
        if found != self._print or not self._answers:
            content, live = self._read(infos, broken, seen, changed, recent)
            self._answers = _answers(content, live)
            self._print = found
        self._next = time.monotonic() + SHARE * (time.thread_time() - spent)
        self._looked = began  # last: whoever waits for it may close the server

    def _read(
        self,
        infos: Sequence[RunInfo],
        broken: dict[Path, str],
        seen: dict[Path, tuple[str, int]],
        changed: float,
        recent: bool,
    ) -> tuple[Content, Live]:
        begun = [info for info in infos if seen[info.folder][1] > 0]
        usable, content = self._content(_furthest(begun, seen), broken)
        rows = [
            Seen(printable(info.name), info.seed, reached, info.rounds if info.simulated else None, state)
            for info in infos
            for state, reached in [seen[info.folder]]
            if info.folder not in broken
        ]
        names = {info.folder: (printable(info.name), info.seed) for info in infos}
        rows += [
            Seen(*names.get(folder, (printable(folder.name), 0)), 0, None, "unreadable", printable(why))
            for folder, why in broken.items()
        ]
        waiting = max(0, len(planned_runs(self.folder)) - len(infos))
        behind = [info for info in begun if info not in usable and info.folder not in broken]
        state, said = _said([row.state for row in rows], waiting, recent, self.folder)
        notes = []
        if behind:
            notes.append(f"{_runs(len(behind))} not in the table and charts until as far as the others of the policy")
        if len(rows) > LISTED:
            notes.append(f"{len(rows) - LISTED} more runs are not listed")
            rows.sort(key=lambda row: row.state in ("finished", "ended"))
        return content, Live(state, said, changed, [asdict(row) for row in rows[:LISTED]], notes)

    def _content(self, infos: list[RunInfo], broken: dict[Path, str]) -> tuple[list[RunInfo], Content]:
        """What the page shows of these runs, without those that cannot be read, which are added to `broken`."""
        for attempt in range(3):
            if not infos:
                break
            known = {each for info in infos for each in (info.policy, info.name)}
            reference = self.reference if self.reference in known else None
            try:
                results = Results(infos, reference=reference, target=self.target, metric=self.metric)
                return results.runs, results._content(results._to_its_end())
            except (FedpickError, OSError) as error:
                why: dict[Path, str] = {}
                if attempt:  # the first time, files may have been joined while they were read
                    why = {info.folder: said for info in infos if (said := _fault(info))}
                if attempt and not why:
                    why = {info.folder: str(error) for info in infos}
                broken |= why
                infos = [info for info in infos if info.folder not in broken]
        return [], Content(title=printable(str(self.folder)))


def _reached(folder: Path) -> int:
    from fedpick.store.tables import reached  # Parquet is an extra

    try:
        return reached(folder)
    except (FedpickError, OSError, ValueError):
        return 0


def _fault(info: RunInfo) -> str:
    """Why a run cannot be read; empty if it can."""
    try:
        Results([info]).data()
    except (FedpickError, OSError) as error:
        return str(error)
    return ""


def _furthest(infos: Sequence[RunInfo], seen: dict[Path, tuple[str, int]]) -> list[RunInfo]:
    """The runs to show: of the seeds of a simulated policy, those that are furthest, so that curves never shrink."""
    most: Counter[str] = Counter()
    for info in infos:
        most[info.identity] = max(most[info.identity], seen[info.folder][1])
    return [info for info in infos if not info.simulated or seen[info.folder][1] == most[info.identity]]


def _runs(number: int) -> str:
    return f"{number} run is" if number == 1 else f"{number} runs are"


def _said(states: Sequence[str], waiting: int, recent: bool, folder: Path) -> tuple[str, str]:
    """The state of all runs in a word, and in a sentence.

    Args:
        states: of the runs that have begun.
        waiting: how many have not.
        recent: whether one was written to in the last seconds; the next one may then be about to begin.
        folder: of all of them.
    """
    counts = Counter(states)
    going = [state for state in ("running", "silent", "stopped", "ended", "finished") if counts[state]]
    if not going:
        return "waiting", "No run has begun." if not counts else "No run can be read."
    total = sum(counts.values()) + waiting
    kinds = ("finished", "ended", "running", "silent", "stopped", "unreadable")
    said = ", ".join(f"{counts[kind]} {kind}" for kind in kinds if counts[kind])
    said = f"{total} {'run' if total == 1 else 'runs'}: {said}" + (f", {waiting} not begun." if waiting else ".")
    state = "running" if waiting and recent else going[0]
    if counts["silent"]:
        said += " A silent one has written nothing for two minutes or more; it may have stopped."
    if state == "stopped" or (waiting and state != "running"):
        state = "stopped"
        said += f" No process works on them now; continue a comparison with: fedpick resume {printable(str(folder))}"
    return state, said


def _answers(content: Content, live: Live) -> dict[str, Answer]:
    news = json.dumps(make_news(content, live), separators=(",", ":"), allow_nan=False).encode()
    tag = hashlib.blake2b(news, digest_size=12).hexdigest()
    page = make_page(content, live).encode()
    return {"/": Answer(page, "text/html; charset=utf-8"), "/news.json": Answer(news, "application/json", tag)}


def serve(watch: Watch, host: str, port: int | None, token: str | None) -> Server:
    """Show a folder as a page; beyond this machine only with a token.

    Args:
        watch: of the folder.
        host: to listen on.
        port: to listen on; None: 8642, or any free one if it is taken.
        token: that readers must know.
    """
    if token is None and not is_loopback(host):
        raise ConfigError(
            f"--host {host} can be reached by other machines, so a token is needed: set FEDPICK_TOKEN to one of 16 "
            'characters or more (python -c "import secrets; print(secrets.token_urlsafe())"), or stay on 127.0.0.1'
        )
    if port is not None:
        return Server(host, port, watch.answer, token=token)
    try:
        return Server(host, PORT, watch.answer, token=token)
    except ConfigError:
        return Server(host, 0, watch.answer, token=token)
