"""Types of a session's settings."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict

from numpy.typing import ArrayLike

from fedpick.types import Bools, Clients, Floats

__all__ = ["ContextFn", "Describe", "Options", "ProbeFn", "ValueFn"]

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
    checkpoint_every: int
    forget_after: int | None
    most_clients: int | None
    seed: int
