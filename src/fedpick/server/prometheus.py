"""Numbers of a server for Prometheus, on http://127.0.0.1:PORT/metrics; off unless asked for.

They count from the start of this process; no client is named.
"""

import logging
import os
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import accumulate

import numpy as np

from fedpick._support.web import Answer, Server, address, is_loopback
from fedpick._version import __version__
from fedpick.core.errors import ConfigError
from fedpick.core.types import Ints, Status
from fedpick.server.roster import Roster
from fedpick.server.validation import printable
from fedpick.store.records import Record

__all__ = ["Metrics"]

ROUND_SECONDS = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14400.0)
POLICY_SECONDS = (0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0)
LONGEST_LABEL = 200  # characters
KIND = "text/plain; version=0.0.4; charset=utf-8"


def quoted(text: str) -> str:
    r"""A label's value in quotes; no character of the text can end it.

    >>> print(quoted('a "b" \\ c'))
    "a \"b\" \\ c"
    """
    safe = printable(text)[:LONGEST_LABEL].replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    return f'"{safe}"'


class _Histogram:
    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds, self.counts, self.sum = bounds, [0] * (len(bounds) + 1), 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def lines(self, name: str) -> list[str]:
        marks = [*(f"{bound:g}" for bound in self.bounds), "+Inf"]
        buckets = [f'{name}_bucket{{le="{mark}"}} {n}' for mark, n in zip(marks, accumulate(self.counts), strict=True)]
        return [*buckets, f"{name}_sum {self.sum!r}", f"{name}_count {sum(self.counts)}"]


class Metrics:
    """Counts what a session does, and serves the numbers to Prometheus while the session is open.

    `where` is a port, or HOST:PORT; without a host, only programs on this machine can ask. Others need the token that
    the environment variable FEDPICK_TOKEN has.
    """

    def __init__(self, where: str | int, policy: str, owner: str) -> None:
        self._host, self._port = address(where, f"{owner}: metrics")
        self._token = None if is_loopback(self._host) else os.environ.get("FEDPICK_TOKEN")
        if not (self._token or is_loopback(self._host)):
            raise ConfigError(
                f"{owner}: metrics = {where!r:.80} can be read by other machines, so a token is needed: set "
                'FEDPICK_TOKEN to one of 16 characters or more (python -c "import secrets; '
                f'print(secrets.token_urlsafe())"), or write ":{self._port}" for this machine alone'
            )
        self.policy = policy
        self._server: Server | None = None
        self._guard = threading.Lock()
        self._late = 0  # updates used in a later round than they were sent
        self._statuses: Ints = np.zeros(len(Status), dtype=np.int64)
        self._numbers: Ints = np.zeros(0, dtype=np.int64)  # of the enrolled clients
        self._times = self._numbers.copy()  # how often each of them was chosen
        self._rounds, self._policies = _Histogram(ROUND_SECONDS), _Histogram(POLICY_SECONDS)
        self._now: dict[str, tuple[str, float]] = {}  # gauges: help and value
        self.live: Callable[[], dict[str, tuple[str, float]]] = (
            dict  # further ones, as they are when they are asked for
        )

    @property
    def url(self) -> str | None:
        """Where the numbers are, while the session is open."""
        return None if self._server is None else f"{self._server.url}metrics"

    def open(self, log: logging.Logger) -> None:
        """Listen."""
        if self._server is None:
            self._server = Server(self._host, self._port, self._answer, token=self._token)
            log.info("metrics for Prometheus: %s", self.url)

    def close(self) -> None:
        """Stop listening; the numbers are kept for the next time."""
        if self._server is not None:
            self._server.close()
            self._server = None

    def note(self, record: Record, roster: Roster) -> None:
        """Count a round, from its record and the roster after it."""
        with self._guard:
            self._statuses += np.bincount(record.status, minlength=len(Status))
            self._late += len(record.late_ids)
            self._follow(np.sort(np.array(roster.numbers, dtype=np.int64)))
            enrolled = record.ids[np.isin(record.ids, self._numbers)]
            np.add.at(self._times, np.searchsorted(self._numbers, enrolled), 1)
            times = self._times.astype(np.float64)
            squares = len(times) * float((times**2).sum())
            self._rounds.add(record.seconds)
            self._policies.add(record.wall.get("selection", 0.0))
            self._now = {
                "round": ("Number of the last round, with those before a restart.", record.round),
                "clients_enrolled": ("Clients that the server knows.", len(roster.names)),
                "clients_present": ("Clients that were there in the last round.", record.present or 0),
                "clients_available": ("Clients that could be chosen in the last round.", record.available),
                "fairness_jain": (
                    "Jain's index of how often the enrolled clients were chosen since the start: 1 is equal.",
                    float(times.sum()) ** 2 / squares if squares else 1.0,
                ),
                "last_round_timestamp_seconds": ("When the last round ended, in seconds since 1970.", time.time()),
            }
            if record.tasks is not None:
                stale = [each.staleness for each in record.tasks if each.status == Status.DONE]
                mean, most = (float(np.mean(stale)), max(stale)) if stale else (0.0, 0)
                self._now |= {
                    "version": ("How often the model has moved, with the moves before a restart.", record.round),
                    "staleness_mean": ("Mean staleness of the answers by which the model moved last.", mean),
                    "staleness_max": ("Largest staleness of the answers by which the model moved last.", most),
                }

    def _follow(self, numbers: Ints) -> None:
        """Begin to count clients that have joined, and forget those that have left."""
        if not np.array_equal(numbers, self._numbers):
            stay, times = np.isin(self._numbers, numbers), np.zeros(len(numbers), dtype=np.int64)
            times[np.searchsorted(numbers, self._numbers[stay])] = self._times[stay]
            self._numbers, self._times = numbers, times

    def _answer(self, path: str) -> Answer | None:
        return Answer(self.text().encode(), KIND) if path == "/metrics" else None

    def text(self) -> str:
        """All numbers in Prometheus's text format."""
        lines: list[str] = []

        def add(name: str, kind: str, about: str, *samples: str) -> None:
            lines.extend([f"# HELP fedpick_{name} {about}", f"# TYPE fedpick_{name} {kind}", *samples])

        def count(name: str, about: str, value: int) -> None:
            add(name, "counter", about, f"fedpick_{name} {value}")

        live = self.live()
        with self._guard:
            labels = f"version={quoted(__version__)},policy={quoted(self.policy)}"
            add("info", "gauge", "The version and the policy; always 1.", f"fedpick_info{{{labels}}} 1")
            count("rounds_total", "Rounds that ended.", sum(self._rounds.counts))
            count("clients_chosen_total", "Clients that were asked to train.", int(self._statuses.sum()))
            for status, about in (
                (Status.DONE, "Answers in time that were used."),
                (Status.LATE, "Clients that did not answer in time."),
                (Status.FAILED, "Clients that failed, and answers that could not be used."),
                (Status.SURPLUS, "Clients that were asked and not needed, because enough others had answered."),
            ):
                count(f"clients_{status.name.lower()}_total", about, int(self._statuses[status]))
            count("late_updates_used_total", "Updates that were used in a later round than they were sent.", self._late)
            for name, histogram, about in (
                ("round", self._rounds, "Seconds from the choice to the end of a round."),
                ("policy", self._policies, "Seconds that the policy took to choose and to learn in a round."),
            ):
                samples = histogram.lines(f"fedpick_{name}_duration_seconds")
                add(f"{name}_duration_seconds", "histogram", about, *samples)
            for name, (about, value) in (self._now | live).items():
                add(name, "gauge", about, f"fedpick_{name} {value!r}")
        return "\n".join(lines) + "\n"
