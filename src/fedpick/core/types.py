"""The data that policies get and return: Clients, View, Choice, Outcome, Status.

All consist of NumPy arrays, whose shapes are checked on creation. They are plain data: a world, a Flower server or a
test can make them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedpick.core.errors import ContractError

__all__ = [
    "LOSS_LIMIT",
    "Bools",
    "Choice",
    "Clients",
    "Floats",
    "Ints",
    "Outcome",
    "Probe",
    "Status",
    "Updates",
    "View",
]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

Chances = Floats | float | Callable[[], Floats] | None

LOSS_LIMIT = 1e12  # larger losses are ignored, so that sums and squares cannot overflow


class Status(IntEnum):
    """How a chosen client's round ended."""

    DONE = 0  # answered in time, its update is used
    LATE = 1  # did not answer by the deadline; its update is dropped, or with `late=` used in a later round
    FAILED = 2  # never answered, or answered something unusable
    SURPLUS = 3  # enough others had answered: not used, and no failure; it may have answered since, or still be working


_FIRST, _LAST = int(min(Status)), int(max(Status))  # computed once: min(Status) takes longer than all of an Outcome
_DONE, _SURPLUS = int(Status.DONE), int(Status.SURPLUS)  # NumPy takes longer with an enum


class Probe(Protocol):
    """Asks clients for the loss of the current model on their data; costs time and messages."""

    def __call__(self, ids: Ints, /, *, batch: int | None = None) -> ArrayLike:
        """Return one loss per id: on all of the client's data, or on one mini-batch of `batch` examples."""
        ...


def _floats(what: str, values: ArrayLike, ndim: int) -> Floats:
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ContractError(f"{what} must be numbers: {error}") from None
    if array.ndim != ndim:
        raise ContractError(f"{what} has {array.ndim} axes (shape {array.shape}), but must have {ndim}")
    return array


def _same_length(what: str, array: NDArray[Any], length: int, of: str) -> None:
    if len(array) != length:
        raise ContractError(f"{what} has length {len(array)}, but there are {length} {of}: they must be aligned")


@dataclass(frozen=True, eq=False, init=False)
class Clients:
    """What is known about the K enrolled clients: arrays whose first axis is the client.

    Args:
        sizes: number of examples of each client, > 0.
        labels: (K, L) label counts; worlds, oracles and policies with `needs = ("labels",)` read them.
        features: (K, F) vectors that describe each client's data; FedGS reads them.

    >>> len(Clients(sizes=[50, 120, 80]))
    3
    """

    sizes: Floats
    labels: Floats | None = None
    features: Floats | None = None

    def __init__(self, sizes: ArrayLike, labels: ArrayLike | None = None, features: ArrayLike | None = None) -> None:
        size = _floats("Clients.sizes", sizes, 1)
        bad = np.flatnonzero(~(np.isfinite(size) & (size > 0)))
        if len(bad):
            raise ContractError(
                f"Clients.sizes[{bad[0]}] = {size[bad[0]]}, but sizes must be finite and > 0; "
                "leave clients without data out, or use 1 if the size is unknown"
            )
        object.__setattr__(self, "sizes", size)
        for name, values in (("labels", labels), ("features", features)):
            array = None if values is None else _floats(f"Clients.{name}", values, 2)
            if array is not None:
                _same_length(f"Clients.{name}", array, len(size), "clients")
                if not np.isfinite(array).all():
                    raise ContractError(f"Clients.{name} holds NaN or infinity, but must be finite")
            object.__setattr__(self, name, array)

    def __len__(self) -> int:
        return len(self.sizes)

    def take(self, index: ArrayLike) -> "Clients":
        """The clients at these positions (indices, or a mask of those to keep)."""
        at = np.asarray(index)
        return Clients(
            self.sizes[at],
            None if self.labels is None else self.labels[at],
            None if self.features is None else self.features[at],
        )

    def join(self, others: "Clients") -> "Clients":
        """These clients followed by others; labels and features must be in both or in neither."""
        if not len(self) or not len(others):
            return self if len(self) else others

        def both(what: str) -> Floats | None:
            a, b = getattr(self, what), getattr(others, what)
            if a is None and b is None:
                return None
            if a is None or b is None:
                has, lacks = ("these clients", "the others") if b is None else ("the others", "these clients")
                raise ContractError(
                    f"{has} have {what} and {lacks} have none, so they cannot be joined; give all of them {what}, or "
                    "leave them out of both"
                )
            if a.shape[1] != b.shape[1]:
                raise ContractError(
                    f"these clients have {a.shape[1]} columns of {what} and the others {b.shape[1]}, but must have the "
                    "same number to be joined"
                )
            return np.concatenate([a, b])

        return Clients(np.concatenate([self.sizes, others.sizes]), both("labels"), both("features"))


