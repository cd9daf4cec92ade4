"""Settings of a session that belong together, their types, and whether they are enough for a policy."""

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypedDict

import numpy as np
from numpy.typing import ArrayLike

from fedpick.core.errors import MissingError, require
from fedpick.core.protocol import Policy, traits
from fedpick.core.types import Bools, Clients, Floats
from fedpick.engine.paces import Pace

__all__ = [
    *("ContextFn", "DescribeFn", "Host", "Lateness", "Limits", "Options", "ProbeFn", "ValueFn"),
    *("check_needs", "missing_in_session"),
]

# (round, names of all K enrolled clients, mask of those that did not take part in the last round) -> (K, d) array
ContextFn = Callable[[int, Sequence[str], Bools], Floats]
DescribeFn = Callable[[Sequence[str]], Clients]  # names of newcomers -> their sizes and features
ProbeFn = Callable[[list[str], int | None], ArrayLike]  # (names, examples to use or None for all) -> losses
ValueFn = Callable[[Mapping[str, Any]], Mapping[str, float]]  # updates to aggregate, by name -> what each is worth

NAMING = "give each client a name that stays the same when it, or the server, is restarted"
NEEDS = {  # in words
    "context": "a context",
    "norms": "rounds in two phases (all train and report the length of their update, some send it)",
}


@dataclass(frozen=True)
class Limits:
    """How large what a server keeps may grow, and what clients say of their data.

    Args:
        forget_after: rounds after which a client that was not available is forgotten; one that returns later is a
            newcomer. None: never.
        most_clients: how many may be enrolled; if there are more, those away longest are forgotten, but none that is
            available. None: a million, or 4,000 if the policy's state grows with the square (FedGS).
        checkpoint_every: rounds between two checkpoints of the complete state; a journal holds the rounds in between.
        size_factor: no data size counts for more than this times the quantile of all clients' sizes, because sizes
            are what clients say. None: for those who know their clients' sizes.
        size_quantile: which quantile. Clients that are no more than a fraction 1 - `size_quantile` of all cannot raise
            it above the largest size of the others.
    """

    forget_after: int | None = 1000
    most_clients: int | None = None
    checkpoint_every: int = 20
    size_factor: float | None = 30.0
    size_quantile: float = 0.5

    def check(self, owner: str) -> None:
        """Raise where a limit is impossible; the message begins with `owner`."""
        every = self.checkpoint_every
        require(every >= 1, f"{owner}: limits.checkpoint_every", every, "a number of rounds >= 1")
        for name in ("forget_after", "most_clients"):
            least = getattr(self, name)
            require(least is None or least >= 1, f"{owner}: limits.{name}", least, "a whole number >= 1, or None")
        factor, quantile = self.size_factor, self.size_quantile
        require(
            factor is None or 1 <= factor < np.inf, f"{owner}: limits.size_factor", factor, "a number >= 1, or None"
        )
        require(0 < quantile <= 1, f"{owner}: limits.size_quantile", quantile, "in (0, 1]")


@dataclass(frozen=True)
class Lateness:
    """Which late updates are used, and by what weight: `late=Lateness(3, beta=0.0)`; `late=3` is `Lateness(3)`.

    Args:
        rounds: how many rounds late an update may come and still be used; 0: late updates are dropped.
        beta: of the weight of late updates (REFL), in [0, 1]; with 0 they are not compared with those in time.
    """

    rounds: int = 0
    beta: float = 0.35

    def check(self, owner: str) -> None:
        """Raise where a value is impossible; the message begins with `owner`."""
        whole = isinstance(self.rounds, int | np.integer) and not isinstance(self.rounds, bool) and self.rounds >= 0
        require(whole, f"{owner}: late", self.rounds, "a whole number of rounds >= 0")
        require(0.0 <= self.beta <= 1.0, f"{owner}: late.beta", self.beta, "in [0, 1]")


@dataclass(frozen=True)
class Host:
    """The adapter or program that a session works for.

    Args:
        name: that error messages begin with.
        log: for messages; an adapter gives its framework's logger.
        about: further entries of the records' manifest; an adapter gives its framework's name under "engine".
        naming: advice on how clients get names that stay the same.
    """

    name: str = "Session"
    log: logging.Logger = field(default_factory=lambda: logging.getLogger("fedpick.session"))
    about: Mapping[str, Any] = field(default_factory=dict)
    naming: str = NAMING


class Options(TypedDict, total=False):
    """Settings of a session that an adapter passes on."""

    state: str | os.PathLike[str] | None
    model: str | os.PathLike[str] | None
    records: str | os.PathLike[str] | None
    metrics: str | int | None
    deadline: float | None
    durations: str
    context: ContextFn | None
    late: int | Lateness
    pace: Pace | None
    limits: Limits | None
    seed: int


def check_needs(policy: Policy[Any], missing: Mapping[str, str], owner: str) -> None:
    """Raise if a policy needs what its server does not provide; `missing` maps that to why, or what to do."""
    for need in sorted(traits(policy).needs & missing.keys()):
        raise MissingError(f"{owner}: {type(policy).__name__} needs {NEEDS.get(need, need)}{missing[need]}")


def missing_in_session(policy: Policy[Any], context: ContextFn | None, value: ValueFn | None) -> dict[str, str]:
    """What a session with these settings does not provide, for `check_needs`."""
    missing = {"norms": ", which a session does not have; use it in simulated runs"}
    if context is None:
        missing["context"] = ": pass context=function"
    if value is None:
        from_updates = ", which the server computes from the updates: pass value=function"
        missing |= dict.fromkeys(traits(policy).valued, from_updates)
    return missing
