"""The arrival of replies: polls for them where a framework does not say when they arrive."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from time import monotonic, sleep
from typing import Any, TypeVar

__all__ = ["LONGEST", "Arrivals", "earliest", "poll"]

SHORTEST, LONGEST, LONGER = 0.01, 1.0, 1.25  # seconds between two looks, and their growth
Reply = TypeVar("Reply")


@dataclass
class Arrivals:
    """When the replies of a round arrived; a round may send messages several times."""

    took: dict[str, float] = field(default_factory=dict)  # seconds until the reply, by message
    seen: dict[str, float] = field(default_factory=dict)  # seconds until the look that found it
    refused: set[str] = field(default_factory=set)  # messages that the framework did not send
    limit: float | None = None  # seconds that were allowed
    enough: Callable[[Any], bool] | None = None  # gets each reply as it comes: whether no more are needed


def earliest(*limits: float | None) -> float | None:
    """The earliest of these limits in seconds; None is no limit.

    >>> earliest(3600.0, None, 60.0)
    60.0
    """
    return min((limit for limit in limits if limit is not None), default=None)


def poll(
    send: Callable[[], Iterable[str]],
    pull: Callable[[set[str]], Iterable[tuple[str, Reply]]],
    limit: float | None,
    longest: float = LONGEST,
    noted: Arrivals | None = None,
) -> dict[str, tuple[Reply, float]]:
    """Send messages; the replies and the seconds until each came, in the order of arrival, by message.

    `send` returns the messages that will be answered; `pull` maps messages to the replies that are there, each with the
    message that it answers. `limit` is in seconds. `longest` is the pause between two looks for replies, at most 1 s.
    `noted` gets the limit and the seconds; its `enough` may end the wait.
    """
    found: dict[str, tuple[Reply, float]] = {}
    noted = noted or Arrivals()
    begun = looked = monotonic()
    waiting, longest = dict.fromkeys(send()), min(longest, LONGEST)
    pause = min(SHORTEST, longest)
    while waiting:
        before, looked = looked, monotonic()
        pulled: dict[str, Reply] = {}
        for name, reply in pull(set(waiting)):
            pulled.setdefault(name, reply)  # the first reply counts
        enough = False
        for name in [name for name in waiting if name in pulled]:  # of one look, in the order in which they were sent
            del waiting[name]
            found[name] = pulled[name], (before + looked) / 2.0 - begun  # it came somewhere between two looks
            noted.took[name], noted.seen[name] = found[name][1], looked - begun
            if noted.enough is not None and noted.enough(pulled[name]):
                enough = True
        if enough:
            break
        left = float("inf") if limit is None else limit - (monotonic() - begun)
        if not waiting or left <= 0:
            break
        sleep(min(pause, left))
        pause = min(LONGER * pause, longest)
    noted.limit = limit
    return found