@dataclass(frozen=True, eq=False)
class View:
    """What the server may know before it chooses.

    Args:
        round: number of the round, from 1.
        available: mask of length K, True for clients that may be chosen now.
        clients: the K enrolled clients.
        context: (K, d) array with the quantities that predict each client's time; RBCSF reads it.
        probe: asks clients for their loss; Power-of-Choice calls it.
        norms: lets clients train, and returns the Euclidean length of each one's update, NaN for those that failed;
            only these clients can then be chosen, and send the update that they have. OptimalSampling calls it once.
        there: mask of the clients that are there, also those that may not be chosen now: they are busy, or a wrapper
            lets them pause. A policy that learns who is there how often reads this. None: those available.
        busy: mask of the clients that still work on an earlier task. None: nobody.
        held: mask of the clients whose update has come and is not used yet, or of whose last task the policy has not
            been told. None: nobody.
        wanted: how many clients are to be asked now; None: as many as the policy chooses.
        version: of the model, the number of its changes so far; None: one for each earlier round.
        ended: without rounds, the clients of the tasks that have ended since the model moved, each as often as it had
            tasks; in `observe` those of which the policy learns, in several calls if a client is among them twice.
            None: in rounds.

    >>> view = View(1, np.array([True, False]), Clients([10, 20]), there=np.array([True, True]))
    >>> view.there.tolist(), view.busy.tolist(), view.version
    ([True, True], [False, False], 0)
    """

    round: int
    available: Bools
    clients: Clients
    context: Floats | None = None
    probe: Probe | None = None
    norms: Callable[[Ints], ArrayLike] | None = None
    there: Bools = None  # type: ignore[assignment]
    busy: Bools = None  # type: ignore[assignment]
    held: Bools = None  # type: ignore[assignment]
    wanted: int | None = None
    version: int = None  # type: ignore[assignment]
    ended: Ints | None = None

    def __post_init__(self) -> None:
        if self.round < 1:
            raise ContractError(f"View.round = {self.round}, but rounds start at 1")
        self._set_mask("available", self.available)
        if self.there is None:
            object.__setattr__(self, "there", self.available)
        else:
            self._set_mask("there", self.there)
        for name in ("busy", "held"):
            if getattr(self, name) is None:
                object.__setattr__(self, name, _nobody(len(self.clients)))
            else:
                self._set_mask(name, getattr(self, name))
        if self.version is None:
            object.__setattr__(self, "version", self.round - 1)
        if self.context is not None:
            context = _floats("View.context", self.context, 2)
            _same_length("View.context", context, len(self.clients), "clients")
            object.__setattr__(self, "context", context)

    def _set_mask(self, name: str, values: Bools) -> None:
        mask = np.asarray(values)
        if mask.dtype != np.bool_ or mask.ndim != 1:
            raise ContractError(
                f"View.{name} is {mask.dtype} of shape {mask.shape}, but must be a boolean mask with one entry per "
                "client; from indices, use np.isin(np.arange(K), ids)"
            )
        _same_length(f"View.{name}", mask, len(self.clients), "clients")
        object.__setattr__(self, name, mask)


@lru_cache(maxsize=4)
def _nobody(count: int) -> Bools:
    """A mask of so many clients that holds none; it takes no memory, and cannot be written to."""
    return np.broadcast_to(np.False_, count)


