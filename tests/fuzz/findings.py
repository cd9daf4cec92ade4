"""What counts as a finding: a wrong result, an exception that is no FedpickError, or one that takes too long."""

import signal
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from fedpick.core.errors import FedpickError

PATIENCE = 20  # seconds of this process's own time that one step may take: others may be busy


class Finding(AssertionError):
    """Something that should not be."""


@contextmanager
def attacked(what: str) -> Iterator[None]:
    """Let FedpickErrors pass; anything else is a finding."""

    def late(*_: object) -> None:
        raise Finding(f"{what}: still busy after {PATIENCE} s")

    before = {kind: signal.signal(kind, late) for kind in (signal.SIGPROF, signal.SIGALRM)}
    signal.setitimer(signal.ITIMER_PROF, PATIENCE)
    signal.alarm(30 * PATIENCE)  # one that only waits
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except FedpickError as error:
        if any(ord(char) < 32 and char not in "\n\t" for char in str(error)):
            raise Finding(f"{what}: control characters in {str(error)!r}") from error
    except (Finding, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise Finding(f"{what}: {type(error).__name__}: {str(error)[:300]}") from error
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)
        for kind, handler in before.items():
            signal.signal(kind, handler)
