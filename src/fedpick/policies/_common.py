"""Shared by several policies: equality, available clients, and safe use of reports."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedpick.core.errors import ContractError, SettingError
from fedpick.core.protocol import Policy, check_outcome, traits
from fedpick.core.types import LOSS_LIMIT, Bools, Choice, Clients, Floats, Ints, Outcome, Status, View

EXCUSES = 3  # rounds without news after which a client no longer counts as never tried
Truth = ArrayLike | Callable[[Clients], ArrayLike]  # what an oracle knows: an array, or a function of the clients


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


@dataclass
class CountState:
    """How often each client was chosen."""

    counts: Ints


class CountingPolicy(ByValue):
    """A policy that learns nothing and counts how often each client was chosen."""

    replace = False

    def init(self, clients: Clients) -> CountState:
        """Return the state before the first round."""
        return CountState(np.zeros(len(clients), dtype=np.int64))

    def observe(self, state: CountState, view: View, choice: Choice, outcome: Outcome) -> CountState:
        """Count the chosen clients."""
        check_outcome(view, choice, outcome, replace=self.replace)
        np.add.at(state.counts, choice.ids, 1)
        return CountState(state.counts)


class Wrapper(ByValue):
    """A policy around another, whose state is the field `inner` of its own."""

    policy: Policy[Any]

    @property
    def cohort_size(self) -> int | None:
        """That of the policy inside."""
        return traits(self.policy).cohort_size

    def before_admit(self, state: Any) -> Any:
        """Prepare the state of the policy inside."""
        prepare = getattr(self.policy, "before_admit", None)
        return state if prepare is None else replace(state, inner=prepare(state.inner))


def present(view: View) -> Ints:
    """Indices of the available clients, ascending."""
    return np.flatnonzero(view.available)


def of_all(choice: Choice, seen: View, view: View) -> Choice:
    """The choice of a policy that saw only some of the available clients: the others' chance is 0."""
    inner = getattr(choice, "chances", None)  # what is no Choice is refused where it is asked
    if inner is None:
        return choice

    def chances() -> Floats:
        found = np.zeros(len(view.available))
        found[seen.available] = inner() if callable(inner) else inner
        return found[view.available]

    return choice.with_(chances=chances)


def places(view: View, cohort_size: int) -> tuple[Ints, int]:
    """Indices of the available clients, and the size of a cohort of them."""
    ids = present(view)
    return ids, min(cohort_size, len(ids))


def at_places(view: View, positions: Ints, count: int) -> Ints:
    """The available clients at these positions among the `count` available ones.

    >>> view = View(1, np.array([True, False, True, True]), Clients([1, 1, 1, 1]))
    >>> at_places(view, np.array([0, 2]), 3).tolist()
    [0, 3]
    """
    if 100 * (len(view.clients) - count) > len(view.clients):
        return present(view)[positions]
    away = np.flatnonzero(~view.available)  # where they are few, NumPy finds them sooner than the others
    found: Ints = positions + np.searchsorted(away - np.arange(len(away)), positions, side="right")
    return found


def nobody() -> Choice:
    """The choice when no client is available."""
    none = np.empty(0, dtype=np.int64)
    return Choice(none, inclusion=np.empty(0))


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


def answers(function: Callable[[Ints], ArrayLike], ids: Ints, called: str, what: str) -> Floats:
    """What a function of the view returns for these clients: one loss or length each."""
    found = np.asarray(function(ids), dtype=np.float64)
    if found.shape != ids.shape:
        raise ContractError(f"{called} returned shape {found.shape} for {len(ids)} ids; return one {what} per id")
    return found


def told(outcome: Outcome, values: Floats) -> Bools:
    """Mask of the clients about whose value the round tells something: not of SURPLUS clients that sent none.

    Args:
        outcome: of the round.
        values: `outcome.loss`, `outcome.duration` or a report; NaN: there was none.
    """
    mask: Bools = (outcome.status != Status.SURPLUS) | ~np.isnan(values)
    return mask


def valued(outcome: Outcome) -> tuple[Floats, Bools]:
    """The values of the round's updates, which the server computes, and which of them can be used."""
    values = np.asarray(outcome.reports.get("shapley", np.full(len(outcome), np.nan)), dtype=np.float64)
    return values, outcome.succeeded & valid_losses(values)


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
    """Values of a cohort, where a client that reported nothing usable gets the lowest reported value, or keeps a lower.

    Args:
        values: of each client, what it reported or, if it did not, its last value (not finite: none).
        heard: mask of the clients that reported a possible value.
    """
    known = values[heard] if heard.any() else values[np.isfinite(values)]
    return np.where(heard, values, np.fmin(values, known.min(initial=np.inf) if len(known) else 0.0))
