"""Shared by several policies: equality, checks of settings, available clients, and safe use of reports."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedpick.core.errors import ContractError, SettingError, require
from fedpick.core.types import Bools, Choice, Clients, Floats, Ints, View

Truth = ArrayLike | Callable[[Clients], ArrayLike]  # what an oracle knows: an array, or a function of the clients

LOSS_LIMIT = 1e12  # larger losses are ignored, so that sums and squares cannot overflow


class ByValue:
    """Policies are equal if they have the same class and equal settings; arrays and lists are compared by value."""

    def _settings(self) -> tuple[Any, ...]:
        return tuple(_frozen(getattr(self, entry.name)) for entry in fields(self))  # type: ignore[arg-type]  # every policy is a dataclass

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ByValue) or type(other) is not type(self):
            return NotImplemented
        return self._settings() == other._settings()

    def __hash__(self) -> int:
        return hash((type(self), *map(_hash, self._settings())))


def _frozen(value: Any) -> Any:
    """A setting in a form that == compares by value."""
    if isinstance(value, np.ndarray | list | tuple):
        array = np.asarray(value)
        if array.dtype.kind in "biuf":
            return array.shape, (array.astype(np.float64) + 0.0).tobytes()  # + 0.0: -0.0 is 0.0
    return value


def _hash(value: Any) -> int:
    try:
        return hash(value)
    except TypeError:  # a user's function object may be unhashable; equality still works
        return 0


def wrapped(policy: object) -> Iterator[object]:
    """A policy and those that it wraps, from the outside in."""
    seen: object | None = policy
    while seen is not None:
        yield seen
        seen = getattr(seen, "policy", None)


def with_cohort_size(policy: Any, size: int) -> Any:
    """The same policy with another cohort size, also inside a wrapper; a SettingError if it has none to change."""
    if is_dataclass(policy) and not isinstance(policy, type):
        if any(entry.name == "cohort_size" for entry in fields(policy)):
            return replace(policy, cohort_size=size)
        if getattr(policy, "policy", None) is not None:
            return replace(policy, policy=with_cohort_size(policy.policy, size))  # type: ignore[attr-defined]
    raise SettingError(f"{type(policy).__name__} has no cohort_size to raise; it must be a dataclass with one")


@dataclass
class CountState:
    """How often each client was chosen: the state of policies that learn nothing."""

    counts: Ints


def check_cohort_size(policy: object, size: object) -> None:
    """Raise unless `size` is a whole number >= 1."""
    whole = isinstance(size, int | np.integer) and not isinstance(size, bool)
    require(
        whole and size >= 1,  # type: ignore[operator]
        f"{type(policy).__name__}: cohort_size",
        size,
        "a whole number >= 1",
        "it is the number of clients that train in a round",
    )


def check_number(
    policy: object, name: str, value: object, low: float, high: float = np.inf, *, open: bool = False
) -> None:
    """Raise unless `value` is a number in [low, high], or in (low, high] if `open`."""
    number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    inside = number and (low < value if open else low <= value) and value <= high  # type: ignore[operator]
    bound = f"a number {'>' if open else '>='} {low:g}" + (f" and <= {high:g}" if np.isfinite(high) else "")
    finite = bool(inside) and bool(np.isfinite(value))  # type: ignore[call-overload]
    require(finite, f"{type(policy).__name__}: {name}", value, bound + ("" if not inside else ", and finite"))


def check_whole(policy: object, name: str, value: object, low: int) -> None:
    """Raise unless `value` is a whole number >= low."""
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    require(whole and value >= low, f"{type(policy).__name__}: {name}", value, f"a whole number >= {low}")  # type: ignore[operator]


def check_times(policy: object, tau_min: object, tau_max: object) -> None:
    """Raise unless 0 < tau_min < tau_max, as far as they are given."""
    for name, value in (("tau_min", tau_min), ("tau_max", tau_max)):
        if value is not None:
            check_number(policy, name, value, 0.0, open=True)
    if tau_min is not None and tau_max is not None:
        ordered = tau_min < tau_max  # type: ignore[operator]
        require(ordered, f"{type(policy).__name__}: tau_min", tau_min, f"< tau_max = {tau_max}")


def present(view: View) -> Ints:
    """Indices of the available clients, ascending."""
    return np.flatnonzero(view.available)


def nobody() -> Choice:
    """The choice when no client is available."""
    none = np.empty(0, dtype=np.int64)
    return Choice(none, inclusion=np.empty(0))


def counted(state: CountState, ids: Ints) -> CountState:
    """Add 1 to the counts for each occurrence in `ids`."""
    np.add.at(state.counts, ids, 1)
    return CountState(state.counts)


def truth(policy: object, name: str, given: Truth, clients: Clients, ndim: int = 1) -> Floats:
    """The truth given to an oracle, as an array with one row per client."""
    array = np.array(given(clients) if callable(given) else given, dtype=np.float64)  # the state owns its arrays
    if array.ndim == 0:
        array = np.full(len(clients), float(array))
    what = f"{type(policy).__name__}: {name}"
    if array.ndim != ndim or len(array) != len(clients):
        raise ContractError(
            f"{what} has shape {array.shape}, but needs {ndim} axes and a row for each of {len(clients)} clients; "
            "to enrol clients later, give a function of fp.Clients instead of an array"
        )
    if not np.isfinite(array).all():
        raise SettingError(f"{what} holds NaN or infinity, but must be finite")
    return array


def valid_losses(losses: Floats) -> Bools:
    """Mask of plausible losses: finite and at most LOSS_LIMIT."""
    with np.errstate(invalid="ignore"):
        mask: Bools = np.abs(losses) <= LOSS_LIMIT
    return mask


def clip_losses(losses: Floats, quantile: float | None) -> Floats:
    """Losses limited to this quantile of the finite ones, so that a false huge loss only ties with the highest."""
    finite = losses[np.isfinite(losses)]
    if quantile is None or not len(finite):
        return losses
    limit = np.quantile(finite, quantile)
    return np.where(np.isfinite(losses), np.minimum(losses, limit), losses)


def unheard_lowest(values: Floats, heard: Bools) -> Floats:
    """Values of a cohort in which those not heard have no more than the lowest heard, nor more than they had.

    Args:
        values: one each: of those heard, what they reported; of the others, what was known (not finite: nothing).
        heard: mask of those that reported something that can be true.
    """
    known = values[heard] if heard.any() else values[np.isfinite(values)]
    return np.where(heard, values, np.fmin(values, known.min(initial=np.inf) if len(known) else 0.0))
