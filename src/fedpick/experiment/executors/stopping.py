"""Being told to stop: at the end of a round, with a checkpoint, wherever runs are played."""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

__all__ = ["Stop", "Stopped", "patient"]

IMPATIENT = 2.0  # seconds after which a second signal is another one, and not the first that came by two ways


class Stopped(KeyboardInterrupt):
    """Told to stop, after all that was done is written.

    Args:
        signal: the number of the signal that said so.
    """

    def __init__(self, signal: int = signal.SIGINT) -> None:
        super().__init__(signal)
        self.signal = signal


class Stop:
    """Whether somebody said to stop: `came` is the signal's number then."""

    def __init__(self) -> None:
        self.came: int | None = None
        self._when = 0.0
        self._now = False

    def tell(self, number: int) -> None:
        """Stop when it suits; told again after a while: at once."""
        if self.came is None:
            self.came, self._when = int(number), time.monotonic()
            if self._now:
                raise Stopped(number)
        elif time.monotonic() - self._when > IMPATIENT:
            raise Stopped(number)

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """For a block in which nothing is lost: being told raises Stopped in the middle of it."""
        self.obey()
        self._now = True
        try:
            yield
        finally:
            self._now = False

    def obey(self) -> None:
        """Raise Stopped if somebody said so; call it where all is written."""
        if self.came is not None:
            raise Stopped(self.came)


@contextmanager
def patient() -> Iterator[Stop]:
    """Let Ctrl-C and SIGTERM wait until the block asks for them."""
    stop = Stop()

    def note(number: int, frame: FrameType | None) -> None:
        stop.tell(number)

    before: dict[signal.Signals, Any] = {}
    if threading.current_thread() is threading.main_thread():  # others cannot, and get no signals
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) not in (signal.SIG_IGN, None):
                before[number] = signal.signal(number, note)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