@dataclass(frozen=True, eq=False, init=False)
class Choice:
    """The clients that train in this round.

    Args:
        ids: indices of the chosen clients; empty if none is available.
        inclusion: P(client is in the cohort) given the state, aligned with `ids`; the expected count if the policy
            draws with replacement; None if it is not known.
        weights: aggregation weight of each chosen client, aligned with `ids`; None leaves them to the aggregator.
        normalise: whether the weights are relative: the aggregator divides them by their sum over the clients that
            returned. False: they are used as they are, and the model changes by the sum of weight times update, as
            unbiased methods need it (the weights of a full round, n_k over all examples, sum to 1).
        probed: losses that `view.probe` returned while the policy chose, for all K clients and NaN for those not asked;
            `observe` can learn from them. None: it does not.
        chances: P(client is chosen) given the state, of every available client in ascending order; one number if it is
            the same for all, or a function that returns them; the expected count if the policy draws with replacement.
            For the records. None: it is not known.
        most: largest weight of an update as a multiple of the median of the cohort, where weights are left to the
            aggregator; None: no limit.
        kept: numbers that the policy keeps with each client's task, by name and aligned with `ids`; `observe` gets them
            back, also if other clients were asked in between. None: none.
        copies: how often each client was drawn, where a policy draws with replacement; set when the choice is asked
            (`fedpick.engine`), so that each client is in it once. None: once each.

    >>> len(Choice([4, 7]))
    2
    """

    ids: Ints
    inclusion: Floats | None = None
    weights: Floats | None = None
    normalise: bool = True
    probed: Floats | None = None
    chances: Chances = None
    most: float | None = None
    copies: Ints | None = None
    kept: Mapping[str, Floats] | None = None

    def __init__(
        self,
        ids: ArrayLike,
        inclusion: ArrayLike | None = None,
        weights: ArrayLike | None = None,
        *,
        normalise: bool = True,
        probed: ArrayLike | None = None,
        chances: Chances = None,
        most: float | None = None,
        copies: Ints | None = None,
        kept: Mapping[str, ArrayLike] | None = None,
    ) -> None:
        index = np.asarray(ids)
        if index.ndim != 1 or (len(index) and index.dtype.kind not in "iu"):
            fix = "; write ids.astype(int) if they are whole numbers" if index.dtype.kind == "f" else ""
            raise ContractError(
                f"Choice.ids is {index.dtype} of shape {index.shape}, but must be a 1-d integer array" + fix
            )
        object.__setattr__(self, "ids", index.astype(np.int64, copy=False))
        for name, values in (("inclusion", inclusion), ("weights", weights)):
            array = None if values is None else _floats(f"Choice.{name}", values, 1)
            if array is not None:
                _same_length(f"Choice.{name}", array, len(index), "chosen clients")
                if not np.all(array >= 0):  # a NaN is not >= 0 either
                    raise ContractError(f"Choice.{name} holds a negative number or NaN; use None if it is unknown")
            object.__setattr__(self, name, array)
        if weights is None and not normalise:
            raise ContractError("Choice.normalise is False, but there are no weights to use as they are; give weights")
        object.__setattr__(self, "normalise", bool(normalise))
        object.__setattr__(self, "probed", None if probed is None else _floats("Choice.probed", probed, 1))
        object.__setattr__(self, "chances", chances)
        object.__setattr__(self, "most", most)
        object.__setattr__(self, "copies", copies)
        each = {name: _floats(f"Choice.kept[{name!r}]", values, 1) for name, values in (kept or {}).items()}
        for name, array in each.items():
            _same_length(f"Choice.kept[{name!r}]", array, len(index), "chosen clients")
        object.__setattr__(self, "kept", each or None)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def times(self) -> Ints:
        """How often each client was drawn: `copies`, or once each."""
        return np.ones(len(self), dtype=np.int64) if self.copies is None else self.copies

    def take(self, index: ArrayLike) -> "Choice":
        """The part of the choice at these positions (indices, or a mask)."""
        at = np.asarray(index)
        parts = {name: getattr(self, name) for name in ("inclusion", "weights", "copies")}
        kept = None if self.kept is None else {name: values[at] for name, values in self.kept.items()}
        return self.with_(
            ids=self.ids[at], kept=kept, **{name: None if part is None else part[at] for name, part in parts.items()}
        )

    def with_(self, **changes: Any) -> "Choice":
        """The choice with other values in some fields."""
        return Choice(**{**vars(self), **changes})

    def shares(self, returned: Bools) -> Floats | None:
        """The factor of each client's update in the model's change, 0 for clients that did not return.

        Args:
            returned: mask of the clients whose updates are used, aligned with `ids`.

        >>> Choice([4, 7, 9], weights=[1, 2, 3]).shares(np.array([True, False, True])).tolist()
        [0.25, 0.0, 0.75]
        """
        if self.weights is None:
            return None
        held: Floats = np.where(returned, self.weights, 0.0)
        return held / max(held.sum(), np.finfo(np.float64).tiny) if self.normalise else held  # all may be 0


