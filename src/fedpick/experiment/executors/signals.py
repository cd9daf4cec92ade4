"""Stop after a signal: at the end of a round, with a checkpoint."""

import atexit
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

__all__ = ["Stop", "Stopped", "patient"]

STOPPING = (signal.SIGINT, signal.SIGTERM)
IMPATIENT = 2.0  # seconds; a second signal within this time is taken for a copy of the first


class Stopped(KeyboardInterrupt):
    """Raised after a signal to stop, when everything is written.

    Args:
        signal: number of the signal.
        folder: where the runs are, if known.
    """

    def __init__(self, signal: int = signal.SIGINT, folder: Path | None = None) -> None:
        super().__init__(signal, folder)
        self.signal, self.folder = int(signal), folder

    def __str__(self) -> str:
        by = "Ctrl-C" if self.signal == signal.SIGINT else signal.Signals(self.signal).name
        where = "" if self.folder is None else f" in {self.folder}"
        return f"stopped by {by}; everything until then is kept{where}: run the same script again to continue"


class Stop:
    """A request to stop: the signal's number, None until there is one, and its time."""

    def __init__(self) -> None:
        self.signal: int | None = None
        self.time = 0.0
        self._now = False

    def tell(self, number: int) -> None:
        """Take a signal: the first stops at the next `obey`, a second one (after IMPATIENT seconds) at once."""
        if self.signal is None:
            self.signal, self.time = int(number), time.monotonic()
            if self._now:
                raise Stopped(number)
        elif time.monotonic() - self.time > IMPATIENT:
            raise Stopped(number)

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """A block in which a signal raises Stopped immediately, because nothing can be lost."""
        self.obey()
        self._now = True
        try:
            yield
        finally:
            self._now = False

    def obey(self) -> None:
        """Raise Stopped if a signal came; call it where everything is written."""
        if self.signal is not None:
            raise Stopped(self.signal)


@dataclass(frozen=True)
class _Ignore:
    """A handler that ignores signals for a while after a stop, because the same signal may be sent more than once.

    Args:
        until: when it ends, on the clock `time.monotonic`.
        before: the handler after that.
    """

    until: float
    before: Any

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if time.monotonic() > self.until:
            signal.signal(number, self.before)
            signal.raise_signal(number)


@atexit.register
def _ignore_at_exit() -> None:
    """Ignore copies of the signal while Python exits: it drops handlers then, and a copy would kill it."""
    for number in STOPPING:
        if isinstance(signal.getsignal(number), _Ignore):
            signal.signal(number, signal.SIG_IGN)


@contextmanager
def patient() -> Iterator[Stop]:
    """In this block, Ctrl-C and SIGTERM only set `Stop`, which the block checks.

    After a stop, copies of the signal are ignored until IMPATIENT seconds after the first, and while Python exits.
    """
    stop = Stop()

    def note(number: int, frame: FrameType | None) -> None:
        stop.tell(number)

    before: dict[signal.Signals, Any] = {}
    if threading.current_thread() is threading.main_thread():  # other threads get no signals
        for number in STOPPING:
            handler = signal.getsignal(number)
            if handler not in (signal.SIG_IGN, None):
                before[number] = handler.before if isinstance(handler, _Ignore) else handler
                signal.signal(number, note)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            within = signal.getsignal(number)  # a block within this one may have been stopped
            if isinstance(within, _Ignore):
                handler = _Ignore(within.until, handler)
            elif stop.signal is not None:
                handler = _Ignore(stop.time + IMPATIENT, handler)
            signal.signal(number, handler)
