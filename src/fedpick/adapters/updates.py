"""Updates of a framework's clients: checked before they are aggregated, and as changes of the model that was sent.

An update consists of arrays and metrics by name; a client whose update cannot be aggregated has failed. Values that are
not NumPy arrays (encrypted, or in a user's format) are not checked.
"""

import math
import reprlib
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedpick.core.types import Status
from fedpick.server.models import Arrays
from fedpick.server.validation import LARGEST_SIZE, SECONDS, loss_of, number, printable, size_or

__all__ = ["Arrays", "Update", "agree", "moves", "onto"]

MOST_METRICS = 1_000  # names
LONGEST_LIST = 1_000_000  # numbers in one of them


@dataclass
class Update:
    """The contents of an update; `why` says why it cannot be used, "" if it can."""

    why: str = ""
    loss: float | None = None
    seconds: float = math.nan
    reports: dict[str, Any] = field(default_factory=dict)
    size: float = 1.0  # examples, or another number by which it counts in a mean
    shape: Hashable = None  # names, shapes and types; updates that are aggregated must have the same
    like_sent: bool = False  # whether its arrays have the names of the model that was sent
    moves: Arrays = field(default_factory=dict)  # what training added to the model, where late updates are used
    source: Any = None  # the framework's object, where it is still needed
    status: Status | None = None  # in its round, once it is taken

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Read the update in this block; if that fails it cannot be used: clients may send anything."""
        try:
            yield
        except Exception as error:
            self.why = self.why or f"unreadable: {type(error).__name__}: {error}"
        self.why = printable(self.why)

    def check(
        self,
        arrays: Mapping[str, Mapping[str, Any]],
        metrics: Mapping[str, Mapping[str, Any]],
        model: Mapping[str, Any] | None,
        weight: str | None,
        compare: str,
    ) -> None:
        """Find out whether the update can be aggregated, and what must be equal in all that are.

        Args:
            arrays, metrics: in one or more records, by name.
            model: that was sent; None: none was.
            weight: name of the metric that weights the average of the updates; None: there is none.
            compare: what must be as in the model: "all" is the arrays' names, order and shapes, "shapes" the shapes of
                those that are in both, "nothing" nothing.
        """
        like = None if compare == "nothing" else model
        faults = [(key, *_arrays_fault(each, like, whole=compare == "all")) for key, each in arrays.items()]
        faults += [(key, *_metrics_fault(each, weight)) for key, each in metrics.items()]
        self.why = self.why or next((wrong for _, _, wrong in faults if wrong), "")
        self.shape = tuple((key, shape) for key, shape, _ in faults)
        self.like_sent = model is not None and all(set(each) == set(model) for each in arrays.values())

    def read_metrics(
        self, metrics: Mapping[str, Any], names: Iterable[str], weight: str | None = None, finite: bool = False
    ) -> None:
        """Read loss, seconds, the reports of these names, and the size (the metric `weight`) from a client's metrics.

        If `finite`, all metrics must be finite, because their mean is taken.
        """
        bad = next((name for name, value in metrics.items() if finite and not np.isfinite(value).all()), None)
        self.why = self.why or ("" if bad is None else f"metric {bad!r} is NaN or infinite")
        self.loss, wrong = loss_of(metrics)
        self.why, self.seconds = self.why or wrong, number(metrics.get(SECONDS))
        self.reports = {name: metrics[name] for name in names if name in metrics}
        if weight is not None:
            self.size = size_or(metrics.get(weight))


def _array_fault(name: str, values: Any, model: Any = None) -> str:
    """Why a client's array cannot take the place of the model's; "" if it can. None: there is none to compare with."""
    kind = values.dtype.kind
    if kind not in "biufc":
        return f"array {name!r} of type {values.dtype}"
    if model is not None:
        # Integer and float may differ: a mean turns integers into floats, and clients send integers back. `agree`
        # compares the types of the updates with each other.
        was, shape = np.dtype(model.dtype), tuple(model.shape)
        if kind == "c" != was.kind:
            return f"array {name!r} of type {values.dtype} instead of {was}"
        serialised = was == np.uint8 and len(shape) == values.ndim == 1  # a serialised tree model has any length
        if values.shape != shape and not serialised:
            return f"array {name!r} of shape {values.shape} instead of {shape}"
    return f"NaN or infinity in array {name!r}" if kind in "fc" and not np.isfinite(values).all() else ""


def _arrays_fault(arrays: Mapping[str, Any], model: Mapping[str, Any] | None, whole: bool) -> tuple[Hashable, str]:
    """(what must be equal in all aggregated updates, what is wrong with these arrays beside the model's).

    If `whole`, they must be all arrays of the model, in its order. Without a model nothing is compared.
    """
    if model and whole and set(arrays) != set(model):
        return None, f"arrays {_few(arrays)} instead of the model's {_few(model)}"
    if model and whole and list(arrays) != list(model):  # some aggregators rely on the order
        return None, "its arrays are in a different order than the model's"
    shapes: list[Hashable] = []
    for name, values in arrays.items():
        if not isinstance(values, np.ndarray):
            shapes.append(name)
            continue
        if wrong := _array_fault(name, values, model.get(name) if model else None):
            return None, wrong
        length = () if values.dtype == np.uint8 and values.ndim == 1 else values.shape
        shapes.append((name, values.dtype.str, length))
    return tuple(shapes), ""


def _few(names: Iterable[str]) -> str:
    names = list(names)
    return ", ".join(f"{name[:40]!r}" for name in names[:3]) + (", ..." if len(names) > 3 else "")


def _metrics_fault(metrics: Mapping[str, Any], weight: str | None) -> tuple[Hashable, str]:
    """(what must be equal in all aggregated updates, what is wrong with these metrics); `weight` as in `check`."""
    if len(metrics) > MOST_METRICS:
        return None, f"{len(metrics)} metrics, but at most {MOST_METRICS} are read"
    lengths = {name: len(value) if isinstance(value, list) else -1 for name, value in metrics.items()}
    for name, length in lengths.items():
        if length > LONGEST_LIST:
            return None, f"metric {name[:40]!r} has {length} numbers, but at most {LONGEST_LIST} are read"
    if weight is not None and not 0 < number(metrics.get(weight)) <= LARGEST_SIZE:
        shown = printable(reprlib.repr(metrics.get(weight)))
        return None, f"metric {weight!r} is {shown}, but must be a number > 0, at most {LARGEST_SIZE:g}"
    return frozenset(lengths.items()), ""


def agree(updates: Collection[Update], usual: Hashable = None) -> Hashable:
    """Mark updates as unusable whose names, shapes or types differ from those of most others.

    Returns what the others have in common. Ties are decided by `usual` (the last round's result), then by likeness to
    the model.
    """
    usable = [each for each in updates if not each.why]
    votes = Counter(each.shape for each in usable)
    if not votes:
        return usual
    like = {each.shape for each in usable if each.like_sent}
    best = max(votes, key=lambda shape: (votes[shape], shape == usual, shape in like))
    for each in usable:
        if each.shape != best:
            each.why = "its records have different names, shapes or types than those of most clients in this round"
    return best


def moves(trained: Arrays | Mapping[str, Any], sent: Mapping[str, Any], whole: bool = True) -> Arrays:
    """What training added to each array of the model; those that are not two NumPy arrays of one shape are left out.

    If not `whole`, `trained` is not a model but such changes already.
    """
    if not whole:
        return dict(trained)
    found: Arrays = {}
    for name, new in trained.items():
        old = sent.get(name)
        if isinstance(new, np.ndarray) and isinstance(old, np.ndarray) and new.shape == old.shape:
            # Truth values cannot be subtracted, and unsigned numbers have no negative changes.
            found[name] = np.subtract(new, old, dtype=np.result_type(new, old, np.int8))
    return found


def onto(model: Mapping[str, Any], moved: Arrays, times: float = 1.0, whole: bool = True) -> Arrays:
    """The model's arrays plus the changes times the factor; floats keep the model's type.

    If not `whole`, the changes times the factor alone.

    >>> onto({"w": np.array([1.0, 2.0])}, {"w": np.array([0.5, -1.0])}, 2.0)["w"].tolist()
    [2.0, 0.0]
    """
    if not whole:
        return {name: times * move for name, move in moved.items()}
    found: Arrays = {}
    for name, move in moved.items():
        old = np.asarray(model[name])
        new = old + (move if times == 1.0 else times * move)
        found[name] = new.astype(old.dtype) if old.dtype.kind == "f" else new
    return found