@dataclass(frozen=True, eq=False, init=False)
class Outcome:
    """How the round ended for each chosen client: arrays aligned with `choice.ids`.

    Numbers that clients report (durations, losses, reports) may be anything, including NaN and infinity; policies
    tolerate them. Shapes and statuses come from the server, and are checked.

    Args:
        status: one `Status` per chosen client.
        duration: seconds from sending the model to the answer; NaN if there was none.
        loss: the client's mean local training loss; NaN if there was none.
        reports: further arrays by name ("embedding", "update_norm", ...), with one entry per chosen client.
    """

    status: NDArray[np.int8]
    duration: Floats
    loss: Floats
    reports: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    def __init__(
        self,
        status: ArrayLike,
        duration: ArrayLike,
        loss: ArrayLike,
        reports: Mapping[str, ArrayLike] | None = None,
    ) -> None:
        codes = np.asarray(status)
        if codes.ndim != 1 or (len(codes) and codes.dtype.kind not in "iu"):
            raise ContractError(
                f"Outcome.status is {codes.dtype} of shape {codes.shape}, but must be a 1-d array of fp.Status"
            )
        if len(codes) and (codes.min() < _FIRST or codes.max() > _LAST):
            unknown = codes[(codes < _FIRST) | (codes > _LAST)]
            names = ", ".join(f"{s.name}={s.value}" for s in Status)
            raise ContractError(f"Outcome.status holds {int(unknown[0])}, but there are only {names}")
        object.__setattr__(self, "status", codes.astype(np.int8, copy=False))
        for name, values in (("duration", duration), ("loss", loss)):
            array = _floats(f"Outcome.{name}", values, 1)
            _same_length(f"Outcome.{name}", array, len(codes), "statuses")
            object.__setattr__(self, name, array)
        arrays = {name: np.asarray(values) for name, values in (reports or {}).items()}
        for name, report in arrays.items():
            if report.ndim == 0:
                raise ContractError(f"Outcome.reports[{name!r}] is a scalar, but must have one entry per chosen client")
            _same_length(f"Outcome.reports[{name!r}]", report, len(codes), "statuses")
        object.__setattr__(self, "reports", arrays)

    def __len__(self) -> int:
        return len(self.status)

    @property
    def succeeded(self) -> Bools:
        """Mask of the clients that did not fail (DONE or SURPLUS); about those not `known`, nothing was learned."""
        mask: Bools = (self.status == _DONE) | (self.status == _SURPLUS)
        return mask

    @property
    def known(self) -> Bools:
        """Mask of the clients about which the round tells something: all but SURPLUS clients that had not answered.

        Such a client was still working when the round was closed, because enough others had answered. It has neither
        duration nor loss, which is no news: neither a success nor a failure.

        >>> Outcome([Status.DONE, Status.SURPLUS, Status.SURPLUS], [1.0, 2.0, np.nan], [0.5, np.nan, np.nan]).known
        array([ True,  True, False])
        """
        mask: Bools = self.status != _SURPLUS
        return mask if mask.all() else mask | ~(np.isnan(self.duration) & np.isnan(self.loss))


@dataclass(frozen=True, eq=False)
class Updates:
    """Results of local training, aligned with the chosen clients (NaN for those that did not train).

    Args:
        loss: mean local training loss; if it is not finite, the update is not used.
        reports: further arrays by name, for the policy.
        payload: the updates themselves, in any form that the trainer's `aggregate` reads.
        valid: mask of usable updates, for updates that contain NaN although their loss is finite; None: all.
    """

    loss: Floats
    reports: Mapping[str, Any] = field(default_factory=dict)
    payload: Any = None
    valid: Bools | None = None
