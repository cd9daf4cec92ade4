"""Validate the values that clients send: numbers, losses, reports, descriptions of themselves.

Nothing here raises because of a value that a client sent: an invalid one becomes NaN, None, or a text that says what
is wrong.
"""

import logging
import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpick.core import errors
from fedpick.core.errors import MissingError
from fedpick.core.types import Clients, Floats
from fedpick.engine.cohort import possible

__all__ = [
    *("LARGEST_SIZE", "LOSSES", "SECONDS", "loss_of", "newcomers", "number", "printable", "report"),
    *("size_or", "table"),
]

LOSSES = ("train_loss", "loss", "train-loss")  # names of the metric; the first one present is used
SECONDS = "seconds"  # name of the metric
LONGEST_REPORT = 100_000  # numbers in one report
MOST_FEATURES = 10_000
LARGEST_SIZE = 1e15  # examples


def number(value: Any) -> float:
    """The value if it is a number, else NaN."""
    if type(value) is float:  # nearly always
        return value
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        return math.nan
    try:
        return float(value)
    except OverflowError:  # an int beyond 1e308
        return math.inf if value > 0 else -math.inf


def size_or(value: Any, default: float = 1.0) -> float:
    """A number of examples that a client reports; the default if it is missing or impossible."""
    size = number(value)
    return size if 0.0 < size <= LARGEST_SIZE else default


def printable(text: object) -> str:
    """A client's text, shortened and on one line, for logs.

    >>> printable("first line\\n\\x1b[2J")
    'first line  [2J'
    """
    try:
        shown = str(text)
    except Exception:  # lists nested too deep, an integer of 5,000 digits
        shown = f"a value of type {type(text).__name__}"
    return errors.printable(shown[:300], instead=" ")


def loss_of(metrics: Mapping[str, Any]) -> tuple[float | None, str]:
    """(loss or None if there is none, what is wrong with it or "") from a client's metrics."""
    for name in LOSSES:
        if name in metrics and not isinstance(metrics[name], list):
            loss = number(metrics[name])
            return loss, "" if possible(loss) else f"metric {name!r} is {printable(metrics[name])[:40]}"
    return None, ""


def _entries(value: Any, longest: int) -> list[float] | None:
    """A vector as a list of numbers; None if it is not a vector, or too long."""
    if isinstance(value, np.ndarray):
        value = value.tolist() if value.ndim == 1 and value.dtype.kind in "iuf" and len(value) <= longest else None
    if not isinstance(value, list | tuple) or len(value) > longest:
        return None
    return [number(entry) for entry in value]


def report(value: Any) -> float | list[float] | None:
    """A report as a number or a list of numbers; None if it is neither."""
    if value is None or isinstance(value, list | tuple | np.ndarray):
        return _entries(value, LONGEST_REPORT)
    return number(value)


def table(values: Sequence[float | list[float] | None], width: int | None) -> tuple[Floats | None, int | None]:
    """One report of all chosen clients as an array: a number per client (width 0), or a row per client.

    `width` is that of earlier rounds; None takes the most frequent one. Reports of another width become NaN.
    """
    if width is None:
        widths = Counter(len(v) if isinstance(v, list) else 0 for v in values if v is not None and v != [])
        if not widths:
            return None, None
        width, agreed = widths.most_common(1)[0]
        if agreed < 2:  # one client alone must not fix the width for all rounds to come
            return None, None
    out = np.full(len(values) if width == 0 else (len(values), width), np.nan)
    for at, value in enumerate(values):
        if value is not None and (len(value) if isinstance(value, list) else 0) == width and value != []:
            out[at] = value
    return out, width


def _description(value: Any) -> tuple[float, dict[str, list[float]]]:
    """Size of a newcomer, and its features and labels; 1 and nothing where they are missing or invalid."""
    given: dict[str, Any] = {}
    if isinstance(value, Mapping):
        size, given = value.get("size"), {name: value.get(name) for name in _DESCRIBED}
    elif isinstance(value, tuple) and len(value) == 2:
        size, given = value[0], {"features": value[1]}
    else:
        size = value
    vectors = {name: _entries(vector, MOST_FEATURES) for name, vector in given.items()}
    return size_or(size), {
        name: vector
        for name, vector in vectors.items()
        if vector and all(map(math.isfinite, vector)) and (name != "labels" or 0.0 <= min(vector) <= sum(vector) < 1e12)
    }


_DESCRIBED = {  # what clients may tell of their data -> how
    "features": "return (size, features)",
    "labels": 'return {"size": ..., "labels": [number of examples of each label]}',
}


def newcomers(values: Sequence[Any], enrolled: Clients | None, needs: Collection[str], log: logging.Logger) -> Clients:
    """The newcomers' descriptions (see `Session.round`) as fp.Clients; unknown features or labels are a row of zeros.

    All must have as many features (and labels) as the enrolled clients, the first ones as most of them have; those of
    another length are ignored with a warning. If the policy needs them and there are none, it is an error.
    """
    found = [_description(value) for value in values]
    tables = {
        name: _table([each.get(name) for _, each in found], enrolled, name, name in needs, log) for name in _DESCRIBED
    }
    return Clients([size for size, _ in found], **tables)


def _table(
    vectors: Sequence[list[float] | None], enrolled: Clients | None, name: str, need: bool, log: logging.Logger
) -> NDArray[np.float64] | None:
    """The newcomers' features or labels, a row for each; None if nobody has any."""
    if enrolled is None:
        widths = Counter(len(vector) for vector in vectors if vector is not None)
        width = widths.most_common(1)[0][0] if widths else 0
    else:
        known = getattr(enrolled, name)
        width = 0 if known is None else known.shape[1]
    if need and width == 0:
        raise MissingError(
            f"the policy needs {name}, but none of {len(vectors)} clients gave any: {_DESCRIBED[name]} where "
            "clients are described (available= or describe= of a session, fedpick.flower.describe in a ClientApp)"
        )
    table: NDArray[np.float64] = np.zeros((len(vectors), width))
    for at, vector in enumerate(vectors):
        if vector is not None and len(vector) == width:
            table[at] = vector
        elif vector is not None and width:
            log.warning("ignored the %d %s of a newcomer: other clients have %d", len(vector), name, width)
    return table if width else None
