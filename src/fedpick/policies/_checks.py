"""Checks of a policy's settings, by their names: a SettingError gives the value and the bound.

A setting may be None if that is its default.
"""

from collections.abc import Collection, Iterator
from typing import Any

import numpy as np

from fedpick.core.errors import require, unknown_name

__all__ = ["cohort_size", "few", "number", "one_of", "times", "whole", "whole_number"]


def _given(policy: object, names: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    """What to call each of these settings, and its value."""
    for name in names:
        value = getattr(policy, name)
        if value is not None or getattr(type(policy), name, 0) is not None:
            yield f"{type(policy).__name__}: {name}", value


def cohort_size(policy: Any) -> None:
    """Raise unless `cohort_size` is a whole number >= 1."""
    meaning = "it is the number of clients that train in a round"
    whole_number(f"{type(policy).__name__}: cohort_size", policy.cohort_size, 1, meaning)


def number(policy: object, *names: str, low: float, high: float = np.inf, open: bool = False) -> None:
    """Raise unless each is a finite number in [low, high], or in (low, high] if `open`."""
    bound = f"a number {'>' if open else '>='} {low:g}" + (f" and <= {high:g}" if np.isfinite(high) else "")
    for what, value in _given(policy, names):
        known = isinstance(value, int | float | np.number) and not isinstance(value, bool)
        inside = known and (low < value if open else low <= value) and value <= high
        require(inside and bool(np.isfinite(value)), what, value, bound + ("" if not inside else ", and finite"))


def whole(policy: object, *names: str, low: int) -> None:
    """Raise unless each is a whole number >= low."""
    for what, value in _given(policy, names):
        whole_number(what, value, low)


def whole_number(what: str, value: Any, low: int, meaning: str = "") -> None:
    """Raise unless the value is a whole number >= low."""
    known = isinstance(value, int | np.integer) and not isinstance(value, bool)
    require(known and value >= low, what, value, f"a whole number >= {low}", meaning)


def one_of(policy: object, name: str, allowed: Collection[str], called: str = "") -> None:
    """Raise unless the setting is one of the allowed names."""
    if (value := getattr(policy, name)) not in allowed:
        raise unknown_name(f"{called or name} of {type(policy).__name__}", value, list(allowed))


def times(policy: Any) -> None:
    """Raise unless 0 < tau_min < tau_max, as far as they are given."""
    number(policy, "tau_min", "tau_max", low=0.0, open=True)
    low, high = policy.tau_min, policy.tau_max
    ordered = low is None or high is None or low < high
    require(ordered, f"{type(policy).__name__}: tau_min", low, f"< tau_max = {high}")


def few(policy: object, what: str, count: int, most: int, instead: str) -> None:
    """Raise if there are more clients than a policy can compare with one another."""
    require(count <= most, f"{type(policy).__name__}: {what}", count, f"at most {most}", instead)
