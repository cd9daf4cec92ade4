"""Types of a session's settings, and whether they are enough for a policy."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict

from numpy.typing import ArrayLike

from fedpick.core.errors import MissingError
from fedpick.core.protocol import Policy, traits
from fedpick.core.types import Bools, Clients, Floats

__all__ = ["ContextFn", "Describe", "Options", "ProbeFn", "ValueFn", "check_needs", "session_lacks"]

# (round, names of all K enrolled clients, mask of those that did not take part in the last round) -> (K, d) array
ContextFn = Callable[[int, Sequence[str], Bools], Floats]
Describe = Callable[[Sequence[str]], Clients]  # names of newcomers -> their sizes and features
ProbeFn = Callable[[list[str], int | None], ArrayLike]  # (names, examples to use or None for all) -> losses
ValueFn = Callable[[Mapping[str, Any]], Mapping[str, float]]  # updates to aggregate, by name -> what each is worth

# What a policy needs, in words.
CALLED = {
    "context": "a context",
    "norms": "rounds in two phases (all train and tell the length of their update, some send it)",
}


class Options(TypedDict, total=False):
    """Settings of a session that an adapter passes on."""

    state: str | os.PathLike[str] | None
    model: str | os.PathLike[str] | None
    records: str | os.PathLike[str] | None
    metrics: str | int | None
    deadline: float | None
    durations: str
    context: ContextFn | None
    late: int
    late_beta: float
    checkpoint_every: int
    forget_after: int | None
    most_clients: int | None
    seed: int


def check_needs(policy: Policy[Any], missing: Mapping[str, str], owner: str) -> None:
    """Raise if a policy needs what its server does not provide.

    Args:
        policy: of the server.
        missing: what is not provided -> why, or what to do.
        owner: the name that error messages begin with.
    """
    for need in sorted(traits(policy).needs & missing.keys()):
        raise MissingError(f"{owner}: {type(policy).__name__} needs {CALLED.get(need, need)}{missing[need]}")


def session_lacks(policy: Policy[Any], context: ContextFn | None, value: ValueFn | None) -> dict[str, str]:
    """What a session with these settings does not provide, for `check_needs`."""
    lacks = {"norms": ", which a session does not have; use it in simulated runs"}
    if context is None:
        lacks["context"] = ": pass context=function"
    if value is None:
        from_updates = ", which the server computes from the updates: pass value=function"
        lacks |= dict.fromkeys(traits(policy).valued, from_updates)
    return lacks
