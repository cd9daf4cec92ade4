"""What a reply says, read with distrust: whatever a client sends, the round goes on.

A reply that Flower's strategies could not aggregate (other keys or shapes than the rest, NaN, no weight) would end the
ServerApp with an exception, so it counts as that client's failure here and never reaches them.
"""

import math
import reprlib
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord

from fedpick.types import Floats

__all__ = ["Heard", "agree", "number", "plain", "read", "table", "without_handler"]

LOSSES = ("train_loss", "loss", "train-loss")  # first come, first read
SECONDS = "seconds"
MOST_METRICS = 1_000  # names in a reply
LONGEST_LIST = 1_000_000  # numbers in one of them
LONGEST_REPORT = 100_000  # numbers in one that a policy learns from
LARGEST_WEIGHT = 1e15  # examples


def number(value: Any) -> float:
    """The value if it is a number, else NaN."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return math.nan
    try:
        return float(value)
    except OverflowError:  # an int beyond 1e308
        return math.inf if value > 0 else -math.inf


def plain(text: str) -> str:
    """What a client said, short and in one line, for logs."""
    return "".join(char if char.isprintable() else " " for char in text[:300])


def _short(report: Any) -> bool:
    return not isinstance(report, list) or len(report) <= LONGEST_REPORT


def without_handler(reply: Message) -> bool:
    """Whether an error says that the ClientApp has no function for such a message."""
    return "function registered with name" in (reply.error.reason or "")


@dataclass
class Heard:
    """A reply and what was read from it; `why` says what makes it unusable, "" if nothing."""

    reply: Message
    why: str = ""
    loss: float = math.nan
    seconds: float = math.nan
    reports: dict[str, Any] = field(default_factory=dict)
    shape: Hashable = None  # what replies must have in common to be aggregated
    like_sent: bool = False


def _differs(name: str, values: Any, sent: Array) -> str:
    """What keeps an array from taking the place of the one that was sent, "" if nothing."""
    # Not the type: a mean turns integers into floats, which clients then send back as integers. Most of them decide.
    was, shape = np.dtype(sent.dtype), tuple(sent.shape)
    if values.dtype.kind == "c" != was.kind:
        return f"array {name!r} of type {values.dtype} instead of {was}"
    serialised = was == np.uint8 and len(shape) == values.ndim == 1  # a tree model has any length
    if values.shape != shape and not serialised:
        return f"array {name!r} of shape {values.shape} instead of {shape}"
    return ""


def _arrays(reply: Message, sent: ArrayRecord | None, averaged: bool) -> tuple[Hashable, bool, str]:
    """(what must be common to all, whether it is as the model that was sent, what is wrong).

    Args:
        reply: from a client.
        sent: the model that it was sent.
        averaged: whether the base averages replies into the next model, which then must have the same arrays.
    """
    records = reply.content.array_records
    if averaged and len(records) != 1:
        return None, False, f"{len(records)} ArrayRecords instead of one"
    shapes: list[Hashable] = []
    like = True
    for key, record in records.items():
        names = list(record)
        alike = sent is not None and set(names) == set(sent)
        like = like and alike
        if averaged and sent and not alike:
            return None, False, f"arrays {_names(names)} instead of the model's {_names(list(sent))}"
        if averaged and sent and names != list(sent):  # some strategies go by the order
            return None, False, "its arrays are in another order than the model's"
        for name, array in record.items():
            model = sent[name] if sent is not None and name in sent else None
            if model is not None and array.stype == model.stype != "numpy.ndarray":
                shapes.append((key, name))  # in a form of the user's own, which only the base strategy can read
                continue
            values = array.numpy()
            if values.dtype.kind not in "biufc":
                return None, False, f"array {name!r} of type {values.dtype}"
            if values.dtype.kind in "fc" and not np.isfinite(values).all():
                return None, False, f"NaN or infinity in array {name!r}"
            wrong = _differs(name, values, model) if averaged and model is not None else ""
            if wrong:
                return None, False, wrong
            length = () if values.dtype == np.uint8 and values.ndim == 1 else values.shape
            shapes.append((key, name, values.dtype.str, length))
    return tuple(shapes), like, ""


def _names(names: Sequence[str]) -> str:
    return ", ".join(f"{name[:40]!r}" for name in names[:3]) + (", ..." if len(names) > 3 else "")


def _metrics(reply: Message, weight: str | None) -> tuple[Hashable, str]:
    records = reply.content.metric_records
    if weight is not None and len(records) != 1:
        return None, f"{len(records)} MetricRecords instead of one"
    kinds = set()
    for key, record in records.items():
        if len(record) > MOST_METRICS:
            return None, f"{len(record)} metrics, but at most {MOST_METRICS} are read"
        for name, value in record.items():
            length = len(value) if isinstance(value, list) else -1
            if length > LONGEST_LIST:
                return None, f"metric {name[:40]!r} has {length} numbers, but at most {LONGEST_LIST} are read"
            kinds.add((key, name, length))
        if weight is not None:
            value = number(record.get(weight))
            if not 0 < value <= LARGEST_WEIGHT:
                said = reprlib.repr(record.get(weight))
                return None, f"metric {weight!r} is {said}, but must be a number > 0, at most {LARGEST_WEIGHT:g}"
    return frozenset(kinds), ""


def read(
    reply: Message, *, sent: ArrayRecord | None, weight: str | None, names: Iterable[str] = (), train: bool = True
) -> Heard:
    """Read one reply.

    Args:
        reply: from a client.
        sent: the model that the client was sent.
        weight: name of the metric that the base strategy averages by; None if it does not say.
        names: metrics to keep as reports.
        train: whether an ArrayRecord is due.
    """
    heard = Heard(reply)
    if reply.has_error():
        heard.why = plain(f"error {reply.error.code}: {(reply.error.reason or '')[-200:]}")
        return heard
    try:
        arrays: Hashable = None
        if train:
            arrays, heard.like_sent, heard.why = _arrays(reply, sent, weight is not None)
        metrics, wrong = _metrics(reply, weight)
        heard.why = plain(heard.why or wrong)
        if heard.why:
            return heard
        heard.shape = (arrays, metrics)
        record = next(iter(reply.content.metric_records.values()), MetricRecord())
        if not train:
            bad = next((name for name, value in record.items() if not np.isfinite(value).all()), None)
            heard.why = "" if bad is None else plain(f"metric {bad!r} is NaN or infinite")  # the mean would be, too
        for name in LOSSES:
            if name in record and not isinstance(record[name], list):
                heard.loss = number(record[name])
                if not math.isfinite(heard.loss):
                    heard.why = f"metric {name!r} is {record[name]}"
                break
        heard.seconds = number(record.get(SECONDS))
        heard.reports = {name: record[name] for name in names if name in record and _short(record[name])}
    except Exception as error:  # bytes that are no array, records of another kind: all of it the client's doing
        heard.why = plain(f"unreadable: {type(error).__name__}: {error}")
    return heard


def agree(heard: Sequence[Heard], usual: Hashable = None) -> Hashable:
    """Mark as unusable those whose records differ from most others', which Flower refuses to aggregate.

    Returns what the others have in common; `usual`, what the last round's had, and likeness to the model decide ties.
    """
    usable = [each for each in heard if not each.why]
    votes = Counter(each.shape for each in usable)
    if not votes:
        return usual
    like = {each.shape for each in usable if each.like_sent}
    best = max(votes, key=lambda shape: (votes[shape], shape == usual, shape in like))
    for each in usable:
        if each.shape != best:
            each.why = "its records have other names, shapes or types than those of most clients in this round"
    return best


def table(values: Sequence[Any], width: int | None) -> tuple[Floats | None, int | None]:
    """One report of all chosen clients as an array: a number each (width 0), or a row each.

    Args:
        values: a number, a list of numbers or None for each client.
        width: that earlier rounds had; None lets most clients decide. Others become NaN.
    """
    if width is None:
        widths = Counter(len(v) if isinstance(v, list) else 0 for v in values if v is not None and v != [])
        if not widths:
            return None, None
        width, agreed = widths.most_common(1)[0]
        if agreed < 2:  # one client alone does not decide for all and for good
            return None, None
    out = np.full(len(values) if width == 0 else (len(values), width), np.nan)
    for at, value in enumerate(values):
        if width == 0 and not isinstance(value, list):
            out[at] = number(value)
        elif isinstance(value, list) and len(value) == width:
            out[at] = [number(entry) for entry in value]
    return out, width
