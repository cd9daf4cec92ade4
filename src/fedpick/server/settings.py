"""Types of a session's settings, and whether they are enough for a policy."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict

from numpy.typing import ArrayLike

from fedpick.errors import MissingError
from fedpick.protocol import Policy, traits
from fedpick.types import Bools, Clients, Floats

__all__ = ["ContextFn", "Describe", "Options", "ProbeFn", "ValueFn", "check_needs"]

# (round, names of all K enrolled clients, mask of those that did not take part in the last round) -> (K, d) array
ContextFn = Callable[[int, Sequence[str], Bools], Floats]
Describe = Callable[[Sequence[str]], Clients]  # names of newcomers -> their sizes and features
ProbeFn = Callable[[list[str], int | None], ArrayLike]  # (names, examples to use or None for all) -> losses
ValueFn = Callable[[Mapping[str, Any]], Mapping[str, float]]  # updates to aggregate, by name -> what each is worth


class Options(TypedDict, total=False):
    """Settings of a session that an adapter passes on."""

    state: str | os.PathLike[str] | None
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


def check_needs(policy: Policy[Any], context: ContextFn | None, value: ValueFn | None, owner: str) -> None:
    """Raise unless a session with these settings gives the policy all that it needs."""
    about = traits(policy)
    if "context" in about.needs and context is None:
        raise MissingError(f"{owner}: {type(policy).__name__} needs a context: pass context=function")
    if (valued := about.valued & about.needs) and value is None:
        raise MissingError(
            f"{owner}: {type(policy).__name__} needs {', '.join(sorted(valued))}, which the server computes from "
            "the updates: pass value=function"
        )
    if "norms" in about.needs:
        raise MissingError(
            f"{owner}: {type(policy).__name__} needs rounds in two phases (all train and tell the length of their "
            "update, some send it), which a session does not have; use it in simulated runs"
        )
