"""The live page: the report of a folder, read again whenever a file in it has changed.

Nothing in the folder is locked or written. A run that is being written, or whose files are damaged, is left out with
the reason; the page goes on.
"""

import hashlib
import json
import os
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedpick._support.web import Answer, Server, is_loopback
from fedpick.core.errors import ConfigError, FedpickError, printable
from fedpick.core.metrics import read_target
from fedpick.report.page import Content, Live, make_news, make_page
from fedpick.report.results import Results
from fedpick.report.runs import RunInfo, planned_runs, readable_runs
from fedpick.report.states import RECENT, RunState, run_states

__all__ = ["LivePage", "serve"]

PAUSE = 5.0  # the folder is read again after this times the processor time of the last reading
LISTED = 200  # runs in the list, at most
OPEN = 15.0  # a page that last asked longer ago (in seconds) is no longer open
PORT = 8642


class LivePage:
    """The report of a folder (of a run, comparisons, or records of a server) as a page.

    A web server calls `answer`. Reference, target and metric are those of `Results`.
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
        self._last_look: Any = None  # what the folder held
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
        """Wait until an open page has fetched what is there now, but not longer than so many seconds."""
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
        infos, broken = readable_runs(self.folder)
        states = run_states(infos)
        changed = max((state.written for state in states.values()), default=0.0)
        recent = time.time() - changed < RECENT
        found = (infos, broken, states, len(planned_runs(self.folder)), recent)
        if found != self._last_look or not self._answers:
            self._answers = _answers(*self._read(infos, broken, states, changed, recent))
            self._last_look = found
        self._next = time.monotonic() + PAUSE * (time.thread_time() - spent)
        self._looked = began  # last: whoever waits for it may close the server

    def _read(
        self,
        infos: Sequence[RunInfo],
        broken: dict[Path, str],
        states: dict[Path, RunState],
        changed: float,
        recent: bool,
    ) -> tuple[Content, Live]:
        begun = [info for info in infos if states[info.folder].reached > 0]
        usable, content = self._content(_furthest(begun, states), broken)
        rows = [
            _row(info.name, info.seed, state.reached, info.rounds if info.simulated else None, state.name)
            for info in infos
            for state in [states[info.folder]]
            if info.folder not in broken
        ]
        names = {info.folder: (info.name, info.seed) for info in infos}
        rows += [
            _row(*names.get(folder, (folder.name, 0)), 0, None, "unreadable", why) for folder, why in broken.items()
        ]
        waiting = max(0, len(planned_runs(self.folder)) - len(infos))
        behind = [info for info in begun if info not in usable and info.folder not in broken]
        state, sentence = _overall([row["state"] for row in rows], waiting, recent, self.folder)
        notes = []
        if behind:
            runs = "1 run is" if len(behind) == 1 else f"{len(behind)} runs are"
            notes.append(f"{runs} not in the table and charts until as far as the others of the policy")
        if len(rows) > LISTED:
            notes.append(f"{len(rows) - LISTED} more runs are not listed")
            rows.sort(key=lambda row: row["state"] in ("finished", "ended"))
        return content, Live(state, sentence, changed, rows[:LISTED], notes)

    def _content(self, infos: list[RunInfo], broken: dict[Path, str]) -> tuple[list[RunInfo], Content]:
        """What the page shows of these runs, without those that cannot be read, which are added to `broken`."""
        for attempt in range(3):
            if not infos:
                break
            known = {each for info in infos for each in (info.policy, info.name)}
            reference = self.reference if self.reference in known else None
            try:
                results = Results(infos, reference=reference, target=self.target, metric=self.metric)
                return results.runs, results._content(results._to_last_rounds())
            except (FedpickError, OSError) as error:
                why: dict[Path, str] = {}
                if attempt:  # the first time, files may have been joined while they were read
                    why = {info.folder: fault for info in infos if (fault := _fault(info))}
                if attempt and not why:
                    why = {info.folder: str(error) for info in infos}
                broken |= why
                infos = [info for info in infos if info.folder not in broken]
        return [], Content(title=printable(str(self.folder)))


def _fault(info: RunInfo) -> str:
    """Why a run cannot be read; empty if it can."""
    try:
        Results([info]).data()
    except (FedpickError, OSError) as error:
        return str(error)
    return ""


def _furthest(infos: Sequence[RunInfo], states: dict[Path, RunState]) -> list[RunInfo]:
    """The runs to show: of the seeds of a simulated policy, those that are furthest, so that curves never shrink."""
    most: Counter[str] = Counter()
    for info in infos:
        most[info.identity] = max(most[info.identity], states[info.folder].reached)
    return [info for info in infos if not info.simulated or states[info.folder].reached == most[info.identity]]


def _row(policy: str, seed: int, reached: int, rounds: int | None, state: str, why: str = "") -> dict[str, Any]:
    """A run in the list; `rounds` is None for a server, whose number of rounds is not planned."""
    row = {"policy": printable(policy), "seed": seed, "reached": reached, "rounds": rounds}
    return {**row, "state": state, "why": printable(why)}


def _overall(states: Sequence[str], waiting: int, recent: bool, folder: Path) -> tuple[str, str]:
    """The state of all runs in a word, and in a sentence.

    Args:
        states: of the runs that have begun.
        waiting: how many have not.
        recent: whether a run was written in the last seconds; the next run may then be about to begin.
        folder: of the runs.
    """
    counts = Counter(states)
    going = [state for state in ("running", "silent", "stopped", "ended", "finished") if counts[state]]
    if not going:
        return "waiting", "No run has begun." if not counts else "No run can be read."
    total = sum(counts.values()) + waiting
    kinds = ("finished", "ended", "running", "silent", "stopped", "unreadable")
    parts = ", ".join(f"{counts[kind]} {kind}" for kind in kinds if counts[kind])
    sentence = f"{total} {'run' if total == 1 else 'runs'}: {parts}" + (f", {waiting} not begun." if waiting else ".")
    state = "running" if waiting and recent else going[0]
    if counts["silent"]:
        sentence += " A silent one has written nothing for two minutes or more; it may have stopped."
    if state == "stopped" or (waiting and state != "running"):
        state = "stopped"
        where = printable(str(folder))
        sentence += f" No process works on them now; continue a comparison with: fedpick resume {where}"
    return state, sentence


def _answers(content: Content, live: Live) -> dict[str, Answer]:
    news = json.dumps(make_news(content, live), separators=(",", ":"), allow_nan=False).encode()
    tag = hashlib.blake2b(news, digest_size=12).hexdigest()
    page = make_page(content, live).encode()
    return {"/": Answer(page, "text/html; charset=utf-8"), "/news.json": Answer(news, "application/json", tag)}


def serve(page: LivePage, host: str, port: int | None, token: str | None) -> Server:
    """Show a page to readers on this machine, or with a token on others; no port is 8642, or any free one."""
    if token is None and not is_loopback(host):
        raise ConfigError(
            f"--host {host} can be reached by other machines, so a token is needed: set FEDPICK_TOKEN to one of 16 "
            'characters or more (python -c "import secrets; print(secrets.token_urlsafe())"), or stay on 127.0.0.1'
        )
    if port is not None:
        return Server(host, port, page.answer, token=token)
    try:
        return Server(host, PORT, page.answer, token=token)
    except ConfigError:
        return Server(host, 0, page.answer, token=token)
